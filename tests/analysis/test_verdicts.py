"""What is known of one commit's kernel, and whether it holds for another commit with an equal one."""

from pathlib import Path

import pytest

from bisector.analysis.verdicts import Judging
from bisector.config import options
from bisector.core.commit import Commit
from bisector.core.trial import Trial
from tests import fakes
from tests.examples import BUSY

SETTINGS = options.load(directory=Path("/")).settings
COMMIT = Commit("8" * 40, "7" * 40, "a commit", "2026-01-01T00:00:00+00:00")
SOUND = fakes.trial(COMMIT, content="c8")
PANIC = fakes.trial(COMMIT, fault=fakes.PANIC, content="c8")
WEAK = fakes.trial(COMMIT, contention=BUSY, content="c8")


@pytest.mark.parametrize(
    ("trials", "holds"),
    [
        ([SOUND], True),
        ([WEAK, SOUND], True),
        ([PANIC], False),
        ([PANIC, PANIC], True),
        ([WEAK], False),
        ([WEAK] * (SETTINGS.bisect.max_repeats + 1), False),
        ([PANIC] + [WEAK] * (SETTINGS.bisect.max_repeats + 1), False),
    ],
)
def test_what_is_sure_of_a_kernel_holds_for_its_equals(trials: list[Trial], holds: bool) -> None:
    judging = Judging(SETTINGS, tuple(enumerate(trials, 1)))
    assert judging.measured_kernels == ({"c8": COMMIT.sha} if holds else {})
