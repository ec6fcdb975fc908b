"""What does jobs in tests of other hosts: a measurement of some milliseconds, and what may happen to it.

Its figure is drawn by commit, host and number alone, so no order of events changes it. What is to happen to a job is
in a file beside the spool (:func:`plan`): a test names the points at which a job waits, and lets it go on.
"""

import hashlib
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.core.errors import AttemptFailed, UserError
from bisector.core.events import Listener, LiveSample, StageStarted
from bisector.core.metric import Unit
from bisector.core.subject import Kernel, Kind
from bisector.core.trial import Stage, Trial
from bisector.executor.base import Failed, Finished, Job
from bisector.executor.spec import Spec
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.host import process
from bisector.host.load import host_id
from bisector.kernel.cache import KernelCache
from bisector.storage import layout
from bisector.store.log import now
from bisector.store.run_files import collect, trial_directory
from bisector.trial.runner import TrialRequest
from bisector.workload.fio.fio import Fio
from tests import examples, fakes
from tests.executor.bench import Bad, Workload, local

FAKE = f"{__name__}:measured"
SEARCHED = f"{__name__}:searched"
TIMED = f"{__name__}:timed"
TIMED_S, _TIMED_GIVE = 2.0, 0.1
CONTRACT = f"{__name__}:by_contract"
SOURCES = f"{__name__}:checked_out"
BUILT = f"{__name__}:built"
SHARING = f"{__name__}:sharing"
WAIT_S = 60.0


class Does(StrEnum):
    """What a job does; anything else that a plan says is a point at which it waits."""

    NOTHING = ""
    FAILS = "fails"
    IS_A_BUG = "is a bug"
    CANNOT_BEGIN = "cannot begin"
    HANGS = "hangs"
    IS_DEAF = "is deaf"
    DIES = "dies"
    LEAVES = "leaves"


# Points at which a job may wait, in their order.
BUILDING, BEGUN, MEASURED, KEPT = "building", "begun", "measured", "kept"


def plan(spool: Path, **does: str) -> None:
    """What happens to the jobs of these numbers, as ``job_7="hangs"``."""
    spool.mkdir(parents=True, exist_ok=True)
    (spool / "plan.json").write_text(json.dumps(does))


def reached(spool: Path, id_: int, point: str) -> None:
    """Wait until a job is at a point."""
    Deadline(point, WAIT_S).poll(lambda: (spool / f"{id_}-{point}").exists() or None, 0.01)


def let_go(spool: Path, id_: int, point: str) -> None:
    """Let a job go on there."""
    (spool / f"{id_}-{point}-go").touch()


def runs(spool: Path, id_: int) -> int:
    """How often a job was begun."""
    path = spool / f"{id_}-runs"
    return len(path.read_text().split()) if path.exists() else 0


def figure(sha: str, host: str, n: int) -> float:
    """What a trial measures: the same whenever it is."""
    return round(random.Random(f"{sha} {host} {n}").uniform(500, 1500), 1)


@contextmanager
def measured(spec: Spec, place: Path, repository: Path, tell: Listener) -> Iterator[Finished | Failed]:
    """One fake measurement."""
    spool = place.parent.parent
    does = _does(spool, spec.key.id)
    with (spool / f"{spec.key.id}-runs").open("a") as file:
        file.write("run\n")
    if does == Does.CANNOT_BEGIN:
        raise UserError("there is no mirror on this host", "git clone --mirror")
    _wait(spool, spec.key.id, BEGUN, does)
    request = spec.unpacked(place)[1]
    assert isinstance(request, TrialRequest)
    tell(StageStarted(request.commit, Stage.WORKLOAD, "full run"))
    for share in range(3):
        tell(LiveSample("full", 1000.0 + share, Unit.IOPS, share / 3))
    _do(does, place)
    logs = trial_directory(place, request.n, request.commit)
    (logs / "console.log").write_text(f"{spec.key} on this host\n")
    (logs / "full").mkdir()
    (logs / "full" / "fio.json").write_bytes(random.Random(spec.key.id).randbytes(50_000))
    trial = fakes.trial(request.commit, figure(request.commit.sha, host_id(), request.n))
    _wait(spool, spec.key.id, MEASURED, does)
    trial = replace(trial, cell=request.cell, artifacts=collect(logs, place))
    if does == Does.FAILS:
        error = AttemptFailed("the network went away", "", Stage.WORKLOAD, host_id(), trial)
        yield Failed(spec.key.id, host_id(), error, now())
    else:
        yield Finished(spec.key.id, host_id(), trial, now())
    _wait(spool, spec.key.id, KEPT, does)


