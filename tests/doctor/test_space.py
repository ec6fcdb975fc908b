"""Room on real file systems, and what the large profile asks of a machine."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bisector.config import options
from bisector.core.errors import UserError
from bisector.doctor.checks import check_room
from tests.loopdevice import command

GIB = 1 << 30


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def set_to(free_bytes: int) -> None:
        monkeypatch.setattr("bisector.doctor.checks.disk_room_bytes", lambda path: free_bytes)

    return set_to


def test_room_is_asked_of_the_file_system_that_has_the_disk(tmp_path: Path) -> None:
    """A real one, too small: sparse as the disk is, a trial writes to it."""
    if os.getuid() != 0:
        pytest.skip("mounting needs root")
    small = tmp_path / "small"
    small.mkdir()
    command("mount", "-t", "tmpfs", "-o", "size=64M", "none", small)
    try:
        settings = options.load({"storage.hdd.path": str(small)}).settings
        with pytest.raises(UserError, match=f"{small} has 64 MiB free"):
            check_room(settings, tmp_path)
    finally:
        command("umount", small)


def test_large_profile_needs_what_it_writes_and_not_what_its_disks_could_hold(
    tmp_path: Path, room: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # kernels are kept on the same file system as the disks
    settings = options.load({"profile": "article"}).settings
    assert sum(disk.size_bytes for disk in settings.storage.disks.values()) == 55 * GIB
    room(20 * GIB)
    check_room(settings, tmp_path)
    room(10 * GIB)
    with pytest.raises(UserError, match=r"10 GiB free; .* up to 1[78]\.\d GiB there"):
        check_room(settings, tmp_path)
