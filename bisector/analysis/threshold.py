"""The threshold, from the two ends or checked against them."""

from dataclasses import dataclass

from bisector.analysis.levels import Figures, line_between
from bisector.core.errors import EndsDoNotReproduce
from bisector.core.model import Direction, Terms, Verdict


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold that separates the ends; ``given`` when a person chose it."""

    iops: float
    old_iops: float
    new_iops: float
    given: bool


@dataclass(frozen=True, slots=True)
class Ends:
    """What the two ends measured: IOPS of the slowest job of each, and what was claimed of them."""

    old_iops: float
    new_iops: float
    direction: Direction
    terms: Terms

    @property
    def measured(self) -> str:
        """Both figures in the person's words."""
        return (
            f"the {self.terms.old} end measured {self.old_iops:,.0f} IOPS, "
            f"the {self.terms.new} end {self.new_iops:,.0f} IOPS (slowest job)"
        )

    @property
    def gain(self) -> float:
        """By what factor the change is in the direction that was claimed; below 1 it is the other."""
        ratio = self.new_iops / self.old_iops
        return ratio if self.direction is Direction.IMPROVEMENT else 1 / ratio

    @property
    def swapped_hint(self) -> str:
        """What to type when the two ends were named in the wrong order."""
        other = {
            Direction.IMPROVEMENT: "--regression looks for what made NEW slower",
            Direction.REGRESSION: "without --regression the search is for what made NEW faster",
        }
        return f"the ends look swapped: bisector start NEW OLD, or keep the order: {other[self.direction]}"


def from_readings(ends: Ends, figures: Figures, min_ratio: float) -> Threshold:
    """The middle of the gap beside the new end's level, given the readings of each kernel.

    Raises :class:`EndsDoNotReproduce` when the ends are less than a factor of ``min_ratio`` apart.
    """
    if ends.gain < min_ratio:
        swapped = 1 / ends.gain >= min_ratio
        raise EndsDoNotReproduce(
            f"{ends.measured}: {_comparison(ends.gain)}, where {min_ratio:g} times as claimed are needed",
            ends.swapped_hint if swapped else "measure something that the two ends differ in, or give a --threshold",
        )
    line_iops = line_between(ends.old_iops, ends.new_iops, figures)
    return Threshold(line_iops, ends.old_iops, ends.new_iops, given=False)


def given(threshold_iops: float, ends: Ends) -> Threshold:
    """A person's threshold; raises :class:`EndsDoNotReproduce` unless each end is on its side."""
    claims = ((ends.terms.old, ends.old_iops, Verdict.OLD), (ends.terms.new, ends.new_iops, Verdict.NEW))
    wrong = [word for word, iops, side in claims if ends.direction.verdict(iops > threshold_iops) is not side]
    if wrong:
        raise EndsDoNotReproduce(
            f"{ends.measured}: with a threshold of {threshold_iops:,.0f} IOPS the {' and the '.join(wrong)} end "
            f"{'is' if len(wrong) == 1 else 'are'} on the wrong side",
            ends.swapped_hint if len(wrong) > 1 else "without --threshold it is found from the two ends",
        )
    return Threshold(threshold_iops, ends.old_iops, ends.new_iops, given=True)


def _comparison(gain: float) -> str:
    if gain < 1:
        return f"{1 / gain:.2f} times in the other direction"
    return f"{gain:.2f} times apart"
