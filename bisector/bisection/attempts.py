"""Attempts at a trial or a build: trouble of ours is recorded, tried again, and then given up on."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential
from tenacity.wait import wait_base

from bisector.errors import AttemptFailed
from bisector.events import Listener, Note
from bisector.model import Commit
from bisector.record.rows import InfraFaultRow

T = TypeVar("T")

_MOST = 3
_BETWEEN: wait_base = wait_exponential(multiplier=2, max=30)


class FaultLog(Protocol):
    """Where trouble of ours is recorded: the store of a run, or the history of nights."""

    def add_infra_fault(self, fault: InfraFaultRow) -> None:
        """Record an attempt that says nothing about its commit."""
        ...


@dataclass(frozen=True, slots=True)
class Attempts:
    """Attempts on behalf of commits, those that fail recorded in ``log``."""

    log: FaultLog
    tell: Listener

    def at(self, commit: Commit, attempt: Callable[[], T]) -> T:
        """What an attempt answers; raises the :class:`AttemptFailed` of the last one when all fail."""

        def before_sleep(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            self.tell(Note(f"not the kernel's fault, trying again: {error}"))

        attempts = Retrying(
            retry=retry_if_exception_type(AttemptFailed),
            stop=stop_after_attempt(_MOST),
            wait=_BETWEEN,
            before_sleep=before_sleep,
            reraise=True,
        )
        answer: T = attempts(self._recorded, attempt, commit)
        return answer

    def _recorded(self, attempt: Callable[[], T], commit: Commit) -> T:
        try:
            return attempt()
        except AttemptFailed as error:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self.log.add_infra_fault(InfraFaultRow(now, commit.sha, error.stage, error.host, str(error)))
            raise
