"""When a run that fills a cache may end: full and steady, and whole periods of the policy early."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bisector.analysis.early_stop import FillRule, Look, is_tried, rule_for, why_never
from bisector.config import options
from bisector.core.figures import EarlyStop, StopReason
from bisector.storage.layer import FILLED
from bisector.storage.lvmcache import SMQ_PERIOD_S

RULE = FillRule(SMQ_PERIOD_S, 900.0)


def constant(value: float) -> Callable[[float], float]:
    return lambda at_s: value


def full_from(second: float) -> Callable[[float], float]:
    """A cache that fills evenly until then."""
    return lambda at_s: min(100.0, 100.0 * at_s / second)


def looks(
    rule: FillRule,
    filled: Callable[[float], float | None],
    hit_ratio: Callable[[float], float | None] = lambda at_s: 60.0,
    done: Callable[[float], float] = lambda at_s: 5_000 * at_s,
) -> list[Look]:
    """A whole run, looked at as often as the rule wants, each time a little late."""
    seconds = np.arange(rule.every_s, rule.runtime_s, rule.every_s) + 0.004
    return [Look(float(at_s), filled(at_s), hit_ratio(at_s), done(at_s)) for at_s in seconds]


def ended(rule: FillRule, seen: list[Look]) -> EarlyStop | None:
    return next((stop for n in range(1, len(seen) + 1) if (stop := rule.met_by(seen[:n])) is not None), None)


def at_s(rule: FillRule, seen: list[Look]) -> float | None:
    stop = ended(rule, seen)
    return None if stop is None else stop.at_s


@pytest.mark.parametrize(("full", "end"), [(5, 120), (100, 240), (200, 300), (655, 720), (740, 840)])
def test_it_ends_once_the_cache_was_full_for_a_window_at_the_end_of_a_period(full: float, end: float) -> None:
    """A window is 90 s here, a tenth of the run; the last share below 95 % is at 0.95 times the second."""
    stop = ended(RULE, looks(RULE, full_from(full)))
    assert stop is not None
    assert stop.at_s == pytest.approx(end, abs=0.01)
    assert (stop.reason, stop.metric, stop.threshold) == (StopReason.SETTLED, FILLED, 95.0)
    assert stop.bound >= 95
    assert stop.why == "the cache was full for 90 s, and its figures held still"


@pytest.mark.parametrize("filled", [full_from(880), full_from(2_000), constant(90.0), lambda at_s: None])
def test_a_cache_that_is_not_full_in_time_goes_on(filled: Callable[[float], float | None]) -> None:
    assert ended(RULE, looks(RULE, filled)) is None


def test_one_that_lost_blocks_within_the_window_is_not_full() -> None:
    dips = looks(RULE, lambda at_s: 80.0 if 100 < at_s < 111 else 100.0)
    assert at_s(RULE, dips) == pytest.approx(240, abs=0.01)


def test_a_window_in_which_nobody_looked_says_nothing() -> None:
    """The host stood still, or the guest did: what the cache was like meanwhile is not known."""
    seen = [look for look in looks(RULE, constant(100.0)) if not 70 < look.at_s < 99]
    assert at_s(RULE, seen) == pytest.approx(240, abs=0.01)


def test_figures_that_still_change_are_waited_for() -> None:
    rising = looks(RULE, constant(100.0), lambda at_s: min(80.0, 20 + at_s / 6))
    assert at_s(RULE, rising) == pytest.approx(420, abs=0.01)  # it holds still from second 360 on, but for 5 points
    faster = looks(RULE, constant(100.0), done=lambda at_s: 1_000 * at_s + max(0.0, 9_000 * (at_s - 100)))
    assert at_s(RULE, faster) == pytest.approx(240, abs=0.01)
    assert at_s(RULE, looks(RULE, constant(100.0), constant(50.0), lambda at_s: 2 ** (at_s / 30))) is None


@pytest.mark.parametrize("runtime_s", [200.0, 300.0, 333.0, 900.0, 1_800.0])
def test_whole_periods_are_left_out_however_quickly_the_cache_is_full(runtime_s: float) -> None:
    """So that the next run begins at the same moment of a period as after a whole one, but for a look's delay."""
    rule = FillRule(SMQ_PERIOD_S, runtime_s)
    for full in range(1, 150, 7):
        end = at_s(rule, looks(rule, full_from(full)))
        if end is None:
            assert 0.95 * full + rule.window_s > runtime_s - 60 - rule.every_s
            continue
        left_s = rule.runtime_s - end
        assert 0 <= -left_s % 60 <= 1.5 * rule.every_s
        assert 0 < left_s <= rule.most_saved_s


