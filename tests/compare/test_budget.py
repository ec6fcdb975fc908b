"""`bisector compare --budget`, and more time for a comparison that has spent it."""

import json
import shlex

import pytest

from bisector.cli import main
from bisector.compare import session
from bisector.core.verdict import State
from bisector.store.facts import Budget
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests import fakes
from tests.compare.desk import Desk

_TRIAL_S = 60.0
COMPARE = ("compare", "main~3", "main", "--stack", "hdd", "--repo", "linux", "--runs", "4")


@pytest.fixture(autouse=True)
def minutes(at_the_desk: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial takes a minute, and so a block two."""
    monkeypatch.setattr(Store, "spent_s", lambda store: _TRIAL_S * len(store.placed()))
    monkeypatch.setattr("bisector.commands.measure.checks.warn_again", lambda *_: None)


@pytest.fixture
def spent(desk: Desk, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Two blocks of four are all that five minutes have room for; the last lines of what is printed."""
    return shown(capsys, *COMPARE, "--budget", "5min")


def shown(output: pytest.CaptureFixture[str], *words: str) -> list[str]:
    output.readouterr()
    assert main([*words, "--run-dir", "run", "--quiet"]) == 0
    return output.readouterr().out.splitlines()[-3:]


def refused(output: pytest.CaptureFixture[str], *words: str) -> str:
    output.readouterr()
    assert main([*words]) == 2
    return output.readouterr().err


def test_a_run_that_ended_by_its_budget_says_what_to_type(
    desk: Desk, spent: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert spent == [
        "measured: another block would end after the budget of 5 min",
        "what is left takes about 4 min; to give it as much time:",
        f"bisector resume --run-dir {desk.place / 'run'} --budget 5min",
    ]
    assert shown(capsys, "resume") == spent
    assert len(desk.bench.requests) == 4


def test_a_script_reads_what_to_type_until_nothing_is_left(
    desk: Desk, spent: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert resume_command(capsys) == spent[-1]
    _, command, *words = shlex.split(spent[-1])
    shown(capsys, command, *words)
    assert resume_command(capsys) is None


def resume_command(output: pytest.CaptureFixture[str]) -> object:
    """Of the JSON document."""
    output.readouterr()
    assert main(["report", "--run-dir", "run", "--format", "json"]) == 0
    return json.loads(output.readouterr().out)["resume_command"]


def test_it_goes_on_for_as_long_as_it_is_given(
    desk: Desk, spent: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    *_, left, typed = shown(capsys, "resume", "--budget", "3min")
    assert left.startswith("what is left takes about 2 min; ")
    assert len(desk.bench.requests) == 6
    _, command, *words = shlex.split(typed)
    assert shown(capsys, command, *words)[-1] == "measured: 4 blocks on each setup"
    assert len(desk.bench.requests) == 8
    assert desk.facts(Budget) == (Budget(180.0, 240.0), Budget(180.0, 360.0))


def test_the_last_budget_is_the_one_that_holds(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where there was none at first, for as many processes as it takes."""
    desk.bench.kill_at = 3
    with pytest.raises(fakes.Killed):
        shown(capsys, *COMPARE)
    for kill_at in (5, None):
        desk.bench.jobs.clear()
        desk.bench.kill_at = kill_at
        if kill_at:
            with pytest.raises(fakes.Killed):
                shown(capsys, "resume", "--budget", "5min")
        else:
            assert shown(capsys, "resume")[0] == "measured: another block would end after the budget of 5 min"
    assert desk.facts(Budget) == (Budget(300.0, 120.0),)
    assert len(desk.blocks().placed) == 6


def test_a_process_that_is_killed_right_after_leaves_a_run_that_goes_on(
    desk: Desk, spent: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(desk.place / "run/record.sqlite") as store:
        session.give_time(RunDirectory.open(desk.place / "run"), store, 3600.0)
    assert desk.state() == (State.STOPPED, "given 1 h more")
    assert shown(capsys, "resume")[-1] == "measured: 4 blocks on each setup"


def test_time_adds_nothing_where_nothing_is_left(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, *COMPARE)[-1] == "measured: 4 blocks on each setup"
    said = refused(capsys, "resume", "--run-dir", "run", "--budget", "1h")
    assert "run has measured what was asked for: 4 blocks on each setup" in said
    assert desk.facts(Budget) == ()


def test_the_report_tells_what_each_budget_was(
    desk: Desk, spent: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    shown(capsys, "resume", "--budget", "3min")
    capsys.readouterr()
    assert main(["report", "--run-dir", "run", "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["standing"] == (
        "It is finished: another block would end after the budget of 3 min."
        " Budgets: 5 min at first, 3 min more after 4 min."
    )
    words = shlex.split(printed["command"])
    assert words[words.index("--budget") + 1] == "7min"


@pytest.mark.parametrize("duration", ["soon", "0h", "-1h", "5%"])
def test_what_is_no_duration_is_refused(desk: Desk, capsys: pytest.CaptureFixture[str], duration: str) -> None:
    assert main(["resume", f"--budget={duration}"]) == 2
    assert "--budget: expected a duration such as 4h" in capsys.readouterr().err
