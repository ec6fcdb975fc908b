"""What every executor does, that of this host and that of the loop's tests; and which runs a trial has.

The executor of this host is the real one with its real path of a trial; its builder, guests and fio answer at once.
Guests and fio are tried for real in tests/in_vms.
"""

import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest

from bisector.analysis.early_stop import StopRule
from bisector.config import KernelSettings, Settings, StorageSettings, options
from bisector.core.deadline import Deadline
from bisector.core.errors import AttemptFailed, InfraError, KernelFault
from bisector.core.figures import Run
from bisector.core.shell import Step
from bisector.core.subject import Cell, Compiler, Kernel, Kind, Subject
from bisector.core.trial import Fault, Stage
from bisector.executor.base import BuildRequest, ControlRequest, Executor, Failed, Finished, Job, Progress
from bisector.executor.local import LocalExecutor
from bisector.storage import layers, layout
from bisector.storage.disks import DISKS, kernel_fault
from bisector.storage.layer import Counters, Layer, Made, Phase, Site
from bisector.storage.layout import MountedStack, Readings
from bisector.storage.parse import stack_of
from bisector.storage.stack import Stack
from bisector.trial.runner import Bench, TrialRequest
from bisector.workload.base import MountedStack as RunStack
from bisector.workload.base import RunSite, StopCondition
from bisector.workload.fio.fio import Fio
from tests import examples, fakes
from tests.examples import EARLY
from tests.guestshell import Answer, FakeShell

COMMIT = examples.commit(7)
PHASES = {"lvmcache": ["empty", "full"], "ssd": ["ssd"], "hdd": ["hdd"], "lvmcache(hdd,ssd)+ext4": ["empty", "full"]}
RULE = StopRule(1_363.0, 40.0, 20.5)
CONTENT = "5" * 64


@dataclass(frozen=True)
class Builder:
    """A builder that needs no time; the compilers it has, and those whose builds fail."""

    kernel: Kernel
    failing: frozenset[Compiler] = frozenset()
    compiler: Compiler = fakes.GCC

    def compilers(self) -> tuple[Compiler, ...]:
        return (fakes.GCC, fakes.OLD_GCC)

    def default_compilers(self) -> tuple[Compiler, ...]:
        return (fakes.GCC,)

    def using(self, compiler: Compiler) -> "Builder":
        return replace(self, compiler=compiler)

    def with_settings(self, settings: KernelSettings) -> "Builder":
        return self

    def find(self, tree: str) -> None:
        return None

    def find_alike(self, tree: str, trees: object) -> None:
        return None

    def recall_failure(self, tree: str, logs: Path) -> None: ...

    def build(self, tree: str, places: object) -> Kernel:
        if self.compiler in self.failing:
            raise as_raised(fakes.BUILD_ERROR)
        return self.kernel


class Source:
    """Sources that are there."""

    trees = None

    def checkout(self, commit: object) -> Path:
        return Path("/src")


@dataclass
class Machines:
    """Guests that boot, or raise ``at_boot``."""

    at_boot: Exception | None = None
    guest: object = None
    attached: list[tuple[str, ...]] = field(default_factory=list)

    @contextmanager
    def prepared(
        self, name: str, kernel: Kernel, logs: Path, storage: StorageSettings, append: str
    ) -> Iterator["Machines"]:
        self.attached.append((*tuple(storage.used_disks), *append.split()))
        yield self

    def facts(self) -> dict[str, str]:
        return {}

    def deadline(self, what: str, seconds: float) -> Deadline:
        return Deadline(what, seconds)

    def boot(self) -> None:
        if self.at_boot is not None:
            raise self.at_boot

    def blamed(self, stage: Stage) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass
class Workload:
    """A run of fio that ends at once, early where it may; keeps what it was told."""

    laid_out: list[str] = field(default_factory=list)
    kept_files: list[bool] = field(default_factory=list)
    rules: list[StopCondition | None] = field(default_factory=list)
    stacks: list[RunStack] = field(default_factory=list)

    def lay_out(self, guest: object, stack: Stack, *_: object) -> MountedStack:
        self.laid_out.append(str(stack))
        return MountedStack("/mnt", ("mkfs",))

    def run(self, own: object, site: RunSite) -> Run:
        self.kept_files.append(site.keep_files)
        self.rules.append(site.stop)
        self.stacks.append(site.stack)
        return examples.run(site.name, 1_002.0, 8_046.0, stopped_early=EARLY if site.stop else None)


