"""What to do next, from facts that are made by hand: without a repository, a record or a host."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bisector.bisect import failures
from bisector.bisect.failures import cancel_rest_before_done, checked
from bisector.bisect.state import Aim, BisectState, GitState, Installed, KeptKernels, Recorded, Scope, ShowGit
from bisector.bisect.step import step
from bisector.campaign.instructions import (
    Ask,
    Attempt,
    Cancel,
    Crew,
    Done,
    ExcludeHost,
    Instruction,
    Notify,
    Record,
    Submit,
    Transient,
    Wait,
)
from bisector.core.errors import InfraError
from bisector.core.events import BuildEnded, BuildStarted, OnHost, TrialJudged
from bisector.core.subject import Commit, RebuildCheck, Relevance
from bisector.core.trial import AttemptCancelled, AttemptFailed, Fault, FaultKind, Stage, Trial
from bisector.core.verdict import SideWords, State, Verdict
from bisector.executor.base import BuildRequest, Failed, Finished
from bisector.git.bisect import CommitToTry, Contradiction, FirstNewCommit
from bisector.git.ranges import Range
from bisector.store.facts import BuildTry, Ended, Ending, KernelCheck, NumberedTrial, Work
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.lab import BY_GIT
from tests.examples import cell, commit

OLD, NEW, INNER = commit(0), commit(9), commit(5)
HOST = "box"
TERMS = SideWords("broken", "fixed")
SCOPE = Scope(Range(OLD, NEW), BY_GIT, Path("/run"))
ENDS = (fakes.trial(OLD), fakes.trial(NEW, fakes.FAST_IOPS))
TRANSIENT = Transient(idle=(HOST,), answers={Installed(): (fakes.GCC,)})
OTHER_KERNEL = "e" * 64


def on_record(*trials: Trial, scope: Scope = SCOPE) -> Recorded:
    numbered = tuple(enumerate(trials, 1))
    return Recorded(scope, numbered, next_n=len(trials) + 1, compilers=(fakes.GCC,), relevance=Relevance(9, 5))


def facts(*trials: Trial, transient: Transient = TRANSIENT, scope: Scope = SCOPE) -> BisectState:
    return BisectState(scope, on_record(*trials, scope=scope), transient)


def then(known: BisectState) -> Instruction:
    """The instruction that comes once everything was told that there is to tell."""
    while isinstance(said := step(known), Notify):
        told = known.transient.notified | {*said.keys}
        known = replace(known, transient=replace(known.transient, notified=told))
    return said


def with_git(
    known: BisectState, says: CommitToTry | FirstNewCommit | Contradiction, *verdicts: tuple[str, Verdict]
) -> BisectState:
    state = GitState(ShowGit(TERMS, (), verdicts, proposes=True), says)
    return replace(known, git=state)


def test_what_is_not_known_is_asked_for() -> None:
    assert step(facts(transient=Transient(idle=(HOST,)))) == Ask(Installed())


@pytest.mark.parametrize(
    "in_flight",
    [{}, {7: Submit(BuildRequest(INNER, fakes.GCC), "build", host=HOST)}],
    ids=["no host", "something in flight"],
)
def test_there_is_a_time_to_wait(in_flight: dict[int, Submit]) -> None:
    assert step(facts(transient=replace(TRANSIENT, idle=(), in_flight=in_flight))) == Wait()


def test_a_trial_is_on_record_with_the_end_of_its_submission_and_told_then() -> None:
    submit = then(facts())
    assert isinstance(submit, Submit)
    attempt = Attempt(submit, Finished(5, HOST, ENDS[0], "now"))
    record = step(replace(facts(), transient=replace(TRANSIENT, arrived=(attempt,))))
    assert isinstance(record, Record)
    assert record.facts == (NumberedTrial(1, ENDS[0]), Ended(5, Ending.DONE))
    assert (record.settles, record.over) == (attempt, True)
    tell = step(facts(ENDS[0]))
    assert isinstance(tell, Notify)
    (event,) = tell.events
    assert isinstance(event, TrialJudged)
    assert (event.n, event.verdict) == (1, Verdict.MEASURED)


# Between the ends


def test_a_contradiction_stops_and_names_the_commit_to_do_without() -> None:
    known = with_git(facts(*ENDS), Contradiction(INNER.sha, Verdict.NEW, OLD.sha))
    with pytest.raises(InfraError, match="contradict each other") as caught:
        then(known)
    assert caught.value.skippable == INNER.sha


def test_what_is_in_flight_is_broken_off_by_an_answer_and_waited_for_at_the_end_of_the_budget() -> None:
    """No other trial is begun then, and what is under way still tells something."""
    under_way = Submit(TrialRequest(3, cell(NEW), {}), "trial")
    known = facts(*ENDS, transient=replace(TRANSIENT, in_flight={7: under_way}))
    found, late = (Done(State.FOUND, "it is", (NEW,)), Done(State.NARROWED, "over", out_of_time=True))
    assert cancel_rest_before_done(known, found) == Cancel(7)
    cancelled = replace(known, transient=replace(known.transient, cancelled=frozenset({7})))
    assert cancel_rest_before_done(cancelled, found) == Wait()
    assert cancel_rest_before_done(known, late) == Wait()
    assert [cancel_rest_before_done(facts(*ENDS), one) for one in (found, late)] == [found, late]


@pytest.mark.parametrize(
    ("contents", "by_ccache", "cached", "why_not"),
    [
        (("c5",), True, True, ""),
        ((OTHER_KERNEL, "c5"), True, True, ""),  # this build was wrong once
        ((OTHER_KERNEL, OTHER_KERNEL), True, True, None),
        ((OTHER_KERNEL, OTHER_KERNEL), False, False, None),
        ((OTHER_KERNEL, OTHER_KERNEL), False, True, "without ccache, it may name the directory that it was built in"),
        ((OTHER_KERNEL, "d" * 64), True, False, "each build makes another kernel"),
    ],
)
def test_what_is_told_of_a_kernel_that_was_built_once_more(
    contents: tuple[str, ...], by_ccache: bool, cached: bool, why_not: str | None
) -> None:
    """One that was kept may have been built in another directory."""
    made = fakes.trial(OLD, content="c5")
    assert made.kernel is not None
    kernel = replace(made.kernel, cached=cached)
    request = BuildRequest(OLD, fakes.GCC, measured=kernel)
    news = Finished(3, HOST, RebuildCheck(contents, by_ccache), "now")
    record = checked(facts(replace(made, kernel=kernel)), Attempt(Submit(request, "once more"), news), kernel, news)
    found = [one.why_not for one in record.facts if isinstance(one, KernelCheck)]
    assert found == ([] if why_not is None else [why_not])


# Who builds which kernel ahead


NO_BUILD = Fault(Stage.BUILD, FaultKind.BUILD_ERROR, "dm-cache.c:7: error: expected ';'")
BROKEN = AttemptFailed("no space left on the device", "df", Stage.CHECKOUT, "builder")
CREW = Crew(2, frozenset({"builder"}))
WITH_BUILDER = replace(SCOPE, crew=CREW)
UNBUILT = Transient(answers={Installed(): (fakes.GCC,), KeptKernels((fakes.GCC,)): frozenset()})


def known(*trials: Trial, host: str = "one", hosts: tuple[str, ...] = ("one", "two"), **more: Any) -> BisectState:
    in_flight = {id_: submit for one in more.pop("in_flight", ()) for id_, submit in one.items()}
    record = replace(on_record(*trials, scope=WITH_BUILDER), **more)
    return BisectState(WITH_BUILDER, record, replace(UNBUILT, in_flight=in_flight), hosts=hosts, host=host)


def at_work(id_: int, work: Work, commit: Commit, host: str) -> dict[int, Submit]:
    request = TrialRequest(1, cell(commit), {}) if work is Work.TRIAL else BuildRequest(commit, fakes.GCC)
    return {id_: Submit(request, f"{work} {commit.sha}", host=host)}


def built(found: object) -> Commit:
    assert isinstance(found, Submit)
    assert isinstance(found.request, BuildRequest)
    assert found.request.compiler == fakes.GCC
    return found.request.commit


def test_an_end_is_measured_where_something_failed_last() -> None:
    failed = replace(UNBUILT, failures={"one": (BROKEN,)})
    assert failures.before_end(replace(known(), transient=failed), OLD) is None
    other = replace(UNBUILT, failures={"two": (BROKEN,)})
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
    assert failures.next_of_builder(replace(there, scope=replace(WITH_BUILDER, aim=Aim.BASELINES))) == Wait()


def test_a_build_host_is_excluded_though_nobody_measures_yet() -> None:
    broken = (BROKEN,) * WITH_BUILDER.settings.retries.attempts
    there = replace(known(host="builder", hosts=()), transient=replace(UNBUILT, failures={"builder": broken}))
    assert failures.next_of_builder(there) == ExcludeHost("builder", BROKEN)
    excluded = replace(UNBUILT, excluded={"builder": BROKEN}, idle=("builder",))
    assert step(replace(there, transient=excluded)) == Wait()


def test_the_last_host_that_measures_ends_the_run_though_one_builds() -> None:
    trouble = InfraError("no KVM")
    transient = replace(UNBUILT, excluded={"one": trouble, "builder": BROKEN}, idle=("one", "builder"))
    with pytest.raises(InfraError, match="no KVM"):
        step(replace(known(), transient=transient))


def ended(news: Finished | Failed) -> Attempt:
    return Attempt(Submit(BuildRequest(INNER, fakes.GCC), "kernel", host="builder"), news)


def test_the_end_of_a_build_is_on_record_and_no_verdict() -> None:
    def said(news: Finished | Failed, transient: Transient = UNBUILT) -> Record:
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
        replace(UNBUILT, cancelled=frozenset({3})),
    )
    assert cancelled.facts == (Ended(3, Ending.CANCELLED),)
    assert cancelled.tell == (told,)


def test_at_the_end_of_a_budget_trials_are_waited_for_and_builds_are_not() -> None:
    done = Done(State.NARROWED, "", out_of_time=True)
    there = known(in_flight=(at_work(3, Work.TRIAL, INNER, "one"), at_work(4, Work.BUILD, INNER, "builder")))
    assert cancel_rest_before_done(there, done) == Cancel(4)
    cancelled = replace(there, transient=replace(there.transient, cancelled=frozenset({4})))
    assert cancel_rest_before_done(cancelled, done) == Wait()
