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

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Self

import numpy as np

from bisector.search.graph import Floats, Mask, Numbers, RangeGraph

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
class _Nearest:
    """Of each commit the nearest tree of a kind: the work by which they differ (inf without one), and its number."""

    work: Floats
    number: Numbers

    @classmethod
    def none(cls, count: int) -> Self:
        return cls(np.full(count, np.inf), np.zeros(count, dtype=np.intp))

    def after(self, work: Floats, number: int, among: Mask) -> Self:
        """The same after a tree that is of the kind for the commits ``among``; of two as near the older one counts."""
        nearer = among & (work < self.work)
        return type(self)(np.where(nearer, work, self.work), np.where(nearer, number, self.number))


@dataclass(frozen=True, slots=True, eq=False)
class _Family:
    """Of each commit the nearest tree of a family that has older commits alone, and the nearest of the others.

    ``beside`` tells whether the latter has not all of the commit's.
    """

    older: _Nearest
    other: _Nearest
    beside: Mask

    @classmethod
    def none(cls, count: int) -> Self:
        nearest = _Nearest.none(count)
        return cls(nearest, nearest, np.zeros(count, dtype=np.bool_))

    def after(self, work: Floats, number: int, older: Mask, beside: Mask) -> Self:
        """The same after one more tree."""
        other = self.other.after(work, number, ~older)
        return type(self)(
            self.older.after(work, number, older), other, np.where(other.number == number, beside, self.beside)
        )

    @property
    def work(self) -> Floats:
        """That by which each commit differs from the nearest of all its trees."""
        return np.minimum(self.older.work, self.other.work)


@dataclass(frozen=True, slots=True, eq=False)
class Builds:
    """What is known after some builds of a range.

    ``work`` is what each commit makes again, in a measure that adds up over commits that know nothing of each other.
    ``shares`` are what was compiled of each build, and made again, ``apart`` the work of the commits that each commit
    or the last build has and the other not, ``families`` the nearest trees by family. ``in_neither`` keeps, for pairs
    of trees, how much of the commits that neither has each commit makes again.
    """

    graph: RangeGraph
    work: Floats
    made: tuple[Build, ...] = ()
    shares: tuple[tuple[float, float], ...] = ()
    apart: Floats | None = None
    families: Mapping[str, _Family] = field(default_factory=dict)
    in_neither: dict[tuple[Build, Build], Floats] = field(default_factory=dict)

    @classmethod
    def none(cls, graph: RangeGraph, again: Floats) -> Self:
        """Before the first; ``again`` has the share of a build that each commit makes again.

        What a merge has, its parents have.
        """
        return cls(graph, np.where(graph.merges, 0.0, -np.log1p(-np.minimum(again, _MOST))))

    def after(self, build: Build) -> Self:
        """The same after one more."""
        graph, work, has, number = self.graph, self.work, build.has, len(self.made)
        # The difference of two sums, which is never less than nothing.
        apart = np.maximum(graph.mass(np.where(has, -work, work)) + work[has].sum(), 0.0)
        common = np.round(graph.mass(has.astype(np.float64)))
        older = common == np.count_nonzero(has)
        # A tree that has all of a commit's differs from it by newer ones alone, which no older tree has.
        beside = ~older & (common < graph.sizes)
        family = self.families.get(build.family) or _Family.none(len(graph))
        return replace(
            self,
            made=(*self.made, build),
            shares=(*self.shares, self._shares(build)),
            apart=apart,
            families={**self.families, build.family: family.after(apart, number, older, beside)},
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

        One is taken to be of the family of the build that is nearest to it, of several that of the last build.
        """
        names = sorted(self.families, key=lambda name: name != self.made[-1].family)
        nearest = np.argmin([self.families[name].work for name in names], axis=0)
        compiled, made = np.ones(len(self.graph)), np.ones(len(self.graph))
        for place, name in enumerate(names):
            family, mine = self.families[name], nearest == place
            compiled[mine] = self._compiled(family, mine)[mine]
            if name == self.made[-1].family and self.apart is not None:
                made[mine] = -np.expm1(-self.apart[mine])
        return compiled, made

    def _compiled(self, family: _Family, mine: Mask) -> Floats:
        """The share that is compiled of each commit that is ``mine``, after the trees of a family."""
        one, other = (-np.expm1(-side.work) for side in (family.older, family.other))
        return share_of_both(one, other, self._of_both(family, mine))

    def _of_both(self, family: _Family, mine: Mask) -> Floats:
        """What the commits make again that each commit has, and neither of the trees has that are nearest to it.

        Only where the one that is not older is beside the commit can there be any.
        """
        found, count = np.zeros(len(self.graph)), len(self.made)
        both = mine & np.isfinite(family.older.work) & np.isfinite(family.other.work) & family.beside
        pairs = family.older.number * count + family.other.number
        for pair in np.flatnonzero(np.bincount(pairs[both])):
            these = both & (pairs == pair)
            found[these] = self._in_neither(self.made[pair // count], self.made[pair % count])[these]
        return found

    def _in_neither(self, one: Build, other: Build) -> Floats:
        """The share of a build that the commits make again that each commit has and neither of two trees."""
        if (one, other) not in self.in_neither:
            self.in_neither[one, other] = -np.expm1(-self.graph.mass(self.work * ~(one.has | other.has)))
        return self.in_neither[one, other]

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
