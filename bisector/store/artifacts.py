"""Files beside the record: one directory for each trial, each file known by its SHA-256."""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from bisector.core.commit import Commit
from bisector.core.errors import InfraError, UserError
from bisector.core.trial import Artifact, Trial
from bisector.host.files import inside

TRIALS = "trials"
# A hash, or of an imported trial what its kernel was called.
_DIRECTORY_NAME = re.compile(r"(?P<n>\d{4,})-[\w.+-]{1,12}")


def trial_number(directory: Path) -> int | None:
    """The number of the trial that a directory below :data:`TRIALS` is of; None for what somebody else put there."""
    found = _DIRECTORY_NAME.fullmatch(directory.name)
    return int(found["n"]) if found and directory.is_dir() and not directory.is_symlink() else None


def trial_directory(run_dir: Path, n: int, commit: Commit) -> Path:
    """A new, empty directory for trial ``n``; what an attempt that failed left in it is gone."""
    directory = _trials(run_dir) / f"{n:04d}-{file_name(commit.short)}"
    try:
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True)
    except OSError as error:
        raise InfraError(f"cannot make {directory}: {error.strerror}", f"df {run_dir}; ls -ld {run_dir}") from error
    return directory


def _trials(run_dir: Path) -> Path:
    """Where the directories of the trials are, in which some are removed: never where a link leads."""
    path = run_dir / TRIALS
    if path.is_symlink():
        raise UserError(f"{path} is a link, which bisector never makes there", f"ls -l {path}; is it a run of yours?")
    return path


def file_name(text: str) -> str:
    """A text as the name of a file or a directory."""
    return re.sub(r"[^\w.+-]", "-", text, flags=re.ASCII).lstrip(".") or "-"


def of_run(artifacts: Iterable[Artifact], run: str) -> tuple[Artifact, ...]:
    """What a run left: the files in its own directory of the trial, which has the run's name as a file may have it."""
    return tuple(one for one in artifacts if one.name.rpartition("/")[0] == file_name(run))


def collect(directory: Path, run_dir: Path) -> tuple[Artifact, ...]:
    """Every regular file in a trial's directory, by path; they are on the disk when this returns.

    Raises :class:`InfraError` when one cannot be read.
    """
    files = sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    try:
        return tuple(_artifact(path, directory, run_dir) for path in files)
    except OSError as error:
        raise InfraError(f"cannot read {error.filename}: {error.strerror}") from error


def adopt(source: Path, trial: Trial, run_dir: Path, n: int) -> Trial:
    """A trial of the run in ``source`` as number ``n`` of another one, with its files.

    Raises :class:`InfraError` when a file is gone or cannot be copied.
    """
    if not trial.artifacts:
        return trial
    directory = trial_directory(run_dir, n, trial.commit)
    try:
        for artifact in trial.artifacts:
            target = inside(directory, artifact.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(inside(source, artifact.path), target)
    except OSError as error:
        raise InfraError(f"cannot take over {error.filename}: {error.strerror}", f"ls -l {source / TRIALS}") from error
    paths = (directory.relative_to(run_dir) / artifact.name for artifact in trial.artifacts)
    moved = (replace(artifact, path=path.as_posix()) for artifact, path in zip(trial.artifacts, paths, strict=True))
    return replace(trial, artifacts=tuple(moved))


def _link(source: Path, target: Path) -> None:
    """A second name of the file, whose content never changes; a copy on another file system."""
    try:
        target.hardlink_to(source)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
            raise
        shutil.copyfile(source, target)


def _artifact(path: Path, directory: Path, run_dir: Path) -> Artifact:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size_bytes = file.tell()
        os.fsync(file.fileno())  # the row that names it will be: a row without its file would be a lie
    return Artifact(
        name=path.relative_to(directory).as_posix(),
        path=path.relative_to(run_dir).as_posix(),
        sha256=digest,
        size_bytes=size_bytes,
    )


def remove_unfinished(run_dir: Path, recorded: Iterable[Artifact]) -> int:
    """Remove the directories of trials that no recorded artifact lies in; how many there were.

    They are what a killed process left; call it with the run directory locked.
    """
    kept = {Path(artifact.path).parts[:2] for artifact in recorded}
    directories = sorted(_trials(run_dir).glob("*"))
    leftovers = [path for path in directories if trial_number(path) is not None and (TRIALS, path.name) not in kept]
    for path in leftovers:
        shutil.rmtree(path)
    return len(leftovers)
