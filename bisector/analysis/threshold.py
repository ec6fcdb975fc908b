"""The threshold, from the two ends or checked against them, and in which direction the change is."""

import math
from dataclasses import dataclass

from bisector.analysis.levels import Scores, line_between
from bisector.core.errors import EndsDoNotReproduce
from bisector.core.objective import Objective
from bisector.core.verdict import Direction, Terms, Verdict

_ROUNDING = 1e-9  # of scores: a factor that is exactly the least one is enough


@dataclass(frozen=True, slots=True)
class Threshold:
    """The score that separates the ends, and theirs; ``given`` when a person chose it."""

    score: float
    old: float
    new: float
    given: bool

    @property
    def direction(self) -> Direction:
        """Whether the new end is the better one."""
        return Direction.between(self.old, self.new)

    def sentence(self, objective: Objective) -> str:
        """What was found, for a person: the direction of the change, both ends, the line."""
        old, line, new = (objective.text(objective.value_of(one)) for one in (self.old, self.score, self.new))
        origin = "as given" if self.given else "the middle of the gap between the ends"
        article = {Direction.IMPROVEMENT: "an", Direction.REGRESSION: "a"}[self.direction]
        return f"{article} {self.direction}: {objective.label} from {old} to {new}; threshold {line}, {origin}"


@dataclass(frozen=True, slots=True)
class Ends:
    """The scores of the two ends, what was expected of them (None: either direction), and the words for them."""

    old: float
    new: float
    objective: Objective
    expected: Direction | None
    terms: Terms

    @property
    def measured(self) -> str:
        """Both values in the person's words."""
        old, new = (self.objective.text(self.objective.value_of(score)) for score in (self.old, self.new))
        return f"the {self.terms.old} end measured {old}, the {self.terms.new} end {new} ({self.objective.label})"

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


def from_scores(ends: Ends, scores: Scores, min_ratio: float) -> Threshold:
    """The middle of the gap beside the new end's level, given the scores of each kernel.

    Raises :class:`EndsDoNotReproduce` when the ends are less than a factor of ``min_ratio`` apart, or in another
    direction than expected, and whatever that factor is when they are the same.
    """
    if ends.old == ends.new or math.log(ends.gain) < math.log(min_ratio) - _ROUNDING:
        swapped = ends.gain < 1 and 1 / ends.gain >= min_ratio
        raise EndsDoNotReproduce(
            f"{ends.measured}: {_comparison(ends, min_ratio)}",
            ends.swapped_hint if swapped else "choose a --metric that the two ends differ in, or give a --threshold",
        )
    return Threshold(line_between(ends.old, ends.new, scores), ends.old, ends.new, given=False)


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
    return Threshold(score, ends.old, ends.new, given=True)


def _comparison(ends: Ends, min_ratio: float) -> str:
    if ends.old == ends.new:
        return "there is no difference to bisect"
    needed = f"where {min_ratio:g} times {'as expected ' if ends.expected is not None else ''}are needed"
    if ends.gain < 1:
        return f"{1 / ends.gain:.2f} times in the other direction, {needed}"
    return f"{ends.gain:.2f} times apart, {needed}"
