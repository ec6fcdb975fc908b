"""What ends a night, or one job's turn in it, before its time: its hours are over, or something goes wrong."""

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
# Python drops an exception that is raised in a destructor; so the alarm is given again, after any orderly end.
_AGAIN_S = 600.0
# How often the clock is looked at: no timer that Python can set rings for hours that went by in a suspension
# (setitimer(2) and waits go by clocks that stand still meanwhile).
_LOOK_S = 15.0


class NightOver(Exception):
    """The hours of this night are over; what was measured is kept, and the next night goes on."""


@contextmanager
def until(deadline: Deadline) -> Iterator[None]:
    """Interrupt the block at the deadline and raise :class:`NightOver`; in the main thread only (signal(7))."""
    if deadline.expired:
        raise NightOver
    fired, over, thread = False, threading.Event(), threading.get_ident()

    def ring(_signum: int, _frame: FrameType | None) -> None:
        nonlocal fired
        fired = True
        raise KeyboardInterrupt  # seen by everything below as Ctrl-C

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
            # The alarm may be given right here, once; a watcher that went on would give it when nobody handles it.
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
    """A step of a job that could not be done, and why."""

    def __init__(self, step: str, error: BisectorError) -> None:
        super().__init__(step, error)
        self.step = step
        self.error = error


def caught(work: Callable[[], T], directory: Path) -> T | StepFailed:
    """What a part of a job's work comes to, or how it failed.

    A bug in bisector is a failure as any other, with its traceback in ``directory``. Only what ends the night is
    raised: its hours are over, or a person or the system has told it to stop.
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
    except Exception as error:  # noqa: BLE001 - the next job's night is not to be lost to a bug that this one met
        words = " ".join("".join(traceback.format_exception_only(error)).split())[:_LONGEST]
        hint, path = "its traceback could not be written", directory / "traceback.txt"
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(traceback.format_exception(error)), encoding="utf-8", errors="backslashreplace")
            hint = f"its traceback: {path}"
        return StepFailed("bug", BisectorError(f"this is a bug in bisector: {words}", hint))


def fingerprint(step: str, message: str) -> str:
    """A digest that two troubles share which differ only in hashes and numbers: commits, lines, times."""
    plain = re.sub(r"\b[0-9a-f]{7,64}\b|\d+", "#", message)
    return hashlib.sha256(f"{step}: {plain}".encode(errors="backslashreplace")).hexdigest()[:16]
