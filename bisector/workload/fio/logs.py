"""The files that fio leaves in the guest: what is fetched of them, and its IOPS logs as time series.

The guest says how they are called and how large they are, and is not trusted: no name leads out of a directory, and
all of it is bounded. Logs may be large without any fault (without log_avg_msec each I/O is a line, so that the fastest
kernel has the largest), so one that is too large is left out. fio(1), "Log file formats", says what is in a log.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bisector.core.errors import KernelFault
from bisector.core.shell import Shell
from bisector.core.trial import FaultKind, Stage

Floats: TypeAlias = npt.NDArray[np.float64]

MOST_FILES = 256
# What :func:`listed_files` reads, of the current directory. Hidden files are ours.
LISTING = "stat -c '%s %n' -- *"
_LEFT_OUT = "left-out.txt"

# fio names its logs after the job, or as write_iops_log says. Nothing here is a path, or hidden.
_FILE_NAME = re.compile(r"[\w+(][\w.+ :,=@#%()\[\]-]*")
FILE_NAMES = "letters, digits, spaces and _.+:,=@#%()[]-, the first one of which is a letter, a digit or one of _+("
_LONGEST_NAME_BYTES = 200
_LISTED = re.compile(r"(\d{1,20}) (.*)", re.ASCII)
_MOST_BYTES = 256 << 20
_MOST_LOG_BYTES = 64 << 20

# The numbers in the third column are places in this list.
_DIRECTIONS = ("read", "write", "trim")
# Of one job, or where fio is told so of all jobs together (fio(1), "per_job_logs").
_IOPS_LOG = re.compile(r".*_iops(?:\.(?P<job>[0-9]{1,4}))?\.log")
_QUOTED = 200
_LATE = 2.5


@dataclass(frozen=True, slots=True)
class LeftFile:
    """A file by its name, with its size as the guest tells it."""

    name: str
    size_bytes: int


class LogUnreadable(Exception):
    """A line that fio does not write, with its number."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """IOPS of one job in one direction; each value holds for the interval that ends at its time."""

    start_ms: Floats
    end_ms: Floats
    iops: Floats


def may_be_called(name: str) -> bool:
    """Whether a file of this name is fetched."""
    return _FILE_NAME.fullmatch(name) is not None and len(name.encode()) <= _LONGEST_NAME_BYTES


def listed_files(text: str, ours: str) -> tuple[LeftFile, ...]:
    """What :data:`LISTING` printed, but for the file ``ours``; raises :class:`KernelFault`."""
    files = tuple(dict.fromkeys(one for one in _files(text) if one.name != ours))
    if len(files) > MOST_FILES:
        raise _left_too_much(f"{len(files):,} files, and at most {MOST_FILES} are fetched")
    return files


def fetch_files(shell: Shell, directory: str, files: Sequence[LeftFile], needed: str, logs: Path) -> None:
    """Copy them from the guest's directory into ``logs``, which has none of them yet, ``needed`` before all others.

    Of the others those that are too large, or too large together, are left out; :data:`_LEFT_OUT` beside names them.
    """
    room_bytes = _MOST_BYTES
    left_out = []
    for file in sorted(files, key=lambda one: one.name != needed):
        if file.name != needed and file.size_bytes > min(_MOST_LOG_BYTES, room_bytes):
            left_out.append(f"{file.name}: {file.size_bytes:,} bytes\n")
            continue
        shell.get(f"{directory}/{file.name}", logs / file.name)
        room_bytes -= (logs / file.name).stat().st_size
    if left_out:
        why = f"Not fetched: a log of more than {_MOST_LOG_BYTES >> 20} MiB, and all beyond {_MOST_BYTES >> 20} MiB."
        with (logs / _LEFT_OUT).open("a", encoding="utf-8") as note:
            note.writelines((f"{why} log_avg_msec=500 in the job makes logs small.\n", *left_out))


def logged_metric(direction: str) -> str:
    """The metric that fio's logs are of: no other is followed over time."""
    return f"{direction}.iops"


def job_number(file: str) -> int | None:
    """By the name of a log the number of its job, 1 where it is of all jobs; None of what is no such log."""
    named = _IOPS_LOG.fullmatch(file)
    return None if named is None else int(named["job"] or 1)


def parse_log(text: str, direction: str = "read") -> Series:
    """Read ``time_ms, value, direction, …`` lines; columns after the third differ by version.

    fio averages since its last look, which comes late on a busy guest, and writes no line for an
    interval without I/O. A line after a gap of up to 2.5 intervals counts for the whole gap (so the
    sum agrees with fio's number of I/Os), after a longer one for its own interval, and the rest is
    zero. Raises :class:`LogUnreadable`.
    """
    wanted = _DIRECTIONS.index(direction)
    rows = [_row(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    points = np.array([row[:2] for row in rows if row[2] == wanted], dtype=np.float64).reshape(-1, 2)
    end, iops = points[:, 0], points[:, 1]
    since_last = np.diff(end, prepend=0.0)
    interval = float(np.median(since_last)) if end.size else 0.0
    length = np.where(since_last > _LATE * interval, interval, since_last)
    return Series(end - length, end, iops)


def resample(series: Series, step_ms: float, until_ms: float) -> Floats:
    """Mean IOPS on a grid of ``step_ms`` from 0 to ``until_ms``; the number of I/Os is kept."""
    grid = np.arange(0.0, until_ms + step_ms / 2, step_ms)
    if not series.end_ms.size:
        return np.zeros(max(grid.size - 1, 0))
    edges = np.column_stack((series.start_ms, series.end_ms)).ravel()
    done = np.cumsum(series.iops * (series.end_ms - series.start_ms))
    ios = np.column_stack((np.concatenate(([0.0], done[:-1])), done)).ravel()
    return np.asarray(np.diff(np.interp(grid, edges, ios, left=0.0)) / step_ms, dtype=np.float64)


def _files(text: str) -> Iterator[LeftFile]:
    for line in filter(None, text.split("\n")):
        found = _LISTED.fullmatch(line)
        if found is None or not may_be_called(found[2]):
            called = found[2] if found else line
            raise _left_too_much(f"a file called {called[:_LONGEST_NAME_BYTES]!r}, which is no name of a log")
        yield LeftFile(found[2], int(found[1]))


def _left_too_much(what: str) -> KernelFault:
    return KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, f"fio left {what}")


def _row(number: int, line: str) -> tuple[float, float, int]:
    words = line.split(",")
    try:
        time_ms, value, direction = float(words[0]), float(words[1]), int(words[2])
    except (ValueError, IndexError) as error:
        raise _unreadable(number, line) from error
    if not (math.isfinite(time_ms) and math.isfinite(value)):
        raise _unreadable(number, line)
    return time_ms, value, direction


def _unreadable(number: int, line: str) -> LogUnreadable:
    return LogUnreadable(f"line {number} is not one of an fio log: {line.strip()[:_QUOTED]!r}")
