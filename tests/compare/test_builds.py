"""The kernels of a comparison: each is built once, first, and all by one compiler."""

import pytest

from bisector.campaign.instructions import Done
from bisector.core.errors import InfraError, UserError
from bisector.core.events import Note
from bisector.core.subject import Commit, Compiler
from bisector.core.trial import AttemptFailed, Stage
from bisector.core.verdict import State
from bisector.store.facts import BuildTry, Submitted, Work
from bisector.store.store import Store
from tests import fakes
from tests.compare.desk import Desk


def test_each_kernel_is_built_once_and_first(desk: Desk) -> None:
    desk.begin("c0", "c3", placebo=True)
    desk.go_on()
    assert desk.bench.tried == [("gcc", desk.shas["c0"]), ("gcc", desk.shas["c3"])]
    with Store.open(desk.place / "run" / "record.sqlite") as store:
        assert store.facts(BuildTry) == tuple(BuildTry(fakes.GCC, desk.shas[name], "") for name in ("c0", "c3"))
        kinds = [one.work for one in store.facts(Submitted)]
        assert kinds == [Work.BUILD, Work.BUILD, *[Work.TRIAL] * 12]
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
    run = desk.begin("c0", "c3", stacks=("hdd",))
    for tried in (1, 2):
        with pytest.raises(UserError, match=r"nothing can be compared: .*: does not build: .*expected ';'"):
            desk.go_on()
        assert desk.bench.tried == [("gcc", desk.shas["c0"]), *[("gcc", desk.shas["c3"])] * tried]
    desk.bench.does_not_build = {}
    assert desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    with Store.open(run.database) as store:
        reasons = [one.reason for one in store.facts(BuildTry) if one.sha == desk.shas["c3"]]
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
