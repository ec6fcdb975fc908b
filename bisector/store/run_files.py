"""Files beside the record: the inputs with which all trials of a run are measured, and the files that trials leave.

A job file or configuration that was edited between two trials would make them incomparable, so a resumed run measures
with its own copies. Each trial has a directory, and the record has the SHA-256 of each file in it.
"""

import errno
import filecmp
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bisector.config import KernelSettings, Settings, options
from bisector.config.option_table import unused
from bisector.core import resources
from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Commit
from bisector.core.trial import Artifact, Trial
from bisector.host.files import inside, sha256_of

INPUTS = "inputs"
TRIALS = "trials"
_DIGITS = 12  # of a hash that names a directory
_KERNEL_FILES = ("kernel.base_config", "kernel.fragments")
# After the number: a hash, or for an imported trial the name of its kernel.
_DIRECTORY_NAME = re.compile(r"(?P<n>\d{4,})-[\w.+-]{1,12}")


# Inputs


def keep_inputs(settings: Settings, run_dir: Path) -> Settings:
    """Copy the inputs into the run directory, and return settings that name the copies. Raises :class:`InfraError`."""
    kernel, workload = settings.kernel, settings.workload
    with _copying(run_dir) as directory:
        base = kernel.base_config and _copy(kernel.base_config, directory / "base.config")
        fragments = tuple(
            str(_copy(_fragment(name), directory / f"{number}-{Path(name).stem}.config"))
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
    named = (kernel.base_config, *map(_fragment, kernel.fragments))
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


def _fragment(name: str) -> Path:
    """The path of a fragment: one of bisector's by name, or a person's own, written with a slash."""
    return Path(name) if "/" in name else resources.fragment(name)


def _copy(source: Path, target: Path) -> Path:
    """Copy a file, executable or not; another file of the same name goes into a directory named by its hash."""
    if target.exists() and not filecmp.cmp(source, target, shallow=False):
        target = target.parent / sha256_of(source)[:_DIGITS] / target.name
        target.parent.mkdir(exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if source.stat().st_mode & stat.S_IXUSR else 0o644)
    return target


# What trials left


def trial_number(directory: Path) -> int | None:
    """The number of the trial whose directory this is; None if it is not a trial's directory."""
    found = _DIRECTORY_NAME.fullmatch(directory.name)
    return int(found["n"]) if found and directory.is_dir() and not directory.is_symlink() else None


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
    directories = sorted(_trials(run_dir).glob("*"))
    leftovers = [path for path in directories if trial_number(path) is not None and (TRIALS, path.name) not in kept]
    for path in leftovers:
        shutil.rmtree(path)
    return len(leftovers)
