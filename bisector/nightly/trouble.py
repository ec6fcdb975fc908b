"""What goes wrong with a job in a night, whatever it is: it ends that job's turn, and no other's."""

import hashlib
import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from bisector.core.errors import BisectorError, Interrupted
from bisector.host.files import our_files
from bisector.nightly.budget import NightOver

T = TypeVar("T")

_TRACEBACK = "traceback.txt"
_JOB, _BUG = "job", "bug"  # steps, where nothing more is known
_LONGEST = 300  # characters of an exception's own words, which may quote a whole file


class Failed(Exception):
    """A step of a job that could not be done, and why."""

    def __init__(self, step: str, error: BisectorError) -> None:
        super().__init__(step, error)
        self.step = step
        self.error = error


def caught(work: Callable[[], T], directory: Path) -> T | Failed:
    """What a part of a job's work comes to, or how it failed.

    A bug in bisector is a failure as any other, with its traceback in ``directory``. Only what ends the night is
    raised: its hours are over, or a person or the system has told it to stop.
    """
    try:
        with our_files(directory):
            return work()
    except (NightOver, Interrupted):
        raise
    except Failed as failed:
        return failed
    except BisectorError as error:
        return Failed(_JOB, error)
    except Exception as error:  # noqa: BLE001 - the next job's night is not to be lost to a bug that this one met
        return Failed(_BUG, _as_bug(error, directory / _TRACEBACK))


def _as_bug(error: Exception, path: Path) -> BisectorError:
    words = " ".join("".join(traceback.format_exception_only(error)).split())[:_LONGEST]
    hint = "its traceback could not be written"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8", errors="backslashreplace")
        hint = f"its traceback: {path}"
    return BisectorError(f"this is a bug in bisector: {words}", hint)


def fingerprint(step: str, message: str) -> str:
    """The same for two troubles that differ in nothing but hashes and numbers: commits, lines, times."""
    plain = re.sub(r"\b[0-9a-f]{7,64}\b|\d+", "#", message)
    return hashlib.sha256(f"{step}: {plain}".encode(errors="backslashreplace")).hexdigest()[:16]
