"""A range of commits to bisect: what is in it, whether it can be bisected at all, and its commits as a graph."""

import gzip
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bisector.core.errors import UserError
from bisector.core.subject import Commit
from bisector.git.repository import Repository
from bisector.search.graph import Mask, RangeGraph

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Range:
    """The commits that may be the first new one; ``first_parent`` and ``paths`` as for ``git bisect start``."""

    old: Commit
    new: Commit
    first_parent: bool = False
    paths: tuple[str, ...] = ()

    def limits(self, new: str, olds: Iterable[str]) -> tuple[str, ...]:
        """The arguments with which ``git rev-list`` lists what is left between commits known to be new and old."""
        return (*(("--first-parent",) if self.first_parent else ()), new, "--not", *olds, "--", *self.paths)

    @property
    def whole(self) -> tuple[str, ...]:
        """The :meth:`limits` of the whole range."""
        return self.limits(self.new.sha, (self.old.sha,))


def check_range(repository: Repository, wanted: Range) -> int:
    """The number of commits that may be the first new one; raises :class:`UserError` for an invalid range."""
    old, new = wanted.old, wanted.new
    if old.sha == new.sha:
        raise UserError(f"both ends are the same commit, {old.short} ({old.subject})")
    bases = repository.merge_bases(new.sha, old.sha)
    if not bases:
        if repository.shallow:
            raise _too_shallow(wanted)
        message = f"{old.short} and {new.short} have no common history"
        if not_followed := repository.not_followed:
            raise UserError(
                f"{message}: trees and commits are taken as they are, and {', '.join(not_followed)} is not followed",
                "make new commits of it: git filter-repo --force, in a clone",
            )
        raise UserError(message, "are both of one project?")
    if new.sha in bases:
        raise UserError(
            f"the ends are swapped: {new.short}, given as the new one, is an ancestor of {old.short}",
            f"give them the other way round: {new.short} {old.short}",
        )
    if repository.shallow:  # commits before one that lacks its parents would never be tried
        boundary = (repository.common_dir / "shallow").read_text(encoding="ascii").split()
        if not set(boundary).isdisjoint(repository.ask("rev-list", new.sha, f"^{old.sha}").lines):
            raise _too_shallow(wanted)
    # The commits exist, so git can only refuse the path limit here (pathspec magic, a path outside).
    answer = repository.ask("rev-list", *wanted.whole, ok=None if wanted.paths else (0,))
    limit = " ".join(wanted.paths)
    if answer.status != 0:
        raise UserError(f"git does not accept the path limit {limit!r}", "paths are from here, as for git")
    if not answer.lines:
        raise UserError(
            f"no commit between {wanted.old.short} and {wanted.new.short} touches {limit}",
            "paths are from the current directory, as for git; leave the limit out to search the whole range",
        )
    return len(answer.lines)


def to_skip(repository: Repository, wanted: Range, expression: str) -> tuple[str, ...]:
    """The hashes of a revision, or of ``A..B``, that can be skipped; raises :class:`UserError` if there are none."""
    between = repository.ask("rev-list", wanted.new.sha, f"^{wanted.old.sha}").lines
    inside = {*between, *repository.merge_bases(wanted.new.sha, wanted.old.sha)} - {wanted.old.sha, wanted.new.sha}
    named = repository.expand(expression)
    if found := tuple(sha for sha in named if sha in inside):
        return found
    if named in ((wanted.old.sha,), (wanted.new.sha,)):
        raise UserError(
            f"{expression!r} is an end of the range, which cannot be skipped", "bisector start with another end"
        )
    raise UserError(
        f"{expression!r} names no commit between {wanted.old.short} and {wanted.new.short}",
        f"git log --oneline {wanted.old.short}..{wanted.new.short} lists those that can be skipped",
    )


def expected_steps(candidates: Collection[str], new: str) -> int:
    """The number of trials that git most likely needs until one of ``candidates`` is known to be the first new commit.

    For n = 2^k + x candidates, 0 <= x < 2^k, it is k + 1 if 2^k < 3x and k otherwise; git shows one less, since it
    counts what is left after the present trial (``estimate_bisect_steps()`` in git's bisect.c). If a path limit leaves
    out ``new``, it counts as one more candidate: perhaps no commit that touches the paths is the first new one.
    """
    count = len(candidates) + (new not in candidates)
    power = count.bit_length() - 1
    return power + (2**power < 3 * (count - 2**power)) if count > 1 else 0


