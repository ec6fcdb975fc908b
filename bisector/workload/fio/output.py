"""Reads fio's output (fio(1)): JSON, status lines and errors, and what fio 1.59 to 3.x prints for people.

Everything here is a function of text; :mod:`bisector.workload.fio.fio` runs fio.

In a file there may be other text around fio's: a mail quotes with ``> ``, a log of a container or of continuous
integration has times, a page indents. Such a prefix is removed from each line; every line keeps its number. In what fio
prints for people, the lines with I/O counts, IOPS, bandwidth and latencies are recognised by their beginning, and all
others are ignored. Their forms are in stat.c and lib/num2str.c of fio 1.59 to 3.42. That a file was cut, or pasted
together, between jobs shows only if its index (:mod:`bisector.imported.trials`) has their figures.
"""

import codecs
import html
import json
import math
import quopri
import re
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from bisector.core.figures import CpuUse, DiskFigures, JobFigures, Latency
from bisector.core.metric import LatencyKind
from bisector.workload.fio.job_file import CONFIGURED, told_apart

# fio's JSON is untyped here; this module returns typed values only.
_Json: TypeAlias = Mapping[str, Any]

DIRECTIONS = ("read", "write", "trim")  # the third column of a log has an index into these
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
OF_CLIENTS = (
    "this was written by fio --client, of other hosts' jobs together, and is not imported: run fio on a host itself, "
    "with --output-format=json"
)

_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?[kKMG]?", re.ASCII)
_DONE = re.compile(r"\[(\d+(?:\.\d+)?)%(?: done)?\]")
_IOPS = re.compile(r"\[([^\[\]]+?) (?:IOPS|iops)\]")
_SAYING = re.compile(r"^(?:fio: |Bad option|Did you mean)")
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
    figures = (_amount(number, old=False)[0] for number in _NUMBER.findall(iops[1]))
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
    return _checked(output)


def _checked(output: Output) -> Output:
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
    return output


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
    document: _Json
    try:
        document, end = _DECODER.raw_decode(text, starts[0])
    except json.JSONDecodeError as error:
        message = f"fio's JSON is cut off or damaged at character {error.pos} of {len(text)}"
        raise OutputUnreadable(message, error.lineno) from error
    except ValueError as error:  # a number of more digits than Python takes (sys.set_int_max_str_digits)
        raise FigureImpossible(f"fio's JSON has a figure of thousands of digits: {error}") from error
    except RecursionError as error:
        raise OutputUnreadable("fio's JSON is nested deeper than fio nests") from error
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
        if figures.get("total_ios") and {figures.get("io_bytes"), figures.get("runtime")} == {0}:
            continue  # cycles of a job that burns CPU time (ioengine=cpuio)
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
    """A latency; fio 3 prints nanoseconds, fio 2 microseconds, without the unit in the name.

    None if it is nan, or if it is 0 throughout, as fio prints one that it did not measure (``disable_clat``).
    """
    in_ns = f"{kind}_ns" in figures
    found: _Json | None = figures.get(f"{kind}_ns" if in_ns else kind)
    if found is None or not found["max"] or any(math.isnan(found[name]) for name in ("min", "max", "mean", "stddev")):
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


# What fio prints for people, and files with other text around it

_UNIT_NS = {"nsec": 1, "usec": 1_000, "msec": 1_000_000}
# Up to 2.16 "K" is 1024 bytes and "P" is 1024 "G" (lib/num2str.c). Since 2.17 prefixes are those of IEC and SI.
_OLD_PREFIXES, _PREFIXES = "_KMGPE", "_KMGTPE"
_N = r"\d+(?:\.\d+)? ?[kKMGTPE]?i?(?:B|bit)?"
_REAL = r"\d+\.\d+|-?nan"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(rf"^ *{text}", re.MULTILINE)


