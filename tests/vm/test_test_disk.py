"""Disks with somebody's data on them: refused, whatever the data; and empty again before each trial."""

import os
import random
import stat
import struct
import zlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from bisector.config import DISK_MARGIN_BYTES, DiskSettings, usable_bytes
from bisector.core.errors import UserError
from bisector.host.files import is_scratch
from bisector.vm import test_disk
from bisector.vm.definition import BlockSizes, DiskSource, SourceKind
from bisector.vm.disks import attached
from bisector.vm.test_disk import LABEL_AT, LABEL_BYTES, ExistingDisk, Label
from bisector.vm.volume import Volume
from tests.loopdevice import command, partition_table

MIB = 1 << 20
SIZE_BYTES = 64 * MIB


@dataclass
class File:
    """A disk that is a file: what a signature looks like does not depend on what holds it."""

    path: Path
    name: str = "the disk"
    own_name: str = "WD-1"
    how_to_erase: str = "erase it"

    @property
    def source(self) -> DiskSource:
        return DiskSource(SourceKind.FILE, str(self.path))

    @property
    def device_number(self) -> int:
        return os.makedev(8, 7)

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size

    def looked_at(self) -> AbstractContextManager[Path]:
        with self.path.open("rb") as file:
            head = file.read(DISK_MARGIN_BYTES)
            file.seek(-DISK_MARGIN_BYTES, os.SEEK_END)
            return test_disk.margins_copy(self.size_bytes, head, file.read())

    def read(self, offset: int, length: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def write(self, offset: int, data: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(data)

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
        test_disk.check(disk)
    assert str(caught.value) == f"the disk is not empty: {words}"
    assert caught.value.hint.endswith("say so: erase it; and start with --overwrite WD-1")


def test_an_empty_disk_is_taken_again_and_again(disk: File) -> None:
    """What a guest writes to its part is not seen, the second time neither, and is gone for the next guest."""
    for _ in range(2):
        test_disk.check(disk)
        offset, length = test_disk.empty(disk)
        assert (offset, length) == (DISK_MARGIN_BYTES, SIZE_BYTES - 2 * DISK_MARGIN_BYTES)
        data = disk.path.read_bytes()
        assert not any(data[offset : offset + 4 * MIB])
        assert not any(data[offset + length - 4 * MIB : offset + length])
        at(offset, b"\xff" * length)(disk.path)
    margin = disk.path.read_bytes()[:offset]
    assert not any(margin[:LABEL_AT])
    assert not any(margin[LABEL_AT + LABEL_BYTES :])


@pytest.mark.parametrize(
    "places",
    [range(0, SIZE_BYTES, MIB), [4096], [900 << 10], [SIZE_BYTES - 4096]],
    ids=["all", "head", "label", "tail"],
)
def test_a_disk_with_data_and_no_signature_is_refused_until_it_is_named(disk: File, places: Iterable[int]) -> None:
    """Encrypted ones look like that. Named once, its label is enough."""
    for place in places:
        at(place, random.Random(place).randbytes(4096))(disk.path)
    before = disk.path.read_bytes()
    for named in ((), ("WD-2",)):
        with pytest.raises(UserError, match="the disk is not blank") as caught:
            test_disk.check(disk, named)
        assert caught.value.hint.endswith("--overwrite WD-1")
    assert disk.path.read_bytes() == before
    test_disk.check(disk, ("WD-1",))
    test_disk.empty(disk)
    test_disk.check(disk)


def found(disk: File) -> Callable[[str, str], AbstractContextManager[ExistingDisk]]:
    """A libvirt that has this one volume."""
    return lambda _pool, _name: nullcontext(disk)


VOLUME = DiskSettings("volume:tests/raw", 0, 0, 0)


def test_a_named_disk_is_overwritten_when_a_run_first_uses_it_and_has_its_label_later(
    disk: File, tmp_path: Path
) -> None:
    """Its settings name it as long as the run goes on; what is there by then, nobody has spoken of."""
    run_dir, other = tmp_path / "run", tmp_path / "other"
    for path in (run_dir, other):
        path.mkdir()
    at(0, random.Random(1).randbytes(SIZE_BYTES))(disk.path)
    for _ in range(2):
        with attached("hdd", VOLUME, run_dir, "x-", found(disk), overwrite=("WD-1",)):
            pass
    at(0, random.Random(2).randbytes(SIZE_BYTES))(disk.path)
    precious = disk.path.read_bytes()
    with (
        pytest.raises(UserError, match="the disk has lost the label that this run gave it") as caught,
        attached("hdd", VOLUME, run_dir, "x-", found(disk), overwrite=("WD-1",)),
    ):
        pytest.fail("it was overwritten")
    assert disk.path.read_bytes() == precious
    assert f"rm {run_dir}/used-disks; bisector resume" in caught.value.hint
    with attached("hdd", VOLUME, other, "x-", found(disk), overwrite=("WD-1",)):
        assert disk.path.read_bytes() != precious


def test_a_guest_is_told_the_block_sizes_below_a_volume(
    disk: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = tmp_path / "8:7" / "queue"
    queue.mkdir(parents=True)
    for which in ("logical", "physical"):
        (queue / f"{which}_block_size").write_text("4096\n")
    monkeypatch.setattr("bisector.vm.block_device._SYS", tmp_path)
    with attached("hdd", VOLUME, tmp_path, "x-", found(disk)) as spec:
        assert spec.blocks == BlockSizes(4096, 4096)


@pytest.mark.parametrize("where", ["file", "device", "gone", "rbd"])
def test_the_device_of_a_volume_is_that_of_its_path(tmp_path: Path, where: str) -> None:
    (tmp_path / "raw").touch()
    path = {"file": str(tmp_path / "raw"), "device": "/dev/block", "gone": f"{tmp_path}/gone", "rbd": "."}[where]
    number = {"file": tmp_path.stat().st_dev, "device": os.makedev(7, 3), "gone": None, "rbd": None}[where]
    if where == "device":
        path = str(tmp_path / "node")
        try:
            os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(7, 3))
        except PermissionError:
            path, number = str(tmp_path), tmp_path.stat().st_dev
    assert Volume(None, SimpleNamespace(path=lambda: path), "tests").device_number == number


def test_a_label_is_of_one_disk(disk: File) -> None:
    """It is written once; what lies behind it is nobody's, and what somebody puts before it is somebody's."""
    test_disk.empty(disk)
    label = disk.read(LABEL_AT, LABEL_BYTES)
    found = Label.parse(label)
    assert found is not None
    assert found.size_bytes == SIZE_BYTES
    assert b"purpose: each trial of bisector overwrites this disk" in label
    at(20 * MIB, b"\xff" * (20 * MIB))(disk.path)
    test_disk.check(disk)
    test_disk.empty(disk)
    assert disk.read(LABEL_AT, LABEL_BYTES) == label
    at(8192, b"an encrypted superblock")(disk.path)
    with pytest.raises(UserError, match="not blank"):
        test_disk.check(disk)
    at(8192, bytes(100))(disk.path)
    test_disk.check(disk)
    os.truncate(disk.path, SIZE_BYTES + MIB)  # another partition than the one that was labelled
    with pytest.raises(UserError, match="not blank"):
        test_disk.check(disk)


@pytest.mark.parametrize("damage", [b"", b"\0", b"bisector test disk\n", b"\xff" * LABEL_BYTES])
def test_what_is_no_label(damage: bytes) -> None:
    assert Label.parse(damage) is None
    block = Label.new(SIZE_BYTES).block
    assert Label.parse(block) is not None
    assert Label.parse(block[:-1] + b"x") is None


@pytest.mark.parametrize("size_bytes", [0, MIB, 2 * MIB, 3 * MIB - 1])
def test_a_disk_without_room_is_refused(disk: File, size_bytes: int) -> None:
    os.truncate(disk.path, size_bytes)
    with pytest.raises(UserError, match="too small"):
        test_disk.check(disk)


def test_the_guests_part_is_whole_mib() -> None:
    assert usable_bytes(3 * MIB) == MIB
    assert usable_bytes(10 * MIB + 512) == 8 * MIB


def test_no_wipefs_no_disk(disk: File, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(test_disk, "_SUPERUSER_DIRECTORIES", ())
    with pytest.raises(UserError, match="wipefs: command not found"):
        test_disk.check(disk)


def test_the_copy_of_the_margins_is_sparse_and_goes_with_its_process() -> None:
    with test_disk.margins_copy(1 << 30, b"head", b"tail") as copy:
        assert is_scratch(copy.parent)  # removed by the next process, if this one is killed
        with copy.open("rb") as file:
            assert file.read(4) == b"head"
            file.seek(-4, os.SEEK_END)
            assert (file.read(), file.tell()) == (b"tail", 1 << 30)
        assert copy.stat().st_blocks < 64
    assert not copy.parent.exists()
