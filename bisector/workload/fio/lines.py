"""The lines of fio's text output, each whole, and the jobs that are read from them.

The patterns are after stat.c and diskutil.c of fio 2.0 to 3.41. Each matches from the first character of a line to the
last, so that a line which was cut does not pass: where a number stands at a line's end, its form is fixed, or nobody
reads it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from bisector.core.figures import CpuUse, Latency, LatencyKind
from bisector.workload.fio import printed
from bisector.workload.fio.output import DIRECTIONS, SECOND_OUTPUT, OutputUnreadable
from bisector.workload.fio.printed import BYTES as _BYTES
from bisector.workload.fio.printed import COUNT as _COUNT
from bisector.workload.fio.printed import OLD_BYTES as _OLD_BYTES
from bisector.workload.fio.printed import TIME_NS, Block, Direction

_REAL = r"\d+\.\d+"
_HUNDREDTHS = r"\d+\.\d\d"
_SHARE = rf"(?:{_REAL}|-?nan)%"
_DISTRIBUTION = rf"(?:[>=]*\d+={_REAL}%, )*[>=]*\d+={_REAL}%"
_PAIR = r"\d+/\d+"


def _levels(*depths: int) -> str:
    return "".join(f"{depth}={_REAL}%, " for depth in depths) + f">=64={_REAL}%"


# Up to 2.0.7 it is "fio 2.0.7", and of 2.0.8 as Debian has it the number alone.
VERSION = re.compile(r"(?:fio[- ]|(?=\d+\.\d+\.\d+$))(?P<number>(?P<major>\d+)\.(?P<minor>\d+)[\w.-]*)")
OPTIONS = re.compile(
    r"(?P<name>.*): \(g=\d+\): rw=\w+, bs(?P<by_order>\(seq/rand\))?=(?P<bs>.+), ioengine=[^ ,]+, iodepth=\d+"
)
STARTING = re.compile(r"Starting (?:(?P<threads>\d+) threads?)?(?: and )?(?:(?P<processes>\d+) process(?:es)?)?")
JOB = re.compile(
    r"(?P<name>.*): \(groupid=(?P<group>\d+), jobs=(?P<members>\d+)\): err= ?(?P<error>\d+)(?: \(.*\))?: pid=\d+"
    r"(?:: (?P<ended>\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}))?"
)
GROUP = re.compile(r"Run status group (?P<group>\d+) \(all jobs\):")
DISKS = re.compile(r"Disk stats \(read/write\):")

_OLD_DIRECTION = re.compile(
    rf"  (?P<name>read|write|trim|mixed) ?: io=(?P<io>{_OLD_BYTES}), bw=(?P<bw>{_OLD_BYTES})/s, "
    rf"iops=(?P<iops>{_COUNT}) ?, runt= *(?P<runtime>\d+)msec"
)
_DIRECTION = re.compile(
    rf"  (?P<name>read|write|trim|mixed): IOPS=(?P<iops>{_COUNT}), BW=(?P<bw>{_BYTES})/s \({_BYTES}/s\)"
    rf"\((?P<io>{_BYTES})/(?P<runtime>\d+)msec\)(?:; \d+ zone resets|; Cachehit={_REAL}%)?"
)
_LATENCY = re.compile(
    rf" +(?P<name>[a-z][a-z_]*(?: prio \d+/\d+)?) \((?P<unit>[num]sec)\) ?: min= *(?P<min>{_COUNT}) ?, "
    rf"max= *(?P<max>{_COUNT}) ?, avg= *(?P<mean>{_HUNDREDTHS}), stdev= *(?P<stddev>{_HUNDREDTHS})"
)
_PERCENTILES = re.compile(r" +(?P<name>[a-z][a-z_]*(?: prio .+)?) percentiles \((?P<unit>[num]sec)\):")
_PERCENTILE_ROW = re.compile(r" +\|(?: +\d+\.\d+th=\[ *\d+\],)*(?: +\d+\.\d+th=\[ *\d+\],?)")
_PERCENTILE = re.compile(r"(\d+\.\d+)th=\[ *(\d+)\]")
_IOPS = re.compile(
    rf" +iops +: min= *\d+, max= *\d+, avg= *{_HUNDREDTHS}, stdev= *(?P<stddev>{_HUNDREDTHS}), samples=\d+"
)
_CPU = re.compile(
    rf" +cpu +: usr=(?P<user>{_REAL})%, sys=(?P<system>{_REAL})%, ctx=(?P<switches>\d+), majf=(?P<major>\d+), minf=\d+"
)
_DEPTHS = re.compile(rf" +IO depths +: (?P<levels>{_levels(1, 2, 4, 8, 16, 32)})")
_LEVEL = re.compile(rf"([>=]*\d+)=({_REAL})%")
_SUBMIT = re.compile(rf" +submit +: {_levels(0, 4, 8, 16, 32, 64)}")
_COMPLETE = re.compile(rf" +complete +: {_levels(0, 4, 8, 16, 32, 64)}")
_OLD_ISSUED = re.compile(
    r" +issued +: total=r=(?P<read>\d+)/w=(?P<write>\d+)/[dt]=(?P<trim>\d+), short=r=\d+/w=\d+/[dt]=\d+"
    r"(?:, drop=r=\d+/w=\d+/[dt]=\d+)?"
)
_ISSUED = re.compile(
    r" +issued rwts?: total=(?P<read>\d+),(?P<write>\d+),(?P<trim>\d+)(?:,\d+)?,? short=\d+,\d+,\d+(?:,\d+)?,?"
    r" dropped=\d+,\d+,\d+(?:,\d+)?"
)
# Written and not read; what is wrong with them is not looked for.
_UNREAD = (
    re.compile(r"  Description  : \[.*\]"),
    re.compile(rf" +bw \( *[A-Za-z]+ */s *\) *: min= *\d+, max= *\d+, per={_SHARE}, avg= *{_REAL}, stdev= *{_REAL}.*"),
    re.compile(rf" +lat \([num]sec\) *: {_DISTRIBUTION}"),
    re.compile(r" +errors    : total=.*"),
    re.compile(r" +latency   : target=.*"),
    re.compile(r"  steadystate  : attained=.*"),
    re.compile(r"  [a-z_]+(?:/[a-z_]+)*:"),  # fsync/fdatasync/sync_file_range, whose latencies follow
)

OLD_TOTALS = re.compile(
    rf" +(?P<name>READ|WRITE|TRIM|MIXED): io=(?P<io>{_OLD_BYTES}), aggrb={_OLD_BYTES}/s, minb={_OLD_BYTES}/s, "
    rf"maxb={_OLD_BYTES}/s, mint=(?P<shortest>\d+)msec, maxt=(?P<longest>\d+)msec"
)
TOTALS = re.compile(
    rf" +(?P<name>READ|WRITE|TRIM|MIXED): bw={_BYTES}/s \({_BYTES}/s\), {_BYTES}/s-{_BYTES}/s "
    rf"\({_BYTES}/s-{_BYTES}/s\), io=(?P<io>{_BYTES}) \({_BYTES}\), run=(?P<shortest>\d+)-(?P<longest>\d+)msec"
)
DISK = re.compile(
    rf" +(?P<name>\S+): ios=(?P<ios>{_PAIR})(?:, sectors={_PAIR})?, merge=(?P<merges>{_PAIR}), "
    rf"ticks=(?P<ticks>{_PAIR}), in_queue=(?P<queue>\d+), util=(?P<util>{_REAL})%"
    rf"(?:, aggrios={_PAIR}(?:, aggsectors={_PAIR})?, aggrmerge={_PAIR}, aggrticks={_PAIR}, aggrin_queue=\d+, "
    rf"aggrutil={_REAL}%)?"
)
# Not indented, and told between figures: the run in progress, and fio's own messages.
ASIDE = re.compile(r"(?:Jobs: |fio: ).*|")


_KINDS = {kind.value: kind for kind in LatencyKind}
_CUT = "fio's output is cut off: it ends before "
_BEGINNINGS = (VERSION, OPTIONS, STARTING, JOB)


class Lines:
    """The lines of a text with a place in them."""

    def __init__(self, text: str) -> None:
        # Copied from a page or through a terminal, lines have blanks and carriage returns at their ends.
        self.lines = [line.rstrip() for line in text.split("\n")]
        self.at = 0

    @property
    def number(self) -> int:
        """Of the line here, from 1; of the last one at the end."""
        return min(self.at + 1, len(self.lines))

    @property
    def line(self) -> str | None:
        """The line here; None at the end."""
        return self.lines[self.at] if self.at < len(self.lines) else None

    @property
    def indented(self) -> bool:
        """Whether the line here belongs to one above it."""
        return self.line is not None and self.line.startswith(" ")

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The line here, if it is such a one; then the next line is here."""
        found = pattern.fullmatch(self.line) if self.line is not None else None
        self.at += found is not None
        return found

    def skip(self, pattern: re.Pattern[str]) -> None:
        """Go to the first line that is not such a one."""
        while self.take(pattern):
            pass

    def unreadable(self, lacking: str = "") -> OutputUnreadable:
        """Why it cannot go on here; ``lacking`` is what has to come."""
        if self.line is None:
            return OutputUnreadable(_CUT + lacking, self.number)
        if any(one.fullmatch(self.line) for one in _BEGINNINGS):
            return OutputUnreadable(SECOND_OUTPUT, self.number)
        if self.at == len(self.lines) - 1:
            return OutputUnreadable(f"fio's output is cut off in this line: {self.line.strip()!r}", self.number)
        what = f"; {lacking} has to be here" if lacking else ""
        return OutputUnreadable(f"not a whole line that fio writes here{what}: {self.line.strip()!r}", self.number)


