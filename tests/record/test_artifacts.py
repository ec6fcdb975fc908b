import hashlib
from pathlib import Path

import pytest

from bisector.errors import InfraError
from bisector.model import Artifact
from bisector.record.artifacts import collect, remove_unfinished, trial_directory
from tests.examples import commit

COMMIT = commit(0x6CF4CC8F8B3B << (28 * 4))


def test_directory_of_a_trial_is_new_and_empty(tmp_path: Path) -> None:
    directory = trial_directory(tmp_path, 3, COMMIT)
    assert directory == tmp_path / "trials" / "0003-6cf4cc8f8b3b"
    (directory / "console.log").write_text("of an attempt that failed")
    assert list(trial_directory(tmp_path, 3, COMMIT).iterdir()) == []


def test_directory_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "trials").write_text("in the way")
    with pytest.raises(InfraError, match="0003-6cf4cc8f8b3b: Not a directory"):
        trial_directory(tmp_path, 3, COMMIT)


def test_every_file_is_collected_with_its_sum(tmp_path: Path) -> None:
    directory = trial_directory(tmp_path, 1, COMMIT)
    (directory / "full").mkdir()
    (directory / "full" / "fio.json").write_bytes(b"{}")
    (directory / "console.log").write_bytes(b"")
    (directory / "link").symlink_to("console.log")
    assert collect(directory, tmp_path) == (
        Artifact("console.log", "trials/0001-6cf4cc8f8b3b/console.log", hashlib.sha256(b"").hexdigest(), 0),
        Artifact("full/fio.json", "trials/0001-6cf4cc8f8b3b/full/fio.json", hashlib.sha256(b"{}").hexdigest(), 2),
    )


def test_only_leftovers_are_removed(tmp_path: Path) -> None:
    finished = trial_directory(tmp_path, 1, COMMIT)
    (finished / "console.log").write_text("Linux version")
    unfinished = trial_directory(tmp_path, 2, commit(2))
    (unfinished / "console.log").write_text("Linux ver")
    own = tmp_path / "trials" / "notes"
    own.mkdir()
    assert remove_unfinished(tmp_path, collect(finished, tmp_path)) == 1
    assert sorted(path.name for path in (tmp_path / "trials").iterdir()) == [finished.name, "notes"]
    assert (finished / "console.log").exists()


def test_nothing_to_remove(tmp_path: Path) -> None:
    assert remove_unfinished(tmp_path, ()) == 0
