"""Files that were imported before, and an import that was killed: the same command makes it whole."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.imported.conftest import FAST, SLOW, Desk, index, row


def test_the_same_files_again(desk: Desk) -> None:
    first = index(desk, row("a", SLOW[0], run="empty"), row("a", SLOW[1]))
    desk.imports(*first)
    assert "0 trials imported into" in desk.imports(*first)
    both = index(desk, row("a", SLOW[0], run="empty"), row("a", SLOW[1]), row("b", FAST[1]))
    assert "1 trial imported into" in desk.imports(*both)
    assert [trial.trial.commit.sha for trial in desk.view.trials] == ["a", "b"]
    copy = desk.path / "copy.txt"
    shutil.copy(SLOW[1], copy)
    assert "0 trials imported" in desk.imports(copy)  # under another name and without its commit
    new = desk.path / "new.txt"
    new.write_text(SLOW[1].read_text().replace(" pid=", " pid=1"), encoding="utf-8")
    assert "and others of its trial are not" in desk.refuses(*index(desk, row("c", copy, run="empty"), row("c", new)))
    assert "have one content, and cannot be two runs" in desk.refuses(
        *index(desk, row("d", new), row("e", Path(shutil.copy(new, desk.path / "other.txt"))))
    )


def test_what_a_killed_import_left_is_removed_by_the_next(desk: Desk) -> None:
    desk.imports(SLOW[1], "--kernel", "a kernel/of mine")
    (left,) = (desk.run / "trials").iterdir()
    assert left.name == "0001-a-kernel-of-"
    for name in ("0002-b", "letters"):
        (desk.run / "trials" / name).mkdir()
    desk.imports(FAST[1])
    names = {path.name for path in (desk.run / "trials").iterdir()}
    assert names == {left.name, "0002-14-4.12.0-rc", "letters"}


KILLED_AT_EACH_WRITE = """
import os, shutil, signal, sys
from pathlib import Path
from bisector.cli import main
from bisector.store.store import Store

run = Path(sys.argv[-1])
EVENTS = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "sqlite3.connect"}

def trials():
    with Store.open(run / "record.sqlite", readonly=True) as store:
        return [trial.commit.sha for _, trial in store.trials()]

def in_a_child(kill_at):
    left = kill_at
    def count(event, arguments):
        nonlocal left
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        left -= event in EVENTS or bool(writes)
        if left == 0:
            left = -1  # killing is an event, too
            os.kill(os.getpid(), signal.SIGKILL)
    child = os.fork()
    if child == 0:
        sys.addaudithook(count)
        os._exit(main(sys.argv[1:]))
    return os.waitpid(child, 0)[1]

for moment in range(1, 1000):
    shutil.rmtree(run, ignore_errors=True)
    status = in_a_child(moment)
    recorded = trials() if (run / "record.sqlite").is_file() else []
    assert recorded in ([], ["a", "b"]), (moment, recorded)
    if os.WIFEXITED(status):
        assert status == 0, status
        print("killed at", moment - 1)
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert in_a_child(-1) == 0
    assert trials() == ["a", "b"], (moment, trials())
    assert len(list((run / "trials").iterdir())) == 2, moment
"""


@pytest.mark.rare
def test_kill_9_wherever_it_comes(desk: Desk) -> None:
    """Nothing is recorded or all of it is, and the same command again makes it whole."""
    words = map(str, index(desk, row("a", SLOW[1]), row("b", FAST[1])))
    ended = subprocess.run(
        [sys.executable, "-c", KILLED_AT_EACH_WRITE, "import", *words, "--quiet", "--run-dir", str(desk.run)],
        env={**os.environ, "PYTHONPATH": os.fspath(Path(__file__).parent.parent.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    moments = int(ended.stdout.split("killed at ")[1])
    assert moments > 10
