"""Kernels that are built before anybody measures them: by whom, which, and that each is built once."""

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bisector.campaign.instructions import Crew
from bisector.core.events import OnHost
from bisector.core.subject import Commit, Compiler
from bisector.core.trial import AttemptCancelled, AttemptFailed, Fault, FaultKind, Stage
from bisector.core.verdict import State
from bisector.executor.base import BuildRequest, Failed, Finished, Job, News
from bisector.store.facts import BuildTry
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.crew import Fleet
from tests.bisect.lab import Lab, lab_of
from tests.bisect.test_several_hosts import COUNT, CULPRIT, bench, measured_on
from tests.git import histories

LAST = f"c{COUNT - 1}"
NO_BUILD = Fault(Stage.BUILD, FaultKind.BUILD_ERROR, "dm-cache.c:7: error: expected ';'")
BROKEN = AttemptFailed("no space left on the device", "df", Stage.CHECKOUT, "builder")


@dataclass
class Sharing(Fleet):
    """A kernel that one host has built is there for all, once its job has ended; how often each was built."""

    kernels: set[str] = field(default_factory=set)
    built: Counter[str] = field(default_factory=Counter)
    jobs: list[tuple[str, Job]] = field(default_factory=list)
    dead: str = ""

    def submit(self, job: Job, host: str = "") -> None:
        super().submit(job, host)
        self.jobs.append((host, job))
        if job.request.commit.sha not in self.kernels:
            self.built[job.request.commit.sha] += 1

    def next(self) -> News:
        if self.dead in self.open and self.dead not in self.gone:
            job = self.open.pop(self.dead)
            self.gone.add(self.dead)
            lost = AttemptFailed("nothing was heard of it", "", Stage.CHECKOUT, self.dead)
            return Failed(job.id, self.dead, lost, "now")
        open_ = {job.id: job for job in self.open.values()}
        news = super().next()
        sha = open_[news.id].request.commit.sha if news.id in open_ else ""
        if isinstance(news, Failed) and isinstance(news.error, AttemptCancelled) and sha not in self.kernels:
            self.built[sha] -= 1  # it was broken off
        if isinstance(news, Finished) and not isinstance(news.result, Fault):
            self.kernels.add(sha)
        return news

    def of(self, host: str, kind: type) -> list[str]:
        return [job.request.commit.sha for name, job in self.jobs if name == host and isinstance(job.request, kind)]


@dataclass
class Slow(Sharing):
    """A build of a commit between the ends takes until it is cancelled, which it is before it is waited for."""

    ends: tuple[str, ...] = ()

    def next(self) -> News:
        job = self.open.get("builder")
        is_slow = job is not None and job.request.commit.sha not in self.ends
        if not is_slow or (job is not None and job.id in self.cancelled) or len(self.open) == 1:
            return super().next()
        waits = self.open.pop("builder")
        try:
            return super().next()
        finally:
            self.open["builder"] = waits

    def wait(self, within_s: float | None) -> bool:
        job = self.open.get("builder")
        if job is not None and len(self.open) == 1:
            assert job.id in self.cancelled or job.request.commit.sha in self.ends, "awaited"
        return super().wait(within_s)


@pytest.fixture
def line(tmp_path: Path) -> Lab:
    return lab_of(tmp_path, histories.linear(COUNT), "c0", f"c{COUNT - 1}")


@pytest.fixture
def long(tmp_path: Path) -> Lab:
    return lab_of(tmp_path, histories.linear(33), "c0", "c32")


def sharing(lab: Lab, *names: str, order: int | None = None) -> Sharing:
    return Sharing({name: bench(lab) for name in names}, None if order is None else random.Random(order))


def test_both_ends_are_built_once_and_other_hosts_build_ahead_meanwhile(long: Lab) -> None:
    long.crew = Crew(4)
    fleet = sharing(long, "one", "two", "three", "four")
    assert long.found(long.bisect(fleet)) == CULPRIT
    first = [(host, long.names[job.request.commit.sha], type(job.request)) for host, job in fleet.jobs[:4]]
    assert first[:2] == [("one", "c0", BuildRequest), ("two", "c32", BuildRequest)]
    assert {kind for _, _, kind in first[2:]} == {BuildRequest}
    ahead = {name for _, name, _ in first[2:]}
    assert len(ahead) == 2
    assert not ahead & {"c0", "c32"}
    assert set(fleet.built.values()) <= {0, 1}
    assert all(set(shas[:2]) == {"c0", "c32"} for shas in measured_on(long).values())
    assert ahead <= {name for names in measured_on(long).values() for name in names}


@dataclass
class Quick(Sharing):
    """A build takes less time than any trial."""

    def next(self) -> News:
        trials = {name: job for name, job in self.open.items() if name != "builder"}
        if len(trials) == len(self.open):
            return super().next()
        self.open = {"builder": self.open["builder"]}
        try:
            return super().next()
        finally:
            self.open |= trials


