"""The directory of a run: its database, inputs, files of trials and lock; and the index of all runs.

A job file or configuration that was edited between two trials would make them incomparable, so a resumed run measures
with its own copies. Each trial has a directory, and the record has the SHA-256 of each file in it.
"""

import errno
import filecmp
import hashlib
import json
import os
import platform
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from bisector.config import KernelSettings, Settings, options
from bisector.config.option_table import unused
from bisector.core import resources
from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Commit
from bisector.core.trial import Artifact, Trial
from bisector.host.files import inside, is_scratch, our_files, sha256_of, write_atomically
from bisector.host.locks import Held, Holder, held, holder_of, locked
from bisector.store.log import DATABASE, UNFINISHED

INPUTS = "inputs"
TRIALS = "trials"
LOCK = "lock"
HOSTS = "hosts"  # a file with the path of the list of hosts that measure; without it the run measures on this host
_JOB = "job"  # a file with the name of the job of nights that began the run
GIT_LOG = "bisect.log"
# What a start that was killed before its first fact leaves behind.
_OF_A_START = UNFINISHED | {LOCK, INPUTS, TRIALS}
_ELSEWHERE = "name another one with --run-dir DIRECTORY"
_MADE_BY_START = "--run-dir names a directory that `bisector start` made, or a run that `bisector runs` lists"
_NAME_LENGTH = 120  # NAME_MAX is 255 bytes (limits.h); the name is also the tail of longer paths
_DIGITS = 12  # of a hash that names a directory
_KERNEL_FILES = ("kernel.base_config", "kernel.fragments")
# After the number: a hash, or for an imported trial the name of its kernel.
_DIRECTORY_NAME = re.compile(r"(?P<n>\d{4,})-[\w.+-]{1,12}")
_LOCK_S = 60.0  # another process adds a run in milliseconds


def state_home() -> Path:
    """The directory of runs and their index (XDG Base Directory Specification, XDG_STATE_HOME)."""
    return resources.home("XDG_STATE_HOME", ".local/state")


def jobs_home() -> Path:
    """The directory of jobs for other hosts' runs; a home that hosts share has one for each host."""
    return state_home() / "jobs" / platform.node()


def single_commit_home() -> Path:
    """The directory that has a directory for each repository of ``bisector test`` and ``bisector kernel``."""
    return state_home() / "tests"


def single_commit_directory(repository: Path, fingerprint: str = "") -> Path:
    """The directory for a repository and what its trials depend on; the next process cleans up after a killed one."""
    digest = hashlib.sha256(os.fsencode(repository) + fingerprint.encode()).hexdigest()[:_DIGITS]
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
        if any(one < " " for one in str(directory)):  # an attribute of libvirt's XML would have a space in its place
            raise UserError(f"run directory {str(directory)!r}: its path has a line break, or the like", _ELSEWHERE)
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
            raise UserError(f"there is no run directory {directory}", _MADE_BY_START)
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


# Inputs


def keep_inputs(settings: Settings, run_dir: Path) -> Settings:
    """Copy the inputs into the run directory, and return settings that name the copies. Raises :class:`InfraError`."""
    kernel, workload = settings.kernel, settings.workload
    with _copying(run_dir) as directory:
        base = kernel.base_config and _copy(kernel.base_config, directory / "base.config")
        fragments = tuple(
            str(_copy(resources.fragment(name), directory / f"{number}-{Path(name).stem}.config"))
            for number, name in enumerate(kernel.fragments, 1)
        )
        given = {name: _copy(path, directory / path.name) for name, path in workload.inputs.items()}
    return replace(
        settings,
        kernel=replace(kernel, base_config=base, fragments=fragments),
        workload=workload.with_inputs(given),
    )


def keep_files(files: Iterable[Path | None], run_dir: Path) -> tuple[Path | None, ...]:
    """Copy files of arms beside the other inputs, and return the copies' paths. Raises :class:`InfraError`."""
    with _copying(run_dir) as directory:
        return tuple(file and _copy(file, directory / file.name) for file in files)


@contextmanager
def _copying(run_dir: Path) -> Iterator[Path]:
    try:
        (run_dir / INPUTS).mkdir(exist_ok=True)
        yield run_dir / INPUTS
    except OSError as error:
        raise InfraError(f"cannot copy {error.filename}: {error.strerror}", f"df {run_dir}") from error


def recorded_input(name: str, run_dir: Path) -> str:
    """The name of an input in the record: relative to the run directory, so that it is found if that is moved."""
    return name.removeprefix(f"{run_dir}/") if name.startswith(f"{run_dir}/{INPUTS}/") else name


def found_input(name: str, run_dir: Path) -> str:
    """The current path of a recorded input."""
    return str(run_dir / name) if name.startswith(f"{INPUTS}/") else name


def with_inputs(settings: str, named: Callable[[str, Path], str], run_dir: Path) -> str:
    """Settings as JSON, with inputs renamed by :func:`recorded_input` or :func:`found_input`."""

    def of(value: object) -> object:
        if isinstance(value, list):
            return [of(one) for one in value]
        return named(value, run_dir) if isinstance(value, str) else value

    return json.dumps({key: of(value) for key, value in json.loads(settings).items()}, indent=1)


