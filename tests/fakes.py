"""A bench that answers from a table: what each commit would measure, and what goes wrong on the way."""

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.analysis.early_stop import StopRule
from bisector.campaign.equipment import Equipment, KernelEquality, MeasurerFactory
from bisector.campaign.instructions import Crew
from bisector.config import Settings
from bisector.core.events import Listener, StageStarted
from bisector.core.figures import Contention, EarlyStop, StopReason
from bisector.core.subject import Commit, Compiler, Kernel, Mattering, RebuildCheck, Setup
from bisector.core.trial import Artifact, AttemptFailed, Fault, FaultKind, Stage, Trial, TrialRefused
from bisector.executor.base import (
    BuildRequest,
    ControlRequest,
    Executor,
    Failed,
    Job,
    News,
    Progress,
    Request,
    Result,
    cancelled,
    ended,
)
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.host import files
from bisector.storage.stack import lone_disk
from bisector.trial.runner import TrialRequest
from bisector.workload.fio.fio import Fio
from tests import examples
from tests.examples import BUSY, QUIET

# Runs that this bench makes up leave no logs to be split by, so that they count as wholes, in other processes that have
# such a bench, too. Modules load settings when they are imported.
ARE_SPLIT = Fio.are_split
Fio.are_split = lambda self: False  # type: ignore[method-assign]

HOST = "host (cpu)"
SLOW_IOPS, FAST_IOPS = 1_000.0, 4_000.0
DISKS_IOPS = {"ssd": (5_000.0, 9_000.0), "hdd": (500.0, 501.0)}


GCC = Compiler("gcc", "gcc 12.2.0, GNU ld 2.40")
OLD_GCC = Compiler("gcc-11", "gcc-11 11.3.0, GNU ld 2.40")


class Killed(BaseException):
    """The process is gone, as by SIGKILL: nothing in bisector may catch it."""


def trial(
    commit: Commit,
    least: float = SLOW_IOPS,
    *,
    fault: Fault | None = None,
    contention: Contention = QUIET,
    content: str = "",
    same_as: str | None = None,
    stopped: EarlyStop | None = None,
) -> Trial:
    """What a trial of this commit says, its slowest job of the second run doing ``least``."""
    measured = fault is None and same_as is None
    full = examples.cache()
    return examples.trial(
        commit,
        *(
            examples.run(name, slowest, 8_000.0, before=full, after=full, contention=contention, stopped_early=stop)
            for name, slowest, stop in (("empty", 2_000.0, None), ("full", least, stopped))
            if measured
        ),
        fault=fault,
        built=examples.kernel(content=content or commit.sha),
        same_kernel_as=same_as,
    )


BUILD_ERROR = Fault(Stage.BUILD, FaultKind.BUILD_ERROR, "drivers/md/dm.c:1:1: error: expected ';'")
BUILD_TIMEOUT = Fault(Stage.BUILD, FaultKind.BUILD_TIMEOUT, "kernel build not done after 3600 s (in make bzImage)")
PANIC = Fault(Stage.BOOT, FaultKind.PANIC, "Kernel panic - not syncing: test")


# How an end without a commit, or with it, is called.
_CHANGED = re.compile(r'(Revert|Pick) "(.*)"')


def at_speed(before: float, of: Contention = QUIET, after: float | None = None) -> Contention:
    """The same on cores of a speed, which may have another one after the run."""
    return replace(of, mib_s_before=before, mib_s_after=before if after is None else after)


class Begun(Job):
    """A job of which progress was told."""


def counted(made: Trial, request: TrialRequest) -> Trial:
    """A trial as a guest makes it whose time is counted: with the same random numbers it does the same again."""
    key = f"{request.commit.sha}/{request.guest_seed}"
    console = Artifact("console.log", f"trials/{request.n:04d}-{request.commit.short}/console.log", key, 1)
    era = replace(examples.ERA, clock="8 ns an instruction").sealed
    return replace(made, era=era, guest_seed=request.guest_seed, artifacts=(console,))


