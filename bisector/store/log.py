"""A record on disk: an append-only log of facts in one SQLite file. No other module uses ``sqlite3``.

A fact is a frozen dataclass. Its row has a number, the time of recording, the name of its class, and its fields as
JSON. Rows are never changed or removed, so each one is read once. One process writes, and any number may read meanwhile
(write-ahead log). Every transaction is synchronised to the disk before it is used: if the writer is killed at any
moment, the transaction is there as a whole or not at all.
"""

import json
import sqlite3
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, cast

import msgspec

from bisector.core.deadline import since_boot_s
from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.host.identity import boot_id

DATABASE = "record.sqlite"
_NEW = ".new"
_COMPANIONS = ("", "-journal", "-wal", "-shm")  # the suffixes of the files that SQLite makes for one database
UNFINISHED = frozenset(DATABASE + _NEW + suffix for suffix in _COMPANIONS)
_BUSY_S = 10.0

APPLICATION_ID = 0x62736374  # "bsct", at offset 68 of the file (sqlite.org/fileformat.html)
# Increase this if a kind of fact, or a field, is added, renamed or removed. A field that is newer than a record has its
# default there. A record that is newer than this module is refused: what would be ignored might bear a verdict.
VERSION = 30
_FIRST_LOG = 29  # before, each kind of fact had tables of its own
_LAST_WITH_TABLES = "12728732"
_NAMED_BY = "--run-dir names a directory that `bisector start` made"

_TABLES = """
CREATE TABLE facts (id INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL) STRICT;
CREATE UNIQUE INDEX trial_once ON facts (json_extract(body, '$.n')) WHERE kind = 'NumberedTrial';
CREATE UNIQUE INDEX end_once ON facts (json_extract(body, '$.submission')) WHERE kind = 'Ended';

CREATE VIEW trials AS SELECT
    json_extract(body, '$.n') AS n,
    json_extract(body, '$.trial.cell.subject.commit.sha') AS sha,
    json_extract(body, '$.trial.cell.subject.commit.subject') AS subject,
    json_extract(body, '$.trial.cell.setup.stack') AS stack,
    json_extract(body, '$.trial.cell.setup.workload') AS workload,
    json_extract(body, '$.trial.host') AS host,
    json_extract(body, '$.trial.started_at') AS started_at,
    json_extract(body, '$.trial.stage') AS stage,
    json_extract(body, '$.trial.fault.reason') AS fault,
    json_extract(body, '$.trial.timings.build_s') AS build_s,
    json_extract(body, '$.trial.timings.total_s') AS total_s
FROM facts WHERE kind = 'NumberedTrial';

CREATE VIEW figures AS SELECT
    json_extract(body, '$.n') AS n,
    json_extract(run.value, '$.name') AS run,
    json_extract(job.value, '$.name') AS job,
    json_extract(job.value, '$.direction') AS direction,
    json_extract(job.value, '$.iops_mean') AS iops_mean,
    json_extract(job.value, '$.bw_kib_s') AS bw_kib_s,
    json_extract(job.value, '$.clat_mean_ns') AS clat_mean_ns,
    json_extract(job.value, '$.clat_p99_ns') AS clat_p99_ns
FROM facts, json_each(body, '$.trial.runs') AS run, json_each(run.value, '$.jobs') AS job
WHERE kind = 'NumberedTrial';
"""

T = TypeVar("T")
_Row = tuple[int, str, str]


class NoRoom(InfraError):
    """The file system has no room for what was to be recorded."""


@dataclass(frozen=True, slots=True)
class LogEntry(Generic[T]):
    """A fact, its number in the log, and its time: by the wall clock (ISO 8601), and in seconds since which boot."""

    id: int
    at: str
    boot_id: str
    since_boot_s: float
    fact: T


@dataclass(frozen=True, slots=True)
class _Stamp:
    boot_id: str
    since_boot_s: float


@dataclass(frozen=True, slots=True)
class _Stamped:
    """The key of each body that is not its fact's: a wall clock may be set between two facts, this clock never is."""

    recorded: _Stamp


_STAMP = msgspec.json.Decoder(_Stamped)


