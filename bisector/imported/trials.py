"""Turns files of fio, and what an index says about them, into trials.

An index is a CSV table with a row for each file or each figure, which says what the file belongs to.
"""

import csv
import hashlib
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path

from bisector.core.errors import UserError
from bisector.core.figures import Run
from bisector.core.subject import Cell, Commit, Setup, Subject
from bisector.core.trial import Origin, Stage, Timings, Trial
from bisector.core.verdict import SideWords, Verdict
from bisector.git.repository import Repository
from bisector.host.files import bounded_content, text_of
from bisector.storage.disks import DISKS
from bisector.store.rundir import collect, file_name, trial_directory
from bisector.workload.fio import output
from bisector.workload.fio.job_file import told_apart
from bisector.workload.fio.logs import LogUnreadable, job_number, parse_log
from bisector.workload.fio.output import Output, OutputUnreadable

# In the order in which `bisector import --help` shows them.
COLUMNS = {
    "file": "path of fio's output or of an IOPS log, below the index's directory",
    "commit": "hash or other name of the commit",
    "kernel": "name of the kernel",
    "run": f"the run of the trial (the last one is judged); {' and '.join(DISKS)} are baselines",
    "verdict": "the verdict of those who measured",
    "order": "number of the trial",
    "set": "which trials belong together",
    "commit_date": "when the commit was made",
    "job": "number of the job in the file, from 1",
    "direction": "direction of the figure: read, write or trim",
    "iops": "the figure, which has to agree with the file",
    "runtime_ms": "the run time, which has to agree with the file",
}
# The name of a run without one: it is the only run of its trial, or has the name of its kernel.
_ONLY_RUN = "fio"
# The size of a table of a hundred thousand files.
_MOST_SHEET_BYTES = 32 << 20
_LONGEST = {"file": 4096}
_LONGEST_VALUE = 200
_WHOLE = re.compile(r"[0-9]{1,15}")
_FIGURES = {"iops": re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"), "runtime_ms": _WHOLE}
_SPREADSHEET = re.compile(r"[0-9]+(?:[.,][0-9]+)?[eE]\+[0-9]+")
_OF_A_TRIAL = ("commit", "commit_date", "kernel", "verdict")
_MOST_BYTES = 256 << 20
_HOW_RUNS = "the files of a run are one output, and the IOPS logs of its jobs"

_Row = dict[str, str]  # the values of a line by column, and its place as FILE:LINE


@dataclass(frozen=True, slots=True)
class File:
    """A file of a trial, its run, the place in the index that names it, and the rows there that tell its figures."""

    path: Path
    run: str
    where: str
    expected: tuple[_Row, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportEntry:
    """A trial in its index; ``where`` is its first row, and unknown values are empty."""

    where: str
    commit: str
    commit_date: str
    kernel: str
    verdict: Verdict | None
    files: tuple[File, ...]
    name: str = ""
    order: str = ""

    @property
    def label(self) -> str:
        """The name of the trial: its commit, kernel, or file."""
        return self.commit or self.kernel or next(file for file in reversed(self.files) if not is_log(file.path)).run


class UnknownWord(UserError):
    """A verdict that is none of the terms for the two sides."""


def entries(
    index: Path, terms: SideWords, *, verdicts: Path | None = None, only: str | None = None
) -> tuple[ImportEntry, ...]:
    """The trials of an index by number, or in order of lines; ``only`` one set of them. Raises :class:`UserError`."""
    rows = [row for row in _rows(index, required="file") if only in (None, row["set"])]
    if not rows:
        raise UserError(f"{index}: no row is of the set {only!r}" if only is not None else f"{index}: no rows")
    trials: dict[tuple[str, ...], list[_Row]] = {}
    for row in rows:
        trials.setdefault(_key(row), []).append(row)
    found = [_entry(of_one, index.parent, terms) for of_one in trials.values()]
    if verdicts is not None:
        found = _with_verdicts(found, verdicts, terms)
    sets = list(dict.fromkeys(entry.name for entry in found))
    return tuple(sorted(found, key=lambda entry: (sets.index(entry.name), int(entry.order or 0))))


def entry(
    files: Sequence[Path], runs: Sequence[str], *, commit: str, kernel: str, verdict_: Verdict | None
) -> ImportEntry:
    """One trial from files that are given one by one, each log after its output; raises :class:`UserError`."""
    if not files:
        raise UserError("nothing to import", "name the files of a trial, or --index CSV")
    outputs = [path for path in files if not is_log(path)]
    if not outputs or is_log(files[0]):
        raise UserError(f"{files[0]}: an IOPS log stands after the output of its run")
    if runs and len(runs) != len(outputs):
        raise UserError(
            f"--run is given {len(runs)} times, for {len(outputs)} outputs of fio", "once for each, in order"
        )
    alone = len(outputs) == 1 and (commit or kernel) and outputs[0].stem not in DISKS
    names = iter(runs or ([_ONLY_RUN] if alone else [path.stem for path in outputs]))
    named: list[File] = []
    for path in files:
        named.append(File(path, named[-1].run if is_log(path) else next(names), str(path)))
    return ImportEntry(str(files[0]), commit, "", kernel, verdict_, tuple(named))


def is_log(path: Path) -> bool:
    """Whether a file has the name of an IOPS log of fio."""
    return job_number(path.name) is not None


def _rows(path: Path, *, required: str) -> Iterator[_Row]:
    text = text_of(bounded_content(path, _MOST_SHEET_BYTES), path)
    head = text.partition("\n")[0]  # spreadsheets of some countries separate values by semicolons
    between = next((one for one in ";\t" if one in head and "," not in head), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=between, strict=True)
    names: list[str] = []
    try:
        for values in reader:
            where = f"{path}:{reader.line_num}"
            if names and values:
                yield _row(values, names, where, required)
            elif not names:
                names, known = [value.strip().lower() for value in values], f"columns are {', '.join(COLUMNS)}"
                if unknown := [name for name in names if name not in COLUMNS]:
                    raise UserError(f"{where}: unknown column {unknown[0]!r}", known)
                if twice := [name for name in names if names.count(name) > 1]:
                    raise UserError(f"{where}: the column {twice[0]!r} is there twice")
                if required not in names:
                    raise UserError(f"{where}: there is no column {required!r}", known)
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: not a line of a CSV table: {error}") from error


def _row(values: list[str], header: list[str], where: str, required: str) -> _Row:
    if len(values) != len(header):
        raise UserError(f"{where}: {len(values)} values for {len(header)} columns")
    row = {name: value.strip() for name, value in zip(header, values, strict=True)}
    if not row[required]:
        raise UserError(f"{where}: {required} is empty")
    for name, value in row.items():
        if name == "commit" and _SPREADSHEET.fullmatch(value):
            raise UserError(
                f"{where}: commit {value!r} is what a spreadsheet made of a hash", "take that column as text"
            )
        if len(value) > (longest := _LONGEST.get(name, _LONGEST_VALUE)):
            raise UserError(f"{where}: {name} has {len(value):,} characters, and may have {longest:,}")
        if name in ("order", "job") and value and not _WHOLE.fullmatch(value):
            raise UserError(f"{where}: {name} {value!r} is not a number")
    return {**dict.fromkeys(COLUMNS, ""), **row, "where": where}


def _key(row: _Row) -> tuple[str, ...]:
    own = next((name for name in ("order", "commit", "kernel", "file") if row[name]), "file")
    return (row["set"], own, row[own])


def _entry(rows: Sequence[_Row], directory: Path, terms: SideWords) -> ImportEntry:
    first = rows[0]
    for row in rows:
        for name in _OF_A_TRIAL:
            if row[name] != first[name]:
                raise UserError(f"{row['where']}: {name} is {row[name]!r}, and {first[name]!r} in {first['where']}")
    files = tuple(_files(rows, directory))
    outputs = {file.run for file in files if not is_log(file.path)}
    unnamed = len(outputs) == 1 and outputs.isdisjoint(DISKS) and not any(row["run"] for row in rows)
    called = first["kernel"] or (outputs.pop() if len(outputs) == 1 and not first["commit"] else "")
    return ImportEntry(
        where=first["where"],
        commit=first["commit"],
        commit_date=_date(first),
        kernel=called,
        verdict=verdict(first["verdict"], terms, first["where"]),
        files=tuple(
            replace(file, run=_ONLY_RUN) if unnamed or file.run == called not in DISKS else file for file in files
        ),
        name=first["set"],
        order=first["order"],
    )


def _files(rows: Sequence[_Row], directory: Path) -> Iterator[File]:
    by_file: dict[str, list[_Row]] = {}
    for row in rows:
        by_file.setdefault(row["file"], []).append(row)
    for name, of_one in by_file.items():
        runs = {row["run"] for row in of_one}
        if len(runs) > 1:
            raise UserError(f"{of_one[0]['where']}: {name} is of several runs: {', '.join(sorted(runs))}")
        expected = (row for row in of_one if row["iops"] or row["runtime_ms"] or row["direction"])
        numbered = tuple(sorted(expected, key=lambda row: int(row["job"] or 0)))
        for row, (what, form) in product(numbered, _FIGURES.items()):
            if row[what] and not form.fullmatch(row[what]):
                raise UserError(f"{row['where']}: {what} {row[what]!r} is not a number")
        path = _below(directory, name, of_one[0]["where"])
        yield File(path, of_one[0]["run"] or path.stem, of_one[0]["where"], numbered)


def _below(directory: Path, name: str, where: str) -> Path:
    """The path of a file in an index, which may come from anybody; refused if it, with links followed, lies outside."""
    path = directory / name
    try:
        there = Path(os.path.realpath(path))
    except ValueError as error:  # a name with a NUL
        raise UserError(f"{where}: cannot read {name!r}: {error}") from error
    if not there.is_relative_to(os.path.realpath(directory)):
        raise UserError(
            f"{where}: {name} is not below {directory}, the directory of the index",
            "move the index to a directory above its files, or name the files themselves: bisector import FILE…",
        )
    return path


def _date(row: _Row) -> str:
    """The date as git's ``%cI``, from ``%ci`` or ``%cI``."""
    text = row["commit_date"]
    if not text:
        return ""
    for read in (datetime.fromisoformat, lambda text: datetime.strptime(text, "%Y-%m-%d %H:%M:%S %z")):
        with suppress(ValueError):
            return read(text).isoformat()
    raise UserError(f"{row['where']}: commit_date {text!r} is not a date", "for example 2017-05-14 21:54:33 -0400")


def verdict(word: str, terms: SideWords, where: str) -> Verdict | None:
    """The side that a person's verdict stands for; None for an empty one. Raises :class:`UnknownWord`."""
    known = {terms.old: Verdict.OLD, terms.new: Verdict.NEW, Verdict.SKIP.value: Verdict.SKIP}
    if word and word not in known:
        raise UnknownWord(
            f"{where}: the verdict {word!r} is neither {terms.old!r} nor {terms.new!r}, nor 'skip'",
            f"name the two words, the old side's first: --terms {word}:WORD or --terms WORD:{word}",
        )
    return known.get(word)


def _with_verdicts(found: Iterable[ImportEntry], path: Path, terms: SideWords) -> list[ImportEntry]:
    """The trials with the verdicts of another table; each row of that has to belong to one of the trials."""
    told: dict[tuple[str, ...], _Row] = {}
    for row in _rows(path, required="verdict"):
        if not any(row[name] for name in ("order", "commit", "kernel")):
            raise UserError(f"{row['where']}: neither order nor commit nor kernel says which trial the verdict is of")
        other = told.setdefault(_key(row)[1:], row)
        if other["verdict"] != row["verdict"]:
            raise UserError(f"{row['where']}: the verdict {row['verdict']!r} contradicts that of {other['where']}")
    used = set()
    result = []
    for entry in found:
        keys = (("order", entry.order), ("commit", entry.commit), ("kernel", entry.kernel))
        if (own := next((told[key] for key in keys if key in told), None)) is not None:
            used.add(own["where"])
            for name, known in keys[1:]:
                if own[name] and known and own[name] != known:
                    raise UserError(f"{own['where']}: {name} is {own[name]!r}, and {known!r} in {entry.where}")
            said = verdict(own["verdict"], terms, own["where"])
            if entry.verdict not in (None, said):
                raise UserError(f"{own['where']}: the verdict contradicts that of {entry.where}")
            result.append(replace(entry, verdict=said))
        else:
            result.append(entry)
    if unused := [row["where"] for row in told.values() if row["where"] not in used]:
        raise UserError(f"{unused[0]}: the index has no such trial")
    return result


# Trials


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
        for row, job in zip(file.expected, jobs, strict=False):
            for what, known in (("direction", job.direction), ("iops", job.iops_mean), ("runtime_ms", job.runtime_ms)):
                said = type(known)(row[what] or known)
                # The index may have rounded IOPS, or have those of fio's JSON.
                is_near = isinstance(known, float) and abs(float(said) - known) <= 1
                if said != known and not is_near:
                    raise UserError(f"{row['where']}: {what} is {said}, and {known} in {file.path}")
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
        text = text_of(data, path)
        lines = text.splitlines()
        try:
            parse_log(text)
        except LogUnreadable as error:
            raise UserError(f"{path}: {error}") from error
        # A log that was cut inside the last number of a line still parses.
        if not lines or len({line.count(",") for line in lines}) > 1 or not text.endswith("\n"):
            raise UserError(f"{path}:{max(len(lines), 1)}: the IOPS log is cut off or empty")
        return Read(path, data, None)
    try:
        found = output.read(data)
    except OutputUnreadable as error:
        raise UserError(f"{path}:{error.line}: {error}") from error
    if not found.jobs:
        raise UserError(f"{path}: no job did anything")
    if failed := next((job for job in found.jobs if job.error), None):
        raise UserError(f"{path}: job {failed.name} ended with error {failed.error}: {os.strerror(failed.error)}")
    return Read(path, data, found)


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
