"""Reads fio's output: JSON figures, status lines and errors (fio(1)).

Everything here is a function of text; :mod:`bisector.workload.fio.run` runs fio.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from bisector.core.figures import CpuUse, DiskFigures, JobFigures, Latency, LatencyKind
from bisector.workload.fio.job_file import CONFIGURED, told_apart

# fio's JSON is untyped here; this module returns typed values only.
_Json: TypeAlias = Mapping[str, Any]

DIRECTIONS = ("read", "write", "trim")
# The direction of figures for reads, writes and trims together: unified_rw_reporting=mixed.
MIXED = "mixed"
# fio's exit status after SIGINT, SIGTERM or SIGQUIT (backend.c, sig_int) if no job failed.
INTERRUPTED = 128
_P99 = 99.0
# The limit for JSON, which is read whole: 60 jobs with all latency bins (--output-format=json+) have a tenth of it.
_MOST_CHARACTERS = 16 << 20
# Integers on record are below this. fio's counters have 64 bits without a sign; one that wrapped below 0 is near 2**64.
_GREATEST = 2**63
_LONGEST_NAME = 256
_QUOTED = 200
SECOND_OUTPUT = (
    "a second output of fio begins here: give each of them a file of its own, or of several reports of one run "
    "(--status-interval) keep the last"
)

_SUFFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_NUMBER = re.compile(r"(\d{1,12}(?:\.\d{0,9})?)([kKMG]?)", re.ASCII)
_DONE = re.compile(r"\[(\d+(?:\.\d+)?)%(?: done)?\]")
_IOPS = re.compile(r"\[([^\[\]]+?) (?:IOPS|iops)\]")
_SAYING = re.compile(r"^(?:fio: |Bad option|Did you mean)")


OF_CLIENTS = (
    "this was written by fio --client, of other hosts' jobs together, and is not imported: run fio on a host itself, "
    "with --output-format=json"
)

# fio writes nan for 0/0, which JSON does not have.
_NAN = re.compile(r"(:\s*)-?nan\b")
_BEGINNING = re.compile(r'\{\s*"fio version"')
_JOBS = re.compile(r'"jobs"\s*:')
_DECODER = json.JSONDecoder()


class OutputUnreadable(Exception):
    """fio's output is not what a complete fio run writes; ``line`` is the number of the line that shows it."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


class FigureImpossible(OutputUnreadable):
    """fio's output is complete, and has a figure that no machine can have."""


@dataclass(frozen=True, slots=True)
class Output:
    """The output of one run of fio: its version, jobs and disks, and when it ended.

    ``ended_at`` is in ISO 8601. It has a zone only if fio prints it, and is empty if fio prints no time.
    """

    version: str
    jobs: tuple[JobFigures, ...]
    disks: tuple[DiskFigures, ...]
    ended_at: str


def last_document(output: str) -> str:
    """The last JSON document in the output of a steered fio, after its statuses; all of the output if it has none."""
    return output[output.rfind("\n{\n") + 1 :]


def complaint(stderr: str) -> str:
    """The lines of stderr in which fio names the error, without its lists of valid values."""
    said = [line.strip() for line in stderr.splitlines() if _SAYING.match(line)]
    return "; ".join(said or [line.strip() for line in stderr.splitlines() if line.strip()][-1:])


def parse_status_line(line: str) -> tuple[float, float] | None:
    """The IOPS of all jobs and directions, and the share done, in the newest status of a line; None if it has none.

    fio 3 writes ``[r(2)][10.0%][r=12.3MiB/s,w=4KiB/s][r=3151,w=1 IOPS][eta …]``, and fio 2
    ``[10.0% done] [14150KB/0KB/0KB /s] [3537/0/0 iops]``.
    """
    newest = line.rstrip("\r").rpartition("\r")[2] or line
    if not newest.startswith("Jobs:") or (iops := _IOPS.search(newest)) is None:
        return None
    done = _DONE.search(newest)
    figures = (float(number) * _SUFFIXES[suffix] for number, suffix in _NUMBER.findall(iops[1]))
    return sum(figures), float(done[1]) / 100 if done else 0.0


def parse_json(text: str) -> tuple[JobFigures, ...]:
    """The figures of each job in each direction that its options name or that it did; see :func:`parse_output`."""
    return parse_output(text).jobs


