"""How the hosts of a fleet stand, as lines for people: a row for each, and below it what needs more words."""

from collections.abc import Iterator
from datetime import datetime

from bisector.core import units
from bisector.executor.fleet_status import FleetStatus, HostState, HostStatus
from bisector.executor.standing import HostStanding, ShownJob
from bisector.report.findings import LEAST_WIDTH
from bisector.report.terminal import Line, Role, Span, cells, cut, left, wrapped

_GAP = "  "
_HEAD = ("host", "does", "since", "job", "results", "room")
_WORDS = {
    HostState.WAITING: "waits for its coordinator",
    HostState.NO_WORKER: "no worker",
    HostState.DIALS_IN: "dials in",
}
_ROLES = {
    HostState.WORKING: Role.ACTIVE,
    HostState.IDLE: Role.BETTER,
    HostState.UNREACHABLE: Role.WORSE,
    HostState.NO_WORKER: Role.WORSE,
    HostState.STOPPED: Role.WORSE,
}
_SHORT = 12  # digits of a commit


def fleet_lines(status: FleetStatus, now: datetime, width: int) -> list[Line]:
    """All of it; times are those of the time zone of ``now``. Only commands are wider than ``width``."""
    table = [_HEAD, *(_cells(host, now) for host in status.hosts)]
    widths = [max(cells(row[column]) for row in table) for column in range(len(_HEAD))]
    lines = [cut(_row(_HEAD, widths, Role.HEAD), width)]
    for host, row in zip(status.hosts, table[1:], strict=True):
        lines.append(cut(_row(row, widths, _ROLES.get(host.state, Role.PLAIN)), width))
        lines += _below(host, now, widths[0], width)
    return lines


def _row(row: tuple[str, ...], widths: list[int], role: Role) -> Line:
    padded = [left(cell, width) for cell, width in zip(row, widths, strict=True)]
    name, does, *rest = (f"{cell}{_GAP}" for cell in padded)
    return (Span(name, Role.STRONG if role is not Role.HEAD else role), Span(does, role), Span("".join(rest)))


def _cells(host: HostStatus, now: datetime) -> tuple[str, ...]:
    found, does = host.standing, _WORDS.get(host.state, host.state.value)
    if found is None:
        return (host.name, does, "", "", "", "")
    if found.drained is not None:
        does += ", drained"
    since = _clock(found.worker.link_since, now) if found.worker is not None else ""
    job = "; ".join(_job(one, now) for one in found.running)
    waiting = units.plural(len(found.waiting), "waits", "wait") if found.waiting else "none"
    return (host.name, does, since, job or "none", waiting, f"{units.size(found.free_bytes)} free")


def _job(job: ShownJob, now: datetime) -> str:
    of = f" of {job.commit.sha[:_SHORT]}" if job.commit is not None else ""
    what = f"trial {job.n}" if job.n is not None else job.work.value if job.work is not None else f"job {job.id}"
    detail = f" ({job.detail})" if job.detail else ""
    if job.stage is None or job.stage_since is None:
        return f"{what}{of} since {_clock(job.began, now)}"
    return f"{what}{of}, {job.stage}{detail} since {_clock(job.stage_since, now)}"


def _below(host: HostStatus, now: datetime, indent: int, width: int) -> Iterator[Line]:
    pad = Span(" " * indent + _GAP)
    room = max(width - indent - len(_GAP), LEAST_WIDTH)
    for sentence in _sentences(host, now):
        yield from ((pad, Span(text, Role.DIM)) for text in wrapped(sentence.split(), room))
    if host.remedy:  # a command is not broken into lines: it is there to be copied
        yield from ((pad, Span(line.strip(), Role.COMMAND)) for line in host.remedy.splitlines())


def _sentences(host: HostStatus, now: datetime) -> Iterator[str]:
    if host.trouble:
        yield host.trouble
    if host.standing is not None:
        yield from _told(host.standing, now)


def _told(found: HostStanding, now: datetime) -> Iterator[str]:
    if found.drained is not None:
        since = f" since {_clock(found.drained.since, now)}" if found.drained.since else ""
        why = f": {found.drained.reason}" if found.drained.reason else ""
        yield f"takes no more trials{since}{why}"
    for job in found.running:
        subject = f": {job.commit.subject}" if job.commit is not None and job.commit.subject else ""
        yield f"job {job.id} of run {job.run}{subject}"
    if found.waiting:
        jobs = ", ".join(f"job {job.id} of run {job.run} ({job.standing})" for job in found.waiting)
        yield f"not on record yet: {jobs}"


def _clock(text: str, now: datetime) -> str:
    """The time of day, with the date if that is another one; what is no time as it is, for it is another host's."""
    try:
        at = datetime.fromisoformat(text).astimezone(now.tzinfo)
    except ValueError:
        return text
    return at.strftime("%H:%M" if at.date() == now.date() else "%Y-%m-%d %H:%M")
