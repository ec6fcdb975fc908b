"""What fio prints for people, versions 2.0 to 3.x (``--output-format=normal``), and what files have around that.

A letter quotes with ``> ``, a log of a container or of continuous integration has times, a page indents. What stands
before each line is taken off; every line keeps its number. Then lines are known by their beginning, and those of other
kinds are passed over. A job whose last line is missing, or whose group has no sum, is cut off. The forms are those of
stat.c, diskutil.c and lib/num2str.c of fio 2.0 to 3.42.
"""

import codecs
import html
import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from bisector.core.figures import CpuUse, DiskFigures, JobFigures, Latency, LatencyKind
from bisector.workload.fio import output
from bisector.workload.fio.job_file import told_apart
from bisector.workload.fio.output import DIRECTIONS, MIXED, SECOND_OUTPUT, Output, OutputUnreadable

_UNIT_NS = {"nsec": 1, "usec": 1_000, "msec": 1_000_000}
# Up to 2.16 "K" is 1024 bytes and "P" is 1024 "G" (lib/num2str.c). Since 2.17 prefixes are those of IEC and SI.
_OLD_PREFIXES, _PREFIXES = "_KMGPE", "_KMGTPE"
_N = r"\d+(?:\.\d+)? ?[kKMGTPE]?i?(?:B|bit)?"
_REAL = r"\d+\.\d+|-?nan"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(rf"^ *{text}", re.MULTILINE)


# A line that begins as the first does and is not as the second is damaged.
_JOB_BEGINS = _pattern(r"\S.*: \(groupid=\d")
_JOB = _pattern(
    r"(?P<name>\S.*): \(groupid=(?P<group>\d+), jobs=(?P<members>\d+)\): err= ?(?P<error>\d+)(?: \((?P<words>.*)\))?: "
    r"pid=(?P<pid>\d+)(?:: \w{3} (?P<ended>\w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}))?"
)
_DIRECTION_BEGINS = _pattern(r"(?:read|write|trim|mixed) ?: (?:io|IOPS)=")
_DIRECTION = _pattern(
    rf"(\w+) ?: (?:io=(?P<old>{_N}), bw=(?P<old_bw>{_N})/s, iops=(?P<old_iops>{_N}) ?, runt= *(?P<old_ms>\d+)msec"
    rf"|IOPS=(?P<iops>{_N}), BW=(?P<bw>{_N})(?:/s)? \({_N}(?:/s)?\)\({_N}/(?P<ms>\d+)msec\))"
)
_LATENCY = _pattern(
    rf"(slat|clat|lat|sync) \(([num]sec)\) ?: min= *({_N}) ?, max= *({_N}) ?, "
    rf"avg= *({_REAL}), stdev= *(\d+\.\d\d|-?nan)"
)
_PERCENTILES = _pattern(r"(\w+) percentiles \(([num]sec)\):\n((?: *\|.*(?:\n|$))*)")
_AMOUNT = re.compile(r"(\d+(?:\.(\d+))?) ?([kKMGTPE]?)(i?)(B|bit|)")
_PERCENT = re.compile(r"(\d+\.\d+)th=\[ *(\d+)\]")
_SAMPLES = _pattern(r"iops +: min=.*, stdev= *(\d+\.\d\d),")
_CPU = _pattern(rf"cpu +: usr=({_REAL})%, sys=({_REAL})%, ctx=(\d+), majf=(\d+),")
_DEPTHS = _pattern(rf"IO depths +: ((?:\d+=(?:{_REAL})%, ){{6}}>=64=(?:{_REAL})%)")
_SHARE = re.compile(r"([>=]*\d+)=(\d+\.\d+)%")
_ISSUED = _pattern(r"issued +(?:rwts? ?)?: ?total=(?:r=)?(\d+)(?:/w=|,)(\d+)(?:/[dt]=|,)(\d+).* short=")
_SUM = _pattern(r"(READ|WRITE|TRIM|MIXED): (?:io=.* mint=(\d+)msec, maxt=(\d+)msec|bw=.* run=(\d+)-(\d+)msec)")
_DISK = _pattern(
    r"(\S+): ios=(\d+)/(\d+)(?:, sectors=\d+/\d+)?, merge=(\d+)/(\d+), ticks=(\d+)/(\d+), in_queue=(\d+), "
    r"util=(\d+\.\d+)%"
)
_GROUP = _pattern(r"Run status group (\d+) \(all jobs\):")
# Up to 2.0.7 it is "fio 2.0.7", and of 2.0.8 as Debian has it the number alone.
_VERSION = _pattern(r"(?:fio[- ](\d+\.\d+[\w.-]*)|(2\.0\.\d))$")
_STARTING = _pattern(r"Starting (\d+ [tp].*)")
_HEAD = _pattern(r"(?:\S.*: \(g=\d+\): rw=|Starting \d+ [tp])")
_TERSE = re.compile(r"^[2-5];(?:[^;\n]*;){30}", re.MULTILINE)
_OF_CLIENTS = re.compile(r"^hostname=[^\n]*, be=\d, |^<[^>\n]+> .*: \(groupid=", re.MULTILINE)

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# What fio writes at the beginning of a line; the first of these that is there shows what stands before each line.
_ANCHORS = (
    re.compile(r"(.+?)\s*Run status group \d+ \(all jobs\):"),
    re.compile(r'([^{"]+?)\s*"fio version"'),
    re.compile(r"(.+?)\s*fio-\d+\.[\w.-]+$"),
)
# Where a log that is JSON itself has its text: docker's json-file driver, and others.
_LOGGED = ("log", "message", "msg", "line")


