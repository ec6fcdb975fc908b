"""A lock's file is overwritten by whoever holds it, so it has to be the very file of that name."""

import os
from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.host.lock import held, holder_of


def test_a_file_behind_a_link_is_neither_read_nor_overwritten(tmp_path: Path) -> None:
    other, lock = tmp_path / "other", tmp_path / "lock"
    other.write_text("a person's")
    lock.symlink_to(other)
    with pytest.raises(OSError, match="Too many levels of symbolic links"), held(lock):
        pass
    with pytest.raises(InfraError, match="cannot read"):
        holder_of(lock)
    assert other.read_text() == "a person's"


def test_the_other_end_of_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    assert holder_of(tmp_path / "lock") is None


def test_who_holds_it_is_told_for_as_long(tmp_path: Path) -> None:
    with held(tmp_path / "lock"):
        holder = holder_of(tmp_path / "lock")
        assert holder is not None
        assert holder.pid == os.getpid()
    assert holder_of(tmp_path / "lock") is None
