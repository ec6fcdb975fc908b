"""Test disks that outlive a trial, block devices and volumes of libvirt: which may be overwritten, and how.

Somebody's data may be on them. So four questions come before the first write: is the disk in use, may it be
written, does it carry the signature of anything (wipefs(8)), and is it blank? There is data without a signature:
encrypted disks with a detached header, raw databases, disks of virtual machines. So a disk that is not blank is
refused until a person names it, by a name that belongs to the disk (:func:`bisector.vm.block_device.disk_name`). Then
it gets a :class:`Label`, by which the next trial knows it.

The guest gets all but :data:`bisector.config.DISK_MARGIN_BYTES` at either end. What a trial makes is
then invisible from outside: no LVM of the host activates the guest's volume group and holds the disk
(lvmautoactivation(7)), and a signature that is found at the next look is never ours. The label is in that margin, too.
"""

import json
import os
import shlex
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self
from uuid import UUID, uuid4

from bisector.config import DISK_MARGIN_BYTES, usable_bytes
from bisector.core.errors import InfraError, UserError
from bisector.host import process
from bisector.host.files import our_files, scratch
from bisector.vm.definition import DiskSource

# What mkfs(8) and pvcreate(8) read before they write; they stop at, or keep, what an earlier trial left there.
_ERASED_BYTES = 4 << 20
_WIPEFS_S = 30.0
_SUPERUSER_DIRECTORIES = ("/usr/sbin", "/sbin")
_SAMPLES = 64
_SAMPLE_BYTES = 4096
_USED = "used-disks"

# Behind all that file systems, volume managers and RAID write at the beginning of a disk, as far as wipefs(8) knows
# them (the second label of ZFS ends at 512 KiB), and before the guest's part.
LABEL_AT = 768 << 10
LABEL_BYTES = 4096
_TITLE = "bisector test disk"
_PURPOSE = "purpose: each trial of bisector overwrites this disk; there is nothing on it that anybody needs"

Read = Callable[[int, int], bytes]


class ExistingDisk(Protocol):
    """What is asked of a disk before it is given to a guest; ``name`` is as the settings spell it."""

    @property
    def name(self) -> str:
        """The path, or ``volume:POOL/NAME``."""
        ...

    @property
    def own_name(self) -> str:
        """A name that goes with the disk and not with a path: a person says by it that the content may go."""
        ...

    @property
    def source(self) -> DiskSource:
        """What QEMU opens."""
        ...

    @property
    def device_number(self) -> int | None:
        """The number of the host's block device that it is (``st_rdev``) or lies on (``st_dev``), if that is known."""
        ...

    @property
    def size_bytes(self) -> int:
        """All of it, margins included."""
        ...

    @property
    def how_to_erase(self) -> str:
        """What a person types to say that its content may go."""
        ...

    def looked_at(self) -> AbstractContextManager[Path]:
        """A path with the disk's size and margins, for reading."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """A part of it."""
        ...

    def write(self, offset: int, data: bytes) -> None:
        """Durable when this returns."""
        ...

    def discard(self, offset: int, length: int) -> None:
        """Tell the device that a range is not needed any more, where it can be told."""
        ...


@dataclass(frozen=True, slots=True)
class UsedDisks:
    """The disks that a run has labelled, by their own names: one a line in ``file``.

    Whoever named a disk to be overwritten knew what was on it then, and not what somebody puts there later. So that
    holds for a run's first use of the disk, and from then on the run wants its label; unless somebody who knows better
    removes the file.
    """

    file: Path

    @classmethod
    def of(cls, run_dir: Path) -> Self:
        """The disks of the run in this directory."""
        return cls(run_dir / _USED)

    def __contains__(self, name: str) -> bool:
        with our_files(self.file.parent):
            return self.file.exists() and name in self.file.read_text(encoding="utf-8").splitlines()

    def add(self, name: str) -> None:
        """Note that a disk has its label; on the host's disk when this returns. Raises :class:`InfraError`."""
        if name in self:
            return
        with our_files(self.file.parent), self.file.open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")
            file.flush()
            os.fsync(file.fileno())


def check(disk: ExistingDisk, overwrite: Collection[str] = (), used: UsedDisks | None = None) -> None:
    """Raise :class:`UserError` for a disk that holds something, or has no room for a guest's part.

    ``overwrite`` are the disks of which a person says, by :attr:`ExistingDisk.own_name`, that their content may go;
    that is not said of what a disk holds that the run has ``used`` since.
    """
    if usable_bytes(disk.size_bytes) <= 0:
        raise UserError(f"{disk.name} is too small: {disk.size_bytes} bytes")
    if found := signatures(disk):
        raise UserError(
            f"{disk.name} is not empty: {', '.join(found)}",
            f"every trial overwrites it; if nothing on it is wanted any more, say so: {disk.how_to_erase}; and start "
            f"with --overwrite {shlex.quote(disk.own_name)}",
        )
    if is_labelled(disk.read, disk.size_bytes) or is_blank(disk.read, disk.size_bytes):
        return
    if disk.own_name in overwrite:
        if used is None or disk.own_name not in used:
            return
        raise UserError(
            f"{disk.name} has lost the label that this run gave it: somebody has written to it since",
            f"every trial overwrites it; if nothing on it is wanted any more, say so: rm {used.file}; bisector resume",
        )
    raise UserError(
        f"{disk.name} is not blank, and not labelled as a test disk: there is no signature on it, but it may be an "
        "encrypted disk, or belong to a database or a virtual machine",
        f"every trial overwrites it; if nothing on it is wanted any more, say so: --overwrite "
        f"{shlex.quote(disk.own_name)}",
    )


