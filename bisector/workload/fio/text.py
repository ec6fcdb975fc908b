"""What fio prints for people, versions 2.0 to 3.x, as figures: ``--output-format=normal``.

A line is known by its beginning, and has to be whole then; lines of other kinds are passed over. What is missing shows
in what fio prints twice: I/Os and their rate, bytes and their rate, the jobs and the sums of their group. The forms are
those of stat.c, diskutil.c and lib/num2str.c of fio 2.0 to 3.42.
"""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from bisector.core.figures import CpuUse, DiskFigures, JobFigures, Latency, LatencyKind
from bisector.workload.fio import output
from bisector.workload.fio.job_file import told_apart
from bisector.workload.fio.output import DIRECTIONS, MIXED, SECOND_OUTPUT, Output, OutputUnreadable
from bisector.workload.fio.pasted import bare

_KIB = 1024
_P99 = 99.0
_UNIT_NS = {"nsec": 1, "usec": 1_000, "msec": 1_000_000}
# Up to 2.16 "K" is 1024 bytes (1000 with kb_base=1000), "P" is 1024 "G", and what stands after the point is the
# remainder of a division: 1.05 M is "1.5M" (lib/num2str.c). Since 2.17 prefixes are those of IEC and SI.
_OLD_PREFIXES = "_KMGPE"
_PREFIXES = "_KMGTPE"

