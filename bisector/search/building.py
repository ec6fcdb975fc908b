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
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bisector.search.graph import Floats, Mask, RangeGraph

# Of a commit that can matter, of which nobody knows what it makes again.
UNKNOWN_SHARE = 0.02
# Of the smallest configuration, on two cores: 17 s for a file that changed, 49 s for everything while ccache has all of
# it, and 236 to 280 s while it has nothing (docs/kernels.md).
_LEAST_SHARE = 17 / 280
ALL_CACHED_SHARE = 49 / 236
_MOST = 0.99  # of a build; of all the logarithm is infinite


@dataclass(frozen=True, slots=True, eq=False)
class Build:
    """One that was made, after the ones before it: which commits of the range its sources have, and its minutes.

    ``family`` names what it was made of besides: builds of one family have compiler and configuration in common.
    """

    has: Mask
    minutes: float
    family: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Builds:
    """What is known after some builds of a range.

    ``work`` is what each commit makes again, in a measure that adds up over commits that know nothing of each other.
    ``shares`` are what was compiled of each build, and made again. A row of ``apart`` has, for a build, the work of the
    commits that each commit or the build has and the other not, one of ``common`` how many commits both have.
    """

    graph: RangeGraph
    work: Floats
    made: tuple[Build, ...] = ()
    shares: tuple[tuple[float, float], ...] = ()
    apart: tuple[Floats, ...] = ()
    common: tuple[Floats, ...] = ()

    @classmethod
    def none(cls, graph: RangeGraph, again: Floats) -> Self:
        """Before the first; ``again`` has the share of a build that each commit makes again.

        What a merge has, its parents have.
        """
        return cls(graph, np.where(graph.merges, 0.0, -np.log1p(-np.minimum(again, _MOST))))

    def after(self, build: Build) -> Self:
        """The same after one more."""
        graph, work, has = self.graph, self.work, build.has
        # The difference of two sums, which is never less than nothing.
        apart = np.maximum(graph.mass(np.where(has, -work, work)) + work[has].sum(), 0.0)
        return replace(
            self,
            made=(*self.made, build),
            shares=(*self.shares, self._shares(build)),
            apart=(*self.apart, apart),
            common=(*self.common, np.round(graph.mass(has.astype(np.float64)))),
        )

    def expected(self) -> Floats | None:
        """Minutes of the next build, were it of each commit; None before the first build, which is of everything."""
        if not self.made:
            return None
        least, compiling, reading = _fitted(np.array(self.shares), np.array([one.minutes for one in self.made]))
        compiled, made = self.next_shares()
        found: Floats = least + compiling * compiled + reading * made
        return found

    def next_shares(self) -> tuple[Floats, Floats]:
        """The shares of the next build that are compiled, and made again, were it of each commit.

        One is taken to be of the family of the build that is nearest to it.
        """
        apart, common = np.array(self.apart), np.array(self.common)
        older = common == np.array([np.count_nonzero(one.has) for one in self.made])[:, None]
        families = np.unique([one.family for one in self.made], return_inverse=True)[1]
        alike = families[apart.argmin(axis=0)] == families[:, None]
        made = np.where(alike[-1], -np.expm1(-apart[-1]), 1.0)
        sides = [np.where(alike & side, apart, np.inf) for side in (older, ~older)]
        one, other = (-np.expm1(-side.min(axis=0)) for side in sides)
        # A tree that has all of a commit's differs from it by newer ones alone, which no older tree has.
        beside = alike & ~older & (common < np.round(self.graph.mass(np.ones(len(self.graph)))))
        return share_of_both(one, other, self._of_both(sides, beside)), made

    def _of_both(self, sides: Sequence[Floats], beside: NDArray[np.bool_]) -> Floats:
        """What the commits make again that each commit has, and neither of the trees has that are nearest to it.

        Only where the one that is not older is ``beside`` the commit can there be any.
        """
        found, count = np.zeros(len(self.graph)), len(self.made)
        older, other = (side.argmin(axis=0) for side in sides)
        every = np.arange(len(self.graph))
        both = np.isfinite(sides[0][older, every]) & beside[other, every]
        pairs = older * count + other
        for pair in np.flatnonzero(np.bincount(pairs[both])):
            mine = both & (pairs == pair)
            neither = ~(self.made[pair // count].has | self.made[pair % count].has)
            found[mine] = -np.expm1(-self.graph.mass(self.work * neither)[mine])
        return found

    def _shares(self, build: Build) -> tuple[float, float]:
        """The shares of one more build: compiled, and made again."""
        work, alike = self.work, [one.has for one in self.made if one.family == build.family]
        if not alike:
            return 1.0, 1.0
        last = self.made[-1]
        made = _share(work, last.has ^ build.has) if last.family == build.family else 1.0
        apart = tuple(nearest_trees(build.has, alike, lambda commits: _share(work, commits)))
        each = [_share(work, commits) for commits in apart]
        return float(share_of_both(each[0], each[-1], _share(work, apart[0] & apart[-1]))), made


def expected_builds(graph: RangeGraph, again: Floats, builds: Iterable[Build]) -> Floats | None:
    """Minutes of the next build after these, were it of each commit: see :meth:`Builds.expected`.

    ``again`` has the share of a build that each commit makes again.
    """
    return reduce(Builds.after, builds, Builds.none(graph, again)).expected()


def nearest_trees(has: Mask, trees: Iterable[Mask], share: Callable[[Mask], float]) -> Iterator[Mask]:
    """What one differs by from the nearest tree of older commits alone, and from the nearest of all others.

    There is none where no tree is of that kind. ``share`` says how much of a build such commits make again.
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


def _share(work: Floats, commits: Mask) -> float:
    return float(-np.expm1(-work[commits].sum()))


def _fitted(shares: Floats, minutes: Floats) -> Floats:
    """Least squares, none below 0.

    Three builds are added that nobody made: of next to nothing, of everything that ccache has, and of everything.
    """
    first = minutes[0]
    shares = np.vstack((shares, (0.0, 0.0), (0.0, 1.0), (1.0, 1.0)))
    minutes = np.append(minutes, (first * _LEAST_SHARE, first * ALL_CACHED_SHARE, first))
    table, used = np.insert(shares, 0, 1.0, axis=1), np.ones(3, dtype=np.bool_)
    while True:
        found = np.zeros(3)
        found[used] = np.linalg.lstsq(table[:, used], minutes, rcond=None)[0]
        if (found >= 0).all():
            return found
        used &= found >= 0
