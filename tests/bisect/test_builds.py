"""Kernels that are built before anybody measures them: by whom, which, and that each is built once."""

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bisector.campaign.instructions import Crew
from bisector.core.errors import AttemptCancelled, AttemptFailed
from bisector.core.events import OnHost
from bisector.core.subject import Commit, Compiler
from bisector.core.trial import Fault, FaultKind, Stage
from bisector.core.verdict import State
from bisector.executor.base import BuildRequest, Failed, Finished, Job, News
from bisector.store.facts import BuildTry
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.crew import Fleet
from tests.bisect.lab import Lab, lab_of
from tests.bisect.test_several_hosts import COUNT, CULPRIT, bench, measured_on, notes
from tests.git import histories

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


def sharing(lab: Lab, *names: str, order: int | None = None) -> Sharing:
    return Sharing({name: bench(lab) for name in names}, None if order is None else random.Random(order))


@pytest.mark.parametrize("seed", range(2))
def test_each_kernel_is_built_once_and_a_build_host_measures_nothing(line: Lab, seed: int) -> None:
    line.crew = Crew(2, frozenset({"builder"}))
    fleet = sharing(line, "one", "two", "builder", order=seed)
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert set(fleet.built.values()) <= {0, 1}
    assert not fleet.of("builder", TrialRequest)
    assert len(fleet.of("builder", BuildRequest)) > 2
    assert set(measured_on(line)) == {"one", "two"}


def test_both_ends_are_built_once_and_other_hosts_build_ahead_meanwhile(line: Lab) -> None:
    line.crew = Crew(4)
    fleet = sharing(line, "one", "two", "three", "four")
    assert line.found(line.bisect(fleet)) == CULPRIT
    first = [(host, line.names[job.request.commit.sha], type(job.request)) for host, job in fleet.jobs[:4]]
    assert first[:2] == [("one", "c0", BuildRequest), ("two", "c64", BuildRequest)]
    assert {kind for _, _, kind in first[2:]} == {BuildRequest}
    ahead = {name for _, name, _ in first[2:]}
    assert len(ahead) == 2
    assert not ahead & {"c0", "c64"}
    assert set(fleet.built.values()) <= {0, 1}
    assert all(set(shas[:2]) == {"c0", "c64"} for shas in measured_on(line).values())
    assert ahead <= {name for names in measured_on(line).values() for name in names}


def test_one_host_alone_builds_nothing_that_it_does_not_measure(line: Lab) -> None:
    fleet = sharing(line, "one")
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert not fleet.of("one", BuildRequest)


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
    assert (first, second) == ("c0", "c64")
    built = {line.names[sha] for sha in fleet.of("builder", BuildRequest)}
    assert {name for name in searched if name} <= built  # without NEW as it is without the suspect
    assert {one.host for one in line.events if isinstance(one, OnHost)} == {"guest 1", "builder"}


@pytest.mark.parametrize("seed", range(2))
def test_a_guest_waits_for_the_kernel_that_it_needs_and_that_is_being_built(line: Lab, seed: int) -> None:
    line.crew = Crew(builders=frozenset({"builder"}))
    fleet = sharing(line, fakes.HOST, "builder", order=seed)
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert not fleet.of(fakes.HOST, BuildRequest)
    assert [line.names[sha] for sha in fleet.of(fakes.HOST, TrialRequest)[:2]] == ["c0", "c64"]


@pytest.mark.parametrize("which", [CULPRIT, "c0"])
def test_of_a_build_alone_nothing_is_concluded(line: Lab, which: str) -> None:
    """What fails to build ahead is tried by the hosts that measure, and measured if it builds there."""
    line.crew = Crew(2, frozenset({"builder"}))
    fleet = sharing(line, "one", "two", "builder")
    for one in fleet.benches.values():
        one.does_not_build = {(fakes.GCC.command, line.shas[which]): NO_BUILD}
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert which in {name for names in measured_on(line).values() for name in names}
    asked = sum(fleet.of(host, BuildRequest).count(line.shas[which]) for host in fleet.benches)
    assert asked <= 1
    with line._store() as store:
        tries = [one for one in store.facts(BuildTry) if one.sha == line.shas[which]]
    assert all(one.reason for one in tries)
    assert len(tries) == asked


def test_a_build_host_on_which_all_fails_is_set_aside(line: Lab) -> None:
    line.crew = Crew(1, frozenset({"builder"}))
    fleet = sharing(line, "one", "builder")

    def fails(commit: Commit, compiler: Compiler) -> Fault | None:
        raise BROKEN

    fleet.benches["builder"].try_build = fails  # type: ignore[method-assign] # a bench that breaks
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert any(text.startswith("builder is excluded from this run: ") for text in notes(line))
    assert len(fleet.of("builder", BuildRequest)) == 4


def test_a_build_host_that_dies_with_an_end_does_not_stop_the_run(line: Lab) -> None:
    line.crew = Crew(2, frozenset({"builder"}))
    fleet = sharing(line, "builder", "one", "two")
    fleet.dead = "builder"
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert fleet.gone == {"builder"}


def test_what_is_built_when_the_answer_is_there_is_broken_off(line: Lab) -> None:
    line.crew = Crew(1, frozenset({"builder"}))

    fleet = Slow({name: bench(line) for name in ("one", "builder")}, ends=(line.shas["c0"], line.shas["c64"]))
    outcome = line.bisect(fleet)
    assert outcome.state is State.FOUND
    assert fleet.cancelled
    assert not fleet.open
    # What became of little use was broken off before, for another one.
    assert len(set(fleet.of("builder", BuildRequest)) - {line.shas["c0"], line.shas["c64"]}) > 1


def test_no_more_kernels_are_built_ahead_than_there_are_hosts_that_measure(line: Lab) -> None:
    line.crew = Crew(2, frozenset({"builder"}))
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

    fleet = Eager({name: bench(line) for name in ("one", "two", "builder")})
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert max(together) == 2
    assert set(fleet.built.values()) <= {0, 1}