def read(data: bytes) -> Output:
    """What fio told in a file: JSON, or text with whatever was pasted with it. Raises :class:`OutputUnreadable`."""
    text = _bare(data)
    has_jobs = _JOB_BEGINS.search(text) is not None
    has_json = '"fio version"' in text or (not has_jobs and "{" in text)
    if _OF_CLIENTS.search(text):
        raise OutputUnreadable(output.OF_CLIENTS)
    if not has_jobs and not has_json:
        if terse := _TERSE.search(text):
            why = "this is fio's terse output (--minimal), which is not imported: use --output-format=json"
            raise _refused(text, terse.start(), why)
        raise OutputUnreadable("this is not output of fio: it has the figures of no job, as text or as JSON")
    try:
        found = [*([output.parse_output(text)] if has_json else []), *([parse_text(text)] if has_jobs else [])]
    except ValueError as error:  # an integer of thousands of digits, or no date
        raise OutputUnreadable(str(error)) from error
    if len({tuple((job.name, job.direction, job.total_ios) for job in one.jobs) for one in found}) > 1:
        raise OutputUnreadable("the file has fio's JSON and its text, and their figures differ: keep one of them")
    return found[0]


def _refused(text: str, at: int, why: str) -> OutputUnreadable:
    return OutputUnreadable(why, text.count("\n", 0, at) + 1)


