"""Who builds which kernel ahead: the rules, by facts that are made by hand."""

from dataclasses import replace
from typing import Any

import pytest

from bisector.bisect import failures
from bisector.bisect.failures import cancel_rest_before_done
from bisector.bisect.state import Aim, BisectState, Installed, KeptKernels
from bisector.bisect.step import step
from bisector.campaign.instructions import Attempt, Cancel, Crew, Done, ExcludeHost, Record, Submit, Transient, Wait
from bisector.core.errors import InfraError
from bisector.core.events import BuildEnded, BuildStarted, OnHost
from bisector.core.subject import Commit
from bisector.core.trial import AttemptCancelled, AttemptFailed, Fault, FaultKind, Stage, Trial
from bisector.core.verdict import State
from bisector.executor.base import BuildRequest, Failed, Finished
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
    assert failures.before_end(replace(known(), transient=failed), OLD) is None
    other = replace(TRANSIENT, failures={"two": (BROKEN,)})
    assert built(failures.before_end(replace(known(), transient=other), OLD)) == OLD


def test_what_was_cancelled_is_not_waited_for() -> None:
    there = known(in_flight=(at_work(3, Work.BUILD, OLD, "two"),))
    gone = replace(there, transient=replace(there.transient, cancelled=frozenset({3})))
    found = failures.before_end(gone, OLD)
    assert built(found) == OLD
    assert isinstance(found, Submit)
    assert found.tell == (OnHost("one", BuildStarted(OLD, "an end, for all hosts")),)


def test_a_build_host_builds_nothing_where_the_disks_alone_are_asked_for() -> None:
    there = known(host="builder")
    assert failures.next_of_builder(replace(there, scope=replace(GIT, aim=Aim.BASELINES))) == Wait()


def test_a_build_host_is_excluded_though_nobody_measures_yet() -> None:
    broken = (BROKEN,) * GIT.settings.retries.attempts
    there = replace(known(host="builder", hosts=()), transient=replace(TRANSIENT, failures={"builder": broken}))
    assert failures.next_of_builder(there) == ExcludeHost("builder", BROKEN)
    excluded = replace(TRANSIENT, excluded={"builder": BROKEN}, idle=("builder",))
    assert step(replace(there, transient=excluded)) == Wait()


def test_the_last_host_that_measures_ends_the_run_though_one_builds() -> None:
    trouble = InfraError("no KVM")
    transient = replace(TRANSIENT, excluded={"one": trouble, "builder": BROKEN}, idle=("one", "builder"))
    with pytest.raises(InfraError, match="no KVM"):
        step(replace(known(), transient=transient))


def ended(news: Finished | Failed) -> Attempt:
    return Attempt(Submit(BuildRequest(INNER, fakes.GCC), "kernel", host="builder"), news)


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
    assert cancel_rest_before_done(there, done) == Cancel(4)
    cancelled = replace(there, transient=replace(there.transient, cancelled=frozenset({4})))
    assert cancel_rest_before_done(cancelled, done) == Wait()
