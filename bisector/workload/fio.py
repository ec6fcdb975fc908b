"""fio's command line and what fio says: JSON figures, status lines, errors (fio(1)).

Everything here is a function of text; :mod:`bisector.workload.runner` runs fio.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from bisector.figures import CpuUse, DiskFigures, JobFigures, Latency, LatencyKind
from bisector.settings.jobfile import CONFIGURED

# fio's JSON has no types of its own; nothing of it leaves this module untyped.
_Json: TypeAlias = Mapping[str, Any]

DIRECTIONS = ("read", "write", "trim")
# fio's exit status after SIGINT, SIGTERM or SIGQUIT (backend.c, sig_int), without a failure of a job.
INTERRUPTED = 128
_P99 = 99.0
SECOND_OUTPUT = "a second output of fio begins here: give each of them a file of its own"

_SUFFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_NUMBER = re.compile(r"([\d.]+)([kKMG]?)")
_DONE = re.compile(r"\[(\d+(?:\.\d+)?)%(?: done)?\]")
_IOPS = re.compile(r"\[([^\[\]]+?) (?:IOPS|iops)\]")
_SAYING = re.compile(r"^(?:fio: |Bad option|Did you mean)")


class OutputUnreadable(Exception):
    """fio's output is not what fio writes when it ends by itself; ``line`` is where that shows."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message, line)
        self.message = message
        self.line = line

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Output:
    """Everything that one run of fio tells: its version, jobs and disks, and when it ended.

    ``ended_at`` is ISO 8601, with a zone only where fio tells it, and empty where it tells no time.
    """

    version: str
    jobs: tuple[JobFigures, ...]
    disks: tuple[DiskFigures, ...]
    ended_at: str


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


def steered_argv(job: str, status_every_s: float) -> tuple[str, ...]:
    """Run fio on a job file: JSON on standard output, the figures so far every so often and at last the whole.

    In JSON mode the status takes the place of the status lines. fio 3.33 refuses an interval below a millisecond;
    an interrupted fio (SIGINT) writes the last document and its logs, too, and exits :data:`INTERRUPTED`.
    """
    return ("fio", "--output-format=json", f"--status-interval={round(status_every_s * 1000)}ms", job)


def last_document(output: str) -> str:
    """What a steered fio wrote at last, without the status before; the whole output when it wrote no JSON."""
    return output[output.rfind("\n{\n") + 1 :]


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
    """The figures of each job in each direction that it was told to go, or went; see :func:`parse_output`."""
    return parse_output(text).jobs