def waiting(made: Trial, ns_per_s: float) -> Trial:
    """The same trial, whose jobs wait for each I/O so many ns of the second that their IOPS share."""
    runs = (
        replace(run, jobs=tuple(replace(job, clat_mean_ns=ns_per_s / job.iops_mean) for job in run.jobs))
        for run in made.runs
    )
    return replace(made, runs=tuple(runs))


@dataclass
class FakeExecutor:
    """An executor whose commits are fast when ``is_new`` says so, as are ends that have the commit called ``culprit``.

    ``faults`` are a kernel's own, at every trial of it; ``infra`` and ``busy`` say how many of the first attempts at a
    commit fail by our fault, or on a contended host, ``refused`` how many of them find the input at fault. Ours is at
    ``infra_stage``, or without facts. ``broken`` is what a control through each stage ends in, in turn where it is a
    list. ``content`` gives equal kernels the same text. ``wrong`` says how many of the first measurements of a commit
    show the other side, ``changed_fault`` what every end without a commit ends in. The process dies at the trial number
    ``kill_at``, or at the so manieth build alone that it is asked for, which ``does_not_build`` by some compilers. With
    ``stops_early`` it ends the runs that may be; those of the ``misleading`` on the wrong side. ``iops`` are figures of
    their own. On another setup than ``setup`` a commit is called as the disk of that, ``ssd`` or ``hdd``. The host's
    cores have the speed ``mib_s`` at the trial of a number, and its figures that ``factor``. What comes of the trials
    ``mixed_up`` is changed at their first attempt. With ``keyed`` it is known what kernels were made from, so that they
    can be built once more; ``check_by_rebuild`` has what comes of it, else it is the kernel that was measured.
    ``before`` is called for each trial, and ``also`` changes what came of it.

    What it was asked for is in ``requests``, ``builds`` and ``controls``, of whole trials the commits are ``measured``.
    """

    is_new: Callable[[str], bool]
    faults: Mapping[str, Fault] = field(default_factory=dict)
    infra: Mapping[str, int] = field(default_factory=dict)
    infra_stage: Stage | None = Stage.BOOT
    busy: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    wrong: Mapping[str, int] = field(default_factory=dict)
    content: Mapping[str, str] = field(default_factory=dict)
    iops: Mapping[str, float] = field(default_factory=dict)
    slow_iops: float = SLOW_IOPS
    fast_iops: float = FAST_IOPS
    culprit: str = ""
    changed_fault: Fault | None = None
    broken: Mapping[Stage, Fault | Exception | list[Fault | None]] = field(default_factory=dict)
    installed: tuple[Compiler, ...] = (GCC,)
    does_not_build: Mapping[tuple[str, str], Fault] = field(default_factory=dict)
    keyed: bool = False
    check_by_rebuild: Mapping[str, RebuildCheck | Fault] = field(default_factory=dict)
    kill_at: int | None = None
    kill_at_build: int | None = None
    stops_early: bool = False
    misleading: frozenset[str] = frozenset()
    setup: Setup = examples.SETUP
    mib_s: Callable[[int], float] | None = None
    factor: Callable[[int], float] = lambda _: 1.0
    before: Callable[[TrialRequest], object] = lambda _: None
    also: Callable[[TrialRequest, Trial], Trial] = lambda _, made: made
    mixed_up: dict[int, Callable[[Trial], Trial]] = field(default_factory=dict)
    requests: list[TrialRequest] = field(default_factory=list)
    builds: list[BuildRequest] = field(default_factory=list)
    controls: list[tuple[str, Stage]] = field(default_factory=list)
    measured: list[str] = field(default_factory=list)
    rules: list[tuple[str, StopRule | None]] = field(default_factory=list)
    attempts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    waited_s: list[float] = field(default_factory=list)
    jobs: deque[Job] = field(default_factory=deque)
    cancelled: set[int] = field(default_factory=set)

    @property
    def tried(self) -> list[tuple[str, str]]:
        """Which compilers were tried at which commits."""
        return [(one.compiler.command, one.commit.sha) for one in self.builds if one.measured is None]

    @property
    def once_more(self) -> list[str]:
        """The commits whose kernels were built once more."""
        return [one.commit.sha for one in self.builds if one.measured is not None]

    @property
    def idle(self) -> tuple[str, ...]:
        return () if self.jobs else (HOST,)

    def submit(self, job: Job, host: str = "") -> None:
        self.jobs.append(job)

    def wait(self, within_s: float | None) -> bool:
        if not self.jobs and within_s is not None:
            self.waited_s.append(within_s)
            return False
        return True

    def cancel(self, id_: int) -> None:
        self.cancelled |= {job.id for job in self.jobs if job.id == id_}

    def next(self) -> News:
        if not self.jobs:
            raise ValueError("no job was submitted")
        job = self.jobs.popleft()
        if job.id in self.cancelled:
            self.cancelled.remove(job.id)
            return cancelled(job, HOST)
        if isinstance(job, Begun):
            return ended(job, HOST, self._work)
        self.jobs.appendleft(Begun(job.id, job.request))
        return Progress(job.id, StageStarted(job.request.commit, Stage.CHECKOUT))

    def _work(self, request: Request) -> Result:
        match request:
            case TrialRequest():
                made, change = self._keyed(self.measure(request)), self.mixed_up.pop(request.n, None)
                return made if change is None else change(made)
            case ControlRequest(commit=commit, compilers=compilers, through=through):
                return self.control(commit, compilers, through)
            case BuildRequest(commit=commit, compiler=compiler):
                self.builds.append(request)
                if len(self.builds) == self.kill_at_build:
                    raise Killed
                if (measured := request.measured) is not None:
                    return self.check_by_rebuild.get(commit.sha, RebuildCheck((measured.content_sha256,)))
                return self.try_build(commit, compiler)

    def _keyed(self, made: Trial) -> Trial:
        if not self.keyed or made.kernel is None:
            return made
        return replace(made, kernel=replace(made.kernel, key=f"{'f' * 32}-{made.commit.tree}", toolchain=GCC.identity))

    def control(self, commit: Commit, compilers: tuple[Compiler, ...], through: Stage) -> Fault | None:
        self.controls.append((commit.sha, through))
        answer = self.broken.get(through)
        if isinstance(answer, Exception):
            raise answer
        return answer.pop(0) if isinstance(answer, list) else answer

    def compilers(self) -> tuple[Compiler, ...]:
        return self.installed

    def try_build(self, commit: Commit, compiler: Compiler) -> Fault | None:
        return self.does_not_build.get((compiler.command, commit.sha))

    def measure(self, request: TrialRequest) -> Trial:
        self.before(request)
        return self.also(request, replace(self._measured(request), cell=request.cell))

    def _measured(self, request: TrialRequest) -> Trial:
        commit, setup = request.commit, request.cell.setup
        self.requests.append(request)
        if (disk := None if setup == self.setup else lone_disk(setup.stack)) is not None:  # a baseline's
            commit = replace(commit, sha=disk, subject="")
        if request.n == self.kill_at:
            raise Killed
        self.attempts[commit.sha] += 1
        attempt = self.attempts[commit.sha]
        if attempt <= self.infra.get(commit.sha, 0):
            stage = self.infra_stage
            facts = None if stage is None else replace(trial(commit), stage=stage, runs=())
            raise AttemptFailed("the network went away", "", stage or Stage.CHECKOUT, HOST, facts)
        if attempt <= self.refused.get(commit.sha, 0):
            facts = replace(trial(commit), stage=Stage.WORKLOAD, runs=())
            raise TrialRefused("the guest's root disk is full", "the image needs some free space", facts)
        content = self.content.get(commit.sha, commit.sha)
        if (other := request.measured_kernels.get(content)) is not None:
            return trial(commit, content=content, same_as=other)
        self.measured.append(commit.sha)
        fault = self.changed_fault if _CHANGED.fullmatch(commit.subject) else self.faults.get(commit.sha)
        if fault is not None:
            return trial(request.commit, fault=fault, content=content)
        contention = BUSY if attempt <= self.busy.get(commit.sha, 0) else QUIET
        if self.mib_s is not None:
            contention = at_speed(self.mib_s(request.n), contention)
        if disk is not None:
            return examples.baseline(disk, *DISKS_IOPS[disk], of=request.commit, contention=contention)
        shows_new = self._shows_new(commit)
        least = self.iops.get(commit.sha, self.fast_iops if shows_new else self.slow_iops) * self.factor(request.n)
        self.rules.append((commit.sha, request.stop))
        whole = trial(commit, least, contention=contention, content=content)
        if not request.stop or not self.stops_early:
            return whole
        stopped = self._stopped(commit.sha, request.stop.objective.value(whole.runs[-1]), request.stop)
        return trial(commit, least, contention=contention, content=content, stopped=stopped)

    def _stopped(self, sha: str, value: float, rule: StopRule) -> EarlyStop:
        if (value > rule.threshold) is not (sha in self.misleading):
            return rule.stopped(StopReason.ABOVE, 12.0, rule.threshold * 1.2, "above")
        return rule.stopped(StopReason.NOT_ABOVE, 26.0, rule.threshold / 2, "below")

    def _shows_new(self, commit: Commit) -> bool:
        if changed := _CHANGED.fullmatch(commit.subject):
            return (changed[2] == self.culprit) is (changed[1] == "Pick")
        return self.is_new(commit.sha) is (self.measured.count(commit.sha) > self.wrong.get(commit.sha, 0))