_JOB_BEGINS = _pattern(r"\S.*: \(groupid=\d")
# A mail may have wrapped this line, and those below, at any of their blanks.
_JOB = _pattern(
    r"(?P<name>\S.*): \(groupid=\d+,\s+jobs=(?P<members>\d+)\):\s+err= ?(?P<error>\d+)(?: \((?P<words>.*)\))?:\s+"
    r"pid=(?P<pid>\d+)(?::\s+\w{3}\s+(?P<ended>\w{3}\s+\d+\s+\d\d:\d\d:\d\d\s+\d{4}))?"
)
_DIRECTION = re.compile(
    r"(?<!\S)(read|write|trim|mixed) ?:\s+"
    rf"(?:io=(?P<old>{_N}),\s+bw=(?P<old_bw>{_N})/s,\s+iops=(?P<old_iops>{_N}) ?,\s+runt=\s*(?P<old_ms>\d+)msec"
    rf"|IOPS=(?P<iops>{_N}),\s+BW=(?P<bw>{_N})(?:/s)?\s+\({_N}(?:/s)?\)\({_N}/(?P<ms>\d+)msec\))"
)
_LATENCY = _pattern(
    rf"(slat|clat|lat|sync) \(([num]sec)\) ?:\s+min=\s*({_N}) ?,\s+max=\s*({_N}) ?,"
    rf"\s+avg=\s*({_REAL}),\s+stdev=\s*(\d+\.\d\d|-?nan)"
)
_PERCENTILES = _pattern(r"(\w+) percentiles \(([num]sec)\):((?:[\s|]*\d+(?:\.\d+)?th=\[\s*\d+\],?)*)")
# Below this, IOPS are computed: fio prints 4.9 as "IOPS=4".
_EXACT = 100
_AMOUNT = re.compile(r"(\d+(?:\.(\d+))?) ?([kKMGTPE]?)(i?)(B|bit|)")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)th=\[\s*(\d+)\]")
_ISSUED = re.compile(
    r"\bissued +(?:rwts?|r/w(?:/d)?)? ?: ?total=(?:r=)?(\d+)(?:/(?:w=)?|,)(\d+)(?:(?:/(?:[dt]=)?|,)(\d+))?.*\s\s?short="
)
_GROUP = _pattern(r"Run status group \d+ \(all jobs\):")
# Up to 2.0.7 it is "fio 2.0.7", and of 2.0.8 as Debian has it the number alone.
_VERSION = _pattern(r"(?:fio[- ](\d+\.\d+[\w.-]*)|(2\.0\.\d))$")
_STARTING = _pattern(r"Starting (\d+ [tp].*)")
_HEAD = _pattern(r"(?:\S.*: \(g=\d+\): rw=|Starting \d+ [tp])")
_TERSE = re.compile(r"^[2-5];(?:[^;\n]*;){30}", re.MULTILINE)
_CLIENT_LINE = re.compile(r"^hostname=[^\n]*, be=\d, |^<[^>\n]+> .*: \(groupid=", re.MULTILINE)

_DATE, _SLACK = "%b %d %H:%M:%S %Y", timedelta(seconds=5)
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Text that fio writes at the beginning of a line; the first of these that is found shows the prefix of each line.
_ANCHORS = (
    re.compile(r"(.{1,300}?)\s*Run status group \d+ \(all jobs\):"),
    re.compile(r'([^{"]{1,300}?)\s*"fio version"'),
    re.compile(r"(.{1,300}?)\s*fio-\d+\.[\w.-]+$"),
)
# The keys of the text in a log that is JSON itself: docker's json-file driver, and others.
_LOGGED = ("log", "message", "msg", "line")


def read(data: bytes) -> Output:
    """Read fio's output in a file: JSON or text, with anything around it. Raises :class:`OutputUnreadable`."""
    text = _bare(data)
    has_jobs = _JOB_BEGINS.search(text) is not None
    has_json = '"fio version"' in text or (not has_jobs and "{" in text)
    if _CLIENT_LINE.search(text):
        raise OutputUnreadable(OF_CLIENTS)
    if not has_jobs and not has_json:
        if terse := _TERSE.search(text):
            why = "this is fio's terse output (--minimal), which is not imported: use --output-format=json"
            raise _refused(text, terse.start(), why)
        raise OutputUnreadable("this is not output of fio: it has the figures of no job, as text or as JSON")
    try:
        found = [*([parse_output(text)] if has_json else []), *([parse_text(text)] if has_jobs else [])]
    except ValueError as error:  # an integer of thousands of digits, or no date
        raise OutputUnreadable(str(error)) from error
    # Text has no line for a direction without I/O.
    if len({tuple((job.name, job.direction, job.total_ios) for job in one.jobs if job.total_ios) for one in found}) > 1:
        raise OutputUnreadable("the file has fio's JSON and its text, and their figures differ: keep one of them")
    return _checked(found[0])