def as_raised(fault: Fault) -> KernelFault:
    return KernelFault(fault.stage, fault.kind, fault.reason, fault.tail)


@dataclass(frozen=True)
class Bad:
    """What goes wrong: a fault of the kernel at boot, trouble of the host, a compiler that is too new."""

    fault: Fault | None = None
    trouble: bool = False
    failing: frozenset[Compiler] = frozenset()


NOTHING = Bad()
Make: TypeAlias = Callable[[Bad], Executor]


def settings_of(stack: str) -> Settings:
    return options.load({"storage.stack": stack}, directory=Path("/")).settings


def local(
    run_dir: Path,
    settings: Settings,
    bad: Bad = NOTHING,
    attached: list[tuple[str, ...]] | None = None,
    guest: object = None,
) -> LocalExecutor:
    (run_dir / "kernel.config").write_text("CONFIG_EXT4_FS=y\n", encoding="utf-8")
    kernel = replace(examples.kernel(content=CONTENT), config=run_dir / "kernel.config")
    at_boot = InfraError("the network went away") if bad.trouble else as_raised(bad.fault) if bad.fault else None
    source, builder, machines = (
        cast("Any", one)
        for one in (
            Source(),
            Builder(kernel, bad.failing),
            Machines(at_boot, guest, [] if attached is None else attached),
        )
    )
    return LocalExecutor(Bench(settings, run_dir, source, builder, machines, lambda event: None))


def fake(bad: Bad = NOTHING) -> fakes.FakeExecutor:
    return fakes.FakeExecutor(
        is_new=lambda sha: True,
        content={COMMIT.sha: CONTENT},
        faults={COMMIT.sha: bad.fault} if bad.fault else {},
        infra={COMMIT.sha: 1} if bad.trouble else {},
        broken={Stage.BOOT: bad.fault} if bad.fault else {},
        does_not_build={(one.command, COMMIT.sha): fakes.BUILD_ERROR for one in bad.failing},
        stops_early=True,
    )


@pytest.fixture
def workload(monkeypatch: pytest.MonkeyPatch) -> Workload:
    made = Workload()
    monkeypatch.setattr(layout, "lay_out", made.lay_out)
    monkeypatch.setattr(Fio, "run", lambda _, own, site: made.run(own, site))
    return made


@pytest.fixture(params=["local", "fake"])
def make(request: pytest.FixtureRequest, tmp_path: Path, workload: Workload) -> Make:
    if request.param == "fake":
        return fake
    return lambda bad: local(tmp_path, settings_of("lvmcache"), bad)


def test_a_sound_kernel_has_the_figures_of_each_run(make: Make) -> None:
    trial = fakes.measured(make(NOTHING), TrialRequest(1, examples.cell(COMMIT), {}))
    assert (trial.commit, trial.stage, trial.fault, trial.same_kernel_as) == (COMMIT, Stage.DONE, None, None)
    assert [run.name for run in trial.runs] == ["empty", "full"]
    assert all(run.jobs and run.stopped_early is None for run in trial.runs)
    assert trial.kernel is not None
    assert trial.kernel.content_sha256 == CONTENT
    assert pickle.loads(pickle.dumps(trial)) == trial


def test_only_the_run_that_counts_ends_early(make: Make) -> None:
    trial = fakes.measured(make(NOTHING), TrialRequest(1, examples.cell(COMMIT), {}, stop=RULE))
    assert [run.stopped_early is not None for run in trial.runs] == [False, True]


def test_a_fault_of_the_kernel_is_a_fact(make: Make) -> None:
    trial = fakes.measured(make(Bad(fault=fakes.PANIC)), TrialRequest(1, examples.cell(COMMIT), {}))
    assert (trial.fault, trial.stage, trial.runs) == (fakes.PANIC, fakes.PANIC.stage, ())


def test_a_kernel_that_was_measured_is_not_measured_again(make: Make) -> None:
    trial = fakes.measured(make(NOTHING), TrialRequest(1, examples.cell(COMMIT), {CONTENT: "8" * 40}))
    assert (trial.same_kernel_as, trial.runs, trial.fault, trial.stage) == ("8" * 40, (), None, Stage.DONE)


def test_trouble_of_the_host_is_raised_with_its_stage(make: Make) -> None:
    with pytest.raises(AttemptFailed, match="the network went away") as caught:
        fakes.measured(make(Bad(trouble=True)), TrialRequest(1, examples.cell(COMMIT), {}))
    assert caught.value.stage is Stage.BOOT
    assert caught.value.host


