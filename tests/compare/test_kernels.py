"""The kernels of a comparison: each is built once, first, by one compiler, and stays one whatever is upgraded."""

from dataclasses import replace

import pytest

from bisector.campaign.instructions import Done
from bisector.core.errors import InfraError, UserError
from bisector.core.events import Note
from bisector.core.subject import Commit, Compiler
from bisector.core.trial import Artifact, AttemptFailed, Stage, Trial, TrialRefused
from bisector.core.verdict import State
from bisector.kernel.product import as_measured
from bisector.report.comparison_table import sentences
from bisector.status.blocks import BlockState, result_of
from bisector.store.facts import BuildTry, Submitted, Work
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.compare.desk import Desk


def test_each_kernel_is_built_once_and_first(desk: Desk) -> None:
    desk.begin("c0", "c3", placebo=True)
    desk.go_on()
    assert desk.bench.tried == [("gcc", desk.shas["c0"]), ("gcc", desk.shas["c3"])]
    assert desk.facts(BuildTry) == tuple(BuildTry(fakes.GCC, desk.shas[name], "") for name in ("c0", "c3"))
    assert [one.work for one in desk.facts(Submitted)] == [Work.BUILD, Work.BUILD, *[Work.TRIAL] * 12]
    assert all(request.compilers == (fakes.GCC,) for request in desk.bench.requests)


NAMED = pytest.mark.parametrize("named", [{}, {"kernel__compiler": ["gcc", "gcc-11"]}], ids=["of the host", "named"])


@NAMED
def test_of_several_compilers_the_first_that_builds_every_arm_makes_all_kernels(
    desk: Desk, named: dict[str, object]
) -> None:
    """Another one makes other code of the same source."""
    desk.bench.installed = (fakes.GCC, fakes.OLD_GCC)
    desk.bench.does_not_build = {("gcc", desk.shas["c3"]): fakes.BUILD_ERROR}
    desk.begin("c0", "c3", stacks=("hdd",), **named)
    desk.go_on()
    assert {request.compilers for request in desk.bench.requests} == {(fakes.OLD_GCC,)}


def test_an_arm_that_the_one_compiler_does_not_build_is_left_out(desk: Desk) -> None:
    desk.bench.does_not_build = {("gcc", desk.shas["c2"]): fakes.BUILD_ERROR}
    desk.begin("c0", "c2", "c3")
    assert desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    blocks = desk.blocks()
    assert blocks.absent(0, 1) == f"does not build: {fakes.BUILD_ERROR.reason}"
    assert {request.commit.sha for request in desk.bench.requests} == {desk.shas["c0"], desk.shas["c3"]}


@NAMED
def test_where_no_compiler_builds_all_arms_it_is_said(desk: Desk, named: dict[str, object]) -> None:
    desk.bench.installed = (fakes.GCC, fakes.OLD_GCC)
    failing = ("gcc", "c3"), ("gcc-11", "c0")
    desk.bench.does_not_build = {(command, desk.shas[name]): fakes.BUILD_ERROR for command, name in failing}
    desk.begin("c0", "c3", **named)
    which = "that is named" if named else "of this host"
    with pytest.raises(UserError, match=f"no compiler {which} builds every kernel: gcc fails at .*; gcc-11 fails at"):
        desk.go_on()


def test_a_build_that_failed_is_tried_once_more_by_each_resume(desk: Desk) -> None:
    """A person installs a header, and expects the build to be tried again; the record has every attempt."""
    desk.bench.does_not_build = {("gcc", desk.shas["c3"]): fakes.BUILD_ERROR}
    desk.begin("c0", "c3", stacks=("hdd",))
    for tried in (1, 2):
        with pytest.raises(UserError, match=r"nothing can be compared: .*: does not build: .*expected ';'"):
            desk.go_on()
        assert desk.bench.tried == [("gcc", desk.shas["c0"]), *[("gcc", desk.shas["c3"])] * tried]
    desk.bench.does_not_build = {}
    assert desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    reasons = [one.reason for one in desk.facts(BuildTry) if one.sha == desk.shas["c3"]]
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
    assert desk.go_on() == desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    assert len(desk.bench.requests) == 4
    assert desk.shas["c2"] in desk.held()  # a branch may be gone by the time that the header is there
    assert desk.blocks().unbuilt == (desk.shas["c2"],)
    desk.bench.does_not_build = {}
    assert desk.go_on() == Done(State.MEASURED, "4 blocks on each setup")
    blocks = desk.blocks()
    assert [len(blocks.pairs(0, arm)) for arm in (1, 2)] == [2, 4]
    assert (blocks.unbuilt, desk.held()) == ((), set())
    assert any(isinstance(event, Note) and "is tried again: does not build" in event.text for event in desk.told)


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


# An arm is one kernel for as long as its comparison lasts


@pytest.fixture
def stopped(desk: Desk) -> Desk:
    """Trial 4 failed by the host's fault, as often as it was tried: one block of each is done, another is open."""
    desk.bench.infra_n = {4: 4}
    desk.begin("c0", "c3", stacks=("hdd",), runs=3)
    with pytest.raises(InfraError):
        desk.go_on()
    desk.bench.requests.clear()
    desk.bench.infra_n = {}
    return desk


def builds_anew(desk: Desk) -> None:
    """What the bench does with kernels that are kept no more."""

    def as_before(request: TrialRequest, found: Trial) -> Trial:
        try:
            assert found.kernel is not None
            as_measured(request.kernel, found.kernel)
        except UserError as error:
            raise TrialRefused(error.message, error.hint, replace(found, stage=Stage.BUILD, runs=())) from error
        return found

    desk.bench.also = as_before