def parse_text(text: str) -> Output:
    """The figures of one output of fio; the last report counts if there are several (``--status-interval``).

    A name that several jobs have becomes ``name/1``, ``name/2``. IOPS are as printed or, if that is rounded as in
    ``112k``, computed from the I/Os issued. Raises :class:`OutputUnreadable`, with the number of the line.
    """
    for one in _JOB_BEGINS.finditer(text):
        if not _JOB.match(text, one.start()):
            line = text[one.start() :].partition("\n")[0].strip()
            raise _refused(text, one.start(), f"this line of fio's output is cut off or damaged: {line!r}")
    lines = list(_JOB.finditer(text))
    groups = [found.start() for found in _GROUP.finditer(text)]
    if not lines:
        raise _refused(text, len(text.rstrip()), "fio's output is cut off, or none: it has the figures of no job")
    head = text[: lines[0].start()]
    version = next((one[1] or one[2] for one in _VERSION.finditer(head)), "")
    if version and version[:2] not in ("1.", "2.", "3."):
        raise _refused(text, head.index(version), f"fio-{version} is unknown here; known are fio 1.x to 3.x")
    if second := _HEAD.search(text, lines[0].end()):
        raise _refused(text, second.start(), SECOND_OUTPUT)
    # A report ends with the sums of its groups.
    begin = max((at for at in groups if at < lines[-1].start()), default=0)
    jobs = [line for line in lines if line.start() >= begin]
    if not {line.group("name", "pid") for line in lines} <= {job.group("name", "pid") for job in jobs}:
        raise _refused(text, jobs[0].start(), SECOND_OUTPUT)  # all reports of one run have the same jobs
    ends = [*(job.start() for job in jobs[1:]), next((at for at in groups if at > jobs[-1].start()), len(text))]
    names = told_apart([job["name"] for job in jobs])
    figures = tuple(
        one for job, end, name in zip(jobs, ends, names, strict=True) for one in _printed_figures(job, end, name)
    )
    started = sum(int(n) for one in _STARTING.findall(head) for n in re.findall(r"(\d+) [tp]", one))
    reported = sum(int(job["members"]) for job in jobs)
    if started not in (0, reported):
        why = f"fio started {started} jobs and reports {reported}: a part is missing, or a job did nothing at all"
        raise _refused(text, jobs[-1].start(), why)
    if not groups or groups[-1] < jobs[-1].start():
        raise _refused(text, len(text.rstrip()), "fio's output is cut off: its end, 'Run status group', is missing")
    # The zone of the clock is not printed; versions before 2.0.9 print no time.
    first, at = (line["ended"] and datetime.strptime(line["ended"], _DATE) for line in (lines[0], jobs[-1]))
    # In containers, the processes of several runs have the same numbers.
    lasted = timedelta(milliseconds=sum({job.name: job.runtime_ms for job in figures}.values()))
    if first and at and not -_SLACK <= at - first <= lasted + _SLACK:
        raise _refused(text, jobs[0].start(), SECOND_OUTPUT)
    return Output(f"fio-{version}" if version else "", figures, (), at.isoformat() if at else "")


def _refused(text: str, at: int, why: str) -> OutputUnreadable:
    return OutputUnreadable(why, text.count("\n", 0, at) + 1)


def _printed_figures(job: re.Match[str], end: int, name: str) -> Iterator[JobFigures]:
    """The figures of each direction of a job, whose lines end at ``end``.

    Raises :class:`OutputUnreadable` if the job failed or lacks lines, and if its IOPS do not agree with the I/Os
    issued: then a line with another job's name is missing between them.
    """
    text, begin = job.string, job.end()
    if job["error"] != "0":
        why = f"job {job['name']} ended with an error: {job['words'] or job['error']}"
        raise _refused(text, job.start(), why)
    told = list(_ISSUED.finditer(text, begin, end))
    if len(told) != 1:
        at, why = len(text[:end].rstrip()), f"fio's output is cut off: job {job['name']} has no line 'issued'"
        if told:
            at, why = told[1].start(), "issued of no job: the line with the job's name is missing above it"
        raise _refused(text, at, why)
    issued = dict(zip(DIRECTIONS, map(int, told[0].groups("0")), strict=True))
    lines = {line[1]: line for line in _DIRECTION.finditer(text, begin, end)}
    # With unified_rw_reporting=both there is a line for all three together, too.
    missing = [one for one in DIRECTIONS if issued[one] and one not in lines and lines.keys() != {MIXED}]
    if not lines and re.search(rf"^ *{re.escape(job['name'])}(?: \(\w+\))?: ioengine=cpu", text, re.MULTILINE):
        return  # it burns CPU time, and its I/Os are cycles of that
    if missing or not lines:
        why = f"job {job['name']} issued {' and '.join(missing) or 'no'} I/Os, and their figures are missing"
        raise _refused(text, job.start(), why)
    ends = [*(line.start() for line in lines.values()), end][1:]
    latencies = {one: _latencies(line, until) for (one, line), until in zip(lines.items(), ends, strict=True)}
    sync = [one for found in latencies.values() for one in found if one.kind is LatencyKind.SYNC]
    if len(lines) > 1:
        lines.pop(MIXED, None)  # with unified_rw_reporting=both: the sum of the others
    for direction, line in lines.items():
        old = line["old"] is not None
        iops_text, bw_text, ms = line.group("old_iops", "old_bw", "old_ms") if old else line.group("iops", "bw", "ms")
        (iops, slack), (bw_b_s, _), runtime_ms = _amount(iops_text, old=old), _amount(bw_text, old=old), int(ms)
        ios = sum(issued.values()) if direction == MIXED else issued[direction]
        as_issued = ios * 1000 / runtime_ms if runtime_ms else math.inf
        if abs(iops - as_issued) > slack + 1:
            why = f"{iops_text} IOPS for {runtime_ms} ms are not the {ios} I/Os issued"
            raise _refused(text, line.start(), why)
        own = [one for one in latencies[direction] if one.kind is not LatencyKind.SYNC]
        completion = next((one for one in own if one.kind is LatencyKind.COMPLETION), None)
        yield JobFigures(
            name=name,
            direction=direction,
            iops_mean=as_issued if slack > 1 or iops < _EXACT else iops,
            iops_stddev=None,
            bw_kib_s=bw_b_s / 1024,
            clat_mean_ns=completion.mean_ns if completion else None,
            clat_p99_ns=dict(completion.percentiles_ns).get(_P99) if completion else None,
            total_ios=ios,
            runtime_ms=runtime_ms,
            error=0,
            latencies=(*own, *sync),
        )


