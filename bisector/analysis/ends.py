"""Whether the two ends of a range differ, and by how much, from readings of both in turn; pure.

Readings are scores (:mod:`bisector.core.objective`), so that equal differences are equal factors. Ends whose first
readings are a factor of 2 apart are told apart by these; all others are read in turn by
:mod:`bisector.search.difference`.
"""

import math
from dataclasses import dataclass, replace
from statistics import fmean

from bisector.analysis.levels import Scores, are_far_apart, line_between
from bisector.core.errors import EndsDoNotReproduce
from bisector.core.kinds import percent_text
from bisector.core.objective import Objective
from bisector.core.verdict import Direction, Terms, Verdict
from bisector.search.difference import Difference, InTurn, Rule, Told, pairs_to_tell, told


@dataclass(frozen=True, slots=True)
class Ends:
    """The scores of the two ends, what was expected of them (None: either direction), and the words for them.

    ``difference`` is that of their readings in turn, where it took some.
    """

    old: float
    new: float
    objective: Objective
    expected: Direction | None
    terms: Terms
    difference: Difference | None = None

    @property
    def measured(self) -> str:
        """Both values in the person's words."""
        old, new = (self.objective.text(self.objective.value_of(score)) for score in (self.old, self.new))
        of = "" if self.difference is None else f", means of {self.difference.pairs} readings of each"
        return f"the {self.terms.old} end measured {old}, the {self.terms.new} end {new} ({self.objective.label}{of})"

    @property
    def gain(self) -> float:
        """By what factor the ends differ as expected; below 1 it is the other direction."""
        expected = self.expected or Direction.between(self.old, self.new)
        return math.exp((self.new - self.old) * expected.sign)

    @property
    def swapped_hint(self) -> str:
        """What to type when the two ends were named in the wrong order."""
        other = {
            Direction.IMPROVEMENT: "--expect regression looks for what made NEW worse",
            Direction.REGRESSION: "--expect improvement looks for what made NEW better",
        }
        kept = f", or keep the order: {other[self.expected]}" if self.expected is not None else ""
        return f"the ends look swapped: bisector start NEW OLD{kept}"


@dataclass(frozen=True, slots=True)
class Threshold:
    """The score that separates the ends, and theirs; ``given`` when a person chose it."""

    score: float
    old: float
    new: float
    given: bool
    difference: Difference | None = None

    @property
    def direction(self) -> Direction:
        """Whether the new end is the better one."""
        return Direction.between(self.old, self.new)

    def sentence(self, objective: Objective) -> str:
        """What was found, for a person: the direction of the change, both ends and their factor, the line."""
        old, line, new = (objective.text(objective.value_of(one)) for one in (self.old, self.score, self.new))
        origin = "as given" if self.given else "the middle of the gap between the ends"
        article = {Direction.IMPROVEMENT: "an", Direction.REGRESSION: "a"}[self.direction]
        told = "" if self.difference is None else f", {times_text(self.difference, objective)}"
        return f"{article} {self.direction}: {objective.label} from {old} to {new}{told}; threshold {line}, {origin}"


class EndsAreTheSame(EndsDoNotReproduce):
    """Both ends differ by less than what is looked for, or by no more than noise."""


class TooNoisy(EndsAreTheSame):
    """Nobody knows whether they do: no number of readings tells that is worth it."""


def told_apart(ends: Ends, readings: InTurn, rule: Rule) -> Ends | None:
    """The ends by as many pairs of readings as tell them apart; None while it takes more.

    Raises :class:`EndsAreTheSame` for those that are, :class:`TooNoisy` for those that no number of pairs tells that is
    worth it.
    """
    if are_far_apart(ends.old, ends.new):
        return ends
    if (found := told(readings, rule)) is None:
        return None
    word, seen = found
    old, new = ([score for is_new, score in readings if is_new is one][: seen.pairs] for one in (False, True))
    ends = replace(ends, old=fmean(old), new=fmean(new), difference=seen)
    match word:
        case Told.DIFFER:
            return ends
        case Told.SAME:
            interval = times_text(seen, ends.objective)
            raise EndsAreTheSame(
                f"{ends.measured}: the same within {percent_text(rule.least_effect)}, {interval}",
                "choose a --metric that the two ends differ in, or a smaller --least-effect",
            )
        case Told.NOISY:
            raise _too_noisy(ends, seen, rule)


def _too_noisy(ends: Ends, seen: Difference, rule: Rule) -> TooNoisy:
    needed = pairs_to_tell(seen.spread, rule.least_effect)
    most = "more pairs than anybody has time for" if needed is None else f"about {needed} pairs"
    return TooNoisy(
        f"{ends.measured}: too noisy to tell on this host: {times_text(seen, ends.objective)}, and readings of one end"
        f" spread by {math.expm1(seen.spread):.1%}: {most} tell a change of {percent_text(rule.least_effect)}",
        "a longer --runtime has less noise; or look for larger changes alone with --least-effect",
    )


def times(seen: Difference, objective: Objective) -> tuple[float, float]:
    """Between which factors the new end's value is to the old one's, 95 times of 100."""
    sign, half = objective.better.sign, seen.half_width()
    low, high = sorted(math.exp(sign * (seen.mean + one)) for one in (-half, half))
    return low, high


def times_text(seen: Difference, objective: Objective) -> str:
    """The interval of the factor, for a person: ``0.88 to 0.93 times (95 %, 6 pairs)``."""
    low, high = times(seen, objective)
    digits = 2 if high - low >= 0.02 else 4  # noqa: PLR2004 - as many digits as tell both apart
    return f"{low:.{digits}f} to {high:.{digits}f} times (95 %, {seen.pairs} pairs)"


def from_scores(ends: Ends, scores: Scores) -> Threshold:
    """The middle of the gap beside the new end's level, given the scores of each kernel.

    Raises :class:`EndsDoNotReproduce` when the ends differ in another direction than expected, or not at all.
    """
    if ends.old == ends.new:
        hint = "choose a --metric that the two ends differ in, or give a --threshold"
        raise EndsDoNotReproduce(f"{ends.measured}: there is no difference to bisect", hint)
    if ends.gain < 1:
        times = f"{1 / ends.gain:.2f} times, in the other direction than expected"
        raise EndsDoNotReproduce(f"{ends.measured}: {times}", ends.swapped_hint)
    return Threshold(line_between(ends.old, ends.new, scores), ends.old, ends.new, False, ends.difference)


def given(score: float, ends: Ends) -> Threshold:
    """A person's threshold; raises :class:`EndsDoNotReproduce` unless each end is on its side of it."""
    direction = ends.expected or Direction.between(ends.old, ends.new)
    claims = ((ends.terms.old, ends.old, Verdict.OLD), (ends.terms.new, ends.new, Verdict.NEW))
    wrong = [word for word, end, side in claims if direction.verdict(end > score) is not side]
    if wrong:
        line = ends.objective.text(ends.objective.value_of(score))
        where = "both ends are on one side"
        if ends.expected is not None:
            where = f"the {' and the '.join(wrong)} end {'is' if len(wrong) == 1 else 'are'} on the wrong side"
        raise EndsDoNotReproduce(
            f"{ends.measured}: with a threshold of {line} {where}",
            ends.swapped_hint if len(wrong) > 1 else "without --threshold it is found from the two ends",
        )
    return Threshold(score, ends.old, ends.new, True, ends.difference)
