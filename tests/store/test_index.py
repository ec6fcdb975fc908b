import os
import subprocess
import sys
from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.store.log import DATABASE
from bisector.store.rundir import Index, IndexEntry


def run_of(parent: Path, name: str, repository: Path) -> IndexEntry:
    (parent / name).mkdir()
    (parent / name / DATABASE).write_text("")
    return IndexEntry(str(parent / name), str(repository), "v4.11", "v4.13-rc1", "2026-11-21T03:30:12+00:00")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Index()


def test_the_latest_run_that_is_still_there(index: Index, tmp_path: Path) -> None:
    assert (index.entries(), index.latest()) == ((), None)
    first, second = (run_of(tmp_path, name, tmp_path) for name in ("1", "2"))
    for entry in (first, first, second):
        index.add(entry)
    assert index.path == tmp_path / "state" / "bisector" / "index.json"
    assert (index.entries(), index.latest()) == ((first, second), tmp_path / "2")
    (tmp_path / "2" / DATABASE).unlink()
    assert index.latest() == tmp_path / "1"


@pytest.mark.parametrize("content", ["[{", '[{"run_dir": "/x"}]', "[1]", '"x"', "\x00"])
def test_damaged(index: Index, content: str) -> None:
    index.path.parent.mkdir(parents=True)
    index.path.write_text(content)
    with pytest.raises(InfraError, match="damaged") as caught:
        index.entries()
    assert "--run-dir" in caught.value.hint


def test_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfraError, match="cannot write"):
        Index(tmp_path / "file" / "index.json").add(run_of(tmp_path, "1", tmp_path))


ADDER = """
import sys
from pathlib import Path
from bisector.store.rundir import Index, IndexEntry
for number in range(20):
    Index(Path(sys.argv[1])).add(IndexEntry(f"{sys.argv[2]}/{number}", "/src/linux", "a", "b", "now"))
"""


def test_two_processes_add_at_once(index: Index, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(20):
            run_of(tmp_path / name, str(number), tmp_path)
    adders = [
        subprocess.Popen([sys.executable, "-c", ADDER, str(index.path), str(tmp_path / name)], env=dict(os.environ))
        for name in ("a", "b")
    ]
    assert [adder.wait() for adder in adders] == [0, 0]
    assert len(index.entries()) == 40