def kernel_inputs(kernel: KernelSettings) -> tuple[object, ...]:
    """What kernels are made from, regardless of the files' names; a missing file has the contents None."""
    named = (kernel.base_config, *map(resources.fragment, kernel.fragments))
    return (kernel.compilers, *(path.read_bytes() if path and path.is_file() else None for path in named))


def fingerprint(settings: Settings) -> str:
    """A digest that is equal for settings that measure alike, wherever their input files are."""
    files = [(path.name, sha256_of(path) if path.is_file() else None) for path in settings.workload.inputs.values()]
    whole = (sorted(compared(settings).items()), files, kernel_inputs(settings.kernel))
    return hashlib.sha256(repr(whole).encode(errors="surrogateescape")).hexdigest()


def compared(settings: Settings) -> Mapping[str, object]:
    """The settings that alike trials have in common: all but mail, notices, paths of inputs, and disks not in use."""
    files = {*_KERNEL_FILES, *(row.key for row in settings.workload.rows_of_inputs.values())}
    written = options.written_values(settings)
    left_out = ("mail.", "notify.", *unused(written, settings.storage.used_disks))
    return {key: value for key, value in written.items() if key not in files and not key.startswith(left_out)}


def _copy(source: Path, target: Path) -> Path:
    """Copy a file, executable or not; another file of the same name goes into a directory named by its hash."""
    if target.exists() and not filecmp.cmp(source, target, shallow=False):
        target = target.parent / sha256_of(source)[:_DIGITS] / target.name
        target.parent.mkdir(exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if source.stat().st_mode & stat.S_IXUSR else 0o644)
    return target


# What trials left


def number_in(path: str) -> int | None:
    """The number of the trial that has a file, from its path in the run directory; None for any other path."""
    top, _, below = path.partition("/")
    found = _DIRECTORY_NAME.fullmatch(below.partition("/")[0]) if top == TRIALS else None
    return int(found["n"]) if found else None


def trial_directory(run_dir: Path, n: int, commit: Commit) -> Path:
    """Make a new, empty directory for trial ``n``; what a failed attempt left in it is removed."""
    directory = _trials(run_dir) / f"{n:04d}-{file_name(commit.short)}"
    try:
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True)
    except OSError as error:
        raise InfraError(f"cannot make {directory}: {error.strerror}", f"df {run_dir}; ls -ld {run_dir}") from error
    return directory


def _trials(run_dir: Path) -> Path:
    """The directory of the trials' directories, some of which are removed: refused if it is a link."""
    path = run_dir / TRIALS
    if path.is_symlink():
        raise UserError(f"{path} is a link, which bisector never makes there", f"ls -l {path}; is it a run of yours?")
    return path


def file_name(text: str) -> str:
    """A text, made valid as the name of a file or a directory."""
    return re.sub(r"[^\w.+-]", "-", text, flags=re.ASCII).lstrip(".") or "-"


def artifacts_of_run(artifacts: Iterable[Artifact], run: str) -> tuple[Artifact, ...]:
    """The artifacts of one run: those in the trial's directory that is named after the run."""
    return tuple(one for one in artifacts if one.name.rpartition("/")[0] == file_name(run))


def collect(directory: Path, run_dir: Path) -> tuple[Artifact, ...]:
    """Every regular file of a trial, synchronised to the disk; raises :class:`InfraError`."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    artifacts = []
    try:
        for path in files:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                size_bytes = file.tell()
                os.fsync(file.fileno())  # before the row: it must not name a file that is lost
            name, below = path.relative_to(directory).as_posix(), path.relative_to(run_dir).as_posix()
            artifacts.append(Artifact(name=name, path=below, sha256=digest, size_bytes=size_bytes))
    except OSError as error:
        raise InfraError(f"cannot read {error.filename}: {error.strerror}") from error
    return tuple(artifacts)


def adopt(source: Path, trial: Trial, run_dir: Path, n: int) -> Trial:
    """Take a trial over from the run in ``source`` as number ``n``, with its files; raises :class:`InfraError`."""
    if not trial.artifacts:
        return trial
    directory = trial_directory(run_dir, n, trial.commit)
    try:
        for artifact in trial.artifacts:
            target = inside(directory, artifact.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            file = inside(source, artifact.path)
            try:
                target.hardlink_to(file)  # a hard link is enough: the content never changes
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
                    raise
                shutil.copyfile(file, target)
    except OSError as error:
        raise InfraError(f"cannot take over {error.filename}: {error.strerror}", f"ls -l {source / TRIALS}") from error
    paths = (directory.relative_to(run_dir) / artifact.name for artifact in trial.artifacts)
    moved = (replace(artifact, path=path.as_posix()) for artifact, path in zip(trial.artifacts, paths, strict=True))
    return replace(trial, artifacts=tuple(moved))


def remove_unfinished(run_dir: Path, recorded: Iterable[Artifact]) -> int:
    """Remove what a killed process left of trials, with the run directory locked; return how many there were."""
    kept = {Path(artifact.path).parts[:2] for artifact in recorded}
    found = [path for path in sorted(_trials(run_dir).glob("*")) if _DIRECTORY_NAME.fullmatch(path.name)]
    leftovers = [path for path in found if path.is_dir() and not path.is_symlink() and (TRIALS, path.name) not in kept]
    for path in leftovers:
        shutil.rmtree(path)
    return len(leftovers)


# The index of all runs


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
