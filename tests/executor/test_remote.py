"""What is made of news from other hosts in any order: each job is heard once, and no silence is a verdict."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.core.errors import AttemptCancelled, AttemptFailed, AttemptLost, BisectorError, InfraError
from bisector.core.events import Event, Listener, Note, StageStarted
from bisector.core.trial import Stage
from bisector.executor.base import BuildRequest, Failed, Finished, Job, News, Progress
from bisector.executor.hosts import (
    Came,
    Drained,
    Host,
    HostNews,
    Joined,
    Leaving,
    Left,
    NotTaken,
    Told,
    Unheard,
    Unsent,
    Word,
)
from bisector.executor.parcel import Parcel
from bisector.executor.remote import RemoteExecutor
from bisector.executor.spec import Key, Spec, run_key
from bisector.executor.spool import Standing
from bisector.executor.watch import Returned
from bisector.trial.runner import TrialRequest
from tests import examples, fakes
from tests.executor.bench import COMMIT, settings_of

RUN = "run"
VERSIONS = (("bisector", "1.0"), ("Python", "3.11"))


@dataclass
class Wires:
    """A connection that a test speaks for."""

    heard: deque[HostNews] = field(default_factory=deque)
    known: tuple[Host, ...] = ()
    submitted: list[tuple[str, Key, int, bool]] = field(default_factory=list)
    sent: list[tuple[str, Word, Key]] = field(default_factory=list)
    timeouts_s: list[float] = field(default_factory=list)
    kernels: list[tuple[str, ...]] = field(default_factory=list)
    specs: list[Spec] = field(default_factory=list)

    def hosts(self) -> tuple[Host, ...]:
        return self.known

    def submit(self, address: str, work: Spec | Key, attempt: int) -> None:
        key = work.key if isinstance(work, Spec) else work
        self.submitted.append((address, key, attempt, isinstance(work, Spec)))
        self.kernels += [work.kernels] if isinstance(work, Spec) else []
        self.specs += [work] if isinstance(work, Spec) else []

    def send(self, address: str, word: Word, key: Key) -> None:
        self.sent.append((address, word, key))

    def news(self, timeout_s: float) -> HostNews | None:
        self.timeouts_s.append(timeout_s)
        assert timeout_s < 1 or self.heard, f"this would wait for {timeout_s} s"
        return self.heard.popleft() if self.heard else None


@pytest.fixture
def wires() -> Wires:
    return Wires(known=(host(),))


def host(
    address: str = "tls://1", name: str = "bench1", held: tuple[tuple[int, Standing], ...] = (), run: str = RUN
) -> Host:
    return Host(address, name, f"{name} boot", VERSIONS, tuple((Key(run, id_), how) for id_, how in held))


def executor(
    wires: Wires,
    run_dir: Path,
    before: Mapping[int, str] | None = None,
    patience_s: float = 300.0,
    tell: Listener = lambda event: None,
    *,
    lost: tuple[int, ...] = (),
) -> RemoteExecutor:
    settings = settings_of("lvmcache")
    return RemoteExecutor(
        wires, RUN, run_dir, settings, VERSIONS, lambda: (fakes.GCC,), tell, before or {}, patience_s, lost
    )


def job(id_: int) -> Job:
    return Job(id_, TrialRequest(id_, examples.cell(COMMIT), {}))


def came(id_: int, figure: float = 1000.0, attempt: int = 1, run: str = RUN) -> Came:
    return Came(Returned(Key(run, id_), Finished(id_, "there", fakes.trial(COMMIT, figure), "now")), attempt)


def error_of(news: News) -> BisectorError:
    assert isinstance(news, Failed)
    return news.error


def nothing_more(remote: RemoteExecutor) -> None:
    with pytest.raises(ValueError, match="no job"):
        remote.next()


def test_a_job_is_pinned_to_one_idle_host(wires: Wires, tmp_path: Path) -> None:
    wires.known = (host(), host("tls://2", "bench2"))
    remote = executor(wires, tmp_path)
    assert list(remote.idle) == ["bench1", "bench2"]
    remote.submit(job(1), "bench2")
    remote.submit(job(2))
    assert [(address, key.id) for address, key, *_ in wires.submitted] == [("tls://2", 1), ("tls://1", 2)]
    assert list(remote.idle) == []


def test_a_job_waits_for_the_host_that_it_is_for(wires: Wires, tmp_path: Path) -> None:
    wires.known = (host(), host("tls://2", "bench2"))
    remote = executor(wires, tmp_path)
    remote.submit(job(1), "bench2")
    remote.submit(job(2), "bench2")
    assert list(remote.idle) == ["bench1"]
    wires.heard += [came(1), came(2, attempt=2)]
    assert isinstance(remote.next(), Finished)
    assert [(address, key.id) for address, key, *_ in wires.submitted] == [("tls://2", 1), ("tls://2", 2)]


def test_a_result_is_heard_once_and_of_the_host_that_it_was_sent_to(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    wires.heard += [came(1), came(1, 2000.0)]
    news = remote.next()
    assert isinstance(news, Finished)
    assert (news.host, news.result) == ("bench1", fakes.trial(COMMIT, 1000.0))
    assert list(remote.idle) == ["bench1"]
    nothing_more(remote)


def test_results_come_in_any_order(wires: Wires, tmp_path: Path) -> None:
    wires.known = tuple(host(f"tls://{n}", f"bench{n}") for n in range(3))
    remote = executor(wires, tmp_path)
    for id_ in (1, 2, 3):
        remote.submit(job(id_))
    wires.heard += [came(3, attempt=3), came(1), came(2, attempt=2)]
    assert [remote.next().id for _ in range(3)] == [3, 1, 2]
    nothing_more(remote)


def test_of_other_runs_nothing_is_heard(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    wires.heard += [came(1, 2000.0, run="other"), Told(Key("other", 1), StageStarted(COMMIT, Stage.BOOT)), came(1)]
    news = remote.next()
    assert isinstance(news, Finished)
    assert news.result == fakes.trial(COMMIT, 1000.0)


def test_progress_of_a_job_that_was_given_up_is_not_its_successors(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path, patience_s=0.0)
    remote.submit(job(1))
    wires.heard += [Left("tls://1")]
    assert isinstance(error_of(remote.next()), AttemptFailed)
    event = StageStarted(COMMIT, Stage.BOOT)
    wires.heard += [Joined(host("tls://2")), Told(Key(RUN, 1), event)]
    assert list(remote.idle) == ["bench1"]
    remote.submit(job(2))
    wires.heard += [Told(Key(RUN, 2), event), came(2)]
    assert remote.next() == Progress(2, event)
    assert isinstance(remote.next(), Finished)


@pytest.mark.parametrize("standing", [Standing.RUNNING, Standing.DONE, Standing.LOST])
@pytest.mark.parametrize("missed", [True, False], ids=["cut was seen", "cut was not seen"])
def test_a_host_that_comes_back_is_asked_for_its_job(
    wires: Wires, tmp_path: Path, standing: Standing, missed: bool
) -> None:
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    wires.heard += [Left("tls://1"), Unheard(Key(RUN, 1), 1, "gone")] if missed else []
    wires.heard += [Joined(host("tls://2", held=((1, standing),))), Unheard(Key(RUN, 1), 1, "gone")]
    wires.heard += [Left("tls://1"), came(1, attempt=2)]
    assert isinstance(remote.next(), Finished)
    assert [(address, attempt, new) for address, _, attempt, new in wires.submitted] == [
        ("tls://1", 1, True),
        ("tls://2", 2, False),
    ]
    assert list(remote.idle) == ["bench1"]
    nothing_more(remote)


def test_an_earlier_attempt_at_hearing_says_nothing_of_the_one_that_goes_on(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    wires.heard += [Joined(host("tls://2", held=((1, Standing.RUNNING),))), Unheard(Key(RUN, 1), 1, "gone")]
    wires.heard += [came(1, attempt=2)]
    assert isinstance(remote.next(), Finished)
    assert min(wires.timeouts_s[-3:]) > 300  # nobody's patience was counted


def test_a_job_that_is_heard_of_is_not_taken_from_another_host(wires: Wires, tmp_path: Path) -> None:
    """A spool may be a copy of another host's."""
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    wires.heard += [Joined(host("tls://2", "bench2", held=((1, Standing.DONE),)))]
    assert list(remote.idle) == ["bench2"]
    assert [address for address, *_ in wires.submitted] == ["tls://1"]
    assert not wires.sent


