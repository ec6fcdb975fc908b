"""Turns files of fio, and what their index says about them, into trials."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from bisector.core.errors import UserError
from bisector.core.figures import Run
from bisector.core.subject import Cell, Commit, Setup, Subject
from bisector.core.trial import Origin, Stage, Timings, Trial
from bisector.core.verdict import Verdict
from bisector.git.repository import Repository
from bisector.host.files import bounded_content, text_of
from bisector.imported.sheet import File, ImportEntry, is_log
from bisector.storage.disks import DISKS
from bisector.store.run_files import collect, file_name, trial_directory
from bisector.workload.fio import text
from bisector.workload.fio.job_file import told_apart
from bisector.workload.fio.logs import LogUnreadable, parse_log
from bisector.workload.fio.output import Output, OutputUnreadable, check_figures

_MOST_BYTES = 256 << 20
_HOW_RUNS = "the files of a run are one output, and the IOPS logs of its jobs"


@dataclass(frozen=True, slots=True)
class Read:
    """A file with its content and, unless it is an IOPS log, fio's parsed output."""

    path: Path
    data: bytes
    output: Output | None

    @property
    def sha256(self) -> str:
        """The digest that identifies the file."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class ImportedTrial:
    """A trial with the files that it was read from, by the names of their copies in the run directory."""

    trial: Trial
    files: Mapping[str, Read]
    where: str


def find(entries: Sequence[ImportEntry], repository: Repository | None) -> tuple[ImportedTrial, ...]:
    """Read all files and make the trials, with commits of ``repository``, if any; raises :class:`UserError`."""
    # Kernels without known commits get distinct names, so that no two of them become one.
    nameless = iter(told_apart([entry.label for entry in entries if not entry.commit]))
    commits = [_commit(entry, entry.commit or next(nameless), repository) for entry in entries]
    found = tuple(one for entry, commit in zip(entries, commits, strict=True) for one in _told(entry, commit))
    seen: dict[str, Path] = {}
    for one in found:
        for read in one.files.values():
            other = seen.setdefault(read.sha256, read.path)
            if other is not read.path:
                raise UserError(f"{one.where}: {read.path} and {other} have one content, and cannot be two runs")
    return found


def _commit(entry: ImportEntry, name: str, repository: Repository | None) -> Commit:
    if repository is None or not entry.commit:
        return Commit(name, "", entry.kernel or name, entry.commit_date)
    try:
        return repository.resolve(entry.commit)
    except UserError as error:
        raise UserError(f"{entry.where}: {error}", error.hint) from error


def _told(entry: ImportEntry, commit: Commit) -> Iterator[ImportedTrial]:
    """The trial of an entry, if it has runs that are no baselines, and then its baselines."""
    of_trial = tuple(file for file in entry.files if file.run not in DISKS)
    if of_trial:
        yield _trial(replace(entry, files=of_trial), Cell(Subject(commit), Setup()))
    elif entry.verdict is not None:
        raise UserError(f"{entry.where}: a disk alone is on no side, and a verdict is given", "leave the verdict out")
    for name in DISKS:
        if files := tuple(file for file in entry.files if file.run == name):
            yield _trial(replace(entry, files=files, verdict=None), Cell(Subject(commit), Setup(name)))


def _trial(entry: ImportEntry, cell: Cell) -> ImportedTrial:
    runs: list[Run] = []
    files: dict[str, Read] = {}
    tools: dict[str, None] = {}
    for run in dict.fromkeys(file.run for file in entry.files):
        of_run = [file for file in entry.files if file.run == run]
        read = [_read(file) for file in of_run]
        told = [(file, one.output) for file, one in zip(of_run, read, strict=True) if one.output is not None]
        if len(told) != 1:
            raise UserError(f"{of_run[0].where}: the {run} run has {len(told)} outputs of fio, and not one", _HOW_RUNS)
        file, output = told[0]
        jobs = output.jobs
        if file.expected and len(file.expected) != len(jobs):
            raise UserError(f"{file.where}: {file.path} has {len(jobs)} figures, and the index {len(file.expected)}")
        for expected, job in zip(file.expected, jobs, strict=False):
            iops = job.iops_mean if expected.iops is None else expected.iops
            for what, said, known in (
                ("direction", expected.direction or job.direction, job.direction),
                # The index may have rounded, or have the figure from fio's JSON.
                ("iops", job.iops_mean if abs(iops - job.iops_mean) <= 1 else iops, job.iops_mean),
                (
                    "runtime_ms",
                    job.runtime_ms if expected.runtime_ms is None else expected.runtime_ms,
                    job.runtime_ms,
                ),
            ):
                if said != known:
                    raise UserError(f"{expected.where}: {what} is {said}, and {known} in {file.path}")
        runs.append(_run(run, output))
        tools[output.version] = None
        for one, named in zip(read, of_run, strict=True):
            # If two files got the same name in the run directory, one would be lost.
            name = f"{file_name(run)}/{one.path.name}"
            if (other := files.setdefault(name, one)) is not one:
                raise UserError(
                    f"{named.where}: {one.path} and {other.path} would both be kept as {name}",
                    "give one of them another name",
                )
    for job in runs[-1].jobs:  # a job that did no I/O must not pass for a slow one
        if job.direction == "read" and not job.iops_mean > 0:
            what = f"job {job.name} of the {runs[-1].name} run has no IOPS: that is not a measurement"
            raise UserError(f"{entry.where}: {what}")
    workload_s = sum(run.duration_s for run in runs)
    trial = Trial(
        cell=cell,
        started_at=runs[0].started_at,
        host="",
        stage=Stage.DONE,
        fault=None,
        kernel=None,
        runs=tuple(runs),
        timings=Timings(workload_s=workload_s, total_s=workload_s),
        artifacts=(),
        origin=Origin(" and ".join(filter(None, tools)), entry.kernel, entry.verdict),
    )
    return ImportedTrial(trial, files, entry.where)


def _read(file: File) -> Read:
    """Read a file; a :class:`UserError` also says which line of the index names the file."""
    try:
        return _parsed(file.path)
    except UserError as error:
        if file.where == str(file.path):
            raise
        raise UserError(f"{file.where}: {error}", error.hint) from error


def _parsed(path: Path) -> Read:
    data = bounded_content(path, _MOST_BYTES)
    if is_log(path):
        _check_log(text_of(data, path), path)
        return Read(path, data, None)
    try:
        output = text.read(data)
        check_figures(output)
    except OutputUnreadable as error:
        raise UserError(f"{path}:{error.line}: {error}") from error
    if not output.jobs:
        raise UserError(f"{path}: no job did anything")
    if failed := next((job for job in output.jobs if job.error), None):
        raise UserError(f"{path}: job {failed.name} ended with error {failed.error}: {os.strerror(failed.error)}")
    return Read(path, data, output)


def _check_log(text: str, path: Path) -> None:
    """Check that a log is complete: one that was cut inside a line's last number still parses."""
    lines = text.splitlines()
    try:
        parse_log(text)
    except LogUnreadable as error:
        raise UserError(f"{path}: {error}") from error
    widths = {line.count(",") for line in lines}
    if not lines or len(widths) > 1 or not text.endswith("\n"):
        raise UserError(f"{path}:{max(len(lines), 1)}: the IOPS log is cut off or empty")


