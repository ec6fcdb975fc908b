"""What else than one change may explain the readings: a change that went again, or none at all; pure.

Beside one change stands a change that came, went, and came for good. Only the ratio of the two probabilities of all
readings tells them apart, and "not one change" is said below 1 in 1,000: by Markov's inequality at most one of 100,000
searches for a single change ever says so. Beside the commits stands *nothing*: the ends may have differed by the day.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.effect import SinceBegun
from bisector.search.graph import Floats
from bisector.search.levels import Levels, density, log_sum
from bisector.search.likelihood import STRAY_DENSITY, Weighing, shown_by, with_sticky
from bisector.search.posterior import Posterior
from bisector.search.readings import Kernel, Reading, SearchFacts

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


# How the sentence begins that says so at the end of a search: later ones count them.
NOTHING_CHANGED = "nothing in this range changed"
# What a commit may have made of what the ends differed by, evenly: an answer needs half of it, and where ends were read
# until they differ, or once, their readings exaggerate.
_SHARES = np.array([0.35, 0.5, 0.75, 1.0, 1.25])[None, :]
# Where the middle of a host's levels may be by now, in what the ends differed by. One level is between those of the
# ends two of three times; two are hardly ever elsewhere than the ends were, but for what a host drifts by.
_SHIFTS = np.linspace(-1.5, 1.5, 49)
_STILL, _MOVED, _MOVES = 0.15, 0.5, 0.05
_LARGEST = 700.0  # of an exponent: what a double holds is a little more
_LEAST = 1e-12  # of a rate: nothing is impossible


def chance_of_nothing(facts: SearchFacts, belief: Posterior, weighing: Weighing, tip: int) -> float:
    """The probability that no commit of the range changed the figures; 0 where no figures tell the ends apart."""
    since = SinceBegun.begun(facts, tip)
    if since is None or not since.of_ends:
        return 0.0
    one_change, nothing = belief.joint.log_class[:, None] - math.log(_SHARES.size), 0.0
    for host, levels in belief.levels.items():
        told = [one for one in since.readings if one[0].host == host]
        of_class, of_one_level = _of_host(told, levels, weighing.scales[host].expected.drift_deviation, since, belief)
        one_change, nothing = one_change + of_class, nothing + of_one_level
    log_odds = math.log(1 / weighing.nothing - 1) + float(log_sum(one_change.ravel())) - nothing
    return 1 / (1 + math.exp(min(log_odds, _LARGEST)))


def _of_host(
    told: Sequence[tuple[Reading, float | None]], levels: Levels, drifts_by: float, since: SinceBegun, belief: Posterior
) -> tuple[Floats, float]:
    """The log-likelihood of what a host told for each class of commits and share, and of a single level."""
    noise, joint = belief.noise, belief.joint
    a, b = max(noise.old_as_new, _LEAST), max(noise.new_as_old, _LEAST)
    apart, spread = abs(since.of_ends), math.sqrt(levels.old.spread * levels.new.spread)
    begun = min((one.hour for one, _ in told), default=0.0)
    middle, sign = _SHIFTS[:, None] * apart, math.copysign(1.0, since.of_ends)
    places = {key: place for place, key in enumerate(joint.record.kernels)}
    old, new = (np.zeros((len(places), *(middle + _SHARES).shape)) for _ in range(2))
    nothing = _LOG_OF_ONE.copy()
    # What figures of a single level grow by in an hour: least squares, with what is expected of a host beforehand
    alone, figures = 0.0, [(one.hour, score) for one, score in told if score is not None]
    if figures:
        hours, scores = np.array(figures).T
        apart_h = hours - hours.mean()
        alone = float(apart_h @ scores / (apart_h @ apart_h + (spread / drifts_by) ** 2))
    drifts = levels.drift, alone
    for one, score in told:
        place = places[one.of]
        if score is None and one.verdict is Verdict.MEASURED:
            continue
        if score is None:
            is_new = one.verdict is Verdict.NEW
            old[place] += math.log(a if is_new else 1 - a)
            new[place] += math.log(1 - b if is_new else b)
            looks_new = np.where(_SHIFTS > 0, 1 - b, a)
            nothing += np.log(looks_new if is_new else 1 - looks_new)
        else:
            at, at_one = (sign * (score - drift * (one.hour - begun)) - middle for drift in drifts)
            of_old, of_new = (density((at + half * apart * _SHARES) / spread) / spread for half in (0.5, -0.5))
            of_one = density(at_one[:, 0] / spread) / spread
            old[place] += np.log(shown_by(of_old, of_new, STRAY_DENSITY, a))
            new[place] += np.log(shown_by(of_new, of_old, STRAY_DENSITY, b))
            nothing += np.log(shown_by(of_one, of_one, STRAY_DENSITY, 0.0))
    old, new = with_sticky(old, new, noise.sticky)
    of_class = np.tensordot(joint.has.astype(np.float64), new - old, 1) + old.sum(axis=0) + _LOG_OF_TWO[:, None]
    return log_sum(of_class, axis=1), float(log_sum(nothing))


def _normal(deviation: float) -> Floats:
    weight = np.exp(-0.5 * (_SHIFTS / deviation) ** 2)
    found: Floats = weight / weight.sum()
    return found


_LOG_OF_ONE = np.log(_normal(_MOVED))
_LOG_OF_TWO = np.log((1 - _MOVES) * _normal(_STILL) + _MOVES * _normal(_MOVED))
