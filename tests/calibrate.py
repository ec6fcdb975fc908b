"""``make calibrate``: whether the search is as good as it says, on a real history's shape; minutes, not seconds.

Each row is a world and what the search has to reach in it. A seed can be given: the figures must not hang on one.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bisector.core.verdict import Strategy
from bisector.search.likelihood import Noise
from bisector.search.simulate.runs import Summary, search_for, simulate, told
from bisector.search.simulate.world import BOTH_EARLY, Conditions, Durations
from tests.search.graphs import recorded

CLAIM_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class Row:
    """A world, and the bounds of what comes of it; ``assumed`` is what the search believes, if not the truth."""

    name: str
    world: Conditions
    right: float = 0.0
    in_set: float = 0.0
    evaluations: float = float("inf")
    vm_hours: float = float("inf")
    assumed: Noise | None = None


def noisy(rate: float, **others: float) -> Conditions:
    """Runs that mislead in both directions."""
    return Conditions(old_as_new=rate, new_as_old=rate, sticky=others.get("sticky", 0.0))


END_TO_END = Conditions(old_as_new=0.002, new_as_old=0.03, sticky=0.005, skip=0.05, durations=BOTH_EARLY)
SECOND_EARLY = replace(END_TO_END, durations=Durations())
INFORMED = replace(END_TO_END, relevant=0.07, suspects=0.7)
ROWS = (
    Row("no noise, no skips", Conditions(), right=1.0, evaluations=16.0),
    Row("5 % wrong readings", noisy(0.05), right=0.99, evaluations=21.5),
    Row("10 % wrong readings", noisy(0.10), right=0.99, evaluations=30.0),
    Row("5 % wrong, 1 % sticky", noisy(0.05, sticky=0.01)),
    Row("end to end, both runs stopped", END_TO_END, right=0.97, in_set=0.995, vm_hours=7.9),
    Row("end to end, second run stopped", SECOND_EARLY, right=0.97, in_set=0.995, vm_hours=9.9),
    Row("both, 7 % relevant, suspects", INFORMED, right=0.98, vm_hours=6.0),
    Row("both, default beliefs", END_TO_END, assumed=Noise()),
)


def main() -> int:
    """Print all rows, and what each misses; the exit code says whether any does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.stdout.write(f"seed {arguments.seed}, {arguments.trials} trials each\n")
    missed = 0
    for row in ROWS:
        search = search_for(row.world, row.assumed or told(row.world))
        drawn = simulate(recorded(), Strategy.BAYES, row.world, search, seed=arguments.seed, trials=arguments.trials)
        summary = Summary.of(tuple(drawn))
        misses = tuple(_misses(row, summary))
        missed += bool(misses)
        sys.stdout.write(
            f"{row.name:36} right {summary.success_rate:6.1%}  claimed {summary.claimed_mean:6.1%}  "
            f"in set {summary.in_set_rate:6.1%}  runs {summary.evaluations_mean:5.2f}  "
            f"{summary.vm_hours_mean:5.2f} h  step {summary.step_ms_mean:4.1f} ms  {'; '.join(misses)}\n"
        )
        sys.stdout.flush()
    return 1 if missed else 0


def _misses(row: Row, summary: Summary) -> Iterator[str]:
    for name, value, least in (("right", summary.success_rate, row.right), ("in set", summary.in_set_rate, row.in_set)):
        if value < least:
            yield f"MISSED {name} {least:.1%}"
    for name, value, most in (
        ("runs", summary.evaluations_mean, row.evaluations),
        ("hours", summary.vm_hours_mean, row.vm_hours),
        ("claim off by", abs(summary.claimed_mean - summary.success_rate), CLAIM_TOLERANCE),
    ):
        if value > most:
            yield f"MISSED {name} {most:g}"


if __name__ == "__main__":
    sys.exit(main())
