"""Who runs a stranger's make for root, and what of root's belongs to that user."""

import os
import pwd
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisector.host import process

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="another user than root has no other user")


@pytest.fixture(autouse=True)
def _nobody_chosen_yet() -> Iterator[None]:
    process._chosen.cache_clear()
    yield
    process._chosen.cache_clear()


def account(uid: int, gid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd(("bisector-build", "x", uid, gid, "", "/", "/bin/false"))


def numbers() -> tuple[int, int]:
    user = process.build_user()
    assert user is not None
    return user.uid, user.gid


def test_a_number_that_nobody_has_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    free, _ = numbers()
    assert 65_520 <= free < 65_534
    process._chosen.cache_clear()
    look, known = pwd.getpwuid, {free}
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: account(uid, uid) if uid in known else look(uid))
    assert numbers() == (free + 1, free + 1)


def test_a_user_of_that_name_is_taken_unless_it_is_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwnam", lambda name: account(990, 991))
    assert numbers() == (990, 991)
    for uid, gid in ((0, 991), (990, 0)):
        process._chosen.cache_clear()
        monkeypatch.setattr(pwd, "getpwnam", lambda name, uid=uid, gid=gid: account(uid, gid))
        assert min(numbers()) > 60_000


def test_an_ordinary_user_stays_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    process.give(tmp_path)
    process.show(tmp_path)
    with process.lent(tmp_path / "log"):
        pass
    assert (process.build_user(), process.umask(), list(tmp_path.iterdir())) == (None, -1, [])
    assert (tmp_path.stat().st_uid, tmp_path.stat().st_mode & 0o777) == (0, 0o700)


def test_what_is_given_is_given_whole_and_what_is_behind_a_link_is_not(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    (theirs / "deep").mkdir(parents=True)
    ours.mkdir()
    (ours / "file").touch()
    (theirs / "deep/program").touch()
    (theirs / "deep/program").chmod(0o4755)
    (theirs / "file").symlink_to(ours / "file")
    (theirs / "directory").symlink_to(ours)
    process.give(theirs)
    uid, _ = numbers()
    assert {path.lstat().st_uid for path in (theirs, *theirs.rglob("*"))} == {uid}
    assert {path.lstat().st_uid for path in (ours, ours / "file")} == {0}
    assert (theirs / "deep/program").stat().st_mode & 0o7000 == 0
    assert theirs.stat().st_mode & 0o777 == 0o700


def test_what_is_shown_can_be_read_and_run_and_nothing_behind_a_link(tmp_path: Path) -> None:
    """What is shown already stays as it is: git takes a file whose status has changed for one that was written to."""
    tree, other = tmp_path / "tree", tmp_path / "other"
    (tree / "below").mkdir(parents=True)
    asked = {other: 0o600, tree / "below/text": 0o640, tree / "script": 0o700, tree / "shown": 0o644}
    for path, mode in asked.items():
        path.touch()
        path.chmod(mode)
    (tree / "link").symlink_to(other)
    for path in (tree, tree / "below"):
        path.chmod(0o700)
    before = {path.name: path.stat().st_ctime_ns for path in asked}
    time.sleep(0.02)  # the kernel's clock for files ticks at 100 Hz at least
    process.show(tree)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tree, tree / "below", *asked)}
    shown = {"text": 0o644, "script": 0o705, "shown": 0o644}
    assert modes == {"tree": 0o705, "below": 0o705, "other": 0o600, **shown}
    assert {path.name for path in asked if path.stat().st_ctime_ns != before[path.name]} == {"text", "script"}
