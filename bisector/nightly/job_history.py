"""The state of a job, derived from its events: what a tip is compared with, how each night ended, what is left to do.

Pure, and all that a job remembers: a night that was killed at any step leaves events, from which the next night goes
on.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Annotated

from bisector.analysis.levels import LevelChange
from bisector.core.objective import Objective
from bisector.core.trial import Trial
from bisector.core.verdict import Direction, State
from bisector.nightly.plan import Wanted
from bisector.store.nights import (
    BisectionBegun,
    BisectionConcluded,
    JobDone,
    JobTrouble,
    LetterTold,
    Measurement,
    NightEvent,
    Tip,
    TipRole,
)

TELLING = (State.FOUND, State.NARROWED)

# A tip has changed if it is farther from its reference than so many standard deviations of the difference of two tips.
# 3 of 1,000 nights are so by chance, which is why a bisection measures both ends in turn before it begins.
_DEVIATIONS = 3.0
# The spread of tips before any are measured: twice the least effect, at most 10 %, with the weight of so many nights.
# Only so many of the newest nights count.
_UNKNOWN_SPREAD, _UNKNOWN_NIGHTS, _NEWEST = 0.1, 5, 20


class TipResult(StrEnum):
    """How a tip compares with its reference."""

    FIRST = "first"
    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    UNTESTABLE = "untestable"

    @property
    def direction(self) -> Direction | None:
        """The direction of the change; None if there was none, or if it is not known."""
        return {TipResult.FASTER: Direction.IMPROVEMENT, TipResult.SLOWER: Direction.REGRESSION}.get(self)


@dataclass(frozen=True, slots=True)
class Reference:
    """The commit that tips are compared with, its deciding value, and the circumstances under which it was measured."""

    sha: Annotated[str, "hash"]
    rev: Annotated[str, "branch or tag that it was at"]
    value: Annotated[float, "its value by the `objective`"]
    conditions: str
    host: str
    objective: Objective = field(default_factory=Objective)
    era: str = ""

    @property
    def text(self) -> str:
        """The value with its unit."""
        return self.objective.text(self.value)


@dataclass(frozen=True, slots=True)
class TipChange:
    """A tip that differs from its reference in a direction that is wanted."""

    direction: Direction
    old: Reference
    new: Measurement

    @property
    def text(self) -> str:
        """Both values: ``501 to 2,064 IOPS (read.iops of the worst job)``."""
        objective = self.new.objective
        return f"{objective.change_text(self.old.value, self.new.value or self.old.value)} ({objective.label})"


@dataclass(frozen=True, slots=True)
class JobNight:
    """The events of a job in one night; ``measured`` is its tip, ``measurements`` includes tags.

    ``trial`` is the tip's trial that counts, as long as its record exists. A tip within the factor ``usual`` of the
    reference is the same. ``level_change`` is the change of level that begins with this tip's value, which follows from
    all nights (:func:`bisector.nightly.trend.trends`).
    """

    night: int
    at: str
    tip: Tip | None = None
    measured: Measurement | None = None
    measurements: tuple[Measurement, ...] = ()
    trial: Trial | None = None
    result: TipResult | None = None
    reference: Reference | None = None
    usual: float = 1.0
    begun: BisectionBegun | None = None
    concluded: tuple[BisectionConcluded, ...] = ()
    trouble: JobTrouble | None = None
    letters: tuple[LetterTold, ...] = ()
    done: bool = False
    level_change: LevelChange | None = None


@dataclass(frozen=True, slots=True)
class JobHistory:
    """All nights of a job, and what follows from them.

    ``last`` and ``tag`` are the tip and the tag measured last. ``change`` has not been bisected yet, ``open`` is a
    bisection without a conclusion, ``unreported`` has the conclusions not told yet. ``scores`` are the scores of the
    tips since the reference that were the same.
    """

    nights: tuple[JobNight, ...] = ()
    reference: Reference | None = None
    last: Measurement | None = None
    tag: Measurement | None = None
    result: TipResult | None = None
    open: BisectionBegun | None = None
    unreported: tuple[BisectionConcluded, ...] = ()
    change: TipChange | None = None
    scores: tuple[float, ...] = ()

    def knows(self, sha: str, conditions: str) -> bool:
        """Whether this commit is the last tip measured and measuring it again would gain nothing."""
        return _settles(self.last, sha, conditions)

    def knows_tag(self, sha: str, conditions: str) -> bool:
        """Whether this tag was measured last, on the host and in the era in which tips are measured now."""
        tag, tip = self.tag, self.last
        if tag is None or not _settles(tag, sha, conditions):
            return False
        return tip is None or tip.conditions != conditions or (tip.host, tip.era) == (tag.host, tag.era)

    @property
    def told(self) -> frozenset[str]:
        """The fingerprints of the trouble told since the job was last done."""
        told: set[str] = set()
        for night in self.nights:
            told = set() if night.done else told | {letter.about for letter in night.letters}
        return frozenset(told)


def replay(events: Iterable[NightEvent]) -> JobHistory:
    """Return the state of a job after its events, which are given in order."""
    history = JobHistory()
    for event in events:
        nights = history.nights
        if not nights or nights[-1].night != event.night:
            nights = (*nights, JobNight(event.night, event.at))
        history = _after(replace(history, nights=nights), event)
    return history


def _after(history: JobHistory, event: NightEvent) -> JobHistory:
    night = history.nights[-1]
    match event.fact:
        case Tip() as tip:
            night = replace(night, tip=tip)
        case Measurement(role=TipRole.TAG) as measured:
            night = replace(night, measurements=(*night.measurements, measured))
            history = replace(history, tag=measured, reference=_reference(measured) or history.reference, change=None)
        case Measurement() as measured:
            usual, before = usual_factor(measured.min_ratio, history.scores), history.reference
            history = _tip_measured(history, measured, night.tip, usual)
            compared = None if history.result in (TipResult.FIRST, TipResult.UNTESTABLE) else before
            of_night = (*night.measurements, measured)
            night = replace(night, measured=measured, measurements=of_night, trial=event.trial)
            night = replace(night, result=history.result, reference=compared, usual=usual)
        case BisectionBegun() as begun:
            history = replace(history, open=begun, change=None)
            night = replace(night, begun=begun)
        case BisectionConcluded() as concluded:
            found = (concluded,) if concluded.state in TELLING else ()
            history = replace(history, open=None, change=None, unreported=(*history.unreported, *found))
            # After an answer, or if the ends did not measure as claimed, later tips are compared with the new end.
            if (value := concluded.new_value) is not None and (old := history.reference) is not None:
                new = replace(old, sha=concluded.new_sha, rev=concluded.new_sha, value=value)
                history = replace(history, reference=new, scores=(old.objective.score(value),))
            night = replace(night, concluded=(*night.concluded, concluded))
        case JobTrouble() as trouble:
            night = replace(night, trouble=trouble)
        case LetterTold() as letter:
            unreported = tuple(one for one in history.unreported if str(one.run_dir) != letter.about)
            history = replace(history, unreported=unreported)
            night = replace(night, letters=(*night.letters, letter))
        case JobDone():
            night = replace(night, done=True)
    return replace(history, nights=(*history.nights[:-1], night))


def _tip_measured(history: JobHistory, measured: Measurement, tip: Tip | None, usual: float) -> JobHistory:
    """Classify a tip and update the history; a change that is not bisected is believed the second time."""
    reference, result = history.reference, classify(measured, history.reference, usual)
    seen_before = result is history.result and history.last is not None and history.last.sha != measured.sha
    history = replace(history, last=measured, result=result, change=None)
    score = () if measured.value is None else (measured.objective.score(measured.value),)
    if result is TipResult.FIRST:
        return replace(history, reference=_reference(measured), scores=score)
    if result is TipResult.SAME:
        return replace(history, scores=(*history.scores, *score))
    direction = result.direction
    if direction is None or reference is None:
        return history
    if tip is not None and direction in Wanted(tip.wanted).directions:
        return replace(history, change=TipChange(direction, reference, measured))
    return replace(history, reference=_reference(measured), scores=score) if seen_before else history


def usual_factor(least: float, scores: Sequence[float]) -> float:
    """The factor within which a tip is the same, from the least effect ``least`` or from the noise of earlier tips.

    Tips also differ by a day's commits; differences of successive tips contain the least of that (J. von Neumann,
    Annals of Mathematical Statistics 1941, 12:367).
    """
    band = math.log(least)
    unknown = min(2 * band, _UNKNOWN_SPREAD)
    squares = [(later - earlier) ** 2 / 2 for earlier, later in pairwise(scores[-_NEWEST:])]
    variance = (_UNKNOWN_NIGHTS * unknown**2 + math.fsum(squares)) / (_UNKNOWN_NIGHTS + len(squares))
    return math.exp(max(band, _DEVIATIONS * math.sqrt(2 * variance)))


def classify(measured: Measurement, reference: Reference | None, usual: float) -> TipResult:
    """Compare a value with its reference by the threshold or by ``usual``; FIRST if they cannot be compared."""
    if measured.value is None:
        return TipResult.UNTESTABLE
    wanted = None if reference is None else (reference.conditions, reference.host, reference.objective, reference.era)
    if reference is None or measured.comparability != wanted:
        return TipResult.FIRST
    score = measured.objective.score
    now, then = score(measured.value), score(reference.value)
    if now == then:
        return TipResult.SAME
    changed = TipResult.FASTER if now > then else TipResult.SLOWER
    if measured.threshold is not None:
        line = score(measured.threshold)
        return changed if (now > line) is not (then > line) else TipResult.SAME
    ratio = measured.value / reference.value
    return TipResult.SAME if max(ratio, 1 / ratio) < usual else changed


def _settles(measured: Measurement | None, sha: str, conditions: str) -> bool:
    """Whether a measurement needs no repetition: it has a value or a fault of the kernel, not weak evidence."""
    if measured is None or (measured.sha, measured.conditions) != (sha, conditions):
        return False
    return measured.value is not None or bool(measured.fault)


def _reference(measured: Measurement) -> Reference | None:
    if measured.value is None:
        return None
    return Reference(measured.sha, measured.rev, measured.value, *measured.comparability)