def _amount(text: str, *, old: bool) -> tuple[float, float]:
    """The value of a count or size (``2141``, ``112k``, ``20.7MiB``, ``7529.9MB``), and its largest rounding error."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a number that fio prints")
    base = 1024 if (found[5] if old else found[4]) else 1000
    power = (_OLD_PREFIXES if old else _PREFIXES).index(found[3].upper() or "_")
    size = float(base**power) / (8 if found[5] == "bit" else 1)
    return float(found[1]) * size, size if old else size * 10.0 ** -len(found[2] or "")


def _latencies(line: re.Match[str], end: int) -> list[Latency]:
    """The latencies below the line of a direction, with percentiles; latencies of single priorities are left out."""
    text, found, old = line.string, dict[str, Latency](), line["old"] is not None
    for one in _LATENCY.finditer(text, line.end(), end):
        if one[1] in found:
            raise _refused(text, one.start(), f"{one[1]} stands here twice: the line with the IOPS between is missing")
        if "nan" not in one[0]:
            unit = _UNIT_NS[one[2]]
            least, most = (_amount(one[place], old=old)[0] * unit for place in (3, 4))
            found[one[1]] = Latency(LatencyKind(one[1]), least, most, float(one[5]) * unit, float(one[6]) * unit)
    for one in _PERCENTILES.finditer(text, line.end(), end):
        if one[1] in found:
            unit = _UNIT_NS[one[2]]
            percentiles = [(float(percent), float(value) * unit) for percent, value in _PERCENT.findall(one[3])]
            if percentiles == sorted({*percentiles}):  # else the heading of another kind is missing between them
                found[one[1]] = replace(found[one[1]], percentiles_ns=tuple(percentiles))
    return list(found.values())


def _bare(data: bytes) -> str:
    """The text of a file without the prefix of its lines."""
    if b"(groupid=3D" in data:  # a letter as it was sent
        data = quopri.decodestring(data)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", "replace")
    else:
        text = data.decode("utf-8-sig", "replace")
        text = text if "\n" in text else text.replace("\r", "\n")
    lines = [_line(line) for line in text.split("\n")]
    for anchor in _ANCHORS:
        if found := next(filter(None, map(anchor.match, lines)), None):
            prefix = _alike(found[1])
            return "\n".join(line[begin.end() :] if (begin := prefix.match(line)) else line for line in lines)
    return "\n".join(lines)


def _line(line: str) -> str:
    """A line, or the text of an entry in a JSON log, as a terminal shows it: only what follows a carriage return."""
    if line.startswith("{"):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        texts = (entry[name] for name in _LOGGED if name in entry) if isinstance(entry, dict) else ()
        line = next((text.rstrip("\n") for text in texts if isinstance(text, str)), line)
    line = html.unescape(line) if "&gt;" in line else line
    return re.sub(r"[\t\xa0]", " ", _ESCAPE.sub("", line)).rstrip().rpartition("\r")[2]


def _alike(prefix: str) -> re.Pattern[str]:
    """A pattern for the prefixes of the other lines: with another time or stream, or without the blanks at the end."""
    of_a_log = re.search(r"\d", prefix) and re.search(r"[:|\]]", prefix)
    words = re.sub(r"[A-Za-z]+", "A", prefix) if of_a_log else prefix
    pattern = re.sub(r"(?:\\\s)+|\s+", r"\\s*", re.sub(r"\d+", r"\\d+", re.escape(words)))
    return re.compile(pattern.replace("A", "[A-Za-z]+") if of_a_log else pattern)
