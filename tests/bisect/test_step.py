"""What to do next, from facts that are made by hand: without a repository, a record or a host."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.bisect.builds import checked
from bisector.bisect.failures import once_all_has_ended
from bisector.bisect.state import Aim, BisectState, GitState, Installed, ParentsOf, Recorded, Scope, ShowGit
from bisector.bisect.step import step
from bisector.campaign.instructions import (
    Ask,
    Attempt,
    Cancel,
    Done,
    Instruction,
    Notify,
    Pause,
    Record,
    Submit,
    Transient,
    Wait,
)
from bisector.config import options
from bisector.core.errors import AttemptFailed, BisectorError, InfraError, TrialRefused
from bisector.core.events import TrialJudged
from bisector.core.subject import Relevance, Remade
from bisector.core.trial import Control, Stage, Trial
from bisector.core.verdict import State, Strategy, Terms, Verdict
from bisector.executor.base import BuildRequest, ControlRequest, Failed, Finished, Result
from bisector.git.bisect import CommitToTry, Contradiction, FirstNewCommit
from bisector.git.ranges import Range
from bisector.store.facts import Compilers, Ended, Ending, InfraFault, KernelCheck, NumberedTrial
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.examples import cell, commit

DEFAULTS = options.load(directory=Path("/")).settings
BY_GIT = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, strategy=Strategy.GIT))
OLD, NEW, INNER = commit(0), commit(9), commit(5)
HOST = "box"
TERMS = Terms("broken", "fixed")
SCOPE = Scope(Range(OLD, NEW), BY_GIT, Path("/run"))
ENDS = (fakes.trial(OLD), fakes.trial(NEW, fakes.FAST_IOPS))
TRANSIENT = Transient(idle=(HOST,), answers={Installed(): (fakes.GCC,)})
FACTS = replace(fakes.trial(INNER), stage=Stage.BOOT, runs=())
LOST = AttemptFailed("the network went away", "", Stage.BOOT, HOST, FACTS)


def on_record(*trials: Trial, scope: Scope = SCOPE) -> Recorded:
    numbered = tuple(enumerate(trials, 1))
    return Recorded(scope, numbered, next_n=len(trials) + 1, compilers=(fakes.GCC,), relevance=Relevance(9, 5))


def facts(*trials: Trial, transient: Transient = TRANSIENT, scope: Scope = SCOPE) -> BisectState:
    return BisectState(scope, on_record(*trials, scope=scope), transient)


def told(known: BisectState) -> tuple[BisectState, Instruction]:
    """The facts once everything was told that there is to tell, and the instruction that comes then."""
    while isinstance(said := step(known), Notify | Pause):
        keys = said.keys if isinstance(said, Notify) else (said.key,)
        known = replace(known, transient=replace(known.transient, notified=known.transient.notified | {*keys}))
    return known, said


def waited_s(known: BisectState) -> float:
    """The pause that comes before everything else."""
    said = step(known)
    assert isinstance(said, Pause)
    return said.wait_s


def then(known: BisectState) -> Instruction:
    return told(known)[1]


def submitted(known: BisectState) -> Submit:
    said = then(known)
    assert isinstance(said, Submit)
    return said


def finished(submit: Submit, result: Result, id_: int = 1) -> Attempt:
    return Attempt(submit, id_, Finished(id_, HOST, result, "now"))


def failed(submit: Submit, error: BisectorError, id_: int = 1) -> Attempt:
    return Attempt(submit, id_, Failed(id_, HOST, error, "now"))


def after(known: BisectState, attempts: Sequence[Attempt]) -> BisectState:
    """The facts once the ends of these attempts, all of one matter, are on record."""
    known, _ = told(known)
    return replace(known, transient=replace(known.transient, tasks={attempts[0].submit.task: tuple(attempts)}))


def arrived(known: BisectState, *before: Attempt, now: Attempt) -> Record:
    known = after(known, before) if before else told(known)[0]
    said = step(replace(known, transient=replace(known.transient, arrived=(now,))))
    assert isinstance(said, Record)
    assert said.settles == now
    return said


def with_git(
    known: BisectState, says: CommitToTry | FirstNewCommit | Contradiction, *verdicts: tuple[str, Verdict]
) -> BisectState:
    state = GitState(ShowGit(TERMS, (), verdicts, proposes=True), says)
    return replace(known, git=state)


def test_what_is_not_known_is_asked_for() -> None:
    assert step(facts(transient=Transient(idle=(HOST,)))) == Ask(Installed())


def test_the_same_facts_have_the_same_answer() -> None:
    assert step(facts(*ENDS)) == step(facts(*ENDS))


@pytest.mark.parametrize(
    "in_flight",
    [{}, {7: Submit(BuildRequest(INNER, fakes.GCC), "build", host=HOST)}],
    ids=["no host", "something in flight"],
)
def test_there_is_a_time_to_wait(in_flight: dict[int, Submit]) -> None:
    assert step(facts(transient=replace(TRANSIENT, idle=(), in_flight=in_flight))) == Wait()


def test_the_only_compiler_is_put_on_record() -> None:
    known = BisectState(SCOPE, replace(on_record(), compilers=()), TRANSIENT)
    assert then(known) == Record((Compilers((fakes.GCC,)),))


def test_of_two_compilers_one_is_tried() -> None:
    two = Transient(idle=(HOST,), answers={Installed(): (fakes.GCC, fakes.OLD_GCC)})
    assert submitted(BisectState(SCOPE, replace(on_record(), compilers=()), two)).request == BuildRequest(
        OLD, fakes.GCC
    )


def test_the_ends_come_first_and_are_whole() -> None:
    first, second = submitted(facts()), submitted(facts(ENDS[0]))
    assert [first.request.commit, second.request.commit] == [OLD, NEW]
    assert [isinstance(one.request, TrialRequest) and one.request.n for one in (first, second)] == [1, 2]
    assert [one.may_stop_early for one in (first, second)] == [False, False]


def test_a_trial_is_on_record_with_the_end_of_its_submission_and_told_then() -> None:
    one = finished(submitted(facts()), ENDS[0], 5)
    record = arrived(facts(), now=one)
    assert record.facts == (NumberedTrial(1, ENDS[0]), Ended(5, Ending.DONE))
    assert record.over
    tell = step(facts(ENDS[0]))
    assert isinstance(tell, Notify)
    (event,) = tell.events
    assert isinstance(event, TrialJudged)
    assert (event.n, event.verdict) == (1, Verdict.MEASURED)


def test_the_first_end_is_told_again_when_there_is_a_line() -> None:
    known, _ = told(facts(ENDS[0]))
    tell = step(BisectState(SCOPE, on_record(*ENDS), known.transient))
    assert isinstance(tell, Notify)
    assert [(e.n, e.verdict) for e in tell.events if isinstance(e, TrialJudged)] == [(2, Verdict.NEW), (1, Verdict.OLD)]


def test_trouble_with_an_end_is_waited_out_and_then_given_up() -> None:
    attempts = [failed(submitted(facts()), LOST)]
    assert [type(one) for one in arrived(facts(), now=attempts[0]).facts] == [InfraFault, Ended]
    waits_s = []
    for _ in range(3):
        waits_s.append(waited_s(after(facts(), attempts)))
        attempts.append(failed(submitted(after(facts(), attempts)), LOST, len(attempts) + 1))
    assert waits_s == [5.0, 60.0, 300.0]
    with pytest.raises(AttemptFailed, match="network went away") as caught:
        then(after(facts(), attempts))
    assert caught.value.skippable == ""


def test_what_is_no_trouble_that_passes_is_raised_at_once() -> None:
    with pytest.raises(InfraError, match="the host was busy"):
        then(after(facts(), [failed(submitted(facts()), InfraError("the host was busy"))]))


# Between the ends


def proposing() -> BisectState:
    """git proposes a commit in the middle."""
    return with_git(facts(*ENDS), CommitToTry(INNER, 8, 3, is_merge_base=False))


def test_git_is_shown_the_verdicts_and_then_followed() -> None:
    assert then(facts(*ENDS)) == Ask(ShowGit(TERMS, (), (), proposes=True))
    submit = submitted(proposing())
    assert (submit.request.commit, submit.may_stop_early) == (INNER, True)
    shown = then(with_git(facts(*ENDS, fakes.trial(INNER)), CommitToTry(INNER, 8, 3, is_merge_base=False)))
    assert shown == Ask(ShowGit(TERMS, (), ((INNER.sha, Verdict.OLD),), proposes=True))


def test_an_answer_of_gits_is_the_end() -> None:
    known = with_git(facts(*ENDS, fakes.trial(INNER, fakes.FAST_IOPS)), FirstNewCommit(INNER), (INNER.sha, Verdict.NEW))
    assert then(known) == Ask(ParentsOf((INNER.sha,)))


def test_a_contradiction_stops_and_names_the_commit_to_do_without() -> None:
    known = with_git(facts(*ENDS), Contradiction(INNER.sha, Verdict.NEW, OLD.sha))
    with pytest.raises(InfraError, match="contradict each other") as caught:
        then(known)
    assert caught.value.skippable == INNER.sha


def test_a_sound_end_is_asked_after_two_attempts_and_before_the_third_is_believed() -> None:
    known = proposing()
    first = failed(submitted(known), LOST)
    assert waited_s(after(known, [first])) == 5.0
    second = submitted(after(known, [first]))
    attempts = [first, failed(second, LOST, 2)]
    asked = submitted(after(known, attempts))
    assert asked.request == ControlRequest(NEW, (fakes.GCC,), Stage.BOOT)
    answer = finished(asked, None, 3)
    control = Control("now", HOST, NEW.sha, Stage.BOOT, ())
    record = arrived(known, *attempts, now=answer)
    assert (record.facts, record.over) == ((control, Ended(3, Ending.DONE)), False)
    known = replace(known, recorded=replace(known.recorded, controls=(control,)))
    third = step(after(known, [*attempts, answer]))
    assert isinstance(third, Submit)
    assert third.request.commit == INNER
    row, blamed, ended = arrived(known, *attempts, answer, now=failed(third, LOST, 4)).facts
    assert isinstance(row, InfraFault)
    assert isinstance(blamed, NumberedTrial)
    assert (blamed.n, blamed.vouched_by, ended) == (3, 1, Ended(4, Ending.FAILED))
    assert blamed.trial.fault is not None
    assert blamed.trial.fault.sentence == "never reached SSH: the network went away"


def test_input_that_a_commit_finds_at_fault_is_asked_about_at_once() -> None:
    refused = TrialRefused("the root disk is full", "", replace(fakes.trial(INNER), stage=Stage.WORKLOAD, runs=()))
    asked = submitted(after(proposing(), [failed(submitted(proposing()), refused)]))
    assert asked.request == ControlRequest(NEW, (fakes.GCC,), Stage.WORKLOAD)


def test_a_fault_of_the_end_that_can_be_chance_is_seen_twice() -> None:
    known = facts(*ENDS, *(fakes.trial(commit(n), fault=fakes.PANIC) for n in (3, 3, 4, 4, 5, 5)))
    due = submitted(known)
    assert (due.request, due.about) == (ControlRequest(NEW, (fakes.GCC,), Stage.BOOT), (3, 4, 5, 6, 7, 8))
    once = finished(due, fakes.PANIC)
    assert arrived(known, now=once).facts == (Ended(1, Ending.DONE),)
    twice = finished(submitted(after(known, [once])), fakes.PANIC, 2)
    control, _ = arrived(known, once, now=twice).facts
    assert isinstance(control, Control)
    assert control.failed
    with pytest.raises(InfraError, match="6 faults before it may well be this host's"):
        then(after(known, [once, twice]))
    assert arrived(known, once, now=finished(twice.submit, None, 2)).over


def test_the_ends_can_be_all_that_is_asked_for() -> None:
    said = then(facts(*ENDS, scope=replace(SCOPE, aim=Aim.ENDS)))
    assert isinstance(said, Done)
    assert said.state is State.STOPPED


def test_what_is_in_flight_is_broken_off_by_an_answer_and_waited_for_at_the_end_of_the_budget() -> None:
    """No other trial is begun then, and what is under way still tells something."""
    under_way = Submit(TrialRequest(3, cell(NEW), {}), "trial")
    known = facts(*ENDS, transient=replace(TRANSIENT, in_flight={7: under_way}))
    found, late = (Done(State.FOUND, "it is", (NEW,)), Done(State.NARROWED, "over", out_of_time=True))
    assert once_all_has_ended(known, found) == Cancel(7)
    cancelled = replace(known, transient=replace(known.transient, cancelled=frozenset({7})))
    assert once_all_has_ended(cancelled, found) == Wait()
    assert once_all_has_ended(known, late) == Wait()
    assert [once_all_has_ended(facts(*ENDS), one) for one in (found, late)] == [found, late]


OTHER_KERNEL = "e" * 64


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
    news = Finished(3, HOST, Remade(contents, by_ccache), "now")
    record = checked(facts(replace(made, kernel=kernel)), Attempt(Submit(request, "matter"), 3, news), kernel, news)
    found = [one.why_not for one in record.facts if isinstance(one, KernelCheck)]
    assert found == ([] if why_not is None else [why_not])
