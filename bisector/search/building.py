"""How long the next build takes, of each commit: what of it is made again, and what builds have taken so far.

make compiles again what differs between the tree that was built last and the next one, or everything, where another
compiler comes before it. The commits between the two say how much of a build that is: each makes a share of it again,
and the shares of commits that know nothing of each other add up as logarithms. So minutes = least + slope * share.
Least and slope are fitted to the builds so far, with two more at which the first one, of everything, stands for what is
not known yet. Kernels that are kept take nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bisector.search.graph import Floats, Mask, RangeGraph

# Of a commit that can matter, of which nobody knows what it makes again.
UNKNOWN_SHARE = 0.02
# Of the smallest configuration, on two cores: 17 s for a file that changed, 280 s for everything.
_LEAST_SHARE = 17 / 280
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
    work = -np.log1p(-np.minimum(again, _MOST))
    work[graph.merges] = 0.0  # what a merge has, its parents have
    shares = [1.0, *(_between(work, before, one) for before, one in pairwise(builds))]
    least, slope = _fitted(np.array(shares), np.array([one.minutes for one in builds]))
    found: Floats = least + slope * _next(graph, work, builds)
    return found


def _between(work: Floats, before: Build, after: Build) -> float:
    if before.family != after.family:
        return 1.0
    return float(-np.expm1(-work[before.has ^ after.has].sum()))


def _next(graph: RangeGraph, work: Floats, builds: Sequence[Build]) -> Floats:
    """The share of each commit's build. One is taken to be of the family of the build that is nearest to it."""
    mass, last = graph.mass(work), builds[-1]

    def apart(build: Build) -> Floats:
        """What all commits that one of the two has, and the other not, make again; never less than nothing."""
        one_alone: Floats = np.maximum(mass + work[build.has].sum() - 2 * graph.mass(work * build.has), 0.0)
        return one_alone

    share: Floats = -np.expm1(-apart(last))
    others = [one for one in builds if one.family != last.family]
    if others:
        own = np.min([apart(one) for one in builds if one.family == last.family], axis=0)
        share[np.min([apart(one) for one in others], axis=0) < own] = 1.0
    return share


def _fitted(share: Floats, minutes: Floats) -> tuple[float, float]:
    """Least squares; two builds are added that nobody made: of next to nothing, and of everything."""
    x = np.append(share, (0.0, 1.0))
    y = np.append(minutes, (minutes[0] * _LEAST_SHARE, minutes[0]))
    centred = x - x.mean()
    slope = max(0.0, float(centred @ (y - y.mean()) / (centred @ centred)))
    least = float(y.mean() - slope * x.mean())
    return max(0.0, least), slope