_N = r"\d+(?:\.\d+)? ?[kKMGTPE]?i?(?:B|bit)?"
_REAL = r"(?:\d+\.\d+|-?nan)"
_UNIT = r"\((?P<unit>[num]sec)\)"
_PAIR = r"\d+/\d+"
# Of each kind of line how it begins, and the whole of it.
_KINDS = {
    "options": (r".*: \(g=\d+\): rw=", r"(?P<name>.*): \(g=\d+\): rw=\w*(?:, bs=(?P<sizes>.+), ioengine=)?.*"),
    # Up to 2.0.7 it is "fio 2.0.7", and of 2.0.8 as Debian has it the number alone.
    "version": (r"(?:fio[- ]\d+\.\d+[\w.-]*|2\.0\.\d)$", r"(?:fio[- ])?(?P<number>(?P<major>\d+)\..*)"),
    "starting": (r"Starting \d+ [tp]", r"Starting (?:(\d+) threads?)?(?: and )?(?:(\d+) process(?:es)?)?"),
    "job": (
        r".*: \(groupid=\d",
        r"(?P<name>.*): \(groupid=(?P<group>\d+), jobs=(?P<members>\d+)\): err= ?(?P<error>\d+)"
        r"(?: \((?P<words>.*)\))?: pid=(?P<pid>\d+)(?:: \w{3} (?P<ended>\w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}))?",
    ),
    "direction": (
        r"(?:read|write|trim|mixed) ?: (?:io|IOPS)=",
        rf"(?P<name>\w+) ?: (?:(?P<old>io)=(?P<io>{_N}), bw=(?P<bw>{_N})/s, iops=(?P<iops>{_N}) ?, "
        rf"runt= *(?P<runt>\d+)msec|IOPS=(?P<IOPS>{_N}), BW=(?P<BW>{_N})(?:/s)? "
        rf"\({_N}(?:/s)?\)\((?P<IO>{_N})/(?P<RUNT>\d+)msec\)(?:;.*)?)",
    ),
    "latency": (
        r"(?:slat|clat|lat|sync) \([num]sec\) ?: min=",
        rf"(?P<kind>\w+) {_UNIT} ?: min= *(?P<min>{_N}) ?, max= *(?P<max>{_N}) ?, avg= *(?P<mean>{_REAL}), "
        r"stdev= *(?P<stddev>\d+\.\d\d|-?nan)",
    ),
    "percentiles": (r"[a-z].* percentiles \(", rf"(?P<kind>.+) percentiles {_UNIT}:"),
    "row": (r"\| +\d+\.\d+th=\[", r"\|(?: +\d+\.\d+th=\[ *\d+\],)*(?: +\d+\.\d+th=\[ *\d+\],?)"),
    "samples": (
        r"iops +: min=",
        rf"iops +: min= *\d+, max= *\d+, avg= *{_REAL}, stdev= *(?P<stddev>\d+\.\d\d|-?nan),.*",
    ),
    "cpu": (
        r"cpu +: usr=",
        rf"cpu +: usr=(?P<user>{_REAL})%, sys=(?P<system>{_REAL})%, ctx=(?P<switches>\d+), majf=(?P<faults>\d+),.*",
    ),
    "depths": (r"IO depths +:", rf"IO depths +: (?P<shares>(?:\d+={_REAL}%, ){{6}}>=64={_REAL}%)"),
    "issued": (
        r"issued +(?:rwts? ?)?: ?total=",
        r"issued +(?:rwts? ?)?: ?total=(?:r=)?(?P<read>\d+)(?:/w=|,)(?P<write>\d+)(?:/[dt]=|,)(?P<trim>\d+)"
        r"(?:,\d+)?,? short=.*",
    ),
    "group": (r"Run status group \d+", r"Run status group (?P<group>\d+) \(all jobs\):"),
    "total": (
        r"(?:READ|WRITE|TRIM|MIXED): (?:io|bw)=",
        rf"(?P<name>\w+): (?:(?P<old>io)=(?P<io>{_N}), aggrb=.*, mint=(?P<least>\d+)msec, maxt=(?P<most>\d+)msec"
        rf"|bw=.*, io=(?P<IO>{_N}) \({_N}\), run=(?P<LEAST>\d+)-(?P<MOST>\d+)msec)",
    ),
    "disk": (
        r"\S+: ios=\d+/",
        rf"(?P<name>\S+): ios=(?P<ios>{_PAIR})(?:, sectors={_PAIR})?, merge=(?P<merges>{_PAIR}), "
        rf"ticks=(?P<ticks>{_PAIR}), in_queue=(?P<queue>\d+), util=(?P<util>{_REAL})%(?:, aggrios=.*%)?",
    ),
}
_BEGIN = {kind: re.compile(begin) for kind, (begin, _) in _KINDS.items()}
_WHOLE = {kind: re.compile(whole) for kind, (_, whole) in _KINDS.items()}
_AMOUNT = re.compile(r"(\d+(?:\.(\d+))?) ?([kKMGTPE]?)(i?)(B|bit|)")
_PERCENT = re.compile(r"(\d+\.\d+)th=\[ *(\d+)\]")
_SHARE = re.compile(r"([>=]*\d+)=(\d+\.\d+)%")
_SIZES = re.compile(r"(\d+)([KMG]?)-(\d+)([KMG]?)")
_TERSE = re.compile(r"^[2-5];(?:[^;\n]*;){30}", re.MULTILINE)
_OF_CLIENTS = re.compile(r"^hostname=[^\n]*, be=\d, |^<[^>\n]+> .*: \(groupid=", re.MULTILINE)
_Amount: TypeAlias = tuple[float, float]  # as printed, and how far away the true value may be


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that is known, by its number and kind."""

    number: int
    kind: str
    found: re.Match[str]

    def __getitem__(self, part: str) -> str:
        """A part by its name; some have theirs in capitals where they are written as since 2.17."""
        return str(self.found[part] if self.found[part] is not None else self.found[part.upper()])

    @property
    def is_old(self) -> bool:
        return self.found.groupdict().get("old") is not None

    def refused(self, why: str) -> OutputUnreadable:
        return OutputUnreadable(why, self.number)


@dataclass(frozen=True, slots=True)
class _Job:
    """The figures of one job, or of several that fio was told to report as one, with the bytes of each direction.

    ``kilo`` is what "K" stands for in bytes that are printed as before 2.17.
    """

    line: _Line
    kilo: int
    directions: Mapping[str, tuple[JobFigures, _Amount]]


def read(data: bytes) -> Output:
    """What fio told in a file: JSON, or text with whatever was pasted with it. Raises :class:`OutputUnreadable`."""
    text = bare(data)
    has_jobs = any(_BEGIN["job"].match(line.strip()) for line in text.split("\n"))
    has_json = '"fio version"' in text or (not has_jobs and "{" in text)
    if _OF_CLIENTS.search(text):
        raise OutputUnreadable(output.OF_CLIENTS)
    if not has_jobs and not has_json:
        if terse := _TERSE.search(text):
            raise OutputUnreadable(
                "this is fio's terse output (--minimal), which is not imported: use --output-format=json",
                text.count("\n", 0, terse.start()) + 1,
            )
        raise OutputUnreadable("this is no output of fio: it has the figures of no job, as text or as JSON")
    found = [*([output.parse_output(text)] if has_json else []), *([parse_text(text)] if has_jobs else [])]
    if len({tuple((job.name, job.direction, job.total_ios) for job in one.jobs) for one in found}) > 1:
        raise OutputUnreadable("the file has fio's JSON and its text, and their figures differ: keep one of them")
    return found[0]


def parse_text(text: str) -> Output:
    """The figures of one whole output; of reports that fio made meanwhile (``--status-interval``), the last one's.

    A name that several jobs have becomes ``name/1``, ``name/2``. IOPS are as printed or, where they are printed as
    ``112k``, as issued. Raises :class:`OutputUnreadable`, with the line.
    """
    lines = list(_lines(text))
    begun = next((at for at, line in enumerate(lines) if line.kind == "job"), len(lines))
    version = _version(lines[:begun])
    reports: list[list[_Line]] = []
    for line in lines[begun:]:
        if line.kind in ("options", "starting"):
            raise line.refused(SECOND_OUTPUT)
        if not reports or (line.kind == "job" and any(one.kind == "group" for one in reports[-1])):
            reports.append([])
        reports[-1].append(line)
    last = text.rstrip().count("\n") + 1
    if not reports:
        raise OutputUnreadable("fio's output is cut off, or none: it has the figures of no job", last)
    for earlier, later in itertools.pairwise(reports):
        if not _continues(earlier, later):
            raise later[0].refused(SECOND_OUTPUT)
    try:
        jobs = _jobs(reports[-1], lines[:begun])
        _check_sums(jobs, reports[-1], last)
    except ValueError as error:  # an integer of thousands of digits
        raise OutputUnreadable(str(error), last) from error
    names = told_apart([job.line["name"] for job in jobs])
    figures = (
        replace(one, name=name) for name, job in zip(names, jobs, strict=True) for one, _ in job.directions.values()
    )
    disks = tuple(_disk(line) for line in reports[-1] if line.kind == "disk" and "nan" not in line["util"])
    ended = _ended(jobs[-1].line)
    return Output(version, tuple(figures), disks, ended.isoformat() if ended else "")


def _lines(text: str) -> Iterator[_Line]:
    """Those that are known; one that is not whole is refused, and percentiles that do not go on."""
    row, number = "", 0
    for number, line in enumerate(map(str.strip, text.split("\n")), 1):
        kind = next((kind for kind, begin in _BEGIN.items() if begin.match(line)), "")
        found = _WHOLE[kind].fullmatch(line) if kind else None
        if kind and found is None:
            raise OutputUnreadable(f"this line of fio's output is cut off or damaged: {line!r}", number)
        if row.endswith(",") and kind != "row":
            break
        row = line if kind == "row" else ""
        if found is not None:
            yield _Line(number, kind, found)
    if row.endswith(","):
        raise OutputUnreadable(f"the percentiles are cut off after this line: {row!r}", number - 1)


def _version(head: Sequence[_Line]) -> str:
    said = next((line for line in head if line.kind == "version"), None)
    if said is not None and said["major"] not in "23":
        raise said.refused(f"{said.found[0]} is unknown here; known are fio 2.0 to 3.x")
    return f"fio-{said['number']}" if said is not None else ""


def _continues(earlier: Sequence[_Line], later: Sequence[_Line]) -> bool:
    """Whether both are of one run: of the same processes, and less time lies between them than the run lasted."""
    did: list[dict[tuple[str, ...], int]] = []
    for report in (earlier, later):
        keys = [line.found.group("name", "group", "pid") for line in report if line.kind == "job"]
        issued = [sum(int(line[one]) for one in DIRECTIONS) for line in report if line.kind == "issued"]
        did.append(dict(zip(keys, issued, strict=False)))
    lasted_ms: dict[str, int] = {}
    group = ""
    for line in later:
        group = line["group"] if line.kind == "job" else group
        if line.kind == "direction":
            lasted_ms[group] = max(lasted_ms.get(group, 0), int(line["runt"]))
    before, after = _ended(earlier[0]), _ended(later[0])
    between_ms = (after - before).total_seconds() * 1000 if before and after else 0.0
    return all(ios <= did[1].get(key, -1) for key, ios in did[0].items()) and 0 <= between_ms <= sum(lasted_ms.values())


def _ended(job: _Line) -> datetime | None:
    """By a clock whose zone is not told; versions before 2.0.9 tell no time."""
    return datetime.strptime(job["ended"], "%b %d %H:%M:%S %Y") if job.found["ended"] else None


def _jobs(report: Sequence[_Line], head: Sequence[_Line]) -> list[_Job]:
    jobs: list[list[_Line]] = []
    for line in itertools.takewhile(lambda line: line.kind != "group", report):
        if line.kind == "job":
            jobs.append([])
        jobs[-1].append(line)
    found = [_job(lines, head) for lines in jobs]
    started = sum(int(one or 0) for line in head if line.kind == "starting" for one in line.found.groups())
    reported = sum(int(lines[0]["members"]) for lines in jobs)
    if started not in (0, reported):
        why = f"fio started {started} jobs and reports {reported}: a part is missing, or a job did nothing at all"
        raise jobs[-1][0].refused(why)
    return found


def _job(lines: Sequence[_Line], head: Sequence[_Line]) -> _Job:
    first, sections, whole, at = lines[0], dict[str, list[_Line]](), dict[str, _Line](), ""
    name = first["name"]
    if first["error"] != "0":
        raise first.refused(f"job {name} ended with an error: {first.found['words'] or first['error']}")
    for line in lines[1:]:
        begins = line["name"] if line.kind == "direction" else "sync" if line.found[0].startswith("sync (") else ""
        if "issued" in whole or begins in sections or line.kind in whole:
            raise line.refused(f"{line.kind} of no job: the line with the job's name is missing above it")
        at = begins or at
        if line.kind in ("cpu", "depths", "issued"):
            whole[line.kind] = line
        elif at:
            sections.setdefault(at, []).append(line)
        else:
            raise line.refused(f"{line.kind} of no direction: the line with its IOPS is missing above it")
    if missing := {"cpu", "depths", "issued"} - whole.keys():
        raise lines[-1].refused(f"fio's output is cut off: job {name} ends here, without the line {min(missing)!r}")
    sync = _latencies(sections.pop("sync", []))
    if len(sections) > 1:
        sections.pop(MIXED, None)  # with unified_rw_reporting=both, what the others are together
    issued = {direction: int(whole["issued"][direction]) for direction in DIRECTIONS}
    for direction in DIRECTIONS:
        if not sections or (issued[direction] and not sections.keys() & {direction, MIXED}):
            raise first.refused(f"job {name} issued {direction} I/Os, and their figures are missing")
    issued[MIXED] = sum(issued.values())
    kilo = _kilo(sections, issued, [line for line in head if line.kind == "options" and line["name"] == name])
    cpu = whole["cpu"]
    use = CpuUse(float(cpu["user"]), float(cpu["system"]), int(cpu["switches"]), int(cpu["faults"]))
    depths = tuple((depth, float(share)) for depth, share in _SHARE.findall(whole["depths"]["shares"]))
    found = {}
    for direction, section in sections.items():
        one, io = _figures(name, section, issued[direction], kilo)
        one = replace(one, latencies=(*one.latencies, *sync), depths_percent=depths)
        found[direction] = (replace(one, cpu=None if "nan" in cpu.found[0] else use), io)
    return _Job(first, kilo, found)


def _kilo(sections: Mapping[str, Sequence[_Line]], issued: Mapping[str, int], options: Sequence[_Line]) -> int:
    """What ``K`` is where bytes are printed before 2.17: fio does not say; the number of I/Os of one size does."""
    sizes = _SIZES.findall(options[0].found["sizes"] or "") if len(options) == 1 else []
    for name, (least, prefix, most, other) in zip(DIRECTIONS, sizes, strict=False):
        if name in sections and (least, prefix) == (most, other):
            io = issued[name] * int(least) * _KIB ** "_KMG".index(prefix or "_")
            printed = sections[name][0]["io"]
            return min((_KIB, 1000), key=lambda kilo: abs(_amount(printed, old=True, kilo=kilo)[0] - io))
    return _KIB


def _amount(text: str, *, old: bool, kilo: int = _KIB) -> _Amount:
    """A count, or bytes: ``2141``, ``112k``, ``20.7MiB``, ``96kbit``, and of old versions ``7529.9MB``."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no number that fio prints")
    power = (_OLD_PREFIXES if old else _PREFIXES).index(found[3].upper() or "_")
    base = (kilo if found[5] else 1000) if old else _KIB if found[4] else 1000
    size = float(base**power) * (0.125 if found[5] == "bit" else 1.0)
    return float(found[1]) * size, size if old else size * 10.0 ** -len(found[2] or "")