def test_a_run_that_is_shorter_than_a_period_never_ends_early() -> None:
    short = FillRule(SMQ_PERIOD_S, 40.0)
    assert short.most_saved_s == 0
    assert ended(short, looks(short, constant(100.0))) is None
    assert FillRule(SMQ_PERIOD_S, 900.0).most_saved_s == 780
    assert (short.expected_s, FillRule(SMQ_PERIOD_S, 900.0).expected_s) == (40, 180)


def test_noise_seldom_keeps_a_run_and_never_ends_one_that_is_not_full() -> None:
    """Of 60 runs, with 10 % of noise that lasts from look to look, and a hit ratio that moves by 1.5 points."""
    rng = np.random.default_rng(11)
    ends = []
    for full in rng.uniform(50, 500, 60):
        seconds = np.arange(RULE.every_s, RULE.runtime_s, RULE.every_s)
        rates, hits = np.empty(seconds.size), np.empty(seconds.size)
        state = 0.0
        for n in range(seconds.size):
            state = 0.5 * state + 0.087 * rng.normal()
            rates[n], hits[n] = 5_000 * (1 + state), 60 + 1.5 * rng.normal()
        done = np.cumsum(rates) * RULE.every_s
        seen = [Look(s, min(100.0, 100 * s / full), h, d) for s, h, d in zip(seconds, hits, done, strict=True)]
        stop = ended(RULE, seen)
        assert stop is None or stop.at_s >= 0.95 * full + RULE.window_s
        ends.append(RULE.runtime_s if stop is None else stop.at_s - full)
    assert np.mean([one < 240 for one in ends]) > 0.95


_LONG = {"workload.runtime": "300s"}
_ASKED_FOR = "whole runs are asked for"
_SAYS_NOTHING = "no layer of the stack says how long its cache takes to settle"


@pytest.mark.parametrize(
    ("given", "why_not"),
    [
        (_LONG, ""),
        ({}, "a short fill is for runs of 2 min and more"),  # 40 s
        (_LONG | {"storage.fill": "whole"}, _ASKED_FOR),
        (_LONG | {"workload.full_runs": "true"}, _ASKED_FOR),
        (_LONG | {"storage.fill_rounds": "2", "storage.fill_deadline": "1h"}, _ASKED_FOR),
        (_LONG | {"storage.stack": "hdd"}, _SAYS_NOTHING),
        (_LONG | {"storage.stack": "bcache(ssd,hdd)+ext4"}, _SAYS_NOTHING),
        (_LONG | {"bisect.metric": "read.clat.p99"}, ""),
        (_LONG | {"bisect.metric": "cache.hit_ratio"}, "runs are not followed by cache.hit_ratio"),
    ],
)
def test_where_there_is_a_rule(given: dict[str, str], why_not: str) -> None:
    settings = options.load(given, directory=Path("/")).settings
    assert why_never(settings) == why_not
    assert (rule_for(settings) is None) is bool(why_not)


def test_it_is_tried_where_enough_trials_are_left_to_save_more_than_it_takes() -> None:
    """A whole trial of two runs takes 33 min, a run can be 13 min shorter at most: six more trials have to fit in."""
    usual, short, whole = (
        options.load({"workload.runtime": "15min", "storage.fill": fill}, directory=Path("/")).settings
        for fill in ("auto", "short", "whole")
    )
    among = [is_tried(usual, commits, 1_980.0, math.inf) for commits in (14_565, 100, 16, 1, None)]
    assert among == [True, True, False, False, True]
    hours = (1, 3, 4, 24, math.inf)
    for commits in (14_565, None):
        within = [is_tried(usual, commits, 1_980.0, 3_600.0 * left) for left in hours]
        assert within == [False, False, True, True, True]
    # Where it is asked for, the trials of both ends alone have to.
    assert [is_tried(short, 1, 1_980.0, 3_600.0 * left) for left in hours] == [False, True, True, True, True]
    assert not is_tried(whole, None, 1_980.0, math.inf)
    assert not is_tried(options.load({"storage.fill": "short"}, directory=Path("/")).settings, 14_565, 1.0, math.inf)
