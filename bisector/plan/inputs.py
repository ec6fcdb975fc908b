"""What a forecast is made from: what earlier runs took and read on this host, and what is assumed where none did."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf
from statistics import fmean, median
from typing import Annotated, TypeAlias

from bisector.analysis.short_fill import is_tried, rule_for
from bisector.analysis.threshold import LEAST_FACTOR
from bisector.config import Settings
from bisector.core import units
from bisector.core.guest_time import BY_THE_HOST
from bisector.core.json_document import JsonObject
from bisector.core.verdict import Direction, Strategy
from bisector.git.ranges import Range
from bisector.plan.experience import Experience
from bisector.search.graph import RangeGraph
from bisector.search.noise import EarlierSearches, Noise, least_factor
from bisector.search.simulate.world import (
    ALIKE_MIN,
    APART_MIN,
    BUILD_LEAST_MIN,
    BUILD_MOST_MIN,
    RUN_MIN,
    Durations,
)
from bisector.search.step import Rules

_MIN_S = 60.0
# Of the smallest configuration, measured on two cores: a file that changed, and everything.
SMALL_BUILD_S = (17.0, 280.0)
# Boot, storage stack and the connection, on two cores that emulate the guest: 3 to 5 s, up to 7 s, and some more.
SETUP_S = 15.0
_SPREAD = 0.10  # what a reading is believed to repeat within, as long as nothing was repeated
# The same where the guest's instructions are counted: readings of one kernel differ by less than 0.01 % there, and a
# kernel that does as much in another order may differ by some more.
_COUNTED_SPREAD = 0.002
_SMALL = 1.01  # that such guests are asked for
_COUNTED = "assumed: the host has no part in counted time"
# Of the 40 s of the run that counts a fast kernel's took 22, and a slow one's 33 with one fast known; those before it
# are always whole.
_EARLY_ABOVE_SHARE = 22 / 40
_EARLY_BELOW_SHARE = 33 / 40
# At the factor that the bound gives to this share of their runs at least 9 of 10 searches are right, at its root at
# most 8 of 10 (tests/search/test_likelihood.py, 20 searches a spread).
_SHARE_OF_RUNS = 0.6

_Figure: TypeAlias = Callable[[Sequence[float]], float]


class Quantity(JsonObject, frozen=True):
    """A figure that went into a forecast."""

    value: Annotated[float, "in the unit that its key names"]
    source: Annotated[str, "where it comes from"]
    measured: Annotated[bool, "whether it was measured on this machine"]


@dataclass(frozen=True, slots=True)
class ForecastRequest:
    """A range, its graph, the settings, and how many searches are simulated with which seed.

    They have ``budget_s`` if that is given, and as many ``hosts`` as this one share them. ``remarks`` are sentences on
    the range. So many ``guests`` measure at the same time. They ``could_count`` their time where they are emulated, and
    nothing is in the way of that.
    """

    wanted: Range
    graph: RangeGraph
    settings: Settings
    strategy: Strategy = Strategy.BAYES
    searches: int = 30
    seed: int = 1
    budget_s: float | None = None
    hosts: int = 1
    guests: int = 1
    remarks: tuple[str, ...] = ()
    could_count: bool = False

    @property
    def stops_early(self) -> bool:
        """Whether runs may be: only what fio reports while a run lasts tells its side before the end."""
        return not self.settings.workload.full_runs and self.settings.bisect.objective.definition.live


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a forecast is made from; :class:`bisector.plan.forecast.Forecast` says what each is.

    The runs of a trial are ``saved_s`` shorter for a short fill, and take ``apart_s`` where they end once they are
    clear of their counterpart's; one that ends once it is like a whole run is ``alike_saved_s`` shorter than that.
    ``noise`` is that of the simulated runs, ``least`` the smallest factor that can be told from it.
    """

    build_least_s: Quantity
    build_most_s: Quantity
    setup_s: Quantity
    runs_s: Quantity
    early_old_s: Quantity
    early_new_s: Quantity
    fill_s: Quantity | None
    saved_s: float
    apart_s: float
    alike_saved_s: float
    spread: Quantity
    factor: Quantity
    least: float
    noise: Noise
    wrong_runs: Quantity

    @property
    def durations(self) -> Durations:
        """The same for a simulated search."""
        return Durations(
            build_least_min=self.build_least_s.value / _MIN_S,
            build_most_min=self.build_most_s.value / _MIN_S,
            setup_min=self.setup_s.value / _MIN_S,
            whole_run_min=self.runs_s.value / _MIN_S,
            early_old_min=self.early_old_s.value / _MIN_S,
            early_new_min=self.early_new_s.value / _MIN_S,
            unclear_min=(self.runs_s.value - self.saved_s) / _MIN_S,
            apart_min=self.apart_s / _MIN_S,
            both_ways_min=self._both_ways_s(0.0) / _MIN_S,
            alike_min=self._both_ways_s(self.alike_saved_s) / _MIN_S,
        )

    def _both_ways_s(self, saved_s: float) -> float:
        return 0.0 if self.fill_s is None else 2 * (self.trial_s(0.0) - self.saved_s - saved_s)

    def trial_s(self, build_s: float) -> float:
        """A trial with such a build, whose runs are whole."""
        return build_s + self.setup_s.value + self.runs_s.value


