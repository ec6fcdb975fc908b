"""How the hosts of a fleet are shown to people."""

import msgspec.structs

from bisector.core.trial import Stage
from bisector.fleet import versions
from bisector.fleet.status import FleetStatus, HostDescription, HostState, HostStatus, UnderWay
from bisector.report.fleet_lines import fleet_lines
from bisector.report.terminal import as_text
from tests import examples

JOB = UnderWay(
    run="v4.11..v4.13-rc1-0123456789abcdef",
    id=14,
    n=12,
    sha=examples.commit(7).sha,
    stage=Stage.WORKLOAD,
    detail="full run",
    since="2026-11-26T10:31:00+00:00",
)
TOLD = HostDescription(versions=versions.own(), clock_s=0.0, jobs=(), free_bytes=212 << 30)
OTHER = msgspec.structs.replace(versions.own(), python="3.9")
STATUS = FleetStatus(
    versions=versions.own(),
    hosts=(
        HostStatus(name="bench1", state=HostState.IDLE, trouble=None, remedy=None, told=TOLD),
        HostStatus(
            name="bench2",
            state=HostState.WORKING,
            trouble=None,
            remedy=None,
            told=msgspec.structs.replace(TOLD, jobs=(JOB,)),
        ),
        HostStatus(
            name="old",
            state=HostState.REFUSED,
            trouble=versions.differences(OTHER),
            remedy="install the same commit",
            told=msgspec.structs.replace(TOLD, versions=OTHER),
        ),
        HostStatus(
            name="away",
            state=HostState.UNREACHABLE,
            trouble="away cannot be reached",
            remedy="ssh away true",
            told=None,
        ),
    ),
)


def test_who_is_there_what_it_does_and_its_versions_side_by_side() -> None:
    text = as_text(fleet_lines(STATUS, 200))
    head, idle, busy, run, old, why, remedy, away, *_ = text.splitlines()
    assert head.split() == ["host", "does", "job", "bisector", "python", "dask", "room"]
    assert idle.split()[:3] == ["bench1", "idle", "none"]
    assert f"trial 12 of {examples.commit(7).sha[:12]}, workload (full run) since" in busy
    assert run.strip() == "job 14 of run v4.11..v4.13-rc1-0123456789abcdef"
    assert "3.9" in old.split()
    assert why.strip() == f"python is 3.9 there and {versions.own().python} here"
    assert remedy.strip() == "install the same commit"
    assert away.split() == ["away", "unreachable"]
    assert not STATUS.complete


def test_only_commands_are_wider_than_the_terminal() -> None:
    commands = {host.remedy for host in STATUS.hosts}
    for line in as_text(fleet_lines(STATUS, 60)).splitlines():
        assert len(line) <= 60 or line.strip() in commands
