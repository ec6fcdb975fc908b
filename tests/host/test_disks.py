"""Block devices of the host: named, claimed, refused with somebody's data on them, empty before each trial."""

import os
import random
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from bisector.config import DISK_MARGIN_BYTES
from bisector.core.errors import UserError
from bisector.host import disks
from bisector.host.disks import (
    LABEL_AT,
    LABEL_BYTES,
    BlockDevice,
    BlockSizes,
    DiskLabel,
    UsedDisks,
    block_sizes,
    disk_name,
)
from tests.loopdevice import command, loop_device, partition_table, partitions

MIB = 1 << 20
SIZE_BYTES = 64 * MIB


class File(BlockDevice):
    """A file as a disk: what a signature looks like does not depend on what holds it."""

    own_name = "WD-1"

    @property
    def node(self) -> Path:
        return self.path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "disk.img"
    with path.open("wb") as made:
        made.truncate(SIZE_BYTES)
    return path


@pytest.fixture
def device(file: Path) -> Iterator[Path]:
    with loop_device(file) as path:
        yield path


@pytest.fixture
def disk(file: Path) -> Iterator[File]:
    with file.open("r+b") as opened:
        yield File(file, opened.fileno())


def test_a_block_device_is_claimed_emptied_and_its_margins_are_left(device: Path, file: Path) -> None:
    device.write_bytes(bytes(MIB) + b"\xff" * (62 * MIB))
    with BlockDevice.claimed(device) as claimed:
        assert claimed.size_bytes == SIZE_BYTES
        claimed.check((claimed.own_name,))
        claimed.empty()
    data = file.read_bytes()
    assert DiskLabel.parse(data[LABEL_AT : LABEL_AT + LABEL_BYTES]) is not None
    assert not any(data[:LABEL_AT])
    assert not any(data[LABEL_AT + LABEL_BYTES : 6 * MIB])


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


def test_a_read_only_block_device_is_refused(file: Path) -> None:
    with (
        loop_device(file, "--read-only") as device,
        pytest.raises(UserError, match="read-only"),
        BlockDevice.claimed(device),
    ):
        pytest.fail("it was claimed")


def test_a_disk_of_which_a_part_is_claimed_is_refused(device: Path) -> None:
    with partitions(device, 32 * MIB, 31 * MIB) as (first, second):
        with BlockDevice.claimed(first), pytest.raises(UserError, match="is in use"), BlockDevice.claimed(device):
            pytest.fail("it was claimed")
        with BlockDevice.claimed(first) as part, BlockDevice.claimed(second):
            part.check((part.own_name,))
            assert part.size_bytes == 32 * MIB


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
        disk.check()
    assert str(caught.value) == f"{disk.path} is not empty: {words}"
    assert caught.value.hint.endswith(f"say so: wipefs --all {disk.path}; and --overwrite WD-1")


def test_an_empty_disk_is_taken_again_and_again(disk: File) -> None:
    """What a guest writes to its part is not seen, the second time neither, and is gone for the next guest."""
    for overwrite in (("WD-1",), ()):
        disk.check(overwrite)
        offset, length = disk.empty()
        assert (offset, length) == (DISK_MARGIN_BYTES, SIZE_BYTES - 2 * DISK_MARGIN_BYTES)
        data = disk.path.read_bytes()
        assert not any(data[offset : offset + 4 * MIB])
        assert not any(data[offset + length - 4 * MIB : offset + length])
        at(offset, b"\xff" * length)(disk.path)
    margin = disk.path.read_bytes()[:offset]
    assert not any(margin[:LABEL_AT])
    assert not any(margin[LABEL_AT + LABEL_BYTES :])


@pytest.mark.parametrize("places", [[], range(0, SIZE_BYTES, MIB)], ids=["blank", "random"])
def test_a_disk_without_a_signature_is_refused_until_it_is_named(disk: File, places: Iterable[int]) -> None:
    """Encrypted ones look like that. Named once, its label is enough."""
    for place in places:
        at(place, random.Random(place).randbytes(4096))(disk.path)
    before = disk.path.read_bytes()
    for named in ((), ("WD-2",)):
        with pytest.raises(UserError, match="is not labelled as a test disk") as caught:
            disk.check(named)
        assert caught.value.hint.endswith("--overwrite WD-1")
    assert disk.path.read_bytes() == before
    disk.check(("WD-1",))
    disk.empty()
    disk.check()


