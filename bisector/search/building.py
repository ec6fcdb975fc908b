"""How long the next build takes, of each commit: what of it is made again, and what builds have taken so far.

make makes again what differs between the tree that was built last and the next one, or everything, where another
compiler comes before it. ccache has every object that was ever compiled, so that of these only the ones are compiled
that differ from *each* tree that was built: after two commits on both sides of it, a commit between them compiles what
was changed on either side. The commits between two trees say how much of a build differs: each makes a share of it
again, and the shares of commits that know nothing of each other add up as logarithms. So

    minutes = least + compiling * share compiled + reading * share made again.

These three are fitted to the builds so far, with three more at which the first one, of everything, stands for what is
not known yet. Where ccache is missing the builds say so, and ``reading`` grows. Kernels that are kept take nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bisector.search.graph import Floats, Mask, RangeGraph

# Of a commit that can matter, of which nobody knows what it makes again.
UNKNOWN_SHARE = 0.02
# Of the smallest configuration, on two cores: 17 s for a file that changed, 49 s for everything while ccache has all of
# it, and 236 to 280 s while it has nothing (docs/kernels.md).
_LEAST_SHARE = 17 / 280
CACHED_SHARE = 49 / 236
_MOST = 0.99  # of a build; of all the logarithm is infinite


@dataclass(frozen=True, slots=True, eq=False)
class Build:
    """One that was made, after the ones before it: which commits of the range its sources have, and its minutes.

    ``family`` names what it was made of besides: builds of one family have compiler and configuration in common.
    """

    has: Mask
    minutes: float
    family: str = ""


def expected_builds(graph: RangeGraph, again: Floats, builds: Sequence[Build]) -> Floats | None:
    """Minutes of the next build, were it of each commit; None before the first build, which is of everything.

    ``again`` has the share of a build that each commit makes again.
    """
    if not builds:
        return None
    work = work_of(graph, again)
    shares = np.array([_shares(work, one, builds[:place]) for place, one in enumerate(builds)])
    least, compiling, reading = _fitted(shares, np.array([one.minutes for one in builds]))
    compiled, made = shares_of_next(graph, work, builds)
    found: Floats = least + compiling * compiled + reading * made
    return found


def work_of(graph: RangeGraph, again: Floats) -> Floats:
    """What each commit makes again, in a measure that adds up over commits that know nothing of each other.

    What a merge has, its parents have.
    """
    return np.where(graph.merges, 0.0, -np.log1p(-np.minimum(again, _MOST)))


def nearest_trees(has: Mask, trees: Iterable[Mask], share: Callable[[Mask], float]) -> Iterator[Mask]:
    """What one differs by from the nearest tree of older commits alone, and from the nearest of all others.

    There is none where no tree is of that kind.

    ``share`` says how much of a build such commits make again.
    """
    sides: dict[bool, list[Mask]] = {True: [], False: []}
    for tree in trees:
        sides[not (tree & ~has).any()].append(tree ^ has)
    yield from (min(apart, key=share) for apart in sides.values() if apart)


def share_of_both(one: Floats | float, other: Floats | float, common: Floats | float) -> Floats:
    """The share of a build that two sets of commits both make again; the commits that they have in common, ``common``.

    ``one`` and ``other`` are the shares that each makes. What the others of one set do knows nothing of what those of
    the other set do.
    """
    both: Floats = common + (one - common) * (other - common) / np.maximum(1 - common, 1 - _MOST)
    return both


def _shares(work: Floats, build: Build, before: Sequence[Build]) -> tuple[float, float]:
    """The shares of a build that was made after others: compiled, and made again."""
    alike = [one.has for one in before if one.family == build.family]
    if not alike:
        return 1.0, 1.0
    made = _share(work, before[-1].has ^ build.has) if before[-1].family == build.family else 1.0
    apart = tuple(nearest_trees(build.has, alike, lambda commits: _share(work, commits)))
    each = [_share(work, commits) for commits in apart]
    return float(share_of_both(each[0], each[-1], _share(work, apart[0] & apart[-1]))), made


def _share(work: Floats, commits: Mask) -> float:
    return float(-np.expm1(-work[commits].sum()))


def shares_of_next(graph: RangeGraph, work: Floats, builds: Sequence[Build]) -> tuple[Floats, Floats]:
    """The shares of the next build that are compiled, and made again, were it of each commit.

    One is taken to be of the family of the build that is nearest to it.
    """
    mass, has = graph.mass(work), np.array([one.has for one in builds])
    # The work of the commits that one of two trees has, and the other not; never less than nothing.
    apart = np.array([np.maximum(mass + work[each].sum() - 2 * graph.mass(work * each), 0.0) for each in has])
    older = np.array([np.round(graph.mass(each.astype(np.float64))) == np.count_nonzero(each) for each in has])
    families = np.unique([one.family for one in builds], return_inverse=True)[1]
    alike = families[apart.argmin(axis=0)] == families[:, None]
    made = np.where(alike[-1], -np.expm1(-apart[-1]), 1.0)
    sides = [np.where(alike & side, apart, np.inf) for side in (older, ~older)]
    one, other = (-np.expm1(-side.min(axis=0)) for side in sides)
    return share_of_both(one, other, _common(graph, work, has, sides)), made


def _common(graph: RangeGraph, work: Floats, has: NDArray[np.bool_], sides: Sequence[Floats]) -> Floats:
    """What the commits make again that each commit has, and neither of the trees has that are nearest to it."""
    common = np.zeros(len(graph))
    nearest, known = (np.stack(each) for each in ([s.argmin(axis=0) for s in sides], [s.min(axis=0) for s in sides]))
    both = np.isfinite(known).all(axis=0)
    for pair in np.unique(nearest[:, both], axis=1).T:
        mine = both & (nearest == pair[:, None]).all(axis=0)
        common[mine] = -np.expm1(-graph.mass(work * ~has[pair].any(axis=0))[mine])
    return common


def _fitted(shares: Floats, minutes: Floats) -> Floats:
    """Least squares, none below 0.

    Three builds are added that nobody made: of next to nothing, of everything that ccache has, and of everything.
    """
    first = minutes[0]
    shares = np.vstack((shares, (0.0, 0.0), (0.0, 1.0), (1.0, 1.0)))
    minutes = np.append(minutes, (first * _LEAST_SHARE, first * CACHED_SHARE, first))
    table, used = np.insert(shares, 0, 1.0, axis=1), np.ones(3, dtype=np.bool_)
    while True:
        found = np.zeros(3)
        found[used] = np.linalg.lstsq(table[:, used], minutes, rcond=None)[0]
        if (found >= 0).all():
            return found
        used &= found >= 0