class Log:
    """An open record; ``connection`` is for code that deals with SQLite itself."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.connection = connection
        self.path = path
        self.last = 0  # the number of the last row that was read
        self._unread: defaultdict[str, deque[_Row]] = defaultdict(deque)
        self._entries: defaultdict[str, list[LogEntry[Any]]] = defaultdict(list)

    @classmethod
    def create(cls, path: Path, facts: Iterable[object] = ()) -> Self:
        """Create a record that appears with all ``facts`` in it; raises :class:`UserError` and :class:`InfraError`."""
        if path.exists():
            raise UserError(f"{path} holds a bisection already", f"bisector resume --run-dir {path.parent}")
        new = path.with_name(path.name + _NEW)
        with _translated(path):
            for suffix in _COMPANIONS:
                new.with_name(new.name + suffix).unlink(missing_ok=True)
            with closing(sqlite3.connect(new, isolation_level=None)) as connection:
                connection.executescript(f"BEGIN; {_TABLES}")
                for fact in facts:
                    _insert(connection, fact)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
                connection.execute("COMMIT")
                connection.execute("PRAGMA journal_mode = WAL")  # kept in the file's header
            new.replace(path)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path, readonly: bool = False) -> Self:
        """Open a record; :class:`UserError` for another version, :class:`InfraError` for a damaged or locked one."""
        if not path.is_file():
            raise UserError(f"{path.parent} is not a run directory: it has no {path.name}", _NAMED_BY)
        uri = path.absolute().as_uri()
        with _translated(path), ExitStack() as opened:
            connection = opened.enter_context(closing(_connect(f"{uri}?mode={'ro' if readonly else 'rw'}")))
            try:
                connection.execute("PRAGMA schema_version")
            except sqlite3.Error as error:
                # No process writes, and this one may not create -shm in the directory (sqlite.org/wal.html, "Read-Only
                # Databases").
                still = not path.with_name(path.name + "-wal").exists()
                if not (readonly and still and _primary(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)):
                    raise
                connection = opened.enter_context(closing(_connect(f"{uri}?immutable=1")))
            # FULL: a trial takes minutes, a sync milliseconds; NORMAL may lose the last transactions in a power cut.
            connection.execute("PRAGMA synchronous = FULL")
            _check(connection, path)
            opened.pop_all()
        return cls(connection, path)

    def close(self) -> None:
        """Close the record; all facts are on disk already."""
        self.connection.close()

    def add(self, *facts: object) -> int:
        """Append all facts or none, and return the number of the first one. Raises :class:`InfraError`."""
        with self.transaction():
            first, *_ = [_insert(self.connection, fact) for fact in facts]
        return first

    def refresh(self) -> int:
        """Read the facts that any process appended since; return the number of the last fact, or 0 without any."""
        with _translated(self.path):
            rows = self.connection.execute(
                "SELECT id, at, kind, body FROM facts WHERE id > ? ORDER BY id", (self.last,)
            )
            for id_, at, kind, body in rows.fetchall():
                self._unread[kind].append((id_, at, body))
                self.last = id_
        return self.last

    def of(self, kind: type[T]) -> Sequence[LogEntry[T]]:
        """Every fact of a kind, oldest first, as of the last :meth:`refresh`; raises :class:`InfraError` for damage."""
        entries = self._entries[kind.__name__]
        if unread := self._unread[kind.__name__]:
            # The only type in facts that msgspec cannot decode by itself is Path.
            decoder = msgspec.json.Decoder(kind, dec_hook=lambda custom, value: custom(value))
            while unread:
                id_, at, body = unread[0]
                try:
                    stamp = _STAMP.decode(body).recorded
                    entries.append(LogEntry(id_, at, stamp.boot_id, stamp.since_boot_s, decoder.decode(body)))
                except (msgspec.DecodeError, ValueError) as error:
                    raise _damaged(self.path, f"fact {id_}, {kind.__name__}: {error}") from error
                unread.popleft()
        return cast("Sequence[LogEntry[T]]", entries)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Add several facts, all of them or none."""
        with _translated(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise


def now() -> str:
    """The time of recording, UTC in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _insert(connection: sqlite3.Connection, fact: object) -> int:
    plain = msgspec.to_builtins(fact, enc_hook=_plain)
    stamp = {"recorded": {"boot_id": boot_id(), "since_boot_s": since_boot_s()}}
    try:
        body = json.dumps(plain | stamp, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise InfraError("a figure for the record is not a number, or is infinite") from error
    # Logs may contain anything, even halves of surrogate pairs, which UTF-8 cannot represent.
    text = body.encode("utf-8", "replace").decode("utf-8")
    row = (now(), type(fact).__name__, text)
    return cast("int", connection.execute("INSERT INTO facts (at, kind, body) VALUES (?, ?, ?)", row).lastrowid)


def _plain(value: object) -> object:
    """Convert what msgspec has no form for."""
    match value:
        case Path():
            return str(value)
        case float():  # a float of numpy
            return float(value)
    raise NotImplementedError(f"{type(value).__name__} has no form in a record")


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_S)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise UserError(f"{path} is a database of something else", _NAMED_BY)
    if version < _FIRST_LOG:
        raise UserError(
            f"{path} was written by an older bisector; the last commit that reads it is {_LAST_WITH_TABLES}",
            f"git checkout {_LAST_WITH_TABLES} in the sources of bisector, or another run directory to measure in",
        )
    if version > VERSION:
        raise UserError(
            f"{path} was written by a newer bisector: its version is {version}, this one reads {VERSION}",
            "update bisector",
        )
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise _damaged(path, answer)


def _damaged(path: Path, why: str) -> BisectorError:
    return InfraError(
        f"{path} is damaged: {why}",
        f"what is left of it: sqlite3 {path} .recover; the files of each trial are below {path.parent}",
    )


def _primary(error: sqlite3.Error) -> int:
    """The primary result code; the extended ones add higher bits (sqlite.org/rescode.html)."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Translate SQLite's errors of disk and file into bisector's; misuse of SQLite remains a bug."""
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
                raise NoRoom(f"no room left to record in {path}", f"df {path.parent}") from error
            case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_IOERR:
                raise InfraError(f"cannot read or write {path}: {error}", unwritable) from error
        raise
