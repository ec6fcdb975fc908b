"""What a search stands on and what does not change while it lasts: the commits of a range, and the suspects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bisector.core.commit import Commit
from bisector.core.errors import UserError
from bisector.git.ranges import Range, graph_of_range
from bisector.git.repository import Repository
from bisector.search.graph import Mask, RangeGraph


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """A range as a graph, and the hashes of its commits by number.

    ``suspects`` are the commits that touch the suspected paths. ``outside`` tells that the new end
    touches none of the range's paths, and stands for all commits that do not.
    """

    graph: RangeGraph
    shas: tuple[str, ...]
    numbers: Mapping[str, int]
    suspects: Mask
    outside: bool = False

    @classmethod
    def of(cls, repository: Repository, wanted: Range, suspects: Sequence[str]) -> "Ground":
        """Of a range that was checked, under the suspicion of some paths (none: of nobody)."""
        graph, shas = graph_of_range(repository, wanted)
        numbers = {sha: number for number, sha in enumerate(shas)}
        mask = np.zeros(len(shas), dtype=np.bool_)
        for sha in _touching(repository, wanted, suspects):
            if sha in numbers:
                mask[numbers[sha]] = True
        limited = repository.ask("rev-list", *wanted.limits(wanted.new.sha, (wanted.old.sha,))).lines
        return cls(graph, shas, numbers, mask, outside=wanted.new.sha not in limited)

    def is_outside(self, number: int) -> bool:
        """Whether a number stands for the commits that touch none of the range's paths."""
        return self.outside and number == self.graph.tip


def check_suspects(repository: Repository, suspects: Sequence[str], new: Commit) -> None:
    """Raise :class:`UserError` for paths that git does not take."""
    if suspects and repository.ask("rev-list", "--no-walk", new.sha, "--", *suspects, ok=None).status != 0:
        raise UserError(
            f"git does not accept the suspected paths {' '.join(suspects)!r}",
            "bisect.suspect: paths are relative to the top of the tree",
        )


def _touching(repository: Repository, wanted: Range, paths: Sequence[str]) -> tuple[str, ...]:
    """All commits that touch the paths, on every branch (git-rev-list(1), "Full history"); merges bring, and do not."""
    if not paths:
        return ()
    first_parent = ("--first-parent",) if wanted.first_parent else ("--no-merges",)
    words = (*first_parent, "--full-history", wanted.new.sha, "--not", wanted.old.sha, "--", *paths)
    return repository.ask("rev-list", *words).lines
