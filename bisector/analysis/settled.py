"""When a run that fills a cache may end before its time: the cache is full and its figures hold still; pure.

The rule is the same for every kernel. At a moment of the run it looks back over a window: so many periods of the
cache's policy as the layer says (:class:`bisector.storage.filling.Settling`), and a tenth of the run at least.

- *full*: whenever the cache was looked at in the window, at least :data:`bisector.storage.filling.FULL_PERCENT` of what
  it fills up to was in use. So the policy has looked a full cache over as often as the layer wants.
- *steady*: over the fifths of the window neither that share nor the hit ratio (where the kernel counts hits) ranged
  over more than :data:`bisector.storage.filling.STEADY_POINTS` percentage points, and what the jobs did in its halves
  differs by no more than :data:`_STEADY_SHARE` of their mean. (SNIA's Solid State Storage Performance Test
  Specification 2.0.2, 2.1.24, looks at five rounds, and allows an excursion of 20 %.)

**Only whole periods are left out.** What a policy does by its clock it does at the end of each period, wherever in a
run that falls, and the figures of the next run depend on it: in runs of 40 s dm-cache's smq makes a kernel fast once a
minute has gone by. So a run ends one period, two, … before its time, or not at all; then the next run begins at the
moment of a period at which it begins after a whole one. A run that is shorter than that never ends early.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from bisector.config import FillMode, Settings
from bisector.core.figures import EarlyStop, StopReason
from bisector.core.units import duration
from bisector.search.choice import BOTH_ENDS, pays_both_ways
from bisector.storage.filling import FILLED, FULL_PERCENT, STEADY_POINTS, Settling

_SHARE_OF_RUN = 0.1
_FIFTHS = 5
_STEADY_SHARE = 0.2
_LOOKS_A_PERIOD, _MOST_LOOKS = 20, 90
_LEAST_APART_S = 1.0  # a look at the counters is a command in the guest
# A look is late by the time that the status before it and the command take, or early by what fio's clock is; where one
# is later than the third of these, in the time between looks, the guest or its host stood still.
_EARLY, _LATE, _TOO_LATE = 0.1, 1.5, 2.5


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at a second of a run: how full the cache was, its hit ratio since the look before, what jobs did.

    The first two are in percent, None where they are not counted; ``done`` is of all jobs together.
    """

    at_s: float
    filled: float | None
    hit_ratio: float | None
    done: float


@dataclass(frozen=True, slots=True)
class FillRule:
    """When runs of this length that fill a cache may end."""

    settling: Settling
    runtime_s: float

    @property
    def every_s(self) -> float:
        """How often the cache is looked at: so many times a period, as long as a run has no more than 90 looks.

        Each is a status of fio, of which a run has no more: see ``MOST_STEERED_JOBS`` in bisector.workload.fio.run.
        """
        period_s = self.settling.period_s
        least_s = max(period_s / _LOOKS_A_PERIOD, self.runtime_s / _MOST_LOOKS, _LEAST_APART_S)
        return max(least_s, period_s / max(1, math.floor(period_s / least_s)))

    @property
    def window_s(self) -> float:
        """How long the cache has to have been full and steady."""
        return max(self.settling.least_s, _SHARE_OF_RUN * self.runtime_s)

    @property
    def most_saved_s(self) -> float:
        """How much of a run can be left out at most, in whole periods; 0 where none can ever end early."""
        period_s = self.settling.period_s
        return period_s * max(0, math.floor((self.runtime_s - self.window_s) / period_s))

    @property
    def expected_s(self) -> float:
        """When to expect the end of a run whose cache is full once its files are laid out: a period after the first.

        So it is of lvmcache, whose files are as large as the cache at least, and are written through it: in runs of
        20 s on v4.11, v4.12 and v6.1 all blocks were in use, and none was promoted beyond those that had been free.
        """
        return min(self.runtime_s, self.runtime_s - self.most_saved_s + self.settling.period_s)

    def met_by(self, looks: Sequence[Look]) -> EarlyStop | None:
        """Whether a run may end at the last look, by all of them; None: go on."""
        if not looks or not self._is_whole_periods_early(looks):
            return None
        window = self._window(looks)
        if not window or not _full(window) or not all(_steady(window)):
            return None
        at_s, least = looks[-1].at_s, min(look.filled or 0.0 for look in window)
        why = f"the cache was full for {self.window_s:.0f} s, and its figures held still"
        return EarlyStop(StopReason.SETTLED, at_s, least, FULL_PERCENT, why, FILLED)

    def _is_whole_periods_early(self, looks: Sequence[Look]) -> bool:
        """Whether the last look is the first from the end of a period on, counted back from the end of the run."""
        at_s = looks[-1].at_s
        periods = math.ceil((self.runtime_s - at_s - _EARLY * self.every_s) / self.settling.period_s)
        end_s = self.runtime_s - periods * self.settling.period_s
        is_first = all(look.at_s < end_s - _EARLY * self.every_s for look in looks[-2:-1])
        return periods >= 1 and is_first and at_s - end_s < _LATE * self.every_s

    def _window(self, looks: Sequence[Look]) -> Sequence[Look]:
        """The looks of the window, from the last one before it on; none while there was not so much time yet.

        And none where the cache was not looked at for too long.
        """
        since_s = looks[-1].at_s - self.window_s
        before = [n for n, look in enumerate(looks) if look.at_s <= since_s]
        found = looks[before[-1] :] if before else ()
        apart_s = (later.at_s - earlier.at_s for earlier, later in pairwise(found))
        return () if max(apart_s, default=0.0) > _TOO_LATE * self.every_s else found


