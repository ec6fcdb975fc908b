"""When a sound end is due to be tried again: a function of what was measured."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bisector.analysis.judgement import Due, after_a_row, before_an_answer, speaks_for
from bisector.config import RetryPolicy
from bisector.core.trial import Control, Fault, FaultKind, Stage, Trial
from tests import fakes
from tests.examples import cell, commit

ENDS = {commit(0).sha, commit(99).sha}
ANSWERED = Control("2026-03-01T10:00:00+00:00", "box", commit(99).sha, Stage.BOOT, (), "")


def fault(stage: Stage, kind: FaultKind = FaultKind.PANIC) -> Fault:
    return Fault(stage, kind, "no luck")


def failed(number: int, stage: Stage, kind: FaultKind = FaultKind.PANIC) -> Trial:
    return fakes.trial(commit(number), fault=fault(stage, kind))


def sound(number: int, *, cached: bool = False) -> Trial:
    made = fakes.trial(commit(number))
    assert made.kernel is not None
    return replace(made, kernel=replace(made.kernel, cached=cached))


def numbered(*trials: Trial) -> Sequence[tuple[int, Trial]]:
    return tuple(enumerate(trials, 1))


def skipped(sha: str) -> bool:
    return True


def row(*trials: Trial) -> Due | None:
    return after_a_row(numbered(*trials), ENDS, skipped, RetryPolicy().like_faults)


def answer(*trials: Trial) -> Due | None:
    return before_an_answer(numbered(*trials), ENDS, skipped)


BOOT = tuple(failed(number, Stage.BOOT) for number in (1, 2, 3))


def test_the_third_commit_in_a_row_is_one_too_many() -> None:
    assert row(*BOOT[:2]) is None
    assert row(*BOOT) == Due(Stage.BOOT, (1, 2, 3))


def test_what_a_host_breaks_is_of_one_stage_and_of_any_kind() -> None:
    kinds = (FaultKind.PANIC, FaultKind.HANG, FaultKind.EXITED)
    assert row(*(failed(n, Stage.BOOT, kind) for n, kind in enumerate(kinds, 1))) == Due(Stage.BOOT, (1, 2, 3))
    made = (failed(1, Stage.CHECKOUT), failed(2, Stage.CONFIG), failed(3, Stage.BUILD))
    assert row(*made) == Due(Stage.BUILD, (1, 2, 3))
    assert row(*BOOT[:2], failed(3, Stage.BUILD)) is None


@pytest.mark.parametrize("between", [sound(5), failed(5, Stage.WORKLOAD)], ids=["sound", "further"])
def test_a_kernel_that_comes_further_breaks_the_row(between: Trial) -> None:
    assert row(*BOOT[:2], between, BOOT[2]) is None
    assert row(*BOOT, between) is None


def test_an_equal_kernel_was_not_booted_and_speaks_for_no_boot() -> None:
    equal = fakes.trial(commit(5), same_as=commit(0).sha)
    assert row(*BOOT[:2], equal, BOOT[2]) == Due(Stage.BOOT, (1, 2, 4))


@pytest.mark.parametrize(("cached", "due"), [(True, Due(Stage.BUILD, (1, 2, 4))), (False, None)])
def test_only_a_kernel_that_was_built_speaks_for_the_compiler(cached: bool, due: Due | None) -> None:
    made = tuple(failed(number, Stage.BUILD) for number in (1, 2, 3))
    assert row(*made[:2], sound(5, cached=cached), made[2]) == due


def test_nothing_is_asked_twice() -> None:
    asked = tuple(replace(trial, control=ANSWERED) for trial in BOOT)
    assert row(*asked) is None
    assert answer(*asked) is None
    assert row(*asked, *BOOT[:2]) is None
    assert row(*asked, *BOOT) == Due(Stage.BOOT, (4, 5, 6))


def test_what_is_not_believed_yet_is_not_asked_about() -> None:
    last = BOOT[2].commit.sha
    assert after_a_row(numbered(*BOOT), ENDS, lambda sha: sha != last, RetryPolicy().like_faults) is None
    assert before_an_answer(numbered(BOOT[2]), ENDS, lambda sha: False) is None


def test_a_build_that_is_known_to_fail_was_not_tried_and_is_not_doubted() -> None:
    known = tuple(
        replace(trial, fault=Fault(Stage.BUILD, FaultKind.BUILD_ERROR, "x.c:1: error", (), cached=True))
        for trial in BOOT
    )
    assert row(*known) is None
    assert answer(*known) is None


def test_faults_of_the_ends_are_no_skips() -> None:
    assert answer(*(replace(trial, cell=cell(commit(99))) for trial in BOOT)) is None


def test_an_answer_waits_for_what_nothing_speaks_for() -> None:
    assert answer(sound(1), sound(2)) is None
    assert answer(sound(1), BOOT[1]) == Due(Stage.BOOT, (2,))
    assert answer(BOOT[0], sound(2, cached=True)) is None
    assert answer(failed(1, Stage.BUILD), sound(2, cached=True)) == Due(Stage.BUILD, (1,))


def test_one_control_speaks_for_all_stages_of_a_running_kernel() -> None:
    *ran, made = failed(1, Stage.WORKLOAD), failed(2, Stage.BOOT), failed(3, Stage.BUILD)
    assert answer(*ran, made) == Due(Stage.WORKLOAD, (1, 2))
    asked = tuple(replace(trial, control=ANSWERED) for trial in ran)
    assert answer(*asked, made) == Due(Stage.BUILD, (3,))


@pytest.mark.parametrize(
    ("control", "speaks"),
    [
        (Stage.BUILD, {Stage.CONFIG, Stage.BUILD}),
        (Stage.BOOT, {Stage.BOOT}),
        (Stage.WORKLOAD, {Stage.BOOT, Stage.STORAGE, Stage.WORKLOAD}),
    ],
)
def test_what_a_control_speaks_for(control: Stage, speaks: set[Stage]) -> None:
    assert {stage for stage in Stage if speaks_for(control, stage)} == speaks
