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


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path, capsys)
