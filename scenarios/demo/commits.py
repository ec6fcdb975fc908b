"""The demonstration's commits: a table of small edits, and how they become a history with branches and merges.

Keys of a commit: ``line`` (branch, "main" if none is named), ``from`` (key of the commit its line starts at), ``merge``
(line that is merged), ``undo`` (key of the commit that is taken back), ``tag``, and ``effect``: ``code`` changes the
kernel, ``none`` touches nothing it is built from, ``no-build`` and ``panic`` say what becomes of it, ``merge`` brings
what its line has.
"""

import hashlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bisector.core.errors import UserError

EDITS = Path(__file__).parent / "edits" / "commits.toml"
MAIN = "main"
FIRST_MARK = 1


@dataclass(frozen=True, slots=True)
class Edit:
    """A text that stands once in a file, and what it becomes; no old text means the end of the file."""

    path: str
    old: bytes
    new: bytes

    def apply(self, content: bytes) -> bytes:
        """The edited file; raises :class:`UserError` when the text is not there exactly once."""
        if not self.old:
            return content + self.new
        if (count := content.count(self.old)) != 1:
            anchor = self.old.decode().strip().splitlines()[0]
            raise UserError(
                f"{self.path}: {anchor!r} stands there {count} times, not once",
                "the demonstration knows Linux 6.1 and 6.12; give one of them with --tarball",
            )
        return content.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit as the table has it."""

    subject: str
    effect: str
    line: str = MAIN
    key: str = ""
    base: str = ""
    merge: str = ""
    undo: str = ""
    tag: str = ""
    body: str = ""
    edits: tuple[Edit, ...] = ()

    @property
    def taken_back(self) -> tuple[Edit, ...]:
        """The edits that take this commit back."""
        return tuple(Edit(edit.path, edit.new, edit.old) for edit in reversed(self.edits))

    @property
    def alone(self) -> "Entry":
        """This commit without its place in the table: on the main line, and without a tag."""
        return replace(self, line=MAIN, base="", tag="")


@dataclass(frozen=True, slots=True)
class Step:
    """A commit to be written: its mark and its parents', the files that differ from the first parent's.

    ``kernel`` is the same for commits whose kernels are built from the same text.
    """

    entry: Entry
    mark: int
    parents: tuple[int, ...]
    files: Mapping[str, bytes]
    kernel: str


@dataclass(slots=True)
class _Line:
    """How far a branch has come: its tip, its files, the entries it holds."""

    tip: int
    files: dict[str, bytes]
    entries: list[Entry] = field(default_factory=list)

    def fork(self) -> "_Line":
        return _Line(self.tip, dict(self.files), list(self.entries))


def load_entries(text: str) -> tuple[Entry, ...]:
    """The table, in order; an ``undo`` becomes the edits that take the named commit back."""
    entries: list[Entry] = []
    for row in tomllib.loads(text)["commit"]:
        edits = tuple(_edit(edit) for edit in row.pop("edit", ()))
        if "undo" in row:
            edits = next(entry for entry in entries if entry.key == row["undo"]).taken_back
        entries.append(Entry(base=row.pop("from", ""), edits=edits, **row))
    return tuple(entries)


def touched_paths(entries: Sequence[Entry]) -> frozenset[str]:
    """Every file that some commit edits."""
    return frozenset(edit.path for entry in entries for edit in entry.edits)


def plan(entries: Sequence[Entry], originals: Mapping[str, bytes]) -> Iterator[Step]:
    """The commits after the first, each with its parents and its changed files."""
    built = {edit.path for entry in entries if entry.effect != "none" for edit in entry.edits}
    lines = {MAIN: _Line(FIRST_MARK, dict(originals))}
    starts: dict[str, _Line] = {}
    for mark, entry in enumerate(entries, start=FIRST_MARK + 1):
        if entry.base:
            lines[entry.line] = starts[entry.base].fork()
        line = lines[entry.line]
        taken, parents = [entry], [line.tip]
        if entry.merge:
            other = lines[entry.merge]
            taken += [theirs for theirs in other.entries if theirs not in line.entries]
            parents.append(other.tip)
        files = dict(line.files)
        for edit in (edit for one in taken for edit in one.edits):
            files[edit.path] = edit.apply(files[edit.path])
        changed = {path: content for path, content in files.items() if content != line.files[path]}
        lines[entry.line] = _Line(mark, files, line.entries + taken)
        if entry.key:
            starts[entry.key] = lines[entry.line].fork()
        yield Step(entry, mark, tuple(parents), changed, digest(*(files[path] for path in sorted(built))))


def _edit(row: Mapping[str, str]) -> Edit:
    return Edit(row["path"], row.get("old", "").encode(), (row["new"] if "old" in row else row["append"]).encode())


def digest(*parts: bytes) -> str:
    """A short name of some contents."""
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