@pytest.mark.parametrize("disk", DISKS)
def test_a_disk_alone_has_one_run_of_its_name(make: Make, disk: str) -> None:
    cell = Cell(Subject(COMMIT), examples.alone(disk))
    trial = fakes.measured(make(NOTHING), TrialRequest(1, cell, {}))
    assert (trial.cell, [run.name for run in trial.runs]) == (cell, [disk])


def test_a_trial_is_of_the_cell_that_was_asked_for(make: Make) -> None:
    cell = examples.cell(COMMIT, Kind.REVERTED, "8" * 40)
    assert fakes.measured(make(NOTHING), TrialRequest(1, cell, {})).cell == cell
    assert fakes.measured(make(Bad(fault=fakes.PANIC)), TrialRequest(1, cell, {})).cell == cell


def test_a_build_is_tried_with_each_compiler(make: Make) -> None:
    executor = make(Bad(failing=frozenset({fakes.GCC})))
    assert fakes.GCC in executor.compilers()
    fault = fakes.faulted(executor, BuildRequest(COMMIT, fakes.GCC))
    assert fault is not None
    assert (fault.kind.of_compiling, fault.stage) == (True, Stage.BUILD)
    assert fakes.faulted(executor, BuildRequest(COMMIT, fakes.OLD_GCC)) is None


@pytest.mark.parametrize("fault", [None, fakes.PANIC])
def test_a_control_tells_whether_an_end_still_boots(make: Make, fault: Fault | None) -> None:
    assert fakes.faulted(make(Bad(fault=fault)), ControlRequest(COMMIT, (fakes.GCC,), Stage.BOOT)) == fault


# How work is given and taken


def news_of(executor: Executor) -> Finished | Failed:
    """The last news of a job, whatever progress was told before."""
    while isinstance(news := executor.next(), Progress):
        pass
    return news


def test_nothing_comes_of_nothing(make: Make) -> None:
    executor = make(NOTHING)
    assert len(executor.idle) == 1
    with pytest.raises(ValueError, match="no job"):
        executor.next()


def test_each_job_ends_once_under_its_number_and_the_host_is_idle_again(make: Make) -> None:
    executor = make(NOTHING)
    (host,) = executor.idle
    for id_, request in ((4, TrialRequest(1, examples.cell(COMMIT), {})), (9, BuildRequest(COMMIT, fakes.GCC))):
        executor.submit(Job(id_, request))
        assert len(executor.idle) == 0
        news = news_of(executor)
        assert isinstance(news, Finished)
        assert (news.id, news.host, list(executor.idle)) == (id_, host, [host])
        assert news.at
    with pytest.raises(ValueError, match="no job"):
        executor.next()


def test_jobs_that_are_submitted_together_all_end(make: Make) -> None:
    executor = make(NOTHING)
    for id_ in (1, 2, 3):
        executor.submit(Job(id_, BuildRequest(COMMIT, fakes.GCC)))
    assert {news_of(executor).id for _ in range(3)} == {1, 2, 3}


def test_news_of_progress_are_of_a_job_that_was_submitted(make: Make) -> None:
    executor = make(NOTHING)
    executor.submit(Job(5, TrialRequest(1, examples.cell(COMMIT), {})))
    seen = []
    while isinstance(news := executor.next(), Progress):
        seen.append(news.id)
    assert {*seen, news.id} == {5}


def test_trouble_is_the_news_of_its_job_with_the_facts_up_to_then(make: Make) -> None:
    executor = make(Bad(trouble=True))
    executor.submit(Job(3, TrialRequest(1, examples.cell(COMMIT), {})))
    news = news_of(executor)
    assert isinstance(news, Failed)
    assert (news.id, type(news.error)) == (3, AttemptFailed)
    assert isinstance(news.error, AttemptFailed)
    assert news.error.trial is not None
    assert (news.error.trial.commit, news.error.trial.fault) == (COMMIT, None)
    assert len(executor.idle) == 1


