"""What a host knows of the jobs it was given, on its disk: a directory for each, until its result is acknowledged.

``SPOOL/RUN/ID/`` has the spec, from before anything is started; who runs it; progress, which may be lost; and the
result, which appears by rename(2) once the files that belong to it are on the disk. All jobs of a run are done in one
directory beside them, ``SPOOL/RUN/place``, so that make compiles only what differs between two commits.

A job's process holds a lock for its life (flock(2)), which the kernel gives back whatever it dies of: a job without a
result is running as long as that lock is held, and lost afterwards. It is never begun a second time under its number.
"""

import fcntl
import os
import pickle
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError, UserError
from bisector.core.events import Event, StageStarted
from bisector.executor.base import Failed, Finished
from bisector.executor.spec import Key, Spec
from bisector.host.detached import ProcessIdentity
from bisector.host.files import remove_whole
from bisector.store.rundir import state_home

PLACE = "place"
SOURCES = "sources.git"
_TRANSFERS = "transfers"
_SPEC, _RUNNER, _RESULT, _EVENTS, _LOCK, _CANCELLED = "spec", "runner", "result", "events", "lock", "cancelled"
_TURN = "turn"
_MOST_EVENTS_BYTES = 4 << 20
_FRAME = struct.Struct(">I")
_LOCK_S = 1.0  # longer than anybody's look at who holds it


class Standing(StrEnum):
    """How a job stands on its host; LOST when its process died without a result."""

    RUNNING = "running"
    DONE = "done"
    LOST = "lost"


def spool_home() -> Path:
    """The usual spool of a user."""
    return state_home() / "spool"


def places() -> Iterator[Path]:
    """The directories in which jobs of other hosts' runs are done, in the usual spool."""
    return spool_home().glob(f"*/{PLACE}")


@dataclass(frozen=True, slots=True)
class Entry:
    """The directory of one job."""

    key: Key
    path: Path

    @property
    def place(self) -> Path:
        """Where the work of its run is done."""
        return self.path.parent / PLACE

    @property
    def log(self) -> Path:
        """What its process wrote."""
        return self.path / "log"

    @property
    def files(self) -> Path:
        """The files that belong to its result."""
        return self.path / "files"

    @property
    def exists(self) -> bool:
        """Whether the job was taken."""
        return (self.path / _SPEC).exists()

    @property
    def taken_at(self) -> float:
        """When it was taken (seconds since 1970); raises ``FileNotFoundError`` for one that is forgotten."""
        return (self.path / _SPEC).stat().st_mtime

    @property
    def standing(self) -> Standing:
        """How it stands; the result is looked for last, since it is written under the lock."""
        running = self._held()
        if (self.path / _RESULT).exists():
            return Standing.DONE
        return Standing.RUNNING if running else Standing.LOST

    @property
    def runs(self) -> bool:
        """Whether its process lives, whatever it has written."""
        return self._held()

    @property
    def cancelled(self) -> bool:
        """Whether somebody wanted it to end."""
        return (self.path / _CANCELLED).exists()

    def _held(self) -> bool:
        return is_locked(self.path / _LOCK)

    @contextmanager
    def locked(self) -> Iterator[int | None]:
        """The job's lock as an open file, to be handed on to its process; None when somebody holds it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / _LOCK).open("ab") as file:
            try:
                Deadline("lock", _LOCK_S).poll(lambda: _try_lock(file))
            except DeadlineExpired:
                yield None
            else:
                yield file.fileno()

    def take(self, spec: Spec) -> None:
        """Keep the spec of a job that is about to be started."""
        _write(self.path / _SPEC, pickle.dumps(spec))

    def spec(self) -> Spec:
        """The spec; raises :class:`InfraError` for one that cannot be read."""
        found = self._read(_SPEC)
        if not isinstance(found, Spec):
            raise self._unreadable(_SPEC, "it is no spec")
        return found

    def check(self, spec: Spec) -> None:
        """Raise :class:`UserError` for a spec that is other work under the number of this one."""
        if differs := self.spec().differs(spec):
            raise UserError(
                f"job {self.key} was given to this host before, with other {differs}",
                f"two coordinators may use one run directory, or a copy of it: {self.path}",
            )

    def sign(self, runner: ProcessIdentity) -> None:
        """Write which process does it: after a power failure there is none."""
        _write(self.path / _RUNNER, pickle.dumps(runner), lasts=False)

    def runner(self) -> ProcessIdentity | None:
        """The process that does it, or did; None before it has signed."""
        if not (self.path / _RUNNER).exists():
            return None
        found = self._read(_RUNNER)
        if not isinstance(found, ProcessIdentity):
            raise self._unreadable(_RUNNER, "it names no process")
        return found

    def cancel(self) -> None:
        """Note that it is to end; what ends it is the caller's."""
        _write(self.path / _CANCELLED, b"")

    def finish(self, news: Finished | Failed) -> None:
        """Keep the result, once its files are on the disk; what was told meanwhile may be lost."""
        sync_directories(self.files)
        _write(self.path / _RESULT, pickle.dumps(news))

    def result(self) -> Finished | Failed | None:
        """The result, if there is one."""
        if not (self.path / _RESULT).exists():
            return None
        found = self._read(_RESULT)
        if not isinstance(found, Finished | Failed):
            raise self._unreadable(_RESULT, "it is no result")
        return found

    def tell(self, event: Event) -> None:
        """Add to the progress; what is old is forgotten where it is too much."""
        frame = pickle.dumps((time.time(), event))
        with suppress(OSError), (self.path / _EVENTS).open("ab") as file:  # a full disk shows where facts are written
            if file.tell() > _MOST_EVENTS_BYTES:
                file.truncate(0)
            file.write(_FRAME.pack(len(frame)) + frame)

    def progress(self, offset: int) -> tuple[tuple[Event, ...], int]:
        """What was told after ``offset`` bytes, and the offset of what comes next."""
        told, offset = self._told(offset)
        return tuple(event for _, event in told), offset

    def stage(self) -> tuple[StageStarted, float] | None:
        """The stage that it began last, and when (seconds since 1970)."""
        told, _ = self._told(0)
        return next(((event, at) for at, event in reversed(told) if isinstance(event, StageStarted)), None)

    def _told(self, offset: int) -> tuple[list[tuple[float, Event]], int]:
        events: list[tuple[float, Event]] = []
        with suppress(OSError, pickle.UnpicklingError, EOFError), (self.path / _EVENTS).open("rb") as file:
            if offset > file.seek(0, os.SEEK_END):
                offset = 0
            file.seek(offset)
            while (frame := _frame(file)) is not None:
                offset = file.tell()
                events.append(pickle.loads(frame))  # noqa: S301 - written by this user's own job
        return events, offset

    def remove(self) -> None:
        """Forget the job; a half that is left after a power failure is no job any more."""
        gone = self.path.with_name(f".gone-{self.path.name}")
        with suppress(FileNotFoundError):
            remove_whole(gone)
            self.path.rename(gone)
            remove_whole(gone)

    def _read(self, name: str) -> object:
        try:
            return pickle.loads((self.path / name).read_bytes())  # noqa: S301 - this user's own directory
        except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError) as error:
            raise self._unreadable(name, str(error)) from error

    def _unreadable(self, name: str, why: str) -> InfraError:
        return InfraError(f"cannot read {self.path / name}: {why}", "another version of bisector may have written it")


