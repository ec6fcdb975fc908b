"""What the record of a bisection grows by, beside the records of :mod:`bisector.core.trial`: values, each one whole.

A submission is recorded before an executor gets it, and its end together with what came of it. So a process that was
killed leaves the submissions that it had in flight, and none that is half done.
"""

from dataclasses import dataclass
from enum import StrEnum

from bisector.core.commit import Mattering, NotChanged
from bisector.core.kernel import Compiler
from bisector.core.trial import Control, Trial
from bisector.kernel.compiler_choice import BuildTry
from bisector.store.rows import InfraFaultRow, StateRow


class Work(StrEnum):
    """What an executor was asked to do."""

    TRIAL = "trial"
    CONTROL = "control"
    BUILD = "build"


class Ending(StrEnum):
    """What became of a submission; LOST when its process was killed."""

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Submitted:
    """Work on a commit that an executor is about to be given; ``n`` is the number of the trial that it makes, if any.

    ``host`` is where it is to be done, empty where the executor may choose.
    """

    work: Work
    sha: str
    n: int | None = None
    host: str = ""


@dataclass(frozen=True, slots=True)
class InFlight:
    """A submission, by its number, that has not ended."""

    id: int
    submitted: Submitted


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a submission, by its number."""

    submission: int
    ending: Ending


@dataclass(frozen=True, slots=True)
class NumberedTrial:
    """The facts of a trial, under its number.

    ``vouched_by`` is the number of the control by which its fault is known to be the kernel's own, counted from 1.
    """

    n: int
    trial: Trial
    vouched_by: int | None = None


@dataclass(frozen=True, slots=True)
class Compilers:
    """What every kernel of a bisection is built with, for good."""

    compilers: tuple[Compiler, ...]


@dataclass(frozen=True, slots=True)
class Skip:
    """A commit that a person wants not to be measured (any more)."""

    sha: str


Fact = (
    Submitted
    | Ended
    | NumberedTrial
    | Control
    | BuildTry
    | Compilers
    | InfraFaultRow
    | Mattering
    | NotChanged
    | Skip
    | StateRow
)
