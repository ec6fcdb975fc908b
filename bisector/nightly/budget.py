"""A night ends in time: what goes on when its hours are over is interrupted as a person's Ctrl-C would."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from bisector.core.deadline import Deadline
from bisector.core.errors import Interrupted

# Python drops an exception that is raised in a destructor; so the alarm is given again, after any orderly end.
_AGAIN_S = 600.0
# How often the clock is looked at: no timer that Python can set rings for hours that went by in a suspension
# (setitimer(2) and waits go by clocks that stand still meanwhile).
_LOOK_S = 15.0


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
        with _bell(deadline):
            yield
    except (Interrupted, KeyboardInterrupt) as error:
        if fired:
            raise NightOver from error
        raise
    finally:
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _bell(deadline: Deadline) -> Iterator[None]:
    """Send this thread SIGALRM when the deadline has passed."""
    over, thread = threading.Event(), threading.get_ident()

    def watch() -> None:
        while not over.wait(min(deadline.remaining_s, _LOOK_S)):
            if deadline.expired:
                signal.pthread_kill(thread, signal.SIGALRM)
                over.wait(_AGAIN_S)

    watcher = threading.Thread(target=watch, name="end of the night", daemon=True)
    try:
        watcher.start()
        yield
    finally:
        # The alarm may be given right here, once; a watcher that went on would give it again, when nobody handles it.
        try:
            over.set()
        finally:
            over.set()
            watcher.join()
