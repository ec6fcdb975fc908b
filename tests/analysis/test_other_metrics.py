"""When two ends are the same by one metric, another of the same runs that differs beyond doubt is named."""

from dataclasses import replace

import pytest

from bisector.analysis.levels import differing
from bisector.core.figures import Run
from bisector.core.objective import SUM, Objective
from tests import examples

NOISE = (1.0, 1.02, 0.985, 1.01, 0.99, 1.005, 0.995, 1.015)
OF_LATENCY = (1.0, 1.06, 0.95, 1.03, 1.05, 0.94, 0.97, 1.02)


def run(iops: float, clat_ns: float, sync: float = 0.0) -> Run:
    made = examples.run("full", iops, iops * 2)
    jobs = tuple(replace(one, clat_mean_ns=clat_ns, clat_p99_ns=4 * clat_ns * (1 + sync)) for one in made.jobs)
    return replace(made, jobs=jobs)


def in_turn(slower: float) -> list[tuple[bool, Run]]:
    """Four pairs whose IOPS are the same, and whose latency is so many times as long at the new end."""
    return [
        (bool(place % 2), run(1000 * NOISE[place], 2e6 * OF_LATENCY[place] * (slower if place % 2 else 1.0)))
        for place in range(8)
    ]


def test_the_metric_that_differs_most_surely_is_named_with_its_interval() -> None:
    assert differing(in_turn(1.6), Objective()) == (
        "by read.clat.mean of the worst job they differ: 1.64 times (95 %: 1.49 to 1.80), by 4 pairs, the surest of"
        " 3 metrics: --metric read.clat.mean"
    )


@pytest.mark.parametrize(
    ("runs", "asked"),
    [
        (in_turn(1.0), Objective()),
        (in_turn(1.03), Objective()),
        (in_turn(1.6), Objective("read.iops", SUM)),  # the others have no sum
        (in_turn(1.6)[:2], Objective()),  # one pair has no spread
    ],
)
def test_none_is_named_that_may_differ_by_noise_alone(runs: list[tuple[bool, Run]], asked: Objective) -> None:
    assert differing(runs, asked) is None
