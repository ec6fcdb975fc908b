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
from bisector.core.trial import Fill, Timings, Trial
from bisector.core.verdict import Verdict
from bisector.git.ranges import SearchRange
from bisector.search.graph import OLD_END, Kernel, RangeGraph
from bisector.search.noise import EarlierSearches
from bisector.search.step import CommitToRead
from bisector.status.conclusion import SearchState
from bisector.status.evidence import Case, Known
from bisector.storage.layer import FILLED
from tests import fakes
from tests.examples import BUSY, EARLY, cell

DEFAULTS = options.load(directory=Path("/")).settings
COUNT = 10
OLD = "old"
SHAS = tuple(f"c{n}" for n in range(COUNT))
GROUND = SearchRange(
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
    search_range: SearchRange = GROUND,
    ends: tuple[float, float] = (fakes.SLOW_IOPS, fakes.FAST_IOPS),
) -> Case:
    old, new = (trial(sha, least) for sha, least in zip((OLD, SHAS[-1]), ends, strict=True))
    numbered = tuple(enumerate((old, new, *trials), 1))
    return Case(search_range, Judging(settings, numbered, OLD, SHAS[-1]), known or Known())


def shown(one: Case) -> list[tuple[int, Kernel, Verdict]]:
    return [(r.commit, r.kernel, r.verdict) for r in one.facts.readings if r.commit not in (OLD_END, COUNT - 1)]


def test_a_reading_is_the_logarithm_of_the_slowest_job() -> None:
    (*_, reading) = case(trial("c4", 1_100.0)).facts.readings
    assert reading.score == pytest.approx(math.log(1_100.0))
    assert (reading.commit, reading.verdict, reading.full) == (4, Verdict.OLD, True)
    stop = EarlyStop(StopReason.NOT_ABOVE, 26.0, 900.0, 2_000.0, "below")
    (*_, reading) = case(trial("c4", stopped=stop)).facts.readings
    assert (reading.verdict, reading.score, reading.full) == (Verdict.OLD, None, False)  # a side and no figure


def test_a_line_that_a_person_drew_is_all_that_counts() -> None:
    given = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, threshold="2000"))
    readings = case(trial(OLD), trial("c4"), settings=given).facts.readings
    assert [reading.score for reading in readings] == [None] * 4
    # The first verdicts on the ends had to be what they are.
    assert [reading.verdict for reading in readings] == [Verdict.MEASURED] * 2 + [Verdict.OLD] * 2


def test_a_reading_has_its_time_in_hours_of_measuring_and_a_weak_trial_is_none() -> None:
    hour = trial("c4").timings.total_s / 3600
    one = case(trial("c4"), trial("c6"), trial("c5", contention=BUSY), trial("c7"))
    assert hour > 0
    assert [reading.hour for reading in one.facts.readings] == pytest.approx([0, hour, 2 * hour, 3 * hour, 4 * hour])
    assert [number for number, *_ in shown(one)] == [4, 6, 7]


def test_equal_kernels_share_their_readings_and_cannot_be_apart() -> None:
    one = case(trial("c3", content="x"), trial("c6", content="x", same_as="c3"))
    assert shown(one) == [(3, Kernel.COMMIT, Verdict.OLD)]
    assert one.facts.twins == ((6, 3),)
    assert [n for n in range(COUNT) if one.impossible[n]] == [4, 5, 6]
    assert one.commit_for(6) == "c3"
    p = SearchState(one).belief.p
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
    assert one.facts.unreadable == {4}


def changed(kind: Kind, sha: str, least: float, content: str = "", **more: object) -> Trial:
    made = trial(f"{kind}-{sha}", least, content, **more)
    return replace(made, cell=cell(made.commit, kind, sha))


def test_an_end_without_a_commit_tells_of_that_commit_alone() -> None:
    one = case(changed(Kind.REVERTED, "c4", fakes.SLOW_IOPS))
    assert shown(one) == [(4, Kernel.REVERTED, Verdict.OLD)]
    assert SearchState(one).belief.best == 4


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
    noise = SearchState(case()).belief.noise
    turned = SearchState(case(ends=(fakes.FAST_IOPS, fakes.SLOW_IOPS))).belief.noise
    assert noise.new_as_old > noise.old_as_new
    assert turned.old_as_new == pytest.approx(noise.new_as_old, rel=0.05)
    assert turned.new_as_old == pytest.approx(noise.old_as_new, rel=0.05)


def test_a_figure_between_the_levels_says_nothing_once_and_its_side_twice() -> None:
    fast, between = 8 * fakes.SLOW_IOPS, 2.8 * fakes.SLOW_IOPS
    sure = [trial(f"c{n}") for n in range(4)] + [trial(f"c{n}", fast) for n in (6, 7, 8)]
    ends = (fakes.SLOW_IOPS, fast)
    once = case(*sure, trial("c4", between), ends=ends)
    twice = case(*sure, trial("c4", between), trial("c4", between), ends=ends)
    assert shown(once)[-1] == (4, Kernel.COMMIT, Verdict.MEASURED)
    assert shown(twice)[-2:] == [(4, Kernel.COMMIT, Verdict.OLD)] * 2
    assert all(reading.score is None for reading in twice.facts.readings if reading.commit == 4)
    (levels,) = SearchState(twice).belief.levels.values()
    assert levels.new.centre == pytest.approx(math.log(fast), abs=0.02)  # neither is pulled towards it