def _figures(name: str, section: Sequence[_Line], ios: int, kilo: int) -> tuple[JobFigures, _Amount]:
    """What is of one direction of a job, and its bytes; both rates are rounded down where they are printed."""
    line, latencies, runtime_ms = section[0], _latencies(section), int(section[0]["runt"])
    iops, bw, io = (_amount(line[one], old=line.is_old, kilo=kilo) for one in ("iops", "bw", "io"))
    per_s = 1000 / runtime_ms if runtime_ms else math.inf
    if not abs(iops[0] - ios * per_s) <= iops[1] + 1:
        raise line.refused(f"{line['iops']} IOPS for {runtime_ms} ms are not the {ios} I/Os issued")
    if not abs(bw[0] - io[0] * per_s) <= bw[1] + io[1] * per_s + 1:
        raise line.refused(f"{line['bw']}/s for {runtime_ms} ms are not {line['io']}")
    completion = next((one for one in latencies if one.kind is LatencyKind.COMPLETION), None)
    deviations = [float(one["stddev"]) for one in section if one.kind == "samples" and "nan" not in one["stddev"]]
    figures = JobFigures(
        name=name,
        direction=line["name"],
        iops_mean=iops[0] if iops[1] <= 1 else ios * per_s,
        iops_stddev=deviations[0] if deviations else None,
        bw_kib_s=bw[0] / _KIB,
        clat_mean_ns=completion.mean_ns if completion else None,
        clat_p99_ns=dict(completion.percentiles_ns).get(_P99) if completion else None,
        total_ios=ios,
        runtime_ms=runtime_ms,
        error=0,
        latencies=latencies,
    )
    return figures, io


