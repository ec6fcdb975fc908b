"""One host of a made-up world: its clock, what it has built, and what it has measured."""

from dataclasses import dataclass
from statistics import fmean
from typing import Self

from bisector.core.verdict import Verdict
from bisector.search.apart import InTurn
from bisector.search.building import Build, Builds
from bisector.search.graph import Mask, RangeGraph
from bisector.search.likelihood import Line, Scale
from bisector.search.readings import OLD_END, Reading


@dataclass(slots=True, eq=False)
class Host:
    """A host that has measured both ends by whole runs.

    ``minutes`` is its clock, of which it was idle for ``waited_min``. ``tree`` are the commits of the tree that it
    built last, None before its first build, ``built_min`` when that was done, and ``ahead_min`` what it has done of its
    next build already. ``whole`` are the sides that whole runs of commits showed on it. All its figures are the
    exponential of ``offset`` times as large as those of the first host; ``ends`` are the first readings of both ends,
    and ``line`` is between them.
    """

    builds: Builds
    tree: Mask | None
    whole: dict[int, Verdict]
    minutes: float = 0.0
    waited_min: float = 0.0
    built_min: float = 0.0
    ahead_min: float = 0.0
    name: str = ""
    offset: float = 0.0
    ends: tuple[Reading, ...] = ()
    line: float = 0.0

    @property
    def scale(self) -> Scale | None:
        """What its figures are seen against; None without any."""
        rows = [[score for is_new, score in self.in_turn if is_new is new] for new in (False, True)]
        return Scale((fmean(rows[0]), fmean(rows[1])), Line(self.line)) if all(rows) else None

    @property
    def in_turn(self) -> InTurn:
        """The figures of both ends: whether of the new one, and its score."""
        return [(one.commit != OLD_END, one.score) for one in self.ends if one.score is not None]

    @classmethod
    def first(cls, graph: RangeGraph, builds: Builds, build_min: float) -> Self:
        """That which built both ends, the new one last."""
        has_all = graph.ancestors(graph.tip)
        for has in (~has_all, has_all):
            builds = builds.after(Build(has, build_min))
        return cls(builds, has_all, _ends(graph))

    @classmethod
    def further(cls, graph: RangeGraph, builds: Builds, idle_min: float, name: str) -> Self:
        """One that was given the kernels of both ends, and began its first build while others built these."""
        return cls(builds, None, _ends(graph), ahead_min=idle_min, name=name)

    def wait(self, until_min: float) -> None:
        """Be idle until then."""
        self.waited_min += until_min - self.minutes
        self.minutes = until_min


def _ends(graph: RangeGraph) -> dict[int, Verdict]:
    return {OLD_END: Verdict.OLD, graph.tip: Verdict.NEW}
