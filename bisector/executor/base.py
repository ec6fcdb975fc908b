"""Where trials run, as the loop sees it: work is submitted under a number, and news of it come back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from bisector.config import Settings
from bisector.core.errors import AttemptCancelled, AttemptFailed, BisectorError, Interrupted
from bisector.core.events import Event
from bisector.core.subject import Cell, Commit, Compiler, Kernel, Remade
from bisector.core.trial import Fault, Stage, Trial
from bisector.store.log import now
from bisector.store.run_files import number_in
from bisector.trial.runner import TrialRequest


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """Whether a commit that was measured before comes through a stage now.

    Through :attr:`Stage.BUILD` its kernel is built anew; further on it is the one that is kept.
    """

    commit: Commit
    compilers: tuple[Compiler, ...]
    through: Stage


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """Whether a compiler builds a commit; what it builds is kept.

    ``settings`` are what it is built with, where those are not the bench's; with ``fragment`` the last of their
    configuration fragments is the subject's own (:class:`bisector.core.subject.Subject`). One that was ``measured`` is
    built once more, apart from all others, and nothing is kept.
    """

    commit: Commit
    compiler: Compiler
    settings: Settings | None = None
    fragment: str = ""
    measured: Kernel | None = None

    @property
    def compilers(self) -> tuple[Compiler, ...]:
        """What it may be built with."""
        return (self.compiler,)


Request: TypeAlias = TrialRequest | ControlRequest | BuildRequest
Result: TypeAlias = Trial | Fault | Remade | None


@dataclass(frozen=True, slots=True)
class Job:
    """Work that is submitted, under a number that no other work of its run has, or ever had."""

    id: int
    request: Request


@dataclass(frozen=True, slots=True)
class Finished:
    """What came of a job on a host: the facts of a trial; of a control or a build the kernel's fault, None without.

    Of a kernel that was built once more it is what came of that.
    """

    id: int
    host: str
    result: Result
    at: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A job that ended by no fault of its commit.

    ``AttemptFailed`` is an infrastructure error that may pass, ``TrialRefused`` input that this commit finds at
    fault. Any other error is not to be tried again.
    """

    id: int
    host: str
    error: BisectorError
    at: str


@dataclass(frozen=True, slots=True)
class Progress:
    """What a job that goes on has to tell, for people; it may be lost on the way."""

    id: int
    event: Event


News: TypeAlias = Finished | Failed | Progress


class Executor(Protocol):
    """Does the work of one run; every implementation passes one contract test."""

    @property
    def idle(self) -> tuple[str, ...]:
        """The hosts that have nothing to do, by name."""
        ...

    def submit(self, job: Job, host: str = "") -> None:
        """Take a job, for a host if one is named. It is on record by now."""
        ...

    def next(self) -> News:
        """Wait for the next news of any job that was submitted. ``ValueError`` when there is none to wait for.

        The last news of a job is that it has finished or failed; after it there are none. Where the jobs run in this
        process their progress may be told to its listener instead.
        """
        ...

    def wait(self, within_s: float | None) -> bool:
        """Wait until there are news, which is True, until a host is idle that was not, or for so long.

        Where asking for the news runs the jobs, there is nothing to wait for but an end of the time. Raises
        ``InfraError`` when no host comes for long.
        """
        ...

    def cancel(self, id_: int) -> None:
        """End a job that nobody needs any more; its last news is :class:`bisector.core.errors.AttemptCancelled`.

        A job that ends in this moment may have other last news, and one that has ended has none.
        """
        ...

    def compilers(self) -> tuple[Compiler, ...]:
        """What kernels can be built with, as the settings ask for, the preferred one first.

        Raises ``UserError`` for a compiler that is asked for and not there.
        """
        ...


def ended(job: Job, host: str, work: Callable[[Request], Result]) -> Finished | Failed:
    """The end of a job that is worked on here and now; what is neither trouble nor input is raised."""
    try:
        result = work(job.request)
    except Interrupted:
        raise
    except BisectorError as error:
        return Failed(job.id, host, error, now())
    return Finished(job.id, host, result, now())


def of_its_job(news: Finished | Failed, n: int, cell: Cell) -> Finished | Failed:
    """The end of what was submitted as trial ``n`` of a cell.

    A result that is another trial's has failed, whoever mixed them up: its figures would be another kernel's.
    """
    trial = news.result if isinstance(news, Finished) else None
    if not isinstance(trial, Trial):
        return news
    numbers = {number_in(artifact.path) for artifact in trial.artifacts} - {None, n}
    if trial.cell == cell and not numbers:
        return news
    asked = f"{cell.commit.short} on {cell.setup}"
    got = f"{trial.commit.short} on {trial.setup}" + "".join(f", trial {one}" for one in sorted(filter(None, numbers)))
    message = f"trial {n} was to measure {asked}, and {news.host} answered with {got}"
    hint = "two versions of bisector on one host, say: bisector fleet status"
    return Failed(news.id, news.host, AttemptFailed(message, hint, Stage.CHECKOUT, news.host), news.at)


def cancelled(job: Job, host: str) -> Failed:
    """The end of a job that was not worked on."""
    error = AttemptCancelled(f"job {job.id} was cancelled", "", Stage.CHECKOUT, host)
    return Failed(job.id, host, error, now())