def inputs_of(asked: ForecastRequest, known: Experience, matter: int, left_s: float = inf) -> Inputs:
    """What is known of this machine, or assumed, for a search among so many commits with so much time left."""
    settings = asked.settings
    least_s, most_s = SMALL_BUILD_S
    if settings.kernel.base_config is not None:
        least_s, most_s = BUILD_LEAST_MIN * _MIN_S, BUILD_MOST_MIN * _MIN_S
    runs = len(settings.storage.stack.phases)
    time, asked_s = settings.machine.time, float(runs * settings.workload.runtime_s)
    source = "as asked for" if time == BY_THE_HOST else "assumed: 120 million instructions a second, and no idle guest"
    runs_s = _measured(known.workloads_s, fmean, time.most_host_s(asked_s), "trial", source)
    setup_s = _measured(known.setups_s, median, SETUP_S, "trial")
    fill_s = _fill(asked, known, matter, setup_s.value + runs_s.value, left_s)
    saved_s = 0.0 if fill_s is None else time.most_host_s(settings.workload.runtime_s) - fill_s.value
    old, new = (
        _measured(seconds, fmean, runs_s.value * (runs - 1 + share) / runs - saved_s, "trial")
        if asked.stops_early
        else runs_s
        for seconds, share in (
            (_early(known.below_s, known.short_below_s, saved_s), _EARLY_BELOW_SHARE),
            (_early(known.above_s, known.short_above_s, saved_s), _EARLY_ABOVE_SHARE),
        )
    )
    if _direction(asked, known) is Direction.REGRESSION:
        old, new = new, old
    counted = settings.machine.is_counted
    spread, noise = spread_of(known, counted=counted), noise_of(known.earlier, counted=counted)
    runs_there_are = round(Rules().max_runs * _SHARE_OF_RUNS)
    least = least_factor(max(2, matter), spread.value, noise, miss=1 - Rules().target, runs=runs_there_are)
    return Inputs(
        build_least_s=_measured(known.builds_s, min, least_s, "build"),
        build_most_s=_measured(known.builds_s, max, most_s, "build"),
        setup_s=setup_s,
        runs_s=runs_s,
        early_old_s=old,
        early_new_s=new,
        fill_s=fill_s,
        saved_s=saved_s,
        apart_s=runs_s.value - _paired_saved_s(asked, runs_s.value, APART_MIN),
        alike_saved_s=_paired_saved_s(asked, runs_s.value, ALIKE_MIN),
        spread=spread,
        factor=_factor(asked, known, least),
        least=least,
        noise=noise,
        wrong_runs=_wrong_runs(noise, known.earlier, counted=counted),
    )


