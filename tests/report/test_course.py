from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.cells import cell_len

from bisector.core.events import BuildEnded, BuildStarted, LiveSample, Note, OnHost, Planned, StageStarted
from bisector.core.metric import Unit
from bisector.core.objective import Objective
from bisector.core.trial import Stage
from bisector.report.display import CourseSoFar, event_text, expectation, live_lines
from bisector.report.terminal import as_text
from tests.report import examples

WALL = datetime(2026, 3, 1, 14, 0, tzinfo=UTC)


def course(*, steps_left: int = 2) -> CourseSoFar:
    commit = examples.COMMITS[3]
    going = CourseSoFar()
    for shown in (examples.BROKEN, examples.FIXED):
        going = going.after(examples.event_of(shown), 0.0)
    going = going.after(Planned(3, commit, "halves the candidates", 4, steps_left), 100.0)
    going = going.after(StageStarted(commit, Stage.BUILD), 101.0)
    going = going.after(StageStarted(commit, Stage.BOOT), 148.0)
    going = going.after(StageStarted(commit, Stage.WORKLOAD, "run empty"), 154.0)
    going = going.after(LiveSample("empty", 7000.0, Unit.IOPS, 0.99), 160.0)
    going = going.after(StageStarted(commit, Stage.WORKLOAD, "run full"), 170.0)
    return going.after(LiveSample("full", 3980.4, Unit.IOPS, 0.625), 179.0)


GOLDEN = """\

  trial 3  3a5b3c7d9e1f dm cache policy smq: demote when the cache is full
  aim      halves the candidates, 4 candidates, about 2 steps left
  end      about 14:04, in 4 min

  build 47 s  boot 6 s
  ⠋ workload  0:26  run full
  ━━━━━━━━━━━━━━━━━━━━━━━━━───────────────  62%      3,980 IOPS  full

  n  commit        verdict           IOPS        took
  1  0a5b3c7d9e1f  broken   1,002 / 9,104  2 min 26 s  Linux 5.0
  2  5a5b3c7d9e1f  fixed    4,006 / 7,363  2 min 26 s  Linux 5.1-rc1
"""


HOSTS = """\

  host                 does                  n  commit        why
  bench1               full 62%  3,980 IOPS  3  3a5b3c7d9e1f  halves th…
  bench2               boot 0:05             4  5a5b3c7d9e1f  tells mos…
  a-name-that-is-long  idle

  n  commit        verdict           IOPS        took
  1  0a5b3c7d9e1f  broken   1,002 / 9,104  2 min 26 s  Linux 5.0
"""


def test_each_of_several_hosts_has_a_line() -> None:
    first, second = examples.COMMITS[3], examples.COMMITS[5]
    going = CourseSoFar().after(examples.event_of(examples.BROKEN), 0.0)
    for host, event in (
        ("bench1", Planned(3, first, "halves the candidates", 4, 2)),
        ("bench2", Planned(4, second, "tells most beside it", 4, 2)),
        ("a-name-that-is-long", Planned(1, first, "", 0, 0)),
        ("bench1", LiveSample("full", 3980.4, Unit.IOPS, 0.625)),
        ("bench2", StageStarted(second, Stage.BOOT)),
    ):
        going = going.after(OnHost(host, event), 100.0)
    going = going.after(examples.event_of(examples.BROKEN), 101.0)
    assert as_text(live_lines(going, 105.0, WALL, 72, 30)) == HOSTS


def test_a_host_that_builds_ahead_says_so_until_that_has_ended() -> None:
    commit = examples.COMMITS[3]
    going = CourseSoFar().after(OnHost("bench3", BuildStarted(commit, "ahead")), 100.0)
    going = going.after(OnHost("bench3", StageStarted(commit, Stage.BUILD)), 103.0)
    (_, _, line) = as_text(live_lines(going, 110.0, WALL, 80, 30)).splitlines()
    assert line.split() == ["bench3", "build", "0:07", "-", commit.short, "builds", "ahead"]
    going = going.after(OnHost("bench3", BuildEnded(commit)), 111.0)
    (_, _, line) = as_text(live_lines(going, 112.0, WALL, 80, 30)).splitlines()
    assert line.split() == ["bench3", "idle"]
    told = event_text(OnHost("bench3", BuildStarted(commit, "ahead")))
    assert told == f"bench3: builds {commit.short} {commit.subject} (ahead)"
    assert event_text(OnHost("bench3", BuildEnded(commit))) == ""


