"""How long a run should be, by where the spread of the readings of one kernel comes from; pure.

The variance of a reading has two parts: that of the kernel's level from one trial to another, which no longer run
lessens, and that of the mean of a run about this level, which is in inverse proportion to the run's length. The time in
which a difference is told is least with runs of ``sqrt(within * around / (between * runs))`` seconds (W. G. Cochran,
Sampling Techniques, 3rd ed., 1977, 10.6; T. Kalibera and R. Jones, Rigorous Benchmarking in Reasonable Time, ISMM
2013). Runs that are longer or shorter than that by a factor of the square root of 2 take at most 6 % more time, so the
lengths that are looked at are a factor of 2 apart.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt

from bisector.core import units
from bisector.core.kinds import percent_text
from bisector.search.apart import pairs_to_tell

Floats = npt.NDArray[np.float64]

# From so many pairs of readings of the ends a length is chosen: see tests/search/test_run_length.py for what it costs
# to choose by fewer.
PAIRS = 4
# Batch means of a run: between 10 and 30 more of them tell little more, and longer ones depend less on each other
# (B. Schmeiser, Batch Size Effects in the Analysis of Simulation Output, Operations Research 30, 1982).
_BATCHES = 10
# Shorter than this no run is made: a run that is stopped early has to be on its side for three windows of 3 s each.
_LEAST_S = 10.0
_MOST_TIMES = 4
_STEP = 2
# What is still to be measured has to take so many times as long as with the other length.
_WORTH = 1.3


@dataclass(frozen=True, slots=True)
class Spread:
    """Whence readings of one kernel differ, in natural log units.

    ``between`` is the variance of its level from one trial to another, ``within_s`` that of the mean of a run, times
    the seconds of the run.
    """

    between: float
    within_s: float

    def of(self, runtime_s: float) -> float:
        """The standard deviation of readings with runs of this length."""
        return math.sqrt(self.between + self.within_s / runtime_s)

    @classmethod
    def seen(cls, courses: Sequence[Sequence[Floats]], deviation: float, runtime_s: float) -> Self | None:
        """That of readings with this deviation, by the rates in each trial's run, those of each kernel together.

        The rates of a run are of equal spans of it. What the runs of a kernel have in common, such as a cache that
        becomes warm, is no noise: what differs from run to run at the same time is. What connects spans of a tenth of a
        run is taken for the trial's, so that runs are rather too short for it than too long. None of kernels without
        two runs.
        """
        squares, freedom = 0.0, 0
        for runs in filter(_is_told, courses):
            relative = np.array([_batches(one) for one in runs])
            relative /= relative.mean(axis=1, keepdims=True)
            squares += float(np.square(relative - relative.mean(axis=0)).sum())
            freedom += (len(runs) - 1) * (_BATCHES - 1)
        if not freedom:
            return None
        within = min(squares / freedom / _BATCHES, deviation**2)
        return cls(deviation**2 - within, within * runtime_s)


def _is_told(runs: Sequence[Floats]) -> bool:
    return len(runs) > 1 and all(one.size >= _BATCHES and one.mean() > 0 for one in runs)


def _batches(rates: Floats) -> Floats:
    """Those of a run in so many batches; what is left over at its end is left out."""
    means: Floats = rates[: rates.size // _BATCHES * _BATCHES].reshape(_BATCHES, -1).mean(axis=1)
    return means


@dataclass(frozen=True, slots=True)
class Trials:
    """What a trial takes on average: so many ``runs``, and ``around_s`` seconds beside them."""

    around_s: float
    runs: float

    def trial_s(self, runtime_s: float) -> float:
        """The seconds of a trial whose runs have this length."""
        return self.around_s + self.runs * runtime_s


@dataclass(frozen=True, slots=True)
class Length:
    """Runs of one length: so many pairs of readings, or none that anybody has time for, and their seconds, tell."""

    runtime_s: float
    pairs: int | None
    took_s: float


@dataclass(frozen=True, slots=True)
class Advice:
    """What tells a change of ``effect``, a share, with runs as long as they are, and in the least time there is.

    For ``best`` both ends are read anew; for ``now`` the readings that there are count.
    """

    effect: float
    spread: Spread
    now: Length
    best: Length

    @property
    def pays(self) -> bool:
        """Whether it is worth to read both ends again with runs of the best length."""
        return self.best.runtime_s != self.now.runtime_s and self.now.took_s >= _WORTH * self.best.took_s


def advice(spread: Spread, trials: Trials, effect: float, now_s: float, *, read: int, may_shrink: bool) -> Advice:
    """What runs of another length than ``now_s`` would save, of each end ``read`` with that.

    Shorter ones are looked at where they ``may_shrink``: what a run of a phase that fills a cache has to bring about
    takes its time.
    """
    lengths = [_length(spread, trials, effect, one) for one in _lengths(now_s, may_shrink=may_shrink)]
    now = next(one for one in lengths if one.runtime_s == now_s)
    best = min(lengths, key=lambda one: (one.took_s, one.runtime_s != now_s, one.runtime_s))
    left_s = max(0.0, now.took_s - 2 * read * trials.trial_s(now_s))
    return Advice(effect, spread, replace(now, took_s=left_s), best)


def _lengths(now_s: float, *, may_shrink: bool) -> Iterator[float]:
    shorter_s = now_s / _STEP
    while may_shrink and shorter_s >= _LEAST_S and shorter_s == int(shorter_s):
        yield shorter_s
        shorter_s /= _STEP
    longer_s = now_s
    while longer_s <= _MOST_TIMES * now_s:
        yield longer_s
        longer_s *= _STEP


def _length(spread: Spread, trials: Trials, effect: float, runtime_s: float) -> Length:
    pairs = pairs_to_tell(spread.of(runtime_s), effect)
    return Length(runtime_s, pairs, math.inf if pairs is None else 2 * pairs * trials.trial_s(runtime_s))


@dataclass(frozen=True, slots=True)
class RunLength:
    """How long the runs of a search are from its trial ``since`` on, and what its ends showed of that until then."""

    since: Annotated[int, "number of the trial that was next when this was found"]
    runtime_s: Annotated[float, "seconds of a run from that trial on"]
    before_s: Annotated[float, "seconds of a run until then; where that is another number, earlier trials do not count"]
    best_s: Annotated[float, "seconds of the runs that tell a change of `effect` in the least time"]
    within_runs: Annotated[float, "deviation of a run of `before_s` from the level of its trial, in natural log units"]
    between_trials: Annotated[float, "deviation of this level from trial to trial, in natural log units"]
    effect: Annotated[float, "the change of the value, as a share"]
    pairs: Annotated[int | None, "pairs of readings of the ends that tell it as it was; `null` for none that do"]
    best_pairs: Annotated[int | None, "the same with runs of `best_s`"]
    left_s: Annotated[float | None, "seconds that these pairs were still going to take as it was; `null` without them"]
    best_left_s: Annotated[float | None, "seconds that they take with runs of `best_s`"]

    @classmethod
    def of(cls, found: Advice, since: int, *, may_choose: bool) -> Self:
        """What follows from advice: another length where that pays, and nobody has given one."""
        now, best, spread = found.now, found.best, found.spread
        return cls(
            since=since,
            runtime_s=best.runtime_s if may_choose and found.pays else now.runtime_s,
            before_s=now.runtime_s,
            best_s=best.runtime_s if found.pays else now.runtime_s,
            within_runs=math.sqrt(spread.within_s / now.runtime_s),
            between_trials=math.sqrt(spread.between),
            effect=found.effect,
            pairs=now.pairs,
            best_pairs=best.pairs if found.pays else now.pairs,
            left_s=_finite(now.took_s),
            best_left_s=_finite(best.took_s if found.pays else now.took_s),
        )

    @property
    def is_chosen(self) -> bool:
        """Whether runs have another length than before."""
        return self.runtime_s != self.before_s

    @property
    def hint(self) -> str:
        """What to type where the noise hides what is looked for."""
        larger = "look for larger changes alone with --least-effect"
        if self.is_chosen or self.best_s == self.before_s:
            return larger
        return f"--runtime {units.duration_text(self.best_s)} has less noise for the time it takes; or {larger}"

    @property
    def sentence(self) -> str:
        """What was found, for a person."""
        before, best = (units.duration_text(one) for one in (self.before_s, self.best_s))
        parts = (
            f"by {self.within_runs:.1%} within runs of {before}, and by {self.between_trials:.1%} from trial to trial"
        )
        noise = f"readings of one kernel differ {parts}"
        if self.best_s == self.before_s:
            return f"{noise}: no other length of a run pays"
        told = f"{percent_text(round(self.effect, 3))} are told with {self.best_pairs} pairs of the ends"
        saved = f"{told} in {_time(self.best_left_s)}, and not {self.pairs or 'any number'} in {_time(self.left_s)}"
        if self.is_chosen:
            until = f"trials before {self.since} count no more"
            return f"runs of {best} from trial {self.since} on: {noise}; {saved}; {until}"
        return f"{noise}: with --runtime {best} {saved}"


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None


def _time(seconds: float | None) -> str:
    return "any time" if seconds is None else units.duration(seconds)