def empty(disk: ExistingDisk) -> tuple[int, int]:
    """Make the guest's part as good as new; its offset and length in bytes. :func:`check` comes before.

    A disk that is used for the first time gets its label.
    """
    offset, length = DISK_MARGIN_BYTES, usable_bytes(disk.size_bytes)
    if not is_labelled(disk.read, disk.size_bytes):
        for margin in (0, disk.size_bytes - DISK_MARGIN_BYTES):
            disk.write(margin, bytes(DISK_MARGIN_BYTES))
        disk.write(LABEL_AT, Label.new(disk.size_bytes).block)
    disk.discard(offset, length)
    edge = min(_ERASED_BYTES, length)
    disk.write(offset, bytes(edge))
    disk.write(offset + length - edge, bytes(edge))
    return offset, length


def signatures(disk: ExistingDisk) -> tuple[str, ...]:
    """What is on it, as ``ext4 (label data)``: file systems, partition tables, members of RAID or LVM, swap."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SUPERUSER_DIRECTORIES))
    with disk.looked_at() as place:
        try:
            finished = process.run(("wipefs", "--json", place), deadline_s=_WIPEFS_S, env={"PATH": path})
        except process.CommandMissing as error:
            raise UserError(f"{error}; so nothing tells what {disk.name} holds", "apt install util-linux") from error
        except (process.CommandFailed, process.CommandTimeout) as error:
            raise InfraError(str(error)) from error
    listed = json.loads(finished.stdout)["signatures"] if finished.stdout.strip() else ()
    return tuple(dict.fromkeys(_spelt(one) for one in listed))


def _spelt(signature: dict[str, Any]) -> str:
    known = [f"{key} {signature[key]}" for key in ("label", "uuid") if signature.get(key)]
    return f"{signature.get('type')}{f' ({known[0]})' if known else ''}"


@contextmanager
def margins_copy(size_bytes: int, head: bytes, tail: bytes) -> Iterator[Path]:
    """A sparse file that looks like a disk of which only the margins can be read."""
    with scratch("margins") as directory:
        path = directory / "disk"
        with path.open("wb") as file:
            file.truncate(size_bytes)
            os.pwrite(file.fileno(), head, 0)
            os.pwrite(file.fileno(), tail, size_bytes - len(tail))
        yield path


@dataclass(frozen=True, slots=True)
class Label:
    """Which disk it was written to: its own UUID, and the size of the disk.

    It is in the margin that no guest gets.
    """

    uuid: UUID
    size_bytes: int

    @classmethod
    def new(cls, size_bytes: int) -> Self:
        """A label for a disk that was never used."""
        return cls(uuid4(), size_bytes)

    @classmethod
    def parse(cls, block: bytes) -> Self | None:
        """None of anything else."""
        lines = block.rstrip(b"\0").decode("ascii", "replace").splitlines()
        try:
            title, uuid, size, _purpose = lines
            found = cls(UUID(uuid.removeprefix("uuid: ")), int(size.removeprefix("size: ")))
        except ValueError:
            return None
        return found if title == _TITLE and found.block == block else None

    @property
    def block(self) -> bytes:
        """What is written: text, for whoever looks at it with hexdump(1)."""
        lines = (_TITLE, f"uuid: {self.uuid}", f"size: {self.size_bytes}", _PURPOSE, "")
        return "\n".join(lines).encode("ascii").ljust(LABEL_BYTES, b"\0")


def is_labelled(read: Read, size_bytes: int) -> bool:
    """Whether the label of just this disk is there and nothing else in the margins.

    No guest writes there. What somebody else puts on the disk, and be it an encrypted file system without a
    signature, begins there; and on a partition that was moved or made larger the label does not fit.
    """
    head, tail = bytearray(read(0, DISK_MARGIN_BYTES)), read(size_bytes - DISK_MARGIN_BYTES, DISK_MARGIN_BYTES)
    label = Label.parse(bytes(head[LABEL_AT : LABEL_AT + LABEL_BYTES]))
    del head[LABEL_AT : LABEL_AT + LABEL_BYTES]
    return label is not None and label.size_bytes == size_bytes and not any(head) and not any(tail)


def is_blank(read: Read, size_bytes: int) -> bool:
    """Whether both margins and 64 samples between them are zeros, as on a disk that nobody has written to."""
    last = size_bytes - DISK_MARGIN_BYTES
    margins = (read(offset, DISK_MARGIN_BYTES) for offset in (0, last))
    places = (last * n // _SAMPLES // _SAMPLE_BYTES * _SAMPLE_BYTES for n in range(_SAMPLES))
    samples = (read(place, _SAMPLE_BYTES) for place in places)
    return not any(map(any, margins)) and not any(map(any, samples))