def test_the_kernel_that_was_measured_is_asked_for_again(stopped: Desk) -> None:
    assert stopped.go_on() == Done(State.MEASURED, "3 blocks on each setup")
    asked = [one.kernel and one.kernel.content_sha256 for one in stopped.bench.requests]
    assert asked == [one.commit.sha for one in stopped.bench.requests]


def test_an_arm_that_would_be_another_kernel_stops_the_run_and_is_named(stopped: Desk) -> None:
    builds_anew(stopped)
    changed = stopped.shas["c3"]
    stopped.bench.content = {changed: "9" * 64}
    with pytest.raises(TrialRefused) as caught:
        stopped.go_on()
    assert caught.value.exit_code == 2
    assert caught.value.message.startswith(
        f"{changed} on fio(partial.fio) on hdd+ext4, block 3, stage build: the measured kernel is"
        " no longer cached, and a rebuild differs: "
    )
    assert "begin anew: `bisector report` ends with the command" in caught.value.hint
    assert f"bisector resume --run-dir {stopped.place / 'run'}" in caught.value.hint
    blocks = stopped.blocks()
    assert changed not in {one.trial.commit.sha for one in blocks.placed if one.n > 3}
    assert [len(blocks.counted(0)), blocks.count(BlockState.OPEN)] == [1, 1]
    stopped.bench.content = {}
    assert stopped.go_on() == Done(State.MEASURED, "3 blocks on each setup")


def test_arms_of_one_build_are_one_kernel(desk: Desk) -> None:
    """A placebo that were another kernel would show no noise."""
    builds_anew(desk)
    desk.begin("c0", stacks=("hdd",), runs=1, placebo=True)

    def upgraded(request: TrialRequest) -> None:
        desk.bench.content = {desk.shas["c0"]: "9" * 64} if request.n > 1 else {}

    desk.bench.before = upgraded
    with pytest.raises(TrialRefused, match="a rebuild differs"):
        desk.go_on()


def test_a_block_that_does_not_count_binds_nobody(desk: Desk) -> None:
    """A kernel that panics may boot with a quirk of the next version."""
    builds_anew(desk)
    desk.bench.panics_n = frozenset((1, 2))
    desk.begin("c0", "c3", stacks=("hdd",), runs=1)

    def upgraded(request: TrialRequest) -> None:
        desk.bench.content = dict.fromkeys(desk.shas.values(), "9" * 64) if request.n > 2 else {}

    desk.bench.before = upgraded
    assert desk.go_on() == Done(State.MEASURED, "1 block on each setup")
    assert [one.kernel for one in desk.bench.requests[:3]] == [None] * 3


def test_a_compiler_that_was_upgraded_is_told_of_and_kept_kernels_are_measured(stopped: Desk) -> None:
    new = Compiler("gcc", "gcc 13.1.0, GNU ld 2.41")
    stopped.bench.installed = (new,)
    assert stopped.go_on() == Done(State.MEASURED, "3 blocks on each setup")
    (said,) = (one.text for one in stopped.told if isinstance(one, Note) and "has changed" in one.text)
    assert said.startswith(
        f"the compiler gcc has changed since this run began: it was {fakes.GCC.identity}, and is {new.identity};"
    )
    assert said.endswith("; the kernels that are kept are measured all the same")
    assert {one.compilers for one in stopped.bench.requests} == {(fakes.GCC,)}


def test_without_any_compiler_a_run_that_has_one_on_record_goes_on(
    stopped: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> tuple[Compiler, ...]:
        raise UserError("compiler gcc: gcc is not installed", "apt-get install gcc")

    monkeypatch.setattr(stopped.bench, "compilers", gone)
    assert stopped.go_on() == Done(State.MEASURED, "3 blocks on each setup")


def test_the_configuration_of_what_was_measured_is_the_one_that_the_run_keeps(desk: Desk) -> None:
    run = desk.begin("c0", "c3", stacks=("hdd",), runs=2)

    def leaves(request: TrialRequest, made: Trial) -> Trial:
        path = f"trials/{request.n:04d}-x/kernel.config"
        return replace(made, artifacts=(Artifact("kernel.config", path, "ab" * 32, 20),))

    desk.bench.also = leaves
    desk.go_on()
    first = {one.place.arm: one.n for one in reversed(desk.blocks().placed)}
    last = desk.bench.requests[-1]
    assert last.kernel is not None
    (arm,) = (one.place.arm for one in desk.blocks().placed if one.n == last.n)
    assert last.kernel.config == run.path / f"trials/{first[arm]:04d}-x/kernel.config"


def test_a_record_in_which_an_arm_was_two_kernels_says_so(stopped: Desk) -> None:
    """Earlier versions measured on with what was built anew."""
    stopped.bench.content = {stopped.shas["c3"]: "9" * 64}
    stopped.go_on()
    found = result_of(stopped.blocks())
    assert (found.several, found.unlike) == ((stopped.shas["c3"],), ())
    (said,) = (one for one in sentences(found) if "not one kernel" in one)
    assert said.startswith(f"{stopped.shas['c3']} was not one kernel all the time: ")
    told = list(sentences(replace(found, unlike=(("v6.1", "v6.2"),))))
    assert any(one.startswith("v6.1 and v6.2 were not built in the same way: ") for one in told)
