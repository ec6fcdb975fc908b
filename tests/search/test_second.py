"""A second, smaller step beside the answer: told where readings show it, and nowhere else."""

import math
import random
from collections.abc import Sequence

import pytest

from bisector.core.verdict import Verdict
from bisector.search.decision import Search
from bisector.search.likelihood import Line, Scale, Weighing
from bisector.search.noise import Noise, Rates
from bisector.search.readings import OLD_END, Facts, Kernel, Reading
from bisector.search.second import SecondStep, second_step
from bisector.search.step import believe
from tests.search.graphs import LINE, plain

TIP, FIRST = 199, 100
FIFTH = math.log(1.2)
TRIED = (150, 50, 75, 125, 90, 110, 95, 105, 98, 102, 99, 100, 160, 140, 130, 170, 180, 190, 25, 10, 60, 40)


def told(
    *steps: tuple[int, float],
    spread: float = 0.004,
    drift: float = 0.0,
    hosts: Sequence[str] = ("",),
    seed: int = 1,
    misled: Sequence[int] = (),
) -> SecondStep | None:
    """Of readings in turn on the hosts, each with a level of its own, where these commits make steps of a score."""
    noise, of_host = random.Random(seed), {host: 1.0 * n for n, host in enumerate(hosts)}
    readings, top = list[Reading](), sum(by for _, by in steps)
    ends = [(end, host) for _ in range(6) for host in hosts for end in (OLD_END, TIP)]
    tried = [(commit, hosts[n % len(hosts)]) for n, commit in enumerate(TRIED + TRIED)]
    for n, (commit, host) in enumerate([*ends, *tried]):
        level = of_host[host] + sum(by for at, by in steps if commit >= at) + drift * n / 2
        score = level + noise.gauss(0, spread) - (FIFTH if n in misled else 0.0)
        side = Verdict.NEW if score - of_host[host] - drift * n / 2 > top / 2 else Verdict.OLD
        readings.append(Reading(commit, Kernel.COMMIT, side, score, hour=n / 2, host=host))
    rates = Rates.known(Noise(old_as_new=0.001, new_as_old=0.001, sticky=0.002))
    scales = {host: Scale((at, at + top), Line(at + top / 2)) for host, at in of_host.items()}
    facts, search = Facts(tuple(readings)), Search(Weighing(rates, scales))
    belief = believe(plain(LINE), facts, search)
    assert belief.best == FIRST
    return second_step(facts, belief)


@pytest.mark.parametrize("at", [60, 140])
@pytest.mark.parametrize("size", [0.03, -0.03])
@pytest.mark.parametrize("drift", [0.0, 0.002])
@pytest.mark.parametrize("hosts", [("",), ("a", "b")])
def test_it_is_told_with_its_size_and_its_place(at: int, size: float, drift: float, hosts: Sequence[str]) -> None:
    found = told((FIRST, FIFTH), (at, size), drift=drift, hosts=hosts)
    assert found is not None
    assert abs(found.mean - size) <= found.half_width < 0.02
    assert at in found.commits
    assert len(found.commits) <= 30
    assert found.commit in found.commits


@pytest.mark.parametrize("seed", range(1, 13))
@pytest.mark.parametrize(("spread", "drift"), [(0.004, 0.0), (0.02, 0.002)])
def test_noise_and_drift_are_no_step(seed: int, spread: float, drift: float) -> None:
    assert told((FIRST, FIFTH), spread=spread, drift=drift, seed=seed) is None


def test_what_a_single_kernel_shows_is_no_step() -> None:
    assert told((FIRST, FIFTH), (TIP, 0.04)) is None


def test_a_run_that_was_misled_hides_no_step() -> None:
    found = told((FIRST, FIFTH), (140, 0.03), misled=(12, 17))
    assert found is not None
    assert abs(found.mean - 0.03) <= found.half_width < 0.02


def test_ends_alone_show_none() -> None:
    ends = tuple(Reading(end, Kernel.COMMIT, Verdict.MEASURED, by) for end, by in ((OLD_END, 0.0), (TIP, FIFTH)) * 3)
    search = Search(Weighing(Rates.known(Noise()), {"": Scale((0.0, FIFTH), Line(FIFTH / 2))}))
    assert second_step(Facts(ends), believe(plain(LINE), Facts(ends), search)) is None
