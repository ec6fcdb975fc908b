"""Temporary directories go with their process, however that ends."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bisector.host.scratch import is_scratch, remove_abandoned, scratch

USER = """
import sys, time
from pathlib import Path
from bisector.host.scratch import scratch
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


@pytest.mark.parametrize("name", ["bisector-tmp-probe", "bisector-tmp-probe-abcdefgh.d", "bisector-probe-abcdefgh"])
def test_what_is_named_otherwise_is_not_ours(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert remove_abandoned(tmp_path) == ()
    assert (tmp_path / name).exists()


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