def test_a_named_disk_is_overwritten_when_a_run_first_uses_it_and_has_its_label_later(
    disk: File, tmp_path: Path
) -> None:
    """Its settings name it as long as the run goes on; what is there by then, nobody has spoken of."""
    used = UsedDisks(tmp_path / "used-disks")
    at(0, random.Random(1).randbytes(SIZE_BYTES))(disk.path)
    for _ in range(2):
        disk.check(("WD-1",), used)
        disk.empty()
        used.add(disk.own_name)
    at(0, random.Random(2).randbytes(SIZE_BYTES))(disk.path)
    with pytest.raises(UserError, match="has lost the label that this run gave it") as caught:
        disk.check(("WD-1",), used)
    assert f"rm {tmp_path}/used-disks; bisector resume" in caught.value.hint
    disk.check(("WD-1",), UsedDisks(tmp_path / "another"))


def test_a_label_is_of_one_disk(disk: File) -> None:
    """Data behind a label of bisector may be overwritten; data before it belongs to a person, and is refused."""
    disk.empty()
    label = os.pread(disk.descriptor, LABEL_BYTES, LABEL_AT)
    found = DiskLabel.parse(label)
    assert found is not None
    assert found.size_bytes == SIZE_BYTES
    assert b"purpose: each trial of bisector overwrites this disk" in label
    at(20 * MIB, b"\xff" * (20 * MIB))(disk.path)
    disk.check()
    disk.empty()
    assert os.pread(disk.descriptor, LABEL_BYTES, LABEL_AT) == label
    at(8192, b"an encrypted superblock")(disk.path)
    with pytest.raises(UserError, match="not labelled"):
        disk.check()
    at(8192, bytes(100))(disk.path)
    disk.check()
    os.truncate(disk.path, SIZE_BYTES + MIB)  # another partition than the one that was labelled
    with pytest.raises(UserError, match="not labelled"):
        disk.check()


def test_no_wipefs_no_disk(disk: File, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(disks, "_SUPERUSER_DIRECTORIES", ())
    with pytest.raises(UserError, match="wipefs: command not found"):
        disk.check()


MACHINE = "0123456789abcdef"


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"serial": "WD-WX11 A12\n", "wwid": "naa.5000"}, "WD-WX11_A12"),
        ({"device/serial": "0x1a2b3c4d\n", "device/type": "MMC\n"}, "0x1a2b3c4d"),
        ({"device/vpd_pg80": "\0\x80\0\x08  S3Z1    "}, "S3Z1"),
        ({"device/wwid": "t10.ATA     QEMU HARDDISK"}, "t10.ATA_QEMU_HARDDISK"),
        ({"dm/uuid": "LVM-abcDEF", "serial": "no"}, "LVM-abcDEF"),
        # A namespace of NVMe, as Linux 6.1 shows it: the serial number is the controller's, which all of them share.
        ({"wwid": "eui.002538b471506001\n", "nsid": "1\n", "device/serial": "S123\n"}, "eui.002538b471506001"),
        ({"size": "2048\n", "serial": "\n"}, f"block:2048-sectors@{MACHINE[:8]}"),
    ],
)
def test_what_the_kernel_tells_of_a_disk_names_it(
    tmp_path: Path, files: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its equal in another machine has another name: --overwrite is obeyed on all hosts."""
    monkeypatch.setattr(disks, "machine_id", lambda: MACHINE)
    monkeypatch.setattr(disks, "_SYS", tmp_path)
    device = tmp_path / "devices/block"
    for path, text in files.items():
        (device / path).parent.mkdir(parents=True, exist_ok=True)
        (device / path).write_bytes(text.encode("latin-1"))
    (tmp_path / "8:1").symlink_to(device)
    assert disk_name(os.makedev(8, 1)) == name
    (device / "sda1").mkdir()
    (device / "sda1/partition").write_text("1\n")
    (tmp_path / "8:2").symlink_to(device / "sda1")
    assert disk_name(os.makedev(8, 2)) == f"{name}-part1"


@pytest.mark.parametrize(
    ("logical", "physical", "told"),
    [(512, 512, (512, 512)), (512, 4096, (512, 4096)), (4096, 4096, (4096, 4096)), (16384, 16384, (4096, 16384))],
)
def test_a_guest_is_told_the_block_sizes_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logical: int, physical: int, told: tuple[int, int]
) -> None:
    monkeypatch.setattr(disks, "_SYS", tmp_path)
    queue = tmp_path / "devices" / "sda" / "queue"
    (queue.parent / "sda1").mkdir(parents=True)
    queue.mkdir()
    for which, size in (("logical", logical), ("physical", physical)):
        (queue / f"{which}_block_size").write_text(f"{size}\n")
    (tmp_path / "8:0").symlink_to(queue.parent)
    (tmp_path / "8:1").symlink_to(queue.parent / "sda1")
    for minor in range(2):
        assert block_sizes(os.makedev(8, minor)) == BlockSizes(*told)
