"""The findings of ``bisector doctor`` about one machine or several, and the state of a fleet, as text for people."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from bisector.core import units
from bisector.core.errors import Finding, Grade
from bisector.fleet.status import FleetStatus, HostState, HostStatus, UnderWay
from bisector.host.packages import merged
from bisector.report.blocks import Block, Column, Fact, FactList, Paragraph, Role, Row, Table

_ROLE_OF_GRADE = {Grade.OK: Role.BETTER, Grade.WARN: Role.SKIP, Grade.MISSING: Role.WORSE, Grade.INFO: Role.DIM}
_STATE_WIDTH = 2 + max(len(grade) for grade in Grade)
_ROLE_OF_STATE = {HostState.WORKING: Role.ACTIVE, HostState.IDLE: Role.BETTER}
_TOLD = ("job", "bisector", "python", "dask", "room")


def finding_blocks(findings: Sequence[Finding]) -> tuple[Block, ...]:
    """A row for each finding with its remedy below it, and the conclusion."""
    width = max(len(finding.name) for finding in findings)
    rows = tuple(_fact(finding.name, width, finding, finding.what) for finding in findings)
    missing = [finding for finding in findings if finding.state is Grade.MISSING]
    what = f"`bisector start` would fail: {len(missing)} missing" if missing else "`bisector start` can begin here"
    commands = merged(finding.remedy for finding in missing if finding.remedy)
    said = Paragraph(what + _warnings(findings), Role.STRONG)
    return (
        FactList(rows, width + _STATE_WIDTH),
        said,
        FactList(tuple(Fact("", command=command) for command in commands)),
    )


def side_by_side(found: Mapping[str, Sequence[Finding]]) -> tuple[Block, ...]:
    """The findings of all machines by name, then a conclusion for each machine; equal findings share a row."""
    # In the order of the machine with the most findings; findings that it lacks come last.
    longest = sorted(found.values(), key=len, reverse=True)
    names = list(dict.fromkeys(finding.name for findings in longest for finding in findings))
    width, rows, sums = max(map(len, names), default=0), [], []
    for name in names:
        alike: defaultdict[Finding, list[str]] = defaultdict(list)
        for machine, findings in found.items():
            for finding in findings:
                if finding.name == name:
                    alike[finding].append(machine)
        for place, (finding, machines) in enumerate(alike.items()):
            who = f"all {len(found)}" if len(machines) == len(found) > 1 else ", ".join(machines)
            rows.append(_fact("" if place else name, width, finding, f"{who}: {finding.what}"))
    for machine, findings in found.items():
        missing = dict.fromkeys(finding.name for finding in findings if finding.state is Grade.MISSING)
        said = f"`bisector start` can begin there{_warnings(findings)}"
        if len(findings) <= 1:  # its row says why
            said = "was not looked at"
        elif missing:
            said = f"`bisector start` would fail there{_warnings(findings)}; missing: {', '.join(missing)}"
        sums.append(Fact(machine, (said,), Role.STRONG))
    return FactList(tuple(rows), width + _STATE_WIDTH), FactList(tuple(sums))


def _fact(name: str, width: int, finding: Finding, text: str) -> Fact:
    label = f"{name:<{width}}  {finding.state}"
    return Fact(label, (text,), command=finding.remedy or "", label_role=_ROLE_OF_GRADE[finding.state])


def _warnings(findings: Sequence[Finding]) -> str:
    count = sum(finding.state is Grade.WARN for finding in findings)
    return f", {units.plural(count, 'warning')}" if count else ""


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
    role = _ROLE_OF_STATE.get(host.state, Role.WORSE)
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