def rule_for(settings: Settings) -> FillRule | None:
    """The rule by which runs that fill a cache may end; None where none can end early: see :func:`why_never`."""
    return None if why_never(settings) else _rule(settings)


def why_never(settings: Settings) -> str:
    """Why no run that fills a cache can end early, for a person; empty where one can.

    That takes a layer that says how long its cache takes to settle, one round that is longer than that, and jobs that
    read or write, whose progress is told while they run.
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
    """Whether both ends are to be measured with a short fill, too, before a search among so many equal commits.

    That is two trials more, of so many seconds at most. By default they are made where the trials to expect in the time
    that is left can save more, as they may where nobody knows how many commits there are; if asked for, where there is
    time.
    """
    rule = rule_for(settings)
    if rule is None:
        return False
    if settings.storage.fill is FillMode.SHORT:
        return left_s >= BOTH_ENDS * trial_s
    return pays_both_ways(math.inf if commits is None else commits, rule.most_saved_s, trial_s, left_s)


def _full(window: Sequence[Look]) -> bool:
    return all(look.filled is not None and look.filled >= FULL_PERCENT for look in window)


def _steady(window: Sequence[Look]) -> Iterator[bool]:
    first, *rest = window
    for figure in (_share_in_use, _hit_ratio):
        parts = _parts(window[0].at_s, rest, _FIFTHS, figure)
        yield not parts or max(parts) - min(parts) <= STEADY_POINTS
    middle_s = (first.at_s + window[-1].at_s) / 2
    middle = min(window, key=lambda look: abs(look.at_s - middle_s))
    rates = [_rate(*pair) for pair in ((first, middle), (middle, window[-1]))]
    yield max(rates) - min(rates) <= _STEADY_SHARE * fmean(rates)


def _share_in_use(look: Look) -> float | None:
    return look.filled


def _hit_ratio(look: Look) -> float | None:
    return look.hit_ratio


def _parts(since_s: float, looks: Sequence[Look], count: int, figure: Callable[[Look], float | None]) -> list[float]:
    """The mean of a figure in each of so many equal parts of the time, as far as there is one."""
    length_s = (looks[-1].at_s - since_s) / count if looks else 0.0
    found: dict[int, list[float]] = {}
    for look in looks:
        if (value := figure(look)) is not None and length_s > 0:
            found.setdefault(min(count - 1, int((look.at_s - since_s) / length_s)), []).append(value)
    return [fmean(values) for values in found.values()]


def _rate(earlier: Look, later: Look) -> float:
    return (later.done - earlier.done) / (later.at_s - earlier.at_s) if later.at_s > earlier.at_s else 0.0
