"""A comparison in a real repository and store: what is measured, what goes wrong, and what is on record then."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.bisect.session import Equipment
from bisector.compare import session
from bisector.compare.plan import Asked, planned, united, warnings
from bisector.compare.schedule import Done
from bisector.config import Settings, options
from bisector.core import resources
from bisector.core.errors import AttemptFailed, InfraError, Interrupted, TrialRefused, UserError
from bisector.core.events import Event, Listener, Note, TrialJudged
from bisector.core.objective import MetricAbsent
from bisector.core.subject import Commit, Compiler, Kind
from bisector.core.trial import Stage, Trial
from bisector.core.verdict import State
from bisector.executor.base import BuildRequest
from bisector.git.repository import Repository
from bisector.status.blocks import Blocks, BlockState, result_of
from bisector.store.comparison import Absent, Extent, Plan
from bisector.store.facts import BuildTry, Ending, Submitted, Work
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest
from tests import examples, fakes
from tests.compare import planted
from tests.git import histories
from tests.kernel.test_image import bzimage


def settings(stack: str = "lvmcache", **more: str | list[str]) -> Settings:
    flags: dict[str, str | list[str]] = {
        "storage.stack": stack,
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    return options.load(flags, directory=Path("/")).settings


@dataclass
class Desk:
    """A repository, a run directory, and a bench that answers as planted."""

    place: Path
    shas: dict[str, str]
    bench: planted.Bench = field(default_factory=planted.Bench)
    told: list[Event] = field(default_factory=list)
    waited_s: list[float] = field(default_factory=list)

    @contextmanager
    def equip(self, _settings: Settings, _run: Path, repository: Repository, _tell: Listener) -> Iterator[Equipment]:
        yield Equipment(self.bench, fakes.FakeKin(repository), self.waited_s.append)

    def asked(self, *names: str, stacks: tuple[str, ...] = ("lvmcache", "hdd"), runs: int = 2, placebo: bool = False,
              patches: tuple[str, ...] = (), parameters: tuple[str, ...] = (),
              fragments: tuple[str, ...] = (), **more: str | list[str]) -> Asked:  # fmt: skip
        revs = tuple(self.shas.get(name, name) for name in names)
        each = tuple(settings(stack, **more) for stack in stacks)
        return Asked(self.place / "linux", revs, each, Extent(7, runs), placebo, patches, parameters, fragments)

    def begin(self, *names: str, **how: object) -> RunDirectory:
        with session.begun(self.asked(*names, **how), self.place / "run", lambda _: None) as (run, _):  # type: ignore[arg-type] # as asked() takes them
            return run

    def go_on(self) -> Done:
        self.bench.jobs.clear()
        run = RunDirectory.open(self.place / "run")
        with run.lock(), Store.open(run.database) as store:
            return session.go_on(run, store, self.told.append, self.equip)

    def blocks(self) -> Blocks:
        with Store.open(self.place / "run" / "record.sqlite", readonly=True) as store:
            assert store.plan is not None
            return Blocks.of(store.plan, store)

    def held(self) -> set[str]:
        """The commits that references of runs keep from garbage collection."""
        return set(
            histories.git(self.place / "linux", "for-each-ref", "--format=%(objectname)", "refs/by-bisector").split()
        )

    def plan(self, *names: str, **how: object) -> Plan:
        with Repository.open(self.place / "linux") as repository:
            return planned(repository, self.asked(*names, **how))  # type: ignore[arg-type] # as asked() takes them

    def refused(self, *names: str, **how: object) -> str:
        with pytest.raises(UserError) as caught:
            self.begin(*names, **how)
        assert not (self.place / "run").exists()
        return caught.value.message


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr("bisector.compare.session.preflight.check", lambda *_: None)
    monkeypatch.setattr("bisector.compare.session.preflight.check_setup", lambda *_: None)
    monkeypatch.setattr("bisector.compare.session.preflight.check_build", lambda *_: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Desk(tmp_path, histories.build(tmp_path / "linux", histories.linear(4)))


def test_every_arm_is_measured_in_every_block(desk: Desk) -> None:
    run = desk.begin("c0", "c3")
    assert desk.go_on() == Done("2 blocks on each setup")
    blocks = desk.blocks()
    assert [(block.setup, block.round) for block in blocks.blocks] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert [one.n for one in blocks.placed] == list(range(1, 9))
    of_requests = [(one.commit.sha, str(one.cell.setup), one.seed) for one in desk.bench.requests]
    setups = ("fio(partial.fio) on lvmcache(ssd,hdd)+ext4", "fio(partial.fio) on hdd+ext4")
    arms = (desk.shas["c0"], desk.shas["c3"])
    assert of_requests == [
        (arms[arm], setups[block.setup], block.seed) for block in blocks.blocks for arm in block.arms
    ]
    with Store.open(run.database) as store:
        last = store.state()
        assert last is not None
        assert (last.state, last.message, store.in_flight()) == (State.MEASURED, "2 blocks on each setup", ())


def test_a_trial_is_measured_with_the_settings_of_its_setup(desk: Desk) -> None:
    desk.begin("c0", "c3")
    desk.go_on()
    for request in desk.bench.requests:
        assert request.settings is not None
        assert request.settings.setup == request.cell.setup
        assert {Path(one).name for one in request.settings.kernel.fragments} == {
            "1-tiny.config", "2-vm.config", "3-storage-lvmcache.config",
        }  # fmt: skip
    assert len({one.settings.kernel for one in desk.bench.requests if one.settings}) == 1


def test_each_kernel_is_built_once_and_first(desk: Desk) -> None:
    desk.begin("c0", "c3", placebo=True)
    desk.go_on()
    assert desk.bench.tried == [("gcc", desk.shas["c0"]), ("gcc", desk.shas["c3"])]
    with Store.open(desk.place / "run" / "record.sqlite") as store:
        assert store.build_tries() == tuple(BuildTry(fakes.GCC, desk.shas[name], "") for name in ("c0", "c3"))
        kinds = [row["work"] for row in store.database.select("submitted", "id")]
        assert kinds == [Work.BUILD, Work.BUILD, *[Work.TRIAL] * 12]
    assert all(request.compilers == (fakes.GCC,) for request in desk.bench.requests)


def test_a_placebo_is_the_first_arm_once_more(desk: Desk) -> None:
    desk.begin("c1", stacks=("hdd",), placebo=True)
    desk.go_on()
    blocks = desk.blocks()
    assert [arm.name for arm in blocks.plan.arms] == [desk.shas["c1"], f"{desk.shas['c1']} (again)"]
    assert {sorted(block.arms)[1] for block in blocks.blocks} == {1}
    assert len(blocks.placed) == 4


def test_a_compiler_that_does_not_build_every_arm_is_passed_over(desk: Desk) -> None:
    desk.bench.installed = (fakes.GCC, fakes.OLD_GCC)
    desk.bench.does_not_build = {("gcc", desk.shas["c3"]): fakes.BUILD_ERROR}
    desk.begin("c0", "c3")
    desk.go_on()
    assert all(request.compilers == (fakes.OLD_GCC,) for request in desk.bench.requests)


def test_an_arm_that_the_one_compiler_does_not_build_is_left_out(desk: Desk) -> None:
    desk.bench.does_not_build = {("gcc", desk.shas["c2"]): fakes.BUILD_ERROR}
    desk.begin("c0", "c2", "c3")
    assert desk.go_on() == Done("2 blocks on each setup")
    blocks = desk.blocks()
    assert blocks.absent(0, 1) == f"does not build: {fakes.BUILD_ERROR.reason}"
    assert {request.commit.sha for request in desk.bench.requests} == {desk.shas["c0"], desk.shas["c3"]}


def test_where_no_compiler_builds_all_arms_it_is_said(desk: Desk) -> None:
    desk.bench.installed = (fakes.GCC, fakes.OLD_GCC)
    desk.bench.does_not_build = {(one.command, desk.shas["c3"]): fakes.BUILD_ERROR for one in desk.bench.installed}
    desk.begin("c0", "c3")
    with pytest.raises(
        UserError, match=r"no compiler of this host builds every kernel: gcc fails at .*; gcc-11 fails at"
    ):
        desk.go_on()


def test_a_build_that_failed_is_tried_once_more_by_each_resume(desk: Desk) -> None:
    """A person installs a header, and expects the build to be tried again; the record has every attempt."""
    desk.bench.does_not_build = {("gcc", desk.shas["c3"]): fakes.BUILD_ERROR}
    run = desk.begin("c0", "c3", stacks=("hdd",))
    for tried in (1, 2):
        with pytest.raises(UserError, match=r"nothing can be compared: .*: does not build: .*expected ';'"):
            desk.go_on()
        assert desk.bench.tried == [("gcc", desk.shas["c0"]), *[("gcc", desk.shas["c3"])] * tried]
    desk.bench.does_not_build = {}
    assert desk.go_on() == Done("2 blocks on each setup")
    with Store.open(run.database) as store:
        reasons = [one.reason for one in store.build_tries() if one.sha == desk.shas["c3"]]
    assert reasons == [fakes.BUILD_ERROR.reason, fakes.BUILD_ERROR.reason, ""]


def test_a_compiler_that_is_installed_after_the_only_one_has_failed_is_tried(desk: Desk) -> None:
    desk.bench.does_not_build = {("gcc", desk.shas["c3"]): fakes.BUILD_ERROR}
    desk.begin("c0", "c3", stacks=("hdd",))
    with pytest.raises(UserError, match="nothing can be compared"):
        desk.go_on()
    desk.bench.installed = (fakes.GCC, fakes.OLD_GCC)
    desk.go_on()
    assert {request.compilers for request in desk.bench.requests} == {(fakes.OLD_GCC,)}


def test_an_arm_that_builds_after_the_end_is_measured_as_often_as_the_others(desk: Desk) -> None:
    desk.bench.does_not_build = {("gcc", desk.shas["c2"]): fakes.BUILD_ERROR}
    desk.begin("c0", "c2", "c3", stacks=("hdd",))
    assert desk.go_on() == desk.go_on() == Done("2 blocks on each setup")
    assert len(desk.bench.requests) == 4
    assert desk.shas["c2"] in desk.held()  # a branch may be gone by the time that the header is there
    assert desk.blocks().unbuilt == (desk.shas["c2"],)
    desk.bench.does_not_build = {}
    assert desk.go_on() == Done("2 blocks on each setup")
    blocks = desk.blocks()
    assert [len(blocks.pairs(0, arm)) for arm in (1, 2)] == [2, 4]
    assert (blocks.unbuilt, desk.held()) == ((), set())
    assert any(isinstance(event, Note) and "is tried again: does not build" in event.text for event in desk.told)


def test_a_fault_that_was_believed_is_tried_once_more_by_each_resume(desk: Desk) -> None:
    desk.bench.faults = {desk.shas["c3"]: fakes.PANIC}
    desk.begin("c0", "c3", stacks=("hdd",))
    with pytest.raises(UserError, match=r"nothing can be compared: .*: panic: Kernel panic"):
        desk.go_on()
    faults = [one.trial.fault for one in desk.blocks().placed]
    with pytest.raises(UserError, match=r"nothing can be compared: .*: panic: Kernel panic"):
        desk.go_on()
    again = [one.trial.fault for one in desk.blocks().placed]
    assert (faults.count(fakes.PANIC), again.count(fakes.PANIC)) == (2, 3)
    desk.bench.faults = {}
    assert desk.go_on() == Done("2 blocks on each setup")
    assert len(desk.blocks().counted(0)) == 2


def test_of_several_compilers_that_are_named_one_makes_all_kernels(desk: Desk) -> None:
    """Another one makes other code of the same source."""
    desk.bench.installed = (fakes.GCC, fakes.OLD_GCC)
    desk.bench.does_not_build = {("gcc", desk.shas["c3"]): fakes.BUILD_ERROR}
    desk.begin("c0", "c3", stacks=("hdd",), kernel__compiler=["gcc", "gcc-11"])
    desk.go_on()
    assert {request.compilers for request in desk.bench.requests} == {(fakes.OLD_GCC,)}


def test_where_no_named_compiler_builds_all_arms_it_is_said(desk: Desk) -> None:
    desk.bench.installed = (fakes.GCC, fakes.OLD_GCC)
    desk.bench.does_not_build = {
        ("gcc", desk.shas["c3"]): fakes.BUILD_ERROR,
        ("gcc-11", desk.shas["c0"]): fakes.BUILD_ERROR,
    }
    desk.begin("c0", "c3", kernel__compiler=["gcc", "gcc-11"])
    with pytest.raises(UserError, match=r"no compiler that is named builds every kernel: gcc fails at .*; gcc-11"):
        desk.go_on()


def test_a_weak_block_is_repeated_and_the_host_is_waited_for(desk: Desk) -> None:
    desk.bench.busy_n = frozenset((2,))
    desk.begin("c0", "c3", stacks=("hdd",))
    desk.go_on()
    blocks = desk.blocks()
    assert [blocks.state(block) for block in blocks.blocks] == [BlockState.WEAK, BlockState.DONE, BlockState.DONE]
    assert [request.again for request in desk.bench.requests] == [False, False, True, True, False, False]
    assert Note("block 1 does not count") in desk.told
    judged = [event for event in desk.told if isinstance(event, TrialJudged)]
    assert [event.word for event in judged] == ["measured", "weak", *["measured"] * 4]
    assert [bool(event.why) for event in judged] == [False, True, *[False] * 4]


def test_trouble_of_the_host_is_tried_again_and_is_no_trial(desk: Desk) -> None:
    desk.bench.infra_n = {3: 2}
    desk.begin("c0", "c3", stacks=("hdd",))
    desk.go_on()
    assert desk.waited_s == [5.0, 60.0]
    blocks = desk.blocks()
    assert [one.n for one in blocks.placed] == [1, 2, 3, 4]
    assert blocks.count(BlockState.DONE) == len(blocks.blocks) == 2
    with Store.open(desk.place / "run" / "record.sqlite") as store:
        assert [one.message for one in store.infra_faults()] == ["the network went away"] * 2
        endings = [row["ending"] for row in store.database.select("ended")]
        assert endings.count(Ending.FAILED) == 2


def test_trouble_that_stays_stops_the_run_which_goes_on_later(desk: Desk) -> None:
    desk.bench.infra_n = {3: 4}
    run = desk.begin("c0", "c3", stacks=("hdd",))
    desk.bench.leaves = run.path
    with pytest.raises(InfraError) as caught:
        desk.go_on()
    (block,) = (one for one in desk.blocks().blocks if one.n == 2)
    name = desk.blocks().plan.arms[block.arms[0]].name
    assert caught.value.message == f"{name} on fio(partial.fio) on hdd+ext4, block 2, stage boot: the network went away"
    assert f"its logs are in {run.path}/trials/0003-{name[:12]}" in caught.value.hint
    assert f"bisector resume --run-dir {run.path}" in caught.value.hint
    with Store.open(run.database) as store:
        last = store.state()
        assert last is not None
        assert last.state is State.STOPPED
    assert desk.held() == {desk.shas["c0"], desk.shas["c3"]}
    assert desk.go_on() == Done("2 blocks on each setup")
    assert desk.held() == set()
    assert [one.n for one in desk.blocks().placed] == [1, 2, 3, 4]


def test_trouble_of_a_build_that_stays_names_the_arm(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    run = desk.begin("c0", "c3", stacks=("hdd",))

    def full(commit: Commit, _compiler: Compiler) -> None:
        (run.path / "compilers" / f"gcc-{commit.short}").mkdir(parents=True, exist_ok=True)
        raise AttemptFailed("no room left in /tmp", "make room, then resume", Stage.BUILD, fakes.HOST)

    monkeypatch.setattr(desk.bench, "try_build", full)
    with pytest.raises(InfraError) as caught:
        desk.go_on()
    assert caught.value.message == f"{desk.shas['c0']}, build by gcc, stage build: no room left in /tmp"
    logs = run.path / "compilers" / f"gcc-{desk.shas['c0'][:12]}"
    assert caught.value.hint.startswith(f"make room, then resume\n  its logs are in {logs}\n  go on with: ")


def test_another_clone_in_the_place_of_the_runs_is_told_of(desk: Desk) -> None:
    desk.bench.infra_n = {3: 4}
    run = desk.begin("c0", "c3", stacks=("hdd",))
    with pytest.raises(InfraError):
        desk.go_on()
    (desk.place / "linux").rename(desk.place / "moved")
    histories.build(desk.place / "linux", histories.linear(2))
    with pytest.raises(UserError, match=rf"linux has no {desk.shas['c3'][:12]} \({desk.shas['c3']}\), which is to be"):
        desk.go_on()
    with Store.open(run.database) as store:
        last = store.state()
        assert last is not None
        assert "the network went away" in last.message


def test_a_host_that_is_always_busy_stops_the_run_at_the_end(desk: Desk) -> None:
    desk.bench.busy_n = frozenset(range(1, 99))
    desk.begin("c0", "c3", stacks=("hdd",))
    with pytest.raises(InfraError, match=r"fio\(partial.fio\) on hdd\+ext4: no sound block in 4"):
        desk.go_on()
    assert desk.blocks().count(BlockState.WEAK) == 4
    desk.bench.busy_n = frozenset()
    assert desk.go_on() == Done("2 blocks on each setup")
    assert len(desk.blocks().blocks) == 6


def test_what_cannot_be_decided_by_ends_the_run(desk: Desk) -> None:
    run = desk.begin("c0", "c3", stacks=("lvmcache",), bisect__metric="cache.hit_ratio")
    with pytest.raises(MetricAbsent, match=r"has no cache\.hit_ratio"):
        desk.go_on()
    assert len(desk.bench.requests) == 1
    with Store.open(run.database) as store:
        last = store.state()
        assert last is not None
        assert last.state is State.FAILED


def test_a_job_without_the_metric_ends_the_run_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = desk.bench.measure

    def lacking(request: TrialRequest) -> Trial:
        trial = usual(request)
        *before, run = trial.runs
        has, lacks, *others = (replace(job, clat_mean_ns=5.0) for job in run.jobs)
        jobs = (has, replace(lacks, clat_mean_ns=None), *others)
        return replace(trial, runs=(*before, replace(run, jobs=jobs)))

    monkeypatch.setattr(desk.bench, "measure", lacking)
    desk.begin("c0", "c3", stacks=("hdd",), bisect__metric="read.clat.mean")
    with pytest.raises(MetricAbsent, match=r"has no read\.clat\.mean, and other jobs of the"):
        desk.go_on()
    assert len(desk.bench.requests) == 1


def test_ctrl_c_leaves_what_was_measured(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    run = desk.begin("c0", "c3", stacks=("hdd",))
    usual, stops = desk.bench.measure, [2]

    def interrupted(request: TrialRequest) -> Trial:
        if request.n in stops:
            stops.remove(request.n)
            raise KeyboardInterrupt
        return usual(request)

    monkeypatch.setattr(desk.bench, "measure", interrupted)
    with pytest.raises(Interrupted):
        desk.go_on()
    with Store.open(run.database) as store:
        last = store.state()
        assert last is not None
        assert (last.state, last.message) == (State.STOPPED, "interrupted")
        (left,) = store.in_flight()
        assert left.submitted == Submitted(Work.TRIAL, left.submitted.sha, 2, block=1, arm=left.submitted.arm)
    desk.go_on()
    assert any(
        isinstance(event, Note) and "trial 2, of " in event.text and "is lost" in event.text for event in desk.told
    )
    assert [one.n for one in desk.blocks().placed] == [1, 2, 3, 4]


# Patches


def patch_file(desk: Desk, name: str = "fix.patch", text: str = "c0") -> Path:
    """A patch of the driver, from what ``text`` says."""
    (desk.place / name).write_text(f"--- a/drivers/md/dm.c\n+++ b/drivers/md/dm.c\n@@ -1 +1 @@\n-{text}\n+better\n")
    return desk.place / name


def test_one_commit_is_compared_before_and_after_a_patch(desk: Desk) -> None:
    file = patch_file(desk)
    desk.begin("main", stacks=("hdd",), patches=(str(file),))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    file.unlink()
    held: set[str] = set()
    usual = desk.bench.measure

    def looking(request: TrialRequest) -> Trial:
        held.update(desk.held())
        return usual(request)

    desk.bench.measure = looking  # type: ignore[method-assign] # a look at what is there meanwhile
    assert desk.go_on() == Done("2 blocks on each setup")
    before, after = desk.blocks().plan.arms
    assert (before.name, after.name) == ("main", "main + fix.patch")
    assert (after.subject.kind, after.subject.changed_by) == (Kind.PATCHED, digest)
    assert after.commit.sha != before.commit.sha
    assert {before.commit.sha, after.commit.sha} <= held  # garbage collection would take what no branch has
    assert desk.held() == set()
    built = [one.commit.sha for one in desk.bench.requests if isinstance(one, TrialRequest)]
    assert sorted(built) == sorted([before.commit.sha, after.commit.sha] * 2)
    assert (desk.place / "run" / "inputs" / "fix.patch").read_text().endswith("+better\n")


def test_each_patch_is_an_arm_on_top_of_the_first_alone(desk: Desk) -> None:
    first, second = patch_file(desk, "one.patch"), desk.place / "two.patch"
    second.write_text(first.read_text().replace("better", "best"))
    plan = desk.plan("c1", "c3", patches=(str(first), str(second), desk.shas["c2"]), placebo=True)
    c1, c2, c3 = (desk.shas[name] for name in ("c1", "c2", "c3"))
    assert [arm.name for arm in plan.arms] == [
        c1, c3, f"{c1} + one.patch", f"{c1} + two.patch", f"{c1} + {c2}", f"{c1} (again)",
    ]  # fmt: skip


def test_commit_on_top_is_known_by_its_hash(desk: Desk) -> None:
    _, picked = desk.plan("c0", patches=("main",)).arms
    assert picked.name.endswith(" + main")
    assert (picked.subject.kind, picked.subject.changed_by) == (Kind.PATCHED, desk.shas["c3"])


def test_patch_that_does_not_apply_ends_the_command(desk: Desk) -> None:
    said = desk.refused("main", patches=(str(patch_file(desk, text="something else")),))
    assert "does not apply to" in said
    assert "patch failed: drivers/md/dm.c:1" in said


def test_patches_that_cannot_be_arms_are_refused(desk: Desk) -> None:
    file = patch_file(desk)
    assert desk.refused("main", patches=("v9",)).startswith("--patch v9: there is no such file, and unknown revision")
    assert "cannot be read" in desk.refused("main", patches=("./gone.patch",))
    assert "is not a regular file" in desk.refused("main", patches=(str(desk.place),))
    assert "of the same sources" in desk.refused("main", patches=(str(file), str(file))) or (
        "the same commit" in desk.refused("main", patches=(str(file), str(file)))
    )
    (desk.place / "other").mkdir()
    other = patch_file(desk, "other/fix.patch")
    other.write_text(other.read_text().replace("better", "best"))
    assert desk.refused("main", patches=(str(file), str(other))) == "two arms are called main + fix.patch"


# Parameters


def test_one_kernel_is_compared_without_and_with_a_parameter(desk: Desk) -> None:
    desk.begin("main", stacks=("hdd",), parameters=("mitigations=off", " a=1  b "), machine__append="quiet")
    assert desk.go_on() == Done("2 blocks on each setup")
    blocks = desk.blocks()
    assert [arm.name for arm in blocks.plan.arms] == ["main", "main + mitigations=off", "main + a=1 b"]
    trials = [one for one in desk.bench.requests if isinstance(one, TrialRequest)]
    appended = [one.settings.machine.append for one in trials if one.settings is not None]
    assert sorted(appended) == sorted(["quiet", "quiet mitigations=off", "quiet a=1 b"] * 2)
    for request, append in zip(trials, appended, strict=True):
        assert append.removeprefix("quiet").strip() == request.cell.subject.parameters
    assert [one.trial.cell for one in blocks.placed] == [one.cell for one in trials]  # as it is on record
    assert desk.bench.tried == [("gcc", desk.shas["c3"])]
    result = result_of(blocks)
    assert not any(arm.placebo for arm in result.arms)
    assert result.equal == ()


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (("a=1", " a=1"), "main + a=1 is asked for twice"),
        (("",), "--parameter '' is no kernel parameter"),
        (("a\x00",), "is no kernel parameter"),
    ],
)
def test_parameters_that_cannot_be_arms_are_refused(desk: Desk, parameters: tuple[str, ...], said: str) -> None:
    assert said in desk.refused("main", parameters=parameters)


# Configuration fragments


def fragment_file(desk: Desk, name: str = "more.config", text: str = "CONFIG_DM_CACHE_SMQ=y\n") -> Path:
    (desk.place / name).parent.mkdir(exist_ok=True)
    (desk.place / name).write_text(text)
    return desk.place / name


def test_one_commit_is_compared_without_and_with_a_fragment(desk: Desk) -> None:
    file = fragment_file(desk)
    desk.begin("main", stacks=("lvmcache", "hdd"), fragments=(str(file),))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    file.unlink()  # what is resumed measures with the run's copy
    assert desk.go_on() == Done("2 blocks on each setup")
    blocks, copy = desk.blocks(), desk.place / "run/inputs/more.config"
    assert copy.is_file()
    before, after = blocks.plan.arms
    assert (before.name, before.subject.fragment, before.file) == ("main", "", None)
    assert (after.name, after.subject.fragment, after.file) == ("main + more.config", digest, copy)
    assert after.subject == replace(before.subject, fragment=digest)
    trials = [one for one in desk.bench.requests if isinstance(one, TrialRequest)]
    for request in trials:
        assert request.settings is not None
        *_, last = request.settings.kernel.fragments
        assert (last == str(copy)) is bool(request.cell.subject.fragment)
    assert [one.trial.cell for one in blocks.placed] == [one.cell for one in trials]  # as it is on record
    assert {one.cell.subject for one in trials} == {before.subject, after.subject}
    result = result_of(blocks)
    assert not any(arm.placebo for arm in result.arms)
    assert result.equal == ()


def test_a_commit_with_two_configurations_is_built_twice(desk: Desk) -> None:
    file = fragment_file(desk)
    desk.begin("main", stacks=("lvmcache", "hdd"), fragments=(str(file),), parameters=("quiet",))
    desk.go_on()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert [one.fragment for one in desk.bench.builds] == ["", digest]
    kernels = [one.settings.kernel for one in desk.bench.builds if one.settings is not None]
    assert [len(one.fragments) for one in kernels] == [3, 4]
    with Store.open(desk.place / "run" / "record.sqlite") as store:
        sha = desk.shas["c3"]
        assert store.build_tries() == (BuildTry(fakes.GCC, sha, ""), BuildTry(fakes.GCC, sha, "", digest))
    notes = [event.text for event in desk.told if isinstance(event, Note) and event.text.startswith("the kernel of")]
    assert [f"{sha[:12]} with more.config, by gcc" in note for note in notes] == [False, True]


def test_a_fragment_that_changes_nothing_ends_the_run_before_the_first_block(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(request: BuildRequest) -> None:
        if request.fragment:
            raise TrialRefused("more.config changes nothing")

    monkeypatch.setattr(desk.bench, "refuse_build", refuse)
    run = desk.begin("main", stacks=("hdd",), fragments=(str(fragment_file(desk)),))
    with pytest.raises(UserError, match="changes nothing"):
        desk.go_on()
    assert desk.bench.requests == []
    with Store.open(run.database) as store:
        last = store.state()
        assert last is not None
        assert (last.state, last.message) == (
            State.STOPPED,
            "main + more.config, build by gcc: more.config changes nothing",
        )


def test_a_fragment_that_switches_off_what_the_stack_needs_has_no_cell_there(desk: Desk) -> None:
    file = fragment_file(desk, text="# CONFIG_DM_CACHE is not set\n")
    plan = desk.plan("main", fragments=(str(file),))
    assert plan.absent == (Absent(0, 1, "needs CONFIG_DM_CACHE, which is off in it"),)


def test_one_of_the_tools_own_fragments_is_found_by_its_name(desk: Desk) -> None:
    _, arm = desk.plan("main", fragments=("debug",)).arms
    assert (arm.name, arm.file) == ("main + debug.config", resources.fragment("debug"))
    assert desk.refused("main", fragments=("debugg",)).startswith("configuration fragment debugg: no such file in ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "more.config has no options"),
        ("# CONFIG\n", "more.config has no options"),
        ("CONFIG_DM_CACHE=y\nCONFIG_B=y\nCONFIG_A=m\n", "main has no CONFIG_A, CONFIG_B in its Kconfig files, which"),
        ("\0\xff", "more.config has no options"),
    ],
)
def test_fragments_that_cannot_be_arms_are_refused(desk: Desk, text: str, said: str) -> None:
    assert said in desk.refused("main", fragments=(str(fragment_file(desk, text=text)),))


def test_what_a_tree_need_not_know_is_not_asked_of_it(desk: Desk) -> None:
    text = "CONFIG_DM_CACHE=y\n# CONFIG_NEW is not set\n#: optional\nCONFIG_NEWER=y\n"
    assert len(desk.plan("main", fragments=(str(fragment_file(desk, text=text)),)).arms) == 2


def test_fragments_are_told_apart(desk: Desk) -> None:
    file, other = fragment_file(desk), fragment_file(desk, "other/more.config", "CONFIG_MD=y\n")
    same = fragment_file(desk, "same.config")
    assert desk.refused("main", fragments=(str(file), str(file))) == "main + more.config is asked for twice"
    assert desk.refused("main", fragments=(str(file), str(same))) == "main + more.config is asked for twice"
    assert desk.refused("main", fragments=(str(file), str(other))) == "two arms are called main + more.config"
    assert "No such file" in desk.refused("main", fragments=("./gone.config",))
    assert "is not a regular file" in desk.refused("main", fragments=(str(desk.place),))


def test_a_patch_that_is_called_as_a_parameter_is_refused(desk: Desk) -> None:
    """Values are told apart by the names of the arms."""
    said = desk.refused("main", patches=(str(patch_file(desk, "quiet")),), parameters=("quiet",))
    assert said == "two arms are called main + quiet"


# Images


def test_an_image_is_measured_and_not_built(desk: Desk) -> None:
    file = bzimage(desk.place / "vmlinuz-6.1.0-13-amd64")
    desk.begin("main", f"image:{file}", stacks=("lvmcache", "hdd"))
    content = file.read_bytes()
    file.unlink()  # what is resumed measures with the run's copy
    assert desk.go_on() == Done("2 blocks on each setup")
    blocks, copy = desk.blocks(), desk.place / "run/inputs/vmlinuz-6.1.0-13-amd64"
    assert copy.read_bytes() == content
    _, arm = blocks.plan.arms
    assert (arm.name, arm.file, arm.subject.kind) == ("vmlinuz-6.1.0-13-amd64", copy, Kind.IMAGE)
    assert arm.commit.sha == hashlib.sha256(content).hexdigest()
    assert desk.bench.tried == [("gcc", desk.shas["c3"])]
    trials = [one for one in desk.bench.requests if isinstance(one, TrialRequest)]
    assert {(one.cell.subject.kind, one.image) for one in trials} == {(Kind.COMMIT, None), (Kind.IMAGE, copy)}
    assert [one.trial.cell for one in blocks.placed] == [one.cell for one in trials]  # as it is on record


@pytest.mark.parametrize("killed_at", [{"kill_at": 2}, {"kill_at": 3}, {"kill_at_try": 2}])
def test_a_killed_run_of_files_goes_on_without_them(desk: Desk, killed_at: dict[str, int]) -> None:
    image, fragment = bzimage(desk.place / "vmlinuz"), fragment_file(desk)
    desk.begin("main", f"image:{image}", stacks=("hdd",), fragments=(str(fragment),))
    image.unlink()
    fragment.unlink()
    for name, value in killed_at.items():
        setattr(desk.bench, name, value)
    with pytest.raises(fakes.Killed):
        desk.go_on()
    desk.bench.kill_at = desk.bench.kill_at_try = None
    before = len(desk.bench.requests)
    assert desk.go_on() == Done("2 blocks on each setup")
    blocks = desk.blocks()
    assert [one.n for one in blocks.placed] == list(range(1, 7))
    assert len(desk.bench.requests) - before == 6 - max(before - 1, 0)
    assert {arm.subject for arm in blocks.plan.arms} == {one.trial.subject for one in blocks.placed}
    assert blocks.count(BlockState.DONE) == len(blocks.blocks) == 2


def test_an_image_that_was_given_first_may_have_parameters_and_a_placebo(desk: Desk) -> None:
    file = bzimage(desk.place / "vmlinuz")
    plan = desk.plan(f"image:{file}", parameters=("quiet",), placebo=True)
    assert [arm.name for arm in plan.arms] == ["vmlinuz", "vmlinuz + quiet", "vmlinuz (again)"]
    assert {arm.file for arm in plan.arms} == {file}
    assert plan.absent == ()


def test_images_alone_are_compared_with_whatever_compilers_there_are(desk: Desk) -> None:
    desk.bench.installed = (fakes.GCC, fakes.OLD_GCC)
    one, other = (bzimage(desk.place / name, f"6.1.{n}") for n, name in enumerate(("one", "other")))
    desk.begin(f"image:{one}", f"image:{other}", stacks=("hdd",))
    assert desk.go_on() == Done("2 blocks on each setup")
    assert desk.bench.tried == []


def test_an_image_that_does_not_boot_is_left_out_with_a_hint(desk: Desk) -> None:
    file = bzimage(desk.place / "vmlinuz")
    desk.bench.faults = {hashlib.sha256(file.read_bytes()).hexdigest(): fakes.PANIC}
    desk.begin("c0", "c3", f"image:{file}", stacks=("hdd",))
    assert desk.go_on() == Done("2 blocks on each setup")
    why = desk.blocks().absent(0, 2)
    assert why.startswith(fakes.PANIC.sentence)
    assert "has to be built in" in why
    assert "virtio_blk" in why


def test_trouble_at_the_boot_of_an_image_says_what_it_may_lack(desk: Desk) -> None:
    desk.bench.infra_n = {1: 9}
    desk.begin(f"image:{bzimage(desk.place / 'vmlinuz')}", stacks=("hdd",), placebo=True)
    with pytest.raises(AttemptFailed, match="the network went away") as caught:
        desk.go_on()
    assert "has to be built in" in caught.value.hint


def test_images_that_cannot_be_arms_are_refused(desk: Desk) -> None:
    file = bzimage(desk.place / "vmlinuz")
    other = desk.place / "other"
    other.write_bytes(b"MZ")
    assert desk.refused(f"image:{file}") == "vmlinuz alone cannot be compared"
    assert "same image, " in desk.refused(f"image:{file}", f"image:{file}")
    assert desk.refused("main", f"image:{other}").endswith("other is no bzImage: it has no boot header")
    assert "cannot be read: No such file" in desk.refused("main", "image:gone")
    assert "is not a regular file" in desk.refused("main", "image:")
    said = "vmlinuz is an image: nothing can be built on top of it"
    assert desk.refused(f"image:{file}", patches=("main",)) == said
    assert desk.refused(f"image:{file}", fragments=(str(fragment_file(desk)),)) == said


# What cannot be compared


def test_one_commit_alone_cannot_be_compared(desk: Desk) -> None:
    assert desk.refused("main") == "main alone cannot be compared"


def test_an_unknown_subject_is_named(desk: Desk) -> None:
    assert "unknown revision 'v9'" in desk.refused("main", "v9")


def test_equal_arms_are_refused(desk: Desk) -> None:
    assert desk.refused("main", "c3").endswith(f"are the same commit, {desk.shas['c3'][:12]}")


def test_commits_of_equal_sources_are_refused(desk: Desk) -> None:
    same = histories.git(desk.place / "linux", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit-tree",
                         "main^{tree}", "-p", "main", "-m", "nothing")  # fmt: skip
    assert desk.refused("main", same) == f"main and {same} are of the same sources"


def without_md(desk: Desk) -> str:
    """A commit whose tree has no dm-cache."""
    place = desk.place / "linux"
    histories.git(place, "checkout", "-q", "-f", "main")
    (place / "drivers/Kconfig").write_text("config BLK_DEV_LOOP\n\tbool\n")
    histories.git(place, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-a", "-m", "no md")
    return histories.git(place, "rev-parse", "HEAD")


def test_a_cell_whose_tree_lacks_an_option_is_not_measured_and_says_so(desk: Desk) -> None:
    lacks = without_md(desk)
    desk.begin("c0", lacks, "c3")
    assert desk.go_on() == Done("2 blocks on each setup")
    blocks = desk.blocks()
    assert blocks.absent(0, 1).startswith("needs CONFIG_MD, CONFIG_BLK_DEV_DM")
    assert blocks.absent(1, 1) == ""
    measured = {(request.cell.setup.stack, request.commit.sha) for request in desk.bench.requests}
    assert ("lvmcache(ssd,hdd)+ext4", lacks) not in measured
    assert ("hdd+ext4", lacks) in measured
    assert len(measured) == 5


def test_where_nothing_is_left_to_compare_nothing_is_begun(desk: Desk) -> None:
    said = desk.refused("c0", without_md(desk), stacks=("lvmcache",))
    assert said.startswith("there is nothing to compare: ")
    assert " on lvmcache(ssd,hdd)+ext4 needs CONFIG_MD, CONFIG_BLK_DEV_DM" in said


def test_a_setup_that_is_asked_for_twice_is_refused(desk: Desk) -> None:
    said = desk.refused("c0", "c3", stacks=("hdd", "hdd+ext4"))
    assert said == "fio(partial.fio) on hdd+ext4 is asked for twice"


# The plan


def test_fragments_of_all_stacks_make_one_kernel_and_those_of_a_person_win() -> None:
    rows = ("tiny", "vm", "storage-lvmcache", "mine"), ("tiny", "vm", "mine"), ("tiny", "vm", "storage-bcache", "mine")
    assert united(rows) == ("tiny", "vm", "storage-bcache", "storage-lvmcache", "mine")
    assert united(()) == ()


def test_what_only_a_search_has_is_no_part_of_it(desk: Desk) -> None:
    plan = desk.plan("c0", "c3", bisect__threshold="2000", bisect__expect="regression")
    assert {(one.settings.bisect.threshold, one.settings.bisect.expect) for one in plan.setups} == {(None, None)}


@pytest.mark.parametrize(
    ("runs", "stacks", "said"),
    [
        (6, 1, ""),
        (5, 1, "With 5 blocks the exact test cannot reach 5 %: its least p-value is 6.2 %. It takes 6 blocks."),
        (
            6,
            2,
            "In a family of 2 tests the exact test by itself could reach 5 % from 7 blocks on; the interval decides.",
        ),
        (7, 2, ""),
    ],
)
def test_too_few_blocks_are_told_beforehand(desk: Desk, runs: int, stacks: int, said: str) -> None:
    plan = desk.plan("c0", "c3", runs=runs, stacks=("hdd", "ssd")[:stacks])
    assert "".join(warnings(plan)).startswith(said)
    assert bool(list(warnings(plan))) is bool(said)


def test_the_family_beforehand_is_that_of_the_cells_that_can_be_compared(desk: Desk) -> None:
    """Without the first arm a setup has no test, however many arms it has."""
    plan = desk.plan("c0", "c2", "c3", runs=6, stacks=("hdd", "ssd"))
    assert "In a family of 4 tests" in "".join(warnings(plan))
    said, left_out = warnings(replace(plan, absent=(Absent(1, 0, "needs CONFIG_MD"),)))
    assert said.startswith("In a family of 2 tests")
    assert left_out == f"ssd+ext4: {desk.shas['c0']} needs CONFIG_MD: nothing is measured there"


def test_a_cell_that_a_tree_cannot_have_is_told_beforehand(desk: Desk) -> None:
    (said,) = warnings(desk.plan("c0", lacks := without_md(desk), "c3", runs=8))
    assert said.startswith(f"lvmcache(ssd,hdd)+ext4: {lacks} needs CONFIG_MD, ")
    assert "nothing is measured" not in said


def test_clone_that_a_workload_searches_is_made_before_the_first_trial(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(desk.place / "cache"))
    search = {"workload__gitgrep__pattern": "dm", "workload__gitgrep__path": "drivers"}
    run = desk.begin("c0", "c3", stacks=("hdd",), **search)
    (setup,) = desk.blocks().plan.setups
    assert setup.settings.workload.inputs["bundle"].is_relative_to(run.path)
    assert setup.settings.workload.inputs["bundle"].is_file()


def test_a_percentile_of_few_ios_is_told_at_the_first_trial(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = examples.job
    monkeypatch.setattr(examples, "job", lambda *words: replace(usual(*words), total_ios=312))
    desk.begin("c0", "c3", stacks=("hdd", "ssd"), bisect__metric="read.clat.p99")
    desk.go_on()
    said = [event.text for event in desk.told if isinstance(event, Note) and "of 312 I/Os" in event.text]
    assert [text.partition(": read.clat.p99 of")[0].rpartition(" ")[2] for text in said] == ["hdd+ext4", "ssd+ext4"]