@dataclass(slots=True)
class _Draft:
    """A job being read: its line, the parts seen so far."""

    found: re.Match[str]
    line: int
    directions: list[Direction] = field(default_factory=list)
    parts: dict[str, re.Match[str]] = field(default_factory=dict)


def blocks(lines: Lines) -> Iterator[Block]:
    """The jobs, one after the other, up to the run status groups."""
    while found := lines.take(JOB):
        draft = _Draft(found, lines.at)
        while lines.indented:
            _read_part(lines, draft)
        yield _block(lines, draft)
        lines.skip(ASIDE)


def _read_part(lines: Lines, draft: _Draft) -> None:
    for pattern, read in _READERS:
        line = lines.number
        if found := lines.take(pattern):
            try:
                read(lines, draft, found)
            except ValueError as error:
                raise OutputUnreadable(str(error), line) from error
            return
    raise lines.unreadable()


def _direction(lines: Lines, draft: _Draft, found: re.Match[str]) -> None:
    old = found.re is _OLD_DIRECTION
    name = found["name"]
    if name in {one.name for one in draft.directions} or draft.parts:
        raise ValueError(f"figures of {name} that belong to no job: its line is missing")
    iops = printed.count(found["iops"], old=old)
    runtime = int(found["runtime"])
    draft.directions.append(Direction(lines.at, name, old, found["io"], found["bw"], iops, runtime, (), None))