@dataclass(frozen=True, slots=True)
class _Job:
    """The lines of one job, or of several that fio was told to report as one, from ``line`` on up to ``end``."""

    line: re.Match[str]
    end: int

    @property
    def key(self) -> tuple[str, ...]:
        return self.line.group("name", "group", "pid")

    def issued(self) -> dict[str, int]:
        """How many I/Os of each direction. Raises :class:`OutputUnreadable` unless exactly one line tells it."""
        text, name = self.line.string, self.line["name"]
        lines = list(_ISSUED.finditer(text, self.line.end(), self.end))
        if not lines:
            why = f"fio's output is cut off: job {name} has no line 'issued'"
            raise _refused(text, len(text[: self.end].rstrip()), why)
        if len(lines) > 1:
            raise _refused(text, lines[1].start(), "issued of no job: the line with the job's name is missing above it")
        found = dict(zip(DIRECTIONS, map(int, lines[0].groups()), strict=True))
        return {**found, MIXED: sum(found.values())}

    def figures(self) -> Iterator[JobFigures]:
        """Those of each direction. Raises :class:`OutputUnreadable` for a job that failed, or lacks lines."""
        text, begin, end, issued = self.line.string, self.line.end(), self.end, self.issued()
        name, words = self.line["name"], self.line["words"] or self.line["error"]
        if self.line["error"] != "0":
            raise _refused(text, self.line.start(), f"job {name} ended with an error: {words}")
        lines = list(_DIRECTION.finditer(text, begin, end))
        ends = [*(one.start() for one in lines), end][1:]
        sections = {line[1]: (line, _latencies(line, until)) for line, until in zip(lines, ends, strict=True)}
        missing = [one for one in DIRECTIONS if issued[one] and not sections.keys() & {one, MIXED}]
        if missing or not sections:
            why = f"job {name} issued {' and '.join(missing) or 'no'} I/Os, and their figures are missing"
            raise _refused(text, self.line.start(), why)
        sync = [one for _, found in sections.values() for one in found if one.kind is LatencyKind.SYNC]
        if len(sections) > 1:
            sections.pop(MIXED, None)  # with unified_rw_reporting=both, what the others are together
        cpu, depths = _CPU.search(text, begin, end), _DEPTHS.search(text, begin, end)
        for direction, (line, latencies) in sections.items():
            of_direction = [one for one in latencies if one.kind is not LatencyKind.SYNC]
            completion = next((one for one in of_direction if one.kind is LatencyKind.COMPLETION), None)
            samples = _SAMPLES.search(text, line.end(), ends[lines.index(line)])
            iops, bw_b_s, runtime_ms = _rates(line, issued[direction])
            yield JobFigures(
                name=name,
                direction=direction,
                iops_mean=iops,
                iops_stddev=float(samples[1]) if samples else None,
                bw_kib_s=bw_b_s / 1024,
                clat_mean_ns=completion.mean_ns if completion else None,
                clat_p99_ns=dict(completion.percentiles_ns).get(99.0) if completion else None,
                total_ios=issued[direction],
                runtime_ms=runtime_ms,
                error=0,
                latencies=(*of_direction, *sync),
                cpu=None if cpu is None or "nan" in cpu[0] else _cpu(*cpu.groups()),
                depths_percent=tuple((one, float(share)) for one, share in _SHARE.findall(depths[1] if depths else "")),
            )


def parse_text(text: str) -> Output:
    """The figures of one whole output; of reports that fio made meanwhile (``--status-interval``), the last one's.

    A name that several jobs have becomes ``name/1``, ``name/2``. IOPS are as printed or, where they are printed as
    ``112k``, as issued. Raises :class:`OutputUnreadable`, with the line.
    """
    for begins, whole in ((_JOB_BEGINS, _JOB), (_DIRECTION_BEGINS, _DIRECTION)):
        for one in begins.finditer(text):
            if not whole.match(text, one.start()):
                line = text[one.start() :].partition("\n")[0].strip()
                raise _refused(text, one.start(), f"this line of fio's output is cut off or damaged: {line!r}")
    lines = list(_JOB.finditer(text))
    if not lines:
        raise _refused(text, len(text.rstrip()), "fio's output is cut off, or none: it has the figures of no job")
    head = text[: lines[0].start()]
    version = next((one[1] or one[2] for one in _VERSION.finditer(head)), "")
    if version and version[:2] not in ("2.", "3."):
        raise _refused(text, head.index(version), f"fio-{version} is unknown here; known are fio 2.0 to 3.x")
    if second := _HEAD.search(text, lines[0].end()):
        raise _refused(text, second.start(), SECOND_OUTPUT)
    reports = _reports(text, lines)
    jobs = reports[-1]
    for earlier, later in itertools.pairwise(reports):
        did = {job.key: job.issued()[MIXED] for job in later}
        if any(job.issued()[MIXED] > did.get(job.key, -1) for job in earlier):
            raise _refused(text, later[0].line.start(), SECOND_OUTPUT)
    figures = [(job, one) for job in jobs for one in job.figures()]
    started = sum(int(n) for one in _STARTING.findall(head) for n in re.findall(r"(\d+) [tp]", one))
    reported = sum(int(job.line["members"]) for job in jobs)
    if started not in (0, reported):
        why = f"fio started {started} jobs and reports {reported}: a part is missing, or a job did nothing at all"
        raise _refused(text, jobs[-1].line.start(), why)
    _check_sums(jobs, figures)
    names = dict(zip(map(id, jobs), told_apart([job.line["name"] for job in jobs]), strict=True))
    ended = jobs[-1].line["ended"]
    # By a clock whose zone is not told; versions before 2.0.9 tell no time.
    at = datetime.strptime(ended, "%b %d %H:%M:%S %Y").isoformat() if ended else ""
    disks = tuple(map(_disk, _DISK.finditer(text, jobs[-1].end)))
    return Output(
        f"fio-{version}" if version else "", tuple(replace(one, name=names[id(job)]) for job, one in figures), disks, at
    )


