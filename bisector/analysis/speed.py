"""How fast the host's cores were during a run, against what they were when the ends were read; pure.

A processor changes its clock by a factor of two for heat, for a power limit, or as another machine on the same chip
takes its share, and /proc/stat shows nothing of it: seen with nothing else at work, the same kernel did half as many
I/Os two minutes later. So a fixed piece of work is timed around each run.

A host may stay at another speed for good. Once two sound trials in a row were at one other speed, that is the host's:
what was measured before counts only as far as it was at this speed, too, and the ends are read again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median

from bisector.core.figures import Run
from bisector.core.trial import Trial

_SETTLED = 2


@dataclass(frozen=True, slots=True)
class Speed:
    """What the speed of a run is held against, and of when that is; since trial ``since`` the host is at it."""

    mib_s: float
    when: str
    since: int = 0


@dataclass(frozen=True, slots=True)
class AtSpeed:
    """A sound trial by its number, whether it is of an end, and its speed."""

    n: int
    of_end: bool
    mib_s: float


def speed_of(trial: Trial, max_change: float) -> float | None:
    """The median speed of a trial's runs; None where they had several, and where nobody looked."""
    found = [fmean(both) for run in trial.runs if (both := _readings(run))]
    return median(found) if found and all(is_alike(one, median(found), max_change) for one in found) else None


def host_speed(trials: Iterable[AtSpeed], max_change: float) -> Speed | None:
    """The speed of one host: the median of those of its ends, or what it has settled at since; None before any end."""
    at, apart, since = list[float](), list[AtSpeed](), 0
    for one in trials:
        if not at and one.of_end:
            at, since = [one.mib_s], one.n
        elif at and is_alike(one.mib_s, median(at), max_change):
            at, apart = [*at, *([one.mib_s] if one.of_end else [])], []
        elif at:
            together = all(is_alike(one.mib_s, other.mib_s, max_change) for other in apart)
            apart = [*(apart if together else []), one]
            if len(apart) == _SETTLED:
                at, apart, since = [each.mib_s for each in apart], [], apart[0].n
    return Speed(median(at), "when the ends were read", since) if at else None


def why_unlike(run: Run, speed: Speed | None, max_change: float) -> str:
    """Why a run's figures may be those of another speed of the host's cores, in a sentence; else empty."""
    both = _readings(run)
    if not both:
        return ""
    if not is_alike(both[1], both[0], max_change):
        return f"the host's cores ran at {both[1] / both[0]:.0%} of the speed after the run that they had before it"
    if speed is None or is_alike(fmean(both), speed.mib_s, max_change):
        return ""
    return f"the host's cores ran at {fmean(both) / speed.mib_s:.0%} of the speed they had {speed.when}"


def is_alike(one: float, other: float, max_change: float) -> bool:
    """Whether a speed differs from another one by no more than a share of that."""
    return abs(one - other) <= max_change * other


def _readings(run: Run) -> tuple[float, float] | None:
    seen = run.contention
    if seen is None or seen.mib_s_before is None or seen.mib_s_after is None:
        return None
    return seen.mib_s_before, seen.mib_s_after
