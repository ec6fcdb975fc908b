"""A search over several hosts: each by its own ends, whatever one of them does; and kernels that are built ahead."""

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.analysis.verdicts import host_of
from bisector.campaign.instructions import Crew
from bisector.config import Settings
from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.events import OnHost
from bisector.core.subject import Commit, Compiler
from bisector.core.trial import AttemptCancelled, AttemptFailed, Fault, FaultKind, Stage
from bisector.core.verdict import Direction, State
from bisector.executor.base import BuildRequest, Failed, Finished, Job, News
from bisector.store.facts import BuildTry, Ended, Ending, NumberedTrial
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.crew import Fleet
from tests.bisect.lab import BOTH, DEFAULTS, Lab, lab_of
from tests.git import histories

COUNT = 17
CULPRIT = "c11"
ENDS = {"c0", f"c{COUNT - 1}"}


def bench(lab: Lab, slow: float = 1_000.0, fast: float = 8_000.0, **more: object) -> fakes.FakeExecutor:
    """One on which old and new kernels are so fast."""
    return lab.engine(CULPRIT, slow_iops=slow, fast_iops=fast, **more)


def measured_on(lab: Lab) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for trial in lab.trials():
        found.setdefault(host_of(trial), []).append(lab.names.get(trial.commit.sha, "changed"))
    return found


def test_hosts_find_it_in_whatever_order_their_trials_end(by_bayes: Lab) -> None:
    fleet = Fleet({name: bench(by_bayes) for name in ("one", "two", "three", "four")}, random.Random(1))
    seen, submit = list[list[str]](), fleet.submit

    def watched(job: Job, host: str = "") -> None:
        submit(job, host)
        seen.append([by_bayes.names.get(one.request.commit.sha, "changed") for one in fleet.open.values()])

    fleet.submit = watched  # type: ignore[method-assign] # watched
    assert by_bayes.finds(fleet) == CULPRIT
    found = measured_on(by_bayes)
    assert set(found) == set(fleet.benches)
    assert all(set(shas[:2]) == ENDS for shas in found.values())
    assert (fleet.most, fleet.open) == (4, {})
    for together in seen:  # no kernel but an end is under way twice
        searched = [name for name in together if name not in (*ENDS, "changed")]
        assert len(set(searched)) == len(searched)
    with by_bayes._store() as store:
        assert not store.in_flight()
    numbers = [one.n for one in by_bayes.facts(NumberedTrial)]
    assert len(set(numbers)) == len(numbers)
    assert {one.ending for one in by_bayes.facts(Ended)} <= {Ending.DONE, Ending.CANCELLED}


def test_a_host_that_is_eight_times_as_fast_is_judged_by_its_own_ends(by_bayes: Lab) -> None:
    """Its slow kernels are as fast as the fast ones of the other host; put together, no line would part them."""
    fleet = Fleet({"slow": bench(by_bayes, 125.0, 1_000.0), "fast": bench(by_bayes, 1_000.0, 8_000.0)})
    assert by_bayes.finds(fleet) == CULPRIT
    found = measured_on(by_bayes)
    assert all(len(shas) > 2 for shas in found.values()), found
    assert not any("again" in text for text in by_bayes.notes)


def test_a_host_whose_ends_are_alike_is_excluded(by_bayes: Lab) -> None:
    alike = bench(by_bayes)
    alike.fast_iops = alike.slow_iops
    fleet = Fleet({"good": bench(by_bayes), "odd": alike})
    assert by_bayes.finds(fleet) == CULPRIT
    assert any(text.startswith("odd is excluded from this run: ") for text in by_bayes.notes)
    assert set(measured_on(by_bayes)["odd"]) == ENDS


def test_where_the_ends_are_alike_on_all_hosts_there_is_nothing_to_bisect(by_bayes: Lab) -> None:
    benches = {name: bench(by_bayes) for name in ("one", "two")}
    for one in benches.values():
        one.fast_iops = one.slow_iops
    with pytest.raises(EndsDoNotReproduce):
        by_bayes.bisect(Fleet(benches))


def test_where_the_ends_differ_both_ways_nobody_knows_which_host_is_right(by_bayes: Lab) -> None:
    with pytest.raises(EndsDoNotReproduce, match="one way on good, and the other way on odd"):
        by_bayes.bisect(Fleet({"good": bench(by_bayes), "odd": bench(by_bayes, 8_000.0, 1_000.0)}))


def test_a_host_whose_ends_differ_the_other_way_than_expected_is_excluded(by_bayes: Lab) -> None:
    by_bayes.settings = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, expect=Direction.IMPROVEMENT))
    fleet = Fleet({"good": bench(by_bayes), "odd": bench(by_bayes, 8_000.0, 1_000.0)})
    assert by_bayes.finds(fleet) == CULPRIT
    assert any(text.startswith("odd is excluded from this run: ") for text in by_bayes.notes)


