"""What to do next: one pure function of the facts, of what is in flight, and of the hosts that are idle.

It is asked after everything that was done. Nothing that it decides is kept anywhere: a process that begins with the
same record comes to the same. What each idle host is to do is asked for one host after the other: both ends first,
which give it a line of its own, then what tells most beside all that is in flight.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from bisector.analysis.judgement import SoundMeasurement, after_a_row, before_an_answer, judged_run
from bisector.analysis.quality import thin_tail
from bisector.analysis.verdicts import changes_of_hosts
from bisector.bisect import baselines, builds
from bisector.bisect.builds import settle_compilers
from bisector.bisect.by_bayes import by_bayes
from bisector.bisect.by_git import by_git
from bisector.bisect.ends import both_ways, measure_both, repeat
from bisector.bisect.failures import (
    after_control,
    after_failure,
    ask_control,
    blamed,
    control_recorded,
)
from bisector.bisect.hosts import check_direction, follow_up, once_all_has_ended, or_set_aside, worn_out
from bisector.bisect.questions import WhatMatters
from bisector.bisect.recheck import checked, once_more, unlike
from bisector.bisect.state import Aim, BisectState, Unanswered
from bisector.bisect.stop_rule import why_whole
from bisector.bisect.trials import in_time, once
from bisector.campaign.instructions import (
    Ask,
    Attempt,
    Done,
    Instruction,
    Notify,
    Record,
    Submit,
    Wait,
    failed,
    measured,
)
from bisector.core.errors import AttemptCancelled, BisectorError
from bisector.core.events import BuildEnded, Note, OnHost, TrialJudged
from bisector.core.subject import Kernel
from bisector.core.trial import Trial
from bisector.core.verdict import State, Strategy, Verdict
from bisector.executor.base import BuildRequest, ControlRequest, Failed, Finished
from bisector.store.facts import Ended, Ending, NumberedTrial
from bisector.trial.runner import TrialRequest


def step(facts: BisectState) -> Instruction:
    """The next instruction.

    Raises :class:`bisector.core.errors.EndsDoNotReproduce` when there is nothing to bisect, and what an attempt failed
    with when it is given up.
    """
    now, builders = facts.transient, facts.scope.crew.builders
    usable = [host for host in now.idle if host not in now.set_aside]
    at_work = (one.host for one in now.in_flight.values())
    there = (host for host in (*usable, *sorted(now.paused), *at_work) if host not in now.set_aside)
    facts = replace(facts, hosts=tuple(host for host in dict.fromkeys(there) if host not in builders))
    try:
        return (
            next(_arrived(facts), None)
            or _unreported(facts)
            or _next_of_all(_next_of_one, [replace(facts, host=host) for host in usable if host not in builders])
            or _next_of_all(builds.for_builder, [replace(facts, host=host) for host in usable if host in builders])
            or _nothing_to_do(facts)
        )
    except Unanswered as missing:
        return Ask(missing.question)


def _next_of_all(of_one: Callable[[BisectState], Instruction], hosts: Iterable[BisectState]) -> Instruction | None:
    """What one of the idle hosts is to do; None while all of them have to wait."""
    found = map(of_one, hosts)
    return next((one for one in found if not isinstance(one, Wait)), None)


def _next_of_one(facts: BisectState) -> Instruction:
    found = worn_out(facts) or next(_begun(facts), None) or _AIMS[facts.scope.aim](facts)
    found = in_time(facts, found)
    if isinstance(found, Submit):
        # A host that measures several at a time is not to be given the same twice.
        is_begun = any(one.task == found.task for one in facts.in_flight.values())
        return Wait() if is_begun else replace(found, host=facts.host)
    return once_all_has_ended(facts, found)


def _nothing_to_do(facts: BisectState) -> Wait:
    """Wait for what is in flight, or for another host; raises what was raised on the last host where all are set aside.

    A host that is set aside is there and idle, so that no other may ever come.
    """
    excluded, builders = facts.transient.set_aside, facts.scope.crew.builders
    there = [host for host in excluded if host in facts.transient.idle and host not in builders]
    if there and not facts.hosts and not facts.in_flight:
        raise excluded[there[-1]]
    return Wait()


# What has happened comes first: it is put on record, and told


def _arrived(facts: BisectState) -> Iterator[Record]:
    """What came of a submission, for the record."""
    for one in facts.transient.arrived:
        attempts = (*facts.transient.tasks.get(one.submit.task, ()), one)
        is_build = _is_build(one.submit) and bool(facts.recorded.compilers)
        match one.submit.request, one.news:
            case _, Failed(error=AttemptCancelled()) if one.id in facts.transient.cancelled:
                tell = (OnHost(one.news.host, BuildEnded(one.submit.request.commit)),) if is_build else ()
                yield Record((Ended(one.id, Ending.CANCELLED),), one, over=True, tell=tell)
            case BuildRequest() as request, _ if is_build:
                yield builds.recorded(one, request)
            case _, Failed(error=error):
                yield _failure(facts, attempts, error)
            case ControlRequest(), Finished():
                yield control_recorded(facts, attempts)
            case BuildRequest(measured=Kernel() as kernel), Finished() as news:
                yield checked(facts, one, kernel, news)
            case BuildRequest() as request, Finished() as news:
                yield builds.build_recorded(one, request, news)
            case TrialRequest() as request, Finished(result=Trial() as trial) if _is_searched(facts, request):
                yield measured(one, trial)
            case TrialRequest() as request, Finished(result=Trial() as trial):
                yield baselines.recorded(facts, attempts, request, trial)
            case request, news:
                raise RuntimeError(f"{news} is no answer to {request}")


def _failure(facts: BisectState, attempts: Sequence[Attempt], error: BisectorError) -> Record:
    """An attempt that failed by no fault of its commit; with that of a trial, where a sound end shows it to be one."""
    last, record = attempts[-1], failed(attempts[-1], error)
    request, found = last.submit.request, blamed(facts.on(last.news.host), attempts)
    if found is None or not isinstance(request, TrialRequest):
        return record
    trial, control = found
    *row, ended = record.facts
    return replace(record, facts=(*row, NumberedTrial(request.n, trial, control), ended), over=True)


def _is_build(submit: Submit) -> bool:
    """Whether it is a build that leaves a kernel."""
    return isinstance(submit.request, BuildRequest) and submit.request.measured is None


def _is_searched(facts: BisectState, request: TrialRequest) -> bool:
    """Whether a trial is on the setup of the search; else it is a baseline."""
    return request.cell.setup == facts.scope.settings.setup


def _unreported(facts: BisectState) -> Notify | None:
    """The trials that people have not been told of; then those of before there was a line between the ends, with it.

    Where the disks alone are asked for, no trial is of interest.
    """
    if facts.scope.aim is Aim.BASELINES:
        return None
    judging, told = facts.judging, facts.transient.notified
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
    return Notify(tuple(found.values()), tuple(found)) if found else None


def _begun(facts: BisectState) -> Iterator[Instruction]:
    """What follows on this host on the last attempt of a matter that is not over."""
    under_way = {one.task for one in facts.in_flight.values()}
    for matter, attempts in facts.transient.tasks.items():
        if matter not in facts.transient.notified and matter not in under_way:
            yield from follow_up(facts, attempts, _after)


def _after(facts: BisectState, attempts: Sequence[Attempt]) -> Submit | Notify | None:
    last = attempts[-1]
    if isinstance(last.news, Failed):
        return _after_failure(facts, attempts, last.news.error)
    if isinstance(last.submit.request, BuildRequest) and last.submit.request.measured is not None:
        raise unlike(facts, last, last.submit.request.measured, last.news)
    return after_control(facts, attempts) if isinstance(last.submit.request, ControlRequest) else None


def _after_failure(facts: BisectState, attempts: Sequence[Attempt], error: BisectorError) -> Submit | Notify:
    request = attempts[-1].submit.request
    if not isinstance(request, TrialRequest) or _is_searched(facts, request):
        return after_failure(facts, attempts, error)
    try:
        return baselines.in_time(facts, request.cell.setup, after_failure(facts, attempts, error))
    except BisectorError as raised:
        return baselines.given_up(facts, request.cell.setup, raised)


# What to come to


def _answer(facts: BisectState) -> Instruction:
    first = _prepared(facts) or or_set_aside(facts, both_ways) or or_set_aside(facts, _control_after_a_row)
    return first or _searched(facts)


def _both_ends(facts: BisectState) -> Instruction:
    message = "both ends are measured; the search is still to be done"
    return _prepared(facts) or Done(State.STOPPED, message)


def _baselines(facts: BisectState) -> Instruction:
    return baselines.measure(facts) or Done(State.STOPPED, "the disks alone are measured")


def _prepared(facts: BisectState) -> Instruction | None:
    first = _say_what_is_whole(facts) or settle_compilers(facts) or _say_what_is_thin(facts)
    if found := first or _say_what_changed(facts) or or_set_aside(facts, measure_both):
        return found
    check_direction(facts)
    return or_set_aside(facts, repeat) or _relevance(facts)


def _searched(facts: BisectState) -> Instruction:
    found = _STRATEGIES[facts.scope.settings.bisect.strategy](facts)
    if not isinstance(found, Done) or facts.in_flight:
        return found
    # The disks last, so that nothing that fails or ends there can cost an answer.
    wanted = facts.scope.settings.bisect.baselines
    first = _control_before_an_answer(facts)
    if first is None and not isinstance(found := once_more(facts, found), Done):
        return found
    return first or (baselines.measure(facts) if wanted else None) or found


# What comes before the search: the compilers, both ends, and which commits can matter between them


def _say_what_is_whole(facts: BisectState) -> Notify | None:
    """Notify once why no run can be stopped early, where that is so."""
    why = why_whole(facts.judging.objective)
    return once(facts, "whole runs", Note(why)) if why else None


def _say_what_is_thin(facts: BisectState) -> Notify | None:
    """Notify once that a percentile decides of which the first runs have too few I/Os."""
    runs = [judged_run(trial) for _, trial in facts.judging.trials if trial.fault is None and trial.runs]
    said = thin_tail(facts.judging.objective, runs)
    return once(facts, "thin tail", Note(said)) if said else None


def _say_what_changed(facts: BisectState) -> Notify | None:
    """Notify once what of this host has changed, before both ends are measured on it anew."""
    changed = [one for one in changes_of_hosts(facts.judging.trials) if one.host == facts.host]
    measured = facts.here.judging
    if not changed or all(measured.judge(end.sha) is not None for end in facts.scope.ends):
        return None
    last, host = changed[-1], facts.host if facts.is_shared else "the host"
    told = f"{host} changed since trial {last.before}: {last.what}; both ends are measured again here"
    return once(facts, f"{host} changed at {last.since}", Note(told))


def _relevance(facts: BisectState) -> Record | Notify | None:
    """Record and tell once which commits can matter, which the ends' builds tell."""
    if facts.recorded.relevance is not None:
        return once(facts, "relevance", Note(facts.recorded.relevance.sentence))
    old, new = (facts.judging.settlement(end.sha) for end in facts.scope.ends)
    if not (
        isinstance(old, SoundMeasurement)
        and isinstance(new, SoundMeasurement)
        and old.trial.kernel
        and new.trial.kernel
    ):
        return None
    mattering = facts.answer(WhatMatters(old.trial.kernel, new.trial.kernel))
    return Record((mattering,)) if mattering is not None else None


# What was asked of a sound end is not asked again


def _control_after_a_row(facts: BisectState) -> Submit | None:
    ends = {end.sha for end in facts.scope.ends}
    due = after_a_row(facts.judging.trials, ends, facts.recorded.is_skipped, facts.scope.policy.like_faults)
    return ask_control(facts, due) if due is not None else None


def _control_before_an_answer(facts: BisectState) -> Submit | Wait | None:
    """An end is tried on each host that has faults; where that is another one, this one waits."""
    ends = {end.sha for end in facts.scope.ends}
    for host in (facts.host, *facts.hosts):
        there = facts.on(host)
        due = before_an_answer(there.judging.trials, ends, facts.recorded.is_skipped)
        if due is not None:
            return ask_control(there, due) if host == facts.host else Wait()
    return None


_STRATEGIES: dict[Strategy, Callable[[BisectState], Instruction]] = {Strategy.BAYES: by_bayes, Strategy.GIT: by_git}
_AIMS: dict[Aim, Callable[[BisectState], Instruction]] = {
    Aim.ANSWER: _answer,
    Aim.ENDS: _both_ends,
    Aim.BASELINES: _baselines,
}
