"""The facts of one bisection in SQLite; the only module that knows ``sqlite3``.

One process writes, any number read meanwhile (write-ahead log). Every fact is one transaction,
synchronised to the disk before it is used: whatever moment the writer is killed at, a fact is there
whole or not at all.
"""

import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bisector.errors import BisectorError, InfraError, UserError
from bisector.model import (
    Artifact,
    CacheStatus,
    Commit,
    Contention,
    Fault,
    JobFigures,
    Kernel,
    Run,
    State,
    Timings,
    Trial,
)
from bisector.record import schema
from bisector.record.rows import BisectionRow, InfraFaultRow, StateRow, Value, build, columns

DATABASE = "record.sqlite"
_NEW = ".new"
_COMPANIONS = ("", "-journal", "-wal", "-shm")  # the files SQLite makes for one database
UNFINISHED = frozenset(DATABASE + _NEW + suffix for suffix in _COMPANIONS)
_BUSY_S = 10.0

Grouped = Mapping[int, list[dict[str, Any]]]


class Store:
    """An open database; a context manager. Numbers ``n`` of trials start at 1, in order of measuring."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path

    @classmethod
    def create(cls, path: Path, bisection: BisectionRow) -> Self:
        """Make a database that holds ``bisection`` and no trials yet.

        It appears under its name when it is complete. Raises :class:`UserError` when there is one
        already, :class:`InfraError` when it cannot be written.
        """
        if path.exists():
            raise UserError(f"{path} holds a bisection already", f"bisector resume --run-dir {path.parent}")
        new = path.with_name(path.name + _NEW)
        with _translated(path):
            for suffix in _COMPANIONS:
                new.with_name(new.name + suffix).unlink(missing_ok=True)
            with closing(sqlite3.connect(new, isolation_level=None)) as connection:
                connection.executescript(f"BEGIN; {schema.TABLES}")
                _insert(connection, "bisection", {"id": 1, **columns(bisection)})
                connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {schema.VERSION}")
                connection.execute("COMMIT")
                connection.execute("PRAGMA journal_mode = WAL")  # kept in the file's header
            new.replace(path)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path, readonly: bool = False) -> Self:
        """Open a database, for reading only beside a process that writes.

        Raises :class:`UserError` when it is not ours or of another version, :class:`InfraError`
        when it is damaged or locked.
        """
        if not path.is_file():
            raise UserError(f"{path.parent} is no run directory: it has no {path.name}", _WHERE_RUNS_ARE)
        with _translated(path):
            connection = _connect(path, readonly)
            try:
                _check(connection, path)
            except BaseException:
                connection.close()
                raise
        return cls(connection, path)

    def close(self) -> None:
        """Close the database; what was added is on disk already."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def bisection(self) -> BisectionRow:
        """What was asked for."""
        return build(BisectionRow, self._select("bisection")[0])

    @property
    def next_n(self) -> int:
        """The number that the next trial will get."""
        with _translated(self.path):
            row = self._connection.execute("SELECT coalesce(max(n), 0) + 1 FROM trials").fetchone()
        return int(row[0])

    def add_trial(self, trial: Trial) -> int:
        """Record the facts of a trial, all of them or none; its number."""
        with self._transaction() as connection:
            facts = {**columns(trial.commit), **columns(trial), **columns(trial.timings)}
            n = _insert(connection, "trials", facts)
            if trial.fault is not None:
                _insert(connection, "faults", {"trial": n, **columns(trial.fault)})
            if trial.kernel is not None:
                _insert(connection, "kernels", {"trial": n, **columns(trial.kernel)})
            for artifact in trial.artifacts:
                _insert(connection, "artifacts", {"trial": n, **columns(artifact)})
            for run in trial.runs:
                _add_run(connection, n, run)
        return n

    def trials(self) -> tuple[tuple[int, Trial], ...]:
        """Every trial with its number, equal to what was added, as of one moment."""
        with self._snapshot():
            trials = self._select("trials", "n")
            faults, kernels = self._grouped("faults", "trial"), self._grouped("kernels", "trial")
            artifacts = self._grouped("artifacts", "trial")
            runs = self._runs()
        return tuple(
            (
                row["n"],
                build(
                    Trial,
                    row,
                    commit=build(Commit, row),
                    timings=build(Timings, row),
                    fault=next((build(Fault, one) for one in faults[row["n"]]), None),
                    kernel=next((build(Kernel, one) for one in kernels[row["n"]]), None),
                    artifacts=tuple(build(Artifact, one) for one in artifacts[row["n"]]),
                    runs=tuple(runs[row["n"]]),
                ),
            )
            for row in trials
        )

    def _runs(self) -> Mapping[int, list[Run]]:
        jobs, caches = self._grouped("jobs", "run"), self._grouped("caches", "run")
        runs: defaultdict[int, list[Run]] = defaultdict(list)
        for row in self._select("runs", "id"):
            cache = {one["moment"]: build(CacheStatus, one) for one in caches[row["id"]]}
            run = build(
                Run,
                row,
                jobs=tuple(build(JobFigures, one) for one in jobs[row["id"]]),
                cache_before=cache.get("before"),
                cache_after=cache.get("after"),
                contention=build(Contention, row),
            )
            runs[row["trial"]].append(run)
        return runs

    def add_infra_fault(self, fault: InfraFaultRow) -> None:
        """Record an attempt that says nothing about its commit."""
        with self._transaction() as connection:
            _insert(connection, "infra_faults", columns(fault))

    def infra_faults(self) -> tuple[InfraFaultRow, ...]:
        """Every attempt that failed by our fault, oldest first."""
        return tuple(build(InfraFaultRow, row) for row in self._select("infra_faults", "id"))

    def set_state(self, state: State, message: str = "") -> None:
        """Record that this process brought the bisection into ``state``, now."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._transaction() as connection:
            _insert(connection, "states", columns(StateRow(now, state, message, os.getpid())))

    def state(self) -> StateRow | None:
        """The last state recorded; a killed process leaves "running", see :func:`rundir.state_of`."""
        rows = self._select("states", "id")
        return build(StateRow, rows[-1]) if rows else None

    def _select(self, table: str, order: str = "rowid") -> list[dict[str, Any]]:
        with _translated(self.path):
            rows = self._connection.execute(f"SELECT * FROM {table} ORDER BY {order}").fetchall()  # noqa: S608 - our names
        return [dict(row) for row in rows]

    def _grouped(self, table: str, column: str) -> Grouped:
        groups: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in self._select(table):
            groups[row[column]].append(row)
        return groups

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Several selects that see the same moment, whatever a writer adds meanwhile."""
        with _translated(self.path):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("ROLLBACK")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _translated(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def _add_run(connection: sqlite3.Connection, n: int, run: Run) -> None:
    run_id = _insert(connection, "runs", {"trial": n, **columns(run), **columns(run.contention)})
    for job in run.jobs:
        _insert(connection, "jobs", {"run": run_id, **columns(job)})
    for moment, status in (("before", run.cache_before), ("after", run.cache_after)):
        if status is not None:
            _insert(connection, "caches", {"run": run_id, "moment": moment, **columns(status)})


def _insert(connection: sqlite3.Connection, table: str, row: Mapping[str, Value]) -> int:
    names = ", ".join(f'"{name}"' for name in row)
    marks = ", ".join("?" * len(row))
    cursor = connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))  # noqa: S608 - our names
    assert cursor.lastrowid is not None  # noqa: S101 - it is set after every INSERT (PEP 249)
    return cursor.lastrowid