def _latencies(section: Sequence[_Line]) -> tuple[Latency, ...]:
    """Those of single priorities are not kept."""
    found: dict[str, Latency] = {}
    old, kind, unit, in_rows = bool(section) and section[0].is_old, "", 1, False
    for line in section:
        if line.kind in ("latency", "percentiles"):
            kind, unit = line["kind"], _UNIT_NS[line["unit"]]
            in_rows = line.kind == "percentiles"
        if line.kind == "latency" and "nan" not in line.found[0]:
            least, most = (_amount(line[name], old=old)[0] for name in ("min", "max"))
            mean, stddev = float(line["mean"]), float(line["stddev"])
            if kind in found:
                raise line.refused(f"{kind} stands here twice: the line with the IOPS between them is missing")
            found[kind] = Latency(LatencyKind(kind), least * unit, most * unit, mean * unit, stddev * unit)
        elif line.kind == "row" and in_rows and kind in found:
            pairs = [(float(percent), float(value) * unit) for percent, value in _PERCENT.findall(line.found[0])]
            known = (*found[kind].percentiles_ns, *pairs)
            if list(known) != sorted(set(known)) or [one for _, one in known] != sorted(one for _, one in known):
                raise line.refused("these percentiles do not ascend")
            found[kind] = replace(found[kind], percentiles_ns=known)
    return tuple(found.values())


