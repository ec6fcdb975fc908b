"""Time: waiting with a limit and trying again, which tenacity does for this module alone; and the guest's clock.

A :class:`Deadline` is a moment by which something must have happened, and the name of what is waited for. An action
that may soon succeed is tried again (:func:`retried`): a mirror, a remote, a mail server that is busy.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol, Self, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

T = TypeVar("T")

_INSTRUCTIONS_PER_S = 120e6  # executed by an emulated guest, measured on a core of an Intel Xeon
_NS_PER_S = 1e9
_COUNTED_INSTEAD = (
    "guests are emulated here, as fast as this host is at the time; --clock instructions gives the same figures each"
    " time, and sees nothing of caches, branch prediction or contention of CPUs"
)


def awake_s() -> float:
    """Return seconds on the monotonic clock, which stands still while the machine is suspended."""
    return time.monotonic()


def since_boot_s() -> float:
    """Return seconds since the machine was booted, including suspensions."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock(Protocol):
    """The clock for a wait; tests that wait have one of their own."""

    def now_s(self) -> float:
        """Return seconds since some moment; never fewer than before."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after this time."""
        ...


class SystemClock:
    """The monotonic clock of this machine."""

    def now_s(self) -> float:
        """Return seconds in which the machine was not suspended."""
        return awake_s()

    def sleep(self, seconds: float) -> None:
        """Sleep in the kernel."""
        time.sleep(seconds)


SYSTEM_CLOCK: Clock = SystemClock()


class AttentiveClock:
    """A clock that follows another one, but counts at most one second between two looks at it.

    It is for what is looked at several times a second during a wait. A process that was stopped meanwhile (SIGSTOP, a
    frozen cgroup, a paused host) could hear nothing, so that silence in that time says nothing.
    """

    MOST_COUNTED_S = 1.0

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._looked_at_s = clock.now_s()
        self._counted_s = 0.0

    def now_s(self) -> float:
        """Return the seconds counted so far."""
        now_s = self._clock.now_s()
        self._counted_s += min(now_s - self._looked_at_s, self.MOST_COUNTED_S)
        self._looked_at_s = now_s
        return self._counted_s

    def sleep(self, seconds: float) -> None:
        """Sleep on the other clock."""
        self._clock.sleep(seconds)


class DeadlineExpired(Exception):
    """A deadline has passed; the caller translates it, since only the caller knows who is to blame."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(what, seconds)
        self.what = what
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{self.what} not seen within {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Deadline:
    """A deadline ``seconds`` after its creation, on the monotonic clock; passed down instead of time-outs.

    This clock stands still while the machine is suspended, as guests and commands do.
    """

    what: str
    seconds: float
    start: float = field(default_factory=awake_s)
    clock: Callable[[], float] = awake_s
    sleep: Callable[[float], None] = time.sleep

    @classmethod
    def by(cls, clock: Clock, what: str, seconds: float) -> Self:
        """Return a deadline on another clock."""
        return cls(what, seconds, clock.now_s(), clock.now_s, clock.sleep)

    @classmethod
    def through_suspension(cls, what: str, seconds: float) -> Self:
        """Return a deadline on a clock that includes suspensions (clock_getres(2), CLOCK_BOOTTIME)."""
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
        """Whether the deadline has passed."""
        return self.remaining_s <= 0.0

    def check(self) -> None:
        """Raise :class:`DeadlineExpired` if the deadline has passed."""
        if self.expired:
            raise DeadlineExpired(self.what, self.seconds)

    def poll(self, probe: Callable[[], T | None], every_s: float = 0.05) -> T:
        """Call ``probe`` until it returns a value; raise :class:`DeadlineExpired` after the deadline."""
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
    """Return the result of ``attempt``; before each further attempt, call ``tell`` with the number of failed ones.

    There is one attempt more than there are ``waits_s``, the seconds between attempts. Raises the error of the last
    attempt, and at once any error that is not ``on``.
    """

    def told(state: RetryCallState) -> None:
        tell(state.attempt_number)

    again = Retrying(
        retry=retry_if_exception_type(on),
        stop=stop_after_attempt(len(waits_s) + 1),
        wait=lambda state: (*waits_s, 0.0)[state.attempt_number - 1],  # tenacity asks after the last attempt, too
        sleep=time.sleep,
        before_sleep=told,
        reraise=True,
    )
    return again(attempt)


# The guest's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestTime:
    """The guests' clock."""

    kind: Annotated[Literal["host", "instructions"], "the host's clock, or the instructions that the guest executes"]
    instruction_ns: Annotated[int | None, "ns that each instruction takes; `null` by the host's clock"] = None

    @property
    def warning(self) -> str:
        """What figures do not show with this clock (docs/counted.md); empty for the host's clock."""
        if self.instruction_ns is None:
            return ""
        return (
            f"the guests' clock counts instructions, {self.instruction_ns} ns each, one as long as the next; a commit"
            " that is slow because of caches, branch prediction or contention of CPUs is not seen"
        )

    def note(self, *, could_count: bool) -> str:
        """The note before a clock is chosen; ``could_count``: emulated guests use the host's clock, and could count."""
        return self.warning or (_COUNTED_INSTEAD if could_count else "")

    @property
    def sentence(self) -> str:
        """The warning as a sentence of a text."""
        return f"{self.warning[:1].upper()}{self.warning[1:]}." if self.warning else ""

    def most_host_s(self, guest_s: float) -> float:
        """The most host seconds that a guest's ``guest_s`` seconds take: those of a guest that is never idle.

        Idling takes no time on the host.
        """
        if self.instruction_ns is None:
            return guest_s
        return guest_s * _NS_PER_S / self.instruction_ns / _INSTRUCTIONS_PER_S


BY_THE_HOST = GuestTime(kind="host")
