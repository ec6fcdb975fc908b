"""fio's IOPS logs as time series (fio(1), "Log file formats"), and how they split a run into settling and steady part.

docs/method-evidence.md explains the rule, which is the same for every kernel. Each job's settling ends at the earliest
cut whose figure of MSER (White, Simulation 69(6), 1997) is not worse than the best one by more than its standard error,
as Breiman et al. choose a tree (1984). The rest is steady if its halves differ by no more than a fifth of their mean
(SNIA's Solid State Storage Performance Test Specification 2.0.2, 2.1.24), and has at least a third of the run.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bisector.core.figures import JobFigures
from bisector.workload.fio.output import DIRECTIONS

Floats: TypeAlias = npt.NDArray[np.float64]

# The log of one job or, with per_job_logs=0, of all jobs together (fio(1), "per_job_logs").
_IOPS_LOG = re.compile(r".*_iops(?:\.(?P<job>[0-9]{1,4}))?\.log")
_QUOTED = 200
_LATE = 2.5


class LogUnreadable(Exception):
    """A log has a line that fio does not write; the message has its number."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """IOPS of one job in one direction; each value holds for the interval that ends at its time."""

    start_ms: Floats
    end_ms: Floats
    iops: Floats


def logged_metric(direction: str) -> str:
    """The metric in fio's logs; there are no time series of any other."""
    return f"{direction}.iops"


def job_number(file: str) -> int | None:
    """The number of the job in the name of an IOPS log; 1 if the log is of all jobs, None for any other file."""
    named = _IOPS_LOG.fullmatch(file)
    return None if named is None else int(named["job"] or 1)


def read_logs(directory: Path) -> dict[int, str]:
    """The IOPS logs in a directory, each by the number of its job."""
    found = {job_number(path.name): path for path in directory.iterdir()}
    return {n: path.read_text(encoding="utf-8", errors="replace") for n, path in found.items() if n is not None}


def parse_log(text: str, direction: str = "read") -> Series:
    """Read ``time_ms, value, direction, …`` lines; columns after the third differ by version and options.

    fio averages over the time since its last sample, which is late on a busy guest, and writes no line for an interval
    without I/O. A line after a gap of up to 2.5 intervals counts for the whole gap, so that the sum agrees with fio's
    number of I/Os; after a longer gap it counts for one interval, and the rest is zero. Raises :class:`LogUnreadable`.
    """
    wanted = DIRECTIONS.index(direction) if direction in DIRECTIONS else None  # no line is logged as mixed
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split(",")
        try:
            if line.strip():
                third = int(words[2])
                rows.append((float(words[0]), float(words[1]), third, int(words[3], 0) if words[3:] else third))
        except (ValueError, IndexError) as error:
            raise LogUnreadable(f"line {number} is not one of an fio log: {line.strip()[:_QUOTED]!r}") from error
        if rows and not all(map(math.isfinite, rows[-1])):
            raise LogUnreadable(f"line {number} is not one of an fio log: {line.strip()[:_QUOTED]!r}")
    # With log_window_value=both a second value precedes the direction.
    column = 3 if any(row[2] >= len(DIRECTIONS) for row in rows) else 2
    points = np.array([row[:2] for row in rows if row[column] == wanted], dtype=np.float64).reshape(-1, 2)
    end, iops = points[:, 0], points[:, 1]
    since_last = np.diff(end, prepend=0.0)
    interval = float(np.median(since_last)) if end.size else 0.0
    length = np.where(since_last > _LATE * interval, interval, since_last)
    return Series(end - length, end, iops)


def from_its_start(series: Series, lasted_ms: float) -> Series:
    """Convert times since 1970 or since boot (log_unix_epoch, log_alternate_epoch) to times since the job began.

    A log has such times if it begins later than twice the length of its run, ``lasted_ms``.
    """
    if not series.end_ms.size or series.end_ms[0] <= 2 * lasted_ms:
        return series
    begun_ms = series.end_ms[0] - (float(np.median(np.diff(series.end_ms))) if series.end_ms.size > 1 else 0.0)
    return Series(np.maximum(series.start_ms - begun_ms, 0.0), series.end_ms - begun_ms, series.iops)


def resample(series: Series, step_ms: float, until_ms: float) -> Floats:
    """The mean IOPS in each interval of ``step_ms`` from 0 to ``until_ms``; the total number of I/Os is preserved."""
    grid = np.arange(0.0, until_ms + step_ms / 2, step_ms)
    if not series.end_ms.size:
        return np.zeros(max(grid.size - 1, 0))
    edges = np.column_stack((series.start_ms, series.end_ms)).ravel()
    done = np.cumsum(series.iops * (series.end_ms - series.start_ms))
    ios = np.column_stack((np.concatenate(([0.0], done[:-1])), done)).ravel()
    return np.asarray(np.diff(np.interp(grid, edges, ios, left=0.0)) / step_ms, dtype=np.float64)


