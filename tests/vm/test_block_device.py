"""Block devices of the host, real ones: named, and claimed only when nobody else uses them."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.config import DiskSettings
from bisector.core.deadline import Deadline
from bisector.core.errors import UserError
from bisector.vm import block_device, test_disk
from bisector.vm.block_device import BlockDevice, block_sizes, disk_name
from bisector.vm.definition import BlockSizes
from bisector.vm.disks import attached
from bisector.vm.test_disk import LABEL_AT, LABEL_BYTES, ExistingDisk, Label
from tests.loopdevice import command, loop_device, partitions

MIB = 1 << 20
SIZE_BYTES = 64 * MIB


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


def test_a_block_device_is_claimed_emptied_and_its_margins_are_left(device: Path, file: Path) -> None:
    device.write_bytes(bytes(MIB) + b"\xff" * (62 * MIB))
    with BlockDevice.claimed(device) as claimed:
        assert claimed.size_bytes == SIZE_BYTES
        test_disk.check(claimed, (claimed.own_name,))
        test_disk.empty(claimed)
    data = file.read_bytes()
    assert Label.parse(data[LABEL_AT : LABEL_AT + LABEL_BYTES]) is not None
    assert not any(data[:LABEL_AT])
    assert not any(data[LABEL_AT + LABEL_BYTES : 6 * MIB])


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


def test_what_is_no_block_device_is_refused(file: Path, tmp_path: Path) -> None:
    for path in (file, tmp_path / "gone"):
        with pytest.raises(UserError, match="no block device"), BlockDevice.claimed(path):
            pytest.fail("it was claimed")


def test_a_read_only_block_device_is_refused(file: Path) -> None:
    with (
        loop_device(file, "--read-only") as device,
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
            test_disk.check(part)
            assert part.size_bytes == 32 * MIB


def no_volume(pool: str, name: str) -> AbstractContextManager[ExistingDisk]:
    raise NotImplementedError


def test_qemu_gets_the_device_that_was_claimed(device: Path, tmp_path: Path) -> None:
    """The link of the settings leads to another device by the time that QEMU follows it."""
    link, other_file = tmp_path / "by-id", tmp_path / "other.img"
    link.symlink_to(device)
    with other_file.open("wb") as made:
        made.truncate(SIZE_BYTES)
    chosen = DiskSettings(str(link), 0, 0, 0)
    with loop_device(other_file) as other, attached("hdd", chosen, tmp_path, "x-", no_volume) as spec:
        link.unlink()
        link.symlink_to(other)
        assert Path(spec.source.name).stat().st_rdev == device.stat().st_rdev
        assert not spec.source.was_replaced
        assert replace(spec.source, name=str(link)).was_replaced
        assert replace(spec.source, name=str(tmp_path / "gone")).was_replaced


@pytest.mark.parametrize("redirection", ["<", "<>"])
def test_a_device_that_a_process_has_open_is_refused(
    device: Path, redirection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_device, "_MOMENT_S", 0.1)
    with subprocess.Popen(["sh", "-c", f"exec sleep 600 {redirection} {device}"]) as process:
        try:
            Deadline("sleep", 10.0).poll(lambda: "sleep" in Path(f"/proc/{process.pid}/comm").read_text() or None)
            with (
                pytest.raises(UserError, match=rf"{device} is in use: open in sleep \({process.pid}\)"),
                BlockDevice.claimed(device),
            ):
                pytest.fail("it was claimed")
        finally:
            process.kill()
    with BlockDevice.claimed(device):
        pass


def test_who_writes_to_the_whole_disk_has_its_partitions_open(device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many only read it, as what watches its temperature does."""
    monkeypatch.setattr(block_device, "_MOMENT_S", 0.1)
    with partitions(device, 32 * MIB, 31 * MIB) as (first, second):
        for opened, redirection, asked, found in (
            (device, "<", first, False), (device, "<>", first, True), (first, "<", device, True),
            (second, "<>", first, False),
        ):  # fmt: skip
            with subprocess.Popen(["sh", "-c", f"exec sleep 600 {redirection} {opened}"]) as process:
                try:
                    Deadline("sleep", 10.0).poll(
                        lambda of=process: "sleep" in Path(f"/proc/{of.pid}/comm").read_text() or None  # type: ignore[misc] # of the loop
                    )
                    seen = block_device.openers_of_device(asked.stat().st_rdev)
                    assert bool(seen) is found, (opened, redirection, asked)
                finally:
                    process.kill()


