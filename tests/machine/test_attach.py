"""Disks that are files: new for each trial, gone after it, found when its process was killed."""

import dataclasses
import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from bisector.errors import InfraError, UserError
from bisector.machine.attach import attached, leftovers
from bisector.machine.testdisk import ExistingDisk
from bisector.settings import DiskSettings, options

SIZE_BYTES = 1 << 20


def no_volume(pool: str, name: str) -> AbstractContextManager[ExistingDisk]:
    raise NotImplementedError


@pytest.mark.parametrize("named", [True, False])
def test_a_new_file_for_each_trial(tmp_path: Path, named: bool) -> None:
    directory, run_dir = tmp_path / "disks", tmp_path / "run"
    directory.mkdir()
    run_dir.mkdir()
    wish = DiskSettings(str(directory) if named else None, SIZE_BYTES, 5, 6)
    storage = dataclasses.replace(options.load().settings.storage, hdd=wish)
    for _ in range(2):
        with attached("hdd", wish, run_dir, "x-", no_volume) as disk:
            file = Path(disk.source.name)
            assert file.parent == (directory if named else run_dir)
            assert (disk.part, disk.iops_limit, disk.bytes_per_s_limit) == (None, 5, 6)
            assert file.read_bytes() == bytes(SIZE_BYTES)
            file.write_bytes(b"what a trial wrote")
            assert list(leftovers(storage, run_dir, "x-")) == [file]
            assert list(leftovers(storage, run_dir, "y-")) == []
        assert not file.exists()


def test_trouble_of_the_trial_is_not_the_disks(tmp_path: Path) -> None:
    with (
        pytest.raises(ConnectionResetError),
        attached("hdd", DiskSettings(None, SIZE_BYTES, 0, 0), tmp_path, "x-", no_volume),
    ):
        raise ConnectionResetError


def test_a_disk_that_cannot_be_made(tmp_path: Path) -> None:
    gone = DiskSettings(None, SIZE_BYTES, 0, 0)
    with (
        pytest.raises(InfraError, match="cannot make the hdd disk"),
        attached("hdd", gone, tmp_path / "x", "x-", no_volume),
    ):
        pytest.fail("it was made")


def test_a_directory_of_somebody_else(tmp_path: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    wish = DiskSettings(str(tmp_path), SIZE_BYTES, 0, 0)
    with pytest.raises(UserError, match="is not writable"), attached("hdd", wish, tmp_path, "x-", no_volume):
        pytest.fail("it was made")
