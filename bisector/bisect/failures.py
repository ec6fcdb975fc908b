"""What follows on a failure: another attempt, or a control, which tries an end again that is known to be sound; pure.

An attempt that fails by no fault of its commit is made again, and then given up. Where the end works and the commit
fails each time, what presents as an infrastructure error is the commit's doing. Where the end fails, too, the faults of
the commits may be the host's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import NoReturn

from bisector.analysis.judgement import Due, can_be_vouched_for, reach, speaks_for
from bisector.bisect.state import BisectState
from bisector.campaign.instructions import Attempt, Pause, Record, Submit, again_note
from bisector.core.errors import AttemptFailed, BisectorError, InfraError, TrialRefused
from bisector.core.events import Note, Planned
from bisector.core.subject import Commit
from bisector.core.trial import Control, Fault, FaultKind, Stage, Trial
from bisector.executor.base import ControlRequest, Failed, Finished
from bisector.store.facts import Ended, Ending
from bisector.trial.runner import TrialRequest

_WHAT_CHANGED = (
    "the host has changed since that end was measured: an upgrade of QEMU, the compiler or a header, the guest image,"
    " a disk, memory; its logs are in {logs}. What failed meanwhile is tried again by resume"
)


# An attempt that failed


def after_failure(facts: BisectState, attempts: Sequence[Attempt], error: BisectorError) -> Submit:
    """What follows on the last attempt of a matter, which failed; raises ``error``, or what explains it, at the end."""
    last = attempts[-1]
    if (stage := _asked_for(facts, attempts)) is not None:
        return _ask_about(facts, last, stage, error)
    if _back_off_s(facts, attempts) is None:
        _give_up(facts, attempts, error)
    request, n = last.submit.request, facts.recorded.next_n
    return replace(
        last.submit, request=replace(request, n=n) if isinstance(request, TrialRequest) else request, tell=()
    )


def pause_before(facts: BisectState, attempts: Sequence[Attempt], found: Submit) -> Pause | None:
    """The pause that a host has before it makes an attempt again that failed on it; None without one."""
    last = attempts[-1]
    if not isinstance(last.news, Failed) or type(found.request) is not type(last.submit.request):
        return None
    key, wait_s = f"pause after {last.id}", _back_off_s(facts, attempts)
    if not wait_s or key in facts.transient.notified:
        return None
    return Pause(last.news.host, wait_s, (again_note(wait_s, last.news.error),), key)


def _back_off_s(facts: BisectState, attempts: Sequence[Attempt]) -> float | None:
    """How long to wait after the last attempt, which failed; None when there is to be no other."""
    news = attempts[-1].news
    if not isinstance(news, Failed) or not isinstance(news.error, AttemptFailed):
        return None
    return facts.scope.policy.wait_s(sum(1 for _ in takewhile(_has_failed, reversed(attempts))))


def _give_up(facts: BisectState, attempts: Sequence[Attempt], error: BisectorError) -> NoReturn:
    """Raise what ends the run, with the commit without which it can go on."""
    request = attempts[-1].submit.request
    if isinstance(request, ControlRequest) and isinstance(error, AttemptFailed | TrialRefused):
        _raise_alike(facts, attempts, error, str(error))
    raise _skippable(facts, attempts[-1].submit, error)


def _skippable(facts: BisectState, submit: Submit, error: BisectorError) -> BisectorError:
    """An error with the commit that it is of, where the run can go on without that."""
    request, commit = submit.request, submit.request.commit
    of_a_commit = isinstance(request, TrialRequest) and request.cell.subject.is_commit
    if of_a_commit and commit not in facts.scope.ends and isinstance(error, AttemptFailed | TrialRefused):
        error.skippable = commit.sha
    return error


def _has_failed(attempt: Attempt) -> bool:
    return isinstance(attempt.news, Failed)


# A control that is due


def ask_control(facts: BisectState, due: Due) -> Submit:
    """Try the end again because of the faults of trials."""
    faults = _faults(due.trials)
    note = f"{faults} at stage {due.stage}: does {_name(facts)} still work?"
    submit = _control(facts, due.stage, f"control {due.stage} {due.trials}", note)
    return replace(submit, about=due.trials)


# Failures that look like infrastructure errors


def _asked_for(facts: BisectState, attempts: Sequence[Attempt]) -> Stage | None:
    """Through which stage the end is to answer for the attempt that failed last; None when it is not asked (yet).

    Between two attempts that fail a sound end answers: trouble that has passed meanwhile is not put down to the commit.
    No end answers for a checkout, or for an attempt without facts: those are tried again like any infrastructure error.
    """
    partial = _partial_facts(facts, attempts[-1])
    if partial is None:
        return None
    refused = isinstance(attempts[-1].news, Failed) and isinstance(attempts[-1].news.error, TrialRefused)
    trials = sum(isinstance(one.submit.request, TrialRequest) for one in attempts)
    enough = refused or trials >= facts.scope.policy.before_control or any(_answers(attempts))
    return reach(partial.stage) if enough else None


def _ask_about(facts: BisectState, failed: Attempt, stage: Stage, error: BisectorError) -> Submit:
    """Try the end because of an attempt at a commit that failed."""
    note = f"{failed.submit.request.commit.short}: {error}; does {_name(facts)} still work?"
    return _control(facts, stage, failed.submit.task, note)


def blamed(facts: BisectState, attempts: Sequence[Attempt]) -> tuple[Trial, int] | None:
    """The facts of the last attempt, which failed, as the kernel's own fault, and the number of the control by which.

    None when no end has answered for it.
    """
    partial = _partial_facts(facts, attempts[-1])
    news = attempts[-1].news
    if partial is None or not isinstance(news, Failed):
        return None
    answered = next((one for one in _answers(attempts) if speaks_for(_through(one), partial.stage)), None)
    if answered is None:
        return None
    number = facts.recorded.controls.index(_fact(answered)) + 1
    kind = FaultKind.NO_SSH if partial.stage is Stage.BOOT else FaultKind.COMMAND_FAILED
    return replace(partial, fault=Fault(partial.stage, kind, str(news.error))), number


def _partial_facts(facts: BisectState, attempt: Attempt) -> Trial | None:
    """The facts of an attempt for which a sound end can speak: of a commit, once both ends are measured."""
    news, submit = attempt.news, attempt.submit
    if not isinstance(news, Failed) or not isinstance(news.error, AttemptFailed | TrialRefused):
        return None
    request, trial = submit.request, news.error.trial
    of_an_end = request.commit in facts.scope.ends  # whose trials of a disk alone are none of a commit either
    if trial is None or not isinstance(request, TrialRequest) or of_an_end or facts.judging.threshold() is None:
        return None
    return trial if can_be_vouched_for(trial.stage) else None


# What comes of a control


def control_recorded(facts: BisectState, attempts: Sequence[Attempt]) -> Record:
    """The last attempt, a control that has ended, for the record: its answer, once there is one."""
    last = attempts[-1]
    ended = Ended(last.id, Ending.DONE)
    if not _is_sure(facts, attempts):
        return Record((ended,), last)
    control = _fact(last)
    if not (last.submit.about and control.answered):
        return Record((control, ended), last)
    those = "that is" if len(control.trials) == 1 else "those are"
    note = Note(f"{_name(facts)} still works: {those} of the commits themselves")
    return Record((control, ended), last, over=True, tell=(note,))


def after_control(facts: BisectState, attempts: Sequence[Attempt]) -> Submit:
    """What follows on a control that is on record: the commit once more, or the control when that may be chance.

    Raises :class:`InfraError` when the end fails now: the faults that it was asked about are doubted from then on.
    """
    last = attempts[-1]
    if not _is_sure(facts, attempts):
        return replace(last.submit, tell=())
    control = _fact(last)
    if control.answered:
        return _once_more(facts, attempts)
    if not last.submit.about:
        _raise_alike(facts, attempts, None, control.failed)
    raise InfraError(
        f"{_name(facts)}, which was measured before, fails now: {control.failed};"
        f" so {_faults(control.trials)} before it may well be this host's",
        _what_changed(facts, control.stage),
    )


def _raise_alike(facts: BisectState, attempts: Sequence[Attempt], error: BisectorError | None, alike: str) -> NoReturn:
    """Raise what the commit failed with, since the end fails as well; ``error`` itself where no commit did."""
    tried = [one for one in attempts if isinstance(one.submit.request, TrialRequest)]
    if not tried:
        raise error or InfraError(alike)
    commit, failed = tried[-1].submit, tried[-1].news
    first = failed.error if isinstance(failed, Failed) else None
    if not isinstance(first, AttemptFailed):
        raise _skippable(facts, commit, first or InfraError(alike))
    told = "alike" if alike == str(first) else f"now, too: {alike}"
    hint = first.hint or _what_changed(facts, _through(attempts[-1]))
    message = f"{first}; {_name(facts)}, which was measured before, fails {told}"
    raise _skippable(facts, commit, AttemptFailed(message, hint, first.stage, first.host, first.trial)) from first


def _once_more(facts: BisectState, attempts: Sequence[Attempt]) -> Submit:
    failed = next(one.submit for one in reversed(attempts) if isinstance(one.submit.request, TrialRequest))
    commit, n = failed.request.commit, facts.recorded.next_n
    planned = Planned(n, commit, f"once more, {_name(facts)} still works", 0, 0)
    request = replace(failed.request, n=n) if isinstance(failed.request, TrialRequest) else failed.request
    return replace(failed, request=request, tell=(planned,))


def _control(facts: BisectState, stage: Stage, matter: str, note: str) -> Submit:
    """What is tried is no trial to count on: people see the number of the next one."""
    end = _end(facts)
    planned = Planned(facts.recorded.next_n, end, "measured before; does it still work?", 0, 0)
    return Submit(ControlRequest(end, facts.recorded.compilers, stage), matter, tell=(Note(note), planned))


def _is_sure(facts: BisectState, attempts: Sequence[Attempt]) -> bool:
    """Whether the last control has an answer: a fault that can be chance counts when it is seen often enough."""
    series = takewhile(lambda one: isinstance(one.submit.request, ControlRequest), reversed(attempts))
    faults = [one.news.result for one in series if isinstance(one.news, Finished)]
    last = faults[0]
    if not isinstance(last, Fault) or last.kind.of_compiling:
        return True
    return len(faults) >= facts.scope.policy.faults_believed


def _answers(attempts: Iterable[Attempt]) -> list[Attempt]:
    """The controls in which the end came through."""
    return [one for one in attempts if isinstance(one.submit.request, ControlRequest) and _came_through(one)]


def _came_through(attempt: Attempt) -> bool:
    return isinstance(attempt.news, Finished) and attempt.news.result is None


def _through(attempt: Attempt) -> Stage:
    request = attempt.submit.request
    return request.through if isinstance(request, ControlRequest) else Stage.DONE


def _fact(attempt: Attempt) -> Control:
    """A control that has ended, as a fact."""
    news = attempt.news
    fault = news.result if isinstance(news, Finished) and isinstance(news.result, Fault) else None
    at, host, sha = news.at, news.host, attempt.submit.request.commit.sha
    return Control(at, host, sha, _through(attempt), attempt.submit.about, fault.sentence if fault else "")


def _end(facts: BisectState) -> Commit:
    return facts.scope.wanted.new


def _name(facts: BisectState) -> str:
    _, word = facts.words
    return f"the {word} end {_end(facts).short}"


def _faults(trials: Sequence[int]) -> str:
    return "a fault" if len(trials) == 1 else f"{len(trials)} faults"


def _what_changed(facts: BisectState, stage: Stage) -> str:
    logs = facts.scope.run_dir / "controls" / f"{stage}-{_end(facts).short}"
    return _WHAT_CHANGED.format(logs=logs)