@dataclass(frozen=True, slots=True)
class Spool:
    """All jobs of a host."""

    home: Path

    @property
    def lock(self) -> Path:
        """The file that its worker has locked."""
        return self.home / _LOCK

    def entry(self, key: Key) -> Entry:
        """That of a job, there or not; raises :class:`UserError` for a key that is no name."""
        if not key.is_sound:
            raise UserError(f"{str(key)!r} is no number of a job")
        return Entry(key, self.home / key.run / str(key.id))

    @property
    def sources(self) -> Path:
        """The repository that the jobs of all runs are built from."""
        return self.home / SOURCES

    @property
    def transfers(self) -> Path:
        """Files on their way from or to the coordinator."""
        return self.home / _TRANSFERS

    def place(self, run: str) -> Path:
        """Where the work of a run is done."""
        return self.home / run / PLACE

    def entries(self) -> Iterator[Entry]:
        """All jobs that were taken."""
        for path in sorted(self.home.glob("*/*")):
            if path.name.isdecimal() and (entry := Entry(Key(path.parent.name, int(path.name)), path)).exists:
                yield entry

    def held(self) -> Mapping[str, Mapping[int, Standing]]:
        """How the jobs of each run stand."""
        found: dict[str, dict[int, Standing]] = {}
        for entry in self.entries():
            found.setdefault(entry.key.run, {})[entry.key.id] = entry.standing
        return found

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Begin a job, or remove what is left, while nobody else does, in any process; who does is waited for."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / _TURN).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Be the one worker of this spool; raises :class:`UserError` where there is another one."""
        self.home.mkdir(parents=True, exist_ok=True)
        with self.lock.open("ab") as file:
            try:
                Deadline("lock", _LOCK_S).poll(lambda: _try_lock(file))
            except DeadlineExpired as error:
                raise UserError(
                    f"another worker uses {self.home}", f"fuser -v {self.lock}; or another --spool DIR"
                ) from error
            yield


def is_locked(path: Path) -> bool:
    """Whether anybody holds a lock (flock(2)); False where there is no such file."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _try_lock(file: BinaryIO) -> bool | None:
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return None


def _frame(file: BinaryIO) -> bytes | None:
    """The next whole one; half a frame is the last that a killed process wrote."""
    head = file.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return None
    (length,) = _FRAME.unpack(head)
    frame = file.read(length)
    return frame if len(frame) == length else None


def _write(path: Path, content: bytes, *, lasts: bool = True) -> None:
    """A file that is there whole or not at all, also after a power failure if it ``lasts``; raises ``OSError``."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        if lasts:
            os.fsync(file.fileno())
    new.rename(path)
    if lasts:
        sync(path.parent)


def sync(path: Path) -> None:
    """Bring a directory, or a file, to the disk (fsync(2))."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_directories(top: Path) -> None:
    """Bring all that is below a directory to the disk."""
    for directory, _, files in os.walk(top):
        for name in files:
            if not Path(directory, name).is_symlink():
                sync(Path(directory, name))
        sync(Path(directory))