def _run(name: str, output: Output) -> Run:
    duration_s = max(job.runtime_ms for job in output.jobs) / 1000
    started_at = ""
    if output.ended_at:
        try:
            start = datetime.fromisoformat(output.ended_at) - timedelta(seconds=duration_s)
        except OverflowError as error:
            raise UserError(f"a {name} run of {duration_s:,.0f} s began before there were years") from error
        started_at = start.isoformat(timespec="seconds")
    return Run(
        name=name,
        started_at=started_at,
        duration_s=duration_s,
        jobs=output.jobs,
        cache_before=None,
        cache_after=None,
        contention=None,
        clock_drift_s=None,
        disks=output.disks,
    )


def check_verdicts(trials: Iterable[tuple[str, Trial]]) -> None:
    """Raise :class:`UserError` if a commit has verdicts for both sides; each trial comes with where it was read."""
    said: dict[str, tuple[Verdict, str]] = {}
    for where, trial in trials:
        if trial.origin is None or trial.origin.verdict is None:
            continue
        verdict, first = said.setdefault(trial.commit.sha, (trial.origin.verdict, where))
        if verdict is not trial.origin.verdict:
            raise UserError(
                f"{where}: the verdict on {trial.commit.short} contradicts that of {first}",
                "leave out the verdict of one of them; the figures of both count",
            )


def unknown(found: Iterable[ImportedTrial], known: Mapping[str, str]) -> tuple[ImportedTrial, ...]:
    """The trials of which no file is on record (``known``, by SHA-256); :class:`UserError` if only some files are."""
    new = []
    for one in found:
        there = [read for read in one.files.values() if read.sha256 in known]
        if not there:
            new.append(one)
        elif len(there) < len(one.files):
            first = there[0]
            raise UserError(
                f"{one.where}: {first.path} is on record, in {known[first.sha256]}, and others of its trial are not",
                "all files of a trial are imported together, into a new --run-dir",
            )
    return tuple(new)


def keep(found: ImportedTrial, n: int, run_dir: Path) -> Trial:
    """Copy a trial's files, synchronised to the disk, and return the trial with the copies as artifacts."""
    directory = trial_directory(run_dir, n, found.trial.commit)
    for name, read in found.files.items():
        target = directory / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(read.data)
    return replace(found.trial, artifacts=collect(directory, run_dir))
