"""What is measured, and on what: commits, subjects and kernels, and the setup that makes a cell of a subject.

A subject is a commit, or an end of a range without a commit or with it; a kernel is built of it. A subject on a setup
is a cell, and one measurement of it on one host a trial. Plain data that pickles, like all facts.
"""

import struct
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

from bisector.core.json_keys import FLAT

_NT_GNU_BUILD_ID = 3  # elf(5)
_HEADER_BYTES = 12


class Kind(StrEnum):
    """What was built: a commit itself, the new end without it, the old end with it, or a commit with a patch on top.

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
        """Twelve hex digits, as kernel people quote them."""
        return self.sha[:12]


@dataclass(frozen=True, slots=True)
class Change:
    """A file that differs between two trees, by its path from the top; ``added``: only the newer one has it."""

    path: str
    added: bool = False


@dataclass(frozen=True, slots=True)
class Relevance:
    """How many commits a range has, and how many of them touch what the builds of its ends were made of."""

    commits: Annotated[int, "number of commits in the range"]
    can_matter: Annotated[int, "how many of them touch what the ends were built from"]

    @property
    def sentence(self) -> str:
        """For a person."""
        commits = "1 commit" if self.commits == 1 else f"{self.commits:,} commits"
        return f"{commits}, {self.can_matter:,} can matter to this kernel"


@dataclass(frozen=True, slots=True)
class Mattering:
    """The size of a range, and the hashes of its commits that touch what the builds of its ends were made of."""

    commits: int
    shas: frozenset[str]

    @property
    def relevance(self) -> Relevance:
        """How many commits the range has, and how many of them can matter."""
        return Relevance(self.commits, len(self.shas))


@dataclass(frozen=True, slots=True)
class NotChanged:
    """An end that cannot be had without a commit, or with it: which kind, which commit, which end, and why."""

    kind: Kind
    sha: str
    end_sha: str
    reason: str


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: a commit; an end of a range without a commit, or with it; or a commit with a patch on top.

    ``commit`` is what is built; of an end without a commit, or with it, and with a patch, one that no branch has.
    ``parameters`` of the kernel's command line are those besides the settings' own, and ``fragment`` is the SHA-256 of
    a configuration fragment that its build has besides them. Of an image ``commit`` stands for the file: ``sha`` and
    ``tree`` are its SHA-256, and ``subject`` is the version in its header.
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
        """The commit's digits, and those of a fragment: what is built, in the name of a directory."""
        return f"{self.commit.short}-{self.fragment[:12]}" if self.fragment else self.commit.short

    @property
    def built_of(self) -> tuple[str, str]:
        """The commit's hash and the fragment: subjects that have these in common have one kernel."""
        return self.commit.sha, self.fragment

    @property
    def is_built(self) -> bool:
        """Whether it is built here."""
        return self.kind is not Kind.IMAGE

    @property
    def is_commit(self) -> bool:
        """Whether it is a commit as the history has it."""
        return self.kind is Kind.COMMIT


@dataclass(frozen=True, slots=True)
class Setup:
    """What a subject is measured on: the stack in its full form (``ssd+ext4``), the workload (``fio(partial.fio)``).

    Equal setups are written alike, so that a setup on record is known again by its text. What nobody told of a
    measurement by others is empty: it is taken to be on the setup that is searched. All that they tell of a baseline is
    the disk's name.
    """

    stack: Annotated[str, "storage stack, in its full form; empty where others measured and did not tell"] = ""
    workload: Annotated[str, "name of the workload; empty where others measured and did not tell"] = ""

    @property
    def is_told(self) -> bool:
        """Whether it is known what was measured on."""
        return bool(self.stack)

    def __str__(self) -> str:
        return f"{self.workload} on {self.stack}"


@dataclass(frozen=True, slots=True)
class Cell:
    """A subject on a setup: trials of one cell measure the same, and their figures can be compared on one host."""

    subject: Annotated[Subject, FLAT]
    setup: Annotated[Setup, "what it was measured on"]

    @property
    def commit(self) -> Commit:
        """What is built."""
        return self.subject.commit


@dataclass(frozen=True, slots=True)
class Compiler:
    """What is typed, and the versions of what shapes the code: the compiler's and the linker's."""

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
        """Names all that it was made from but the tree."""
        return self.key.partition(self.KEY_SEPARATOR)[0]

    @property
    def tree(self) -> str:
        """The git tree that it was built from: another commit's, where that has the same sources."""
        return self.key.partition(self.KEY_SEPARATOR)[2]


@dataclass(frozen=True, slots=True)
class Remade:
    """The digests of what is loaded of a kernel that was built once more, apart from all others.

    Of two builds where the first one was not as measured; of none where ``why_not`` says why it cannot be compared.
    They may be of an ``earlier`` run.
    """

    contents: tuple[str, ...]
    by_ccache: bool = True
    earlier: bool = False
    why_not: str = ""


def build_id_in(notes: bytes) -> str:
    """The GNU build-id in ELF notes, in hex, or nothing; a kernel that runs shows its own in /sys/kernel/notes.

    ``notes`` are those of a little-endian machine (elf(5), "Notes (Nhdr)").
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