def _does(spool: Path, id_: int) -> str:
    path = spool / "plan.json"
    told: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return told.get(f"job_{id_}", Does.NOTHING)


def _wait(spool: Path, id_: int, point: str, does: str) -> None:
    if does == point:
        (spool / f"{id_}-{point}").touch()
        Deadline(f"leave to go on from {point}", WAIT_S).poll(
            lambda: (spool / f"{id_}-{point}-go").exists() or None, 0.01
        )


def _do(does: str, place: Path) -> None:
    match does:
        case Does.IS_A_BUG:
            raise ZeroDivisionError("of nothing")
        case Does.DIES:
            sys.stderr.write("fio: killed by the OOM killer, say\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        case Does.HANGS | Does.IS_DEAF | Does.LEAVES:
            if does == Does.IS_DEAF:
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            if does == Does.LEAVES:  # as make does, in a session of its own
                env = process.environment(process.mark(place))
                subprocess.Popen(["sleep", str(WAIT_S)], env=env, start_new_session=True)
            (place.parent.parent / "hanging").touch()
            time.sleep(WAIT_S)


def timed_s(id_: int) -> float:
    """How long a trial takes: about :data:`TIMED_S`, since no two trials take the same time."""
    return TIMED_S * random.Random(id_).uniform(1 - _TIMED_GIVE, 1 + _TIMED_GIVE)


@contextmanager
def timed(spec: Spec, place: Path, repository: Path, tell: Listener) -> Iterator[Finished | Failed]:
    """A trial that takes its time and measures nothing."""
    time.sleep(timed_s(spec.key.id))
    request = spec.unpacked(place)[1]
    yield Finished(spec.key.id, host_id(), fakes.trial(request.commit), now())


def truth(spool: Path, culprit: str, new: Sequence[str], times: float = 1.0) -> None:
    """Which kernels are new on a host where everything is so many times as fast."""
    spool.mkdir(parents=True, exist_ok=True)
    (spool / "truth.json").write_text(json.dumps({"culprit": culprit, "new": list(new), "times": times}))


@contextmanager
def searched(spec: Spec, place: Path, repository: Path, tell: Listener) -> Iterator[Finished | Failed]:
    """One fake measurement of a history in which one commit made the change."""
    spool, id_ = place.parent.parent, spec.key.id
    does, told = _does(spool, id_), json.loads((spool / "truth.json").read_text())
    with (spool / f"{id_}-runs").open("a") as file:
        file.write("run\n")
    request = spec.unpacked(place)[1]
    _wait(spool, id_, BEGUN, does)
    if not isinstance(request, TrialRequest):
        yield Finished(id_, host_id(), None, now())
        return
    tell(StageStarted(request.commit, Stage.WORKLOAD, "full run"))
    subject = request.cell.subject
    is_new = subject.commit.sha in told["new"]
    if not subject.is_commit:
        is_new = (subject.changed_by == told["culprit"]) is (subject.kind is Kind.PICKED)
    # Figures are far apart, and never twice the same
    wobble = 1 + 0.01 * random.Random(f"{subject.commit.sha} {id_}").random()
    iops = told["times"] * (40 if is_new else 1) * fakes.SLOW_IOPS * wobble
    logs = trial_directory(place, request.n, request.commit)
    (logs / "console.log").write_text(f"{spec.key} on this host\n")
    trial = replace(fakes.trial(request.commit, iops), cell=request.cell, artifacts=collect(logs, place))
    _wait(spool, id_, MEASURED, does)
    yield Finished(id_, host_id(), trial, now())
    _wait(spool, id_, KEPT, does)


@contextmanager
def by_contract(spec: Spec, place: Path, repository: Path, tell: Listener) -> Iterator[Finished | Failed]:
    """The path of a trial on this host with a builder and guests that answer at once, as the contract has it."""
    settings, request = spec.unpacked(place)
    workload = Workload()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "lay_out", workload.lay_out)
        patch.setattr(Fio, "run", lambda _, own, site: workload.run(own, site))
        executor = local(place, settings, _bad(place.parent.parent))
        tell(StageStarted(request.commit, Stage.CHECKOUT))
        executor.submit(Job(spec.key.id, request))
        yield executor.next()


