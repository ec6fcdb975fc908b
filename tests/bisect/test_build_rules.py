"""Who builds which kernel ahead: the rules, by facts that are made by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bisector.bisect import builds, by_bayes
from bisector.bisect.failures import once_all_has_ended
from bisector.bisect.state import Aim, BisectState, Installed, KeptKernels
from bisector.bisect.step import step
from bisector.campaign.instructions import Attempt, Cancel, Crew, Done, Record, SetAside, Submit, Transient, Wait
from bisector.core.errors import AttemptCancelled, AttemptFailed, InfraError
from bisector.core.events import BuildEnded, BuildStarted, Note, OnHost
from bisector.core.subject import Commit
from bisector.core.trial import Fault, FaultKind, Stage, Trial
from bisector.core.verdict import State
from bisector.executor.base import BuildRequest, Failed, Finished
from bisector.search.alternatives import Fit
from bisector.search.step import Hold, SearchAnswer
from bisector.search.step import SearchEnding as Ends
from bisector.status.conclusion import Standing
from bisector.store.facts import BuildTry, Ended, Ending, Work
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.test_step import INNER, OLD, SCOPE, on_record
from tests.examples import cell

NO_BUILD = Fault(Stage.BUILD, FaultKind.BUILD_ERROR, "dm-cache.c:7: error: expected ';'")
BROKEN = AttemptFailed("no space left on the device", "df", Stage.CHECKOUT, "builder")
CREW = Crew(2, frozenset({"builder"}))
GIT = replace(SCOPE, crew=CREW)
TRANSIENT = Transient(answers={Installed(): (fakes.GCC,), KeptKernels((fakes.GCC,)): frozenset()})


def known(*trials: Trial, host: str = "one", hosts: tuple[str, ...] = ("one", "two"), **more: Any) -> BisectState:
    in_flight = {id_: submit for one in more.pop("in_flight", ()) for id_, submit in one.items()}
    record = replace(on_record(*trials, scope=GIT), **more)
    return BisectState(GIT, record, replace(TRANSIENT, in_flight=in_flight), hosts=hosts, host=host)


def at_work(id_: int, work: Work, commit: Commit, host: str) -> dict[int, Submit]:
    request = TrialRequest(1, cell(commit), {}) if work is Work.TRIAL else BuildRequest(commit, fakes.GCC)
    return {id_: Submit(request, f"{work} {commit.sha}", host=host)}


def built(found: object) -> Commit:
    assert isinstance(found, Submit)
    assert isinstance(found.request, BuildRequest)
    assert found.request.compiler == fakes.GCC
    return found.request.commit


def test_an_end_is_measured_where_something_failed_last() -> None:
    failed = replace(TRANSIENT, failures={"one": (BROKEN,)})
    assert builds.before_end(replace(known(), transient=failed), OLD) is None
    other = replace(TRANSIENT, failures={"two": (BROKEN,)})
    assert built(builds.before_end(replace(known(), transient=other), OLD)) == OLD


def test_what_was_cancelled_is_not_waited_for() -> None:
    there = known(in_flight=(at_work(3, Work.BUILD, OLD, "two"),))
    gone = replace(there, transient=replace(there.transient, cancelled=frozenset({3})))
    assert built(builds.before_end(gone, OLD)) == OLD


def test_a_build_host_builds_nothing_where_the_disks_alone_are_asked_for() -> None:
    there = known(host="builder")
    assert builds.for_builder(replace(there, scope=replace(GIT, aim=Aim.BASELINES))) == Wait()


def test_a_build_host_is_set_aside_though_nobody_measures_yet() -> None:
    failures = (BROKEN,) * GIT.policy.attempts
    there = replace(known(host="builder", hosts=()), transient=replace(TRANSIENT, failures={"builder": failures}))
    assert builds.for_builder(there) == SetAside("builder", BROKEN)
    excluded = replace(TRANSIENT, set_aside={"builder": BROKEN}, idle=("builder",))
    assert step(replace(there, transient=excluded)) == Wait()


def test_the_last_host_that_measures_ends_the_run_though_one_builds() -> None:
    trouble = InfraError("no KVM")
    transient = replace(TRANSIENT, set_aside={"one": trouble, "builder": BROKEN}, idle=("one", "builder"))
    with pytest.raises(InfraError, match="no KVM"):
        step(replace(known(), transient=transient))


def ended(news: Finished | Failed) -> Attempt:
    return Attempt(Submit(BuildRequest(INNER, fakes.GCC), "kernel", host="builder"), 3, news)


def test_the_end_of_a_build_is_on_record_and_no_verdict() -> None:
    def said(news: Finished | Failed, transient: Transient = TRANSIENT) -> Record:
        found = step(replace(known(), transient=replace(transient, arrived=(ended(news),))))
        assert isinstance(found, Record)
        return found

    told = OnHost("builder", BuildEnded(INNER))
    done = said(Finished(3, "builder", None, "now"))
    assert done.facts == (BuildTry(fakes.GCC, INNER.sha, ""), Ended(3, Ending.DONE))
    assert (done.over, done.tell) == (True, (told,))
    fault = said(Finished(3, "builder", NO_BUILD, "now"))
    assert fault.facts == (BuildTry(fakes.GCC, INNER.sha, NO_BUILD.reason), Ended(3, Ending.DONE))
    failed = said(Failed(3, "builder", BROKEN, "now"))
    assert failed.facts[-1] == Ended(3, Ending.FAILED)
    assert failed.over
    assert told in failed.tell
    cancelled = said(
        Failed(3, "builder", AttemptCancelled("", "", Stage.CHECKOUT, "b"), "now"),
        replace(TRANSIENT, cancelled=frozenset({3})),
    )
    assert cancelled.facts == (Ended(3, Ending.CANCELLED),)
    assert cancelled.tell == (told,)


def test_at_the_end_of_a_budget_trials_are_waited_for_and_builds_are_not() -> None:
    done = Done(State.NARROWED, "", out_of_time=True)
    there = known(in_flight=(at_work(3, Work.TRIAL, INNER, "one"), at_work(4, Work.BUILD, INNER, "builder")))
    assert once_all_has_ended(there, done) == Cancel(4)
    cancelled = replace(there, transient=replace(there.transient, cancelled=frozenset({4})))
    assert once_all_has_ended(cancelled, done) == Wait()


def test_people_are_told_which_host_builds_what() -> None:
    submit = builds.for_builder(known(host="builder"))
    assert isinstance(submit, Submit)
    assert submit.host == "builder"
    assert submit.tell == (OnHost("builder", BuildStarted(OLD, "an end, for all hosts")),)
    assert not isinstance(submit.tell[0], Note)


def test_an_answer_waits_for_trials_and_not_for_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a kernel that is being built nothing tells more; without it there is an answer."""
    done = Done(State.NARROWED)
    answer = SearchAnswer(Ends.NARROWED, 5, 0.5, (5, 6), Fit(0, 0.0, 1.0), confirmed=False)
    held = SimpleNamespace(decision=Hold(), case=SimpleNamespace(facts=None, search_range=None))
    monkeypatch.setattr(BisectState, "standing", property(lambda _: SimpleNamespace(decision=answer)))
    monkeypatch.setattr(by_bayes, "_concluded", lambda *_: done)

    def decided(*in_flight: dict[int, Submit]) -> object:
        return by_bayes._decided(known(in_flight=in_flight), cast("Standing", held))

    build, trial = at_work(3, Work.BUILD, INNER, "builder"), at_work(4, Work.TRIAL, INNER, "two")
    assert decided(build) == done
    assert decided(build, trial) == Wait()
    assert decided(trial) == Wait()
