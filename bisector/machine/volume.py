"""A volume of libvirt as a test disk; one of the owners of libvirt."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from bisector.errors import InfraError, UserError
from bisector.machine import testdisk
from bisector.settings import DISK_MARGIN_BYTES

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

    @property
    def name(self) -> str:
        """As the settings spell it."""
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
        """Of libvirt's own tools."""
        return f"virsh vol-wipe --pool {self.pool} {self.handle.name()}"

    @contextmanager
    def looked_at(self) -> Iterator[Path]:
        """A sparse copy of its margins."""
        size = self.size_bytes
        length = min(DISK_MARGIN_BYTES, size)
        head, tail = self._read(0, length), self._read(size - length, length)
        with testdisk.margins_copy(size, head, tail) as copy:
            yield copy

    def _read(self, offset: int, length: int) -> bytes:
        parts = []
        with self._stream("read") as stream:
            self.handle.download(stream, offset, length, 0)
            while part := stream.recv(_CHUNK_BYTES):
                parts.append(part)
        return b"".join(parts)

    def erase(self, offset: int, length: int) -> None:
        """Write zeros."""
        with self._stream("written") as stream:
            self.handle.upload(stream, offset, length, 0)
            left = length
            while left > 0:
                left -= stream.send(bytes(min(left, _CHUNK_BYTES)))

    def discard(self, offset: int, length: int) -> None:
        """Not a word of libvirt's."""

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
