"""Kernels that are built before anybody measures them: by whom, which, and that each is built once."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bisector.bisect import builds, by_bayes
from bisector.bisect.facts import Aim, Crew, Facts, Heard
from bisector.bisect.hosts import once_all_has_ended
from bisector.bisect.instructions import Attempt, Cancel, Done, Installed, KeptKernels, Record, SetAside, Submit, Wait
from bisector.bisect.step import step
from bisector.core.errors import AttemptCancelled, AttemptFailed, AttemptLost, InfraError
from bisector.core.events import BuildEnded, BuildStarted, Note, OnHost
from bisector.core.subject import Commit, Compiler
from bisector.core.trial import Fault, FaultKind, Stage, Trial
from bisector.core.verdict import State
from bisector.executor.base import BuildRequest, Failed, Finished, Job, News
from bisector.search.decision import Answer, Hold
from bisector.search.decision import Ending as Ends
from bisector.search.fit import Fit
from bisector.status.conclusion import Standing
from bisector.store.facts import BuildTry, Ended, Ending, InFlight, Submitted, Work
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.crew import Fleet
from tests.bisect.lab import Lab, lab_of
from tests.bisect.test_several_hosts import COUNT, CULPRIT, bench, measured_on, notes
from tests.bisect.test_step import INNER, NEW, OLD, TASK, on_record
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
            lost = AttemptLost("nothing was heard of it", "", Stage.CHECKOUT, self.dead)
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


@pytest.mark.parametrize("seed", range(3))
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
        tries = [one for one in store.build_tries() if one.sha == line.shas[which]]
    assert all(one.reason for one in tries)
    assert len(tries) == asked


def test_a_build_host_on_which_all_fails_is_set_aside(line: Lab) -> None:
    line.crew = Crew(1, frozenset({"builder"}))
    fleet = sharing(line, "one", "builder")

    def fails(commit: Commit, compiler: Compiler) -> Fault | None:
        raise BROKEN

    fleet.benches["builder"].try_build = fails  # type: ignore[method-assign] # a bench that breaks
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert any(text.startswith("builder is used no more: ") for text in notes(line))
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


# The rules, by facts that are made by hand

CREW = Crew(2, frozenset({"builder"}))
GIT = replace(TASK, crew=CREW)
HEARD = Heard(answers={Installed(): (fakes.GCC,), KeptKernels((fakes.GCC,)): frozenset()})


def known(*trials: Trial, host: str = "one", hosts: tuple[str, ...] = ("one", "two"), **more: Any) -> Facts:
    record = replace(on_record(*trials, task=GIT), **more)
    in_flight = {one.id: None for one in record.in_flight}
    return Facts(GIT, record, HEARD, in_flight=in_flight, hosts=hosts, host=host)


def at_work(id_: int, work: Work, commit: Commit, host: str) -> InFlight:
    return InFlight(id_, Submitted(work, commit.sha, 1 if work is Work.TRIAL else None, host))


def built(found: object) -> Commit:
    assert isinstance(found, Submit)
    assert isinstance(found.request, BuildRequest)
    assert found.request.compiler == fakes.GCC
    return found.request.commit


def test_an_end_is_built_by_a_job_of_its_own_where_others_need_it_too() -> None:
    assert built(builds.before_end(known(), OLD)) == OLD
    alone = replace(known(hosts=("one",)), task=TASK)
    assert builds.before_end(alone, OLD) is None
    named = replace(alone, task=replace(TASK, crew=Crew(2)))
    assert built(builds.before_end(named, OLD)) == OLD


@pytest.mark.parametrize(
    "more",
    [
        {"built": frozenset({OLD.sha})},
        {"build_tries": (BuildTry(fakes.GCC, OLD.sha, "error"),)},
        {"in_flight": (at_work(3, Work.TRIAL, OLD, "two"),)},
    ],
    ids=["it is there", "it does not build", "it is measured elsewhere"],
)
def test_an_end_is_measured_where_a_build_would_help_nobody(more: Mapping[str, Any]) -> None:
    assert builds.before_end(known(**more), OLD) is None


def test_an_end_is_measured_where_something_failed_last() -> None:
    failed = replace(HEARD, failures={"one": (BROKEN,)})
    assert builds.before_end(replace(known(), heard=failed), OLD) is None
    other = replace(HEARD, failures={"two": (BROKEN,)})
    assert built(builds.before_end(replace(known(), heard=other), OLD)) == OLD


def test_an_end_that_is_being_built_is_waited_for_and_the_other_one_comes_first() -> None:
    there = known(in_flight=(at_work(3, Work.BUILD, OLD, "two"),))
    assert isinstance(builds.before_end(there, OLD), Wait)  # by git nothing is built ahead
    said = step(replace(there, heard=replace(there.heard, told=frozenset({"whole runs"}))), {3: None}, ("one",))
    assert built(said) == NEW


def test_what_was_cancelled_is_not_waited_for() -> None:
    there = known(in_flight=(at_work(3, Work.BUILD, OLD, "two"),))
    gone = replace(there, heard=replace(HEARD, cancelled=frozenset({3})))
    assert built(builds.before_end(gone, OLD)) == OLD


def test_a_build_host_builds_the_ends_that_nobody_is_at() -> None:
    assert built(builds.for_builder(known(host="builder"))) == OLD
    one = known(host="builder", in_flight=(at_work(3, Work.BUILD, OLD, "one"),))
    assert built(builds.for_builder(one)) == NEW
    trial = known(host="builder", in_flight=(at_work(3, Work.TRIAL, OLD, "one"),))
    assert built(builds.for_builder(trial)) == NEW
    both = known(host="builder", built=frozenset({OLD.sha, NEW.sha}))
    assert builds.for_builder(both) == Wait()


def test_a_build_host_builds_nothing_where_the_disks_alone_are_asked_for() -> None:
    there = known(host="builder")
    assert builds.for_builder(replace(there, task=replace(GIT, aim=Aim.BASELINES))) == Wait()


def test_a_build_host_is_set_aside_though_nobody_measures_yet() -> None:
    failures = (BROKEN,) * GIT.policy.attempts
    there = replace(known(host="builder", hosts=()), heard=replace(HEARD, failures={"builder": failures}))
    assert builds.for_builder(there) == SetAside("builder", BROKEN)
    assert step(replace(there, heard=replace(there.heard, set_aside={"builder": BROKEN})), {}, ("builder",)) == Wait()


def test_the_last_host_that_measures_ends_the_run_though_one_builds() -> None:
    trouble = InfraError("no KVM")
    heard = replace(HEARD, set_aside={"one": trouble, "builder": BROKEN})
    with pytest.raises(InfraError, match="no KVM"):
        step(replace(known(), heard=heard), {}, ("one", "builder"))


def ended(news: Finished | Failed) -> Attempt:
    return Attempt(Submit(BuildRequest(INNER, fakes.GCC), "kernel", host="builder"), 3, news)


def test_the_end_of_a_build_is_on_record_and_no_verdict() -> None:
    def said(news: Finished | Failed, heard: Heard = HEARD) -> Record:
        found = step(replace(known(), heard=replace(heard, arrived=(ended(news),))), {}, ())
        assert isinstance(found, Record)
        return found

    told = OnHost("builder", BuildEnded(INNER))
    done = said(Finished(3, "builder", None, "now"))
    assert done.facts == (BuildTry(fakes.GCC, INNER.sha, ""), Ended(3, Ending.DONE))
    assert (done.over, done.tell) == (True, (told,))
    fault = said(Finished(3, "builder", NO_BUILD, "now"))
    assert fault.facts == (BuildTry(fakes.GCC, INNER.sha, NO_BUILD.reason), Ended(3, Ending.DONE))
    for error, ending in ((BROKEN, Ending.FAILED), (AttemptLost("", "", Stage.CHECKOUT, "b"), Ending.SILENT)):
        failed = said(Failed(3, "builder", error, "now"))
        assert failed.facts[-1] == Ended(3, ending)
        assert failed.over
        assert told in failed.tell
    cancelled = said(
        Failed(3, "builder", AttemptCancelled("", "", Stage.CHECKOUT, "b"), "now"),
        replace(HEARD, cancelled=frozenset({3})),
    )
    assert cancelled.facts == (Ended(3, Ending.CANCELLED),)
    assert cancelled.tell == (told,)


def test_at_the_end_of_a_budget_trials_are_waited_for_and_builds_are_not() -> None:
    done = Done(State.NARROWED, (), (), "", out_of_time=True)
    there = known(in_flight=(at_work(3, Work.TRIAL, INNER, "one"), at_work(4, Work.BUILD, INNER, "builder")))
    assert once_all_has_ended(there, done) == Cancel(4)
    cancelled = replace(there, heard=replace(HEARD, cancelled=frozenset({4})))
    assert once_all_has_ended(cancelled, done) == Wait()


def test_people_are_told_which_host_builds_what() -> None:
    submit = builds.for_builder(known(host="builder"))
    assert isinstance(submit, Submit)
    assert submit.host == "builder"
    assert submit.tell == (OnHost("builder", BuildStarted(OLD, "an end, for all hosts")),)
    assert not isinstance(submit.tell[0], Note)


def test_an_answer_waits_for_trials_and_not_for_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a kernel that is being built nothing tells more; without it there is an answer."""
    done = Done(State.NARROWED, (), (), "")
    answer = Answer(Ends.NARROWED, 5, 0.5, (5, 6), Fit(0, 0.0, 1.0), confirmed=False)
    held = SimpleNamespace(decision=Hold(), case=SimpleNamespace(facts=None, ground=None))
    monkeypatch.setattr(Facts, "standing", property(lambda _: SimpleNamespace(decision=answer)))
    monkeypatch.setattr(by_bayes, "_concluded", lambda *_: done)

    def decided(*in_flight: InFlight) -> object:
        return by_bayes._decided(known(in_flight=in_flight), cast("Standing", held))

    build, trial = at_work(3, Work.BUILD, INNER, "builder"), at_work(4, Work.TRIAL, INNER, "two")
    assert decided(build) == done
    assert decided(build, trial) == Wait()
    assert decided(trial) == Wait()
