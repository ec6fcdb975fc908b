"""What to do next: one pure function of the facts, of what is in flight, and of the hosts that are idle.

It is asked after everything that was done. Nothing that it decides is kept anywhere: a process that begins with the
same record comes to the same.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from bisector.analysis.judgement import Measured, after_a_row, before_an_answer, judged_run
from bisector.analysis.tail import thin_tail
from bisector.bisect import baselines
from bisector.bisect.budget import in_time
from bisector.bisect.ends import measure_both, repeat
from bisector.bisect.facts import Aim, Facts, Unanswered, once
from bisector.bisect.failures import (
    after_control,
    after_failure,
    ask_control,
    blamed,
    control_recorded,
    fault_row,
)
from bisector.bisect.fills import both_ways
from bisector.bisect.instructions import (
    Ask,
    Attempt,
    Done,
    Installed,
    Instruction,
    Record,
    Submit,
    Tell,
    Wait,
    WhatMatters,
)
from bisector.bisect.stop_rule import why_whole
from bisector.bisect.strategies import by_bayes, by_git
from bisector.core.errors import AttemptFailed, BisectorError, EndsDoNotReproduce
from bisector.core.events import Note, TrialJudged
from bisector.core.subject import Commit, Compiler
from bisector.core.trial import Fault, Trial
from bisector.core.verdict import State, Strategy, Verdict
from bisector.executor.base import BuildRequest, ControlRequest, Failed, Finished
from bisector.kernel.toolchain import check_unchanged
from bisector.store.facts import BuildTry, Compilers, Ended, Ending, Fact, NumberedTrial
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
            or in_time(facts, next(_begun(facts), None) or _AIMS[facts.task.aim](facts))
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
                yield _build_recorded(one, request, news)
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
    if not isinstance(request, TrialRequest) or _is_searched(facts, request):
        return after_failure(facts, attempts, error)
    try:
        return baselines.in_time(facts, request.cell.setup, after_failure(facts, attempts, error))
    except BisectorError as raised:
        return baselines.given_up(facts, request.cell.setup, raised)


# What to come to


def _answer(facts: Facts) -> Instruction:
    return _prepared(facts) or both_ways(facts) or _control_after_a_row(facts) or _searched(facts)


def _both_ends(facts: Facts) -> Instruction:
    message = "both ends are measured; the search is still to be done"
    return _prepared(facts) or Done(State.STOPPED, (), (), message)


def _baselines(facts: Facts) -> Instruction:
    return baselines.measure(facts) or Done(State.STOPPED, (), (), "the disks alone are measured")


def _prepared(facts: Facts) -> Instruction | None:
    first = _say_what_is_whole(facts) or _settle_compilers(facts)
    return first or _say_what_is_thin(facts) or measure_both(facts) or repeat(facts) or _relevance(facts)


def _searched(facts: Facts) -> Instruction:
    found = _STRATEGIES[facts.task.settings.bisect.strategy](facts)
    if not isinstance(found, Done):
        return found
    # The disks last, so that nothing that fails or ends there can cost an answer.
    wanted = facts.task.settings.bisect.baselines
    return _control_before_an_answer(facts) or (baselines.measure(facts) if wanted else None) or found


# What comes before the search: the compilers, both ends, and which commits can matter between them


def _settle_compilers(facts: Facts) -> Submit | Record | None:
    """The compilers that the settings name, or the first that builds both ends; None when they are on record.

    One makes all kernels of a range, where one builds both ends: another compiler makes other code of the same source,
    and the difference could be taken for what is looked for. So it is settled once, before anything is measured, and
    recorded. A resumed run goes on with the same, or says that it has changed.

    Raises :class:`EndsDoNotReproduce` when no compiler builds both ends.
    """
    found = facts.answer(Installed())
    if facts.recorded.compilers:
        check_unchanged(facts.recorded.compilers, found)
        return None
    if facts.task.settings.kernel.compilers:
        return Record((Compilers(found),))
    return next_build(found, facts.task.ends, facts.recorded.build_tries)


def next_build(candidates: Sequence[Compiler], ends: Sequence[Commit], tries: Iterable[BuildTry]) -> Submit | Record:
    """Try or take the first candidate, in their order, that builds all ends; a single one needs no trying.

    A failure at one end settles a candidate. What was tried of a compiler that has changed since counts for nothing.
    """
    if len(candidates) == 1:
        return Record((Compilers(tuple(candidates)),))
    known = {(one.compiler, one.sha): one for one in tries}
    failures = []
    for compiler in candidates:
        for end in ends:
            one = known.get((compiler, end.sha))
            if one is None:
                return _try_build(compiler, end)
            if one.reason:
                failures.append(one)
                break
        else:
            return Record((Compilers((compiler,)),))
    raise _none_builds(failures)


def _try_build(compiler: Compiler, commit: Commit) -> Submit:
    note = Note(f"does {compiler.command} build {commit.short}? ({compiler.identity})")
    return Submit(BuildRequest(commit, compiler), f"build {compiler.command} {commit.sha}", tell=(note,))


def _build_recorded(attempt: Attempt, request: BuildRequest, news: Finished) -> Record:
    """A build that was tried, for the record."""
    commit, compiler = request.commit, request.compiler
    fault = news.result if isinstance(news.result, Fault) else None
    one = BuildTry(compiler, commit.sha, fault.reason if fault else "")
    told = (Note(f"{compiler.command} does not build {commit.short}: {fault.reason}"),) if fault else ()
    return Record((one, Ended(attempt.id, Ending.DONE)), attempt, over=True, tell=told)


def _none_builds(failures: Iterable[BuildTry]) -> EndsDoNotReproduce:
    said = "; ".join(f"{one.compiler.command} fails at {one.sha[:12]}: {one.reason}" for one in failures)
    return EndsDoNotReproduce(
        f"no compiler of this host builds both ends: {said}",
        "install another compiler (apt-cache search '^gcc-[0-9]'), choose other ends,"
        " or let several share the range: --compiler gcc --compiler gcc-11",
    )


def _say_what_is_whole(facts: Facts) -> Tell | None:
    """Tell once why no run can be stopped early, where that is so."""
    why = why_whole(facts.judging.objective)
    return once(facts, "whole runs", Note(why)) if why else None


def _say_what_is_thin(facts: Facts) -> Tell | None:
    """Tell once that a percentile decides of which the first runs have too few I/Os."""
    runs = [judged_run(trial) for _, trial in facts.judging.trials if trial.fault is None and trial.runs]
    said = thin_tail(facts.judging.objective, runs)
    return once(facts, "thin tail", Note(said)) if said else None


def _relevance(facts: Facts) -> Record | Tell | None:
    """Record and tell once which commits can matter, which the ends' builds tell."""
    if facts.recorded.relevance is not None:
        return once(facts, "relevance", Note(facts.recorded.relevance.sentence))
    old, new = (facts.judging.settlement(end.sha) for end in facts.task.ends)
    if not (isinstance(old, Measured) and isinstance(new, Measured) and old.trial.kernel and new.trial.kernel):
        return None
    mattering = facts.answer(WhatMatters(old.trial.kernel, new.trial.kernel))
    return Record((mattering,)) if mattering is not None else None


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
