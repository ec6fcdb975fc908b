"""Disks that are files: new for each trial, gone after it, found when its process was killed."""

import dataclasses
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bisector.config import DiskSettings, options
from bisector.core.errors import InfraError, UserError
from bisector.host.disks import BlockSizes, disk_name
from bisector.storage.disks import Bus, GuestDisk
from bisector.vm.definition import attached, leftovers
from tests.loopdevice import loop_device

UNUSED = DiskSettings(None, 1 << 20, 0, 0)
SIZE_BYTES = 1 << 20


@pytest.mark.parametrize("named", [True, False])
def test_a_new_file_for_each_trial(tmp_path: Path, named: bool) -> None:
    directory, run_dir = tmp_path / "disks", tmp_path / "run"
    directory.mkdir()
    run_dir.mkdir()
    chosen = DiskSettings(str(directory) if named else None, SIZE_BYTES, 5, 6)
    storage = dataclasses.replace(options.load().settings.storage, disks={"ssd": UNUSED, "hdd": chosen})
    for _ in range(2):
        with attached("hdd", chosen, run_dir, "x-") as disk:
            file = disk.path
            assert file.parent == (directory if named else run_dir)
            assert (disk.part, disk.iops_limit, disk.bytes_per_s_limit) == (None, 5, 6)
            assert file.read_bytes() == bytes(SIZE_BYTES)
            file.write_bytes(b"what a trial wrote")
            assert list(leftovers(storage, run_dir, "x-")) == [file]
            assert list(leftovers(storage, run_dir, "y-")) == []
        assert not file.exists()


@pytest.mark.parametrize(("bus", "sector"), [(Bus.SATA, 512), (Bus.SCSI, 4096), (Bus.SATA, 4096)])
def test_sectors_that_a_bus_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bus: Bus, sector: int
) -> None:
    monkeypatch.setattr("bisector.vm.definition.block_sizes", lambda _: BlockSizes(sector, 4096))
    chosen = dataclasses.replace(UNUSED, guest=GuestDisk(bus))
    with ExitStack() as stack:
        if (bus, sector) == (Bus.SATA, 4096):
            stack.enter_context(pytest.raises(UserError, match=r"^storage\.hdd\.bus: .* have 4096 bytes, .* 512$"))
        assert stack.enter_context(attached("hdd", chosen, tmp_path, "x-")).bus is bus
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="cannot make the hdd disk"), attached("hdd", UNUSED, tmp_path / "x", "x-"):
        pytest.fail("it was made")


@contextmanager
def an_ordinary_user() -> Iterator[None]:
    """By the real user ID, which is the one that access(2) asks about; root may write everywhere."""
    before = os.getresuid()
    if before[0] == 0:
        os.setresuid(65534, *before[1:])
    try:
        yield
    finally:
        os.setresuid(*before)


def test_a_directory_of_somebody_else(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    chosen = DiskSettings(str(tmp_path), SIZE_BYTES, 0, 0)
    with an_ordinary_user(), pytest.raises(UserError, match="is not writable"), attached("hdd", chosen, tmp_path, "x-"):
        pytest.fail("it was made")
    assert list(tmp_path.iterdir()) == []


def test_a_file_has_the_block_sizes_of_its_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = tmp_path.stat().st_dev
    queue = tmp_path / "sys" / f"{os.major(number)}:{os.minor(number)}" / "queue"
    queue.mkdir(parents=True)
    for which, size in (("logical", 512), ("physical", 4096)):
        (queue / f"{which}_block_size").write_text(f"{size}\n")
    monkeypatch.setattr("bisector.host.disks._SYS", tmp_path / "sys")
    with attached("hdd", UNUSED, tmp_path, "x-") as disk:
        assert disk.blocks == BlockSizes(512, 4096)


def test_qemu_gets_the_device_that_was_claimed(tmp_path: Path) -> None:
    """The link of the settings leads to another device by the time that QEMU follows it."""
    link, chosen = tmp_path / "by-id", DiskSettings(str(tmp_path / "by-id"), 0, 0, 0)
    files = [tmp_path / "one.img", tmp_path / "other.img"]
    with ExitStack() as stack:
        for file in files:
            file.touch()
            os.truncate(file, 64 << 20)
        device, other = (stack.enter_context(loop_device(file)) for file in files)
        link.symlink_to(device)
        named = (disk_name(device.stat().st_rdev),)
        spec = stack.enter_context(attached("hdd", chosen, tmp_path, "x-", overwrite=named))
        link.unlink()
        link.symlink_to(other)
        assert spec.path.stat().st_rdev == device.stat().st_rdev
        assert not spec.was_replaced
        assert dataclasses.replace(spec, path=link).was_replaced
        assert dataclasses.replace(spec, path=tmp_path / "gone").was_replaced
