"""What fio prints for people, versions 2.0 to 3.x, as figures: ``--output-format=normal``, from a file or a terminal.

Every line has to be one that fio writes, whole (:mod:`bisector.workload.fio.lines`), and what is printed twice has to
agree (:mod:`bisector.workload.fio.printed`): a file that was cut, or glued together, is refused with the line where
that shows.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from bisector.core.figures import DiskFigures, JobFigures, LatencyKind
from bisector.workload.fio import lines as fiolines
from bisector.workload.fio import printed
from bisector.workload.fio.job_file import told_apart
from bisector.workload.fio.lines import Lines, blocks
from bisector.workload.fio.output import DIRECTIONS, SECOND_OUTPUT, Output, OutputUnreadable
from bisector.workload.fio.printed import KIB, Block, Direction, Total

_MAJORS = ("2", "3")
_LAST_OLD = (2, 16)
_P99 = 99.0
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def parse_text(text: str) -> Output:
    """The figures of one whole output.

    A name that several jobs have becomes ``name/1``, ``name/2``. IOPS are as printed or, where they are printed as
    ``112k``, as issued. Raises :class:`OutputUnreadable`, with the line.
    """
    lines = Lines(text)
    try:
        return _output(lines)
    except ValueError as error:  # an integer of thousands of digits
        raise OutputUnreadable(str(error), lines.number) from error


def _output(lines: Lines) -> Output:
    head = _head(lines)
    jobs = tuple(blocks(lines))
    _check_form(head, jobs)
    totals = tuple(_totals(lines))
    disks = tuple(_disks(lines))
    _nothing_more(lines)
    kilo = printed.kilo(jobs, head.block_sizes)
    printed.check(jobs, totals, head.started, kilo)
    names = told_apart([job.name for job in jobs])
    figures = (_figures(name, job, one, kilo) for name, job in zip(names, jobs, strict=True) for one in job.directions)
    return Output(head.version, tuple(figures), disks, _iso(jobs[-1]))


@dataclass(slots=True)
class _Head:
    """What stands before the first job's figures; ``release`` is the version as numbers."""

    version: str = ""
    release: tuple[int, int] = (0, 0)
    started: int | None = None
    block_sizes: dict[str, dict[str, int]] = field(default_factory=dict)


def _head(lines: Lines) -> _Head:
    """Read up to the first job; messages and status lines of any kind may stand here."""
    head = _Head()
    while lines.line is None or not fiolines.JOB.fullmatch(lines.line):
        if lines.line is None or lines.indented or fiolines.GROUP.fullmatch(lines.line):
            raise _headless(lines, head)
        if found := lines.take(fiolines.OPTIONS):
            _note_block_sizes(head, found)
        elif ": (g=" in lines.line or ": (groupid=" in lines.line:
            raise lines.unreadable()
        elif found := lines.take(fiolines.VERSION):
            _note_version(lines, head, found)
        elif lines.line.startswith("Starting "):
            _note_started(lines, head)
        else:
            lines.at += 1
    if not head.version:
        raise OutputUnreadable("fio's version does not stand above this job: the beginning is missing", lines.number)
    return head


def _headless(lines: Lines, head: _Head) -> OutputUnreadable:
    if not head.version and lines.line is None:
        return OutputUnreadable("this is no output of fio: no line says fio's version", lines.number)
    return lines.unreadable("the first job's figures")


def _note_version(lines: Lines, head: _Head, found: re.Match[str]) -> None:
    if head.version:
        raise OutputUnreadable(SECOND_OUTPUT, lines.at)
    if found["major"] not in _MAJORS:
        raise OutputUnreadable(f"{found[0]} is unknown here; known are fio 2.0 to 3.x", lines.at)
    head.version = f"fio-{found['number']}"
    head.release = (int(found["major"]), int(found["minor"]))


def _note_started(lines: Lines, head: _Head) -> None:
    found = lines.take(fiolines.STARTING)
    if found is None:
        raise lines.unreadable()
    if head.started is not None:
        raise OutputUnreadable(SECOND_OUTPUT, lines.at)
    head.started = int(found["threads"] or 0) + int(found["processes"] or 0)


