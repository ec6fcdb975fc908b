"""How the hosts of a fleet stand, as lines for people: a row for each, and below it what needs more words."""

from collections.abc import Iterator
from datetime import UTC, datetime

from bisector.core import units
from bisector.fleet.status import FleetStatus, HostState, HostStatus, UnderWay
from bisector.report.findings import LEAST_WIDTH
from bisector.report.terminal import Line, Role, Span, cells, cut, left, wrapped

_GAP = "  "
_HEAD = ("host", "does", "job", "bisector", "python", "dask", "room")
_ROLES = {HostState.WORKING: Role.ACTIVE, HostState.IDLE: Role.BETTER}
_SHORT = 12  # digits of a commit


def fleet_lines(status: FleetStatus, width: int) -> list[Line]:
    """All of it; times are of this machine's time zone. Only commands are wider than ``width``."""
    table = [_HEAD, *map(_cells, status.hosts)]
    widths = [max(cells(row[column]) for row in table) for column in range(len(_HEAD))]
    lines = [cut(_row(_HEAD, widths, Role.HEAD), width)]
    for host, row in zip(status.hosts, table[1:], strict=True):
        lines.append(cut(_row(row, widths, _ROLES.get(host.state, Role.WORSE)), width))
        lines += _below(host, widths[0], width)
    return lines


def _row(row: tuple[str, ...], widths: list[int], role: Role) -> Line:
    padded = [left(cell, width) for cell, width in zip(row, widths, strict=True)]
    name, does, *rest = (f"{cell}{_GAP}" for cell in padded)
    return (Span(name, Role.STRONG if role is not Role.HEAD else role), Span(does, role), Span("".join(rest)))


def _cells(host: HostStatus) -> tuple[str, ...]:
    if (told := host.told) is None:
        return (host.name, host.state.value, *("" for _ in _HEAD[2:]))
    versions = told.versions
    job = "; ".join(map(_job, told.jobs)) or "none"
    source = f"{versions.bisector} ({versions.source[:7]})"
    room = f"{units.size(told.free_bytes)} free"
    return (host.name, host.state.value, job, source, versions.python, versions.distributed or "none", room)


def _job(job: UnderWay) -> str:
    what = f"trial {job.n}" if job.n is not None else f"job {job.id}"
    stage = f", {job.stage}" if job.stage is not None else ""
    detail = f" ({job.detail})" if job.detail else ""
    return f"{what} of {job.sha[:_SHORT]}{stage}{detail} since {_clock(job.since)}"


def _below(host: HostStatus, indent: int, width: int) -> Iterator[Line]:
    pad = Span(" " * indent + _GAP)
    room = max(width - indent - len(_GAP), LEAST_WIDTH)
    jobs = host.told.jobs if host.told is not None else ()
    sentences = [*filter(None, [host.trouble]), *(f"job {job.id} of run {job.run}" for job in jobs)]
    for sentence in sentences:
        yield from ((pad, Span(text, Role.DIM)) for text in wrapped(sentence.split(), room))
    if host.remedy:  # a command is not broken into lines: it is there to be copied
        yield from ((pad, Span(line.strip(), Role.COMMAND)) for line in host.remedy.splitlines())


def _clock(text: str) -> str:
    """The time of day, with the date if that is another one; what is no time as it is, for it is another host's."""
    try:
        at, now = datetime.fromisoformat(text).astimezone(), datetime.now(UTC).astimezone()
    except ValueError:
        return text
    return at.strftime("%H:%M" if at.date() == now.date() else "%Y-%m-%d %H:%M")
