"""Temporary directories go with their process, however that ends; directories are judged by their file system."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bisector.core.errors import Grade, UserError
from bisector.host import files
from bisector.host.files import direct_io, is_scratch, remove_abandoned, scratch

USER = """
import sys, time
from pathlib import Path
from bisector.host.files import scratch
with scratch("probe", Path(sys.argv[1])) as path:
    (path / "file").write_text("content")
    print(path, flush=True)
    time.sleep(60)
"""


def test_it_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    with scratch("probe", tmp_path) as path:
        assert path.parent == tmp_path
        assert path.stat().st_mode & 0o777 == 0o700
        assert is_scratch(path)
        (path / "file").write_text("")
    assert list(tmp_path.iterdir()) == []
    with scratch("probe", tmp_path, 0o755) as path:
        assert path.stat().st_mode & 0o777 == 0o755


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_uses_is_not(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", USER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process, scratch("cc", tmp_path) as ours:  # fmt: skip
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        assert remove_abandoned(tmp_path) == ()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (path / "file").exists()
        assert remove_abandoned(tmp_path) == (path,)
        assert list(tmp_path.iterdir()) == [ours]


def test_neither_a_link_nor_a_file_nor_somebody_elses_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (tmp_path / "bisector-tmp-probe-aaaaaaaa").symlink_to(precious)
    (tmp_path / "bisector-tmp-probe-bbbbbbbb").write_text("")
    (tmp_path / "bisector-tmp-probe-cccccccc").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert remove_abandoned(tmp_path) == ()
    monkeypatch.undo()
    assert remove_abandoned(tmp_path) == (tmp_path / "bisector-tmp-probe-cccccccc",)
    assert len(list(tmp_path.iterdir())) == 3


def test_one_that_is_made_while_others_clean_up_is_there(tmp_path: Path) -> None:
    """Between its making and its lock it looks abandoned."""
    done = threading.Event()

    def clean() -> None:
        while not done.is_set():
            remove_abandoned(tmp_path)

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    try:
        for _ in range(200):
            with scratch("probe", tmp_path) as path:
                (path / "file").write_text("")
                assert (path / "file").exists()
    finally:
        done.set()
        cleaner.join()


def test_direct_io_is_told_without_leaving_a_file(tmp_path: Path) -> None:
    assert direct_io(tmp_path) in (True, False)
    assert list(tmp_path.iterdir()) == []


def test_the_file_system_of_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (files.file_system(Path("/proc/self")), files.file_system(Path("/sys"))) == ("proc", "sysfs")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert files.file_system(Path("/proc")) == "unknown"


@pytest.mark.parametrize("kind", ["tmpfs", "nfs4"])
def test_an_unfit_file_system_is_a_warning_and_nfs_no_place_for_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(files, "file_system", lambda _: kind)
    row = files.directory("cache directory", tmp_path / "still" / "to be made")
    assert (row.state, f" on {kind}, which is " in row.what) == (Grade.WARN, True)
    assert "XDG_CACHE_HOME" in (row.remedy or "")
    assert not list(tmp_path.iterdir())
    if kind == "nfs4":
        with pytest.raises(UserError, match=f"on {kind}: a record is not safe there") as caught:
            files.directory("run directory", tmp_path, of_record=True)
        assert "--run-dir" in caught.value.hint


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key.pem"
    files.write_atomically(path, b"older")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    files.write_atomically(path, b"old", 0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def full(_descriptor: int) -> None:
        assert stat.S_IMODE(next(tmp_path.glob(".key.pem.*")).stat().st_mode) == 0o600
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomically(path, b"new", 0o600)
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("key.pem", b"old")]
