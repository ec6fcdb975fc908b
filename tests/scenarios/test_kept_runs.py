"""Runs that are gone on with: their seconds, what ends them, and the command; articles/ has them killed, too."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.store.log import DATABASE
from scenarios.kept_runs import INTERRUPTED, Clock, Desk, Run
from tests import stub_bisector
from tests.stub_bisector import in_place

RUN = Run("a-run", "what it is", ("start", "v1", "v2"), 60.0)


def desk(work: Path, status: int) -> Desk:
    (work / "documents.json").write_text(json.dumps({RUN.name: {"state": "narrowed"}}), encoding="utf-8")
    (work / "statuses.json").write_text(json.dumps({RUN.name: [status]}), encoding="utf-8")
    return Desk(work, in_place, ends=frozenset({0, 3}))


@pytest.mark.parametrize(("status", "ended"), [(0, True), (3, True), (4, False)])
def test_a_run_has_ended_when_its_status_says_so(status: int, ended: bool, tmp_path: Path) -> None:
    runs = desk(tmp_path, status)
    assert runs.once(RUN) == status
    assert runs.has_ended(RUN) is ended
    assert runs.shown(RUN) == {"state": "narrowed"}


def test_one_that_has_not_ended_is_gone_on_with(tmp_path: Path) -> None:
    runs = desk(tmp_path, 4)
    assert [runs.once(RUN), runs.once(RUN)] == [4, 0]
    log = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert log == ["start a-run", "resume a-run", "status a-run"]


def test_one_of_which_nothing_can_be_shown_has_not_ended(tmp_path: Path) -> None:
    """What bisector says of it would be missing for good."""
    runs = desk(tmp_path, 0)
    (tmp_path / "documents.json").write_text("{}", encoding="utf-8")
    assert runs.once(RUN) == 0
    assert not runs.has_ended(RUN)


def test_an_interrupted_one_is_the_last(tmp_path: Path) -> None:
    others = [replace(RUN, name=name) for name in ("another", "a-third")]
    assert desk(tmp_path, INTERRUPTED).each([RUN, *others]) == {RUN.name: INTERRUPTED}


def test_what_is_left_and_a_name_of_none(tmp_path: Path) -> None:
    runs, other = desk(tmp_path, 0), replace(RUN, name="another")
    runs.once(RUN)
    assert runs.left([RUN, other]) == [other]
    assert runs.left([RUN, other], [RUN.name]) == []
    with pytest.raises(UserError, match="no run is called h11") as raised:
        runs.left([RUN, other], ["h11"])
    assert raised.value.hint == "the runs are a-run, another"


def test_a_command_says_what_was_wrong_and_that_it_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> int:
        raise UserError("there is no source", "install it")

    def interrupted() -> int:
        raise KeyboardInterrupt

    runs = Desk(tmp_path, name="them")
    assert runs.command(lambda: 1) == 1
    assert runs.command(refused) == UserError.exit_code
    assert capsys.readouterr() == ("", "error: there is no source\nhint: install it\n")
    for work in (interrupted, lambda: INTERRUPTED):
        assert runs.command(work) == INTERRUPTED
        assert capsys.readouterr().out == "them: interrupted; `make them` goes on\n"


def test_nothing_is_shown_of_one_that_was_not_begun(tmp_path: Path) -> None:
    assert desk(tmp_path, 0).shown(RUN) is None


def test_another_thing_to_run_has_another_directory() -> None:
    assert replace(RUN, words=(*RUN.words, "--full-runs")).directory != RUN.directory
    assert replace(RUN, what="otherwise", expected_s=1.0).directory == RUN.directory


def test_a_killed_process_counts_up_to_its_last_fact(tmp_path: Path) -> None:
    facts, path = tmp_path / DATABASE, tmp_path / "run.times"
    facts.touch()
    os.utime(facts, (1500.0, 1500.0))
    path.write_text("[[1000.0], [2000.0, 2010.0]]", encoding="utf-8")
    assert Clock(path, facts).total_s() == 510.0
    assert Clock(path, tmp_path / "none").total_s() == 10.0
    path.write_text("[[100", encoding="utf-8")
    assert Clock(path, facts).total_s() == 0.0


def test_the_command_is_bisectors_own() -> None:
    assert Desk(Path("/x")).tool("resume")[1:] == ["-m", "bisector", "resume"]
    assert stub_bisector.DATABASE == DATABASE
