"""A search that may take so long: no trial is begun that would end later, and what is known then is told."""

import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bisector.bisect import session
from bisector.bisect.session import BisectRequest
from bisector.campaign.instructions import Done
from bisector.cli import main
from bisector.commands.measuring import forecast_of
from bisector.config import Settings
from bisector.core.errors import InfraError
from bisector.core.trial import Timings, Trial
from bisector.core.verdict import State
from bisector.store.facts import Budget
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.lab import BOTH, BY_GIT, Clock, Lab, lab_of, tried
from tests.bisect.site import Site
from tests.docs.json_schema import valid

TRIAL_S = 400.0  # more than is reckoned with before there is a trial
# Builds are short, as how long the next one takes is an estimate; between the runs is no time to spare.
TIMINGS = Timings(build_s=2.0, boot_s=5.0, storage_s=309.0, workload_s=84.0, total_s=TRIAL_S)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("bisector.store.log.since_boot_s", made.since_boot_s)
    real = fakes.FakeExecutor.measure

    def measure(self: fakes.FakeExecutor, request: TrialRequest) -> Trial:
        made.passes(TRIAL_S)
        return replace(real(self, request), timings=TIMINGS)

    monkeypatch.setattr(fakes.FakeExecutor, "measure", measure)
    return made


def is_over(outcome: Done) -> bool:
    return outcome.state is State.NARROWED and outcome.out_of_time


@BOTH
def test_a_search_ends_with_its_budget_and_goes_on_with_another(line: Lab, settings: Settings) -> None:
    line.settings = settings
    engine = line.far_engine("c11")
    line.give(5 * TRIAL_S + 90)
    outcome = line.bisect(engine)
    assert is_over(outcome)
    assert outcome.message.endswith("another trial would end after the budget of 34 min 50 s")
    assert (line.spent_s, len(line.trials())) == (5 * TRIAL_S, 5)
    assert line.bisect(engine) == outcome  # without more time it ends where it ended
    line.give(100 * TRIAL_S)
    assert line.finds(engine) == "c11"
    commits = [sha for sha in engine.measured if sha in line.names]
    assert len(set(commits)) == len(commits)


def test_without_time_for_both_ends_nothing_is_known(line: Lab) -> None:
    line.give(600.0)
    outcome = line.bisect(line.engine("c11"))
    assert (outcome, tried(line)) == (
        Done(State.NARROWED, "another trial would end after the budget of 10 min", out_of_time=True),
        ["c0"],
    )
    assert len(line.shown(outcome)) == 16


def test_a_weak_trial_is_not_repeated_when_there_is_no_time(line: Lab) -> None:
    line.give(3 * TRIAL_S + 10)
    outcome = line.bisect(line.far_engine("c11", busy={"c8": 1}))
    assert is_over(outcome)
    assert tried(line) == ["c0", "c16", "c8"]


def test_an_attempt_that_failed_is_not_made_again_when_there_is_no_time(line: Lab) -> None:
    line.give(3 * TRIAL_S + 50)
    outcome = line.bisect(line.far_engine("c11", infra={"c8": 1}))
    assert is_over(outcome)
    assert (line.spent_s, tried(line)) == (3 * TRIAL_S, ["c0", "c16"])


@pytest.mark.parametrize(("trials", "failing", "attempts"), [(0.5, 0, 0), (1.5, 1, 1)], ids=["no time", "no second"])
def test_an_answer_is_not_lost_for_the_disks_alone(
    line: Lab, tmp_path: Path, trials: float, failing: int, attempts: int
) -> None:
    """Without the time for one, and for another attempt at one that failed."""
    disks = replace(BY_GIT, bisect=replace(BY_GIT.bisect, baselines=True))
    line.search("c11")
    short = lab_of(tmp_path / "short", line.nodes, "c0", "c16", settings=disks)
    short.give(line.spent_s + trials * TRIAL_S)
    engine = short.search("c11", infra={"ssd": failing})
    assert (engine.attempts["ssd"], "ssd" in engine.measured, "hdd" in engine.measured) == (attempts, False, False)
    assert any("would end after the budget: bisector baselines measures it" in text for text in short.notes)


def test_what_is_lost_with_a_process_is_not_spent(line: Lab) -> None:
    """A budget is for what was done; it is the same budget in the next process."""
    line.give(4 * TRIAL_S + 90)
    engine = line.killed(line.engine("c11", kill_at=4))
    assert line.spent_s == 3 * TRIAL_S
    assert is_over(line.bisect(engine))
    assert len(line.trials()) == 4


# A person's run


