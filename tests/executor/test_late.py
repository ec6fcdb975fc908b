"""What comes late: results of jobs that were told as lost, and jobs from before."""

from pathlib import Path

import pytest

from bisector.core.errors import AttemptCancelled, AttemptLost
from bisector.core.events import Note
from bisector.executor.base import Failed, Finished
from bisector.executor.hosts import (
    Came,
    Joined,
    Left,
    Told,
    Word,
)
from bisector.executor.remote import RemoteExecutor
from bisector.executor.spec import Key
from bisector.executor.spool import Standing
from bisector.executor.watch import Returned
from tests import fakes
from tests.executor.bench import COMMIT
from tests.executor.wires import RUN, Wires, came, error_of, executor, host, job, nothing_more


@pytest.fixture
def lost(wires: Wires, tmp_path: Path) -> RemoteExecutor:
    """One that has told that job 1 is lost; its host is away."""
    remote = executor(wires, tmp_path, patience_s=0.0)
    remote.submit(job(1))
    wires.heard += [Left("tls://1")]
    assert type(error_of(remote.next())) is AttemptLost
    return remote


@pytest.mark.parametrize("standing", list(Standing))
def test_a_late_result_is_news_once_more_and_forgotten_when_it_is_on_record(
    wires: Wires, lost: RemoteExecutor, standing: Standing
) -> None:
    lost.acknowledge(1)
    wires.heard += [Joined(host("tls://2", held=((1, standing),)))]
    assert list(lost.idle) == []  # it is at work, on that
    assert wires.submitted[1:] == [("tls://2", Key(RUN, 1), 2, False)]
    wires.heard += [came(1, attempt=2), came(1, 2000.0)]
    assert list(lost.idle) == ["bench1"]
    assert not wires.sent
    news = lost.next()
    assert isinstance(news, Finished)
    assert (news.id, news.host, news.result) == (1, "bench1", fakes.trial(COMMIT, 1000.0))
    nothing_more(lost)
    assert not wires.sent
    lost.acknowledge(1)
    assert wires.sent == [("tls://2", Word.ACKNOWLEDGE, Key(RUN, 1))]


def test_that_a_loss_is_on_record_says_nothing_of_the_result(wires: Wires, lost: RemoteExecutor) -> None:
    """The result may be here before the loss is on record."""
    wires.heard += [Joined(host("tls://2", held=((1, Standing.DONE),))), came(1, attempt=2)]
    assert list(lost.idle) == ["bench1"]
    lost.acknowledge(1)
    assert not wires.sent
    assert isinstance(lost.next(), Finished)
    lost.acknowledge(1)
    assert wires.sent == [("tls://2", Word.ACKNOWLEDGE, Key(RUN, 1))]


def test_a_late_job_is_waited_for_while_its_host_is_there(wires: Wires, lost: RemoteExecutor) -> None:
    wires.heard += [Joined(host("tls://2", held=((1, Standing.RUNNING),))), Told(Key(RUN, 1), Note("late"))]
    wires.heard += [Left("tls://2"), Joined(host("tls://3", held=((1, Standing.RUNNING),)))]
    assert list(lost.idle) == []
    wires.heard += [came(1, attempt=3)]
    assert isinstance(lost.next(), Finished)


def test_a_late_job_keeps_its_host_and_another_one_is_given_the_next(wires: Wires, lost: RemoteExecutor) -> None:
    wires.heard += [Joined(host("tls://2", held=((1, Standing.RUNNING),))), Joined(host("tls://3", "bench2"))]
    assert list(lost.idle) == ["bench2"]
    lost.submit(job(2))
    lost.submit(job(3), "bench1")
    assert [(address, key.id) for address, key, *_ in wires.submitted[1:]] == [("tls://2", 1), ("tls://3", 2)]
    wires.heard += [came(1, attempt=2), came(2, attempt=3), came(3, attempt=4)]
    assert [lost.next().id for _ in range(3)] == [1, 2, 3]
    nothing_more(lost)