def _current(draft: _Draft, what: str) -> Direction:
    if not draft.directions or draft.parts:
        raise ValueError(f"{what} of no direction: the line with its IOPS is missing")
    return draft.directions[-1]


def _latency(_lines: Lines, draft: _Draft, found: re.Match[str]) -> None:
    """Those of syncs and of single priorities are not kept."""
    kind = _KINDS.get(found["name"])
    if kind is None:
        return
    direction = _current(draft, kind)
    if kind in {one.kind for one in direction.latencies}:
        raise ValueError(f"{kind} stands here twice: the line with the IOPS between them is missing")
    low, high = (printed.count(found[name], old=direction.old) for name in ("min", "max"))
    mean, unit = float(found["mean"]), TIME_NS[found["unit"]]
    if not low.value - low.slack <= mean <= high.value + high.slack + 1:
        raise ValueError(f"a mean {kind} of {mean:g} does not lie between {found['min']} and {found['max']}")
    latency = Latency(kind, low.value * unit, high.value * unit, mean * unit, float(found["stddev"]) * unit)
    draft.directions[-1] = replace(direction, latencies=(*direction.latencies, latency))


def _percentiles(lines: Lines, draft: _Draft, found: re.Match[str]) -> None:
    text = ""
    while not text or text.endswith(","):
        row = lines.take(_PERCENTILE_ROW)
        if row is None:
            raise lines.unreadable("the rest of the percentiles")
        text += row[0]
    pairs = tuple(
        (float(percent), float(value) * TIME_NS[found["unit"]]) for percent, value in _PERCENTILE.findall(text)
    )
    if list(pairs) != sorted(set(pairs)) or [value for _, value in pairs] != sorted(value for _, value in pairs):
        raise ValueError("these percentiles do not ascend")
    if (kind := _KINDS.get(found["name"])) is None:
        return
    direction = _current(draft, f"{kind} percentiles")
    if kind not in {one.kind for one in direction.latencies if not one.percentiles_ns}:
        raise ValueError(f"percentiles of {kind}, whose line is missing, or a second time")
    latencies = (replace(one, percentiles_ns=pairs) if one.kind is kind else one for one in direction.latencies)
    draft.directions[-1] = replace(direction, latencies=tuple(latencies))


