"""fio's command line and what fio says: JSON figures, status lines, errors (fio(1)).

Everything here is a function of text; :mod:`bisector.workload.runner` runs fio.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from bisector.model import JobFigures

# fio's JSON has no types of its own; nothing of it leaves this module untyped.
_Json: TypeAlias = Mapping[str, Any]

DIRECTIONS = ("read", "write", "trim")
# What each value of ``rw`` does, before the colon.
CONFIGURED = {
    "read": {"read"},
    "write": {"write"},
    "trim": {"trim"},
    "randread": {"read"},
    "randwrite": {"write"},
    "randtrim": {"trim"},
    "rw": {"read", "write"},
    "readwrite": {"read", "write"},
    "randrw": {"read", "write"},
    "trimwrite": {"trim", "write"},
    "randtrimwrite": {"trim", "write"},
}
_P99 = "99.000000"

_SUFFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_NUMBER = re.compile(r"([\d.]+)([kKMG]?)")
_DONE = re.compile(r"\[(\d+(?:\.\d+)?)%(?: done)?\]")
_IOPS = re.compile(r"\[([^\[\]]+?) (?:IOPS|iops)\]")
_SAYING = re.compile(r"^(?:fio: |Bad option|Did you mean)")


class OutputUnreadable(Exception):
    """fio's output is not what fio writes when it ends by itself."""


@dataclass(frozen=True, slots=True)
class StatusLine:
    """One of fio's lines about the run in progress, over all jobs and directions."""

    iops: float
    done_share: float


def environment(file_bytes: int, runtime_s: int, directory: str) -> dict[str, str]:
    """The variables that job files may use, for fio's own ``${NAME}`` expansion."""
    return {"FILE_SIZE": str(file_bytes), "RUNTIME": str(runtime_s), "DIRECTORY": directory}


def argv(job: str, output: str) -> tuple[str, ...]:
    """Run fio on a job file: JSON into ``output``, a status line a second on standard output.

    Without ``--output`` fio gives no status lines at all in JSON mode, and without
    ``--eta-newline`` they end in carriage returns only; with a whole second it misses every other one.
    """
    return ("fio", "--output-format=json", f"--output={output}", "--eta=always", "--eta-newline=500ms", job)


def parse_only_argv(job: str) -> tuple[str, ...]:
    """Have fio check a job file; it exits 1 on an error and says which."""
    return ("fio", "--parse-only", job)


def complaint(stderr: str) -> str:
    """The lines in which fio names the fault, without its lists of valid values."""
    said = [line.strip() for line in stderr.splitlines() if _SAYING.match(line)]
    return "; ".join(said or [line.strip() for line in stderr.splitlines() if line.strip()][-1:])


def lacks_engine(line: str) -> bool:
    """Whether fio says that it has no such I/O engine, which ``--parse-only`` does not look for."""
    return line.startswith("fio: engine ") and line.endswith(" not loadable")


def parse_status_line(line: str) -> StatusLine | None:
    """The newest status in a line, or None when it is something else.

    Forms: ``[r(2)][10.0%][r=12.3MiB/s,w=4KiB/s][r=3151,w=1 IOPS][eta …]`` of fio 3, and
    ``[10.0% done] [14150KB/0KB/0KB /s] [3537/0/0 iops]`` of fio 2.
    """
    newest = line.rstrip("\r").rpartition("\r")[2] or line
    if not newest.startswith("Jobs:") or (iops := _IOPS.search(newest)) is None:
        return None
    done = _DONE.search(newest)
    figures = (float(number) * _SUFFIXES[suffix] for number, suffix in _NUMBER.findall(iops[1]))
    return StatusLine(sum(figures), float(done[1]) / 100 if done else 0.0)


def parse_json(text: str) -> tuple[JobFigures, ...]:
    """The figures of each job in each direction that it was told to go, or went.

    ``numjobs`` makes several jobs of one name: they become ``name/1``, ``name/2``. ``iops_mean``
    is fio's ``iops``, all I/Os over the whole run time: its ``iops_mean`` is a mean of samples
    that leaves out the intervals in which nothing was done. A percentile that fio was told not
    to compute is 0. Raises :class:`OutputUnreadable`.
    """
    document = _document(text)
    try:
        jobs: list[_Json] = document["jobs"]
        everywhere: _Json = document.get("global options", {})
        return tuple(figures for name, job in _named(jobs) for figures in _job(name, job, everywhere))
    except (KeyError, TypeError, ValueError) as error:
        raise OutputUnreadable(f"fio's JSON lacks what fio 3 writes: {error!r}") from error


def _document(text: str) -> _Json:
    """The first JSON object; fio may put warnings and notes before it."""
    start = text.find("{\n") if "{\n" in text else text.find("{")
    if start < 0:
        said = text.strip().splitlines()[-1:] or ["nothing"]
        raise OutputUnreadable(f"fio wrote no JSON, but {said[0]!r}")
    try:
        document, _ = json.JSONDecoder().raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise OutputUnreadable(f"fio's JSON is cut off or damaged at character {error.pos} of {len(text)}") from error
    if not isinstance(document, dict):
        raise OutputUnreadable("fio's JSON is not an object")
    return document


def _named(jobs: list[_Json]) -> Iterator[tuple[str, _Json]]:
    how_many = Counter(str(job["jobname"]) for job in jobs)
    seen: Counter[str] = Counter()
    for job in jobs:
        name = str(job["jobname"])
        seen[name] += 1
        yield (f"{name}/{seen[name]}" if how_many[name] > 1 else name), job


def _job(name: str, job: _Json, everywhere: _Json) -> Iterator[JobFigures]:
    options = {**everywhere, **job.get("job options", {})}
    configured = CONFIGURED.get(str(options.get("rw", "read")).partition(":")[0], set())
    for direction in DIRECTIONS:
        figures: _Json = job.get(direction, {})
        if direction in configured or figures.get("total_ios", 0) > 0:
            yield _figures(name, direction, figures, int(job["error"]))


def _figures(name: str, direction: str, figures: _Json, error: int) -> JobFigures:
    latency: _Json = figures["clat_ns"]
    return JobFigures(
        name=name,
        direction=direction,
        iops_mean=float(figures["iops"]),
        iops_stddev=float(figures["iops_stddev"]),
        bw_kib_s=float(figures["bw"]),
        clat_mean_ns=float(latency["mean"]),
        clat_p99_ns=float(latency.get("percentile", {}).get(_P99, 0.0)),
        total_ios=int(figures["total_ios"]),
        runtime_ms=int(figures["runtime"]),
        error=error,
    )
