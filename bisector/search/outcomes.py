"""What the readings in flight may come out as, and what would be known then.

Where several hosts measure, the next kernel is chosen while other readings are under way. What it tells beside them is
the mean, over all that they may show, of what it would tell after that: so k trials are chosen that tell most together,
and not the k that each tell most (Ben-Or and Hassidim 2008; Pallone, Frazier and Henderson, "Multisection").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from bisector.search.graph import Floats, Mask, Numbers, RangeGraph
from bisector.search.likelihood import Key
from bisector.search.posterior import Posterior
from bisector.search.readings import Kernel, new_under

# Outcomes that are less likely than this are left out, and all but the likeliest so many.
_UNLIKELY = 4e-3
_AT_MOST = 64


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """A row for each outcome: its ``probability``, and by how much it makes each class of commits likelier.

    A class are the commits under which the same kernels in flight are new. ``p`` is the probability of each commit now,
    ``of`` its class.
    """

    p: Floats
    of: Numbers
    probability: Floats
    factor: Floats

    @classmethod
    def expected(cls, graph: RangeGraph, belief: Posterior, in_flight: Sequence[Key]) -> Self:
        """All outcomes that are likely enough; with nothing in flight it is one, which tells nothing."""
        if not in_flight:
            return cls(belief.p, np.zeros(len(graph), dtype=np.intp), np.ones(1), np.ones((1, 1)))
        of, has = _classes(graph, in_flight)
        share: Floats = np.bincount(of, weights=belief.p, minlength=len(has)).astype(np.float64)
        joint: Floats = share[None, :]
        for (commit, kernel), is_new in zip(in_flight, has.T, strict=True):
            chances = belief.chances(commit, kernel)
            new = np.where(is_new, 1 - chances.looks_old, chances.looks_new)
            joint = _likely(np.concatenate((joint * new, joint * (1 - new))))
        total = joint.sum(axis=1)
        # Of a class that has next to nothing the factor does not matter
        factor = np.divide(joint, share * total[:, None], out=np.ones_like(joint), where=share > 0)
        return cls(belief.p, of, total / total.sum(), factor)

    def new(self, graph: RangeGraph) -> Floats:
        """How likely each commit's kernel is new: a row for each outcome, a column for each commit."""
        by_class = np.stack([graph.mass(np.where(self.of == one, self.p, 0.0)) for one in range(self.factor.shape[1])])
        return np.clip(self.factor @ by_class, 0.0, 1.0)

    def kernel_new(self, graph: RangeGraph, commit: int, kernel: Kernel) -> Floats:
        """How likely one kernel is new, for each outcome.

        Of an end without a commit, or with it, by that commit alone: a sum over the others would tell commits apart
        that are as likely, by how it is rounded.
        """
        if kernel is Kernel.COMMIT:
            had = graph.ancestors(commit)
            return np.clip(self.factor @ np.bincount(self.of[had], self.p[had], self.factor.shape[1]), 0.0, 1.0)
        p: Floats = np.clip(self.p[commit] * self.factor[:, self.of[commit]], 0.0, 1.0)
        return 1 - p if kernel is Kernel.REVERTED else p


def _classes(graph: RangeGraph, in_flight: Sequence[Key]) -> tuple[Numbers, Mask]:
    """The class of each commit, and which of the kernels in flight are new in each class."""
    every, code = np.arange(len(graph)), np.zeros(len(graph), dtype=np.int64)
    for place, (commit, kernel) in enumerate(in_flight):
        code |= new_under(graph, commit, kernel, every).astype(np.int64) << place
    classes, of = np.unique(code, return_inverse=True)
    has: Mask = (classes[:, None] >> np.arange(len(in_flight)) & 1).astype(np.bool_)
    return of, has


def _likely(joint: Floats) -> Floats:
    """The rows of the likeliest outcomes."""
    total = joint.sum(axis=1)
    order = np.argsort(-total, kind="stable")[:_AT_MOST]
    likely: Floats = joint[order[total[order] >= min(_UNLIKELY, float(total.max()))]]
    return likely
