"""Whether another commit of the range made a step, too, smaller than the answer's; pure.

The means of kernels on either side of an answer are on one level, but for the noise and a straight drift of the
host. A second commit parts those of a side in two. For each place where it could be, the least squares give the step
there; the one that explains most is told where chance alone would show one like it at any place once in 1,000 searches
at most (the correction is Bonferroni's).
"""

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from bisector.search.apart import CONFIDENCE
from bisector.search.graph import Floats, Numbers
from bisector.search.posterior import Posterior
from bisector.search.readings import Facts, Kernel, Reading
from bisector.search.student import p_value, quantile

_BY_CHANCE = 1e-3
_LEAST_KERNELS = 2  # on each side of a step: what one kernel shows may be its own layout
_NEAR = 0.05  # of the likelihood of the likeliest place: another one that has so much may be the right one, too


@dataclass(frozen=True, slots=True)
class SecondStep:
    """Scores with ``commit`` are above those without it by ``mean``, within ``half_width`` 95 times of 100.

    It is one of ``commits`` that come into question, by their numbers, oldest first.
    """

    commit: int
    commits: tuple[int, ...]
    mean: float
    half_width: float


def second_step(facts: Facts, belief: Posterior) -> SecondStep | None:
    """The step beside the likeliest commit's; None where readings show none.

    Readings that are nearer to the other side's level than to their own are left out: they were misled. Each kernel
    counts once, by its mean on each host, however often it was read: what it shows may be its own layout.
    """
    joint = belief.joint
    places = {key: place for place, key in enumerate(joint.record.kernels)}
    is_new = joint.has[joint.of[belief.best]]
    of_kernels = defaultdict[tuple[int, str], list[tuple[float, float]]](list)
    for one in facts.readings:
        if one.score is not None and _counts(one, one.score, bool(is_new[places[one.of]]), belief):
            of_kernels[places[one.of], one.host].append((one.score, one.hour))
    kernels = np.array([place for place, _ in of_kernels], dtype=np.intp)
    scores, hours = np.array([np.mean(row, axis=0) for row in of_kernels.values()]).reshape(-1, 2).T
    has, side = joint.has[:, kernels].astype(np.float64), is_new[kernels].astype(np.float64)
    hosts = [np.array([on == host for _, on in of_kernels], dtype=np.float64) for host in belief.levels]
    known = np.column_stack((side, *hosts, *(host * hours for host in hosts)))
    freedom = len(kernels) - known.shape[1] - 1
    may_be = [place for place, row in enumerate(has) if _parts(row, side, kernels)]
    if freedom < 1 or not may_be:
        return None
    left, steps = (_beside(known, rows) for rows in (scores[None, :], has[may_be]))
    return _told(joint.of, np.array(may_be), left[0], steps, freedom)


def _told(of: Numbers, may_be: Numbers, scores: Floats, steps: Floats, freedom: int) -> SecondStep | None:
    squares = (steps**2).sum(axis=1)
    sizes = steps @ scores / squares
    left = np.maximum(scores @ scores - sizes**2 * squares, np.finfo(np.float64).tiny)
    best = int(np.argmin(left))
    error = math.sqrt(left[best] / freedom / squares[best])
    if p_value(float(sizes[best]) / error, freedom) * len(may_be) > _BY_CHANCE:
        return None
    # The likelihood of normal noise whose spread is not known
    near = (left[best] / left) ** (len(scores) / 2) >= _NEAR
    commits = np.flatnonzero(np.isin(of, may_be[near]))
    likeliest = np.flatnonzero(of == may_be[best])
    half_width = quantile(CONFIDENCE, freedom) * error
    return SecondStep(int(likeliest[-1]), tuple(map(int, commits)), float(sizes[best]), half_width)


def _counts(one: Reading, score: float, is_new: bool, belief: Posterior) -> bool:
    if one.kernel is not Kernel.COMMIT or (levels := belief.levels.get(one.host)) is None:
        return False
    old, new = (abs(score - side.centre - levels.drift * (one.hour - side.hour)) for side in (levels.old, levels.new))
    return new < old if is_new else old < new


def _parts(row: Floats, side: Floats, kernels: Numbers) -> bool:
    """Whether a commit at this place parts the kernels of a side in two that are more than one each."""
    return any(
        all(len(set(kernels[(side == one) & (row == has)])) >= _LEAST_KERNELS for has in (0.0, 1.0))
        for one in (0.0, 1.0)
    )


def _beside(known: Floats, rows: Floats) -> Floats:
    """What of each row the sides, the hosts and their drifts do not explain."""
    found: Floats = rows - (np.linalg.lstsq(known, rows.T, rcond=None)[0].T @ known.T)
    return found
