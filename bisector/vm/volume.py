"""A volume of libvirt as a test disk; one of the owners of libvirt."""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from bisector.config import DISK_MARGIN_BYTES
from bisector.core.errors import InfraError, UserError
from bisector.vm import test_disk
from bisector.vm.block_device import BlockDevice, openers_of_file
from bisector.vm.definition import DiskSource, SourceKind

_FREE = "every trial overwrites it: end who uses it, or name another"
_CHUNK_BYTES = 256 << 10  # virStream's own limit of a message (VIR_NET_MESSAGE_PAYLOAD_MAX) is above it


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume that was found; it is read and written through libvirt, whoever may open its file."""

    connection: Any
    handle: Any
    pool: str

    @classmethod
    def find(cls, connection: Any, pool: str, name: str) -> "Volume":
        """Look it up; raises :class:`UserError` when it is not there or not raw."""
        try:
            handle = connection.storagePoolLookupByName(pool).storageVolLookupByName(name)
            form = ET.fromstring(handle.XMLDesc()).find("target/format")  # noqa: S314 - libvirt's own words
        except libvirt.libvirtError as error:
            raise UserError(f"volume:{pool}/{name}: {error}", f"see: virsh vol-list {pool}") from error
        if form is not None and form.get("type") not in ("raw", "unknown"):
            raise UserError(
                f"volume:{pool}/{name} is {form.get('type')}, a test disk has to be raw",
                f"virsh vol-create-as {pool} NAME SIZE --format raw",
            )
        return cls(connection, handle, pool)

    @classmethod
    @contextmanager
    def claimed(cls, connection: Any, pool: str, name: str) -> "Iterator[Volume]":
        """Found, and held as far as this user can: libvirt itself gives it to anybody.

        Raises :class:`UserError` also when a guest of the same libvirt has it, and when a process of this host has it
        open, if its path is on this host.
        """
        found = cls.find(connection, pool, name)
        with ExitStack() as stack:
            try:
                found._check_guests()
                path = Path(found.handle.path())
            except libvirt.libvirtError as error:
                raise InfraError(f"{found.name}: {error}") from error
            if path.is_block_device() and os.access(path, os.R_OK | os.W_OK):
                stack.enter_context(BlockDevice.claimed(path))
            elif path.is_file() and os.access(path, os.R_OK):
                stack.enter_context(_held(path, found.name))
            yield found

    def _check_guests(self) -> None:
        path, name = self.handle.path(), self.handle.name()
        for guest in self.connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE):
            for source in ET.fromstring(guest.XMLDesc()).iterfind("devices/disk//source"):  # noqa: S314 - libvirt's own
                by_path = path in (source.get("file"), source.get("dev"))
                if by_path or (source.get("pool"), source.get("volume")) == (self.pool, name):
                    raise UserError(
                        f"{self.name} is in use by the guest {guest.name()}", "shut it down, or name another"
                    )

    @property
    def own_name(self) -> str:
        """Libvirt's key: "globally unique, so the same volume will have the same key" (virStorageVolGetKey)."""
        try:
            return str(self.handle.key())
        except libvirt.libvirtError as error:
            raise InfraError(f"{self.name}: {error}") from error

    @property
    def source(self) -> DiskSource:
        """Libvirt finds it by its name in the pool."""
        return DiskSource(SourceKind.VOLUME, self.handle.name(), self.pool)

    @property
    def device_number(self) -> int | None:
        """The number of the block device at its path, or below the file there; None when it is not on this host."""
        try:
            path = Path(self.handle.path())
            found = path.stat() if path.is_absolute() else None  # a pool of RBD has other paths
        except libvirt.libvirtError as error:
            raise InfraError(f"{self.name}: {error}") from error
        except OSError:  # libvirtd sees other places
            return None
        return None if found is None else found.st_rdev if stat.S_ISBLK(found.st_mode) else found.st_dev

    @property
    def name(self) -> str:
        """The volume as the settings spell it."""
        return f"volume:{self.pool}/{self.handle.name()}"

    @property
    def size_bytes(self) -> int:
        """Its capacity; raises :class:`InfraError` when libvirt does not answer."""
        try:
            return int(self.handle.info()[1])
        except libvirt.libvirtError as error:
            raise InfraError(f"{self.name}: {error}") from error

    @property
    def how_to_erase(self) -> str:
        """The command of libvirt's own tools."""
        return f"virsh vol-wipe --pool {self.pool} {self.handle.name()}"

    @contextmanager
    def looked_at(self) -> Iterator[Path]:
        """A sparse copy of its margins."""
        size = self.size_bytes
        length = min(DISK_MARGIN_BYTES, size)
        head, tail = self.read(0, length), self.read(size - length, length)
        with test_disk.margins_copy(size, head, tail) as copy:
            yield copy

    def read(self, offset: int, length: int) -> bytes:
        """A part of it; raises :class:`InfraError` when libvirt cannot."""
        parts = []
        with self._stream("read") as stream:
            self.handle.download(stream, offset, length, 0)
            while part := stream.recv(_CHUNK_BYTES):
                parts.append(part)
        return b"".join(parts)

    def write(self, offset: int, data: bytes) -> None:
        """Write a part of it, as durably as libvirt does; raises :class:`InfraError` when libvirt cannot."""
        with self._stream("written") as stream:
            self.handle.upload(stream, offset, len(data), 0)
            sent = 0
            while sent < len(data):
                sent += stream.send(data[sent : sent + _CHUNK_BYTES])

    def discard(self, offset: int, length: int) -> None:
        """Nothing: libvirt discards no part of a volume."""

    @contextmanager
    def _stream(self, done: str) -> Iterator[Any]:
        stream = self.connection.newStream()
        try:
            yield stream
            stream.finish()
        except libvirt.libvirtError as error:
            with suppress(libvirt.libvirtError):
                stream.abort()
            raise InfraError(f"{self.name} cannot be {done}: {error}") from error


@contextmanager
def _held(path: Path, name: str) -> Iterator[None]:
    """A file that is ours among the processes that lock it, as QEMU and bisector do, and open in no other."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UserError(f"{name} cannot be opened: {error.strerror}", f"ls -l {path}") from error
    try:
        openers = openers_of_file(path)
        if openers or _is_locked_by_qemu(descriptor):
            raise UserError(f"{name} is in use: {path} is open in {', '.join(openers) or 'a QEMU'}", _FREE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise InfraError(f"{path} cannot be locked: {error.strerror}") from error
            raise UserError(f"{name} is in use: another bisector holds {path}", _FREE) from error
        yield
    finally:
        os.close(descriptor)


def _is_locked_by_qemu(descriptor: int) -> bool:
    """QEMU locks single bytes from 100 and from 200 of an image (its block/file-posix.c, RAW_LOCK_PERM_BASE)."""
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 100, 200, 0)
    kind, *_ = struct.unpack("hhqqi4x", fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, wanted))
    return bool(kind != fcntl.F_UNLCK)
