"""What follows when an attempt fails by no fault of its commit: it is tried again, and then given up; pure.

Unless a sound end works where a commit fails each time: then what presents as ours is the commit's doing
(:mod:`bisector.bisect.control_trials`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import NoReturn

from bisector.bisect import control_trials
from bisector.bisect.facts import Facts
from bisector.bisect.instructions import Attempt, Submit
from bisector.bisect.trials import skippable
from bisector.config import RetryPolicy
from bisector.core.errors import AttemptFailed, BisectorError, TrialRefused
from bisector.core.events import Listener, Note
from bisector.core.trial import Trial
from bisector.executor.base import ControlRequest, Executor, Failed, result_of
from bisector.store.rows import InfraFaultRow
from bisector.trial.runner import TrialRequest


def after_failure(facts: Facts, attempts: Sequence[Attempt], error: BisectorError) -> Submit:
    """What follows on the last attempt of a matter, which failed; raises ``error``, or what explains it, at the end."""
    last = attempts[-1]
    if (stage := control_trials.asked_for(facts, attempts)) is not None:
        return control_trials.ask_about(facts, last, stage, error)
    failed = sum(1 for _ in takewhile(_has_failed, reversed(attempts)))
    wait_s = facts.task.policy.wait_s(failed) if isinstance(error, AttemptFailed) else None
    if wait_s is None:
        give_up(facts, attempts, error)
    return replace(renumbered(last.submit, facts.recorded.next_n), wait_s=wait_s, tell=(again_in(wait_s, error),))


def give_up(facts: Facts, attempts: Sequence[Attempt], error: BisectorError) -> NoReturn:
    """Raise what ends the run, with the commit without which it can go on."""
    request = attempts[-1].submit.request
    if isinstance(request, ControlRequest) and isinstance(error, AttemptFailed | TrialRefused):
        control_trials.raise_alike(facts, attempts, error, str(error))
    raise skippable(facts, attempts[-1].submit, error)


def renumbered(submit: Submit, n: int) -> Submit:
    """The same under the number that its trial has now."""
    request = submit.request
    return replace(submit, request=replace(request, n=n)) if isinstance(request, TrialRequest) else submit


def again_in(wait_s: float, error: BisectorError) -> Note:
    """What people are told before the next attempt."""
    return Note(f"not the kernel's fault, trying again in {wait_s:.0f} s: {error}")


def fault_row(at: str, sha: str, error: AttemptFailed) -> InfraFaultRow:
    """An attempt that failed, for the record."""
    return InfraFaultRow(at, sha, error.stage, error.host, str(error))


def _has_failed(attempt: Attempt) -> bool:
    return isinstance(attempt.news, Failed)


@dataclass(frozen=True, slots=True)
class Attempts:
    """Attempts at trials of which nothing is derived but their own figures; those that fail go to ``record``."""

    executor: Executor
    record: Callable[[InfraFaultRow], None]
    tell: Listener
    pause: Callable[[float], None]
    policy: RetryPolicy

    def at(self, request: TrialRequest) -> Trial:
        """The trial; raises the :class:`AttemptFailed` of the last attempt when all fail, anything else at once."""
        failed = 0
        while True:
            try:
                return result_of(self.executor, request, self.tell)
            except AttemptFailed as error:
                failed += 1
                now = datetime.now(UTC).isoformat(timespec="seconds")
                self.record(fault_row(now, request.commit.sha, error))
                if (wait_s := self.policy.wait_s(failed)) is None:
                    raise
                self.tell(again_in(wait_s, error))
                self.pause(wait_s)
