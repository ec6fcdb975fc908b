"""A SQLite file of bisector: made, opened, checked, and its troubles named; the only module that knows ``sqlite3``.

One process writes, any number read meanwhile (write-ahead log). Every transaction is synchronised to the
disk before it is used: whatever moment the writer is killed at, it is there whole or not at all.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.store.rows import Value
from bisector.store.schema import RUN, Schema

DATABASE = "record.sqlite"
_NEW = ".new"
_COMPANIONS = ("", "-journal", "-wal", "-shm")  # the files SQLite makes for one database
UNFINISHED = frozenset(DATABASE + _NEW + suffix for suffix in _COMPANIONS)
_BUSY_S = 10.0

Row = dict[str, Any]


class NoRoom(InfraError):
    """The file system has no room for what was to be recorded."""


Moment = tuple[int, int]


class Database:
    """An open database; ``connection`` is for whoever looks after SQLite itself."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.connection = connection
        self.path = path

    @classmethod
    @contextmanager
    def create(cls, path: Path, schema: Schema = RUN) -> Iterator[Self]:
        """A new database with empty tables, to be filled in the ``with`` block; it appears under its name at the end.

        Raises :class:`UserError` when there is one already, :class:`InfraError` when it cannot be written.
        """
        if path.exists():
            raise UserError(f"{path} holds a bisection already", f"bisector resume --run-dir {path.parent}")
        new = path.with_name(path.name + _NEW)
        with _translated(path):
            for suffix in _COMPANIONS:
                new.with_name(new.name + suffix).unlink(missing_ok=True)
            with closing(sqlite3.connect(new, isolation_level=None)) as connection:
                connection.executescript(f"BEGIN; {schema.tables}")
                yield cls(connection, path)
                connection.execute(f"PRAGMA application_id = {schema.application_id}")
                connection.execute(f"PRAGMA user_version = {schema.version}")
                connection.execute("COMMIT")
                connection.execute("PRAGMA journal_mode = WAL")  # kept in the file's header
            new.replace(path)

    @classmethod
    def open(cls, path: Path, readonly: bool = False, schema: Schema = RUN) -> Self:
        """Open a database, for reading only beside a process that writes.

        Raises :class:`UserError` when it is not ours or of another version, :class:`InfraError`
        when it is damaged or locked.
        """
        if not path.is_file():
            raise UserError(f"{path.parent} is no run directory: it has no {path.name}", schema.named_by)
        with _translated(path):
            connection = _connect(path, readonly)
            try:
                _check(connection, path, schema)
                if not readonly:
                    _upgrade(connection, schema)
            except BaseException:
                connection.close()
                raise
        return cls(connection, path)

    def close(self) -> None:
        """Close the database; what was added is on disk already."""
        self.connection.close()

    def insert(self, table: str, row: Mapping[str, Value]) -> int:
        """Add a row, inside a transaction; its rowid."""
        names = ", ".join(f'"{name}"' for name in row)
        marks = ", ".join("?" * len(row))
        statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - our names
        cursor = self.connection.execute(statement, tuple(row.values()))
        assert cursor.lastrowid is not None  # noqa: S101 - it is set after every INSERT (PEP 249)
        return cursor.lastrowid

    def select(self, table: str, order: str = "rowid") -> list[Row]:
        """Every row of a table."""
        with _translated(self.path):
            rows = self.connection.execute(f"SELECT * FROM {table} ORDER BY {order}").fetchall()  # noqa: S608 - our names
        return [dict(row) for row in rows]

    @property
    def moment(self) -> Moment:
        """What is another one once anything was recorded, here or by another process (sqlite.org/pragma.html)."""
        with _translated(self.path):
            (others,) = self.connection.execute("PRAGMA data_version").fetchone()
        return others, self.connection.total_changes

    def has(self, table: str) -> bool:
        """Whether there is such a table; an older database that is only read may lack one."""
        with _translated(self.path):
            question = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
            return self.connection.execute(question, (table,)).fetchone() is not None

    def grouped(self, table: str, column: str) -> Mapping[int, list[Row]]:
        """Every row of a table, if there is one, by what one column says; an unknown value has no rows."""
        groups: defaultdict[int, list[Row]] = defaultdict(list)
        for row in self.select(table) if self.has(table) else ():
            groups[row[column]].append(row)
        return groups

    def greatest(self, table: str, column: str) -> int:
        """The greatest number in a column, 0 when the table is empty."""
        with _translated(self.path):
            row = self.connection.execute(f"SELECT coalesce(max({column}), 0) FROM {table}").fetchone()  # noqa: S608 - our names
        return int(row[0])

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Several selects that see the same moment, whatever a writer adds meanwhile."""
        with _translated(self.path):
            self.connection.execute("BEGIN")
            try:
                yield
            finally:
                self.connection.execute("ROLLBACK")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several inserts, all of them or none."""
        with _translated(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise


def _connect(path: Path, readonly: bool) -> sqlite3.Connection:
    uri = path.absolute().as_uri()
    connection = _open(uri + ("?mode=ro" if readonly else "?mode=rw"))
    try:
        connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        connection.close()
        # Nobody writes and the directory is not ours to make -shm in (sqlite.org/wal.html, "Read-Only Databases").
        still = not path.with_name(path.name + "-wal").exists()
        if not (readonly and still and _primary(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)):
            raise
        connection = _open(uri + "?immutable=1")
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        # FULL: a trial is minutes of work, a sync milliseconds; NORMAL may lose the last ones with the power.
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _open(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_S)


def _check(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != schema.application_id:
        raise UserError(f"{path} is a database of something else", schema.named_by)
    if version != schema.version and version not in schema.upgrades:
        age = "a newer" if version > schema.version else "an older"
        raise UserError(
            f"{path} was written by {age} bisector: its schema is version {version}, this one reads {schema.version}",
            "update bisector" if version > schema.version else "use the bisector that wrote it",
        )
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise _damaged(path, answer)


def _upgrade(connection: sqlite3.Connection, schema: Schema) -> None:
    """Bring an older database to our schema, in one transaction; whoever reads it meanwhile sees one of the two."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == schema.version:
        return
    steps = "; ".join(schema.upgrades[step] for step in range(version, schema.version))
    connection.executescript(f"BEGIN IMMEDIATE; {steps}; PRAGMA user_version = {schema.version}; COMMIT")


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
                raise NoRoom(f"no room left to record in {path}", f"df {path.parent}") from error
            case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_IOERR:
                raise InfraError(f"cannot read or write {path}: {error}", unwritable) from error
        raise