def parse_output(text: str) -> Output:
    """Read what fio 2 or 3 wrote with ``--output-format=json``.

    ``numjobs`` makes several jobs with one name: they become ``name/1``, ``name/2``. ``iops_mean`` is fio's ``iops``,
    all I/Os over the whole run time: fio's own ``iops_mean`` is a mean of samples that leaves out the intervals without
    I/O. A percentile that fio was told not to compute is None. Raises :class:`OutputUnreadable`, and its subclass
    :class:`FigureImpossible`.
    """
    document = _document(text)
    try:
        if "client_stats" in document:
            raise OutputUnreadable(OF_CLIENTS)
        jobs: list[_Json] = document["jobs"]
        everywhere: _Json = document.get("global options", {})
        names = told_apart([str(job["jobname"]) for job in jobs])
        at = document.get("timestamp")
        output = Output(
            version=str(document.get("fio version", "")),
            jobs=tuple(one for name, job in zip(names, jobs, strict=True) for one in _job(name, job, everywhere)),
            disks=tuple(map(_disk, document.get("disk_util", ()))),
            ended_at="" if at is None else datetime.fromtimestamp(int(str(at)), UTC).isoformat(),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        raise OutputUnreadable(f"fio's JSON lacks what fio 3 writes: {repr(error)[:_QUOTED]}") from error
    check_figures(output)
    return output


def check_figures(output: Output) -> None:
    """Raise :class:`FigureImpossible` for a figure that no machine can have, or that does not fit into the record.

    These are figures that are negative, infinite, not a number, or at least 2**63; and names that are too long for fio.
    """
    values: list[object] = [*astuple(output)]
    while values:
        match values.pop():
            case tuple() as several:
                values += several
            case str() as name if len(name) > _LONGEST_NAME:
                raise FigureImpossible(f"fio's output has a name of {len(name):,} letters")
            case int() | float() as value if not 0 <= value < _GREATEST:
                raise _impossible(value)


def _impossible(value: object) -> FigureImpossible:
    return FigureImpossible(f"fio's output has {str(value)[:_QUOTED]}, which is not a figure of any machine")


def _document(text: str) -> _Json:
    """The one JSON object in fio's output; around it may be warnings, notes and a prompt."""
    text = _NAN.sub(r"\1NaN", text)
    starts = [found.start() for found in _BEGINNING.finditer(text)]
    starts = starts or [text.find("{\n") if "{\n" in text else text.find("{")]
    if starts[0] < 0:
        said = text.strip().splitlines()[-1:] or ["nothing"]
        raise OutputUnreadable(f"fio wrote no JSON, but {said[0][:_QUOTED]!r}")
    if len(text) > _MOST_CHARACTERS:
        raise OutputUnreadable(f"fio's JSON has {len(text) >> 20} MiB, more than {_MOST_CHARACTERS >> 20}")
    try:
        document, end = _DECODER.raw_decode(text, starts[0])
    except json.JSONDecodeError as error:
        message = f"fio's JSON is cut off or damaged at character {error.pos} of {len(text)}"
        raise OutputUnreadable(message, error.lineno) from error
    except ValueError as error:  # a number of more digits than Python takes (sys.set_int_max_str_digits)
        raise FigureImpossible(f"fio's JSON has a figure of thousands of digits: {error}") from error
    except RecursionError as error:
        raise OutputUnreadable("fio's JSON is nested deeper than fio nests") from error
    if not isinstance(document, dict):
        raise OutputUnreadable("fio's JSON is not an object")
    second = [*starts[1:], *(found.start() for found in _JOBS.finditer(text, end))]
    if second:
        raise OutputUnreadable(SECOND_OUTPUT, text.count("\n", 0, min(second)) + 1)
    return document


def _job(name: str, job: _Json, everywhere: _Json) -> Iterator[JobFigures]:
    options = {**everywhere, **job.get("job options", {})}
    configured = CONFIGURED.get(str(options.get("rw", "read")).partition(":")[0], set())
    # With unified_rw_reporting=both there are all four directions; mixed is the other three together.
    for direction in DIRECTIONS if "read" in job else (MIXED,):
        figures: _Json = job.get(direction, {})
        # fio 2 does not print options: only its figures show what a job did.
        told = "job options" in job and (direction in configured or direction == MIXED)
        if told or figures.get("total_ios", figures.get("io_bytes", 0)) > 0:
            yield _figures(name, direction, figures, job)


def _figures(name: str, direction: str, figures: _Json, job: _Json) -> JobFigures:
    sync: _Json = job.get("sync", {}).get("lat_ns", {})
    sources = {
        **dict.fromkeys(LatencyKind, figures),
        LatencyKind.SYNC: {"sync_ns": sync} if sync.get("max") else {},
    }
    latencies = tuple(one for kind, source in sources.items() if (one := _latency(kind, source)) is not None)
    if not {"clat_ns", "clat"} & figures.keys():
        raise KeyError(LatencyKind.COMPLETION)
    completion = {one.kind: one for one in latencies}.get(LatencyKind.COMPLETION)
    deviation = figures.get("iops_stddev")
    cpu = None
    if "usr_cpu" in job and math.isfinite(job["usr_cpu"] + job["sys_cpu"]):
        cpu = CpuUse(float(job["usr_cpu"]), float(job["sys_cpu"]), int(job["ctx"]), int(job["majf"]))
    return JobFigures(
        name=name,
        direction=direction,
        iops_mean=float(figures["iops"]),
        iops_stddev=None if deviation is None else float(deviation),
        bw_kib_s=float(figures["bw"]),
        clat_mean_ns=completion.mean_ns if completion else None,
        clat_p99_ns=dict(completion.percentiles_ns).get(_P99) if completion else None,
        # fio 2.0.10 to 2.1.13 do not print it.
        total_ios=_whole(
            figures["total_ios"] if "total_ios" in figures else figures["iops"] * figures["runtime"] / 1000
        ),
        runtime_ms=_whole(figures["runtime"]),
        error=int(job["error"]),
        latencies=latencies,
        cpu=cpu,
        depths_percent=tuple((level, float(share)) for level, share in job.get("iodepth_level", {}).items()),
    )


def _latency(kind: LatencyKind, figures: _Json) -> Latency | None:
    """A latency; fio 3 prints nanoseconds, fio 2 microseconds, without the unit in the name. None if it is nan."""
    in_ns = f"{kind}_ns" in figures
    found: _Json | None = figures.get(f"{kind}_ns" if in_ns else kind)
    if found is None or any(math.isnan(found[name]) for name in ("min", "max", "mean", "stddev")):
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


def _whole(value: float) -> int:
    """The value as an integer; raises :class:`FigureImpossible` for NaN and infinity."""
    if not math.isfinite(value):
        raise _impossible(value)
    return round(value)


def _disk(disk: _Json) -> DiskFigures:
    counts = ("read_ios", "write_ios", "read_merges", "write_merges", "read_ticks_ms", "write_ticks_ms", "in_queue_ms")
    found = {name: int(disk[name.removesuffix("_ms")]) for name in counts}
    return DiskFigures(str(disk["name"]), util_percent=float(disk["util"]), **found)
