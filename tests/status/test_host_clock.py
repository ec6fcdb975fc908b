"""How an answer of counted time stands by the host's clock: how many pairs it takes, and what is said."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.analysis.comparison import Outcome
from bisector.analysis.verdicts import Judging
from bisector.config import options
from bisector.core.objective import Factor
from bisector.core.subject import Commit
from bisector.core.verdict import State
from bisector.status.from_record import host_clock
from bisector.status.view import HostClock, pairs_needed
from tests import fakes
from tests.git import histories

FIRST, PARENT = (Commit(name * 40, name * 40, name, "") for name in "ab")
COUNTED = Factor(1.2, (1.19, 1.21))


def clock(**more: object) -> HostClock:
    known = {"parent": PARENT, "counted": COUNTED, **more}
    return HostClock(FIRST, "read.iops of the worst job", "run/confirmed", **known)  # type: ignore[arg-type] # its own fields


@pytest.mark.parametrize(
    ("times", "pairs"),
    [(4.0, 6), (0.25, 6), (1.1, 6), (1.075, 8), (1.065, 10), (1 / 1.065, 10), (1.011, 234), (1.001, None), (1.0, None)],
)
def test_a_smaller_change_takes_more_pairs(times: float, pairs: int | None) -> None:
    assert pairs_needed(times) == pairs


@pytest.mark.parametrize(
    ("more", "is_due", "said"),
    [
        ({}, True, "it is yet to be measured"),
        ({"counted": Factor(1.011, None)}, False, "takes about 234 pairs to show"),
        ({"counted": Factor(1.001, None)}, False, "takes more than 1,000 pairs to show"),
        ({"state": State.STOPPED, "message": "interrupted"}, True, "no pair counts yet: stopped, interrupted"),
        ({"state": State.MEASURED, "message": "n/a"}, False, "no pair counts: measured, n/a"),
        ({"parent": None, "counted": None}, False, "has no parent on record"),
    ],
)
def test_what_is_not_measured(more: dict[str, object], is_due: bool, said: str) -> None:
    assert clock(**more).is_due is is_due
    assert said in clock(**more).sentence


@pytest.mark.parametrize(
    ("times", "outcome", "said"),
    [
        (1.15, Outcome.FASTER, "the change is seen there, too"),
        (0.8, Outcome.SLOWER, "a change the other way, which contradicts the answer"),
        (1.01, Outcome.SAME, "the same within 5 %, so that the change does not show there"),
        (1.02, Outcome.UNCLEAR, "not told apart from no change"),
    ],
)
def test_what_the_second_factor_says(times: float, outcome: Outcome, said: str) -> None:
    found = clock(measured=Factor(times, (0.97, 1.07)), outcome=outcome, pairs=6, state=State.MEASURED)
    assert found.sentence.endswith(f"(95 %: 0.970 to 1.070) in 6 pairs: {said}")
    assert found.sentence.startswith(
        f"read.iops of the worst job is 1.20 times (95 %: 1.19 to 1.21) that of the parent {PARENT.short} by instr"
    )


def test_a_kernel_that_was_not_measured_is_as_its_side(tmp_path: Path) -> None:
    """The parent, c2, has no reading of its own; the answer, c3, has that of an equal kernel."""
    shas = histories.build(tmp_path / "linux", histories.linear(6))
    commits = {name: Commit(sha, sha, name, "") for name, sha in shas.items()}
    equal = replace(fakes.trial(commits["c3"], 0.0), runs=(), same_kernel_as=shas["c4"])
    read = [("c0", 1_000.0), ("c1", 1_100.0), ("c4", 4_400.0), ("c5", 5_000.0)]
    trials = [*(fakes.trial(commits[name], value) for name, value in read), equal]
    judging = Judging(options.load(directory=Path("/")).settings, tuple(enumerate(trials, 1)), shas["c0"], shas["c5"])
    found = host_clock(tmp_path, tmp_path / "linux", judging, commits["c3"])
    assert found.parent is not None
    assert (found.parent.sha, found.needed, found.is_due) == (shas["c2"], 6, True)
    assert found.counted is not None
    assert found.counted.times == pytest.approx(4_400.0 / math.sqrt(1_000.0 * 1_100.0))


@pytest.mark.parametrize(
    ("factor", "text"),
    [
        (Factor(1.2, None), "1.20 times"),
        (Factor(1.2, (1.19, 1.21)), "1.20 times (95 %: 1.19 to 1.21)"),
        (Factor(1.02, (0.97, 1.07)), "1.020 times (95 %: 0.970 to 1.070)"),
        (Factor(0.99018, (0.99016, 0.99023)), "0.99018 times (95 %: 0.99016 to 0.99023)"),
        (Factor(1.2, (1.1968, 1.2020)), "1.2000 times (95 %: 1.1968 to 1.2020)"),
        (Factor(3.0, (3.0, 3.0)), "3.00 times (95 %: 3.00 to 3.00)"),
    ],
)
def test_a_factor_has_as_many_digits_as_its_interval_needs(factor: Factor, text: str) -> None:
    assert factor.text == text