def test_what_fails_on_one_host_is_made_by_another_and_the_host_is_excluded(by_bayes: Lab) -> None:
    """Its ends work; then everything fails there."""
    failed = list[str]()

    def fails(request: TrialRequest) -> None:
        if by_bayes.names.get(request.commit.sha) not in ENDS:
            failed.append(request.commit.sha)
            raise AttemptFailed("no space left on the device", "df", Stage.CHECKOUT, "broken")

    fleet = Fleet({"good": bench(by_bayes), "broken": bench(by_bayes, before=fails)})
    assert by_bayes.finds(fleet) == CULPRIT
    assert any(text.startswith("broken is excluded from this run: ") for text in by_bayes.notes)
    assert len(failed) == 4


def test_the_last_host_is_not_excluded(by_bayes: Lab) -> None:
    """What ends a run of one host ends it here, too."""
    broken = {name: bench(by_bayes, infra=dict.fromkeys(by_bayes.shas.values(), 99)) for name in ("one", "two")}
    with pytest.raises(InfraError, match="the network went away"):
        by_bayes.bisect(Fleet(broken))


@dataclass
class Late(Fleet):
    """What the first host is at ends last."""

    def next(self) -> News:
        assert len(self.pairs) < 100, self.pairs[-4:]
        first = next(iter(self.benches))
        waiting = {first: self.open.pop(first)} if len(self.open) > 1 else {}
        try:
            return super().next()
        finally:
            self.open |= waiting


@BOTH
def test_a_host_that_still_measures_an_end_does_not_begin_it_again_once_there_is_an_answer(
    by_bayes: Lab, settings: Settings
) -> None:
    by_bayes.settings = replace(settings, bisect=replace(settings.bisect, baselines=True))
    fleet = Late({name: bench(by_bayes) for name in ("slow", "fast")})
    assert by_bayes.finds(fleet) == CULPRIT
    assert {by_bayes.names[sha] for host, sha in fleet.pairs if host == "slow"} == {"c0"}


@dataclass
class Twice(Fleet):
    """Each result is told a second time."""

    again: News | None = None

    def next(self) -> News:
        told, self.again = self.again, None
        if told is not None:
            return told
        self.again = super().next()
        return self.again


def test_a_result_that_is_told_twice_is_on_record_once(by_bayes: Lab) -> None:
    assert by_bayes.finds(Twice({name: bench(by_bayes) for name in ("one", "two")})) == CULPRIT
    numbers = [one.n for one in by_bayes.facts(NumberedTrial)]
    ended = [one.submission for one in by_bayes.facts(Ended)]
    assert (len(set(numbers)), len(set(ended))) == (len(numbers), len(ended))


class Comes(Fleet):
    """A host comes while nobody has anything to do."""

    def wait(self, within_s: float | None) -> bool:
        if not self.open:
            self.gone.clear()
        return bool(self.open)


def test_a_host_that_comes_during_the_pause_of_another_one_is_used(by_bayes: Lab) -> None:
    fleet = Comes({"one": bench(by_bayes, infra={by_bayes.shas["c0"]: 1}), "two": bench(by_bayes)}, gone={"two"})
    assert by_bayes.finds(fleet) == CULPRIT
    assert by_bayes.trials()[0].host == "two"


def test_what_failed_on_one_host_is_measured_although_the_other_one_pauses(by_bayes: Lab) -> None:
    failed = list[str]()

    def fails_once(request: TrialRequest) -> None:
        if by_bayes.names.get(request.commit.sha) not in ENDS and not failed:
            failed.append(request.commit.sha)
            raise AttemptFailed("the network went away", "", Stage.CHECKOUT, "one")

    two = bench(by_bayes, infra=dict.fromkeys(map(by_bayes.shas.get, ENDS), 1))
    assert by_bayes.finds(Fleet({"one": bench(by_bayes, before=fails_once), "two": two})) == CULPRIT
    assert failed


# Kernels that are built before anybody measures them: by whom, which, and that each is built once


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
def long(tmp_path: Path) -> Lab:
    return lab_of(tmp_path, histories.linear(33), "c0", "c32")


def sharing(lab: Lab, *names: str, order: int | None = None) -> Sharing:
    return Sharing({name: bench(lab) for name in names}, None if order is None else random.Random(order))


def test_both_ends_are_built_once_and_other_hosts_build_ahead_meanwhile(long: Lab) -> None:
    long.crew = Crew(4)
    fleet = sharing(long, "one", "two", "three", "four")
    assert long.finds(fleet) == CULPRIT
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