def graph_of_range(repository: Repository, wanted: Range) -> tuple[RangeGraph, tuple[str, ...]]:
    """The graph of the commits that may be the first new one, and their hashes by number, in order of date.

    The new end is last. With paths, the parents are those that git's history simplification leaves (git-rev-list(1)).
    """
    lines = repository.ask("rev-list", "--date-order", "--reverse", "--parents", *wanted.whole).lines
    known: dict[str, tuple[int, ...]] = {}
    numbers: dict[str, int] = {}
    for line in lines:
        sha, *parents = line.split()
        numbers[sha] = len(known)
        known[sha] = tuple(numbers[parent] for parent in parents if parent in numbers)
    if wanted.new.sha not in known:  # it touches none of the paths, but is known to be new all the same
        inner = {parent for row in known.values() for parent in row}
        known[wanted.new.sha] = tuple(number for number in range(len(numbers)) if number not in inner)
    return RangeGraph.of(tuple(known.values())), tuple(known)


@dataclass(frozen=True, slots=True, eq=False)
class SearchRange:
    """A range as a graph, and the hashes of its commits by number.

    ``suspects`` are the commits that touch the suspected paths. If ``outside`` is true, the new end touches none of the
    range's paths, and stands for all commits that do not touch them.
    """

    graph: RangeGraph
    shas: tuple[str, ...]
    numbers: Mapping[str, int]
    suspects: Mask
    outside: bool = False

    @classmethod
    def of(cls, repository: Repository, wanted: Range, suspects: Sequence[str]) -> "SearchRange":
        """The search range of a checked range; ``suspects`` are the suspected paths, if any."""
        graph, shas = graph_of_range(repository, wanted)
        numbers = {sha: number for number, sha in enumerate(shas)}
        mask = np.zeros(len(shas), dtype=np.bool_)
        if suspects:
            # All commits that touch the paths, on every branch (git-rev-list(1), "Full history"). Merges count only
            # with first_parent: there a merge stands for all that it brings.
            merges = "--first-parent" if wanted.first_parent else "--no-merges"
            words = (merges, "--full-history", wanted.new.sha, "--not", wanted.old.sha, "--", *suspects)
            for sha in numbers.keys() & set(repository.ask("rev-list", *words).lines):
                mask[numbers[sha]] = True
        outside = wanted.new.sha not in repository.ask("rev-list", *wanted.whole).lines
        return cls(graph, shas, numbers, mask, outside)

    def is_outside(self, number: int) -> bool:
        """Whether a number stands for the commits that touch none of the range's paths."""
        return self.outside and number == self.graph.tip


def check_suspects(repository: Repository, suspects: Sequence[str], new: Commit) -> None:
    """Raise :class:`UserError` for suspected paths that git does not accept."""
    if suspects and repository.ask("rev-list", "--no-walk", new.sha, "--", *suspects, ok=None).status != 0:
        raise UserError(
            f"git does not accept the suspected paths {' '.join(suspects)!r}",
            "bisect.suspect: paths are relative to the top of the tree",
        )


def remarks(repository: Repository, wanted: Range, suspects: Iterable[str]) -> Iterator[str]:
    """Sentences that warn about a valid range: ends on two branches, or a suspected path that nothing touches."""
    old, new = wanted.old, wanted.new
    bases = repository.merge_bases(new.sha, old.sha)
    if old.sha not in bases:
        named = " and ".join(f"{base.short} ({base.subject})" for base in repository.commits(bases))
        yield f"{old.short} is not an ancestor of {new.short}: their merge base is tried first, {named}"
    for path in suspects:
        words = ("-1", "--full-history", new.sha, "--not", old.sha, "--", path)
        if not repository.ask("rev-list", *words).lines:
            yield f"no commit between {old.short} and {new.short} touches the suspected path {path}"


def read_graph(path: Path) -> RangeGraph:
    """Read a graph, plain or gzip: a line per commit, oldest first, with its number and then its parents' numbers."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw.startswith(_GZIP) else raw).decode("ascii")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise UserError(f"the graph {path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        words = [line.split() for line in text.splitlines()]
        if any(not all(map(str.isdigit, line)) or line[:1] != [str(n)] for n, line in enumerate(words)):
            raise ValueError("a line begins with its own number, from 0, and has only numbers")  # noqa: TRY301 - reported below
        return RangeGraph.of([tuple(map(int, line[1:])) for line in words])
    except ValueError as error:
        raise UserError(
            f"{path} is not a graph of commits: {error}",
            "a line per commit, oldest first: its number, then its parents' numbers",
        ) from error


def _too_shallow(wanted: Range) -> UserError:
    return UserError(
        f"this is a shallow clone, and it lacks history between {wanted.old.short} and {wanted.new.short}",
        "git fetch --unshallow, or less: git fetch --shallow-exclude=TAG with a tag before the old end",
    )
