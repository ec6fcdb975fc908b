"""Disks with somebody's data on them: refused, whatever the data; and empty again before each trial."""

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.errors import UserError
from bisector.machine import testdisk
from bisector.machine.testdisk import BlockDevice
from bisector.settings import DISK_MARGIN_BYTES, usable_bytes
from tests.loopdevice import command, loop_device, partition_table, partitions

MIB = 1 << 20
SIZE_BYTES = 64 * MIB


@dataclass
class File:
    """A disk that is a file: what a signature looks like does not depend on what holds it."""

    path: Path
    name: str = "the disk"
    how_to_erase: str = "erase it"

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size

    def looked_at(self) -> AbstractContextManager[Path]:
        with self.path.open("rb") as file:
            head = file.read(DISK_MARGIN_BYTES)
            file.seek(-DISK_MARGIN_BYTES, os.SEEK_END)
            return testdisk.margins_copy(self.size_bytes, head, file.read())

    def erase(self, offset: int, length: int) -> None:
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(bytes(length))

    def discard(self, offset: int, length: int) -> None:
        pass


@pytest.fixture
def disk(tmp_path: Path) -> File:
    path = tmp_path / "disk.img"
    with path.open("wb") as file:
        file.truncate(SIZE_BYTES)
    return File(path)


def at(offset: int, data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(offset, os.SEEK_END if offset < 0 else os.SEEK_SET)
            file.write(data)

    return write


def physical_volume() -> bytes:
    """The label of LVM's metadata format 2, with its checksum (lib/format_text/layout.h, lib/misc/crc.c)."""
    body = (b"\x20\0\0\0LVM2 001" + b"0123456789abcdefghijklmnopqrstuv").ljust(512 - 20, b"\0")
    checksum = zlib.crc32(body, 0xF597A6CF ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
    return b"LABELONE" + struct.pack("<QI", 1, checksum) + body


# Some are written by hand, where a tool is not installed everywhere.
CONTENTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "ext4": (lambda path: command("mke2fs", "-q", "-F", "-t", "ext4", "-L", "data", path), "ext4 (label data)"),
    "swap": (lambda path: command("mkswap", "-q", "-L", "nap", path), "swap (label nap)"),
    "partitions": (at(0, partition_table(32 * MIB, 31 * MIB)), "dos"),
    "lvm": (at(512, physical_volume()), "LVM2_member (uuid 012345-6789-abcd-efgh-ijkl-mnop-qrstuv)"),
    # linux/raid/md_p.h: the version 0.90 superblock is in the last 64 KiB
    "raid": (at(-65536, struct.pack("<III", 0xA92B4EFC, 0, 90)), "linux_raid_member"),
    "luks": (at(0, b"LUKS\xba\xbe\0\1"), "crypto_LUKS"),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_a_disk_that_holds_something_is_refused(disk: File, content: str) -> None:
    make, words = CONTENTS[content]
    make(disk.path)
    with pytest.raises(UserError) as caught:
        testdisk.check(disk)
    assert str(caught.value) == f"the disk is not empty: {words}"
    assert caught.value.hint.endswith("say so: erase it")


def test_an_empty_disk_is_taken_again_and_again(disk: File) -> None:
    """What a guest writes to its part is not seen, the second time neither, and is gone for the next guest."""
    for _ in range(2):
        testdisk.check(disk)
        offset, length = testdisk.empty(disk)
        assert (offset, length) == (DISK_MARGIN_BYTES, SIZE_BYTES - 2 * DISK_MARGIN_BYTES)
        data = disk.path.read_bytes()
        assert not any(data[offset : offset + 4 * MIB])
        assert not any(data[offset + length - 4 * MIB : offset + length])
        at(offset, b"\xff" * length)(disk.path)
    assert not any(disk.path.read_bytes()[:offset])


@pytest.mark.parametrize("size_bytes", [0, MIB, 2 * MIB, 3 * MIB - 1])
def test_a_disk_without_room_is_refused(disk: File, size_bytes: int) -> None:
    os.truncate(disk.path, size_bytes)
    with pytest.raises(UserError, match="too small"):
        testdisk.check(disk)


def test_the_guests_part_is_whole_mib() -> None:
    assert usable_bytes(3 * MIB) == MIB
    assert usable_bytes(10 * MIB + 512) == 8 * MIB


# -- real block devices ------------------------------------------------------------------------------------------------


@pytest.fixture
def device(disk: File) -> Iterator[Path]:
    with loop_device(disk.path) as path:
        yield path


def test_a_block_device_is_claimed_emptied_and_its_margins_are_left(device: Path, disk: File) -> None:
    at(MIB, b"\xff" * (62 * MIB))(device)
    with BlockDevice.claimed(device) as claimed:
        assert claimed.size_bytes == SIZE_BYTES
        testdisk.check(claimed)
        testdisk.empty(claimed)
    assert not any(disk.path.read_bytes())


def test_a_block_device_in_use_is_refused(device: Path) -> None:
    with (
        BlockDevice.claimed(device),
        pytest.raises(UserError, match=f"{device} is in use") as caught,
        BlockDevice.claimed(device),
    ):
        pytest.fail("it was claimed twice")
    assert "unmount" in caught.value.hint


def test_a_mounted_block_device_is_refused_with_the_place(device: Path, tmp_path: Path) -> None:
    command("mke2fs", "-q", "-t", "ext4", device)
    place = tmp_path / "mounted"
    place.mkdir()
    command("mount", device, place)
    try:
        with pytest.raises(UserError, match=f"{device} is in use: mounted on {place}"), BlockDevice.claimed(device):
            pytest.fail("it was claimed")
    finally:
        command("umount", place)


def test_what_is_no_block_device_is_refused(disk: File, tmp_path: Path) -> None:
    for path in (disk.path, tmp_path / "gone"):
        with pytest.raises(UserError, match="no block device"), BlockDevice.claimed(path):
            pytest.fail("it was claimed")


def test_a_read_only_block_device_is_refused(disk: File) -> None:
    with (
        loop_device(disk.path, "--read-only") as device,
        pytest.raises(UserError, match="read-only"),
        BlockDevice.claimed(device),
    ):
        pytest.fail("it was claimed")


def test_a_disk_of_which_a_part_is_claimed_is_refused(device: Path) -> None:
    with partitions(device, 32 * MIB, 31 * MIB) as (first, second):
        with (
            BlockDevice.claimed(first),
            pytest.raises(UserError, match="is in use"),
            BlockDevice.claimed(device),
        ):
            pytest.fail("it was claimed")
        with BlockDevice.claimed(first) as part, BlockDevice.claimed(second):
            testdisk.check(part)
            assert part.size_bytes == 32 * MIB


def test_no_wipefs_no_disk(disk: File, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(testdisk, "_SUPERUSER_DIRECTORIES", ())
    with pytest.raises(UserError, match="wipefs: command not found"):
        testdisk.check(disk)
