"""The directory of a run: its database, the files of its trials, the lock of its process; and the index of all runs."""

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError, UserError
from bisector.core.verdict import State
from bisector.host.files import is_scratch, our_files, write_atomically
from bisector.host.locks import Held, Holder, held, holder_of, locked
from bisector.store.log import DATABASE, UNFINISHED
from bisector.store.run_files import INPUTS, TRIALS

# The store loads numpy for what the search knows of earlier runs, and that takes long. Most questions about a run
# directory, and all about settings, need neither.
if TYPE_CHECKING:
    from bisector.store.store import Store

LOCK = "lock"
HOSTS = "hosts"  # a file with the path of the list of hosts that measure; without it the run measures on this host
_JOB = "job"  # a file with the name of the job of nights that began the run
GIT_LOG = "bisect.log"
# What a start that was killed before its first fact leaves behind.
_OF_A_START = UNFINISHED | {LOCK, INPUTS, TRIALS}
_NAME_LENGTH = 120  # NAME_MAX is 255 bytes (limits.h); the name is also the tail of longer paths
_LOCK_S = 60.0  # another process adds a run in milliseconds


def state_home() -> Path:
    """The directory of runs and their index (XDG Base Directory Specification, XDG_STATE_HOME)."""
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    # "All paths set in these environment variables must be absolute"; others are ignored.
    home = given if given.is_absolute() else Path.home() / ".local" / "state"
    return home / "bisector"


def jobs_home() -> Path:
    """The directory of jobs for other hosts' runs; a home that hosts share has one for each host."""
    return state_home() / "jobs" / platform.node()


def single_commit_home() -> Path:
    """The directory that has a directory for each repository of ``bisector test`` and ``bisector kernel``."""
    return state_home() / "tests"


def single_commit_directory(repository: Path, fingerprint: str = "") -> Path:
    """The directory for a repository and what its trials depend on; the next process cleans up after a killed one."""
    digest = hashlib.sha256(os.fsencode(repository) + fingerprint.encode()).hexdigest()[:12]
    return single_commit_home() / digest


def run_name(old: str, new: str, now: datetime | None = None) -> str:
    """A name that is safe in any file system, such as ``20261121-033012-v4.11..v4.13-rc1`` (UTC)."""
    ends = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{old}..{new}")
    return f"{(now or datetime.now(UTC)).strftime('%Y%m%d-%H%M%S')}-{ends}"[:_NAME_LENGTH]


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """A run directory that exists; its path is absolute, and the same for every spelling of it (realpath(3))."""

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", self.path.resolve())

    @property
    def database(self) -> Path:
        """The SQLite file; it appears once the bisection is recorded in it, never incomplete."""
        return self.path / DATABASE

    @classmethod
    def create(cls, path: Path | None, name: str) -> Self:
        """Make ``path``, or ``name`` in the state directory; a directory that a killed start left is reused.

        Raises :class:`UserError` if it holds a run or anything else, or cannot be made or written.
        """
        if path:
            directory = Path.cwd() / path
        else:  # two starts in one second get two names; in the rare case of a race the lock decides
            homes = (state_home() / "runs" / one for one in (name, *(f"{name}-{n}" for n in range(2, 100))))
            directory = next((one for one in homes if not one.exists()), state_home() / "runs" / name)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            contents = {entry.name for entry in directory.iterdir() if not is_scratch(entry)}
        except (FileExistsError, NotADirectoryError) as error:
            raise UserError(f"run directory {directory}: {error.filename} is not a directory") from error
        except OSError as error:
            raise UserError(f"cannot make run directory {directory}: {error.strerror}", _ELSEWHERE) from error
        if DATABASE in contents:
            if holder := cls(directory).holder():
                raise UserError(f"run directory {directory} is in use by {holder}", _ELSEWHERE)
            resume = f"go on with it: bisector resume --run-dir {directory}"
            raise UserError(f"run directory {directory} holds a bisection already", resume)
        if contents - _OF_A_START:
            raise UserError(f"{directory} is not empty, and it is not a run directory", _ELSEWHERE)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise UserError(f"run directory {directory} is not writable", _ELSEWHERE)
        return cls(directory)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a run directory that was made before; raises :class:`UserError` if it is not one."""
        directory = Path.cwd() / path
        if cls.is_at(directory):
            return cls(directory)
        if not directory.is_dir():
            raise UserError(f"there is not a run directory {directory}", _MADE_BY_START)
        raise UserError(f"{directory} is not a run directory: it has no {DATABASE}", _MADE_BY_START)

    @classmethod
    def is_at(cls, path: Path) -> bool:
        """Whether there is a run directory with a record; raises :class:`UserError` if that cannot be determined."""
        directory = Path.cwd() / path
        try:
            return directory.is_dir() and (directory / DATABASE).is_file()
        except OSError as error:  # for example in a directory that this user may not enter
            raise UserError(f"{directory} cannot be looked at: {error.strerror}", _MADE_BY_START) from error

    @property
    def hosts(self) -> Path | None:
        """The list of hosts that the run was begun or last resumed with; None if it measures on this host."""
        known = self._remembered(HOSTS)
        return Path(known) if known else None

    def remember_hosts(self, file: Path | None) -> None:
        """Have ``resume`` measure on the same hosts; None leaves the known list of hosts unchanged."""
        if file is not None:
            self._remember(HOSTS, str(file))

    @property
    def job(self) -> str:
        """The job of nights that began the run; empty if a person began it."""
        return self._remembered(_JOB)

    def remember_job(self, name: str) -> None:
        """Remember the job of nights, so that reports name the branch that it fetches."""
        self._remember(_JOB, name)

    def _remembered(self, name: str) -> str:
        with our_files(self.path):
            known = self.path / name
            return known.read_text(encoding="utf-8", errors="surrogateescape").strip() if known.is_file() else ""

    def _remember(self, name: str, text: str) -> None:
        with our_files(self.path):
            write_atomically(self.path / name, f"{text}\n".encode(errors="surrogateescape"))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run directory for this process (flock(2)); raises :class:`UserError` if another one has it."""
        with ExitStack() as lock:
            try:
                lock.enter_context(held(self.path / LOCK))
            except OSError as error:
                what = f"run directory {self.path} is not writable: {error.strerror}"
                raise UserError(what, f"ls -ld {self.path}") from error
            except Held as error:
                what = f"run directory {self.path} is in use by {error.holder}"
                raise UserError(what, "bisector status shows it") from error
            yield

    def holder(self) -> Holder | None:
        """The process that works here now; None if there is none, also if it was killed."""
        return holder_of(self.path / LOCK)