class FakeEquality(KernelEquality):
    """Knows what a table says: the parents that have a commit's kernel, and how much of the range can matter."""

    def __init__(
        self,
        repository: Repository,
        twins: Mapping[str, str] | None = None,
        known: Mattering | None = None,
        kept_kernels: frozenset[str] = frozenset(),
    ) -> None:
        self.repository, self.twins, self.known, self.kept_kernels = repository, twins or {}, known, kept_kernels

    def parents(self, sha: str) -> tuple[str, ...]:
        return self.repository.parents(sha)

    def parent_with_same_kernel(self, commit: Commit, kernel: Kernel) -> Commit | None:
        return next(iter(self.repository.commits([self.twins[commit.sha]])), None) if commit.sha in self.twins else None

    def mattering(self, wanted: Range, old: Kernel, new: Kernel) -> Mattering | None:
        return self.known

    def kept(self, wanted: Range, compilers: Sequence[Compiler]) -> frozenset[str]:
        return self.kept_kernels


def equipped(executor: Executor, crew: Crew | None = None) -> MeasurerFactory:
    """What gives a run this executor, and knows nothing of equal kernels."""

    @contextmanager
    def equip(_settings: Settings, _run: Path, repository: Repository, _tell: Listener) -> Iterator[Equipment]:
        yield Equipment(executor, FakeEquality(repository), crew or Crew())

    return equip