_PIECES = 20
_LEAST_PIECES = 7
_MOST_APART = 0.2
# A log of means lacks at most the last interval. A log without log_avg_msec has a line with the value 1 for each I/O,
# and its mean is wrong by the number of I/Os in a millisecond.
_AGREES = 0.5
# 6 s of 40 s and 2 min 15 s of 15 min: about as long as a run has been above the threshold when it is stopped early for
# that (bisector.analysis.early_stop).
_PIECES_OF_STOPPED = 3


def with_steady_parts(
    jobs: Sequence[JobFigures], logs: Mapping[int, str], runtime_s: float, *, stopped: bool = False
) -> tuple[JobFigures, ...]:
    """The figures of jobs, with the figures of the steady part from the logs of a run that should last ``runtime_s``.

    ``logs`` are texts by the numbers of their jobs; fio numbers jobs in the order of the job file. If one of the jobs
    has no log that agrees with its figures in a direction, that direction gets no steady part. If the run was
    ``stopped`` early, since its side was clear, its end counts, and since when it was steady remains unknown.
    """
    names = list(dict.fromkeys(job.name for job in jobs))
    found: dict[tuple[str, str], JobFigures] = {}
    for direction in dict.fromkeys(job.direction for job in jobs):
        alike = [job for job in jobs if job.direction == direction]
        logged = [_series(job, logs.get(names.index(job.name) + 1, "")) for job in alike]
        known = [series for series in logged if series is not None]
        if len(known) == len(alike):
            split = _at_end if stopped else _split
            intervals_ms = (float(np.median(series.end_ms - series.start_ms)) for series in known)
            piece_ms = max(runtime_s * 1000 / _PIECES, *intervals_ms)
            found |= {(one.name, one.direction): one for one in split(alike, known, piece_ms)}
    return tuple(found.get((job.name, job.direction), job) for job in jobs)


def settling(iops: Floats) -> int:
    """How many of the pieces of a job's run are its settling; there are at least a third of a full run's pieces."""
    lengths = np.arange(iops.size, _LEAST_PIECES - 1, -1)
    error = np.array([iops[-length:].var() / length for length in lengths])
    best = int(np.argmin(error))
    # The relative standard error of the variance of n values is the square root of 2/(n - 1).
    bearable = error[best] * (1 + math.sqrt(2 / (lengths[best] - 1)))
    return int(np.argmax(error <= bearable))


def _split(jobs: Sequence[JobFigures], logged: Sequence[Series], piece_ms: float) -> Iterator[JobFigures]:
    """Split each job at the moment from which on all were steady; without such a moment it settled until its end.

    A run can be called steady only after the first piece of its steady part, so ``settled_after_s`` is never 0.
    """
    ends_ms = [_end_ms(job, series, piece_ms) for job, series in zip(jobs, logged, strict=True)]
    whole_ms = min(ends_ms) // piece_ms * piece_ms
    pieces = [resample(series, piece_ms, whole_ms) for series in logged]
    if whole_ms >= _LEAST_PIECES * piece_ms:
        cut = max(map(settling, pieces))
        rests = [iops[cut:] for iops in pieces]
        halves = [(float(iops[: iops.size // 2].mean()), float(iops[-(iops.size // 2) :].mean())) for iops in rests]
        if all(abs(first - last) <= _MOST_APART * (first + last) / 2 for first, last in halves):
            after_s = (cut + 1) * piece_ms / 1000
            for job, series, end_ms in zip(jobs, logged, ends_ms, strict=True):
                yield replace(job, steady_iops=_mean(series, cut * piece_ms, end_ms), settled_after_s=after_s)
            return
    yield from (replace(job, settled_after_s=job.runtime_ms / 1000) for job in jobs)


def _at_end(jobs: Sequence[JobFigures], logged: Sequence[Series], piece_ms: float) -> Iterator[JobFigures]:
    for job, series in zip(jobs, logged, strict=True):
        end_ms = _end_ms(job, series, piece_ms)
        yield replace(job, steady_iops=_mean(series, max(end_ms - _PIECES_OF_STOPPED * piece_ms, 0.0), end_ms))


def _series(job: JobFigures, text: str) -> Series | None:
    """The series in a log; None if the log is empty or unreadable, or does not agree with fio's figure."""
    try:
        series = from_its_start(parse_log(text, job.direction), job.runtime_ms)
    except LogUnreadable:
        return None
    if not series.end_ms.size or not series.end_ms[-1] > 0:
        return None
    logged = _mean(series, 0.0, float(series.end_ms[-1]))
    return series if math.isclose(logged, job.iops_mean, rel_tol=_AGREES) else None


def _end_ms(job: JobFigures, series: Series, piece_ms: float) -> float:
    """The end of the log, which lacks the last interval; the end of the job if its I/O had stopped long before."""
    logged_ms = float(series.end_ms[-1])
    return logged_ms if job.runtime_ms - logged_ms < piece_ms else float(job.runtime_ms)


def _mean(series: Series, from_ms: float, until_ms: float) -> float:
    shifted = Series(series.start_ms - from_ms, series.end_ms - from_ms, series.iops)
    return float(resample(shifted, until_ms - from_ms, until_ms - from_ms)[0])
