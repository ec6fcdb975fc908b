"""What does jobs in tests of other hosts: a measurement of some milliseconds, and what may happen to it.

Its figure is drawn by commit, host and number alone, so no order of events changes it. What is to happen to a job is
in a file on the host (:func:`plan`): a test names the points at which a job waits, and lets it go on.
"""

import hashlib
import json
import os
import pickle
import random
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.core.events import Listener, StageStarted
from bisector.core.subject import Kernel, Kind
from bisector.core.trial import Stage, Trial
from bisector.executor.base import Failed, Finished, Job
from bisector.executor.local import kept_kernels
from bisector.fleet.spec import Spec
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.host import process
from bisector.host.identity import host_id
from bisector.store.log import now
from bisector.store.rundir import collect, trial_directory
from bisector.trial.runner import TrialRequest
from tests import examples, fakes
from tests.executor.bench import at_once, local
from tests.fleet.on_host import HOME

WAIT_S = 100.0
# Points at which a job may wait, and what may happen to it.
MEASURED, LEAVES, DIES, IS_A_BUG, IS_ANOTHER = "measured", "leaves", "dies", "a bug", "another"


def plan(host: Path, **does: str) -> None:
    """What happens to the trials of these numbers on a host the first time, as ``trial_7="dies"``."""
    host.mkdir(parents=True, exist_ok=True)
    (host / "plan.json").write_text(json.dumps(does))


def truth(host: Path, culprit: str, new: Sequence[str], times: float = 1.0) -> None:
    """Which kernels are new on a host where everything is so many times as fast."""
    host.mkdir(parents=True, exist_ok=True)
    (host / "truth.json").write_text(json.dumps({"culprit": culprit, "new": list(new), "times": times}))


def reached(host: Path, id_: int, point: str) -> bool:
    """Whether a trial is at a point, or was."""
    return (host / f"{id_}-{point}").exists()


def let_go(host: Path, id_: int, point: str) -> None:
    """Let a trial go on there."""
    (host / f"{id_}-{point}-go").touch()


def runs(host: Path, id_: int) -> int:
    """How often a trial was begun."""
    path = host / f"{id_}-runs"
    return len(path.read_text().splitlines()) if path.exists() else 0


def builds(host: Path) -> dict[int, str]:
    """The commits that were built on a host, by job."""
    path = host / "builds"
    return {int(id_): sha for id_, sha in map(str.split, path.read_text().splitlines())} if path.exists() else {}


@contextmanager
def searched(spec: Spec, place: Path, repository: Path, tell: Listener) -> Iterator[Finished | Failed]:
    """One fake measurement of a history in which one commit made the change; its sources are looked at."""
    host, id_ = Path(os.environ[HOME]), spec.key.id
    told = json.loads((host / "truth.json").read_text())
    request = spec.unpacked(place)[1]
    if not isinstance(request, TrialRequest):
        yield Finished(id_, host_id(), None, now())
        return
    with (host / f"{request.n}-runs").open("a") as file:
        file.write("run\n")
    subject = request.cell.subject
    if subject.is_commit and spec.kernel is None and not kept(spec):
        opened = Repository.open(repository, run_marker=place)
        assert (SourceTree(opened, place).checkout(request.commit) / "Makefile").is_file()
    tell(StageStarted(request.commit, Stage.WORKLOAD, "full run"))
    is_new = subject.commit.sha in told["new"]
    if not subject.is_commit:
        is_new = (subject.changed_by == told["culprit"]) is (subject.kind is Kind.PICKED)
    # Figures are far apart, and never twice the same
    wobble = 1 + 0.01 * random.Random(f"{subject.commit.sha} {id_}").random()
    iops = told["times"] * (40 if is_new else 1) * fakes.SLOW_IOPS * wobble
    logs = trial_directory(place, request.n, request.commit)
    (logs / "console.log").write_text(f"{spec.key} on this host\n")
    trial = replace(fakes.trial(request.commit, iops), cell=request.cell, artifacts=collect(logs, place))
    does = _does(host, request.n)
    _do(host, request.n, does, place)
    if does == IS_ANOTHER:
        trial = replace(trial, cell=replace(request.cell, subject=replace(subject, commit=examples.commit(3))))
    yield Finished(id_, host_id(), trial, now())


@contextmanager
def sharing(spec: Spec, place: Path, repository: Path, tell: Listener) -> Iterator[Finished | Failed]:
    """A measurement as :func:`searched`, of a kernel that is built unless it is kept; or its build alone."""
    host, key = Path(os.environ[HOME]), spec.kernels[0]
    if (kernel := kept_kernels().find(key)) is None:
        with (host / "builds").open("a") as file:
            file.write(f"{spec.key.id} {spec.request.commit.sha}\n")
        kernel = kept_kernels().store(_kernel(place, key, f"built in job {spec.key.id}"))
    with searched(spec, place, repository, tell) as news:
        match news:
            case Finished(result=Trial() as trial):
                yield replace(news, result=replace(trial, kernel=kernel))
            case _:
                yield news


@contextmanager
def by_contract(spec: Spec, place: Path, repository: Path, tell: Listener) -> Iterator[Finished | Failed]:
    """The path of a trial on this host with a builder and guests that answer at once, as the contract has it."""
    settings, request = spec.unpacked(place)
    with pytest.MonkeyPatch.context() as patch:
        at_once(patch)
        executor = local(place, settings, pickle.loads((place.parent / "bad").read_bytes()))
        tell(StageStarted(request.commit, Stage.CHECKOUT))
        executor.submit(Job(spec.key.id, request))
        yield executor.next()


def kept(spec: Spec) -> bool:
    return bool(spec.kernels) and kept_kernels().find(spec.kernels[0]) is not None


def _kernel(place: Path, key: str, content: str) -> Kernel:
    for name in ("bzImage", ".config"):
        (place / name).write_text(f"{content}\n")
    made = replace(examples.kernel(content=hashlib.sha256(content.encode()).hexdigest()), key=key)
    return replace(made, image=place / "bzImage", config=place / ".config", modules=None)


def _does(host: Path, id_: int) -> str:
    path = host / "plan.json"
    told: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return told.get(f"trial_{id_}", "") if runs(host, id_) == 1 else ""


def _do(host: Path, id_: int, does: str, place: Path) -> None:
    if does in (MEASURED, LEAVES):
        if does == LEAVES:  # as make does, in a session of its own
            env = process.environment(process.mark(place))
            child = subprocess.Popen(["sleep", str(2 * WAIT_S)], env=env, start_new_session=True)
            (host / "left").write_text(str(child.pid))
        (host / f"{id_}-{does}").write_text(str(os.getpid()))
        go = host / f"{id_}-{does}-go"
        Deadline(f"leave to go on from {does}", 2 * WAIT_S).poll(lambda: go.exists() or None, 0.01)
    elif does == DIES:
        os.kill(os.getpid(), signal.SIGKILL)
    elif does == IS_A_BUG:
        raise ZeroDivisionError("of nothing")
