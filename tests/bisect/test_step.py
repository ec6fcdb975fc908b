"""What to do next, from facts that are made by hand: without a repository, a record or a host."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.bisect.failures import cancel_rest_before_done, checked
from bisector.bisect.state import BisectState, GitState, Installed, Recorded, Scope, ShowGit
from bisector.bisect.step import step
from bisector.campaign.instructions import (
    Ask,
    Attempt,
    Cancel,
    Done,
    Instruction,
    Notify,
    Record,
    Submit,
    Transient,
    Wait,
)
from bisector.config import options
from bisector.core.errors import InfraError
from bisector.core.events import TrialJudged
from bisector.core.subject import RebuildCheck, Relevance
from bisector.core.trial import Trial
from bisector.core.verdict import SideWords, State, Strategy, Verdict
from bisector.executor.base import BuildRequest, Finished
from bisector.git.bisect import CommitToTry, Contradiction, FirstNewCommit
from bisector.git.ranges import Range
from bisector.store.facts import Ended, Ending, KernelCheck, NumberedTrial
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.examples import cell, commit

DEFAULTS = options.load(directory=Path("/")).settings
BY_GIT = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, strategy=Strategy.GIT))
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
