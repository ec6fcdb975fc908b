"""What a host has for jobs of others, and takes in: the :class:`bisector.executor.freight.Receiver` of a host.

Everything here is done in a turn of its own (:func:`bisector.host.locks.measuring`), since a bench that unpacks sources
measures something else: a part that arrives during a measurement, of this spool's job or of anybody's on this host,
waits until that is over.

A file that arrives is appended to, so it goes on where its connection was cut, and is looked at as a whole: by its
digest, then by git.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bisector.core.errors import InfraError
from bisector.core.subject import Compiler
from bisector.executor import freight
from bisector.executor.freight import Holding, Part, Sealed
from bisector.executor.spool import Spool
from bisector.git.mirror import Mirror
from bisector.git.repository import Repository
from bisector.git.worktrees import remove_leftovers
from bisector.host import locks
from bisector.host.files import our_files, remove_whole, sha256_of
from bisector.host.locks import TurnPurpose
from bisector.kernel import toolchain
from bisector.kernel.cache import KernelCache

_ARRIVING, _LEAVING = "arriving", "leaving"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_UNUSED_S = 30 * 24 * 3600.0


@dataclass(slots=True)
class Stock:
    """The sources of a spool's jobs, in a repository beside them that may borrow from a clone, and kept kernels."""

    spool: Spool
    borrowed: Path | None
    kernels: KernelCache
    tell: Callable[[str], None]
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def holding(self, run: str, sha: str) -> Holding:
        """What there is of sources; those of runs that nobody goes on with are let go of."""
        with self._turn() as mirror:
            mirror.prepare()
            mirror.release_unused(_UNUSED_S)
            mirror.collect()
            whole = mirror.has(sha)
            if whole:
                mirror.keep(run, sha)
            return Holding(whole, mirror.known(), self.borrowed is not None)

    def first(self, shas: Sequence[str]) -> str:
        """The first of some commits that is here whole; empty when none is."""
        with self._turn() as mirror:
            return mirror.first(shas)

    def add(self, part: Part) -> int:
        """Add a part where the file goes on; how much of it there is. Another file that has begun to arrive goes."""
        with self._turn():
            file = self._file(part.sha256)
            file.parent.mkdir(parents=True, exist_ok=True)
            for other in file.parent.iterdir():
                if other != file:
                    remove_whole(other)
            with file.open("ab") as opened:
                if opened.tell() == part.offset:
                    opened.write(part.content)
                return opened.tell()

    def unpack(self, run: str, sha: str, sha256: str) -> str:
        """Take in a pack that has arrived; why it is of no use, or nothing."""
        with self._turn() as mirror:
            file = self._file(sha256)
            try:
                if why := _unlike(file, sha256):
                    return why
                mirror.take(file)
                if not mirror.has(sha):
                    return f"git finds no whole commit {sha} in them"
                mirror.keep(run, sha)
            except InfraError as error:
                return error.message
            finally:
                file.unlink(missing_ok=True)
            return ""

    def compilers(self, commands: Sequence[str]) -> tuple[Compiler, ...]:
        """Those of some commands; raises :class:`bisector.core.errors.UserError`."""
        with self._turn():
            return tuple(map(toolchain.named, commands))

    def kept(self, key: str) -> str:
        """The digest of what is loaded of the kernel of a key; empty when there is none."""
        with self._turn():
            return self.kernels.content(key)

    def keep(self, key: str, sha256: str) -> str:
        """Take in a kernel that has arrived; why it is of no use, or nothing."""
        with self._turn():
            file = self._file(sha256)
            try:
                if why := _unlike(file, sha256):
                    return why
                self.kernels.unpack(key, file)
            except InfraError as error:
                return error.message
            finally:
                file.unlink(missing_ok=True)
            return ""

    def seal(self, key: str) -> Sealed | None:
        """Make a kernel a file to be fetched, in place of the one before; None where there is none."""
        with self._turn():
            if not self.kernels.content(key):
                return None
            place = self.spool.transfers / _LEAVING
            remove_whole(place)
            place.mkdir(parents=True)
            self.kernels.pack(key, new := place / "new")
            sealed = Sealed(sha256_of(new), new.stat().st_size)
            new.rename(place / sealed.sha256)
            return sealed

    def fetch(self, sha256: str, offset: int) -> bytes:
        """A part of that file; the file goes with its last part."""
        with self._turn():
            file = self._file(sha256, _LEAVING)
            with file.open("rb") as opened:
                opened.seek(offset)
                content = opened.read(freight.PART_BYTES)
                if opened.tell() == file.stat().st_size:
                    file.unlink()
            return content

    def release(self, run: str) -> None:
        """A run is over: let go of its sources, and of the directory that its jobs were done in."""
        if any(entry.key.run == run for entry in self.spool.entries()):  # one that was given up may still run
            return
        with self._turn() as mirror:
            if not mirror.path.exists():
                return
            mirror.prepare()
            mirror.release(run)
            place = self.spool.place(run)
            if place.is_dir():
                with Repository.open(mirror.path) as repository:
                    remove_leftovers(repository, place)
                remove_whole(place)
                with suppress(OSError):
                    place.parent.rmdir()

    @contextmanager
    def _turn(self) -> Iterator[Mirror]:
        path = self.spool.sources
        with self._lock, our_files(path), locks.measuring(self.spool.home, self.tell, TurnPurpose.BUILD):
            yield Mirror(path, self.borrowed)

    def _file(self, sha256: str, place: str = _ARRIVING) -> Path:
        if not _DIGEST.fullmatch(sha256):  # it comes over the network
            raise InfraError(f"{sha256!r} is no digest of a file")
        return self.spool.transfers / place / sha256


def _unlike(file: Path, sha256: str) -> str:
    """Why a file is not what was sent; empty when it is."""
    if not file.exists():
        return "it did not arrive"
    return "" if sha256_of(file) == sha256 else "what arrived is not what was sent: its digest differs"
