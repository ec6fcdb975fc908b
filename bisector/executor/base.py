"""The interface of executors: the loop submits work under a number, and receives news of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from bisector.config import Settings
from bisector.core.errors import BisectorError, Interrupted
from bisector.core.events import Event
from bisector.core.subject import Cell, Commit, Compiler, Kernel, RebuildCheck
from bisector.core.trial import AttemptCancelled, AttemptFailed, Fault, Stage, Trial
from bisector.store.log import now
from bisector.store.rundir import number_in
from bisector.trial.runner import TrialRequest


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request to check whether a commit that was measured before still completes all stages up to ``through``.

    For :attr:`Stage.BUILD` its kernel is built again; for later stages the kernel in the cache is used.
    """

    commit: Commit
    compilers: tuple[Compiler, ...]
    through: Stage


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """A request to build a commit with a compiler and keep the kernel.

    ``settings`` replace the settings of the bench; with ``fragment``, the last of their configuration fragments is the
    subject's own (:class:`bisector.core.subject.Subject`). A kernel that was ``measured`` is built once more, apart
    from all others, and nothing is kept.
    """

    commit: Commit
    compiler: Compiler
    settings: Settings | None = None
    fragment: str = ""
    measured: Kernel | None = None

    @property
    def compilers(self) -> tuple[Compiler, ...]:
        """The compiler, as the sequence of compilers that other requests have."""
        return (self.compiler,)


Request: TypeAlias = TrialRequest | ControlRequest | BuildRequest
Result: TypeAlias = Trial | Fault | RebuildCheck | None


@dataclass(frozen=True, slots=True)
class Job:
    """Submitted work, with a number that is unique among all work that its run ever had."""

    id: int
    request: Request


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a job: the trial; for a control or a build, the kernel's fault or None; for a recheck, its digests.

    ``at`` is the time of its end.
    """

    id: int
    host: str
    result: Result
    at: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A job that ended by no fault of its commit.

    The error is ``AttemptFailed`` for an infrastructure error that may pass, ``TrialRefused`` for input that does not
    work with this commit. A job with any other error must not be repeated.
    """

    id: int
    host: str
    error: BisectorError
    at: str


@dataclass(frozen=True, slots=True)
class Progress:
    """An event of a running job, for people; it may be lost on its way."""

    id: int
    event: Event


News: TypeAlias = Finished | Failed | Progress


class Executor(Protocol):
    """An executor does the work of one run; all implementations pass the same contract test."""

    @property
    def idle(self) -> tuple[str, ...]:
        """The names of the hosts that may be given a job."""

    def submit(self, job: Job, host: str = "") -> None:
        """Take a job, which is on record already, for ``host`` or, if that is empty, for any host."""

    def next(self) -> News:
        """Wait for the next news of any submitted job; raises ``ValueError`` if there is no job.

        The last news of a job is that it has finished or failed. An executor that runs jobs in this process may tell
        their progress to its listener instead.
        """

    def wait(self, within_s: float | None) -> bool:
        """Wait until there are news (returns True), another host becomes idle, or ``within_s`` seconds have passed.

        If :meth:`next` runs the jobs, only the time is waited for. Raises ``InfraError`` if no host appears for long.
        """

    def cancel(self, id_: int) -> None:
        """End a job whose result is no longer needed; it fails by :class:`bisector.core.trial.AttemptCancelled`.

        A job that is just ending may have other last news; a job that has ended has no further news.
        """

    def compilers(self) -> tuple[Compiler, ...]:
        """The compilers that the settings name, or all that are installed, the preferred one first.

        Raises ``UserError`` if a named compiler is missing.
        """


def ended(job: Job, host: str, work: Callable[[Request], Result]) -> Finished | Failed:
    """Do a job now, and return its end; raises :class:`Interrupted` and every error that is no BisectorError."""
    try:
        result = work(job.request)
    except Interrupted:
        raise
    except BisectorError as error:
        return Failed(job.id, host, error, now())
    return Finished(job.id, host, result, now())


def of_its_job(news: Finished | Failed, n: int, cell: Cell) -> Finished | Failed:
    """Return the end of trial ``n`` of a cell; a result that belongs to another trial becomes a failed attempt.

    Its figures would be those of another kernel, for whatever reason the two were mixed up.
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
    """Return the end of a job that was cancelled."""
    error = AttemptCancelled(f"job {job.id} was cancelled", "", Stage.CHECKOUT, host)
    return Failed(job.id, host, error, now())
