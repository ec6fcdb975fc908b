"""``bisector plot`` on a record with real logs, and what it says when there is nothing to draw."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.report.plots import traced
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests import recorded_run
from tests.git import histories
from tests.recorded_run import FAST, SLOW, RecordedRun
from tests.report.curve_examples import log_text


def logs(kind: str) -> dict[str, str]:
    return {f"{run}/partial_iops.{job}.log": log_text(kind, job) for run in ("empty", "full") for job in (1, 2)}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    run = RecordedRun(tmp_path_factory.mktemp("plots"), histories.linear(3), {})
    run.add("c0", SLOW, more=logs("broken"))
    run.add("c2", FAST, more=logs("fixed"))
    run.add("c1", FAST, more={**logs("fixed"), "full/partial_iops.2.log": "500, 1, 0\nbroken\n"})
    run.log(("fixed", "c2"), ("broken", "c0"), ("fixed", "c1"))
    run.end()
    return run


def plot(run: RecordedRun, *words: str | Path) -> int:
    return main(["plot", "--run-dir", str(run.run.path), *(str(word) for word in words)])


def refused(run: RecordedRun, output: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert plot(run, *words) == 2
    said = output.readouterr()
    assert said.err.startswith("bisector: ")
    assert said.out == ""
    return said.err


def test_all_plots(recorded: RecordedRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert plot(recorded) == 0
    said = capsys.readouterr()
    paths = [recorded.run.path / "plots" / f"{kind}.png" for kind in ("curves", "commits")]
    assert said.out == "".join(f"{path}\n" for path in paths)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    (line,) = said.err.splitlines()
    assert line.startswith("bisector: not drawn: trials/0003-")
    assert line.endswith("/full/partial_iops.2.log: line 2 is not one of an fio log: 'broken'")


def test_what_is_asked_for_is_drawn(recorded: RecordedRun, tmp_path: Path) -> None:
    def drawn(*words: str) -> tuple[str, list[str]]:
        """The picture, and the commits that it names."""
        assert plot(recorded, *words, "-o", tmp_path / "a.svg") == 0
        text = (tmp_path / "a.svg").read_text()
        return text, [name for name, sha in recorded.shas.items() if sha[:12] in text]

    assert "read.bw" in drawn("--kind", "commits", "--metric", "read.bw")[0]
    assert plot(recorded, "--kind", "commits", "--over", "sum") == 2
    assert drawn("--trial", "1")[1] == ["c0"]
    assert drawn("--kind", "curves")[1] == ["c0", "c1"]  # before and after the change
    (tmp_path / "a.svg").unlink()
    assert plot(recorded, "--format", "svg", "-o", tmp_path) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["commits.svg", "curves.svg"]


def test_what_cannot_be(recorded: RecordedRun, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "--kind curves" in refused(recorded, capsys, "-o", tmp_path / "a.png")
    assert "--format png" in refused(recorded, capsys, "--kind", "curves", "--format", "png", "-o", tmp_path / "a.svg")
    assert "there is no trial 4" in refused(recorded, capsys, "--trial", "4")
    (tmp_path / "file").touch()
    assert "cannot write" in refused(recorded, capsys, "--kind", "commits", "-o", tmp_path / "file" / "a.png")


def test_without_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded_run.found(tmp_path)
    assert "no IOPS log" in refused(run, capsys, "--kind", "curves", "--kind", "commits")
    assert plot(run) == 0
    said = capsys.readouterr()
    assert [Path(line).name for line in said.out.splitlines()] == ["commits.png"]
    assert "no IOPS log" in said.err


def test_before_the_first_trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RecordedRun(tmp_path, histories.linear(2), {})
    assert "nothing is measured yet" in refused(run, capsys)
    assert "there is no trial 1" in refused(run, capsys, "--trial", "1")


def test_logs_are_in_the_order_of_the_jobs(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, histories.linear(2), {})
    names = [f"full/partial_iops.{job}.log" for job in (10, 2, 1)]
    run.add("c0", (1.0,) * 3, more={name: f"500, {n}, 0\n" for n, name in enumerate(names, 1)} | {"full/x.log": "?"})
    with Store.open(RunDirectory.open(run.run.path).database) as store:
        ((_, trial),) = store.trials()
    found, complaints = traced(trial, run.run.path, "read")
    assert [[log.iops.tolist() for log in logged.logs] for logged in found] == [[], [[3.0], [2.0], [1.0]]]
    assert complaints == []
    unusual = replace(trial, runs=tuple(replace(one, name=f".{one.name}") for one in trial.runs))
    assert [len(logged.logs) for logged in traced(unusual, run.run.path, "read")[0]] == [0, 3]
    for artifact in trial.artifacts:
        (run.run.path / artifact.path).unlink(missing_ok=True)
    _, gone = traced(trial, run.run.path, "read")
    assert [complaint.rpartition(": ")[2] for complaint in gone] == ["No such file or directory"] * 3
