"""When a run that fills a cache may end early, and whether the next run then measures the same; pure.

A cache is settled when it is full and its figures hold still over a window (docs/method-evidence.md; SNIA's Solid State
Storage Performance Test Specification 2.0.2, 2.1.24). Only whole periods of the policy are left out, since the figures
of the next run depend on where in a period it begins. A short fill is harmless if both ends, measured both ways, are on
the same side and on the same level: with readings that have noise of 5 %, and ends that are three times apart, a
harmless fill looks harmful at less than 1 of 100 ends.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Self

from bisector.analysis.judgement import score
from bisector.config import Settings
from bisector.core.figures import EarlyStop, StopReason
from bisector.core.objective import Objective
from bisector.core.trial import Trial
from bisector.core.units import duration
from bisector.search.choice import BOTH_ENDS, short_fill_pays
from bisector.storage.filling import FILLED, FULL_PERCENT, STEADY_POINTS, FillMode, Settling

_SHARE_OF_RUN = 0.1
_FIFTHS = 5
_STEADY_SHARE = 0.2
_LOOKS_A_PERIOD, _MOST_LOOKS = 20, 90
_LEAST_APART_S = 1.0  # the shortest time between looks: a look at the counters is a command in the guest
# In intervals between looks: a look is late by the time that the status before it and the command take, or early by the
# precision of fio's clock; if it is later than _TOO_LATE, the guest or its host stood still.
_EARLY, _LATE, _TOO_LATE = 0.1, 1.5, 2.5


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a cache, ``at_s`` seconds into a run.

    ``filled`` is how full the cache was, ``hit_ratio`` its hit ratio since the last look; both in percent, None if they
    are not counted. ``done`` is the work of all jobs together.
    """

    at_s: float
    filled: float | None
    hit_ratio: float | None
    done: float


@dataclass(frozen=True, slots=True)
class FillRule:
    """The rule by which runs of this length that fill a cache may end early."""

    settling: Settling
    runtime_s: float

    @property
    def every_s(self) -> float:
        """The interval between looks at the cache, in seconds: 20 a period, but at most 90 a run.

        Each look is a status of fio, whose number in a run is limited: see ``MOST_STEERED_JOBS`` in
        bisector.workload.fio.run.
        """
        period_s = self.settling.period_s
        least_s = max(period_s / _LOOKS_A_PERIOD, self.runtime_s / _MOST_LOOKS, _LEAST_APART_S)
        return max(least_s, period_s / max(1, math.floor(period_s / least_s)))

    @property
    def window_s(self) -> float:
        """For how many seconds the cache has to be full and steady."""
        return max(self.settling.least_s, _SHARE_OF_RUN * self.runtime_s)

    @property
    def most_saved_s(self) -> float:
        """The most seconds of a run that can be left out, in whole periods; 0 if no run can end early."""
        period_s = self.settling.period_s
        return period_s * max(0, math.floor((self.runtime_s - self.window_s) / period_s))

    @property
    def expected_s(self) -> float:
        """The expected end of a run, in seconds, if its cache is full once its files are laid out.

        It is one period after the first possible end. lvmcache is such a cache: its files are at least as large as the
        cache, and are written through it. In runs of 20 s on v4.11, v4.12 and v6.1 all blocks were in use, and no more
        were promoted than had been free.
        """
        return min(self.runtime_s, self.runtime_s - self.most_saved_s + self.settling.period_s)

    def met_by(self, looks: Sequence[Look]) -> EarlyStop | None:
        """Return how a run may end at the last of these looks; None if it goes on."""
        if not looks:
            return None
        # The last look has to be the first one after the end of a period, counted back from the end of the run
        at_s = looks[-1].at_s
        periods = math.ceil((self.runtime_s - at_s - _EARLY * self.every_s) / self.settling.period_s)
        end_s = self.runtime_s - periods * self.settling.period_s
        is_first = all(look.at_s < end_s - _EARLY * self.every_s for look in looks[-2:-1])
        # The window begins with the last look before it
        before = [n for n, look in enumerate(looks) if look.at_s <= at_s - self.window_s]
        if periods < 1 or not is_first or at_s - end_s >= _LATE * self.every_s or not before:
            return None
        window = looks[before[-1] :]
        longest_s = max((later.at_s - earlier.at_s for earlier, later in pairwise(window)), default=0.0)
        least = min(look.filled or 0.0 for look in window)
        if longest_s > _TOO_LATE * self.every_s or least < FULL_PERCENT or not _steady(window):
            return None
        why = f"the cache was full for {self.window_s:.0f} s, and its figures held still"
        return EarlyStop(StopReason.SETTLED, at_s, least, FULL_PERCENT, why, FILLED)


def rule_for(settings: Settings) -> FillRule | None:
    """Return the rule by which runs that fill a cache may end; None if none can end early: see :func:`why_never`."""
    return None if why_never(settings) else _rule(settings)


def why_never(settings: Settings) -> str:
    """Return why no run that fills a cache can end early, for a person; empty if one can.

    A run can if a layer says how long its cache takes to settle, if one round is longer than that, and if the jobs read
    or write, so that their progress is reported during the run.
    """
    if settings.workload.full_runs or settings.storage.fill is FillMode.WHOLE or settings.storage.fill_rounds > 1:
        return "whole runs are asked for"
    if (rule := _rule(settings)) is None:
        return "no layer of the stack says how long its cache takes to settle"
    if not settings.bisect.objective.io_direction:
        return f"runs are not followed by {settings.bisect.metric}"
    if rule.most_saved_s <= 0:
        return f"a short fill is for runs of {duration(rule.window_s + rule.settling.period_s)} and more"
    return ""


