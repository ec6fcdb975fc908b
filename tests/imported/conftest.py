import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.status import from_record
from bisector.status.view import BisectionView
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests.analysis.recorded import RECORDED

DATA = RECORDED.parent
SET = RECORDED / "lvmcache-bisect-2017"
SLOW = tuple(SET / f"13-4.12.0-rc1+78c45607b909-{run}.txt" for run in ("empty", "full"))
FAST = tuple(SET / f"14-4.12.0-rc1+6cf4cc8f8b3b-{run}.txt" for run in ("empty", "full"))


@dataclass
class Desk:
    """A directory of a person's own, from which things are imported into ``run``."""

    path: Path
    output: pytest.CaptureFixture[str]

    @property
    def run(self) -> Path:
        return self.path / "run"

    def beside(self, text: str) -> str:
        """An index's text with copies of the recorded files that it names: its files lie below its directory."""
        for recorded in re.findall(rf"{re.escape(str(DATA))}/[^,\n]+", text):
            shutil.copy(recorded, self.path)
            text = text.replace(recorded, Path(recorded).name)
        return text

    def imports(self, *words: str | Path) -> str:
        """What is said of an import that succeeds."""
        assert main(["import", *map(str, words), "--run-dir", str(self.run)]) == 0
        return self.output.readouterr().out

    def refuses(self, *words: str | Path) -> str:
        """What is said of one that is refused."""
        self.output.readouterr()
        assert main(["import", *map(str, words), "--run-dir", str(self.run)]) == 2
        said = self.output.readouterr()
        assert said.out == ""
        assert said.err.startswith("bisector: ")
        return said.err

    def table(self) -> str:
        assert main(["table", "--run-dir", str(self.run)]) == 0
        return self.output.readouterr().out

    @property
    def view(self) -> BisectionView:
        with Store.open(self.run / "record.sqlite", readonly=True) as store:
            return from_record.view(RunDirectory(self.run), store)


def index(desk: Desk, *rows: str, header: str = "commit,run,verdict,file") -> tuple[str, Path]:
    path = desk.path / "index.csv"
    path.write_text(desk.beside("\n".join((header, *rows)) + "\n"), encoding="utf-8")
    return "--index", path


def row(commit: str, file: Path, verdict: str = "", run: str = "full") -> str:
    return f"{commit},{run},{verdict},{file}"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path, capsys)
