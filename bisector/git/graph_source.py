"""Where the graph of a range comes from: a repository, or a file with nothing but the shape of one."""

import gzip
import zlib
from pathlib import Path

from bisector.core.errors import UserError
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.search.graph import RangeGraph

_GZIP = b"\x1f\x8b"


def graph_of_range(repository: Repository, wanted: Range) -> tuple[RangeGraph, tuple[str, ...]]:
    """The graph of the commits that may be the first new one, and their hashes by number, by date; the new end is last.

    With paths the parents are those that git's history simplification leaves (git-rev-list(1)).
    """
    words = wanted.limits(wanted.new.sha, (wanted.old.sha,))
    lines = repository.ask("rev-list", "--date-order", "--reverse", "--parents", *words).lines
    known: dict[str, tuple[int, ...]] = {}
    numbers: dict[str, int] = {}
    for line in lines:
        sha, *parents = line.split()
        numbers[sha] = len(known)
        known[sha] = tuple(numbers[parent] for parent in parents if parent in numbers)
    if wanted.new.sha not in known:  # it touches none of the paths, and is known to be new all the same
        inner = {parent for row in known.values() for parent in row}
        known[wanted.new.sha] = tuple(number for number in range(len(numbers)) if number not in inner)
    return RangeGraph.of(tuple(known.values())), tuple(known)


def read_graph(path: Path) -> RangeGraph:
    """The graph in a file, plain or gzip: a line per commit, oldest first, with its number and its parents' numbers.

    The last line is the new end. Raises :class:`UserError` for a file that is no such thing.
    """
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw.startswith(_GZIP) else raw).decode("ascii")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise UserError(f"the graph {path} cannot be read: {error}") from error
    try:
        return RangeGraph.of(_numbered(text))
    except ValueError as error:
        raise UserError(
            f"{path} is no graph of commits: {error}",
            "a line per commit, oldest first: its number, then its parents' numbers",
        ) from error


def _numbered(text: str) -> list[tuple[int, ...]]:
    rows = [tuple(int(word) for word in line.split()) for line in text.splitlines()]
    if any(not row or row[0] != number for number, row in enumerate(rows)):
        raise ValueError("each line begins with its own number, counted from 0")
    return [row[1:] for row in rows]
