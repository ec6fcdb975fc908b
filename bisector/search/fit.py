"""Whether the readings can be of one change at all.

Beside one change stands the next simplest story: the change came, went again, and came for good, so that a kernel is
new if it has the last of three commits, or the first and not the second. Rates that are not known make contradictions
cheap for either, so only the ratio of the two probabilities of all readings tells them apart. With one change in a
hundred histories not a single one, "not one change" is said where that has less than a chance of 1 in 1,000: by
Markov's inequality at most one of 100,000 searches for a single change ever says so.
"""

from dataclasses import dataclass

import numpy as np

from bisector.search.posterior import Posterior
from bisector.search.readings import Kernel

# How many histories in which something changed have more than one change, and below which chance of a single one the
# readings are not of one.
_MORE_THAN_ONE = 0.01
_MISFIT = 1e-3
_FEW = 2  # contradictions that need no other story
_CASES = 256  # of the noise, the likeliest: leaving some out only makes the other story less likely


@dataclass(frozen=True, slots=True)
class Fit:
    """How many readings contradict the likeliest commit, how many should, and the probability of one change."""

    contradictions: int
    expected: float
    probability: float

    @property
    def one_change(self) -> bool:
        """Whether the readings can be of a single change."""
        return self.probability >= _MISFIT


def fit(belief: Posterior, first_new: int) -> Fit:
    """How well one change at ``first_new`` explains the readings."""
    joint = belief.joint
    is_new = joint.has[joint.of[first_new]]
    said_old, said_new = joint.record.verdicts
    seen = int(np.where(is_new, said_old, said_new).sum())
    chances = [belief.fresh_pick if kernel is Kernel.PICKED else belief.fresh for _, kernel in joint.record.kernels]
    wrong = np.array([one.looks_old if new else one.looks_new for one, new in zip(chances, is_new, strict=True)])
    expected = float((said_old + said_new) @ wrong) if len(wrong) else 0.0
    return Fit(seen, expected, _one_change(belief, first_new) if seen > _FEW else 1.0)


def _one_change(belief: Posterior, best: int) -> float:
    """The probability of one change, against that of a change that went and came back.

    ``best`` is taken to be the first or the last of the three commits, whichever explains more.
    """
    joint = belief.joint
    cases = np.argsort(-joint.weight, kind="stable")[:_CASES]
    step = (joint.new - joint.old)[:, cases]
    base = joint.old.sum(axis=0)[cases] + joint.log_case[cases] + joint.log_class[joint.of[best]]
    has, held = joint.has, joint.has[joint.of[best]]
    stories: tuple[list[float], list[float]] = ([], [])
    for other, prior in zip(has, joint.log_class, strict=True):
        # A row for each class in which the change went: once it had come with the other, and with the best one
        for found, is_new in zip(stories, (held | (other & ~has), other | (held & ~has)), strict=True):
            each = is_new.astype(np.float64) @ step + base + (joint.log_class + prior)[:, None]
            found.append(float(np.logaddexp.reduce(each, axis=None)))
    log_evidence = max(float(np.logaddexp.reduce(each)) for each in stories)
    odds = log_evidence - joint.log_evidence + np.log(_MORE_THAN_ONE / (1 - _MORE_THAN_ONE))
    return float(1 / (1 + np.exp(min(700.0, odds))))
