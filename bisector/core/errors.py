"""Errors by who is to blame, and findings about a machine; the type decides what happens next, never the text.

Any other exception is a bug (traceback, exit 70). All errors pickle: their arguments reach ``Exception.__init__``
positionally. A finding announces what would be an error later (:mod:`bisector.doctor.checks`).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated


class BisectorError(Exception):
    """An error with a sentence for a person and, if there is one, a hint what to type next."""

    exit_code = 70
    # The hash of the commit that stopped a bisection, if the bisection can go on without it.
    skippable = ""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class UserError(BisectorError):
    """An input is at fault: arguments, settings, repository, job file, image."""

    exit_code = 2


class EndsDoNotReproduce(BisectorError):
    """An end of the range measured otherwise than claimed, or the ends are too close together."""

    exit_code = 1


class InfraError(BisectorError):
    """A fault of bisector, its host or the network; it never becomes a verdict."""

    exit_code = 4


class Interrupted(BisectorError):
    """The user or the system asked bisector to stop; everything measured so far is on disk."""

    exit_code = 130


class Grade(StrEnum):
    """The grade of a finding: MISSING stops a bisection here, WARN makes its evidence worse, INFO changes nothing."""

    OK = "ok"
    WARN = "warn"
    MISSING = "missing"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about a machine; ``remedy`` is the one command that fixes it, or a hint."""

    name: Annotated[str, "what was looked at; names stay"]
    state: Annotated[Grade, "`missing` stops `bisector start`, `warn` makes its evidence worse"]
    what: Annotated[str, "what was found; sentences may change"]
    remedy: Annotated[str | None, "command that fixes it, or a hint"] = None

    @property
    def warning(self) -> str:
        """The line that is printed if a run begins in spite of the finding."""
        return f"{'' if self.state is Grade.INFO else 'warning: '}{self.name}: {self.what}"


def refusal(name: str, error: BisectorError) -> Finding:
    """Return the finding for an adapter's refusal."""
    return Finding(name, Grade.MISSING, error.message, error.hint or None)
