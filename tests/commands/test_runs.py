"""``bisector runs``, and runs by their number and name."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.core.verdict import State
from bisector.store.log import DATABASE
from bisector.store.rundir import Index, IndexEntry
from tests import recorded_run
from tests.docs.json_schema import valid

ANSWER = "c3 is the first fixed commit: a subject (99.6 %)"
FOUND = "20260301-100000-v6.1..v6.2"


@dataclass
class World:
    """A run with an answer, and one whose record is damaged; the first one is gone."""

    run_dir: Path
    output: pytest.CaptureFixture[str]

    def run(self, *words: str, code: int = 0) -> str:
        self.output.readouterr()
        assert main(words) == code
        seen = self.output.readouterr()
        return seen.err if code else seen.out


@pytest.fixture
def world(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(home)
    found = recorded_run.found(home)
    found.end(State.FOUND, ANSWER)
    run_dir = found.run.path.rename(home / FOUND)
    for name in ("gone", FOUND, "damaged"):
        (home / name).mkdir(exist_ok=True)
        (home / name / DATABASE).touch()
        Index().add(IndexEntry(str(home / name), str(found.repository), "v6.1", "v6.2", "2026-03-01T10:00:00+00:00"))
    (home / "gone" / DATABASE).unlink()
    return World(run_dir, capsys)


def test_runs_are_listed_with_their_answers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = world.run("runs").splitlines()
    assert lines[1].split() == ["2", "2026-03-01", "10:00", "found", "v6.1..v6.2", FOUND]
    assert lines[2] == f"    {ANSWER}"
    assert lines[3].split()[0] == "3"
    assert "unreadable" in lines[3]
    listed = valid("runs", world.run("runs", "--json"))["runs"]
    assert [(one["number"], one["state"], one["kind"]) for one in listed] == [
        (2, "found", "bisection"),
        (3, None, None),
    ]
    assert listed[0]["answer"] == ANSWER


@pytest.mark.parametrize("words", [("-r", "2"), ("--run-dir", "2"), ("-r", FOUND), ("-r", "./" + FOUND)])
def test_a_run_by_its_number_its_name_or_its_path(world: World, words: tuple[str, ...]) -> None:
    assert json.loads(world.run("status", "--json", *words))["run_dir"] == str(world.run_dir)


def test_a_directory_goes_before_a_number_and_a_number_may_be_of_no_run(world: World) -> None:
    Path("2").mkdir()
    assert "2 is not a run directory" in world.run("status", "-r", "2", code=2)
    assert "`bisector runs`" in world.run("status", "-r", "1", code=2)


def test_no_run_yet(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs"]) == 0
    assert capsys.readouterr().out == "there is no run yet: bisector start OLD NEW\n"
    assert main(["runs", "--json"]) == 0
    assert valid("runs", capsys.readouterr().out)["runs"] == []


def test_a_number_stays_when_earlier_runs_go_and_later_ones_come(world: World) -> None:
    """Also of runs that an older version has listed, without numbers."""
    index = Index()
    older = [
        {key: value for key, value in one.items() if key != "number"} for one in json.loads(index.path.read_text())
    ]
    index.path.write_text(json.dumps(older))
    assert [one.number for one in index.entries()] == [2, 3]
    index.add(IndexEntry("elsewhere", "", "a", "b", "now"))
    (world.run_dir / DATABASE).unlink()
    assert [one.number for one in Index().entries()] == [3]