def _reports(text: str, lines: Sequence[re.Match[str]]) -> list[list[_Job]]:
    """The jobs by report: the sums of the groups end one."""
    reports: list[list[_Job]] = [[]]
    for line, following in zip(lines, [*(one.start() for one in lines[1:]), len(text)], strict=True):
        group = _GROUP.search(text, line.end(), following)
        reports[-1].append(_Job(line, group.start() if group else following))
        if group:
            reports.append([])
    return [one for one in reports if one]


def _check_sums(jobs: Sequence[_Job], figures: Sequence[tuple[_Job, JobFigures]]) -> None:
    """Hold the jobs of each group in each direction against the line below them that tells for how long they ran.

    Raises :class:`OutputUnreadable` where there is none, for the end is missing, and where a job is.
    """
    text = jobs[-1].line.string
    times: dict[tuple[str, str], set[int]] = {}
    for job, one in figures:
        times.setdefault((job.line["group"], one.direction), set()).add(one.runtime_ms)
    groups = [*_GROUP.finditer(text, jobs[-1].end)]
    for group, until in zip(groups, [*(one.start() for one in groups[1:]), len(text)][: len(groups)], strict=True):
        for line in _SUM.finditer(text, group.end(), until):
            ran = times.pop((group[1], line[1].lower()), set())
            told = {int(one) for one in line.groups()[1:] if one}
            if {min(ran, default=-1), max(ran, default=-1)} != told and (ran or line[1] != "MIXED"):
                why = f"the jobs above this line did not {line[1].lower()} for so long: is one missing?"
                raise _refused(text, line.start(), why)
    if times:
        number, direction = min(times)
        why = f"fio's output is cut off: run status group {number} has no sum of its {direction}s"
        raise _refused(text, len(text.rstrip()), why)


def _rates(line: re.Match[str], ios: int) -> tuple[float, float, int]:
    """IOPS, bytes a second and the milliseconds of a direction.

    Raises :class:`OutputUnreadable` where these IOPS are not those of the I/Os issued: lines are missing between.
    """
    old = line["old"] is not None
    names = ("old_iops", "old_bw", "old_ms") if old else ("iops", "bw", "ms")
    (iops, slack), (bw_b_s, _) = (_amount(line[one], old=old) for one in names[:2])
    runtime_ms = int(line[names[2]])
    as_issued = ios * 1000 / runtime_ms if runtime_ms else math.inf
    if abs(iops - as_issued) > slack + 1:
        why = f"{line[names[0]]} IOPS for {runtime_ms} ms are not the {ios} I/Os issued"
        raise _refused(line.string, line.start(), why)
    return iops if slack <= 1 else as_issued, bw_b_s, runtime_ms