def test_a_person_is_told_what_is_known_and_how_to_go_on(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    asked = BisectRequest(site.repository, "old", "main", site.settings, budget_s=3 * TRIAL_S + 20)
    with session.begun(asked, site.home / "run", lambda _: None) as (run, store):
        assert site._go_on(run, store) is State.NARROWED
    run_dir = str(site.home / "run")
    held = site.held()
    assert held != []
    assert not (site.home / "run/report.eml").exists()
    (site.home / "run/build").mkdir()
    measured = list(site.engine.measured)
    assert main(["resume", "--run-dir", run_dir]) == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert "another trial would end after the budget of 20 min 20 s" in shown
    assert "budget 20 min of 20 min 20 s spent" in shown
    more = re.search(rf"next (bisector resume --run-dir {run_dir} --budget \d+min)", shown)
    assert more is not None
    assert (site.engine.measured, site.held()) == (measured, held)
    assert (site.home / "run/build").exists()
    assert main(["status", "--json", "--run-dir", run_dir]) == 0
    document = valid("status", capsys.readouterr().out)
    assert document["budget"] == {"budget_s": 1220.0, "spent_s": 1200.0, "is_over": True}
    assert document["resume_command"] == more[1]
    assert main(["report", "--run-dir", run_dir, "--format", "text"]) == 0
    report = " ".join(capsys.readouterr().out.split())
    assert "is one of 5 commits; another trial would end after the budget of 20 min 20 s." in report
    assert "bisector start " in report
    assert " --budget 1220s" in report
    assert main(["resume", "--run-dir", run_dir, "--skip", site.shas["c3"]]) == 2
    assert "--budget" in capsys.readouterr().err


def test_a_run_has_its_budget_from_the_first_moment_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at its first fact, it goes on with the time that it was given."""

    def add(self: Store, *facts: object) -> int:
        raise fakes.Killed

    monkeypatch.setattr(Store, "add", add)
    asked = BisectRequest(site.repository, "old", "main", site.settings, budget_s=60.0)
    with suppress(fakes.Killed), session.begun(asked, site.home / "run", lambda _: None):
        pass
    with Store.open(RunDirectory(site.home / "run").database, readonly=True) as store:
        assert store.facts(Budget) == (Budget(60.0),)


def test_what_is_reached_is_told_before_the_first_trial(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bisector.commands.measure._conclude", lambda *_, **__: 0)
    monkeypatch.setattr("bisector.commands.measure.forecast_of", partial(forecast_of, searches=1))
    words = ["start", "old", "main", "--repo", str(site.repository), "--run-dir", str(site.home / "run")]
    assert main([*words, "--budget", "8h"]) == 0
    assert "of 1 simulated searches name a commit in 8 h" in capsys.readouterr().err
    with Store.open(RunDirectory(site.home / "run").database, readonly=True) as store:
        assert store.facts(Budget) == (Budget(8 * 3600.0),)


def test_a_forecast_that_fails_leaves_no_run_behind(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(asked: BisectRequest) -> None:
        raise InfraError("the list of runs is damaged")

    monkeypatch.setattr("bisector.commands.measure.forecast_of", fails)
    words = ["start", "old", "main", "--repo", str(site.repository), "--run-dir", str(site.home / "run")]
    assert main([*words, "--budget", "8h"]) == 4
    assert not (site.home / "run").exists()


def test_more_time_is_given_by_resume(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = BisectRequest(site.repository, "old", "main", site.settings, budget_s=3 * TRIAL_S + 20)
    with session.begun(asked, site.home / "run", lambda _: None) as (run, store):
        site._go_on(run, store)
    monkeypatch.setattr("bisector.doctor.checks.warn_again", lambda *_: None)
    monkeypatch.setattr("bisector.commands.measuring.here", site._equip)
    monkeypatch.setattr("bisector.plan.forecast._SEARCHES", 1)
    run_dir = str(site.home / "run")
    told = site.home / "told"
    notify = f"printenv BISECTOR_EXIT_CODE BISECTOR_RUN_DIR BISECTOR_ANSWER >> '{told}'"
    assert main(["resume", "--run-dir", run_dir, "--budget", "1h", "--notify", notify]) == 0
    code, where, answer = told.read_text().splitlines()
    assert (code, where) == ("0", run_dir)
    assert answer.startswith(f"{site.shas['c3'][:12]} is the first fixed commit: ")
    printed = capsys.readouterr()
    assert "of 1 simulated searches name a commit in 1 h" in printed.err
    assert f"{site.shas['c3'][:12]} is the first fixed commit" in printed.out
    with Store.open(RunDirectory(site.home / "run").database, readonly=True) as store:
        assert store.facts(Budget) == (Budget(3 * TRIAL_S + 20), Budget(3600.0, 3 * TRIAL_S))
    assert site.held() == []
    for words in (["--budget", "1h"], ["--skip", site.shas["c4"]]):
        assert main(["resume", "--run-dir", run_dir, *words, "--notify", notify]) == 2
        assert "has its answer" in capsys.readouterr().err
    assert main(["resume", "--run-dir", run_dir, "--notify", notify]) == 0
    assert len(told.read_text().splitlines()) == 3
    assert main(["resume", "--run-dir", run_dir, "--fail-on", "slower"]) == 2
    assert "holds no comparison" in capsys.readouterr().err


def test_what_counted_time_does_not_show_is_told_before_the_first_trial(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bisector.commands.measure._conclude", lambda *_, **__: 0)
    words = ["start", "old", "main", "--repo", str(site.repository), "--run-dir", str(site.home / "run")]
    assert main([*words, "--clock", "instructions", "--stack", "ram+ext4"]) == 0
    assert "bisector: the guests' clock counts instructions, 8 ns each" in capsys.readouterr().err
