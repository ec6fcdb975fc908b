"""The step of a bisection: a pure function from the facts, the work in flight and the idle hosts to an instruction.

The loop calls it after each instruction. Its decisions are kept nowhere: a process that begins with the same record
decides alike. Idle hosts are considered one after the other: each measures both ends first, which give it a threshold
of its own, then the subject that tells most beside all that is in flight.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from bisector.analysis.judgement import SoundMeasurement, after_a_row, before_an_answer, judged_run
from bisector.analysis.quality import thin_tail
from bisector.analysis.verdicts import changes_of_hosts
from bisector.bisect import ends, failures
from bisector.bisect.ends import in_time, once
from bisector.bisect.failures import (
    after_control,
    after_failure,
    ask_control,
    blamed,
    cancel_rest_before_done,
    check_direction,
    control_recorded,
    excluding_host_on_error,
    failing_too_often,
    follow_up,
)
from bisector.bisect.state import Aim, BisectState, Unanswered, WhatMatters
from bisector.bisect.stop_rule import why_whole
from bisector.bisect.strategies import by_bayes, by_git
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
from bisector.core.errors import BisectorError
from bisector.core.events import BuildEnded, OnHost, TrialJudged
from bisector.core.subject import Kernel
from bisector.core.trial import AttemptCancelled, Trial
from bisector.core.verdict import State, Strategy, Verdict
from bisector.executor.base import BuildRequest, ControlRequest, Failed, Finished
from bisector.store.facts import Ended, Ending, NumberedTrial
from bisector.trial.runner import TrialRequest


def step(facts: BisectState) -> Instruction:
    """Return the next instruction.

    Raises :class:`bisector.core.errors.EndsDoNotReproduce` if there is nothing to bisect, and the error of an attempt
    that is given up.
    """
    now, builders = facts.transient, facts.scope.crew.builders
    usable = [host for host in now.idle if host not in now.excluded]
    at_work = (one.host for one in now.in_flight.values())
    there = (host for host in (*usable, *sorted(now.paused), *at_work) if host not in now.excluded)
    facts = replace(facts, hosts=tuple(host for host in dict.fromkeys(there) if host not in builders))
    try:
        first = next(_arrived(facts), None) or _unreported(facts) or _of_idle(facts, usable)
    except Unanswered as missing:
        return Ask(missing.question)
    if first is not None:
        return first
    # Waiting would never end: all hosts that are connected are excluded, and others may never come.
    excluded = [host for host in now.excluded if host in now.idle and host not in builders]
    if excluded and not facts.hosts and not facts.in_flight:
        raise now.excluded[excluded[-1]]
    return Wait()


def _of_idle(facts: BisectState, usable: Sequence[str]) -> Instruction | None:
    """The next instruction for one of these hosts, those that only build last; None if all of them wait.

    A trial of an end comes after all else: another host may have the answer. That would cancel the trial, and this host
    would begin it again, for ever.
    """
    builders, own_ends, of_end = facts.scope.crew.builders, facts.scope.ends, None
    for host in (one for one in usable if one not in builders):
        match _next_of_one(replace(facts, host=host)):
            case Done() as done:
                return cancel_rest_before_done(facts, done)
            case Submit(TrialRequest() as asked) as found if asked.commit in own_ends and _is_searched(facts, asked):
                of_end = of_end or found
            case found if not isinstance(found, Wait):
                return found
    if of_end is not None:
        return of_end
    ahead = (failures.next_of_builder(replace(facts, host=host)) for host in usable if host in builders)
    return next((found for found in ahead if not isinstance(found, Wait)), None)


def _next_of_one(facts: BisectState) -> Instruction:
    found = failing_too_often(facts) or next(_begun(facts), None) or _AIMS[facts.scope.aim](facts)
    found = in_time(facts, found)
    if isinstance(found, Submit):
        # A host that runs several guests must not be given the same task twice.
        is_begun = any(one.task == found.task for one in facts.in_flight.values())
        return Wait() if is_begun else replace(found, host=facts.host)
    return found


# Ended submissions come first: they are recorded, and people are told


def _arrived(facts: BisectState) -> Iterator[Record]:
    for one in facts.transient.arrived:
        attempts = (*facts.transient.tasks.get(one.submit.task, ()), one)
        match one.submit.request, one.news:
            case request, Failed(error=AttemptCancelled()) if one.id in facts.transient.cancelled:
                is_build = _is_build_ahead(facts, one)
                tell = (OnHost(one.news.host, BuildEnded(request.commit)),) if is_build else ()
                yield Record((Ended(one.id, Ending.CANCELLED),), one, over=True, tell=tell)
            case BuildRequest() as request, _ if _is_build_ahead(facts, one):
                yield failures.build_recorded(one, request)
            case _, Failed(error=error):
                yield _failure(facts, attempts, error)
            case ControlRequest(), Finished():
                yield control_recorded(facts, attempts)
            case BuildRequest(measured=Kernel() as kernel), Finished() as news:
                yield failures.checked(facts, one, kernel, news)
            case BuildRequest() as request, Finished():
                yield failures.build_recorded(one, request, is_choice=True)
            case TrialRequest() as request, Finished(result=Trial() as trial) if _is_searched(facts, request):
                yield measured(one, trial)
            case TrialRequest() as request, Finished(result=Trial() as trial):
                yield ends.baseline_recorded(facts, attempts, request, trial)
            case request, news:
                raise RuntimeError(f"{news} is not an answer to {request}")


def _is_build_ahead(facts: BisectState, attempt: Attempt) -> bool:
    """Whether the attempt is a build without a trial, rather than a try of a compiler or a recheck."""
    request = attempt.submit.request
    return isinstance(request, BuildRequest) and request.measured is None and bool(facts.recorded.compilers)


def _failure(facts: BisectState, attempts: Sequence[Attempt], error: BisectorError) -> Record:
    """The record of a failed attempt, and of its trial with a fault if a control shows that the kernel is to blame."""
    last, record = attempts[-1], failed(attempts[-1], error)
    request, found = last.submit.request, blamed(facts.on(last.news.host), attempts)
    if found is None or not isinstance(request, TrialRequest):
        return record
    trial, control = found
    *row, ended = record.facts
    return replace(record, facts=(*row, NumberedTrial(request.n, trial, control), ended), over=True)


def _is_searched(facts: BisectState, request: TrialRequest) -> bool:
    return request.cell.setup == facts.scope.settings.setup


def _unreported(facts: BisectState) -> Notify | None:
    """Tell people of new trials, and again, once there is a threshold, of those that were measured before it.

    A process that only measures baselines tells of no trial.
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
    under_way = {one.task for one in facts.in_flight.values()}
    for task, attempts in facts.transient.tasks.items():
        if task not in facts.transient.notified and task not in under_way:
            yield from follow_up(facts, attempts, _after)


