"""Hosts that take no jobs, and jobs that reach none."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import AttemptCancelled, AttemptFailed, InfraError
from bisector.core.events import Event, Note
from bisector.executor.base import Finished
from bisector.executor.hosts import (
    Drained,
    Joined,
    Leaving,
    Left,
    NotTaken,
    Unsent,
    Word,
)
from bisector.executor.spec import Key
from tests.executor.wires import RUN, Wires, came, error_of, executor, host, job, nothing_more


def test_a_job_without_any_host_is_given_up_in_time(wires: Wires, tmp_path: Path) -> None:
    wires.known = ()
    remote = executor(wires, tmp_path, patience_s=0.0)
    remote.submit(job(1))
    assert "no host had job" in str(error_of(remote.next()))


def test_a_host_that_is_leaving_gets_nothing_more(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    wires.heard += [Leaving("tls://1"), came(1)]
    assert isinstance(remote.next(), Finished)
    assert list(remote.idle) == []
    remote.acknowledge(1)  # which it waits for
    assert wires.sent == [("tls://1", Word.ACKNOWLEDGE, Key(RUN, 1))]


def test_a_drained_host_gets_nothing_until_it_is_released(wires: Wires, tmp_path: Path) -> None:
    wires.known = (replace(host(), drained=True), host("tls://2", "bench2"))
    remote = executor(wires, tmp_path)
    assert list(remote.idle) == ["bench2"]
    wires.heard += [Drained("tls://1", False), Drained("tls://2", True)]
    assert list(remote.idle) == ["bench1"]
    wires.heard += [Left("tls://2"), Joined(host("tls://2", "bench2"))]  # it may have a port of its own
    assert list(remote.idle) == ["bench1", "bench2"]


def test_a_job_that_a_host_did_not_take_waits_for_another(wires: Wires, tmp_path: Path) -> None:
    """It was drained while the job was on its way."""
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    wires.heard += [NotTaken(Key(RUN, 1), 1, "tls://1")]
    assert list(remote.idle) == []
    wires.heard += [Joined(host("tls://2", "bench2")), NotTaken(Key(RUN, 1), 1, "tls://1"), came(1, attempt=2)]
    news = remote.next()
    assert isinstance(news, Finished)
    assert (news.host, [(address, new) for address, _, _, new in wires.submitted]) == (
        "bench2",
        [("tls://1", True), ("tls://2", True)],
    )
    assert list(remote.idle) == ["bench2"]


def test_a_job_that_was_cancelled_and_not_taken_is_over(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    remote.cancel(1)
    wires.heard += [NotTaken(Key(RUN, 1), 1, "tls://1")]
    assert isinstance(error_of(remote.next()), AttemptCancelled)
    nothing_more(remote)


def test_a_job_for_a_drained_host_is_given_up_in_time(wires: Wires, tmp_path: Path) -> None:
    wires.known = (replace(host(), drained=True), host("tls://2", "bench2"))
    remote = executor(wires, tmp_path, patience_s=0.0)
    remote.submit(job(1), "bench1")
    error = error_of(remote.next())
    assert type(error) is AttemptFailed
    assert str(error).endswith("drained, or leaving: bench1")
    assert error.hint == "bisector fleet release bench1"


def test_a_host_of_another_version_is_not_used_and_told_of(wires: Wires, tmp_path: Path) -> None:
    wires.known = (replace(host(), versions=(("bisector", "0.9"), ("Python", "3.11"))),)
    told: list[Event] = []
    remote = executor(wires, tmp_path, tell=told.append)
    assert list(remote.idle) == []
    assert told == [Note("bench1 is not used: bisector 0.9 there, 1.0 here")]


def test_a_job_that_was_not_sent_is_sent_to_another_host(wires: Wires, tmp_path: Path) -> None:
    wires.known = (host(), host("tls://2", "bench2"))
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    wires.heard += [Unsent(Key(RUN, 1), 1, "cut"), Unsent(Key(RUN, 1), 1, "cut"), came(1, attempt=2)]
    news = remote.next()
    assert isinstance(news, Finished)
    assert news.host == "bench2"
    assert wires.submitted == [("tls://1", Key(RUN, 1), 1, True), ("tls://2", Key(RUN, 1), 2, True)]
    assert list(remote.idle) == ["bench2"]


def test_a_job_that_was_not_sent_waits_until_its_host_is_back(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    wires.heard += [Unsent(Key(RUN, 1), 1, "cut"), Left("tls://1"), Joined(host("tls://3")), came(1, attempt=2)]
    assert isinstance(remote.next(), Finished)
    assert wires.submitted[1:] == [("tls://3", Key(RUN, 1), 2, True)]
    nothing_more(remote)


def test_a_job_that_cannot_be_sent_to_anybody_is_given_up_in_time(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path, patience_s=0.0)
    remote.submit(job(1))
    wires.heard += [Unsent(Key(RUN, 1), 1, "no route to host")]
    assert "no host had job run/1 within 0 min (bench1: no route to host)" in str(error_of(remote.next()))
    nothing_more(remote)


def test_a_job_that_is_cancelled_and_was_not_sent_has_ended(wires: Wires, tmp_path: Path) -> None:
    wires.known = (host(), host("tls://2", "bench2"))
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    remote.cancel(1)
    wires.heard += [Unsent(Key(RUN, 1), 1, "cut")]
    assert isinstance(error_of(remote.next()), AttemptCancelled)
    assert len(wires.submitted) == 1
    nothing_more(remote)


def test_a_host_that_is_refused_is_told_of_and_not_used_any_more(wires: Wires, tmp_path: Path) -> None:
    told: list[Event] = []
    wires.known = (host(), host("tls://2", "bench2"))
    remote = executor(wires, tmp_path, tell=told.append)
    remote.submit(job(1))
    wires.heard += [Unsent(Key(RUN, 1), 1, "its compiler gcc is another one", refused=True), came(1, attempt=2)]
    assert isinstance(remote.next(), Finished)
    assert told == [Note("bench1 is not used: its compiler gcc is another one")]
    wires.heard += [Left("tls://1"), Joined(host("tls://3"))]
    assert list(remote.idle) == ["bench2"]
    wires.heard += [Joined(replace(host("tls://4"), machine="bench1 another boot"))]
    assert list(remote.idle) == ["bench2", "bench1"]


def test_hosts_that_do_not_connect_are_trouble_of_the_network(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.wait_for_hosts(1, 0.0)
    with pytest.raises(InfraError, match="1 of 2 hosts"):
        remote.wait_for_hosts(2, 0.01)


def test_where_nothing_but_a_host_that_builds_is_there_the_run_does_not_wait_for_ever(
    wires: Wires, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bisector.executor.remote.NO_HOST_S", 0.0)
    remote = executor(wires, tmp_path)
    assert remote.wait(None) is False
    remote.builders = ["bench1"]
    with pytest.raises(InfraError, match="no host that measures was there"):
        remote.wait(None)


def test_a_second_machine_of_the_same_name_is_refused(tmp_path: Path) -> None:
    """Also when the first one is gone; that one itself is known again after a boot."""
    told = list[Event]()
    first = replace(host(), whose="machine 1")
    wires = Wires(known=(first,))
    remote = executor(wires, tmp_path, tell=told.append)
    second = replace(host("tls://2"), machine="boot of another", whose="machine 2")
    wires.heard += [Joined(second), Left("tls://1"), Joined(second)]
    remote.submit(job(1))
    assert list(remote.idle) == []
    assert [address for address, *_ in wires.submitted] == ["tls://1"]
    name = "give it a name of its own: bisector worker ADDRESS --name NAME"
    why = f"the machine at tls://2 is not used: another one is called bench1, too; {name}"
    assert told == [Note(why)]
    wires.heard += [Joined(replace(first, address="tls://3", machine="bench1 another boot"))]
    assert list(remote.idle) == ["bench1"]