def test_what_goes_to_a_host_and_comes_back_pickles(make: Make) -> None:
    """Between processes nothing else gets through."""
    for bad in (NOTHING, Bad(trouble=True), Bad(fault=fakes.PANIC)):
        executor = make(bad)
        job = Job(1, TrialRequest(1, examples.cell(COMMIT), {"5": "6"}, (fakes.GCC,), RULE))
        assert pickle.loads(pickle.dumps(job)) == job
        executor.submit(job)
        news = news_of(executor)
        again = pickle.loads(pickle.dumps(news))
        assert again.id == news.id
        if isinstance(news, Finished):
            assert again == news
        else:
            assert (str(again.error), again.error.stage) == (str(news.error), Stage.BOOT)


@pytest.mark.parametrize(
    ("stack", "on", "attached"),
    [("lvmcache", "lvmcache", ("ssd", "hdd")), ("ssd", "ssd", ("ssd",)), ("lvmcache", "hdd", ("hdd",))],
)
def test_only_the_disks_of_the_stack_are_attached(
    stack: str, on: str, attached: tuple[str, ...], tmp_path: Path, workload: Workload
) -> None:
    seen: list[tuple[str, ...]] = []
    request = TrialRequest(1, Cell(Subject(COMMIT), settings_of(on).setup), {})
    fakes.measured(local(tmp_path, settings_of(stack), attached=seen), request)
    assert seen == [attached]
    assert workload.laid_out == [on]


class Mirror(Layer):
    """A layer of another package: a mirror with a run before the judged one."""

    name = "mirror"
    needs = ("one half", "other half")
    tools = ("mirrorctl",)
    phases = (Phase("first", judged=False), Phase("second"))

    def make(self, site: Site) -> Made:
        one, other = site.below
        counters = Counters(lambda shell: 1, lambda before, after: [("cache.promotions", before + after)])
        return Made("/dev/mirror", (Step(f"mirrorctl {one.path} {other.path}", kernel_fault),), counters=counters)


def test_a_trial_runs_on_a_layer_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layers.register(mirror := Mirror())
    try:
        settings = settings_of("mirror(ssd,hdd)+ext4")
        shell = FakeShell({"stat -L": Answer("fe:10\nfe:20\n"), "stat -f": Answer("235000 4096\n")})
        workload = Workload()
        monkeypatch.setattr(Fio, "run", lambda _, own, site: workload.run(own, site))
        seen: list[tuple[str, ...]] = []
        trial = fakes.measured(
            local(tmp_path, settings, attached=seen, guest=shell),
            TrialRequest(1, Cell(Subject(COMMIT), settings.setup), {}, stop=RULE),
        )
    finally:
        layers.forget(mirror.name)
    assert (trial.fault, [run.name for run in trial.runs]) == (None, ["first", "second"])
    assert seen == [("ssd", "hdd")]
    assert workload.rules == [None, RULE]
    (script,) = (one for one in tmp_path.rglob("storage.txt"))
    made = script.read_text(encoding="utf-8").splitlines()
    assert made[0] == "mirrorctl /dev/disk/by-id/virtio-ssd /dev/disk/by-id/virtio-hdd"
    assert made[1].endswith(" /dev/mirror")
    assert workload.stacks[0].counted(Readings((3,)), Readings((4,))) == (("cache.promotions", 7),)


def test_a_guest_has_the_parameters_of_the_trial(tmp_path: Path, workload: Workload) -> None:
    settings, seen = settings_of("hdd"), list[tuple[str, ...]]()
    own = replace(settings, machine=replace(settings.machine, append="mitigations=off"))
    request = TrialRequest(1, Cell(Subject(COMMIT), settings.setup), {}, settings=own)
    fakes.measured(local(tmp_path, settings, attached=seen), request)
    assert seen == [("hdd", "mitigations=off")]


@pytest.mark.parametrize("stack", PHASES)
def test_runs_are_those_of_the_stack(stack: str, tmp_path: Path, workload: Workload) -> None:
    settings = settings_of(stack)
    request = TrialRequest(1, Cell(Subject(COMMIT), settings.setup), {}, stop=RULE)
    trial = fakes.measured(local(tmp_path, settings), request)
    *filling, judged = PHASES[stack]
    assert [run.name for run in trial.runs] == [*filling, judged]
    assert workload.laid_out == [stack]
    assert workload.kept_files == [*(True for _ in filling), False]
    assert workload.rules == [*(None for _ in filling), RULE]


def test_only_a_cache_has_to_be_filled_by_a_run() -> None:
    for text, names in PHASES.items():
        phases = stack_of(text).phases
        assert [phase.name for phase in phases] == names
        assert [phase.judged for phase in phases] == [*(False for _ in names[1:]), True]
