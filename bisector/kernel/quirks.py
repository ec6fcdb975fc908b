"""What old trees need to be built with new tools, decided by the source and not by its version.

A bisection meets trees between releases, with backports and reverts, where a version says nothing:
a commit that calls itself 4.11 may lack what 4.11 has, and the reverse. The rows themselves are in
:mod:`bisector.kernel.quirk_table`.

A quirk may edit the checked-out sources for the time of one build; the next checkout undoes that. Nothing is
committed, and nothing has to be remembered: an edited file has another inode, time and size than git's index says, so
that ``git checkout --force`` (git-checkout(1)) writes it anew, and ``git clean`` removes what a kill left half-written
beside it.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bisector.core.errors import InfraError
from bisector.host.files import inside, write_whole
from bisector.kernel import sources

_STAMPS = "edits.json"
_Stamps = dict[str, tuple[str, int]]


class QuirkEvidence(StrEnum):
    """Where a quirk's row comes from."""

    TRIED = "tried"
    LITERATURE = "from the literature, not tried"


@dataclass(frozen=True, slots=True)
class Sign:
    """A file that is there, contains ``has`` and does not contain ``lacks`` (when that is not empty)."""

    file: str
    has: str = ""
    lacks: str = ""

    def shows(self, source: Path) -> bool:
        """Whether this source tree has it."""
        text = sources.text(source, self.file)
        return text is not None and self.has in text and not (self.lacks and self.lacks in text)


@dataclass(frozen=True, slots=True)
class Edit:
    """``old``, which is in ``file`` exactly once, becomes ``new``, for the time of a build.

    The length differs always, so that git sees the change by the file's size alone.
    """

    file: str
    old: str
    new: str

    def fits(self, source: Path) -> bool:
        """Whether the text to be replaced is there, once."""
        text = sources.text(source, self.file)
        return text is not None and text.count(self.old) == 1


@dataclass(frozen=True, slots=True)
class Cure:
    """The mainline commit after which a tree needs no help, and the first release that has it."""

    commit: str
    subject: str
    version: str

    def __str__(self) -> str:
        return f'{self.commit} ("{self.subject}") (in {self.version})'


@dataclass(frozen=True, slots=True)
class Quirk:
    """A trouble of some trees, and what is done about it while one is built.

    It concerns the trees that show all ``signs`` and have the text of each edit exactly once:
    where a backport wrote it otherwise nothing is done, and the build says what is wrong.
    ``variables`` are given to make. ``symptom`` is what happens without, and ``gcc`` the first major
    version with which it does, 0 where that is another tool's.
    """

    name: str
    signs: tuple[Sign, ...]
    cure: Cure
    symptom: str
    evidence: QuirkEvidence
    variables: tuple[tuple[str, str], ...] = ()
    edits: tuple[Edit, ...] = ()
    gcc: int = 0

    def applies(self, source: Path) -> bool:
        """Whether this source tree, as git checked it out, needs it."""
        return all(sign.shows(source) for sign in self.signs) and all(edit.fits(source) for edit in self.edits)


def applying(source: Path, table: Iterable[Quirk]) -> tuple[Quirk, ...]:
    """The quirks this source tree needs, in the table's order."""
    return tuple(quirk for quirk in table if quirk.applies(source))


def files(table: Iterable[Quirk]) -> frozenset[str]:
    """What is looked at to decide which quirks apply, or edited, relative to the top of the tree."""
    looked_at = [[sign.file for sign in quirk.signs] + [edit.file for edit in quirk.edits] for quirk in table]
    return frozenset(file for files_ in looked_at for file in files_)


def unchanged_since(gcc: int, table: Iterable[Quirk]) -> str:
    """The first release that needs none of these quirks with gcc of this major version and today's other tools."""
    return max((quirk.cure.version for quirk in table if quirk.gcc <= gcc), key=_numbers)


def digest(table: Iterable[Quirk]) -> str:
    """Names what a table does: with the tree it settles how that is built, so a kernel's key needs no checkout.

    Words for people (symptom, gcc, evidence, cure) are no part of it: no kernel is another for them.
    """
    acts = [(quirk.name, quirk.signs, quirk.variables, quirk.edits) for quirk in table]
    return hashlib.sha256(repr(acts).encode()).hexdigest()


def apply_edits(edits: Iterable[Edit], source: Path, state: Path) -> None:
    """Edit the sources, which are as git checked them out; ``state`` is a directory beside the build.

    A file that is now the same as at the last build here gets that build's modification time back:
    otherwise each commit would compile anew all that includes it. Raises ``OSError``, and
    :class:`InfraError` when a text is not there as it was a moment ago.
    """
    before, now = _read_stamps(state / _STAMPS), _Stamps()
    # What is not edited this time may be compiled in its own form, so that its old time means nothing.
    write_whole(state / _STAMPS, b"{}")
    for file, content in _edited(edits, source).items():
        sha256 = hashlib.sha256(content).hexdigest()
        known, mtime_ns = before.get(file, ("", 0))
        path = inside(source, file)
        write_whole(path, content, stat.S_IMODE(path.stat().st_mode))
        if known == sha256:
            os.utime(path, ns=(mtime_ns, mtime_ns))
        now[file] = (sha256, path.stat().st_mtime_ns)
    write_whole(state / _STAMPS, json.dumps(now).encode())


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release))


def _edited(edits: Iterable[Edit], source: Path) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for edit in edits:
        text = contents.get(edit.file) or sources.content(source, edit.file) or b""
        old = edit.old.encode()
        if text.count(old) != 1:
            raise InfraError(f"{source / edit.file} was changed by somebody else: {edit.old!r} is not there once")
        contents[edit.file] = text.replace(old, edit.new.encode())
    return contents


def _read_stamps(path: Path) -> _Stamps:
    with suppress(FileNotFoundError, ValueError, TypeError):
        return {file: (str(sha256), int(time)) for file, (sha256, time) in json.loads(path.read_bytes()).items()}
    return {}