def test_a_job_that_never_arrived_is_lost_at_once(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    wires.heard += [Left("tls://1"), Joined(host("tls://2"))]
    error = error_of(remote.next())
    assert isinstance(error, AttemptFailed)
    assert "has no job" in str(error)


def test_a_host_that_does_not_come_back_in_time_is_an_attempt_that_failed(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path, patience_s=0.0)
    remote.submit(job(1))
    wires.heard += [Left("tls://1")]
    news = remote.next()
    error = error_of(news)
    assert (type(error), news.id) == (AttemptLost, 1)
    assert "nothing was heard of job run/1 on bench1" in str(error)
    nothing_more(remote)


# What comes late


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


def test_hosts_are_told_that_a_run_is_over(wires: Wires, tmp_path: Path) -> None:
    wires.known = (host(), host("tls://2", "bench2"))
    executor(wires, tmp_path).over()
    assert wires.sent == [("tls://1", Word.OVER, Key(RUN, 0)), ("tls://2", Word.OVER, Key(RUN, 0))]


def test_a_job_that_runs_is_cancelled_on_its_host_also_after_a_cut(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    remote.cancel(1)
    assert wires.sent == [("tls://1", Word.CANCEL, Key(RUN, 1))]
    wires.heard += [Left("tls://1"), Joined(host("tls://2", held=((1, Standing.RUNNING),)))]
    assert list(remote.idle) == []
    assert wires.sent[1:] == [("tls://2", Word.CANCEL, Key(RUN, 1))]
    ended = Returned(Key(RUN, 1), Failed(1, "there", AttemptCancelled("cancelled"), "now"))
    wires.heard += [Came(ended, 2)]
    assert isinstance(error_of(remote.next()), AttemptCancelled)


def test_a_host_of_another_version_is_not_used_and_told_of(wires: Wires, tmp_path: Path) -> None:
    wires.known = (replace(host(), versions=(("bisector", "0.9"), ("Python", "3.11"))),)
    told: list[Event] = []
    remote = executor(wires, tmp_path, tell=told.append)
    assert list(remote.idle) == []
    assert told == [Note("bench1 is not used: bisector 0.9 there, 1.0 here")]


def test_files_that_are_not_what_was_sent_are_no_result(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    whole = came(1)
    wires.heard += [replace(whole, returned=replace(whole.returned, files=Parcel(b"some", "0" * 64)))]
    error = error_of(remote.next())
    assert (type(error), "bench1" in str(error)) == (AttemptFailed, True)


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


def test_the_kernels_that_a_job_would_take_are_in_its_spec(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.kernels_of = lambda settings, request: (f"{settings.storage.stack} {request.commit.short}",)
    remote.submit(job(1))
    assert wires.kernels == [(f"{remote.settings.storage.stack} {COMMIT.short}",)]


def test_hosts_that_do_not_connect_are_trouble_of_the_network(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.wait_for_hosts(1, 0.0)
    with pytest.raises(InfraError, match="1 of 2 hosts"):
        remote.wait_for_hosts(2, 0.01)


def test_a_run_has_a_name_of_its_own(tmp_path: Path) -> None:
    """That is a directory's on each host, also where the run's own is a word of another alphabet or hidden."""
    first, again = "2026-03-01T10:00:00+00:00", "2026-03-02T10:00:00+00:00"
    directories = [tmp_path / name for name in ("run", "other", "..run", "путь", "x" * 200, "v4.11..v4.13-rc1")]
    names = [run_key(directory, at) for directory in directories for at in (first, again)]
    assert len({*names}) == len(names)
    assert all(Key(name, 1).is_sound for name in names)
    assert run_key(tmp_path / "run", first) == run_key(tmp_path / "." / "run", first)


def test_where_nothing_but_a_host_that_builds_is_there_the_run_does_not_wait_for_ever(
    wires: Wires, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bisector.executor.remote.NO_HOST_S", 0.0)
    remote = executor(wires, tmp_path)
    assert remote.wait(None) is False
    remote.builders = ["bench1"]
    with pytest.raises(InfraError, match="no host that measures was there"):
        remote.wait(None)


def test_a_build_is_given_up_at_once_when_its_host_is_gone_and_nobody_needs_it(wires: Wires, tmp_path: Path) -> None:
    """A trial may have ended there by itself; its end is waited for."""
    remote = executor(wires, tmp_path)
    remote.submit(Job(1, BuildRequest(COMMIT, fakes.GCC)))
    wires.heard.append(Left("tls://1"))
    assert list(remote.idle) == []
    remote.cancel(1)
    assert isinstance(error_of(remote.next()), AttemptCancelled)
    wires.heard.append(Joined(host("tls://2", held=((1, Standing.RUNNING),))))
    assert remote.idle == ("bench1",)
    assert wires.sent == [("tls://2", Word.ACKNOWLEDGE, Key(RUN, 1))]


def test_each_host_has_its_own_disks(wires: Wires, tmp_path: Path) -> None:
    wires.known = (host(), host("tls://2", "bench2"))
    remote = executor(wires, tmp_path)
    remote.disks = {"bench2": {"ssd": "/dev/nvme0n1", "none": "/dev/null"}}
    for id_, name in ((1, "bench1"), (2, "bench2")):
        remote.submit(job(id_), name)
    paths = [spec.settings.storage.disks["ssd"].path for spec in wires.specs]
    assert paths == [remote.settings.storage.disks["ssd"].path, "/dev/nvme0n1"]


def test_a_trial_with_settings_of_its_own_has_its_hosts_disks_too(wires: Wires, tmp_path: Path) -> None:
    """As each one of a comparison has."""
    wires.known = (host("tls://2", "bench2"),)
    remote = executor(wires, tmp_path)
    remote.disks = {"bench2": {"ssd": "/dev/nvme0n1"}}
    usual = job(1).request
    assert isinstance(usual, TrialRequest)
    remote.submit(Job(1, replace(usual, settings=remote.settings)), "bench2")
    (spec,) = wires.specs
    assert isinstance(spec.request, TrialRequest)
    assert spec.request.settings is not None
    assert spec.request.settings.storage.disks["ssd"].path == "/dev/nvme0n1"


def test_waiting_ends_with_news_or_with_another_idle_host(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.submit(job(1), "bench1")
    wires.heard.append(Joined(host("tls://2", "bench2")))
    assert remote.wait(60.0) is False
    assert remote.idle == ("bench2",)
    wires.heard.append(came(1))
    assert remote.wait(60.0) is True
    assert isinstance(remote.next(), Finished)
    assert remote.wait(0.0) is False