def _after(facts: BisectState, attempts: Sequence[Attempt]) -> Submit | Notify | None:
    match attempts[-1].submit.request, attempts[-1].news:
        case TrialRequest() as request, Failed(error=error) if not _is_searched(facts, request):
            try:
                return ends.baseline_in_time(facts, request.cell.setup, after_failure(facts, attempts, error))
            except BisectorError as raised:
                return ends.baseline_given_up(facts, request.cell.setup, raised)
        case _, Failed(error=error):
            return after_failure(facts, attempts, error)
        case BuildRequest(measured=Kernel() as kernel), Finished() as news:
            raise failures.unlike(facts, attempts[-1], kernel, news)
        case ControlRequest(), _:
            return after_control(facts, attempts)
    return None


# One function for each aim


def _answer(facts: BisectState) -> Instruction:
    if (
        first := _prepared(facts)
        or excluding_host_on_error(facts, ends.both_ways)
        or excluding_host_on_error(facts, _control_after_a_row)
    ):
        return first
    found = _STRATEGIES[facts.scope.settings.bisect.strategy](facts)
    if not isinstance(found, Done) or facts.in_flight:
        return found
    # Baselines come last, so that neither their failures nor the end of the budget can cost an answer.
    if (control := _control_before_an_answer(facts)) is not None:
        return control
    if not isinstance(found := failures.checked_answer(facts, found), Done):
        return found
    return (ends.measure_baselines(facts) if facts.scope.settings.bisect.baselines else None) or found