@contextmanager
def checked_out(spec: Spec, place: Path, repository: Path, tell: Listener) -> Iterator[Finished | Failed]:
    """Nothing but the sources of a trial's commit, whose file ``one.c`` is kept beside the spool."""
    commit = spec.request.commit
    with Repository.open(repository, run_marker=place) as opened, SourceTree(opened, place, keep=True) as tree:
        text = (tree.checkout(commit) / "one.c").read_text()
    (place.parent.parent / f"{spec.key.id}-one.c").write_text(text)
    yield Finished(spec.key.id, host_id(), fakes.trial(commit, 1000.0), now())


@contextmanager
def built(spec: Spec, place: Path, repository: Path, tell: Listener) -> Iterator[Finished | Failed]:
    """Nothing but the kernel of a trial, which is built unless it is kept; in a build its number is all there is."""
    spool, key = place.parent.parent, spec.kernels[0]
    kept = kernels(spool).find(key)
    if kept is None:
        with (spool / "builds").open("a") as file:
            file.write("build\n")
        kept = kernels(spool).store(a_kernel(place, key, f"built by {spool.parent.name} in job {spec.key.id}"))
    yield Finished(spec.key.id, host_id(), replace(fakes.trial(spec.request.commit, 1000.0), kernel=kept), now())


@contextmanager
def sharing(spec: Spec, place: Path, repository: Path, tell: Listener) -> Iterator[Finished | Failed]:
    """A measurement as :func:`searched`, of a kernel that is built unless it is kept; or its build alone."""
    spool, key = place.parent.parent, spec.kernels[0]
    if (kept := kernels(spool).find(key)) is None:
        with (spool / "builds").open("a") as file:
            file.write(f"{spec.key.id} {spec.request.commit.sha}\n")
        _wait(spool, spec.key.id, BUILDING, _does(spool, spec.key.id))
        kept = kernels(spool).store(a_kernel(place, key, f"built in job {spec.key.id}"))
    with searched(spec, place, repository, tell) as news:
        match news:
            case Finished(result=Trial() as trial):
                yield replace(news, result=replace(trial, kernel=kept))
            case _:
                yield news


def builds(spool: Path) -> dict[int, str]:
    """The commits that were built on a host, by job."""
    path = spool / "builds"
    lines = path.read_text().splitlines() if path.exists() else []
    return {int(id_): sha for id_, sha in map(str.split, lines)}


def kernels(spool: Path) -> KernelCache:
    """Those that a host keeps."""
    return KernelCache(spool / "kernels", 1 << 30)


def a_kernel(place: Path, key: str, content: str) -> Kernel:
    """One that would be built in a directory."""
    for name in ("bzImage", ".config"):
        (place / name).write_text(f"{content}\n")
    digest = hashlib.sha256(content.encode()).hexdigest()
    made = replace(examples.kernel(content=digest), key=key)
    return replace(made, image=place / "bzImage", config=place / ".config", modules=None)


def at_part(spool: Path) -> None:
    """Count the parts of files that a host was sent, and wait where the plan says so."""
    parts = spool / "parts"
    with parts.open("a") as file:
        file.write("part\n")
    point = f"part{len(parts.read_text().split())}"
    _wait(spool, 0, point, _does(spool, 0))


def _bad(spool: Path) -> Bad:

    found = pickle.loads((spool / "bad").read_bytes())
    assert isinstance(found, Bad)
    return found
