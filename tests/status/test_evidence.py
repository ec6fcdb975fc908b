"""From trials to readings: one set for each kernel, whichever commits it was built from."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bisector.analysis.verdicts import Judging
from bisector.config import Settings, options
from bisector.core.figures import EarlyStop, StopReason
from bisector.core.subject import Commit, Kind, NotChanged
from bisector.core.trial import Trial
from bisector.core.verdict import Verdict
from bisector.git.ranges import Ground
from bisector.search.graph import RangeGraph
from bisector.search.likelihood import Kernel
from bisector.status.conclusion import Standing
from bisector.status.evidence import Case, Known
from tests import fakes
from tests.examples import BUSY, cell

DEFAULTS = options.load(directory=Path("/")).settings
COUNT = 10
OLD = "old"
SHAS = tuple(f"c{n}" for n in range(COUNT))
GROUND = Ground(
    RangeGraph.of([(), *((n,) for n in range(COUNT - 1))]),
    SHAS,
    {sha: n for n, sha in enumerate(SHAS)},
    np.zeros(COUNT, dtype=np.bool_),
)


def trial(sha: str, least: float = fakes.SLOW_IOPS, content: str = "", **more: object) -> Trial:
    commit = Commit(sha, "", sha, "2026-01-01T00:00:00Z")
    return fakes.trial(commit, least, content=content, **more)  # type: ignore[arg-type] # fakes' own keywords


def case(
    *trials: Trial,
    known: Known | None = None,
    settings: Settings = DEFAULTS,
    ground: Ground = GROUND,
    ends: tuple[float, float] = (fakes.SLOW_IOPS, fakes.FAST_IOPS),
) -> Case:
    old, new = (trial(sha, least) for sha, least in zip((OLD, SHAS[-1]), ends, strict=True))
    numbered = tuple(enumerate((old, new, *trials), 1))
    return Case(ground, Judging(settings, numbered, OLD, SHAS[-1]), known or Known())


def shown(one: Case) -> list[tuple[int, Kernel, Verdict]]:
    return [(r.commit, r.kernel, r.verdict) for r in one.facts.readings if r.commit != COUNT - 1]


def test_a_reading_is_the_logarithm_of_the_slowest_job() -> None:
    (_, reading) = case(trial("c4", 1_100.0)).facts.readings
    assert reading.score == pytest.approx(math.log(1_100.0))
    assert (reading.commit, reading.verdict, reading.full) == (4, Verdict.OLD, True)


def test_a_line_that_a_person_drew_is_all_that_counts() -> None:
    given = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, threshold="2000"))
    assert [reading.score for reading in case(trial("c4"), settings=given).facts.readings] == [None, None]


def test_a_run_that_was_stopped_early_has_a_side_and_no_figure() -> None:
    stop = EarlyStop(StopReason.NOT_ABOVE, 26.0, 900.0, 2_000.0, "below")
    (_, reading) = case(trial("c4", stopped=stop)).facts.readings
    assert (reading.verdict, reading.score, reading.full) == (Verdict.OLD, None, False)


def test_a_weak_trial_is_no_reading() -> None:
    assert shown(case(trial("c4", contention=BUSY))) == []


def test_equal_kernels_share_their_readings_and_cannot_be_apart() -> None:
    one = case(trial("c3", content="x"), trial("c6", content="x", same_as="c3"))
    assert shown(one) == [(3, Kernel.COMMIT, Verdict.OLD)]
    assert one.facts.twins == ((6, 3),)
    assert [n for n in range(COUNT) if one.impossible[n]] == [4, 5, 6]
    assert one.commit_for(6) == "c3"
    p = Standing(one).belief.p
    assert p[4:7].max() < 1e-6
    assert p[7] > 0.2


def test_an_equal_of_the_old_end_is_before_the_change() -> None:
    one = case(trial("c3", content=OLD, same_as=OLD))
    assert shown(one) == [(3, Kernel.COMMIT, Verdict.OLD)]  # the old end's own reading
    assert [n for n in range(COUNT) if one.impossible[n]] == [0, 1, 2, 3]


def test_skips_are_a_persons_and_the_kernels_own() -> None:
    one = case(trial("c5", fault=fakes.BUILD_ERROR), known=Known(skips=("c2", "elsewhere")))
    assert one.facts.untestable == {2, 5}


def test_what_gives_no_more_readings_is_asked_no_more() -> None:
    busy = [trial("c4", contention=BUSY)] * (DEFAULTS.bisect.max_repeats + 1)
    one = case(trial("c4"), *busy)
    assert (one.facts.exhausted, one.facts.untestable) == ((4,), frozenset())
    assert one.facts.closed == {4}


def changed(kind: Kind, sha: str, least: float, content: str = "", **more: object) -> Trial:
    made = trial(f"{kind}-{sha}", least, content, **more)
    return replace(made, cell=cell(made.commit, kind, sha))


def test_an_end_without_a_commit_tells_of_that_commit_alone() -> None:
    one = case(changed(Kind.REVERTED, "c4", fakes.SLOW_IOPS))
    assert shown(one) == [(4, Kernel.REVERTED, Verdict.OLD)]
    assert Standing(one).belief.best == 4


def test_an_end_that_has_a_commits_kernel_is_that_commits_reading() -> None:
    one = case(trial("c3", content="x"), changed(Kind.REVERTED, "c4", fakes.SLOW_IOPS, "x"))
    assert shown(one) == [(3, Kernel.COMMIT, Verdict.OLD)] * 2
    assert one.facts.failed == ((4, Kernel.REVERTED),)


def test_ends_that_cannot_be_had() -> None:
    known = Known(not_changed=(NotChanged(Kind.PICKED, "c4", OLD, "conflict in x.c"),))
    one = case(changed(Kind.REVERTED, "c5", 0.0, fault=fakes.BUILD_ERROR), known=known)
    assert set(one.facts.failed) == {(4, Kernel.PICKED), (5, Kernel.REVERTED)}
    assert one.facts.in_vain == 1


def test_noise_is_on_the_fast_side_whichever_that_is() -> None:
    """What misleads makes a run worse: nothing but the scores of the ends says which side that is."""
    noise = case().search.weighing.noise
    turned = case(ends=(fakes.FAST_IOPS, fakes.SLOW_IOPS)).search.weighing.noise
    assert noise.new_as_old > noise.old_as_new
    assert (turned.new_as_old, turned.old_as_new) == (noise.old_as_new, noise.new_as_old)


def test_a_figure_between_the_levels_says_nothing_once_and_its_side_twice() -> None:
    between = math.sqrt(fakes.SLOW_IOPS * fakes.FAST_IOPS) * 1.05
    sure = [trial(f"c{n}") for n in range(4)] + [trial(f"c{n}", fakes.FAST_IOPS) for n in (6, 7, 8)]
    once, twice = case(*sure, trial("c4", between)), case(*sure, trial("c4", between), trial("c4", between))
    assert [reading.score is None for reading in once.facts.readings if reading.commit == 4] == [False]
    assert [reading.score is None for reading in twice.facts.readings if reading.commit == 4] == [True, True]


def test_what_can_matter_and_who_is_suspected_weigh() -> None:
    suspects = np.zeros(COUNT, dtype=np.bool_)
    suspects[2] = True
    one = case(known=Known(mattering=frozenset(("c2", "c7"))), ground=replace(GROUND, suspects=suspects))
    with_, without = one.problem.log_prior, one.unsuspecting.log_prior
    assert with_[2] > with_[7] > with_[5]
    assert without[2] == without[7] > without[5]


def test_minutes_are_those_of_this_machine() -> None:
    costs = case(trial("c4")).search.costs
    assert costs.build_min == pytest.approx(47 / 60)
    assert costs.setup_min == pytest.approx((5.7 + 4.2) / 60)
    assert costs.whole_run_min == pytest.approx(84 / 60)
