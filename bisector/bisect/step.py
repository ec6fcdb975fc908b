"""What to do next: one pure function of the facts, of what is in flight, and of the hosts that are idle.

It is asked after everything that was done. Nothing that it decides is kept anywhere: a process that begins with the
same record comes to the same.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

from bisector.analysis.judgement import after_a_row, before_an_answer
from bisector.bisect import baselines, preparation
from bisector.bisect.facts import Aim, Facts, Unanswered
from bisector.bisect.failures import (
    after_control,
    after_failure,
    ask_control,
    blamed,
    control_recorded,
    fault_row,
)
from bisector.bisect.instructions import Ask, Attempt, Done, Instruction, Record, Submit, Tell, Wait
from bisector.bisect.strategies import by_bayes, by_git
from bisector.core.errors import AttemptFailed, BisectorError
from bisector.core.events import Note, TrialJudged
from bisector.core.trial import Trial
from bisector.core.verdict import State, Strategy, Verdict
from bisector.executor.base import BuildRequest, ControlRequest, Failed, Finished
from bisector.store.facts import Ended, Ending, Fact, NumberedTrial
from bisector.trial.runner import TrialRequest


def step(facts: Facts, in_flight: Collection[int], idle: Sequence[str]) -> Instruction:
    """The next instruction; ``in_flight`` are the numbers of this process's submissions, one at a time.

    Raises :class:`bisector.core.errors.EndsDoNotReproduce` when there is nothing to bisect, and what an attempt failed
    with when it is given up.
    """
    try:
        return (
            _lost(facts, in_flight)
            or next(_arrived(facts), None)
            or _untold(facts)
            or (Wait() if in_flight or not idle else None)
            or next(_begun(facts), None)
            or _AIMS[facts.task.aim](facts)
        )
    except Unanswered as missing:
        return Ask(missing.question)


# What has happened comes first: it is put on record, and told


def _lost(facts: Facts, in_flight: Collection[int]) -> Record | None:
    """Submissions of a process that is gone end here: nothing of them is left, and nothing will come of them."""
    arrived = {one.id for one in facts.heard.arrived}
    lost = [one for one in facts.recorded.in_flight if one.id not in in_flight and one.id not in arrived]
    notes = (
        Note(f"trial {n}, of {one.submitted.sha[:12]}, was under way when this run was stopped, and is lost")
        for one in lost
        if (n := one.submitted.n) is not None
    )
    return Record(tuple(Ended(one.id, Ending.LOST) for one in lost), tell=tuple(notes)) if lost else None


def _arrived(facts: Facts) -> Iterator[Record]:
    """What came of a submission, for the record."""
    for one in facts.heard.arrived:
        attempts = (*facts.heard.matters.get(one.submit.matter, ()), one)
        match one.submit.request, one.news:
            case request, Failed(error=error, at=at):
                yield _failure(facts, attempts, error, at)
            case ControlRequest(), Finished():
                yield control_recorded(facts, attempts)
            case BuildRequest() as request, Finished() as news:
                yield preparation.build_recorded(one, request, news)
            case TrialRequest() as request, Finished(result=Trial() as trial) if _is_searched(facts, request):
                yield Record((NumberedTrial(request.n, trial), Ended(one.id, Ending.DONE)), one, over=True)
            case TrialRequest() as request, Finished(result=Trial() as trial):
                yield baselines.recorded(facts, attempts, request, trial)
            case request, news:
                raise RuntimeError(f"{news} is no answer to {request}")


def _failure(facts: Facts, attempts: Sequence[Attempt], error: BisectorError, at: str) -> Record:
    """An attempt that failed by no fault of its commit; with that of a trial, where a sound end shows it to be one."""
    last = attempts[-1]
    request = last.submit.request
    row: tuple[Fact, ...] = (fault_row(at, request.commit.sha, error),) if isinstance(error, AttemptFailed) else ()
    ended = Ended(last.id, Ending.FAILED)
    found = blamed(facts, attempts)
    if found is None or not isinstance(request, TrialRequest):
        return Record((*row, ended), last)
    trial, control = found
    return Record((*row, NumberedTrial(request.n, trial, control), ended), last, over=True)


def _is_searched(facts: Facts, request: TrialRequest) -> bool:
    """Whether a trial is on the setup of the search; else it is a baseline."""
    return request.cell.setup == facts.task.settings.setup


def _untold(facts: Facts) -> Tell | None:
    """The trials that people have not been told of; then those of before there was a line between the ends, with it.

    Where the disks alone are asked for, no trial is of interest.
    """
    if facts.task.aim is Aim.BASELINES:
        return None
    terms, told = facts.judging.terms, facts.heard.told
    new: dict[str, TrialJudged] = {}
    again: dict[str, TrialJudged] = {}
    for n, trial, judgement in facts.recorded.judged:
        before, after = f"trial {n} without a line", f"trial {n}"
        key = before if judgement.verdict is Verdict.MEASURED else after
        if key not in told:
            events = again if before in told else new
            events[key] = TrialJudged(n, trial, judgement.verdict, judgement.why, terms, facts.judging.objective)
    found = new | again
    return Tell(tuple(found.values()), tuple(found)) if found else None


def _begun(facts: Facts) -> Iterator[Submit | Tell]:
    """What follows on the last attempt of a matter that is not over."""
    for matter, attempts in facts.heard.matters.items():
        last = attempts[-1]
        if matter in facts.heard.told:
            continue
        if isinstance(last.news, Failed):
            yield _after_failure(facts, attempts, last.news.error)
        elif isinstance(last.submit.request, ControlRequest):
            yield after_control(facts, attempts)


def _after_failure(facts: Facts, attempts: Sequence[Attempt], error: BisectorError) -> Submit | Tell:
    request = attempts[-1].submit.request
    try:
        return after_failure(facts, attempts, error)
    except BisectorError as raised:
        if isinstance(request, TrialRequest) and not _is_searched(facts, request):
            return baselines.given_up(facts, request.cell.setup, raised)
        raise


# What to come to


def _answer(facts: Facts) -> Instruction:
    return _prepared(facts) or _control_after_a_row(facts) or _searched(facts)


def _both_ends(facts: Facts) -> Instruction:
    message = "both ends are measured; the search is still to be done"
    return _prepared(facts) or Done(State.STOPPED, (), (), message)


def _baselines(facts: Facts) -> Instruction:
    return baselines.measure(facts) or Done(State.STOPPED, (), (), "the disks alone are measured")


def _prepared(facts: Facts) -> Instruction | None:
    first = preparation.say_what_is_whole(facts) or preparation.settle_compilers(facts)
    return first or preparation.measure_both(facts) or preparation.repeat(facts) or preparation.relevance(facts)


def _searched(facts: Facts) -> Instruction:
    found = _STRATEGIES[facts.task.settings.bisect.strategy](facts)
    if not isinstance(found, Done):
        return found
    # The disks last, so that nothing that fails or ends there can cost an answer.
    wanted = facts.task.settings.bisect.baselines
    return _control_before_an_answer(facts) or (baselines.measure(facts) if wanted else None) or found


# What was asked of a sound end is not asked again


def _control_after_a_row(facts: Facts) -> Submit | None:
    ends = {end.sha for end in facts.task.ends}
    due = after_a_row(facts.judging.trials, ends, facts.recorded.is_skipped, facts.task.policy.like_faults)
    return ask_control(facts, due) if due is not None else None


def _control_before_an_answer(facts: Facts) -> Submit | None:
    ends = {end.sha for end in facts.task.ends}
    due = before_an_answer(facts.judging.trials, ends, facts.recorded.is_skipped)
    return ask_control(facts, due) if due is not None else None


_STRATEGIES: dict[Strategy, Callable[[Facts], Instruction]] = {Strategy.BAYES: by_bayes, Strategy.GIT: by_git}
_AIMS: dict[Aim, Callable[[Facts], Instruction]] = {
    Aim.ANSWER: _answer,
    Aim.ENDS: _both_ends,
    Aim.BASELINES: _baselines,
}
