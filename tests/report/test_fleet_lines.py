"""How the hosts of a fleet are shown to people."""

import re
from datetime import UTC, datetime, timedelta, timezone

import msgspec.structs
import pytest

from bisector.core.trial import Stage
from bisector.executor.duty import Drained, Link
from bisector.executor.fleet_status import FleetStatus, HostState, HostStatus, state_of
from bisector.executor.spool import Standing
from bisector.executor.standing import HostStanding, NamedCommit, ShownJob, ShownWorker
from bisector.report.fleet_lines import fleet_lines
from bisector.report.terminal import as_text
from bisector.store.facts import Work
from tests import examples

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=timezone(timedelta(hours=1)))
WORKER = ShownWorker(
    pid=7,
    since="2026-11-25T08:00:00+00:00",
    name="bench1",
    coordinator="tls://desk:8786",
    link=Link.CONNECTED,
    link_since="2026-11-26T09:02:00+00:00",
    stopped=False,
)
JOB = ShownJob(
    run="v4.11..v4.13-rc1-0123456789abcdef",
    id=14,
    standing=Standing.RUNNING,
    began="2026-11-26T10:20:00+00:00",
    work=Work.TRIAL,
    n=12,
    commit=NamedCommit(sha=examples.commit(7).sha, subject=examples.commit(7).subject, committed_at=""),
    stage=Stage.WORKLOAD,
    detail="full run",
    stage_since="2026-11-26T10:31:00+00:00",
)
IDLE = HostStanding(
    machine="m", spool="/spool", worker=WORKER, drained=None, running=(), waiting=(), free_bytes=212 << 30
)
BUSY = msgspec.structs.replace(IDLE, running=(JOB,))


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (IDLE, HostState.IDLE),
        (BUSY, HostState.WORKING),
        (msgspec.structs.replace(BUSY, worker=None), HostState.NO_WORKER),
        (
            msgspec.structs.replace(BUSY, worker=msgspec.structs.replace(WORKER, stopped=True)),
            HostState.STOPPED,
        ),
        (msgspec.structs.replace(IDLE, worker=msgspec.structs.replace(WORKER, link=Link.WAITING)), HostState.WAITING),
        (msgspec.structs.replace(IDLE, worker=msgspec.structs.replace(WORKER, link=Link.LEAVING)), HostState.LEAVING),
        (msgspec.structs.replace(BUSY, worker=msgspec.structs.replace(WORKER, link=Link.WAITING)), HostState.WORKING),
    ],
)
def test_what_a_host_does(found: HostStanding, state: HostState) -> None:
    assert state_of(found) is state


def shown(name: str, found: HostStanding | None, state: HostState, trouble: str = "", remedy: str = "") -> HostStatus:
    return HostStatus(name=name, state=state, trouble=trouble or None, remedy=remedy or None, standing=found)


def test_a_row_for_each_host_and_below_it_what_needs_more_words() -> None:
    drained = Drained(since="2026-11-24T09:58:00+00:00", reason="a new SSD")
    lost = msgspec.structs.replace(JOB, id=3, standing=Standing.LOST)
    far = msgspec.structs.replace(IDLE, drained=drained, waiting=(lost, msgspec.structs.replace(lost, id=4)))
    status = FleetStatus(
        hosts=(
            shown("bench1", BUSY, HostState.WORKING),
            shown("bench2", far, HostState.IDLE, remedy="bisector fleet release bench2"),
            shown("bench10", None, HostState.UNREACHABLE, "no answer\x1b[31m", "ssh bench10"),
            shown("desk", None, HostState.DIALS_IN),
        )
    )
    lines = as_text(fleet_lines(status, NOW, 160)).splitlines()
    sha = examples.commit(7).sha[:12]
    assert [re.split(r" {2,}", line) for line in lines if not line.startswith(" ")] == [
        ["host", "does", "since", "job", "results", "room"],
        ["bench1", "working", "10:02", f"trial 12 of {sha}, workload (full run) since 11:31", "none", "212 GiB free"],
        ["bench2", "idle, drained", "10:02", "none", "2 wait", "212 GiB free"],
        ["bench10", "unreachable"],
        ["desk", "dials in"],
    ]
    assert {lines[0].index("room"), lines[1].index("212"), lines[3].index("212")} == {lines[0].index("room")}
    assert [line.removeprefix("         ") for line in lines if line.startswith(" ")] == [
        f"job 14 of run v4.11..v4.13-rc1-0123456789abcdef: {examples.commit(7).subject}",
        "takes no more trials since 2026-11-24 10:58: a new SSD",
        "not on record yet: job 3 of run v4.11..v4.13-rc1-0123456789abcdef (lost), job 4 of run"
        " v4.11..v4.13-rc1-0123456789abcdef (lost)",
        "bisector fleet release bench2",
        "no answer",
        "ssh bench10",
    ]


def test_what_is_not_known_is_left_out_and_nothing_is_wider_than_the_terminal() -> None:
    bare = msgspec.structs.replace(JOB, work=None, n=None, commit=None, stage=None, stage_since=None, began="yesterday")
    build = msgspec.structs.replace(JOB, work=Work.BUILD, n=None, stage=None, stage_since=None)
    found = msgspec.structs.replace(IDLE, running=(bare, build))
    lines = as_text(fleet_lines(FleetStatus(hosts=(shown("bench1", found, HostState.WORKING),)), NOW, 300))
    assert f"job 14 since yesterday; build of {examples.commit(7).sha[:12]} since 11:20" in lines
    narrow = as_text(fleet_lines(FleetStatus(hosts=(shown("bench1", BUSY, HostState.WORKING),)), NOW, 60))
    assert max(map(len, narrow.splitlines())) <= 60


def test_times_are_those_of_the_person() -> None:
    lines = as_text(fleet_lines(FleetStatus(hosts=(shown("bench1", IDLE, HostState.IDLE),)), NOW.astimezone(UTC), 120))
    assert " 09:02 " in lines