_WHERE_RUNS_ARE = "--run-dir names a directory that `bisector start` made"


def _connect(path: Path, readonly: bool) -> sqlite3.Connection:
    uri = path.absolute().as_uri()
    connection = _open(uri + ("?mode=ro" if readonly else "?mode=rw"))
    try:
        connection.execute("PRAGMA schema_version")
    except sqlite3.OperationalError as error:
        connection.close()
        # Nobody writes and the directory is not ours to make -shm in (sqlite.org/wal.html, "Read-Only Databases").
        still = not path.with_name(path.name + "-wal").exists()
        if not (readonly and still and _primary(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)):
            raise
        connection = _open(uri + "?immutable=1")
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    # FULL: a trial is minutes of work, a sync milliseconds; NORMAL may lose the last ones with the power.
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _open(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_S)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != schema.APPLICATION_ID:
        raise UserError(f"{path} is a database of something else", _WHERE_RUNS_ARE)
    if version != schema.VERSION:
        age = "a newer" if version > schema.VERSION else "an older"
        raise UserError(
            f"{path} was written by {age} bisector: its schema is version {version}, this one reads {schema.VERSION}",
            "update bisector" if version > schema.VERSION else "use the bisector that wrote it",
        )
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise _damaged(path, answer)


def _damaged(path: Path, why: str) -> BisectorError:
    return InfraError(
        f"{path} is damaged: {why}",
        f"what is left of it: sqlite3 {path} .recover; the files of each trial are in {path.parent}/trials",
    )


def _primary(error: sqlite3.Error) -> int:
    """The primary result code; the extended ones add higher bits (sqlite.org/rescode.html)."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """SQLite's troubles of disk and file as ours; misuse of SQLite stays a bug."""
    unwritable = f"ls -ld {path.parent} {path}"
    try:
        yield
    except OSError as error:
        raise InfraError(f"cannot write {path}: {error.strerror}", unwritable) from error
    except sqlite3.DatabaseError as error:
        match _primary(error):
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                raise _damaged(path, str(error)) from error
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                hint = f"which process: fuser -v {path}"
                raise InfraError(f"{path} was locked by another process for {_BUSY_S:g} s", hint) from error
            case sqlite3.SQLITE_FULL:
                raise InfraError(f"no room left to record in {path}", f"df {path.parent}") from error
            case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_IOERR:
                raise InfraError(f"cannot read or write {path}: {error}", unwritable) from error
        raise
