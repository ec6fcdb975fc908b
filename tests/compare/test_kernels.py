"""An arm is one kernel for as long as its comparison lasts, whatever is upgraded meanwhile."""

from dataclasses import replace

import pytest

from bisector.campaign.instructions import Done
from bisector.core.errors import InfraError, UserError
from bisector.core.events import Note
from bisector.core.subject import Compiler
from bisector.core.trial import Artifact, Stage, Trial, TrialRefused
from bisector.core.verdict import State
from bisector.kernel.product import as_measured
from bisector.report.comparison_table import sentences
from bisector.status.blocks import BlockState, result_of
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.compare.desk import Desk


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


def builds_anew(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the bench does with kernels that are kept no more."""
    usual = desk.bench.measure

    def measure(request: TrialRequest) -> Trial:
        found = usual(request)
        try:
            assert found.kernel is not None
            as_measured(request.kernel, found.kernel)
        except UserError as error:
            raise TrialRefused(error.message, error.hint, replace(found, stage=Stage.BUILD, runs=())) from error
        return found

    monkeypatch.setattr(desk.bench, "measure", measure)


def test_the_kernel_that_was_measured_is_asked_for_again(stopped: Desk) -> None:
    assert stopped.go_on() == Done(State.MEASURED, "3 blocks on each setup")
    asked = [one.kernel and one.kernel.content_sha256 for one in stopped.bench.requests]
    assert asked == [one.commit.sha for one in stopped.bench.requests]


def test_an_arm_that_would_be_another_kernel_stops_the_run_and_is_named(
    stopped: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds_anew(stopped, monkeypatch)
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


def test_arms_of_one_build_are_one_kernel(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A placebo that were another kernel would show no noise."""
    builds_anew(desk, monkeypatch)
    desk.begin("c0", stacks=("hdd",), runs=1, placebo=True)
    usual = desk.bench.measure

    def upgraded(request: TrialRequest) -> Trial:
        desk.bench.content = {desk.shas["c0"]: "9" * 64} if request.n > 1 else {}
        return usual(request)

    monkeypatch.setattr(desk.bench, "measure", upgraded)
    with pytest.raises(TrialRefused, match="a rebuild differs"):
        desk.go_on()


def test_a_block_that_does_not_count_binds_nobody(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that panics may boot with a quirk of the next version."""
    builds_anew(desk, monkeypatch)
    desk.bench.panics_n = frozenset((1, 2))
    desk.begin("c0", "c3", stacks=("hdd",), runs=1)
    usual = desk.bench.measure

    def upgraded(request: TrialRequest) -> Trial:
        desk.bench.content = dict.fromkeys(desk.shas.values(), "9" * 64) if request.n > 2 else {}
        return usual(request)

    monkeypatch.setattr(desk.bench, "measure", upgraded)
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


def test_the_configuration_of_what_was_measured_is_the_one_that_the_run_keeps(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = desk.bench.measure
    run = desk.begin("c0", "c3", stacks=("hdd",), runs=2)

    def leaves(request: TrialRequest) -> Trial:
        path = f"trials/{request.n:04d}-x/kernel.config"
        return replace(usual(request), artifacts=(Artifact("kernel.config", path, "ab" * 32, 20),))

    monkeypatch.setattr(desk.bench, "measure", leaves)
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