def _both_ends(facts: BisectState) -> Instruction:
    message = "both ends are measured; the search is still to be done"
    return _prepared(facts) or Done(State.STOPPED, message)


def _baselines(facts: BisectState) -> Instruction:
    return ends.measure_baselines(facts) or Done(State.STOPPED, "the disks alone are measured")


def _prepared(facts: BisectState) -> Instruction | None:
    """The next preparation of the search: the compilers, both ends, and which commits between them can matter."""
    runs = [judged_run(trial) for _, trial in facts.judging.trials if trial.fault is None and trial.runs]
    if found := (
        once(facts, "whole runs", why_whole(facts.judging.objective))
        or failures.settle_compilers(facts)
        or once(facts, "thin tail", thin_tail(facts.judging.objective, runs))
        or _say_what_changed(facts)
        or excluding_host_on_error(facts, ends.measure_both)
    ):
        return found
    check_direction(facts)
    return excluding_host_on_error(facts, ends.repeat) or _relevance(facts)


def _say_what_changed(facts: BisectState) -> Notify | None:
    """Tell once what has changed on this host, before both ends are measured on it again."""
    changed = [one for one in changes_of_hosts(facts.judging.trials) if one.host == facts.host]
    judging = facts.here.judging
    if not changed or all(judging.judge(end.sha) is not None for end in facts.scope.ends):
        return None
    last, host = changed[-1], facts.host if facts.is_shared else "the host"
    told = f"{host} changed since trial {last.before}: {last.what}; both ends are measured again here"
    return once(facts, f"{host} changed at {last.since}", told)


def _relevance(facts: BisectState) -> Record | Notify | None:
    """Record, and tell once, which commits can matter by the files that the builds of both ends read."""
    if facts.recorded.relevance is not None:
        return once(facts, "relevance", facts.recorded.relevance.sentence)
    settled = [facts.judging.settlement(end.sha) for end in facts.scope.ends]
    kernels = [one.trial.kernel for one in settled if isinstance(one, SoundMeasurement) and one.trial.kernel]
    if len(kernels) != len(settled):
        return None
    mattering = facts.answer(WhatMatters(*kernels))
    return Record((mattering,)) if mattering is not None else None


# Controls that explain recorded faults; a control that answered is not repeated


def _control_after_a_row(facts: BisectState) -> Submit | None:
    shas = {end.sha for end in facts.scope.ends}
    due = after_a_row(facts.judging.trials, shas, facts.recorded.is_skipped, facts.scope.settings.retries.like_faults)
    return ask_control(facts, due) if due is not None else None


def _control_before_an_answer(facts: BisectState) -> Submit | Wait | None:
    """A control on this host if it has unexplained faults; if another host has, this one waits for that host's."""
    shas = {end.sha for end in facts.scope.ends}
    for host in (facts.host, *facts.hosts):
        there = facts.on(host)
        due = before_an_answer(there.judging.trials, shas, facts.recorded.is_skipped)
        if due is not None:
            return ask_control(there, due) if host == facts.host else Wait()
    return None


_STRATEGIES: dict[Strategy, Callable[[BisectState], Instruction]] = {Strategy.BAYES: by_bayes, Strategy.GIT: by_git}
_AIMS: dict[Aim, Callable[[BisectState], Instruction]] = {
    Aim.ANSWER: _answer,
    Aim.ENDS: _both_ends,
    Aim.BASELINES: _baselines,
}