def test_a_cpu_that_no_guest_needs_builds_ahead_for_either_outcome(by_bayes: Lab) -> None:
    by_bayes.crew = Crew(builders=frozenset({"builder"}))
    fleet = Quick({name: bench(by_bayes) for name in (fakes.HOST, "builder")})
    assert by_bayes.finds(fleet) == CULPRIT
    assert not fleet.of("builder", TrialRequest)
    assert not fleet.of(fakes.HOST, BuildRequest)
    first, second, *searched = (by_bayes.names.get(sha, "") for sha in fleet.of(fakes.HOST, TrialRequest))
    assert (first, second) == ("c0", LAST)
    built = {by_bayes.names[sha] for sha in fleet.of("builder", BuildRequest)}
    assert {name for name in searched if name} <= built  # without NEW as it is without the suspect
    assert {one.host for one in by_bayes.events if isinstance(one, OnHost)} == {"guest 1", "builder"}


def test_a_guest_waits_for_the_kernel_that_it_needs_and_that_is_being_built(by_bayes: Lab) -> None:
    by_bayes.crew = Crew(builders=frozenset({"builder"}))
    fleet = sharing(by_bayes, fakes.HOST, "builder", order=1)
    assert by_bayes.finds(fleet) == CULPRIT
    assert not fleet.of(fakes.HOST, BuildRequest)
    assert [by_bayes.names[sha] for sha in fleet.of(fakes.HOST, TrialRequest)[:2]] == ["c0", LAST]


def test_of_a_build_alone_nothing_is_concluded(by_bayes: Lab) -> None:
    """What fails to build ahead is tried by the hosts that measure, and measured if it builds there."""
    by_bayes.crew = Crew(2, frozenset({"builder"}))
    fleet, failing = sharing(by_bayes, "one", "two", "builder"), ("c0", CULPRIT)
    for one in fleet.benches.values():
        one.does_not_build = {(fakes.GCC.command, by_bayes.shas[name]): NO_BUILD for name in failing}
    assert by_bayes.finds(fleet) == CULPRIT
    tries = by_bayes.facts(BuildTry)
    for name in failing:
        assert name in {one for names in measured_on(by_bayes).values() for one in names}
        asked = sum(fleet.of(host, BuildRequest).count(by_bayes.shas[name]) for host in fleet.benches)
        reasons = [one.reason for one in tries if one.sha == by_bayes.shas[name]]
        assert (len(reasons), all(reasons)) == (asked, True)
        assert asked <= 1


def test_a_build_host_on_which_all_fails_is_excluded(by_bayes: Lab) -> None:
    by_bayes.crew = Crew(1, frozenset({"builder"}))
    fleet = sharing(by_bayes, "one", "builder")

    failed = list[Commit]()

    def fails(commit: Commit, compiler: Compiler) -> Fault | None:
        failed.append(commit)
        raise BROKEN

    fleet.benches["builder"].try_build = fails  # type: ignore[method-assign] # a bench that breaks
    assert by_bayes.finds(fleet) == CULPRIT
    assert any(text.startswith("builder is excluded from this run: ") for text in by_bayes.notes)
    assert len(failed) == 4


def test_a_build_host_that_dies_with_an_end_does_not_stop_the_run(by_bayes: Lab) -> None:
    by_bayes.crew = Crew(2, frozenset({"builder"}))
    fleet = sharing(by_bayes, "builder", "one", "two")
    fleet.dead = "builder"
    assert by_bayes.finds(fleet) == CULPRIT
    assert fleet.gone == {"builder"}


def test_what_is_built_when_the_answer_is_there_is_broken_off(by_bayes: Lab) -> None:
    by_bayes.crew = Crew(1, frozenset({"builder"}))

    fleet = Slow(
        {name: bench(by_bayes) for name in ("one", "builder")}, ends=(by_bayes.shas["c0"], by_bayes.shas[LAST])
    )
    outcome = by_bayes.bisect(fleet)
    assert outcome.state is State.FOUND
    assert fleet.cancelled
    assert not fleet.open
    # What became of little use was broken off before, for another one.
    assert len(set(fleet.of("builder", BuildRequest)) - {by_bayes.shas["c0"], by_bayes.shas[LAST]}) > 1


def test_each_kernel_is_built_once_and_no_more_ahead_than_there_are_hosts_that_measure(long: Lab) -> None:
    long.crew = Crew(2, frozenset({"builder"}))
    together = list[int]()

    @dataclass
    class Eager(Quick):
        """How many builds there are between two trials."""

        def submit(self, job: Job, host: str = "") -> None:
            super().submit(job, host)
            if host == "builder" and len(self.of("one", TrialRequest)) > 2:
                together[-1] += 1

        def next(self) -> News:
            if "builder" not in self.open:
                together.append(0)
            return super().next()

    fleet = Eager({name: bench(long) for name in ("one", "two", "builder")})
    assert long.finds(fleet) == CULPRIT
    assert max(together) == 2
    assert set(fleet.built.values()) <= {0, 1}
    assert not fleet.of("builder", TrialRequest)
    assert set(measured_on(long)) == {"one", "two"}