def parse_output(text: str) -> Output:
    """What fio 2 or 3 wrote with ``--output-format=json``.

    ``numjobs`` makes several jobs of one name: they become ``name/1``, ``name/2``. ``iops_mean``
    is fio's ``iops``, all I/Os over the whole run time: its ``iops_mean`` is a mean of samples
    that leaves out the intervals in which nothing was done. A percentile that fio was told not
    to compute is None. Raises :class:`OutputUnreadable`.
    """
    document = _document(text)
    try:
        jobs: list[_Json] = document["jobs"]
        everywhere: _Json = document.get("global options", {})
        names = told_apart([str(job["jobname"]) for job in jobs])
        return Output(
            version=str(document.get("fio version", "")),
            jobs=tuple(one for name, job in zip(names, jobs, strict=True) for one in _job(name, job, everywhere)),
            disks=tuple(map(_disk, document.get("disk_util", ()))),
            ended_at=_time(document.get("timestamp")),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise OutputUnreadable(f"fio's JSON lacks what fio 3 writes: {error!r}") from error


@dataclass(slots=True)
class StatusReader:
    """Takes the lines of a steered fio and gives the figures of each status, once it is complete."""

    _lines: list[str] = field(default_factory=list)

    def hear(self, line: str) -> tuple[JobFigures, ...] | None:
        """The figures so far, cumulative, when this line ends a status.

        One into which something else was written says nothing.
        """
        if line == "{":
            self._lines = []
        self._lines.append(line)
        if line != "}":
            return None
        text, self._lines = "\n".join(self._lines), []
        try:
            return parse_json(text)
        except OutputUnreadable:
            return None


def _document(text: str) -> _Json:
    """The first JSON object; fio may put warnings and notes before it."""
    start = text.find("{\n") if "{\n" in text else text.find("{")
    if start < 0:
        said = text.strip().splitlines()[-1:] or ["nothing"]
        raise OutputUnreadable(f"fio wrote no JSON, but {said[0]!r}")
    try:
        document, end = json.JSONDecoder().raw_decode(text, start)
    except json.JSONDecodeError as error:
        message = f"fio's JSON is cut off or damaged at character {error.pos} of {len(text)}"
        raise OutputUnreadable(message, error.lineno) from error
    except RecursionError as error:
        raise OutputUnreadable("fio's JSON is nested deeper than fio nests") from error
    if not isinstance(document, dict):
        raise OutputUnreadable("fio's JSON is not an object")
    if (second := text.find("{", end)) >= 0:
        line = text.count("\n", 0, second) + 1
        raise OutputUnreadable(SECOND_OUTPUT, line)
    return document


def told_apart(names: Sequence[str]) -> tuple[str, ...]:
    """The names of jobs; one that several have becomes ``name/1``, ``name/2``."""
    how_many = Counter(names)
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(f"{name}/{seen[name]}" if how_many[name] > 1 else name)
    return tuple(found)


def _job(name: str, job: _Json, everywhere: _Json) -> Iterator[JobFigures]:
    options = {**everywhere, **job.get("job options", {})}
    configured = CONFIGURED.get(str(options.get("rw", "read")).partition(":")[0], set())
    for direction in DIRECTIONS:
        figures: _Json = job.get(direction, {})
        # fio 2 tells no options: what it did is all there is to see.
        if (direction in configured and "job options" in job) or figures.get("total_ios", 0) > 0:
            yield _figures(name, direction, figures, job)


def _figures(name: str, direction: str, figures: _Json, job: _Json) -> JobFigures:
    latencies = tuple(one for kind in LatencyKind if (one := _latency(kind, figures)) is not None)
    completion = next(one for one in latencies if one.kind is LatencyKind.COMPLETION)
    deviation = figures.get("iops_stddev")
    return JobFigures(
        name=name,
        direction=direction,
        iops_mean=float(figures["iops"]),
        iops_stddev=None if deviation is None else float(deviation),
        bw_kib_s=float(figures["bw"]),
        clat_mean_ns=completion.mean_ns,
        clat_p99_ns=dict(completion.percentiles_ns).get(_P99),
        total_ios=int(figures["total_ios"]),
        runtime_ms=int(figures["runtime"]),
        error=int(job["error"]),
        latencies=latencies,
        cpu=_cpu(job),
        depths_percent=tuple((level, float(share)) for level, share in job.get("iodepth_level", {}).items()),
    )


def _latency(kind: LatencyKind, figures: _Json) -> Latency | None:
    """In nanoseconds since fio 3, before that in microseconds and without the unit in its name."""
    in_ns = f"{kind}_ns" in figures
    found: _Json | None = figures.get(f"{kind}_ns" if in_ns else kind)
    if found is None:
        return None
    unit = 1.0 if in_ns else 1000.0
    percentiles = ((float(percent), value * unit) for percent, value in found.get("percentile", {}).items())
    return Latency(
        kind=kind,
        min_ns=found["min"] * unit,
        max_ns=found["max"] * unit,
        mean_ns=found["mean"] * unit,
        stddev_ns=found["stddev"] * unit,
        percentiles_ns=tuple(sorted(one for one in percentiles if one[0] > 0)),
    )


def _cpu(job: _Json) -> CpuUse | None:
    if "usr_cpu" not in job:
        return None
    return CpuUse(float(job["usr_cpu"]), float(job["sys_cpu"]), int(job["ctx"]), int(job["majf"]))


def _disk(disk: _Json) -> DiskFigures:
    return DiskFigures(
        name=str(disk["name"]),
        read_ios=int(disk["read_ios"]),
        write_ios=int(disk["write_ios"]),
        read_merges=int(disk["read_merges"]),
        write_merges=int(disk["write_merges"]),
        read_ticks_ms=int(disk["read_ticks"]),
        write_ticks_ms=int(disk["write_ticks"]),
        in_queue_ms=int(disk["in_queue"]),
        util_percent=float(disk["util"]),
    )


def _time(timestamp: object) -> str:
    """Seconds since the epoch as ISO 8601; empty where there are none."""
    return datetime.fromtimestamp(int(str(timestamp)), UTC).isoformat() if timestamp is not None else ""
