"""Attempts at a trial or a build: trouble of ours is recorded, tried again, and then given up on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol, Self, TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_chain,
    wait_fixed,
    wait_none,
)

from bisector.core.errors import AttemptFailed
from bisector.core.events import Listener, Note
from bisector.core.model import Commit
from bisector.store.rows import InfraFaultRow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The seconds to wait after each attempt that failed by no fault of its commit; after one more it is given up.

    A daemon that restarts is back within seconds. A disk that somebody has to clear, or a host that suspends or
    upgrades itself, takes minutes.
    """

    waits_s: tuple[float, ...] = (5.0, 60.0, 300.0)

    @property
    def attempts(self) -> int:
        """How many attempts there are in all."""
        return len(self.waits_s) + 1


RETRIES = RetryPolicy()


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
    policy: RetryPolicy = RETRIES

    def at_most(self, attempts: int) -> Self:
        """The same, given up after so many attempts."""
        return replace(self, policy=RetryPolicy(self.policy.waits_s[: attempts - 1]))

    def at(self, commit: Commit, attempt: Callable[[], T]) -> T:
        """What an attempt answers; raises the :class:`AttemptFailed` of the last one when all fail."""

        def before_sleep(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            wait_s = state.next_action.sleep if state.next_action else 0.0
            self.tell(Note(f"not the kernel's fault, trying again in {wait_s:.0f} s: {error}"))

        waits = [wait_fixed(wait_s) for wait_s in self.policy.waits_s]
        attempts = Retrying(
            retry=retry_if_exception_type(AttemptFailed),
            stop=stop_after_attempt(self.policy.attempts),
            wait=wait_chain(*waits) if waits else wait_none(),
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
