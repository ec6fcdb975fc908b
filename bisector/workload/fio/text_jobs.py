"""The lines of a text, and the jobs among them: from a job's own line to the first that is not indented."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from bisector.core.figures import CpuUse, Latency, LatencyKind
from bisector.workload.fio import lines as fiolines
from bisector.workload.fio import units
from bisector.workload.fio.blocks import Block, Direction
from bisector.workload.fio.output import DIRECTIONS, SECOND_OUTPUT, OutputUnreadable
from bisector.workload.fio.units import TIME_NS

_KINDS = {kind.value: kind for kind in LatencyKind}
_CUT = "fio's output is cut off: it ends before "
_BEGINNINGS = (fiolines.VERSION, fiolines.OPTIONS, fiolines.STARTING, fiolines.JOB)


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
        if any(
            one.fullmatch(self.line) for one in (fiolines.VERSION, fiolines.OPTIONS, fiolines.STARTING, fiolines.JOB)
        ):
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
    while found := lines.take(fiolines.JOB):
        draft = _Draft(found, lines.at)
        while lines.indented:
            _read_part(lines, draft)
        yield _block(lines, draft)
        lines.skip(fiolines.ASIDE)


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
    old = found.re is fiolines.OLD_DIRECTION
    name = found["name"]
    if name in {one.name for one in draft.directions} or draft.parts:
        raise ValueError(f"figures of {name} that belong to no job: its line is missing")
    iops = units.count(found["iops"], old=old)
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
    low, high = (units.count(found[name], old=direction.old) for name in ("min", "max"))
    mean, unit = float(found["mean"]), TIME_NS[found["unit"]]
    if not low.value - low.slack <= mean <= high.value + high.slack + 1:
        raise ValueError(f"a mean {kind} of {mean:g} does not lie between {found['min']} and {found['max']}")
    latency = Latency(kind, low.value * unit, high.value * unit, mean * unit, float(found["stddev"]) * unit)
    draft.directions[-1] = replace(direction, latencies=(*direction.latencies, latency))


def _percentiles(lines: Lines, draft: _Draft, found: re.Match[str]) -> None:
    text = ""
    while not text or text.endswith(","):
        row = lines.take(fiolines.PERCENTILE_ROW)
        if row is None:
            raise lines.unreadable("the rest of the percentiles")
        text += row[0]
    pairs = tuple(
        (float(percent), float(value) * TIME_NS[found["unit"]]) for percent, value in fiolines.PERCENTILE.findall(text)
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
    (fiolines.OLD_DIRECTION, _direction),
    (fiolines.DIRECTION, _direction),
    (fiolines.LATENCY, _latency),
    (fiolines.PERCENTILES, _percentiles),
    (fiolines.IOPS, _iops),
    (fiolines.CPU, _part("cpu")),
    (fiolines.DEPTHS, _part("IO depths")),
    (fiolines.SUBMIT, _part("submit")),
    (fiolines.COMPLETE, _part("complete")),
    (fiolines.ISSUED, _part("issued")),
    (fiolines.OLD_ISSUED, _part("issued")),
    *((pattern, _unread) for pattern in fiolines.UNREAD),
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
        depths_percent=tuple((level, float(share)) for level, share in fiolines.LEVEL.findall(depths["levels"])),
        issued={name: int(issued[name]) for name in DIRECTIONS},
    )