def _check_sums(jobs: Sequence[_Job], report: Sequence[_Line], last: int) -> None:
    """The jobs of each group in each direction against the lines below them."""
    group, missing = "", {(job.line["group"], name) for job in jobs for name in job.directions}
    for line in report:
        group = line["group"] if line.kind == "group" else group
        if line.kind != "total":
            continue
        name = line["name"].lower()
        mine = [job for job in jobs if job.line["group"] == group and name in job.directions]
        if not mine and name == MIXED:
            continue
        missing.discard((group, name))
        times = sorted(job.directions[name][0].runtime_ms for job in mine)
        if times[:1] + times[-1:] != [int(line["least"]), int(line["most"])]:
            raise line.refused(f"the jobs above this line did not {name} for so long: is one missing?")
        bytes_, slack = _amount(line["io"], old=line.is_old, kilo=mine[0].kilo)
        sizes = [job.directions[name][1] for job in mine]
        if abs(bytes_ - sum(size for size, _ in sizes)) > slack + sum(slack for _, slack in sizes):
            raise line.refused(f"the jobs above this line did not {name} {line['io']}: is one missing?")
    for group, name in missing:
        raise OutputUnreadable(f"fio's output is cut off: run status group {group} has no sum of its {name}s", last)


def _disk(line: _Line) -> DiskFigures:
    pairs = {
        f"{direction}_{name}{unit}": int(count)
        for name, unit in (("ios", ""), ("merges", ""), ("ticks", "_ms"))
        for direction, count in zip(DIRECTIONS, line[name].split("/"), strict=False)
    }
    return DiskFigures(line["name"], **pairs, in_queue_ms=int(line["queue"]), util_percent=float(line["util"]))
