"""What is found out about machines, and how the hosts of a fleet stand, for people."""

import msgspec.structs

from bisector.core.errors import Finding, Grade
from bisector.core.trial import Stage
from bisector.fleet import spec
from bisector.fleet.status import FleetStatus, HostDescription, HostState, HostStatus, UnderWay
from bisector.report.blocks import FactList, Role
from bisector.report.hosts import finding_blocks, fleet_table, side_by_side
from tests import examples
from tests.report.examples import shown

JOB = UnderWay(
    run="v4.11..v4.13-rc1-0123456789abcdef",
    id=14,
    n=12,
    sha=examples.commit(7).sha,
    stage=Stage.WORKLOAD,
    detail="full run",
    since="2026-11-26T10:31:00+00:00",
)
TOLD = HostDescription(versions=spec.own_versions(), clock_s=0.0, jobs=(), free_bytes=212 << 30)
OTHER = msgspec.structs.replace(spec.own_versions(), python="3.9")
IDLE = HostStatus(name="bench1", state=HostState.IDLE, trouble=None, remedy=None, told=TOLD)
BUSY, OLD, AWAY = (
    msgspec.structs.replace(IDLE, name=name, state=state, told=told, trouble=trouble, remedy=remedy)
    for name, state, told, trouble, remedy in (
        ("bench2", HostState.WORKING, msgspec.structs.replace(TOLD, jobs=(JOB,)), None, None),
        ("old", HostState.REFUSED, msgspec.structs.replace(TOLD, versions=OTHER), spec.version_differences(OTHER),
         "install the same commit"),
        ("away", HostState.UNREACHABLE, None, "away cannot be reached", "ssh away true"),
    )
)  # fmt: skip
STATUS = FleetStatus(versions=spec.own_versions(), hosts=(IDLE, BUSY, OLD, AWAY))


def test_who_is_there_what_it_does_and_its_versions_side_by_side() -> None:
    text = shown([fleet_table(STATUS)], 200)
    head, idle, busy, run, old, why, remedy, away, *_ = text.splitlines()
    assert head.split() == ["host", "does", "job", "bisector", "python", "dask", "room"]
    assert idle.split()[:3] == ["bench1", "idle", "none"]
    assert f"trial 12 of {examples.commit(7).sha[:12]}, workload (full run) since" in busy
    assert run.strip() == "job 14 of run v4.11..v4.13-rc1-0123456789abcdef"
    assert "3.9" in old.split()
    assert why.strip() == f"python is 3.9 there and {spec.own_versions().python} here"
    assert remedy.strip() == "install the same commit"
    assert away.split() == ["away", "unreachable"]
    assert not STATUS.complete


GIT = Finding("git", Grade.OK, "2.39.5")
FLEX = Finding("flex", Grade.MISSING, "flex: not installed", "apt install flex")
ELF = Finding("libelf headers", Grade.MISSING, "gelf.h: not installed", "apt install libelf-dev")
IMAGE = Finding("guest image", Grade.WARN, "not built yet: the first start builds it", "bisector image build")
SSH = Finding("ssh", Grade.OK, "answers")
FOUND = {
    "b1": (SSH, GIT, FLEX, IMAGE, Finding("room", Grade.OK, "9 GiB free")),
    "b2": (SSH, GIT, Finding("flex", Grade.OK, "2.6"), IMAGE, Finding("room", Grade.OK, "8 GiB free")),
    "gone": (Finding("ssh", Grade.MISSING, "cannot be reached: No route to host", "ssh gone"),),
}
ONE = """\
git             ok       2.39.5
guest image     warn     not built yet: the first start builds it
                         bisector image build
libelf headers  missing  gelf.h: not installed
                         apt install libelf-dev
flex            missing  flex: not installed
                         apt install flex

`bisector start` would fail: 2 missing, 1 warning

apt install libelf-dev flex
"""
SIDE_BY_SIDE = """\
ssh          ok       b1, b2: answers
             missing  gone: cannot be reached: No route to host
                      ssh gone
git          ok       b1, b2: 2.39.5
flex         missing  b1: flex: not installed
                      apt install flex
             ok       b2: 2.6
guest image  warn     b1, b2: not built yet: the first start
                      builds it
                      bisector image build
room         ok       b1: 9 GiB free
             ok       b2: 8 GiB free

b1    `bisector start` would fail there, 1 warning; missing: flex
b2    `bisector start` can begin there, 1 warning
gone  was not looked at
"""


def test_rows_with_their_remedies_and_what_it_comes_to() -> None:
    rows, *_ = blocks = finding_blocks((GIT, IMAGE, ELF, FLEX))
    assert shown(blocks, 65) == ONE
    assert isinstance(rows, FactList)
    assert [fact.label_role for fact in rows.facts] == [Role.BETTER, Role.SKIP, Role.WORSE, Role.WORSE]
    assert shown(finding_blocks((GIT,))).endswith("\n\n`bisector start` can begin here\n")
    assert shown(finding_blocks((GIT, IMAGE))).endswith("\n\n`bisector start` can begin here, 1 warning\n")


def test_several_machines_share_the_rows_that_they_have_alike() -> None:
    assert shown(side_by_side(FOUND), 65) == SIDE_BY_SIDE
    same = {f"bench{number}": FOUND["b1"] for number in range(32)}
    assert shown(side_by_side(same)).count("all 32: ") == 5
