"""A night ends in time: what goes on when its hours are over is interrupted as a person's Ctrl-C would."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from bisector.deadline import Deadline
from bisector.errors import Interrupted

# Python drops an exception that is raised in a destructor; so the alarm is given again, after any orderly end.
_AGAIN_S = 600.0


class NightOver(Exception):
    """The hours of this night are over; what was measured is kept, and the next night goes on."""


class _Alarm(KeyboardInterrupt):
    """Seen by everything below as Ctrl-C."""


@contextmanager
def until(deadline: Deadline) -> Iterator[None]:
    """Interrupt the block at the deadline and raise :class:`NightOver`; in the main thread only (signal(7))."""
    fired = False

    def ring(_signum: int, _frame: FrameType | None) -> None:
        nonlocal fired
        fired = True
        raise _Alarm

    if deadline.expired:
        raise NightOver
    before = signal.signal(signal.SIGALRM, ring)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, max(deadline.remaining_s, 0.001), _AGAIN_S)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except (Interrupted, KeyboardInterrupt) as error:
        if fired:
            raise NightOver from error
        raise
    finally:
        signal.signal(signal.SIGALRM, before)
