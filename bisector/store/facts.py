"""What the record of a bisection grows by, and how each fact becomes rows: values, each one whole.

A submission is recorded before an executor gets it, and its end together with what came of it. So a process that was
killed leaves the submissions that it had in flight, and none that is half done.
:meth:`bisector.store.store.Store.add` is the one that writes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from bisector.core.deadline import since_boot_s
from bisector.core.figures import Run
from bisector.core.subject import Compiler, Mattering, NotChanged
from bisector.core.trial import Control, Trial
from bisector.host.detached import boot_id
from bisector.search.noise import Earlier
from bisector.store.comparison import Block, Budget, Place
from bisector.store.database import Database
from bisector.store.rows import InfraFaultRow, StateRow, Value, columns


class Work(StrEnum):
    """What an executor was asked to do."""

    TRIAL = "trial"
    CONTROL = "control"
    BUILD = "build"
    RECHECK = "recheck"


class Ending(StrEnum):
    """What became of a submission.

    LOST when its process was killed, CANCELLED when nobody needed it any more, and SILENT when nothing was heard of its
    host for too long: a trial may come of that all the same, and has its number.
    """

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"
    CANCELLED = "cancelled"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Submitted:
    """Work on a commit that an executor is about to be given; ``n`` is the number of the trial that it makes, if any.

    ``host`` is where it is to be done, empty where the executor may choose. In a comparison ``block`` and ``arm`` say
    where a trial belongs (:class:`bisector.store.comparison.Place`).
    """

    work: Work
    sha: str
    n: int | None = None
    host: str = ""
    block: int | None = None
    arm: int | None = None


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

    ``vouched_by`` is the number of the control by which its fault is known to be the kernel's own, counted from 1;
    ``place`` is where it belongs in a comparison.
    """

    n: int
    trial: Trial
    vouched_by: int | None = None
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class BuildTry:
    """Whether a compiler builds a commit: ``reason`` says why not, and is empty when it does.

    ``fragment`` is that of :class:`bisector.core.subject.Subject`.
    """

    compiler: Compiler
    sha: str
    reason: str
    fragment: str = ""


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """A kernel that was measured was built once more, apart from all others: what is loaded has the same digest.

    ``why_not`` says why that cannot be told, and is empty where it can.
    """

    sha: str
    content_sha256: str
    why_not: str = ""


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
    | Block
    | Budget
    | BuildTry
    | KernelCheck
    | Compilers
    | InfraFaultRow
    | Earlier
    | Mattering
    | NotChanged
    | Skip
    | StateRow
)


# Columns of early stops that are not called as the fields: see the schema.
STOP_FIELDS = {"bound_iops": "bound", "threshold_iops": "threshold"}


def named(row: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A row with some of its columns under other names."""
    return {names.get(name, name): value for name, value in row.items()}


def write(database: Database, fact: Fact) -> int:
    """Add a fact, inside a transaction; the number of its row."""
    return _WRITERS[type(fact)](database, fact)


def now() -> str:
    """The time of recording."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _add_trial(database: Database, one: NumberedTrial) -> int:
    n, trial = one.n, one.trial
    # The parameters and the fragment of a subject are on record with the arm that the trial is of.
    built = {"kind": trial.subject.kind.value, "changed_by": trial.subject.changed_by}
    cell = {**columns(trial.commit), **built, **columns(trial.setup)}
    database.insert("trials", {"n": n, **cell, **columns(trial), **columns(trial.timings)})
    of_one = {"faults": trial.fault, "kernels": trial.kernel, "origins": trial.origin, "eras": trial.era}
    for table, record in of_one.items():
        if record is not None:
            database.insert(table, {"trial": n, **columns(record)})
    for artifact in trial.artifacts:
        database.insert("artifacts", {"trial": n, **columns(artifact)})
    for run in trial.runs:
        _add_run(database, n, run)
    if one.vouched_by is not None:
        database.insert("vouched", {"trial": n, "control": one.vouched_by})
    if one.place is not None:
        database.insert("placed", {"trial": n, **columns(one.place)})
    return n


def _add_run(database: Database, n: int, run: Run) -> None:
    contention = columns(run.contention) if run.contention is not None else {}
    run_id = database.insert("runs", {"trial": n, **columns(run), **contention})
    for job in run.jobs:
        cpu = columns(job.cpu) if job.cpu is not None else {}
        job_id = database.insert("jobs", {"run": run_id, **columns(job), **cpu})
        for latency in job.latencies:
            database.insert("latencies", {"job": job_id, **columns(latency)})
    for moment, status in (("before", run.cache_before), ("after", run.cache_after)):
        if status is not None:
            database.insert("caches", {"run": run_id, "moment": moment, **columns(status)})
    for disk in run.disks:
        database.insert("disks", {"run": run_id, **columns(disk)})
    if run.stopped_early is not None:
        stop = named(columns(run.stopped_early), {field: column for column, field in STOP_FIELDS.items()})
        database.insert("early_stops", {"run": run_id, **stop})


def _add_compilers(database: Database, one: Compilers) -> int:
    for compiler in one.compilers:
        database.insert("compilers", columns(compiler))
    return len(one.compilers)


def _add_mattering(database: Database, mattering: Mattering) -> int:
    for sha in sorted(mattering.shas):
        database.insert("mattering", {"sha": sha})
    return database.insert("relevance", {"id": 1, **columns(mattering.relevance)})


def _row(table: str) -> Callable[[Database, Any], int]:
    """A fact whose fields are the columns of one row."""
    return lambda database, fact: database.insert(table, columns(fact))


def _row_now(table: str) -> Callable[[Database, Any], int]:
    """The same with the time of recording."""
    return lambda database, fact: database.insert(table, {"at": now(), **columns(fact)})


def _since_boot() -> dict[str, Value]:
    """The time of recording by a clock that nobody sets, for what lasts from one row to another."""
    return {"boot_id": boot_id(), "since_boot_s": since_boot_s()}


def _row_of_process(table: str) -> Callable[[Database, Any], int]:
    """The same by both clocks, and with the process that records it, which is known by the state that it entered."""
    return lambda database, fact: database.insert(
        table, {"at": now(), **_since_boot(), "process": database.greatest("states", "id"), **columns(fact)}
    )


_WRITERS: dict[type[Fact], Callable[[Database, Any], int]] = {
    Submitted: _row_of_process("submitted"),
    Ended: _row_of_process("ended"),
    NumberedTrial: _add_trial,
    Control: _row("controls"),
    Block: _row_now("blocks"),
    Budget: _row_now("budgets"),
    BuildTry: lambda database, one: database.insert("build_tries", {**columns(one.compiler), **columns(one)}),
    Compilers: _add_compilers,
    KernelCheck: _row_now("kernel_checks"),
    InfraFaultRow: _row("infra_faults"),
    Earlier: _row("earlier"),
    Mattering: _add_mattering,
    NotChanged: _row("not_changed"),
    Skip: _row_now("skips"),
    StateRow: lambda database, state: database.insert("states", {**_since_boot(), **columns(state)}),
}
