"""Errors by who is to blame, and findings about this machine; the type decides what happens next, never the text.

What else is raised is a bug (traceback, exit 70). All of them pickle: their arguments reach ``Exception.__init__``
positionally. A finding tells beforehand what would be an error later (:mod:`bisector.doctor.checks`).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from bisector.core.printable import clean
from bisector.core.trial import Fault, FaultKind, Stage, Trial


class BisectorError(Exception):
    """An error with a sentence for a person and, where there is one, what to type next."""

    exit_code = 70
    # The hash of the commit that stopped a bisection, where the bisection can go on without it.
    skippable = ""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class UserError(BisectorError):
    """What we were given cannot work: arguments, settings, repository, job file, image."""

    exit_code = 2


class EndsDoNotReproduce(BisectorError):
    """An end of the range measured otherwise than claimed, or the two ends are too close."""

    exit_code = 1


class InfraError(BisectorError):
    """A fault of this tool, its host or the network; it never becomes a verdict."""

    exit_code = 4


class AttemptFailed(InfraError):
    """A trial that ended by no fault of its kernel: at which stage, on which host.

    ``trial`` has the facts up to then, and no fault; None when it was not a trial, or had not begun.
    """

    def __init__(
        self,
        message: str,
        hint: str = "",
        stage: Stage = Stage.CHECKOUT,
        host: str = "",
        trial: Trial | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.stage = stage
        self.host = host
        self.trial = trial


class AttemptCancelled(AttemptFailed):
    """A trial that was ended because nobody needs it any more; it says nothing of its commit, or of its host."""


class TrialRefused(UserError):
    """A trial that found the input at fault; ``trial`` has the facts up to then, and no fault."""

    def __init__(self, message: str, hint: str = "", trial: Trial | None = None) -> None:
        super().__init__(message, hint)
        self.trial = trial


class Interrupted(BisectorError):
    """A person or the system asked us to stop; everything measured so far is on disk."""

    exit_code = 130


class KernelFault(BisectorError):
    """The kernel under test cannot be judged: it does not build, boot or survive the workload.

    ``reason`` and ``tail`` are often its own words, and go on record: they are cleaned here.
    """

    exit_code = 4

    def __init__(
        self, stage: Stage, kind: FaultKind, reason: str, tail: tuple[str, ...] = (), cached: bool = False
    ) -> None:
        reason, tail = clean(reason), tuple(map(clean, tail))
        super().__init__(reason)
        self.args = (stage, kind, reason, tail, cached)
        self.stage = stage
        self.kind = kind
        self.reason = reason
        self.tail = tail
        self.cached = cached

    @property
    def fault(self) -> Fault:
        """The record of this error among the trial's facts."""
        return Fault(self.stage, self.kind, self.reason, self.tail, self.cached)


class Grade(StrEnum):
    """What a finding means for a bisection here: MISSING stops it, WARN makes it worse, INFO changes nothing."""

    OK = "ok"
    WARN = "warn"
    MISSING = "missing"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out about a machine; ``remedy`` is the one command (or the hint) that fixes it."""

    name: Annotated[str, "what was looked at; names stay"]
    state: Annotated[Grade, "`missing` stops `bisector start`, `warn` makes its evidence worse"]
    what: Annotated[str, "what was found; sentences may change"]
    remedy: Annotated[str | None, "command that fixes it, or a hint"] = None

    @property
    def warning(self) -> str:
        """The line that is printed when a run begins in spite of it, or of what changes nothing."""
        return f"{'' if self.state is Grade.INFO else 'warning: '}{self.name}: {self.what}"


def refusal(name: str, error: BisectorError) -> Finding:
    """The finding that an adapter's refusal is."""
    return Finding(name, Grade.MISSING, error.message, error.hint or None)
