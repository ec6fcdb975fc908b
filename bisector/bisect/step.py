"""What to do next: one pure function of the facts, of what is in flight, and of the hosts that are idle.

It is asked after everything that was done. Nothing that it decides is kept anywhere: a process that begins with the
same record comes to the same. What each idle host is to do is asked for one host after the other: both ends first,
which give it a line of its own, then what tells most beside all that is in flight.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from bisector.analysis.judgement import Measured, after_a_row, before_an_answer, judged_run
from bisector.analysis.quality import thin_tail
from bisector.analysis.verdicts import changes_of_hosts
from bisector.bisect import baselines, builds
from bisector.bisect.budget import in_time
from bisector.bisect.by_bayes import by_bayes
from bisector.bisect.by_git import by_git
from bisector.bisect.compilers import build_recorded, settle_compilers
from bisector.bisect.ends import measure_both, repeat
from bisector.bisect.facts import Aim, Facts, Unanswered
from bisector.bisect.failures import (
    after_control,
    after_failure,
    ask_control,
    blamed,
    control_recorded,
    fault_row,
)
from bisector.bisect.fills import both_ways
from bisector.bisect.hosts import check_direction, follow_up, once_all_has_ended, or_set_aside, told_by_host, worn_out
from bisector.bisect.instructions import (
    Ask,
    Attempt,
    Done,
    Instruction,
    Record,
    Submit,
    Tell,
    Wait,
    WhatMatters,
)
from bisector.bisect.once_more import checked, once_more, unlike
from bisector.bisect.stop_rule import why_whole
from bisector.bisect.submission import once
from bisector.core.errors import AttemptCancelled, AttemptFailed, AttemptLost, BisectorError
from bisector.core.events import BuildEnded, Note, OnHost, TrialJudged
from bisector.core.subject import Kernel
from bisector.core.trial import Trial
from bisector.core.verdict import State, Strategy, Verdict
from bisector.executor.base import BuildRequest, ControlRequest, Failed, Finished, of_its_job
from bisector.store.facts import Ended, Ending, Fact, NumberedTrial
from bisector.trial.runner import TrialRequest


def step(facts: Facts, in_flight: Mapping[int, Submit | None], idle: Sequence[str]) -> Instruction:
    """The next instruction; ``in_flight`` are the submissions that have not ended, None for an earlier process's.

    Raises :class:`bisector.core.errors.EndsDoNotReproduce` when there is nothing to bisect, and what an attempt failed
    with when it is given up.
    """
    unused, builders = facts.heard.set_aside, facts.task.crew.builders
    usable = [host for host in idle if host not in unused]
    at_work = (one.host for one in in_flight.values() if one is not None and one.host not in unused)
    hosts = tuple(host for host in dict.fromkeys((*usable, *at_work)) if host not in builders)
    facts = replace(facts, in_flight=in_flight, hosts=hosts)
    try:
        return (
            _lost(facts)
            or next(_adopted(facts), None)
            or next(_arrived(facts), None)
            or _untold(facts)
            or _next_of_all(_next_of_one, [replace(facts, host=host) for host in usable if host not in builders])
            or _next_of_all(builds.for_builder, [replace(facts, host=host) for host in usable if host in builders])
            or _nothing_to_do(facts, idle)
        )
    except Unanswered as missing:
        return Ask(missing.question)


def _next_of_all(of_one: Callable[[Facts], Instruction], hosts: Iterable[Facts]) -> Instruction | None:
    """What one of the idle hosts is to do; None while all of them have to wait."""
    found = map(of_one, hosts)
    return next((one for one in found if not isinstance(one, Wait)), None)


def _next_of_one(facts: Facts) -> Instruction:
    found = worn_out(facts) or next(_begun(facts), None) or _AIMS[facts.task.aim](facts)
    found = in_time(facts, found)
    if isinstance(found, Submit):
        # A host that measures several at a time is not to be given the same twice.
        is_begun = any(one is not None and one.matter == found.matter for one in facts.in_flight.values())
        return Wait() if is_begun else told_by_host(facts, replace(found, host=facts.host))
    return once_all_has_ended(facts, found)


def _nothing_to_do(facts: Facts, idle: Sequence[str]) -> Wait:
    """Wait for what is in flight, or for another host; raises what was raised on the last host where all are set aside.

    A host that is set aside is there and idle, so that no other may ever come.
    """
    idle_and_unused = [host for host in facts.heard.set_aside if host in idle and host not in facts.task.crew.builders]
    if idle_and_unused and not facts.hosts and not facts.in_flight:
        raise facts.heard.set_aside[idle_and_unused[-1]]
    return Wait()


# What has happened comes first: it is put on record, and told


def _lost(facts: Facts) -> Record | None:
    """Submissions of a process that is gone end here: nothing of them is left, and nothing will come of them."""
    arrived = {one.id for one in (*facts.heard.arrived, *facts.heard.adopted)}
    lost = [one for one in facts.recorded.in_flight if one.id not in facts.in_flight and one.id not in arrived]
    notes = (
        Note(f"trial {n}, of {one.submitted.sha[:12]}, was under way when this run was stopped, and is lost")
        for one in lost
        if (n := one.submitted.n) is not None
    )
    return Record(tuple(Ended(one.id, Ending.LOST) for one in lost), tell=tuple(notes)) if lost else None


def _adopted(facts: Facts) -> Iterator[Record]:
    """What came of an earlier process's submission: the trial it was, or nothing, and then it is chosen anew.

    How late a trial comes says nothing of its figures.
    """
    silent = {one.id: one.submitted for one in facts.recorded.silent}
    submitted = silent | {one.id: one.submitted for one in facts.recorded.in_flight}
    for heard in facts.heard.adopted:
        asked = submitted.get(heard.id)
        n, news = (None, heard) if asked is None else (asked.n, of_its_job(heard, asked.n, asked.sha))
        trial = news.result if isinstance(news, Finished) else None
        found: tuple[Fact, ...] = ()
        if isinstance(trial, Trial) and n is not None and trial.setup == facts.task.settings.setup:
            found = (NumberedTrial(n, replace(trial, host=news.host)),)
        if news.id in silent or news.id not in submitted:
            yield Record(found, comes_late=news.id)
        elif found:
            yield Record((*found, Ended(news.id, Ending.DONE)))
        elif isinstance(news, Failed) and isinstance(news.error, AttemptFailed):
            row = fault_row(news.at, submitted[news.id].sha, news.error)
            yield Record((row, Ended(news.id, _ending(news.error))))
        else:
            yield Record((Ended(news.id, Ending.LOST),))


def _arrived(facts: Facts) -> Iterator[Record]:
    """What came of a submission, for the record."""
    for one in facts.heard.arrived:
        attempts = (*facts.heard.matters.get(one.submit.matter, ()), one)
        is_build = _is_build(one.submit) and bool(facts.recorded.compilers)
        match one.submit.request, one.news:
            case _, Failed(error=AttemptCancelled()) if one.id in facts.heard.cancelled:
                tell = (OnHost(one.news.host, BuildEnded(one.submit.request.commit)),) if is_build else ()
                yield Record((Ended(one.id, Ending.CANCELLED),), one, over=True, tell=tell)
            case BuildRequest() as request, _ if is_build:
                yield builds.recorded(one, request)
            case request, Failed(error=error, at=at):
                yield _failure(facts, attempts, error, at)
            case ControlRequest(), Finished():
                yield control_recorded(facts, attempts)
            case BuildRequest(measured=Kernel() as measured), Finished() as news:
                yield checked(facts, one, measured, news)
            case BuildRequest() as request, Finished() as news:
                yield build_recorded(one, request, news)
            case TrialRequest() as request, Finished(result=Trial() as trial) if _is_searched(facts, request):
                trial = replace(trial, host=one.news.host)
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
    ended = Ended(last.id, _ending(error))
    found = blamed(facts.on(last.news.host), attempts)
    if found is None or not isinstance(request, TrialRequest):
        return Record((*row, ended), last)
    trial, control = found
    return Record((*row, NumberedTrial(request.n, trial, control), ended), last, over=True)


def _ending(error: BisectorError) -> Ending:
    return Ending.SILENT if isinstance(error, AttemptLost) else Ending.FAILED


def _is_build(submit: Submit) -> bool:
    """Whether it is a build that leaves a kernel."""
    return isinstance(submit.request, BuildRequest) and submit.request.measured is None


def _is_searched(facts: Facts, request: TrialRequest) -> bool:
    """Whether a trial is on the setup of the search; else it is a baseline."""
    return request.cell.setup == facts.task.settings.setup


def _untold(facts: Facts) -> Tell | None:
    """The trials that people have not been told of; then those of before there was a line between the ends, with it.

    Where the disks alone are asked for, no trial is of interest.
    """
    if facts.task.aim is Aim.BASELINES:
        return None
    judging, told = facts.judging, facts.heard.told
    new: dict[str, TrialJudged] = {}
    again: dict[str, TrialJudged] = {}
    for n, trial, judgement in facts.recorded.judged:
        before, after = f"trial {n} without a line", f"trial {n}"
        key = before if judgement.verdict is Verdict.MEASURED else after
        if key not in told:
            events = again if before in told else new
            events[key] = TrialJudged(
                n, trial, judgement.verdict, judgement.why, judging.terms, judging.objective, judging.direction
            )
    found = new | again
    return Tell(tuple(found.values()), tuple(found)) if found else None


def _begun(facts: Facts) -> Iterator[Instruction]:
    """What follows on this host on the last attempt of a matter that is not over."""
    under_way = {one.matter for one in facts.in_flight.values() if one is not None}
    for matter, attempts in facts.heard.matters.items():
        if matter not in facts.heard.told and matter not in under_way:
            yield from follow_up(facts, attempts, _after)


def _after(facts: Facts, attempts: Sequence[Attempt]) -> Submit | Tell | None:
    last = attempts[-1]
    if isinstance(last.news, Failed):
        return _after_failure(facts, attempts, last.news.error)
    if isinstance(last.submit.request, BuildRequest) and last.submit.request.measured is not None:
        raise unlike(facts, last, last.submit.request.measured, last.news)
    return after_control(facts, attempts) if isinstance(last.submit.request, ControlRequest) else None


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
    first = _prepared(facts) or or_set_aside(facts, both_ways) or or_set_aside(facts, _control_after_a_row)
    return first or _searched(facts)


def _both_ends(facts: Facts) -> Instruction:
    message = "both ends are measured; the search is still to be done"
    return _prepared(facts) or Done(State.STOPPED, (), (), message)


def _baselines(facts: Facts) -> Instruction:
    return baselines.measure(facts) or Done(State.STOPPED, (), (), "the disks alone are measured")


def _prepared(facts: Facts) -> Instruction | None:
    first = _say_what_is_whole(facts) or settle_compilers(facts) or _say_what_is_thin(facts)
    if found := first or _say_what_changed(facts) or or_set_aside(facts, measure_both):
        return found
    check_direction(facts)
    return or_set_aside(facts, repeat) or _relevance(facts)


def _searched(facts: Facts) -> Instruction:
    found = _STRATEGIES[facts.task.settings.bisect.strategy](facts)
    if not isinstance(found, Done) or facts.in_flight:
        return found
    # The disks last, so that nothing that fails or ends there can cost an answer.
    wanted = facts.task.settings.bisect.baselines
    first = _control_before_an_answer(facts)
    if first is None and not isinstance(found := once_more(facts, found), Done):
        return found
    return first or (baselines.measure(facts) if wanted else None) or found


# What comes before the search: the compilers, both ends, and which commits can matter between them


def _say_what_is_whole(facts: Facts) -> Tell | None:
    """Tell once why no run can be stopped early, where that is so."""
    why = why_whole(facts.judging.objective)
    return once(facts, "whole runs", Note(why)) if why else None


def _say_what_is_thin(facts: Facts) -> Tell | None:
    """Tell once that a percentile decides of which the first runs have too few I/Os."""
    runs = [judged_run(trial) for _, trial in facts.judging.trials if trial.fault is None and trial.runs]
    said = thin_tail(facts.judging.objective, runs)
    return once(facts, "thin tail", Note(said)) if said else None


def _say_what_changed(facts: Facts) -> Tell | None:
    """Tell once what of this host has changed, before both ends are measured on it anew."""
    changed = [one for one in changes_of_hosts(facts.judging.trials) if one.host == facts.host]
    measured = facts.here.judging
    if not changed or all(measured.judge(end.sha) is not None for end in facts.task.ends):
        return None
    last, host = changed[-1], facts.host if facts.is_shared else "the host"
    told = f"{host} changed since trial {last.before}: {last.what}; both ends are measured again here"
    return once(facts, f"{host} changed at {last.since}", Note(told))


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


def _control_before_an_answer(facts: Facts) -> Submit | Wait | None:
    """An end is tried on each host that has faults; where that is another one, this one waits."""
    ends = {end.sha for end in facts.task.ends}
    for host in (facts.host, *facts.hosts):
        there = facts.on(host)
        due = before_an_answer(there.judging.trials, ends, facts.recorded.is_skipped)
        if due is not None:
            return ask_control(there, due) if host == facts.host else Wait()
    return None


_STRATEGIES: dict[Strategy, Callable[[Facts], Instruction]] = {Strategy.BAYES: by_bayes, Strategy.GIT: by_git}
_AIMS: dict[Aim, Callable[[Facts], Instruction]] = {
    Aim.ANSWER: _answer,
    Aim.ENDS: _both_ends,
    Aim.BASELINES: _baselines,
}