def test_both_ends_tell_of_their_levels_each_time() -> None:
    one = case(trial(OLD, 1_200.0), trial(SHAS[-1], 3_500.0))
    assert [reading.commit for reading in one.facts.readings] == [OLD_END, COUNT - 1, OLD_END, COUNT - 1]
    assert all(reading.score is not None for reading in one.facts.readings)
    levels = [next(iter(SearchState(each).belief.levels.values())) for each in (case(), one)]
    assert levels[1].old.spread > levels[0].old.spread


def test_earlier_runs_of_a_quiet_host_and_those_without_a_change_are_believed() -> None:
    usual = SearchState(case()).belief
    quiet = case(known=Known(earlier=EarlierSearches(better=20, worse=20)))
    assert SearchState(quiet).belief.noise.new_as_old < usual.noise.new_as_old / 2
    often = case(known=Known(earlier=EarlierSearches(searches=20, without_change=20)))
    assert SearchState(often).belief.nothing > 4 * usual.nothing > 0


def test_what_can_matter_and_who_is_suspected_weigh() -> None:
    suspects = np.zeros(COUNT, dtype=np.bool_)
    suspects[2] = True
    one = case(known=Known(mattering=frozenset(("c2", "c7"))), search_range=replace(GROUND, suspects=suspects))
    with_, without = one.problem.log_prior, one.unsuspecting.log_prior
    assert with_[2] > with_[7] > with_[5]
    assert without[2] == without[7] > without[5]


def test_minutes_are_those_of_this_machine() -> None:
    costs = case(trial("c4")).search.costs
    assert costs.build_min == pytest.approx(47 / 60)
    assert costs.setup_min == pytest.approx((146.4 - 47 - 84) / 60)
    assert costs.whole_run_min == pytest.approx(84 / 60)


def test_a_trial_takes_at_most_as_much_longer_than_others_as_one_did() -> None:
    """A guest that was slow to start: 200 s where 95 s and 110 s are usual."""
    took = (95.0, 95.0, 200.0, 110.0)
    trials = [Timings(10.0, seconds - 89.0, 5.0, 84.0, seconds + 10.0) for seconds in took]
    whole = case(trial("c1"), trial("c2"))
    timed = ((n, replace(one, timings=its)) for (n, one), its in zip(whole.judging.trials, trials, strict=True))
    costs = Case(GROUND, replace(whole.judging, trials=tuple(timed)), Known()).search.costs
    assert costs.setup_min + costs.whole_run_min == pytest.approx(125 / 60)
    assert costs.longest(0.0, whole=True) == pytest.approx(200 / 60)
    assert costs.longest(3.0, whole=True) == pytest.approx(3 + 200 / 60)


def test_a_build_takes_less_the_nearer_its_tree_is_and_nothing_for_a_kernel_that_is_there() -> None:
    """The first build is of everything; c2 was built last, and c6 by an earlier run."""
    long, short = Timings(280.0, 5.0, 5.0, 80.0, 375.0), Timings(20.0, 5.0, 5.0, 80.0, 115.0)
    whole = case(replace(trial("c1"), timings=short), replace(trial("c2"), timings=short))
    (first, old), *others = whole.judging.trials
    judging = replace(whole.judging, trials=((first, replace(old, timings=long)), *others))
    builds_min = Case(GROUND, judging, Known(kept=frozenset(("c6",)))).search.costs.builds_min
    assert builds_min is not None
    assert [commit for commit in range(COUNT) if builds_min[commit] == 0] == [1, 2, 6, 9]
    unknown = Case(GROUND, judging, Known()).search.costs.builds_min
    assert unknown is not None
    assert unknown[6] > 0


def test_a_kernel_that_needs_no_build_is_measured_before_one_that_tells_as_much() -> None:
    """Of ten commits in a row c4 and c5 halve them alike."""
    for kept in ("c3", "c4", "c5"):
        step = SearchState(case(known=Known(kept=frozenset((kept,))))).decision
        assert isinstance(step, CommitToRead)
        assert SHAS[step.commit] == kept


def test_runs_that_end_early_take_what_these_take() -> None:
    """And not what the ends took, whose runs are whole; a side without one is taken to be like the other."""
    above = trial("c4", stopped=EARLY)
    costs = case(replace(above, timings=replace(above.timings, workload_s=60.0))).search.costs
    assert (costs.new_run_min, costs.old_run_min) == pytest.approx((1.0, 1.0))
    assert costs.whole_run_min == pytest.approx(84 / 60)


def running(one: Trial, seconds: float) -> Trial:
    more_s = seconds - one.timings.workload_s
    return replace(one, timings=replace(one.timings, workload_s=seconds, total_s=one.timings.total_s + more_s))


def after_short_fill(sha: str, least: float) -> Trial:
    """An end's, whose last run is whole."""
    made = trial(sha, least)
    settled = EarlyStop(StopReason.SETTLED, 14.0, 98.0, 95.0, "the cache was full for 4 s", FILLED)
    runs = (replace(made.runs[0], stopped_early=settled), *made.runs[1:])
    return running(replace(made, runs=runs, fill=Fill.SHORT), 70.0)


def test_what_an_end_takes_after_a_short_fill_is_not_expected_again() -> None:
    """And it has a side, but no figure: its cache was not filled like others."""
    ends = (after_short_fill(OLD, fakes.SLOW_IOPS), after_short_fill(SHAS[-1], fakes.FAST_IOPS))
    one = case(*ends, running(trial("c4", stopped=EARLY), 20.0))
    assert [reading.score is None for reading in one.facts.readings] == [False, False, True, True, True]
    costs = one.search.costs
    assert (costs.old_run_min, costs.new_run_min, costs.whole_run_min) == pytest.approx((20 / 60, 20 / 60, 84 / 60))
    assert costs.spare == pytest.approx(1.0)
