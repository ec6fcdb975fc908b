"""How long something is waited for, and how often it is tried; the owner of tenacity.

A :class:`Deadline` is a moment by which something must have happened, with a name for what was waited for. What may
work in a moment is tried again (:func:`retried`): a mirror, a remote, a mail server that is busy.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

T = TypeVar("T")


def awake_s() -> float:
    """Seconds on the monotonic clock, in which the machine was not suspended."""
    return time.monotonic()


def since_boot_s() -> float:
    """Seconds since the machine was booted, suspensions included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock(Protocol):
    """The time in which something is waited for; a test that waits has a clock of its own."""

    def now_s(self) -> float:
        """Seconds since some moment; never fewer than before."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return that much later."""
        ...


class SystemClock:
    """The monotonic clock of this machine."""

    def now_s(self) -> float:
        """Seconds in which the machine was not suspended."""
        return awake_s()

    def sleep(self, seconds: float) -> None:
        """Sleep in the kernel."""
        time.sleep(seconds)


SYSTEM_CLOCK: Clock = SystemClock()


class AttentiveClock:
    """Another clock without the time in which nobody looked at it, but for a second.

    For what is looked at several times a second while something is waited for. A process that was stopped meanwhile
    (SIGSTOP, a frozen cgroup, a paused host) could hear nothing, so that silence in that time says nothing.
    """

    MOST_COUNTED_S = 1.0

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._looked_at_s = clock.now_s()
        self._counted_s = 0.0

    def now_s(self) -> float:
        """Seconds in which somebody looked."""
        now_s = self._clock.now_s()
        self._counted_s += min(now_s - self._looked_at_s, self.MOST_COUNTED_S)
        self._looked_at_s = now_s
        return self._counted_s

    def sleep(self, seconds: float) -> None:
        """Sleep on the other clock."""
        self._clock.sleep(seconds)


class DeadlineExpired(Exception):
    """A deadline passed; the caller translates it, since only the caller knows who is to blame."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(what, seconds)
        self.what = what
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{self.what} not seen within {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Deadline:
    """``seconds`` from its making, on the monotonic clock; passed down instead of time-outs.

    That clock stands still while the machine is suspended, as guests and commands do.
    """

    what: str
    seconds: float
    start: float = field(default_factory=awake_s)
    clock: Callable[[], float] = awake_s
    sleep: Callable[[float], None] = time.sleep

    @classmethod
    def by(cls, clock: Clock, what: str, seconds: float) -> Self:
        """One on another clock."""
        return cls(what, seconds, clock.now_s(), clock.now_s, clock.sleep)

    @classmethod
    def through_suspension(cls, what: str, seconds: float) -> Self:
        """One that goes on while the machine is suspended (clock_getres(2), CLOCK_BOOTTIME)."""
        return cls(what, seconds, since_boot_s(), since_boot_s)

    @property
    def elapsed_s(self) -> float:
        """Seconds since this deadline was set."""
        return self.clock() - self.start

    @property
    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.seconds - self.elapsed_s)

    @property
    def expired(self) -> bool:
        """Whether the moment has passed."""
        return self.remaining_s <= 0.0

    def check(self) -> None:
        """Raise :class:`DeadlineExpired` when the moment has passed."""
        if self.expired:
            raise DeadlineExpired(self.what, self.seconds)

    def poll(self, probe: Callable[[], T | None], every_s: float = 0.05) -> T:
        """Call ``probe`` until it answers something; raise :class:`DeadlineExpired` at the end."""
        while (answer := probe()) is None:
            self.check()
            self.sleep(min(every_s, max(self.remaining_s, 0.001)))
        return answer


def retried(
    attempt: Callable[[], T],
    on: type[Exception] | tuple[type[Exception], ...],
    waits_s: Sequence[float],
    tell: Callable[[int], object] = lambda failed: None,
) -> T:
    """What ``attempt`` answers; before each further one ``tell`` is told how many have failed.

    There is one attempt more than there are ``waits_s``, the seconds between them. Raises what the last one raises,
    and at once whatever is not ``on``.
    """

    def told(state: RetryCallState) -> None:
        tell(state.attempt_number)

    again = Retrying(
        retry=retry_if_exception_type(on),
        stop=stop_after_attempt(len(waits_s) + 1),
        wait=lambda state: (*waits_s, 0.0)[state.attempt_number - 1],  # it asks after the last attempt, too
        sleep=time.sleep,
        before_sleep=told,
        reraise=True,
    )
    return again(attempt)
