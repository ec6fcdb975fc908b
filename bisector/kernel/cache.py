"""Built kernels, and failures to build, kept by what they were made from; the least recently used go first.

One directory for each key. An entry appears and disappears by one rename, so any number of processes may share a cache
without a lock. A kept kernel goes between the caches of two machines as a tar archive of its entry; what is unpacked is
looked at as any other entry: the record has digests of itself and of the files.
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
from bisector.host.files import sha256_of, sync, write_whole
from bisector.kernel.sources import Sources

IMAGE, CONFIG, DEFCONFIG, MODULES = "bzImage", "kernel.config", "kernel.defconfig", "modules.ext4"
_RECORD, _SOURCES, _LOG = "entry.json", "sources.gz", "build.log"
_CHECKED = "checked"  # of this machine alone: a kernel that goes to another one goes without
# All that an entry of a kernel may have, and how large each may be: product.py has the reasons.
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
# A kernel somebody found or stored this recently may be about to boot: it outlives the limit.
_IN_USE_S = 2 * 3600.0
# As a builder makes them; it comes over the network, and is the name of a directory.
_KEY = re.compile(r"[0-9a-f]{32}-(?:[0-9a-f]{40}|[0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class BuildFailure:
    """A source that does not build: the fault, and the log of the build that found it."""

    key: str
    fault: Fault
    log: Path


@dataclass(frozen=True, slots=True)
class _Record:
    """What is written of an entry: its kernel, or how its source fails, and the SHA-256 of its files by their names."""

    key: str
    sha256: dict[str, str]
    kernel: Kernel | None = None
    fault: Fault | None = None


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
            images = list(self.root.glob(f"[!{_TEMPORARY[0]}]*/{IMAGE}"))
            return max(images, key=lambda image: image.parent.stat().st_mtime, default=None)

    def store(self, kernel: Kernel, read: Sources | None = None, short_config: bytes | None = None) -> Kernel:
        """Copy a kernel in and answer the kept one; when another process was first, its own.

        It takes the place of a failure of the same key, which it disproves. ``read`` is what its build read, and
        ``short_config`` its .config as ``make savedefconfig`` writes it, as far as they are known.
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
            return _placed(kernel, self._publish(new, kernel.key, Kernel))

    def store_failure(self, failure: BuildFailure) -> None:
        """Keep a failure that is surely the source's, unless the key has a kernel or a failure already."""
        with self._made() as new:
            log = failure.log.read_bytes()
            if len(log) > _LONGEST_LOG_BYTES:  # make's last words are at the end, and the error itself is in the fault
                log = b"[the beginning was not kept]\n" + log[-_LONGEST_LOG_BYTES:].partition(b"\n")[2]
            (new / _LOG).write_bytes(log)
            _write_record(new, _Record(failure.key, _sums([new / _LOG]), fault=failure.fault))
            self._publish(new, failure.key, Kernel | BuildFailure)

    def content(self, key: str) -> str:
        """The digest of what is loaded of the kernel of this key, which is undamaged; empty when there is none."""
        kept = self.find(key) if _KEY.fullmatch(key) else None
        return "" if kept is None else kept.content_sha256

    def pack(self, key: str) -> bytes:
        """The kernel of a key as an archive. Raises :class:`InfraError` when there is none, and ``OSError``."""
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
        """Keep the kernel of an archive that arrived, in place of any other of its key.

        Raises :class:`InfraError` for anything that is not a whole kernel of that key, and ``OSError``.
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
                        with content, (new / member.name).open("xb") as file:  # each name once
                            shutil.copyfileobj(content, file)
            except tarfile.TarError as error:
                raise InfraError(f"the kernel {key} cannot be unpacked: {error}") from error
            if not isinstance(read_entry(new, key), Kernel):
                raise InfraError(f"what arrived is not a whole kernel of the key {key}")
            self._publish(new, key, respected=())

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
            return frozenset(path.parent.name for path in self.root.glob(f"{prefix}*/{IMAGE}"))

    def sources(self, key: str) -> Sources | None:
        """What the build of this key's kernel read; None when that is not known."""
        with self._troubles(), suppress(FileNotFoundError, NotADirectoryError):
            return Sources.unpacked((self.root / key / _SOURCES).read_bytes())
        return None

    def is_checked(self, kernel: Kernel) -> bool:
        """Whether it is kept, and came of its sources again when it was built apart from all others."""
        with self._troubles(), suppress(FileNotFoundError, NotADirectoryError):
            return (self.root / kernel.key / _CHECKED).read_bytes() == kernel.content_sha256.encode()
        return False

    def mark_checked(self, kernel: Kernel) -> None:
        """Keep that it did, for as long as it is kept itself."""
        with self._troubles(), suppress(FileNotFoundError):
            write_whole(self.root / kernel.key / _CHECKED, kernel.content_sha256.encode())

    def contents(self) -> tuple[KeptEntry, ...]:
        """Everything that is kept, the last used first; images are not read."""
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
        """A directory for an entry that is to be published; room is made for it afterwards."""
        with self._troubles():
            self.root.mkdir(parents=True, exist_ok=True)
            new = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.root))
            try:
                yield new
            finally:
                shutil.rmtree(new, ignore_errors=True)
            # Drop what killed processes left and, above the limit, the least recently used.
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

    def _publish(self, new: Path, key: str, respected: type[Kernel] | UnionType | tuple[()]) -> Path:
        """Give an entry its place, unless one of a ``respected`` kind is there; its directory."""
        for path in new.iterdir():
            sync(path)  # a rename that outlives its data would be a damaged entry
        new.chmod(0o755)
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


def read_entry(directory: Path, key: str) -> Kernel | BuildFailure | None:
    """What the directory holds, or None for anything that a complete entry of this key is not."""
    with suppress(FileNotFoundError, ValueError, msgspec.MsgspecError):
        record = _read_record(directory)
        if record.key != key or record.sha256 != _sums(directory / Path(name).name for name in record.sha256):
            return None
        if record.kernel is not None:
            return replace(_placed(record.kernel, directory), cached=True, build_s=0.0)
        if record.fault is not None:
            return BuildFailure(key, replace(record.fault, cached=True), directory / _LOG)
    return None


def _placed(kernel: Kernel, directory: Path) -> Kernel:
    modules = None if kernel.modules is None else directory / MODULES
    return replace(kernel, image=directory / IMAGE, config=directory / CONFIG, modules=modules)


def _sums(files: Iterable[Path]) -> dict[str, str]:
    return {path.name: sha256_of(path) for path in files}


def _write_record(directory: Path, record: _Record) -> None:
    """A line with the schema and the digest of the rest, and the record as JSON."""
    body = msgspec.json.format(msgspec.json.encode(record, enc_hook=str), indent=1)
    write_whole(directory / _RECORD, _head(body) + body)


def _read_record(directory: Path) -> _Record:
    """The record; raises ``ValueError`` and ``MsgspecError`` where it is not what was written."""
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
    """What its files take; less or nothing of an entry that another process drops this moment."""
    total = 0
    with suppress(FileNotFoundError):
        for path in entry.iterdir():
            total += path.stat().st_size
    return total
