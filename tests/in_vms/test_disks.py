"""Disks under test that bisector does not make: block devices, partitions, logical volumes."""

import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bisector.host.disks import LABEL_AT, LABEL_BYTES, BlockDevice, DiskLabel
from scenarios.demo.history import History
from tests.in_vms.conftest import SHORT, Tool
from tests.loopdevice import command, loop_device, partitions

pytestmark = pytest.mark.vm

MIB = 1 << 20
SIZE_BYTES = 256 * MIB


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    made = tmp_path / "one.img", tmp_path / "two.img"
    for path in made:
        with path.open("wb") as file:
            file.truncate(SIZE_BYTES)
    return made


@pytest.fixture
def devices(files: tuple[Path, Path]) -> Iterator[tuple[Path, Path]]:
    with ExitStack() as stack:
        one, two = (stack.enter_context(loop_device(file)) for file in files)
        label(one)
        label(two)
        yield one, two


def label(device: Path) -> None:
    """As after its first use, for which a person has to name it."""
    with BlockDevice.claimed(device) as claimed:
        claimed.empty()


def test_block_devices(tool: Tool, demo: History, devices: tuple[Path, Path], files: tuple[Path, Path]) -> None:
    """Twice: the second trial meets what the first one left, and the host sees nothing of it."""
    ssd, hdd = devices
    for _ in range(2):
        trial = tool.trial(demo.new, "--ssd", ssd, "--hdd", hdd, *SHORT)
        assert trial["runs"][1]["cache_before"]["full"]
        for file in files:
            data = file.read_bytes()
            assert any(data[MIB:-MIB])
            assert DiskLabel.parse(data[LABEL_AT : LABEL_AT + LABEL_BYTES]) is not None
            assert not any(data[:LABEL_AT])
            assert not any(data[-MIB:])
    assert not [line for line in command("losetup", "--list", "--noheadings").splitlines() if "deleted" in line]


@pytest.mark.rare
def test_a_guest_is_told_the_block_sizes_of_its_disks(tool: Tool, demo: History, files: tuple[Path, Path]) -> None:
    """An SSD with blocks of 4 KiB below an HDD with blocks of 512 bytes, as LVM in the guest has to take them."""
    with loop_device(files[0], "--sector-size", "4096") as ssd, loop_device(files[1]) as hdd:
        label(ssd)
        label(hdd)
        trial = tool.trial(demo.new, "--ssd", ssd, "--hdd", hdd, *SHORT)
    (console,) = (one["path"] for one in trial["artifacts"] if one["name"] == "console.log")
    said = (Path(trial["run_dir"]) / console).read_text(errors="replace")
    assert f"[vdb] {SIZE_BYTES // 4096 - 512} 4096-byte logical blocks" in said
    assert f"[vdc] {SIZE_BYTES // 512 - 4096} 512-byte logical blocks" in said


def test_block_device_with_data_is_refused_before_anything_is_built(
    tool: Tool, demo: History, devices: tuple[Path, Path]
) -> None:
    _, hdd = devices
    command("mke2fs", "-q", "-t", "ext4", "-L", "family", hdd)
    said = tool.refused(demo.new, "--hdd", hdd, *SHORT)
    assert f"storage.hdd.path: {hdd} is not empty: ext4 (label family)" in said
    assert f"wipefs --all {hdd}" in said
    command("e2fsck", "-fn", hdd)


def test_block_device_without_a_signature_is_refused_until_it_is_named(
    tool: Tool, demo: History, devices: tuple[Path, Path], files: tuple[Path, Path]
) -> None:
    """An encrypted disk looks like this; the refusal says what to type, and it is typed here."""
    hdd, content = devices[1], random.Random(1).randbytes(MIB) * (SIZE_BYTES // MIB)
    files[1].write_bytes(content)
    said = tool.refused(demo.new, "--hdd", hdd, *SHORT)
    assert f"storage.hdd.path: {hdd} is not labelled as a test disk" in said
    assert files[1].read_bytes() == content
    named = re.search(r"--overwrite (\S+)", said)
    assert named is not None
    tool.trial(demo.new, "--hdd", hdd, "--overwrite", named[1], *SHORT)
    tool.trial(demo.new, "--hdd", hdd, *SHORT)


def test_block_devices_too_small(tool: Tool, demo: History, devices: tuple[Path, Path]) -> None:
    ssd, _ = devices
    said = tool.refused(demo.new, "--ssd", ssd, "--cache-size", "248MiB", "--file-size", "124MiB")
    assert "storage.cache_size" in said
    assert "which has 254MiB" in said


def test_partition(tool: Tool, demo: History, devices: tuple[Path, Path], tmp_path: Path) -> None:
    """A partition is taken while its neighbour is mounted, and the neighbour and the table are as before."""
    device, _ = devices
    neighbour = tmp_path / "neighbour"
    neighbour.mkdir()
    with partitions(device, 128 * MIB, 64 * MIB) as (first, second):
        command("mke2fs", "-q", "-t", "ext4", second)
        command("mount", second, neighbour)
        label(first)
        try:
            table = device.read_bytes()[:512]
            tool.trial(demo.new, "--hdd", first, *SHORT)
            assert f"{device} is in use" in tool.refused(demo.new, "--hdd", device, *SHORT)
            assert device.read_bytes()[:512] == table
        finally:
            command("umount", neighbour)
        command("e2fsck", "-fn", second)


@pytest.mark.rare
def test_logical_volume(tool: Tool, demo: History, devices: tuple[Path, Path]) -> None:
    if not Path("/dev/mapper/control").exists() or command("sh", "-c", "command -v lvcreate || true") == "":
        pytest.skip("no device-mapper in this kernel, or lvm2 is not installed")
    device, _ = devices
    group = f"bisector-test-{device.name}"
    command("vgcreate", "-q", "-y", group, device)
    try:
        command("lvcreate", "-q", "-y", "-n", "hdd", "-L", "128m", group)
        volume = Path(f"/dev/{group}/hdd")
        label(volume)
        for _ in range(2):
            tool.trial(demo.new, "--hdd", volume, *SHORT)
        said = tool.refused(demo.new, "--hdd", device, *SHORT)
        assert f"{device} is in use" in said
    finally:
        command("vgremove", "-q", "-y", group)