def test_a_loop_device_is_named_by_its_file(device: Path, file: Path) -> None:
    name = disk_name(device.stat().st_rdev)
    assert name == f"loop:disk.img:{file.stat().st_ino}"
    with partitions(device, 32 * MIB) as (first,):
        assert disk_name(first.stat().st_rdev) == f"{name}-part1"


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"serial": "WD-WX11 A12\n", "wwid": "naa.5000"}, "WD-WX11_A12"),
        ({"device/serial": "0x1a2b3c4d\n", "device/type": "MMC\n"}, "0x1a2b3c4d"),
        ({"device/vpd_pg80": "\0\x80\0\x08  S3Z1    "}, "S3Z1"),
        ({"device/wwid": "t10.ATA     QEMU HARDDISK"}, "t10.ATA_QEMU_HARDDISK"),
        ({"dm/uuid": "LVM-abcDEF", "serial": "no"}, "LVM-abcDEF"),
        ({"size": "2048\n", "serial": "\n"}, "block:2048-sectors"),
    ],
)
def test_what_the_kernel_tells_of_a_disk_names_it(tmp_path: Path, files: dict[str, str], name: str) -> None:
    device = tmp_path / "devices/block"
    for path, text in files.items():
        (device / path).parent.mkdir(parents=True, exist_ok=True)
        (device / path).write_bytes(text.encode("latin-1"))
    (tmp_path / "8:1").symlink_to(device)
    assert disk_name(os.makedev(8, 1), tmp_path) == name
    (device / "sda1").mkdir()
    (device / "sda1/partition").write_text("1\n")
    (tmp_path / "8:2").symlink_to(device / "sda1")
    assert disk_name(os.makedev(8, 2), tmp_path) == f"{name}-part1"


def test_two_namespaces_of_one_nvme_device_have_two_names(tmp_path: Path) -> None:
    """As Linux 6.1 shows them: the serial number is the controller's."""
    controller = tmp_path / "devices/nvme0"
    controller.mkdir(parents=True)
    (controller / "serial").write_text("S123\n")
    for n in (1, 2):
        namespace = controller / f"nvme0n{n}"
        namespace.mkdir()
        (namespace / "device").symlink_to(controller)
        (namespace / "nsid").write_text(f"{n}\n")
        (namespace / "wwid").write_text(f"eui.002538b47150600{n}\n")
        (tmp_path / f"259:{n}").symlink_to(namespace)
    names = [disk_name(os.makedev(259, n), tmp_path) for n in (1, 2)]
    assert names == ["eui.002538b471506001", "eui.002538b471506002"]


@pytest.mark.parametrize(
    ("logical", "physical", "told"),
    [(512, 512, (512, 512)), (512, 4096, (512, 4096)), (4096, 4096, (4096, 4096)), (16384, 16384, (4096, 16384))],
)
def test_a_guest_is_told_the_block_sizes_of_the_disk(
    tmp_path: Path, logical: int, physical: int, told: tuple[int, int]
) -> None:
    queue = tmp_path / "devices" / "sda" / "queue"
    (queue.parent / "sda1").mkdir(parents=True)
    queue.mkdir()
    for which, size in (("logical", logical), ("physical", physical)):
        (queue / f"{which}_block_size").write_text(f"{size}\n")
    (tmp_path / "8:0").symlink_to(queue.parent)
    (tmp_path / "8:1").symlink_to(queue.parent / "sda1")
    for minor in range(2):
        assert block_sizes(os.makedev(8, minor), tmp_path) == BlockSizes(*told)
