"""The cache of built kernels and of failures to build, by key; the least recently used entries are removed first.

Each key has one directory. An entry appears and disappears by one rename, so any number of processes may share a cache
without a lock. A kept kernel travels between the caches of two machines as a tar archive of its entry. An unpacked
entry is verified like any other: the record has digests of itself and of the files.
"""

import errno
import hashlib
import io
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import UnionType

import msgspec

from bisector.core.errors import InfraError
from bisector.core.subject import Kernel
from bisector.core.trial import Fault
from bisector.host.files import sha256_of, sync, write_atomically
from bisector.kernel.sources import Sources

IMAGE, CONFIG, DEFCONFIG, MODULES = "bzImage", "kernel.config", "kernel.defconfig", "modules.ext4"
_RECORD, _SOURCES, _LOG = "entry.json", "sources.gz", "build.log"
_CHECKED = "checked"  # never sent to another machine: it is a statement about this one
# All files that a kernel's entry may have, and the maximum size of each; product.py has the reasons.
_KERNEL_FILES: Mapping[str, int] = {
    IMAGE: 1 << 30,
    CONFIG: 16 << 20,
    DEFCONFIG: 16 << 20,
    MODULES: 18 << 30,
    _SOURCES: 256 << 20,
    _RECORD: 16 << 20,
}
_SCHEMA = 2
_LONGEST_LOG_BYTES = 4 << 20
_TEMPORARY = ".tmp-"
_ABANDONED_AFTER_S = 24 * 3600.0
# A kernel that was found or stored this recently may be about to boot, so the size limit does not remove it.
_IN_USE_S = 2 * 3600.0
# The form of the builder's keys; a key may arrive over the network, and it becomes the name of a directory.
_KEY = re.compile(r"[0-9a-f]{32}-(?:[0-9a-f]{40}|[0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class BuildFailure:
    """A source that does not build: the fault, and the log of that build."""

    key: str
    fault: Fault
    log: Path


@dataclass(frozen=True, slots=True)
class _Record:
    """The stored record of an entry: a kernel or the fault of its source, and the SHA-256 of each file by name."""

    key: str
    sha256: dict[str, str]
    kernel: Kernel | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class KeptEntry:
    """An entry of the cache: its ``release`` (empty for a failure) and when it was last used, in seconds since 1970."""

    key: str
    release: str
    size_bytes: int
    last_used: float


@dataclass(frozen=True, slots=True)
class KernelCache:
    """The kernels under ``root``, ``limit_bytes`` in all; methods raise :class:`InfraError` if file access fails."""

    root: Path
    limit_bytes: int

    def find(self, key: str) -> Kernel | None:
        """The undamaged kernel of this key, or None; a damaged entry is removed."""
        kept = self._kept(key)
        return kept if isinstance(kept, Kernel) else None

    def find_failure(self, key: str) -> BuildFailure | None:
        """The known failure to build of this key's source, or None."""
        kept = self._kept(key)
        return kept if isinstance(kept, BuildFailure) else None

    def newest_image(self) -> Path | None:
        """The bootable image that was stored or found last; None if none is kept."""
        with self._troubles():
            images = list(self.root.glob(f"[!{_TEMPORARY[0]}]*/{IMAGE}"))
            return max(images, key=lambda image: image.parent.stat().st_mtime, default=None)

    def store(self, kernel: Kernel, read: Sources | None = None, short_config: bytes | None = None) -> Kernel:
        """Copy a kernel into the cache and return the kept one, which is another process's if that was faster.

        The kernel replaces a failure of the same key, which it disproves. ``read`` lists the files that its build read,
        and ``short_config`` is its .config as ``make savedefconfig`` writes it; each is None if unknown.
        """
        with self._made() as new:
            if read is not None:
                (new / _SOURCES).write_bytes(read.packed())
            if short_config is not None:
                (new / DEFCONFIG).write_bytes(short_config)
            placed = _placed(kernel, new)
            files = {placed.image: kernel.image, placed.config: kernel.config}
            if placed.modules is not None and kernel.modules is not None:
                files[placed.modules] = kernel.modules
            for path, made in files.items():
                shutil.copyfile(made, path)
            _write_record(new, _Record(kernel.key, _sums(files), kernel=_placed(kernel, Path())))
            first = self._publish(new, kernel.key, Kernel)
            if isinstance(first, Kernel):  # its bytes may differ, and they are what boots
                return replace(first, cached=kernel.cached, build_s=kernel.build_s, unmet=kernel.unmet)
            return _placed(kernel, self.root / kernel.key)

    def store_failure(self, failure: BuildFailure) -> None:
        """Keep a failure that is surely the source's, unless the key has a kernel or a failure already."""
        with self._made() as new:
            log = failure.log.read_bytes()
            if len(log) > _LONGEST_LOG_BYTES:  # make's last words are at the end; the error itself is in the fault
                log = b"[the beginning was not kept]\n" + log[-_LONGEST_LOG_BYTES:].partition(b"\n")[2]
            (new / _LOG).write_bytes(log)
            _write_record(new, _Record(failure.key, _sums([new / _LOG]), fault=failure.fault))
            self._publish(new, failure.key, Kernel | BuildFailure)

    def content(self, key: str) -> str:
        """The digest of this key's kernel (``content_sha256``), checked for damage; empty if no kernel is kept."""
        kept = self.find(key) if _KEY.fullmatch(key) else None
        return "" if kept is None else kept.content_sha256

    def pack(self, key: str) -> bytes:
        """The kernel of a key as an archive. Raises :class:`InfraError` if it is not kept, and ``OSError``."""
        if not self.content(key):
            raise InfraError(f"no kernel of the key {key} is kept")
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:", format=tarfile.PAX_FORMAT) as archive:
            for name in sorted(_KERNEL_FILES):
                if (path := self.root / key / name).is_file():
                    member = tarfile.TarInfo(name)
                    member.size = path.stat().st_size
                    with path.open("rb") as opened:
                        archive.addfile(member, opened)
        return buffer.getvalue()

    def unpack(self, key: str, packed: bytes) -> None:
        """Keep the kernel of a received archive, in place of any other entry of its key.

        Raises :class:`InfraError` for anything but a complete kernel of that key, and ``OSError``.
        """
        if _KEY.fullmatch(key) is None:
            raise InfraError(f"{key!r} is not a key of a kernel")
        with self._made() as new:
            try:
                with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
                    for member in archive:
                        content = archive.extractfile(member) if member.isreg() and not member.issparse() else None
                        if content is None or member.size > _KERNEL_FILES.get(member.name, -1):
                            raise InfraError(f"{member.name[:80]!r} is not a file of a kernel")
                        with content, (new / member.name).open("xb") as file:  # raises for a name that occurs twice
                            shutil.copyfileobj(content, file)
            except tarfile.TarError as error:
                raise InfraError(f"the kernel {key} cannot be unpacked: {error}") from error
            if not isinstance(read_entry(new, key), Kernel):
                raise InfraError(f"what arrived is not a whole kernel of the key {key}")
            self._publish(new, key, respected=())

    def keys(self, prefix: str) -> tuple[str, ...]:
        """The keys with this prefix, the most recently used first."""
        with self._troubles():
            if not self.root.is_dir():
                return ()
            now = time.time()
            found = (entry for entry in self._entries() if entry.name.startswith(prefix))
            return tuple(entry.name for entry in sorted(found, key=lambda entry: _age_s(entry, now)))

    def kernels(self, prefix: str) -> frozenset[str]:
        """The keys with this prefix that have a kernel, not a failure."""
        with self._troubles():
            return frozenset(path.parent.name for path in self.root.glob(f"{prefix}*/{IMAGE}"))

    def sources(self, key: str) -> Sources | None:
        """The files that the build of this key's kernel read; None if they are not known."""
        with self._troubles(), suppress(FileNotFoundError, NotADirectoryError):
            return Sources.unpacked((self.root / key / _SOURCES).read_bytes())
        return None

    def is_checked(self, kernel: Kernel) -> bool:
        """Whether the kernel is kept, and :meth:`mark_checked` was called for it."""
        with self._troubles(), suppress(FileNotFoundError, NotADirectoryError):
            return (self.root / kernel.key / _CHECKED).read_bytes() == kernel.content_sha256.encode()
        return False

    def mark_checked(self, kernel: Kernel) -> None:
        """Record, for as long as the kernel is kept, that an independent build of its sources gave the same kernel."""
        with self._troubles(), suppress(FileNotFoundError):
            write_atomically(self.root / kernel.key / _CHECKED, kernel.content_sha256.encode())

    def contents(self) -> tuple[KeptEntry, ...]:
        """All entries, the most recently used first; images are not read."""
        found = []
        for key in self.keys(""):
            directory, release = self.root / key, ""
            with suppress(FileNotFoundError, ValueError, msgspec.MsgspecError):
                kernel = _read_record(directory).kernel
                release = "" if kernel is None else kernel.release
            with self._troubles(), suppress(FileNotFoundError):  # another process dropped it this moment
                found.append(KeptEntry(key, release, _size_bytes(directory), directory.stat().st_mtime))
        return tuple(found)

    def clear(self, *, spare_used: bool) -> int:
        """Remove all entries, or with ``spare_used`` those not used lately, as a run may be about to boot the others.

        Returns the number of removed entries.
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

    def _kept(self, key: str) -> Kernel | BuildFailure | None:
        directory = self.root / key
        with self._troubles():
            if not directory.exists():
                return None
            entry = read_entry(directory, key)
            if entry is None:
                self._drop(directory)
                return None
            try:
                os.utime(directory)
            except FileNotFoundError:  # another process dropped it this moment
                return None
            return entry

    @contextmanager
    def _made(self) -> Iterator[Path]:
        """A temporary directory for a new entry; afterwards old entries are removed to stay within the limit."""
        with self._troubles():
            self.root.mkdir(parents=True, exist_ok=True)
            new = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.root))
            try:
                yield new
            finally:
                shutil.rmtree(new, ignore_errors=True)
            # Remove leftovers of killed processes and, above the limit, the least recently used entries.
            now = time.time()
            self._let_age(now)
            for left in self.root.glob(f"{_TEMPORARY}*"):
                if _age_s(left, now) > _ABANDONED_AFTER_S:
                    shutil.rmtree(left, ignore_errors=True)
            total = 0
            for entry in sorted(self._entries(), key=lambda entry: _age_s(entry, now)):
                total += _size_bytes(entry)
                if total > self.limit_bytes and _age_s(entry, now) > _IN_USE_S:
                    self._drop(entry)

    @contextmanager
    def _troubles(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InfraError(
                f"kernel cache {self.root}: {error.strerror}", "it may be removed whole; kernels are built again"
            ) from error

    def _publish(
        self, new: Path, key: str, respected: type[Kernel] | UnionType | tuple[()]
    ) -> Kernel | BuildFailure | None:
        """Rename an entry to its place, unless an entry of a ``respected`` type is there, which is returned."""
        for path in new.iterdir():
            sync(path)  # a rename that outlives its data would be a damaged entry
        new.chmod(0o755)
        directory = self.root / key
        while True:
            try:
                new.rename(directory)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            else:
                return None
            if isinstance(kept := self._kept(key), respected):
                return kept
            self._drop(directory)

    def _let_age(self, now: float) -> None:
        """Date entries from the future as of now: if the clock was ahead, they would count as in use for ever."""
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


def read_entry(directory: Path, key: str) -> Kernel | BuildFailure | None:
    """The kernel or failure in a directory; None unless it is a complete, undamaged entry of this key."""
    with suppress(FileNotFoundError, ValueError, msgspec.MsgspecError):
        record = _read_record(directory)
        kernel = record.kernel
        files = {_LOG} if kernel is None else {IMAGE, CONFIG, *(() if kernel.modules is None else (MODULES,))}
        if (
            record.key != key
            or record.sha256.keys() != files
            or record.sha256 != _sums(directory / one for one in files)
        ):
            return None
        if kernel is not None:
            return replace(_placed(kernel, directory), cached=True, build_s=0.0)
        if record.fault is not None:
            return BuildFailure(key, replace(record.fault, cached=True), directory / _LOG)
    return None


def _placed(kernel: Kernel, directory: Path) -> Kernel:
    modules = None if kernel.modules is None else directory / MODULES
    return replace(kernel, image=directory / IMAGE, config=directory / CONFIG, modules=modules)


def _sums(files: Iterable[Path]) -> dict[str, str]:
    return {path.name: sha256_of(path) for path in files}


def _write_record(directory: Path, record: _Record) -> None:
    """Write a line with the schema and the digest of the rest, and the record as JSON."""
    body = msgspec.json.format(msgspec.json.encode(record, enc_hook=str), indent=1)
    write_atomically(directory / _RECORD, _head(body) + body)


def _read_record(directory: Path) -> _Record:
    """Read a record; raises ``ValueError`` or ``MsgspecError`` if it was changed since it was written."""
    head, end, body = (directory / _RECORD).read_bytes().partition(b"\n")
    if head + end != _head(body):
        raise ValueError(f"{directory / _RECORD} was changed since it was written")
    return msgspec.json.decode(body, type=_Record, dec_hook=lambda custom, value: custom(value))


def _head(body: bytes) -> bytes:
    return f"{_SCHEMA} {hashlib.sha256(body).hexdigest()}\n".encode()


def _age_s(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size_bytes(entry: Path) -> int:
    """The total size of an entry's files; too low if another process removes the entry meanwhile."""
    total = 0
    with suppress(FileNotFoundError):
        for path in entry.iterdir():
            total += path.stat().st_size
    return total