def among(shas: Iterable[str]) -> Callable[[str], bool]:
    """Whether a hash is one of these."""
    known = frozenset(shas)
    return lambda sha: sha in known


def measured(executor: Executor, request: TrialRequest) -> Trial:
    """The trial that comes of a request; raises what it failed with."""
    result = _result_of(executor, Job(1, request))
    assert isinstance(result, Trial)
    return result


def faulted(executor: Executor, request: ControlRequest | BuildRequest, id_: int = 1) -> Fault | None:
    """The same of a control, or a build that is tried."""
    result = _result_of(executor, Job(id_, request))
    assert result is None or isinstance(result, Fault)
    return result


def _result_of(executor: Executor, job: Job) -> Result:
    executor.submit(job)
    while isinstance(news := executor.next(), Progress):
        pass
    if isinstance(news, Failed):
        raise news.error
    return news.result


def told_before_removal(monkeypatch: pytest.MonkeyPatch, output: Callable[[], str]) -> Mapping[str, str]:
    """What a person had been told when each directory was removed, by its name; ``output`` returns what is new."""
    told, so_far, remove = dict[str, str](), list[str](), files.remove_tree

    def removing(path: Path) -> None:
        so_far.append(output())
        told[path.name] = "".join(so_far)
        remove(path)

    monkeypatch.setattr(files, "remove_tree", removing)
    return told
