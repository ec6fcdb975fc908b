"""The state of a fleet's hosts: a row for each, with a remark below it if needed."""

from datetime import UTC, datetime

from bisector.core import units
from bisector.fleet.status import FleetStatus, HostState, HostStatus, UnderWay
from bisector.report.blocks import Column, Role, Row, Table

_ROLES = {HostState.WORKING: Role.ACTIVE, HostState.IDLE: Role.BETTER}
_TOLD = ("job", "bisector", "python", "dask", "room")


def fleet_table(status: FleetStatus) -> Table:
    """The table of all hosts; times are in this machine's time zone."""
    columns = (Column("host"), Column("does", verdict=True), *map(Column, _TOLD))
    return Table(columns, tuple(map(_row, status.hosts)))


def _row(host: HostStatus) -> Row:
    cells = tuple("" for _ in _TOLD)
    jobs = host.told.jobs if host.told is not None else ()
    if (told := host.told) is not None:
        versions = told.versions
        cells = (
            "; ".join(map(_job, jobs)) or "none",
            f"{versions.bisector} ({versions.source[:7]})",
            versions.python,
            versions.distributed or "none",
            f"{units.size(told.free_bytes)} free",
        )
    said = "; ".join(filter(None, (host.trouble, *(f"job {job.id} of run {job.run}" for job in jobs))))
    role = _ROLES.get(host.state, Role.WORSE)
    return Row((host.name, host.state.value, *cells), said, role, host.remedy or "")


def _job(job: UnderWay) -> str:
    what = f"trial {job.n}" if job.n is not None else f"job {job.id}"
    stage = f", {job.stage}" if job.stage is not None else ""
    detail = f" ({job.detail})" if job.detail else ""
    return f"{what} of {job.sha[:12]}{stage}{detail} since {_clock(job.since)}"


def _clock(text: str) -> str:
    """The time of day, with the date unless it is today; anything else is shown as the other host sent it."""
    try:
        at, now = datetime.fromisoformat(text).astimezone(), datetime.now(UTC).astimezone()
    except ValueError:
        return text
    return at.strftime("%H:%M" if at.date() == now.date() else "%Y-%m-%d %H:%M")
