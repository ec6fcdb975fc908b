"""What goes between a coordinator and a host beside jobs, as files in parts: packs of git's objects, and kernels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bisector.core.errors import BisectorError, InfraError
from bisector.core.subject import Compiler
from bisector.host.files import sha256_of

PART_BYTES = 16 << 20  # a message of Dask's is in memory several times, at both ends


@dataclass(frozen=True, slots=True)
class Holding:
    """What a host has: whether a commit with all its files, commits that it was sent before, and a clone to borrow."""

    whole: bool
    known: tuple[str, ...] = ()
    borrows: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Some bytes of a file, which is known by its digest."""

    sha256: str
    size_bytes: int
    offset: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Sealed:
    """A file that is ready to be fetched, by its digest."""

    sha256: str
    size_bytes: int


class HostRefused(BisectorError):
    """A host that may not work for this run, and why, in words that follow "there"."""


class Receiver(Protocol):
    """A host, as whoever sends to it sees it. It answers while nothing is measured there, and not before.

    Each method raises :class:`bisector.core.errors.BisectorError` for trouble of the host, and ``ConnectionError`` when
    the host is gone.
    """

    def holding(self, run: str, sha: str) -> Holding:
        """What it has; a commit that it has whole is kept for the run."""
        ...

    def first(self, shas: Sequence[str]) -> str:
        """The first of some commits that it has whole; empty when it has none."""
        ...

    def add(self, part: Part) -> int:
        """Add a part to a file, where that goes on; how many bytes the host has of it now."""
        ...

    def unpack(self, run: str, sha: str, sha256: str) -> str:
        """Take in the file as a pack, and keep the commit for the run. Why that cannot be; empty when it could."""
        ...

    def compilers(self, commands: Sequence[str]) -> tuple[Compiler, ...]:
        """The compilers of these commands; raises :class:`UserError` for one that does not work."""
        ...

    def kept(self, key: str) -> str:
        """The digest of what is loaded of the kernel of a key; empty when it keeps none."""
        ...

    def keep(self, key: str, sha256: str) -> str:
        """Take in the file as the kernel of a key, in place of one it had. Why that cannot be; empty when it could."""
        ...

    def seal(self, key: str) -> Sealed | None:
        """Make the kernel of a key a file to be fetched; None when it keeps none."""
        ...

    def fetch(self, sha256: str, offset: int) -> bytes:
        """A part of a file that was made so; empty when there is nothing more."""
        ...


def send(file: Path, host: Receiver) -> str:
    """Send a file, from where an earlier attempt was cut; its digest. Raises as :class:`Receiver`."""
    sha256, size_bytes = sha256_of(file), file.stat().st_size
    held = host.add(Part(sha256, size_bytes, 0, b""))
    with file.open("rb") as opened:
        while held < size_bytes:
            opened.seek(held)
            before, held = held, host.add(Part(sha256, size_bytes, held, opened.read(PART_BYTES)))
            if held <= before:
                raise InfraError(f"a part of {size_bytes} bytes does not arrive: the host has {held} of them")
    return sha256


def receive(sealed: Sealed, host: Receiver, file: Path) -> None:
    """Fetch a file that a host has made; raises as :class:`Receiver`, and :class:`InfraError` for another digest."""
    with file.open("wb") as opened:
        while opened.tell() < sealed.size_bytes and (content := host.fetch(sealed.sha256, opened.tell())):
            opened.write(content)
    if sha256_of(file) != sealed.sha256:
        raise InfraError("what arrived is not what was sent: its digest differs")
