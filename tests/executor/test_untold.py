"""Runs that were reset while hosts were away: which host is still to be told, and that it is."""

from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.executor import telling
from bisector.executor.hosts import Host, Joined, Left, Word
from bisector.executor.spec import Key
from bisector.executor.spool import Standing
from bisector.executor.telling import Telling
from bisector.executor.untold import Untold
from tests.executor.wires import VERSIONS, Wires, host


@pytest.fixture
def untold(tmp_path: Path) -> Untold:
    return Untold(tmp_path / "state" / "untold.json")


def over(address: str, run: str) -> tuple[str, Word, Key]:
    return address, Word.OVER, Key(run, 0)


def test_a_host_is_told_of_its_runs_and_no_other_is(untold: Untold) -> None:
    assert untold.of("bench1") == ()
    untold.add("first", ["bench1", "bench2"])
    untold.add("second", ["bench1"])
    untold.add("first", ["bench3"])
    untold.add("third", [])
    again = Untold(untold.path)
    assert [again.of(name) for name in ("bench1", "bench2", "bench3", "bench4")] == [
        ("first", "second"),
        ("first",),
        ("first",),
        (),
    ]
    again.strike("first", "bench1")
    again.strike("nothing", "bench1")
    assert (untold.of("bench1"), untold.of("bench2")) == (("second",), ("first",))
    untold.strike_run("first")
    assert (untold.of("bench1"), untold.of("bench2"), untold.of("bench3")) == (("second",), (), ())


def test_the_oldest_runs_go_where_hosts_never_come_back(untold: Untold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bisector.executor.untold._MOST_RUNS", 2)
    for run in ("first", "second", "third"):
        untold.add(run, ["bench1"])
    assert untold.of("bench1") == ("second", "third")


@pytest.mark.parametrize("text", ["", "{", "[1]", '"bench1"', '{"run": "bench1"}', "\x00", "[" * 100_000])
def test_a_damaged_list_is_an_empty_one(untold: Untold, text: str) -> None:
    untold.path.parent.mkdir()
    untold.path.write_text(text)
    assert untold.of("bench1") == ()
    untold.add("run", ["bench1"])
    assert untold.of("bench1") == ("run",)


def test_a_list_that_cannot_be_written_is_told(untold: Untold) -> None:
    untold.path.parent.write_text("no directory")
    with pytest.raises(InfraError, match="state"):
        untold.add("run", ["bench1"])


# The connection


def test_a_host_is_told_when_it_connects_and_struck_once_it_holds_nothing(untold: Untold) -> None:
    untold.add("old", ["bench1"])
    wires = Wires(known=(host(name="bench2"),))
    told = Telling(wires, untold)
    assert told.hosts() == wires.known
    holding = host(held=((3, Standing.RUNNING),), run="old")
    for _ in range(2):
        wires.heard.append(Joined(holding))
        assert told.news(0.5) == Joined(holding)
    assert wires.sent == [over("tls://1", "old")]
    assert untold.of("bench1") == ("old",)
    wires.heard += [Left("tls://1"), back := Joined(host("tls://2"))]
    assert [told.news(0.5), told.news(0.5)] == [Left("tls://1"), back]
    assert wires.sent == [over("tls://1", "old"), over("tls://2", "old")]
    assert untold.of("bench1") == ()


def test_a_host_that_is_connected_already_is_told_when_the_connection_is_taken_over(untold: Untold) -> None:
    untold.add("old", ["bench1"])
    wires = Wires(known=(host(),))
    Telling(wires, untold).hosts()
    assert wires.sent == [over("tls://1", "old")]


def test_a_run_that_is_reset_while_its_hosts_work_for_another_one_is_told_meanwhile(
    untold: Untold, monkeypatch: pytest.MonkeyPatch
) -> None:
    wires = Wires(known=(host(), host("tls://2", "bench2")))
    monkeypatch.setattr(telling, "LOOK_S", 0.0)
    told = Telling(wires, untold)
    told.hosts()
    untold.add("old", ["bench2"])
    assert told.news(0.0) is None
    assert wires.sent == [over("tls://2", "old")]
    untold.add("older", ["bench1"])
    wires.heard.append(Left("tls://1"))
    told.news(0.0)
    assert told.news(0.0) is None
    assert wires.sent == [over("tls://2", "old")]


def test_what_else_is_said_goes_through(untold: Untold) -> None:
    wires = Wires()
    told = Telling(wires, untold)
    told.submit("tls://1", Key("run", 3), 1)
    told.send("tls://1", Word.CANCEL, Key("run", 3))
    assert wires.submitted == [("tls://1", Key("run", 3), 1, False)]
    assert wires.sent == [("tls://1", Word.CANCEL, Key("run", 3))]


def test_a_list_that_nobody_can_read_keeps_no_run_from_going_on(untold: Untold) -> None:
    untold.path.mkdir(parents=True)
    wires = Wires(known=(Host("tls://1", "bench1", "bench1 boot", VERSIONS),))
    assert Telling(wires, untold).hosts() == wires.known
