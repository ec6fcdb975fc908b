"""fio's IOPS logs as time series. fio(1), "Log file formats", says what is in a log."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

# The numbers in the third column are places in this list.
_DIRECTIONS = ("read", "write", "trim")
# Of one job, or where fio is told so of all jobs together (fio(1), "per_job_logs").
_IOPS_LOG = re.compile(r".*_iops(?:\.(?P<job>[0-9]{1,4}))?\.log")
_QUOTED = 200
_LATE = 2.5


class LogUnreadable(Exception):
    """A line that fio does not write, with its number."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """IOPS of one job in one direction; each value holds for the interval that ends at its time."""

    start_ms: Floats
    end_ms: Floats
    iops: Floats


def logged_metric(direction: str) -> str:
    """The metric that fio's logs are of: no other is followed over time."""
    return f"{direction}.iops"


def job_number(file: str) -> int | None:
    """By the name of a log the number of its job, 1 where it is of all jobs; None of what is no such log."""
    named = _IOPS_LOG.fullmatch(file)
    return None if named is None else int(named["job"] or 1)


def read_logs(directory: Path) -> dict[int, str]:
    """The IOPS logs in a directory, each by the number of its job."""
    found = {job_number(path.name): path for path in directory.iterdir()}
    return {n: path.read_text(encoding="utf-8", errors="replace") for n, path in found.items() if n is not None}


def parse_log(text: str, direction: str = "read") -> Series:
    """Read ``time_ms, value, direction, …`` lines; columns after the third differ by version and options.

    fio averages since its last look, which comes late on a busy guest, and writes no line for an
    interval without I/O. A line after a gap of up to 2.5 intervals counts for the whole gap (so the
    sum agrees with fio's number of I/Os), after a longer one for its own interval, and the rest is
    zero. Raises :class:`LogUnreadable`.
    """
    wanted = _DIRECTIONS.index(direction) if direction in _DIRECTIONS else None  # nothing is logged as mixed
    rows = [_row(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    # With log_window_value=both a second value stands before it.
    column = 3 if any(row[2] >= len(_DIRECTIONS) for row in rows) else 2
    points = np.array([row[:2] for row in rows if row[column] == wanted], dtype=np.float64).reshape(-1, 2)
    end, iops = points[:, 0], points[:, 1]
    since_last = np.diff(end, prepend=0.0)
    interval = float(np.median(since_last)) if end.size else 0.0
    length = np.where(since_last > _LATE * interval, interval, since_last)
    return Series(end - length, end, iops)


def from_its_start(series: Series, lasted_ms: float) -> Series:
    """Times since 1970 or the boot of a host (log_unix_epoch, log_alternate_epoch) as times since the job began.

    A log that begins when its run of ``lasted_ms`` is over twice was written with such times.
    """
    if not series.end_ms.size or series.end_ms[0] <= 2 * lasted_ms:
        return series
    begun_ms = series.end_ms[0] - (float(np.median(np.diff(series.end_ms))) if series.end_ms.size > 1 else 0.0)
    return Series(np.maximum(series.start_ms - begun_ms, 0.0), series.end_ms - begun_ms, series.iops)


def resample(series: Series, step_ms: float, until_ms: float) -> Floats:
    """Mean IOPS on a grid of ``step_ms`` from 0 to ``until_ms``; the number of I/Os is kept."""
    grid = np.arange(0.0, until_ms + step_ms / 2, step_ms)
    if not series.end_ms.size:
        return np.zeros(max(grid.size - 1, 0))
    edges = np.column_stack((series.start_ms, series.end_ms)).ravel()
    done = np.cumsum(series.iops * (series.end_ms - series.start_ms))
    ios = np.column_stack((np.concatenate(([0.0], done[:-1])), done)).ravel()
    return np.asarray(np.diff(np.interp(grid, edges, ios, left=0.0)) / step_ms, dtype=np.float64)


def _row(number: int, line: str) -> tuple[float, float, int, int]:
    words = line.split(",")
    try:
        time_ms, value, third = float(words[0]), float(words[1]), int(words[2])
        fourth = int(words[3], 0) if words[3:] else third
    except (ValueError, IndexError) as error:
        raise _unreadable(number, line) from error
    if not (math.isfinite(time_ms) and math.isfinite(value)):
        raise _unreadable(number, line)
    return time_ms, value, third, fourth


def _unreadable(number: int, line: str) -> LogUnreadable:
    return LogUnreadable(f"line {number} is not one of an fio log: {line.strip()[:_QUOTED]!r}")
