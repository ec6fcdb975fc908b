"""Comparisons that were killed, ended with an error or were given up: what is shown, and how they go on."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.compare import session
from bisector.core.errors import Finding, Grade
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.compare.desk import Desk, compare, shown
from tests.docs.json_schema import valid

pytestmark = pytest.mark.usefixtures("at_the_desk")


def test_an_interrupted_run_is_resumed(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.bench.kill_at = 3
    with pytest.raises(fakes.Killed):
        compare(desk, "main~3", "main", "--stack", "hdd", "--runs", "2", "--run-dir", "run")
    assert "stopped: process " in shown(capsys, "status", "--run-dir", "run")
    assert f"bisector resume --run-dir {desk.place / 'run'}" in shown(capsys, "status", "--run-dir", "run")
    desk.bench.kill_at = None
    desk.bench.jobs.clear()
    assert "measured: 2 blocks on each setup" in shown(capsys, "resume", "--run-dir", "run", "--quiet")
    requests = len(desk.bench.requests)
    assert "measured: 2 blocks on each setup" in shown(capsys, "resume", "--run-dir", "run", "--quiet")
    assert len(desk.bench.requests) == requests == 5


def dies(process: pytest.MonkeyPatch, at: str, run: Path) -> None:
    """A process is killed before or after it has put the end on record, or while it clears away."""
    usual = Store.set_state

    def set_state(store: Store, state: State, message: str = "") -> None:
        if state is not State.MEASURED:
            usual(store, state, message)
            return
        (run / "build").mkdir()
        if at == "before the state":
            raise fakes.Killed
        usual(store, state, message)
        if at == "after the state":
            raise fakes.Killed

    def no_further(*_: object) -> None:
        raise fakes.Killed

    process.setattr(Store, "set_state", set_state)
    process.setattr(session, "discard" if at == "before the build is gone" else "let_go", no_further)


@pytest.mark.parametrize(
    "at", ["before the state", "after the state", "before the build is gone", "before the references are gone"]
)
def test_killed_at_its_end_a_run_is_shown_and_cleared_away(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    run = desk.place / "run"
    with monkeypatch.context() as mortal:
        dies(mortal, at, run)
        with pytest.raises(fakes.Killed):
            compare(desk, "main~3", "main", "--stack", "hdd", "--runs", "2", "--run-dir", "run", "--quiet")
    assert (run / "build").is_dir() is (at != "before the references are gone")
    assert desk.held()
    before = desk.blocks()
    assert "measured: 2 blocks on each setup" in shown(capsys, "resume", "--run-dir", "run", "--quiet")
    assert replace(desk.blocks(), process=before.process) == before
    assert len(desk.bench.requests) == 4
    assert not (run / "build").exists()
    assert desk.held() == set()
    assert "measured: 2 blocks" in shown(capsys, "status", "--run-dir", "run")


def test_what_was_measured_is_shown_before_the_error_that_ends_a_run(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.bench.infra_n = {5: 99}
    words = ("main~3", "main", "--stack", "hdd", "--runs", "6", "--quiet")
    compare(desk, *words, "--run-dir", "run", code=4)
    said = capsys.readouterr()
    assert "1,300  +30.0 %" in said.out
    assert said.out.endswith("\nmain against main~3 on 1 setup: 2 blocks measured\n")
    assert "the network went away" in said.err
    assert main(["resume", "--run-dir", "run", "--quiet"]) == 4
    assert "1,300  +30.0 %" in capsys.readouterr().out
    desk.bench.infra_n = {5: 198}
    compare(desk, *words, "--run-dir", "other", "--json", code=4)
    printed = valid("compare", capsys.readouterr().out)
    assert len(printed["rows"][0]["values"]) == 4
    assert printed["standing"].startswith("It is stopped: ")
    desk.bench.infra_n = {2: 99}
    compare(desk, *words, "--run-dir", "third", code=4)
    assert capsys.readouterr().out == ""


def test_what_was_measured_is_shown_when_nothing_is_left_to_compare(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = desk.bench.measure

    def panics(request: TrialRequest) -> Trial:
        desk.bench.faults = {desk.shas["c3"]: fakes.PANIC} if request.n > 4 else {}
        return usual(request)

    monkeypatch.setattr(desk.bench, "measure", panics)
    words = ("--runs", "6", "--seed", "7", "--run-dir", "run", "--quiet")
    compare(desk, "main~3", "main", "--stack", "hdd", *words, code=2)
    said = capsys.readouterr()
    assert "nothing can be compared: main: panic" in said.err
    assert "main against main~3 on 1 setup: 2 blocks measured, 2 weak or failed\n" in said.out


def test_status_of_a_run_that_goes_on_does_not_say_to_resume_it(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, said = desk.bench.measure, []

    def looking(request: TrialRequest) -> Trial:
        said.append(shown(capsys, "status", "--run-dir", "run"))
        return usual(request)

    monkeypatch.setattr(desk.bench, "measure", looking)
    compare(desk, "main~3", "main", "--stack", "hdd", "--runs", "1", "--run-dir", "run", "--quiet")
    assert said[1].splitlines()[-1].startswith("running")


def test_resume_says_what_weakens_the_evidence_by_now(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "bisector.commands.measure.checks.warn_again",
        lambda _settings, _run, warn: warn(Finding("load", Grade.WARN, "the host is busy")),
    )
    desk.bench.infra_n = {2: 4}
    compare(desk, "main~3", "main", "--stack", "hdd", "--runs", "1", "--run-dir", "run", "--quiet", code=4)
    for said in ("warning: load: the host is busy", ""):
        capsys.readouterr()
        assert main(["resume", "--run-dir", "run", "--quiet"]) == 0
        assert capsys.readouterr().err.removeprefix("bisector: ").strip() == said


def test_resume_tries_again_what_did_not_build(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.bench.does_not_build = {("gcc", desk.shas["c1"]): fakes.BUILD_ERROR}
    compare(desk, "main~3", "main~2", "main", "--stack", "hdd", "--runs", "2", "--run-dir", "run", "--quiet")
    said = capsys.readouterr().out
    assert "n/a\n    does not build: " in said
    assert f"main~2 did not build; resume tries it again\nbisector resume --run-dir {desk.place / 'run'}" in said
    desk.bench.does_not_build = {}
    said = shown(capsys, "resume", "--run-dir", "run", "--quiet")
    assert "does not build" not in said
    assert "did not build" not in said
    requests = len(desk.bench.requests)
    shown(capsys, "resume", "--run-dir", "run", "--quiet")
    assert len(desk.bench.requests) == requests == 4 + 6


def test_a_reset_leaves_the_record(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.bench.kill_at = 2
    with pytest.raises(fakes.Killed):
        compare(desk, "main~3", "main", "--stack", "hdd", "--runs", "1", "--run-dir", "run")
    assert "reset; its record stays" in shown(capsys, "reset", "--run-dir", "run")
    assert "stopped: reset" in shown(capsys, "status", "--run-dir", "run")
    assert "removed" in shown(capsys, "reset", "--run-dir", "run", "--delete")
    assert not (desk.place / "run").exists()