def state_of(run: RunDirectory, store: "Store") -> tuple[State, str]:
    """The run's state and message; a run recorded as running without a process has stopped."""
    last = store.state()
    if last is None or last.state is State.RUNNING:
        if run.holder():
            return State.RUNNING, last.message if last else ""
        return State.STOPPED, f"process {last.pid} ended without a word" if last else "ended before its first trial"
    return last.state, last.message


_ELSEWHERE = "name another one with --run-dir DIRECTORY"
_MADE_BY_START = "--run-dir names a directory that `bisector start` made, or a run that `bisector runs` lists"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A run: its directory, the repository, the ends as typed, the ISO 8601 time of its start, and its number."""

    run_dir: str
    repository: str
    old: str
    new: str
    started_at: str
    number: int = field(default=0, compare=False)


class Index:
    """The list of runs, in a JSON file that is replaced as a whole under a lock."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_home() / "index.json"

    def add(self, entry: IndexEntry) -> None:
        """Add a run whose database exists, with its number, and drop vanished runs. Raises :class:`InfraError`."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Two bisections may start at one moment. Readers need no lock, since the file is replaced.
            lock, wait = self.path.with_suffix(".lock"), Deadline("the list of runs", _LOCK_S)
            with locked(lock, wait=wait, flags=os.O_RDWR | os.O_CREAT):
                number = 1 + max((one.number for one in self._all()), default=0)
                others = [one for one in self.entries() if one.run_dir != entry.run_dir]
                runs = [asdict(one) for one in (*others, replace(entry, number=number))]
                write_atomically(self.path, json.dumps(runs, indent=1).encode())
        except DeadlineExpired as error:
            raise InfraError(f"{self.path} is kept locked by another process", f"fuser -v {lock}") from error
        except OSError as error:
            raise InfraError(f"cannot write {self.path}: {error.strerror}", f"ls -ld {self.path.parent}") from error

    def entries(self) -> tuple[IndexEntry, ...]:
        """The runs that still have a database, in the order of their start; raises :class:`InfraError` for damage."""
        return tuple(one for one in self._all() if (Path(one.run_dir) / DATABASE).is_file())

    def named(self, word: str) -> Path | None:
        """The directory of the run with this number or name; None if there is none."""
        fitting = (Path(one.run_dir) for one in self.entries() if word in (str(one.number), Path(one.run_dir).name))
        return next(fitting, None)

    def _all(self) -> tuple[IndexEntry, ...]:
        """The entries of the file; runs from before entries had numbers are numbered by their place."""
        try:
            listed = json.loads(self.path.read_text(encoding="utf-8"))
            return tuple(IndexEntry(**{"number": number, **one}) for number, one in enumerate(listed, 1))
        except FileNotFoundError:
            return ()
        except (ValueError, TypeError) as error:
            hint = f"rm {self.path}; each run is still there for --run-dir DIRECTORY"
            raise InfraError(f"{self.path} is damaged: {error}", hint) from error
        except OSError as error:
            raise InfraError(f"cannot read {self.path}: {error.strerror}", f"ls -l {self.path}") from error

    def latest(self) -> Path | None:
        """The run directory that was started last; None if there is none."""
        runs = self.entries()
        return Path(runs[-1].run_dir) if runs else None