def _amount(text: str, *, old: bool) -> tuple[float, float]:
    """A count, or bytes, and how far the true value may be away: ``2141``, ``112k``, ``20.7MiB``, ``7529.9MB``."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a number that fio prints")
    base = 1024 if (found[5] if old else found[4]) else 1000
    power = (_OLD_PREFIXES if old else _PREFIXES).index(found[3].upper() or "_")
    size = float(base**power) / (8 if found[5] == "bit" else 1)
    return float(found[1]) * size, size if old else size * 10.0 ** -len(found[2] or "")


def _latencies(line: re.Match[str], end: int) -> list[Latency]:
    """Those below the line of a direction, with their percentiles; those of single priorities are not kept."""
    text, found, old = line.string, dict[str, Latency](), line["old"] is not None
    for one in _LATENCY.finditer(text, line.end(), end):
        if one[1] in found:
            raise _refused(text, one.start(), f"{one[1]} stands here twice: the line with the IOPS between is missing")
        if "nan" not in one[0]:
            unit = _UNIT_NS[one[2]]
            least, most = (_amount(one[place], old=old)[0] * unit for place in (3, 4))
            found[one[1]] = Latency(LatencyKind(one[1]), least, most, float(one[5]) * unit, float(one[6]) * unit)
    for one in _PERCENTILES.finditer(text, line.end(), end):
        if one[3].rstrip().endswith(","):
            raise _refused(text, one.end() - 1, "the percentiles are cut off after this line")
        if one[1] in found:
            unit = _UNIT_NS[one[2]]
            percentiles = tuple((float(percent), float(value) * unit) for percent, value in _PERCENT.findall(one[3]))
            found[one[1]] = replace(found[one[1]], percentiles_ns=percentiles)
    return list(found.values())


def _cpu(user: str, system: str, switches: str, faults: str) -> CpuUse:
    return CpuUse(float(user), float(system), int(switches), int(faults))


def _disk(line: re.Match[str]) -> DiskFigures:
    names = ("read_ios", "write_ios", "read_merges", "write_merges", "read_ticks_ms", "write_ticks_ms", "in_queue_ms")
    counts = dict(zip(names, map(int, line.groups()[1:8]), strict=True))
    return DiskFigures(name=line[1], **counts, util_percent=float(line[9]))


def _bare(data: bytes) -> str:
    """The text of a file without what stands before its lines."""
    lines = [_line(line) for line in _decoded(data).split("\n")]
    for anchor in _ANCHORS:
        if found := next(filter(None, map(anchor.match, lines)), None):
            prefix = _alike(found[1])
            return "\n".join(line[begin.end() :] if (begin := prefix.match(line)) else line for line in lines)
    return "\n".join(lines)


def _decoded(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    text = data.decode("utf-8-sig", "replace")
    return text if "\n" in text else text.replace("\r", "\n")


def _line(line: str) -> str:
    """As a terminal shows it: what a carriage return goes back over is gone."""
    line = _logged(line) if line.startswith("{") else line
    line = html.unescape(line) if "&gt;" in line else line
    return re.sub(r"[\t\xa0]", " ", _ESCAPE.sub("", line)).rstrip().rpartition("\r")[2]


def _logged(line: str) -> str:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return line
    texts = (entry[name] for name in _LOGGED if name in entry) if isinstance(entry, dict) else ()
    return next((text.rstrip("\n") for text in texts if isinstance(text, str)), line)


def _alike(prefix: str) -> re.Pattern[str]:
    """What begins the other lines: with another time, of another stream, or without the blanks at its end."""
    of_a_log = re.search(r"\d", prefix) and re.search(r"[:|\]]", prefix)
    words = re.sub(r"[A-Za-z]+", "A", prefix) if of_a_log else prefix
    pattern = re.sub(r"(?:\\\s)+|\s+", r"\\s*", re.sub(r"\d+", r"\\d+", re.escape(words)))
    return re.compile(pattern.replace("A", "[A-Za-z]+") if of_a_log else pattern)
