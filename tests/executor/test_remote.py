"""What is made of news from other hosts in any order: each job is heard once, and no silence is a verdict."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import AttemptCancelled, AttemptFailed, AttemptLost
from bisector.core.events import StageStarted
from bisector.core.trial import Stage
from bisector.executor.base import BuildRequest, Failed, Finished, Job, Progress
from bisector.executor.hosts import (
    Came,
    Joined,
    Left,
    Told,
    Unheard,
    Word,
)
from bisector.executor.parcel import Parcel
from bisector.executor.spec import Key, run_key
from bisector.executor.spool import Standing
from bisector.executor.watch import Returned
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.executor.bench import COMMIT
from tests.executor.wires import RUN, Wires, came, error_of, executor, host, job, nothing_more


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


def test_files_that_are_not_what_was_sent_are_no_result(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.submit(job(1))
    whole = came(1)
    wires.heard += [replace(whole, returned=replace(whole.returned, files=Parcel(b"some", "0" * 64)))]
    error = error_of(remote.next())
    assert (type(error), "bench1" in str(error)) == (AttemptFailed, True)


def test_the_kernels_that_a_job_would_take_are_in_its_spec(wires: Wires, tmp_path: Path) -> None:
    remote = executor(wires, tmp_path)
    remote.kernels_of = lambda settings, request: (f"{settings.storage.stack} {request.commit.short}",)
    remote.submit(job(1))
    assert wires.kernels == [(f"{remote.settings.storage.stack} {COMMIT.short}",)]


def test_a_run_has_a_name_of_its_own(tmp_path: Path) -> None:
    """That is a directory's on each host, also where the run's own is a word of another alphabet or hidden."""
    first, again = "2026-03-01T10:00:00+00:00", "2026-03-02T10:00:00+00:00"
    directories = [tmp_path / name for name in ("run", "other", "..run", "путь", "x" * 200, "v4.11..v4.13-rc1")]
    names = [run_key(directory, at) for directory in directories for at in (first, again)]
    assert len({*names}) == len(names)
    assert all(Key(name, 1).is_sound for name in names)
    assert run_key(tmp_path / "run", first) == run_key(tmp_path / "." / "run", first)


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
