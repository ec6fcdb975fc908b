"""Built kernels, and failures to build, kept by what they were made from; the least recently used go first.

One directory for each key, see :mod:`bisector.kernel.entries`. An entry appears and disappears by one
rename, so any number of processes may share a cache without a lock.
"""

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import UnionType

from bisector.core.errors import InfraError
from bisector.core.subject import Kernel
from bisector.kernel import entries
from bisector.kernel.entries import BuildFailure, Entry
from bisector.kernel.sources import Sources

_TEMPORARY = ".tmp-"
_ABANDONED_AFTER_S = 24 * 3600.0
# A kernel somebody found or stored this recently may be about to boot: it outlives the limit.
_IN_USE_S = 2 * 3600.0


@dataclass(frozen=True, slots=True)
class KeptEntry:
    """What is kept under a key: the release of a kernel or, empty, a failure; last used in seconds since 1970."""

    key: str
    release: str
    size_bytes: int
    last_used: float


@dataclass(frozen=True, slots=True)
class KernelCache:
    """The kernels under ``root``, ``limit_bytes`` in all; :class:`InfraError` when it cannot be read or written."""

    root: Path
    limit_bytes: int

    def find(self, key: str) -> Kernel | None:
        """The kernel of this key, its image checked against its digest; a damaged one is dropped."""
        kept = self._kept(key)
        return kept if isinstance(kept, Kernel) else None

    def find_failure(self, key: str) -> BuildFailure | None:
        """How the source of this key fails to build, if that is known."""
        kept = self._kept(key)
        return kept if isinstance(kept, BuildFailure) else None

    def newest_image(self) -> Path | None:
        """The bootable image that was stored or found last, if any is kept."""
        with self._troubles():
            images = list(self.root.glob(f"[!{_TEMPORARY[0]}]*/bzImage"))
            return max(images, key=lambda image: image.parent.stat().st_mtime, default=None)

    def store(self, kernel: Kernel, origin: entries.Origin | None = None) -> Kernel:
        """Copy a kernel in and answer the kept one; when another process was first, its own.

        It takes the place of a failure of the same key, which it disproves.
        """
        kept = self._store(kernel, Kernel, origin)
        modules = kept / entries.MODULES if kernel.modules is not None else None
        return replace(kernel, image=kept / entries.IMAGE, config=kept / entries.CONFIG, modules=modules)

    def store_failure(self, failure: BuildFailure) -> None:
        """Keep a failure that is surely the source's, unless the key has a kernel or a failure already."""
        self._store(failure, Kernel | BuildFailure)

    def adopt(self, key: str, fill: Callable[[Path], None]) -> bool:
        """Keep a kernel that another cache had, whose files ``fill`` writes into a directory; what the key had goes.

        False, and nothing changes, where they make no whole kernel of this key.
        """
        with self._made() as new:
            fill(new)
            entries.settle(new)
            if not isinstance(entries.read(new, key), Kernel):
                return False
            self._publish(new, key, respected=())
        return True

    def keys(self, prefix: str) -> tuple[str, ...]:
        """The keys that begin so, the last used first."""
        with self._troubles():
            if not self.root.is_dir():
                return ()
            now = time.time()
            found = (entry for entry in self._entries() if entry.name.startswith(prefix))
            return tuple(entry.name for entry in sorted(found, key=lambda entry: _age_s(entry, now)))

    def kernels(self, prefix: str) -> frozenset[str]:
        """The keys of kernels that begin so: those of failures are left out."""
        with self._troubles():
            return frozenset(path.parent.name for path in self.root.glob(f"{prefix}*/{entries.IMAGE}"))

    def sources(self, key: str) -> Sources | None:
        """What the build of this key's kernel read; None when that is not known."""
        with self._troubles():
            return entries.read_sources(self.root / key)

    def unknown(self, key: str) -> frozenset[str] | None:
        """The options that this key's kernel was asked for and its tree does not know; None when that is not known."""
        with self._troubles():
            return entries.read_unknown(self.root / key)

    def is_checked(self, kernel: Kernel) -> bool:
        """Whether it is kept, and came of its sources once more when it was built apart from all others."""
        with self._troubles():
            return entries.read_checked(self.root / kernel.key) == kernel.content_sha256

    def mark_checked(self, kernel: Kernel) -> None:
        """Keep that it did, for as long as it is kept itself."""
        with self._troubles(), suppress(FileNotFoundError):
            entries.write_checked(self.root / kernel.key, kernel.content_sha256)

    def contents(self) -> tuple[KeptEntry, ...]:
        """Everything that is kept, the last used first; images are not read."""
        found = []
        for key in self.keys(""):
            directory = self.root / key
            with self._troubles(), suppress(FileNotFoundError):  # another process dropped it this moment
                used = directory.stat().st_mtime
                found.append(KeptEntry(key, entries.release(directory), _size_bytes(directory), used))
        return tuple(found)

    def clear(self, *, spare_used: bool) -> int:
        """Drop everything, or with ``spare_used`` what was not used lately: some run may be about to boot it.

        The answer is how many entries were dropped.
        """
        now = time.time()
        dropped = 0
        with self._troubles():
            self._let_age(now)
        for key in self.keys(""):
            with self._troubles():
                if not (spare_used and _age_s(self.root / key, now) < _IN_USE_S):
                    self._drop(self.root / key)
                    dropped += 1
        return dropped

    def _kept(self, key: str) -> Entry | None:
        directory = self.root / key
        with self._troubles():
            if not directory.exists():
                return None
            entry = entries.read(directory, key)
            if entry is None:
                self._drop(directory)
                return None
            try:
                os.utime(directory)
            except FileNotFoundError:  # another process dropped it this moment
                return None
            return entry

    def _store(self, entry: Entry, respected: type[Kernel] | UnionType, origin: entries.Origin | None = None) -> Path:
        """Copy an entry in, unless one of a ``respected`` kind is there; its directory."""
        with self._made() as new:
            entries.write(new, entry, origin)
            return self._publish(new, entry.key, respected)

    @contextmanager
    def _made(self) -> Iterator[Path]:
        """A directory for an entry that is to be published; room is made for it afterwards."""
        with self._troubles():
            self.root.mkdir(parents=True, exist_ok=True)
            new = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.root))
            try:
                yield new
            finally:
                shutil.rmtree(new, ignore_errors=True)
            self._sweep()

    @contextmanager
    def _troubles(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InfraError(
                f"kernel cache {self.root}: {error.strerror}", "it may be removed whole; kernels are built again"
            ) from error

    def _publish(self, new: Path, key: str, respected: type[Kernel] | UnionType | tuple[()]) -> Path:
        directory = self.root / key
        while True:
            try:
                return new.rename(directory)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            if isinstance(self._kept(key), respected):
                return directory
            self._drop(directory)

    def _sweep(self) -> None:
        """Drop what killed processes left and, above the limit, the least recently used."""
        now = time.time()
        self._let_age(now)
        for left in self.root.glob(f"{_TEMPORARY}*"):
            if _age_s(left, now) > _ABANDONED_AFTER_S:
                shutil.rmtree(left, ignore_errors=True)
        by_age = sorted(self._entries(), key=lambda entry: _age_s(entry, now))
        total = 0
        for entry in by_age:
            total += _size_bytes(entry)
            if total > self.limit_bytes and _age_s(entry, now) > _IN_USE_S:
                self._drop(entry)

    def _let_age(self, now: float) -> None:
        """Date what is of the future at this moment: by a clock that was ahead it would be in use for ever."""
        for path in self.root.glob("*"):
            if _age_s(path, now) < 0:
                with suppress(FileNotFoundError):  # another process dropped it this moment
                    os.utime(path)

    def _entries(self) -> Iterator[Path]:
        return (path for path in self.root.iterdir() if path.is_dir() and not path.name.startswith(_TEMPORARY))

    def _drop(self, entry: Path) -> None:
        grave = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.root))
        with suppress(FileNotFoundError):
            entry.rename(grave)
        shutil.rmtree(grave, ignore_errors=True)


def _age_s(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size_bytes(entry: Path) -> int:
    """What its files take; less or nothing of an entry that another process drops this moment."""
    total = 0
    with suppress(FileNotFoundError):
        for path in entry.iterdir():
            total += path.stat().st_size
    return total
