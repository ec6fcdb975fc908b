"""What a worker removes before it takes work, and what it refuses to begin with."""

import io
import json
import os
import time
from pathlib import Path

import msgspec.structs
import pytest

from bisector.core import json_document
from bisector.core.errors import UserError
from bisector.fleet import cluster, spec
from bisector.fleet.cluster import Assignment, tidy
from bisector.host.disks import USED_DISKS
from bisector.host.locks import held
from bisector.store.rundir import LOCK

DAY_S = 24 * 3600.0


def left(home: Path, run: str, days: float, size_bytes: int = 0) -> Path:
    place = home / run
    (place / "build").mkdir(parents=True)
    (place / "build" / "vmlinux").write_bytes(b"x" * size_bytes)
    (place / USED_DISKS).write_text("sda\n")
    (place / LOCK).write_text("")
    os.utime(place / LOCK, (time.time() - days * DAY_S,) * 2)
    return place


def test_what_nobody_has_used_for_long_goes_but_for_the_disks_that_it_has_labelled(tmp_path: Path) -> None:
    """A disk that has lost its label since then is not overwritten: somebody may have put something there."""
    old, new = left(tmp_path, "old", 15), left(tmp_path, "new", 13)
    tidy(tmp_path)
    assert [path.name for path in old.iterdir()] == [USED_DISKS]
    assert (new / "build").is_dir()


def test_the_oldest_go_where_it_is_too_much_and_the_newest_never(tmp_path: Path) -> None:
    for number in range(3):
        left(tmp_path, f"run{number}", number, 3 << 20)
    tidy(tmp_path, kept_bytes=7 << 20)
    assert [(tmp_path / f"run{number}" / "build").is_dir() for number in range(3)] == [True, True, False]
    tidy(tmp_path, kept_bytes=0)
    assert [(tmp_path / f"run{number}" / "build").is_dir() for number in range(3)] == [True, False, False]


def test_nothing_goes_of_a_run_that_is_at_work(tmp_path: Path) -> None:
    place = left(tmp_path, "old", 15)
    with held(place / LOCK):
        os.utime(place / LOCK, (0, 0))
        tidy(tmp_path)
    assert (place / "build").is_dir()


def assigned(**changed: object) -> io.StringIO:
    told = Assignment(name="bench1", address="", port=1, certificate="", key="", versions=spec.own_versions())
    told = msgspec.structs.replace(told, **changed)
    return io.StringIO(json.dumps(json_document.plain(told)) + "\n")


def test_a_coordinator_with_another_source_is_refused_by_what_differs() -> None:
    other = msgspec.structs.replace(spec.own_versions(), source="0123", distributed="2020.1")
    with pytest.raises(UserError, match=r"source is \S+ there and \S+ here; distributed is"):
        cluster.serve(assigned(versions=other))


def test_what_nobody_types_says_what_is_typed() -> None:
    with pytest.raises(UserError, match="a coordinator starts this by SSH"):
        cluster.serve(io.StringIO("\n"))


def test_versions_are_those_of_the_files_when_the_process_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """After `pip install -U` a worker that still runs the old code must not tell the new digest."""
    before = spec.own_versions()
    monkeypatch.setattr(spec, "_source_digest", lambda: "another")
    assert spec.own_versions() == before
