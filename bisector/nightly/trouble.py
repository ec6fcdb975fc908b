"""What ends a night or a job's turn early: the hours are over, or something goes wrong."""

import hashlib
import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TypeVar

from bisector.core.deadline import Deadline
from bisector.core.errors import BisectorError, Interrupted
from bisector.host.files import our_files

T = TypeVar("T")

_LONGEST = 300  # characters of an exception's own words, which may quote a whole file
# Python drops an exception that is raised in a destructor, so the alarm is repeated, later than any orderly end takes.
_AGAIN_S = 600.0
# How often the clock is read: no timer that Python can set counts the time of a suspension (the clocks of setitimer(2)
# and of waits stand still meanwhile).
_LOOK_S = 15.0


class NightOver(Exception):
    """The hours of this night are over; results are kept, and the next night goes on."""


@contextmanager
def until(deadline: Deadline) -> Iterator[None]:
    """Interrupt the block at the deadline and raise :class:`NightOver`; in the main thread only (signal(7))."""
    if deadline.expired:
        raise NightOver
    fired, over, thread = False, threading.Event(), threading.get_ident()

    def ring(_signum: int, _frame: FrameType | None) -> None:
        nonlocal fired
        fired = True
        raise KeyboardInterrupt  # all code below takes it as Ctrl-C

    def watch() -> None:
        while not over.wait(min(deadline.remaining_s, _LOOK_S)):
            if deadline.expired:
                signal.pthread_kill(thread, signal.SIGALRM)
                over.wait(_AGAIN_S)

    before = signal.signal(signal.SIGALRM, ring)
    watcher = threading.Thread(target=watch, name="end of the night", daemon=True)
    try:
        try:
            watcher.start()
            yield
        finally:
            # The alarm may arrive right here, once. The watcher has to end, or it would ring with no handler installed.
            try:
                over.set()
            finally:
                over.set()
                watcher.join()
    except (Interrupted, KeyboardInterrupt) as error:
        if fired:
            raise NightOver from error
        raise
    finally:
        signal.signal(signal.SIGALRM, before)


class StepFailed(Exception):
    """A step of a job that failed, with the error."""

    def __init__(self, step: str, error: BisectorError) -> None:
        super().__init__(step, error)
        self.step = step
        self.error = error


def caught(work: Callable[[], T], directory: Path) -> T | StepFailed:
    """Do a part of a job's work, and return its result or how it failed.

    A bug in bisector is a failure like any other, with its traceback in ``directory``. Only what ends the night is
    raised: :class:`NightOver`, or :class:`Interrupted` by a person or the system.
    """
    try:
        with our_files(directory):
            return work()
    except (NightOver, Interrupted):
        raise
    except StepFailed as failed:
        return failed
    except BisectorError as error:
        return StepFailed("job", error)
    except Exception as error:  # noqa: BLE001 - a bug that one job meets must not cost the next job its night
        words = " ".join("".join(traceback.format_exception_only(error)).split())[:_LONGEST]
        hint, path = "its traceback could not be written", directory / "traceback.txt"
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(traceback.format_exception(error)), encoding="utf-8", errors="backslashreplace")
            hint = f"its traceback: {path}"
        return StepFailed("bug", BisectorError(f"this is a bug in bisector: {words}", hint))


def fingerprint(step: str, message: str) -> str:
    """A digest that ignores hashes and numbers (commits, lines, times), so that similar troubles have the same."""
    plain = re.sub(r"\b[0-9a-f]{7,64}\b|\d+", "#", message)
    return hashlib.sha256(f"{step}: {plain}".encode(errors="backslashreplace")).hexdigest()[:16]
