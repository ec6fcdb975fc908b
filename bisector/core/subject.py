"""The things that are measured: commits, subjects and kernels, and the setups that make cells of subjects.

A subject is a commit, or an end of a range without a commit or with it; a kernel is built from it. A subject on a setup
is a cell, and one measurement of a cell on one host is a trial. All are plain data that pickles, like all facts.
"""

import struct
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

from bisector.core import units
from bisector.core.json_document import FLAT

_NT_GNU_BUILD_ID = 3  # elf(5)
_HEADER_BYTES = 12


class Kind(StrEnum):
    """The kind of a subject: a commit, the new end without it, the old end with it, or a commit with a patch on top.

    An image was built by somebody else.
    """

    COMMIT = "commit"
    REVERTED = "reverted"
    PICKED = "picked"
    PATCHED = "patched"
    IMAGE = "image"


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit: full hash, tree, subject line and committer date (ISO 8601 with zone)."""

    sha: Annotated[str, "hash; of an import as short as it was recorded, or the kernel's name"]
    tree: str
    subject: Annotated[str, "subject line"]
    committed_at: Annotated[str, "time of the commit"]

    @property
    def short(self) -> str:
        """The hash in twelve hex digits, as kernel developers quote it."""
        return self.sha[:12]


@dataclass(frozen=True, slots=True)
class Change:
    """A file that differs between two trees, by its path from the top; if ``added``, only the newer tree has it."""

    path: str
    added: bool = False


@dataclass(frozen=True, slots=True)
class Relevance:
    """The number of commits in a range, and of those that touch files that the builds of its ends read."""

    commits: Annotated[int, "number of commits in the range"]
    can_matter: Annotated[int, "how many of them touch what the ends were built from"]

    @property
    def sentence(self) -> str:
        """Both numbers, for a person."""
        return f"{units.plural(self.commits, 'commit')}, {self.can_matter:,} can matter to this kernel"


@dataclass(frozen=True, slots=True)
class Mattering:
    """The number of commits in a range, and the hashes of those that touch files that the builds of its ends read."""

    commits: int
    shas: frozenset[str]

    @property
    def relevance(self) -> Relevance:
        """Both numbers alone."""
        return Relevance(self.commits, len(self.shas))


@dataclass(frozen=True, slots=True)
class NotChanged:
    """A changed end that cannot be made: its kind, the commit, the end's hash, and the reason."""

    kind: Kind
    sha: str
    end_sha: str
    reason: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject of trials: a commit; an end of a range without a commit, or with it; or a commit with a patch on top.

    ``commit`` is what is built; for a changed end, or with a patch, it is a commit that is in no branch. ``parameters``
    are added to the settings' own on the kernel's command line, and ``fragment`` is the SHA-256 of a configuration
    fragment that is added to the build. For an image, ``commit`` stands for the file: ``sha`` and ``tree`` are its
    SHA-256, and ``subject`` is the version in its header.
    """

    commit: Annotated[Commit, FLAT]
    kind: Annotated[
        Kind,
        "`reverted` or `picked`: an end without the commit `changed_by`, or with it; `patched`: with a patch on top, "
        "and a `sha` that is in no branch; `image`: a kernel that somebody else built",
    ] = Kind.COMMIT
    changed_by: Annotated[str | None, "commit that was reverted, picked, or is the patch; of a file its SHA-256"] = None
    parameters: str = ""
    fragment: str = ""

    @property
    def short(self) -> str:
        """The short hash of the commit, and of the fragment, for the name of a directory."""
        return f"{self.commit.short}-{self.fragment[:12]}" if self.fragment else self.commit.short

    @property
    def built_of(self) -> tuple[str, str]:
        """The commit's hash and the fragment's; subjects for which these are equal have the same kernel."""
        return self.commit.sha, self.fragment

    @property
    def is_built(self) -> bool:
        """Whether bisector builds it."""
        return self.kind is not Kind.IMAGE

    @property
    def is_commit(self) -> bool:
        """Whether it is an unchanged commit of the history."""
        return self.kind is Kind.COMMIT


@dataclass(frozen=True, slots=True)
class Setup:
    """The setup of a trial: the stack in its full form (``ssd+ext4``) and the workload (``fio(partial.fio)``).

    Equal setups have equal texts, so that a recorded setup is recognised by its text. If others measured and did not
    tell the setup, both are empty: it is taken to be the setup that is searched. For a baseline they tell only the
    disk's name.
    """

    stack: Annotated[str, "storage stack, in its full form; empty where others measured and did not tell"] = ""
    workload: Annotated[str, "name of the workload; empty where others measured and did not tell"] = ""

    @property
    def is_told(self) -> bool:
        """Whether the setup is known."""
        return bool(self.stack)

    def __str__(self) -> str:
        return f"{self.workload} on {self.stack}"


@dataclass(frozen=True, slots=True)
class Cell:
    """A subject on a setup: trials of one cell measure the same, and their figures are comparable on one host."""

    subject: Annotated[Subject, FLAT]
    setup: Annotated[Setup, "what it was measured on"]

    @property
    def commit(self) -> Commit:
        """The commit that is built."""
        return self.subject.commit


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler: the command, and the versions of compiler and linker, which shape the code."""

    command: str
    identity: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """A built kernel image and what identifies it."""

    image: Annotated[Path, "path of the image that boots"]
    config: Annotated[Path, "path of the effective .config; /dev/null of a kernel that somebody else built"]
    release: Annotated[str, "release, as `uname -r` prints it"]
    build_id: Annotated[str, "build-id in the ELF notes of vmlinux, as far as it is known"]
    content_sha256: Annotated[
        str,
        "hash of what is loaded: sections of vmlinux and of the code that boots it, without notes and the text of the "
        "version, and the modules; kernels of equal content are equal",
    ]
    key: Annotated[str, "names what it was made from: configuration, toolchain, quirks, and last the tree"]
    toolchain: Annotated[str, "compiler and linker; empty of a kernel that somebody else built"]
    quirks: Annotated[tuple[str, ...], "quirks that were needed"]
    unmet: Annotated[tuple[str, ...], "options that were asked for and not obtained, as `CONFIG_X=y`"]
    cached: Annotated[bool, "whether it was kept from an earlier build"]
    build_s: Annotated[float, "seconds of the build"]
    modules: Annotated[Path | None, "path of a file system for /lib/modules; `null` for a kernel without modules"] = (
        None
    )

    KEY_SEPARATOR: ClassVar[str] = "-"

    @property
    def family(self) -> str:
        """The part of the key that names all that the kernel was made from but the tree."""
        return self.key.partition(self.KEY_SEPARATOR)[0]

    @property
    def tree(self) -> str:
        """The git tree that it was built from; another commit's if that has the same sources."""
        return self.key.partition(self.KEY_SEPARATOR)[2]


@dataclass(frozen=True, slots=True)
class RebuildCheck:
    """The content digests of a kernel that was built once more, apart from all others.

    There are two if the first build differed from the measured kernel, and none if ``why_not`` says why it cannot be
    compared. They may be from an ``earlier`` run.
    """

    contents: tuple[str, ...]
    by_ccache: bool = True
    earlier: bool = False
    why_not: str = ""


def build_id_in(notes: bytes) -> str:
    """Return the GNU build-id in ELF notes, in hex; empty if there is none.

    ``notes`` are those of a little-endian machine (elf(5), "Notes (Nhdr)"). A running kernel shows its own notes in
    /sys/kernel/notes.
    """
    position = 0
    while position + _HEADER_BYTES <= len(notes):
        name_size, desc_size, kind = struct.unpack_from("<III", notes, position)
        name_at = position + _HEADER_BYTES
        desc_at = name_at + (name_size + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and notes[name_at : name_at + name_size] == b"GNU\0":
            return notes[desc_at : desc_at + desc_size].hex()
        position = desc_at + (desc_size + 3 & ~3)
    return ""