def _rule(settings: Settings) -> FillRule | None:
    settling = next((phase.settling for phase in settings.storage.stack.phases if phase.fills), None)
    return None if settling is None else FillRule(settling, settings.workload.runtime_s)


def is_tried(settings: Settings, commits: float | None, trial_s: float, left_s: float) -> bool:
    """Whether to measure both ends with a short fill, too, before a search among ``commits`` equally likely commits.

    That takes two more trials of at most ``trial_s`` seconds. By default they are made if the trials that are expected
    in the time left can save more, as is assumed if the number of commits is unknown (None); if they are asked for,
    they are made if there is time.
    """
    rule = rule_for(settings)
    if rule is None:
        return False
    if settings.storage.fill is FillMode.SHORT:
        return left_s >= BOTH_ENDS * trial_s
    return short_fill_pays(math.inf if commits is None else commits, rule.most_saved_s, trial_s, left_s)


def _steady(window: Sequence[Look]) -> bool:
    first, *rest = window
    for figures in ([(look.at_s, look.filled) for look in rest], [(look.at_s, look.hit_ratio) for look in rest]):
        # The mean in each fifth of the time that has figures
        length_s = (figures[-1][0] - first.at_s) / _FIFTHS if figures else 0.0
        fifths: defaultdict[int, list[float]] = defaultdict(list)
        for at_s, value in figures:
            if value is not None and length_s > 0:
                fifths[min(_FIFTHS - 1, int((at_s - first.at_s) / length_s))].append(value)
        means = [fmean(values) for values in fifths.values()]
        if means and max(means) - min(means) > STEADY_POINTS:
            return False
    middle_s = (first.at_s + window[-1].at_s) / 2
    middle = min(window, key=lambda look: abs(look.at_s - middle_s))
    pairs = ((first, middle), (middle, window[-1]))
    rates = [(b.done - a.done) / (b.at_s - a.at_s) if b.at_s > a.at_s else 0.0 for a, b in pairs]
    return max(rates) - min(rates) <= _STEADY_SHARE * fmean(rates)


_MOST_FACTOR = 1.25
_SHARE_OF_GAP = 0.25


@dataclass(frozen=True, slots=True)
class BothWays:
    """The readings of an end after whole fills (``whole``), and in ``tries`` trials for which a short fill was asked.

    ``in_vain`` counts the trials among the latter whose cache was not settled before the end of a whole run, and so was
    filled by a whole run: then both ways are the same.
    """

    sha: str
    whole: tuple[float, ...]
    short: tuple[float, ...]
    tries: int = 0
    in_vain: int = 0

    @classmethod
    def of(cls, sha: str, whole: tuple[float, ...], sound: Sequence[Trial], tries: int, objective: Objective) -> Self:
        """Return the readings of an end, given its sound trials for which a short fill was asked.

        A trial that was stopped for being like the first whole run is compared with that run piece by piece, not by its
        mean.
        """
        counted = sound if whole else ()
        short = (
            score(one, objective) if one.unlike is None else whole[0] + objective.better.sign * math.log(one.unlike)
            for one in counted
        )
        return cls(sha, whole, tuple(short), tries, sum(not one.filled_short for one in counted))


@dataclass(frozen=True, slots=True)
class ShortFill:
    """The conclusion about the short fill: it is ``harmless``, an end is ``missing``, or ``why`` it is of no use."""

    harmless: bool = False
    missing: str = ""
    why: str = ""


def most_moved(ends: Sequence[BothWays]) -> float:
    """The largest difference of scores that counts as alike; both ends have whole runs."""
    apart = abs(median(ends[0].whole) - median(ends[-1].whole))
    return min(math.log(_MOST_FACTOR), _SHARE_OF_GAP * apart)


def standing(ends: Sequence[BothWays], line: float | None, most_tries: int) -> ShortFill:
    """Return the conclusion from both ends; an end is given up after ``most_tries`` trials without a sound one."""
    if line is None or not all(end.whole for end in ends):
        return ShortFill(why="both ends are to be measured by whole runs first")
    if all(end.in_vain for end in ends):
        return ShortFill(why="the caches of both ends were not settled before the end of a whole run")
    if (missing := next((end for end in ends if not end.short), None)) is not None:
        given_up = ShortFill(why=f"no sound measurement of an end in {missing.tries}")
        due = ShortFill(missing=missing.sha, why="the ends are not measured both ways yet")
        return given_up if missing.tries >= most_tries else due
    most = most_moved(ends)
    for end in ends:
        whole, short = median(end.whole), median(end.short)
        if (whole > line) is not (short > line):
            return ShortFill(why="with it an end is on the other side of the threshold")
        if (moved := abs(short - whole)) > most:
            factor = f"{math.exp(moved):.2f} times as much or as little, limit {math.exp(most):.2f}"
            return ShortFill(why=f"with it an end measures {factor}")
    return ShortFill(harmless=True)