def test_a_late_job_may_be_cancelled_also_before_its_host_is_back(wires: Wires, lost: RemoteExecutor) -> None:
    lost.cancel(1)
    nothing_more(lost)
    wires.heard += [Joined(host("tls://2", held=((1, Standing.RUNNING),)))]
    assert list(lost.idle) == []
    lost.cancel(1)
    assert wires.sent == [("tls://2", Word.CANCEL, Key(RUN, 1))] * 2
    ended = Returned(Key(RUN, 1), Failed(1, "there", AttemptCancelled("cancelled"), "now"))
    wires.heard += [Came(ended, 2)]
    assert isinstance(error_of(lost.next()), AttemptCancelled)


def test_a_host_that_is_back_without_its_lost_job_never_tells_of_it(wires: Wires, lost: RemoteExecutor) -> None:
    wires.heard += [Joined(host("tls://2"))]
    assert list(lost.idle) == ["bench1"]
    wires.heard += [came(1, attempt=2)]
    nothing_more(lost)
    assert list(lost.idle) == ["bench1"]
    nothing_more(lost)


def test_what_an_earlier_process_has_told_as_lost_is_heard(wires: Wires, tmp_path: Path) -> None:
    wires.known = (host(held=((4, Standing.DONE), (5, Standing.DONE))),)
    remote = executor(wires, tmp_path, lost=(4,))
    assert wires.sent == [("tls://1", Word.ACKNOWLEDGE, Key(RUN, 5))]
    wires.heard += [came(4)]
    assert isinstance(remote.next(), Finished)
    nothing_more(remote)


def test_what_is_not_on_record_is_never_forgotten(wires: Wires, tmp_path: Path) -> None:
    """A result that was fetched and not committed, while its host comes and goes."""
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    wires.heard += [came(1), Left("tls://1"), Joined(host("tls://2", held=((1, Standing.DONE),)))]
    assert isinstance(remote.next(), Finished)
    assert list(remote.idle) == ["bench1"]
    assert not wires.sent
    remote.acknowledge(1)
    remote.acknowledge(1)
    assert wires.sent == [("tls://2", Word.ACKNOWLEDGE, Key(RUN, 1))]


def test_an_acknowledgement_that_was_lost_is_told_again(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    wires.heard += [came(1)]
    remote.next()
    wires.heard += [Left("tls://1")]
    assert list(remote.idle) == []
    remote.acknowledge(1)
    assert not wires.sent
    held = ((1, Standing.DONE), (9, Standing.RUNNING))
    wires.heard += [Joined(host("tls://2", held=held)), Joined(host("tls://3", "bench3", held, run="other"))]
    assert list(remote.idle) == ["bench1", "bench3"]
    assert wires.sent == [("tls://2", Word.ACKNOWLEDGE, Key(RUN, id_)) for id_ in (1, 9)]


def test_jobs_from_before_are_heard_when_their_host_connects(wires: Wires, tmp_path: Path) -> None:
    wires.known = (host(held=((4, Standing.DONE),)),)
    remote = executor(wires, tmp_path, before={4: "bench1", 5: "bench2"})
    assert wires.submitted == [("tls://1", Key(RUN, 4), 1, False)]
    wires.heard += [came(4), Joined(host("tls://2", "bench2", ((5, Standing.RUNNING),))), came(5, attempt=2)]
    assert [remote.next().id, remote.next().id] == [4, 5]
    nothing_more(remote)


def test_jobs_from_before_that_nobody_holds_are_lost(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path, before={4: "bench2"}, patience_s=0.0)
    news = remote.next()
    assert (news.id, type(error_of(news))) == (4, AttemptLost)


def test_a_job_from_before_that_its_host_was_not_given_is_lost_at_once(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path, before={4: "bench1", 5: "bench2"})
    news = remote.next()
    assert (news.id, str(error_of(news))) == (4, f"bench1 was not given job {Key(RUN, 4)}")
    assert isinstance(error_of(news), AttemptLost)
    assert list(remote.idle) == ["bench1"]
    wires.heard += [Joined(host("tls://3", held=((4, Standing.DONE),))), came(4)]
    late = remote.next()
    assert isinstance(late, Finished)
    assert late.id == 4
