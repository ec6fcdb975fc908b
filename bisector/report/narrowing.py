"""How the range narrowed as it is drawn: after each trial, where in the range the change was believed to be."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.graph import Floats
from bisector.search.posterior import Posterior

# More columns are no more to see.
_MOST_PARTS = 200


@dataclass(frozen=True, slots=True)
class After:
    """What all readings up to trial ``n`` say.

    ``tested`` is the number of its commit in the range, None where it has none there; ``mass`` is the probability in
    each part of the range, ``likely`` how many commits have the target's probability together.
    """

    n: int
    tested: int | None
    verdict: Verdict
    mass: tuple[float, ...]
    likely: int
    best: int
    probability: float


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The trials since both ends were measured, over a range of ``commits``, oldest first, cut at ``edges``."""

    title: str
    commits: int
    edges: tuple[int, ...]
    target: float
    steps: tuple[After, ...]
    words: tuple[tuple[Verdict, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """The posterior after a trial."""

    n: int
    tested: int | None
    verdict: Verdict
    posterior: Posterior


def narrowing(
    title: str, beliefs: Iterable[Belief], target: float, words: tuple[tuple[Verdict, str], ...]
) -> Narrowing | None:
    """The beliefs in the order of measuring; None when there is none."""
    beliefs = tuple(beliefs)
    if not beliefs:
        return None
    commits = len(beliefs[0].posterior.p)
    parts = min(commits, _MOST_PARTS)
    edges = tuple(commits * part // parts for part in range(parts + 1))
    return Narrowing(title, commits, edges, target, tuple(_after(one, edges, target) for one in beliefs), words)


def _after(belief: Belief, edges: tuple[int, ...], target: float) -> After:
    p: Floats = belief.posterior.p
    mass = np.add.reduceat(p, edges[:-1])
    best = belief.posterior.best
    return After(
        n=belief.n,
        tested=belief.tested,
        verdict=belief.verdict,
        mass=tuple(np.round(mass, 9).tolist()),
        likely=len(belief.posterior.smallest_set(target)),
        best=best,
        probability=round(float(p[best]), 9),
    )