def _check_form(head: _Head, jobs: Sequence[Block]) -> None:
    """The words changed after 2.16; a build of a day in between has either."""
    for direction in (direction for job in jobs for direction in job.directions):
        if head.release != _LAST_OLD and direction.old is not (head.release < _LAST_OLD):
            raise OutputUnreadable(f"this is not how {head.version} writes: parts of two outputs?", direction.line)


def _note_block_sizes(head: _Head, found: re.Match[str]) -> None:
    """Of the directions that have one size only; two jobs of one name with different sizes have none."""
    ranges = re.findall(r"(\d+)([KMG]?)-(\d+)([KMG]?)", found["bs"])
    sizes = (
        {}
        if found["by_order"]
        else {
            name: int(least) * KIB ** "_KMG".index(prefix or "_")
            for name, (least, prefix, most, other) in zip(DIRECTIONS, ranges, strict=False)
            if (least, prefix) == (most, other)
        }
    )
    known = head.block_sizes.setdefault(found["name"], sizes)
    if known != sizes:
        known.clear()


def _totals(lines: Lines) -> Iterator[Total]:
    """The run status groups; at least one has to be there."""
    found = lines.take(fiolines.GROUP)
    if found is None:
        raise lines.unreadable("the run status group")
    while found:
        group = int(found["group"])
        while lines.indented:
            if (total := lines.take(fiolines.OLD_TOTALS) or lines.take(fiolines.TOTALS)) is None:
                raise lines.unreadable()
            old = total.re is fiolines.OLD_TOTALS
            times = int(total["shortest"]), int(total["longest"])
            yield Total(lines.at, group, total["name"].lower(), total["io"], old, *times)
        lines.skip(fiolines.ASIDE)
        found = lines.take(fiolines.GROUP)


def _disks(lines: Lines) -> Iterator[DiskFigures]:
    """The block devices, if fio was not told to leave them out."""
    if lines.take(fiolines.DISKS) is None:
        return
    if not lines.indented:
        raise lines.unreadable("the first disk")
    while lines.indented:
        if (found := lines.take(fiolines.DISK)) is None:
            raise lines.unreadable()
        ios, merges, ticks = (tuple(map(int, found[name].split("/"))) for name in ("ios", "merges", "ticks"))
        yield DiskFigures(
            name=found["name"],
            read_ios=ios[0],
            write_ios=ios[1],
            read_merges=merges[0],
            write_merges=merges[1],
            read_ticks_ms=ticks[0],
            write_ticks_ms=ticks[1],
            in_queue_ms=int(found["queue"]),
            util_percent=float(found["util"]),
        )


def _nothing_more(lines: Lines) -> None:
    lines.skip(fiolines.ASIDE)
    if lines.line is not None:
        raise lines.unreadable("the end of the file")


def _figures(name: str, block: Block, direction: Direction, kilo: int) -> JobFigures:
    latency = {one.kind: one for one in direction.latencies}.get(LatencyKind.COMPLETION)
    ios = block.ios(direction)
    exact = direction.iops.slack <= 1
    return JobFigures(
        name=name,
        direction=direction.name,
        iops_mean=direction.iops.value if exact else ios * 1000 / direction.runtime_ms,
        iops_stddev=direction.iops_stddev,
        bw_kib_s=direction.bw_bytes_s(kilo).value / KIB,
        clat_mean_ns=latency.mean_ns if latency else None,
        clat_p99_ns=dict(latency.percentiles_ns).get(_P99) if latency else None,
        total_ios=ios,
        runtime_ms=direction.runtime_ms,
        error=block.error,
        latencies=direction.latencies,
        cpu=block.cpu,
        depths_percent=block.depths_percent,
    )


def _iso(job: Block) -> str:
    """When a job ended, from the words of ctime(3), of a clock whose zone nobody wrote down; empty if fio gave none."""
    if not job.ended:
        return ""
    _, month, day, time, year = job.ended.split()
    try:
        return datetime.fromisoformat(f"{year}-{_MONTHS.index(month) + 1:02}-{int(day):02}T{time}").isoformat()
    except ValueError as error:
        raise OutputUnreadable(f"{job.ended!r} is no time", job.line) from error