def test_a_cpu_that_no_guest_needs_builds_ahead_for_either_outcome(line: Lab) -> None:
    line.crew = Crew(builders=frozenset({"builder"}))
    fleet = Quick({name: bench(line) for name in (fakes.HOST, "builder")})
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert not fleet.of("builder", TrialRequest)
    assert not fleet.of(fakes.HOST, BuildRequest)
    first, second, *searched = (line.names.get(sha, "") for sha in fleet.of(fakes.HOST, TrialRequest))
    assert (first, second) == ("c0", LAST)
    built = {line.names[sha] for sha in fleet.of("builder", BuildRequest)}
    assert {name for name in searched if name} <= built  # without NEW as it is without the suspect
    assert {one.host for one in line.events if isinstance(one, OnHost)} == {"guest 1", "builder"}


def test_a_guest_waits_for_the_kernel_that_it_needs_and_that_is_being_built(line: Lab) -> None:
    line.crew = Crew(builders=frozenset({"builder"}))
    fleet = sharing(line, fakes.HOST, "builder", order=1)
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert not fleet.of(fakes.HOST, BuildRequest)
    assert [line.names[sha] for sha in fleet.of(fakes.HOST, TrialRequest)[:2]] == ["c0", LAST]


def test_of_a_build_alone_nothing_is_concluded(line: Lab) -> None:
    """What fails to build ahead is tried by the hosts that measure, and measured if it builds there."""
    line.crew = Crew(2, frozenset({"builder"}))
    fleet, failing = sharing(line, "one", "two", "builder"), ("c0", CULPRIT)
    for one in fleet.benches.values():
        one.does_not_build = {(fakes.GCC.command, line.shas[name]): NO_BUILD for name in failing}
    assert line.found(line.bisect(fleet)) == CULPRIT
    with line._store() as store:
        tries = store.facts(BuildTry)
    for name in failing:
        assert name in {one for names in measured_on(line).values() for one in names}
        asked = sum(fleet.of(host, BuildRequest).count(line.shas[name]) for host in fleet.benches)
        reasons = [one.reason for one in tries if one.sha == line.shas[name]]
        assert (len(reasons), all(reasons)) == (asked, True)
        assert asked <= 1


def test_a_build_host_on_which_all_fails_is_excluded(line: Lab) -> None:
    line.crew = Crew(1, frozenset({"builder"}))
    fleet = sharing(line, "one", "builder")

    failed = list[Commit]()

    def fails(commit: Commit, compiler: Compiler) -> Fault | None:
        failed.append(commit)
        raise BROKEN

    fleet.benches["builder"].try_build = fails  # type: ignore[method-assign] # a bench that breaks
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert any(text.startswith("builder is excluded from this run: ") for text in line.notes)
    assert len(failed) == 4


def test_a_build_host_that_dies_with_an_end_does_not_stop_the_run(line: Lab) -> None:
    line.crew = Crew(2, frozenset({"builder"}))
    fleet = sharing(line, "builder", "one", "two")
    fleet.dead = "builder"
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert fleet.gone == {"builder"}


def test_what_is_built_when_the_answer_is_there_is_broken_off(line: Lab) -> None:
    line.crew = Crew(1, frozenset({"builder"}))

    fleet = Slow({name: bench(line) for name in ("one", "builder")}, ends=(line.shas["c0"], line.shas[LAST]))
    outcome = line.bisect(fleet)
    assert outcome.state is State.FOUND
    assert fleet.cancelled
    assert not fleet.open
    # What became of little use was broken off before, for another one.
    assert len(set(fleet.of("builder", BuildRequest)) - {line.shas["c0"], line.shas[LAST]}) > 1


def test_each_kernel_is_built_once_and_no_more_ahead_than_there_are_hosts_that_measure(long: Lab) -> None:
    long.crew = Crew(2, frozenset({"builder"}))
    together = list[int]()

    @dataclass
    class Eager(Sharing):
        """A build takes no time."""

        def submit(self, job: Job, host: str = "") -> None:
            super().submit(job, host)
            if host == "builder" and len(self.of("one", TrialRequest)) > 2:
                together[-1] += 1

        def next(self) -> News:
            if "builder" not in self.open:
                together.append(0)
                return super().next()
            others = {name: self.open.pop(name) for name in tuple(self.open) if name != "builder"}
            try:
                return super().next()
            finally:
                self.open.update(others)

    fleet = Eager({name: bench(long) for name in ("one", "two", "builder")})
    assert long.found(long.bisect(fleet)) == CULPRIT
    assert max(together) == 2
    assert set(fleet.built.values()) <= {0, 1}
    assert not fleet.of("builder", TrialRequest)
    assert set(measured_on(long)) == {"one", "two"}