def test_golden() -> None:
    assert as_text(live_lines(course(), 180.0, WALL, 80, 30)) == GOLDEN


@pytest.mark.parametrize("width", [50, 80, 120])
@pytest.mark.parametrize("height", [8, 12, 24])
def test_picture_stays_inside_the_terminal(width: int, height: int) -> None:
    going = course()
    for n in range(4, 40):
        going = replace(going, judged=(*going.judged, replace(examples.event_of(examples.CULPRIT), n=n)))
    lines = as_text(live_lines(going, 180.0, WALL, width, height)).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert len(lines) <= max(height - 1, 8), "the trial itself is shown whatever the height"
    if height == 24:
        assert " …  31 earlier trials" in "\n".join(lines)
        assert lines[-1].split()[0] == "39", "the last verdict is among those that are shown"


def test_expected_end_is_mean_times_steps_less_what_is_done() -> None:
    going = course(steps_left=3)
    assert going.remaining_s(100.0) == pytest.approx(3 * 146.4)
    assert going.remaining_s(150.0) == pytest.approx(3 * 146.4 - 50)
    assert going.remaining_s(9999.0) == pytest.approx(2 * 146.4), "a slow trial never makes the rest negative"


def test_end_is_not_known_without_ground_and_names_its_day_if_it_is_another() -> None:
    planned = Planned(1, examples.COMMITS[0], "the old end", 0, 2)
    assert expectation(CourseSoFar().after(planned, 0.0), 1.0, WALL) == "not known before a trial is done"
    assert expectation(course(steps_left=0), 1.0, WALL) == "not known yet"
    late = WALL + timedelta(hours=9, minutes=58)
    assert expectation(course(), 180.0, late) == "about Mon 00:02, in 4 min"


def test_a_note_changes_nothing_and_a_verdict_ends_the_trial() -> None:
    going = course()
    assert going.after(Note("hello"), 200.0) == going
    ended = going.after(examples.event_of(examples.CULPRIT), 200.0)
    assert (ended.plan, ended.stage, ended.sample, ended.passed) == (None, None, None, ())
    assert len(ended.judged) == 3


def test_before_the_first_trial() -> None:
    assert as_text(live_lines(CourseSoFar(), 0.0, WALL, 80, 24)) == "\n  preparing\n\n"
    builds = CourseSoFar().after(StageStarted(examples.COMMITS[0], Stage.BUILD), 0.0)
    assert "build  1:05" in as_text(live_lines(builds, 65.0, WALL, 80, 24))


@pytest.mark.parametrize("share", [-1.0, 0.0, 1.0, 7.0, float("nan")])
def test_bar_holds_odd_shares(share: float) -> None:
    going = course().after(LiveSample("full\x1b[2J", float("nan"), Unit.IOPS, share), 180.0)
    lines = as_text(live_lines(going, 181.0, WALL, 80, 24)).splitlines()
    (bar,) = (line for line in lines if "IOPS  full" in line)
    assert bar.count("━") + bar.count("─") == 40


def test_verdicts_by_a_latency_name_it_and_its_unit() -> None:
    event = replace(examples.event_of(examples.BROKEN), objective=Objective("read.clat.mean"))
    lines = as_text(live_lines(CourseSoFar(judged=(event,)), 1.0, WALL, 100, 24)).splitlines()
    (heading,) = (line for line in lines if "verdict" in line)
    assert "read.clat.mean" in heading
    assert "IOPS" not in "".join(lines)
    assert " 1.50 ms / 1.50 ms " in lines[-1]
    assert " at 1.50 ms / 1.50 ms (" in event_text(event)