def _iops(_lines: Lines, draft: _Draft, found: re.Match[str]) -> None:
    direction = _current(draft, "samples of IOPS")
    if direction.iops_stddev is not None:
        raise ValueError("samples of IOPS stand here twice: the line with the IOPS between them is missing")
    draft.directions[-1] = replace(direction, iops_stddev=float(found["stddev"]))


def _part(name: str) -> Callable[[Lines, _Draft, re.Match[str]], None]:
    def keep(_lines: Lines, draft: _Draft, found: re.Match[str]) -> None:
        if name in draft.parts:
            raise ValueError(f"a second line {name!r} in one job: the next job's line is missing")
        draft.parts[name] = found

    return keep


def _unread(_lines: Lines, _draft: _Draft, _found: re.Match[str]) -> None:
    """Nothing of it is kept."""


_PARTS = ("cpu", "IO depths", "submit", "complete", "issued")
_READERS: tuple[tuple[re.Pattern[str], Callable[[Lines, _Draft, re.Match[str]], None]], ...] = (
    (_OLD_DIRECTION, _direction),
    (_DIRECTION, _direction),
    (_LATENCY, _latency),
    (_PERCENTILES, _percentiles),
    (_IOPS, _iops),
    (_CPU, _part("cpu")),
    (_DEPTHS, _part("IO depths")),
    (_SUBMIT, _part("submit")),
    (_COMPLETE, _part("complete")),
    (_ISSUED, _part("issued")),
    (_OLD_ISSUED, _part("issued")),
    *((pattern, _unread) for pattern in _UNREAD),
)


def _block(lines: Lines, draft: _Draft) -> Block:
    missing = [name for name in _PARTS if name not in draft.parts]
    if missing or not draft.directions:
        raise lines.unreadable(f"the line {missing[0]!r} of job {draft.found['name']}" if missing else "the job's IOPS")
    cpu, depths, issued = (draft.parts[name] for name in ("cpu", "IO depths", "issued"))
    return Block(
        line=draft.line,
        name=draft.found["name"],
        group=int(draft.found["group"]),
        members=int(draft.found["members"]),
        error=int(draft.found["error"]),
        ended=draft.found["ended"] or "",
        directions=tuple(draft.directions),
        cpu=CpuUse(float(cpu["user"]), float(cpu["system"]), int(cpu["switches"]), int(cpu["major"])),
        depths_percent=tuple((level, float(share)) for level, share in _LEVEL.findall(depths["levels"])),
        issued={name: int(issued[name]) for name in DIRECTIONS},
    )
