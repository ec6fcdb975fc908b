"""A person gives up on a commit, and the bisection goes on without it."""

from pathlib import Path

import pytest

from bisector.bisect import session
from bisector.campaign import life
from bisector.cli import main
from bisector.config import Settings
from bisector.core.errors import InfraError, UserError
from bisector.core.trial import AttemptFailed
from bisector.core.verdict import State
from bisector.store.facts import Skip
from bisector.store.store import Store
from tests import fakes
from tests.bisect.lab import BY_GIT, DEFAULTS, Lab
from tests.git import histories
from tests.recorded_run import RecordedRun, found


def give_up(lab: Lab, *names: str) -> None:
    with lab._store() as store:
        store.add(*(Skip(lab.shas[name]) for name in names))


@pytest.mark.parametrize("settings", [BY_GIT, DEFAULTS], ids=["git", "bayes"])
def test_the_commit_that_stops_a_run_is_named_and_can_be_left_out(line: Lab, settings: Settings) -> None:
    line.settings = settings
    broken = {"boot": AttemptFailed("the network went away")}
    stuck = line.engine("c3", infra={f"c{n}": 99 for n in range(7, 10)}, broken=broken)
    with pytest.raises(AttemptFailed, match="network went away") as caught:
        line.bisect(stuck)
    assert line.names[caught.value.skippable] in ("c7", "c8", "c9")
    give_up(line, "c7", "c8", "c9")
    outcome = line.bisect(stuck)
    assert line.found(outcome) == "c3"
    assert f"git bisect skip {line.shas['c8']}" in line.log


@pytest.mark.parametrize("end", ["c0", "c16"])
def test_an_end_that_stops_a_run_cannot_be_left_out(line: Lab, end: str) -> None:
    with pytest.raises(AttemptFailed) as caught:
        line.bisect(line.engine("c3", infra={end: 99}))
    assert caught.value.skippable == ""


def test_a_commit_that_was_begun_is_not_gone_on_with(line: Lab) -> None:
    engine = line.engine("c3", busy={"c8": 99}, kill_at=4)
    with pytest.raises(fakes.Killed):
        line.bisect(engine)
    begun = line.names[line.trials()[-1].commit.sha]
    give_up(line, begun)
    engine.kill_at, before = None, len(engine.measured)
    assert line.found(line.bisect(engine)) == "c3"
    assert line.shas[begun] not in engine.measured[before:]


@pytest.fixture
def stopped(tmp_path: Path) -> RecordedRun:
    return RecordedRun(tmp_path, histories.linear(9))


def test_recorded_all_or_none(stopped: RecordedRun) -> None:
    with Store.open(stopped.run.database) as store:
        with pytest.raises(UserError, match="'nope'"):
            session.skip(store, (stopped.shas["c4"], "nope"))
        assert store.bisection().skips == ()
        session.skip(store, (stopped.shas["c4"][:12], "main~2"))
        assert store.bisection().skips == (stopped.shas["c4"], stopped.shas["c6"])


@pytest.mark.parametrize(("rev", "words"), [("nope", "unknown revision"), ("main", "an end of the range")])
def test_what_cannot_be_skipped_is_refused_before_anything_begins(
    stopped: RecordedRun, rev: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", "--run-dir", str(stopped.run.path), "--skip", rev]) == 2
    assert words in capsys.readouterr().err
    with Store.open(stopped.run.database) as store:
        assert store.state() is None


def test_a_run_that_has_its_answer_skips_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = found(tmp_path)
    assert main(["resume", "--run-dir", str(ended.run.path), "--skip", ended.shas["c4"]]) == 2
    assert "has its answer" in capsys.readouterr().err


def test_how_to_go_on_without_the_commit_is_told(stopped: RecordedRun) -> None:
    error = InfraError("no luck", "look there")
    error.skippable = stopped.shas["c4"]
    with Store.open(stopped.run.database) as store:
        with pytest.raises(InfraError) as caught, life.ends_recorded(stopped.run, store):
            raise error
        state = store.state()
    resume = f"bisector resume --run-dir {stopped.run.path}"
    assert caught.value.hint.split("\n  ") == [
        "look there",
        f"go on with: {resume}",
        f"or without that commit: {resume} --skip {stopped.shas['c4'][:12]}",
    ]
    assert state is not None
    assert state.state is State.STOPPED