def _early(after_whole_fills: Sequence[float], after_short: Sequence[float], saved_s: float) -> Sequence[float]:
    return (after_short if saved_s else ()) or tuple(seconds - saved_s for seconds in after_whole_fills)


def _paired_saved_s(asked: ForecastRequest, runs_s: float, of_run_min: float) -> float:
    """What is saved of the last run where it ends by another one, after so much of 15 min; nothing where none does."""
    workload, runs = asked.settings.workload, len(asked.settings.storage.stack.phases)
    if not asked.stops_early or not workload.workload.repeats_itself(workload.values):
        return 0.0
    return runs_s * (1 - of_run_min / RUN_MIN) / runs


def _fill(asked: ForecastRequest, known: Experience, matter: int, trial_s: float, left_s: float) -> Quantity | None:
    """How long a short fill takes, where ``start`` would try one."""
    rule = rule_for(asked.settings)
    if rule is None or not asked.stops_early or not is_tried(asked.settings, matter, trial_s, left_s):
        return None
    return _measured(known.fills_s, fmean, asked.settings.machine.time.most_host_s(rule.expected_s), "short fill")


def _measured(
    seconds: Sequence[float], of: _Figure, otherwise_s: float, what: str, source: str = "assumed"
) -> Quantity:
    if not seconds:
        return Quantity(otherwise_s, source, measured=False)
    return Quantity(of(seconds), f"of {units.plural(len(seconds), what)} here", measured=True)


def spread_of(known: Experience, *, counted: bool) -> Quantity:
    """By how much readings of one kernel differ: the standard deviation in natural log units."""
    spread = known.spread
    if spread is None and counted:
        return Quantity(_COUNTED_SPREAD, _COUNTED, measured=False)
    if spread is None:
        return Quantity(_SPREAD, "assumed: no kernel was read twice here", measured=False)
    of = f"{units.plural(spread.readings, 'reading')} of {units.plural(spread.kernels, 'kernel')} here"
    return Quantity(max(spread.deviation, 0.001), of, measured=True)


def noise_of(earlier: EarlierSearches, *, counted: bool) -> Noise:
    """Nothing but a kernel as a whole misleads in counted time, as long as no reading there has."""
    return Noise(old_as_new=0.0, new_as_old=0.0) if counted and not (earlier.better or earlier.worse) else earlier.noise


def _wrong_runs(noise: Noise, earlier: EarlierSearches, *, counted: bool) -> Quantity:
    """How often a run of the better side looks like one of the worse side, as most wrong ones do."""
    if not earlier.better:
        source = _COUNTED if counted else "assumed: no kernel of the better side was read twice here"
        return Quantity(noise.new_as_old, source, measured=False)
    return Quantity(noise.new_as_old, f"of {units.plural(earlier.better, 'reading')} here", measured=True)


def _factor(asked: ForecastRequest, known: Experience, least: float) -> Quantity:
    """By what factor the ends differ, in the direction that is expected."""
    ends = _ends(asked, known)
    if ends is None:
        if asked.settings.machine.is_counted:
            return Quantity(max(_SMALL, least), "assumed: a small change", measured=False)
        return Quantity(max(LEAST_FACTOR, least), "assumed: a large change", measured=False)
    (old, new), objective = ends, asked.settings.bisect.objective
    direction = asked.settings.bisect.expected or Direction.between(old, new)
    values = " and ".join(objective.text(objective.value_of(score)) for score in ends)
    return Quantity(exp((new - old) * direction.sign), f"{values}, measured here", measured=True)


def _ends(asked: ForecastRequest, known: Experience) -> tuple[float, float] | None:
    """The scores of both ends, where both were measured here."""
    old, new = (known.scores.get(end.sha) for end in (asked.wanted.old, asked.wanted.new))
    return None if old is None or new is None else (median(old), median(new))


def _direction(asked: ForecastRequest, known: Experience) -> Direction | None:
    ends = _ends(asked, known)
    return asked.settings.bisect.expected or (None if ends is None else Direction.between(*ends))
