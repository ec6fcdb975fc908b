"""The history of nights as lines and as a plot, also of a job that is judged by a latency."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from bisector.core.json_document import text
from bisector.core.objective import Objective
from bisector.core.verdict import Direction, State
from bisector.nightly.job_history import Reference, TipResult, classify, replay, usual_factor
from bisector.nightly.plan import conditions, load
from bisector.nightly.trend import SEEN, History, NightsPlot, Trend, trend_blocks, trends
from bisector.report.drawing import Picture, draw, following
from bisector.report.terminal import as_text, lines_of
from bisector.store.log import DATABASE
from bisector.store.nights import (
    BisectionBegun,
    BisectionConcluded,
    JobBegun,
    JobDone,
    JobFact,
    JobTrouble,
    Measurement,
    Night,
    NightEvent,
    NightRecord,
    Tip,
    TipRole,
    nights_home,
)
from tests import examples, fakes
from tests.docs.json_schema import valid
from tests.nightly.conftest import World
from tests.report.drawn import Drawn, panels

RUN = Path("/runs/1")


def night(n: int, iops: float, conditions: str = "a", host: str = "box") -> tuple[NightEvent, ...]:
    sha = f"{n:x}".ljust(40, "0")
    measured = Measurement(TipRole.TIP, "main", sha, conditions, None, 2.0, host, iops, "", "", 1, 60.0, Path("/x"))
    tip = Tip(Path("/srv/linux"), "origin main", sha, "a subject", "2026-01-01T00:00:00Z", "last-good", "regression")
    facts: tuple[JobFact, ...] = (JobBegun("cache"), tip, measured, JobDone())
    trial = examples.trial(examples.commit(n), examples.run("full", iops, 8_000.0))
    return tuple(
        NightEvent(10 * n + k, n, "cache", "2026-01-01T01:30:00Z", fact, trial if fact is measured else None)
        for k, fact in enumerate(facts)
    )


def trend(series: Sequence[float], conditions: str = "") -> Trend:
    pairs = zip(series, conditions or "a" * len(series), strict=True)
    (found,) = trends([event for n, (iops, key) in enumerate(pairs, 1) for event in night(n, iops, key)])
    return found


def series(*levels: tuple[float, int]) -> list[float]:
    random = np.random.default_rng(3)
    return [float(mean * np.exp(random.normal(0, 0.02))) for mean, count in levels for _ in range(count)]


NIGHTS = tuple(Night(n, f"2026-01-{n % 28 + 1:02d}T01:30:00+00:00", "nightly.toml", 3600.0, 1) for n in range(1, 41))


def test_what_creeps_is_marked_where_it_began() -> None:
    found = trend(series((4_000, 20), (3_600, 12)))
    (night,) = (one for one in found.nights if one.level_change)
    assert night.night == 21
    assert {str(one.result) for one in found.nights} == {"first", "same"}
    document = valid("history", text(History.of([found], NIGHTS)))
    (change,) = [one["level_change"] for one in document["jobs"][0]["nights"] if one["level_change"]]
    assert change["to"] / change["from"] < 0.93


def test_other_settings_begin_another_series() -> None:
    found = trend(series((4_000, 20), (3_600, 12)), "a" * 20 + "b" * 12)
    assert not [one for one in found.nights if one.level_change]


def test_lines() -> None:
    lines = as_text(lines_of(trend_blocks([trend(series((4_000, 20), (3_600, 12)))], NIGHTS), 90)).splitlines()
    assert lines[0] == "cache: origin main of /srv/linux, last-good, regression"
    assert lines[1].split() == ["night", "tip", "IOPS", "class"]
    assert len(lines) == 2 + 32 + 3
    (marked,) = [line for line in lines[2:-3] if "*" in line]
    assert marked.startswith("2026-01-22 01:30  150000000000  ")
    assert lines[-2].startswith("* from 2026-01-22 01:30 on 3,")


@pytest.mark.parametrize("now", [(500.0, TipResult.SLOWER), (501.0, TipResult.SAME), (2_000.0, TipResult.FASTER)])
@pytest.mark.parametrize("threshold", [None, "one"])
def test_a_tip_is_faster_when_it_is_better_by_its_metric(now: tuple[float, TipResult], threshold: str | None) -> None:
    """Of IOPS more is, of a latency less; a factor that is exactly the least one is a change."""
    value, result = now
    line = (
        None if threshold is None else {TipResult.SLOWER: 500.0, TipResult.SAME: 5.0, TipResult.FASTER: 1_500.0}[result]
    )
    (_, _, event, _) = night(2, value)
    measured = event.fact
    assert isinstance(measured, Measurement)
    reference = Reference("0" * 40, "main", 1_000.0, "a", "box")
    assert classify(replace(measured, threshold=line), reference, 2.0) is result
    turned = replace(measured, value=1e6 / value, objective=Objective("read.clat.p50"), threshold=line and 1e6 / line)
    assert classify(turned, replace(reference, objective=turned.objective), 2.0) is result
    assert classify(turned, reference, 2.0) is TipResult.FIRST


@pytest.mark.parametrize(
    ("least", "scores", "usual"),
    [
        (1.05, (), 1.513),  # nobody knows the noise yet: 3 · √2 · twice the least effect
        (1.0005, (), 1.0043),
        (2.0, (), 2.0),  # of older nights, which have a factor
        (1.05, (0.0, 0.01) * 10, 1.2103),
        (1.005, (0.0, 0.01) * 10, 1.0335),
        (1.05, (*(0.0, 3.0) * 30, *(0.0, 0.01) * 10), 1.2103),  # the newest nights count
        (1.05, (0.0, 0.3) * 10, 2.2768),
    ],
)
def test_a_change_is_what_is_more_than_the_noise_of_nights(
    least: float, scores: tuple[float, ...], usual: float
) -> None:
    assert usual_factor(least, scores) == pytest.approx(usual, rel=1e-3)


def test_after_quiet_nights_a_change_of_a_fifth_is_one() -> None:
    """Beside the first tip it is not: nobody knows the noise of the host then."""
    quiet = [1000.0, 1005.0] * 8
    for before, result in ((quiet[:1], TipResult.SAME), (quiet, TipResult.SLOWER)):
        pairs = enumerate([*before, 800.0], 1)
        measured = [
            replace(event, fact=replace(event.fact, min_ratio=1.05)) if isinstance(event.fact, Measurement) else event
            for n, iops in pairs
            for event in night(n, iops)
        ]
        history = replay(measured)
        assert history.result is result
        assert (history.nights[-1].usual > 1.25) is (result is TipResult.SAME)


def at(n: int) -> datetime:
    return datetime(2026, 1, 1, 1, 30, tzinfo=UTC) + timedelta(days=n)


def facts(
    n: int, *more: JobFact, iops: float | None = None, threshold: float | None = None, setting: str = "a"
) -> list[JobFact]:
    begun, tip, measured, done = (event.fact for event in night(n, iops or 1.0, setting))
    assert isinstance(measured, Measurement)
    figure = [] if iops is None else [replace(measured, threshold=threshold)]
    ended = [] if any(isinstance(one, JobTrouble) for one in more) else [done]
    return [begun, tip, *figure, *more, *ended]


def plot(*nights: Sequence[JobFact]) -> NightsPlot:
    """One fact after the other, a night a day; the first is night 1."""
    events = [
        NightEvent(100 * n + k, n, "cache", "", fact) for n, one in enumerate(nights, 1) for k, fact in enumerate(one)
    ]
    return NightsPlot.of(
        trends(events), [Night(n, at(n).isoformat(), "nightly.toml", 3600.0, 1) for n in range(1, len(nights) + 1)]
    )


def panel(*nights: Sequence[JobFact]) -> Drawn:
    (made,) = panels(plot(*nights))
    return made


def begun(n: int) -> BisectionBegun:
    return BisectionBegun(RUN, Direction.REGRESSION, "a" * 40, f"{n:x}".ljust(40, "0"))


def answer(state: State, first: str = "") -> BisectionConcluded:
    return BisectionConcluded(RUN, state, "so it is", first, "b" * 40, 1_000.0)


NOWHERE = 0.03  # of the height of the axes


def every_kind() -> list[list[JobFact]]:
    """Nights of each thing that one can see of a tip."""
    tip = next(one for one in facts(4) if isinstance(one, Tip))
    return [
        facts(1, iops=4_000.0),
        facts(2, iops=4_100.0),
        facts(2),
        [JobBegun("cache"), JobTrouble("fetch", "no answer", "")],
        [JobBegun("cache"), tip],
        facts(6, JobTrouble("tip", "cannot be judged", "")),
        facts(7, begun(7), JobTrouble("bisection", "no room", ""), iops=1_000.0),
        facts(8, iops=9_000.0),
    ]


def test_what_nights_saw() -> None:
    made = panel(*every_kind())
    assert made.title == "cache: origin main of /srv/linux"
    assert {label: made.points[label] for label, _ in SEEN.values()} == {
        "tip, compared with nothing yet": [(at(1), 4_000.0)],
        "tip as usual": [(at(2), 4_100.0)],
        "tip faster": [(at(8), 9_000.0)],
        "tip slower": [(at(7), 1_000.0)],
        "same tip, not measured again": [(at(3), 4_100.0)],
        "tip cannot be judged": [(at(6), NOWHERE)],
        "failed": [(at(4), NOWHERE), (at(7), NOWHERE)],
        "not ended": [(at(5), NOWHERE)],
    }
    figures = ((1, 4_000.0), (2, 4_100.0), (7, 1_000.0), (8, 9_000.0))
    assert made.points[""] == [(at(n), iops) for n, iops in figures]


def test_the_picture_is_whole_and_told_apart_without_colours() -> None:
    looks = [(ink.marker, ink.filled) for _, ink in SEEN.values()]
    assert len(set(looks)) == len(looks)
    made = plot(*every_kind())
    words = "".join(ET.fromstring(draw(made, Picture.SVG)).itertext())
    said = (made.title, "read.iops of the worst job, IOPS", "(UTC)", "Jan", "1: 2026-01-08, bisection not ended")
    assert all(word in words for word in (*said, *(label for label, _ in SEEN.values()))), words
    style, _, drawn = following(made).decode().partition("</style>")
    assert all(f"fill: {one}" in style for one in re.findall(r"(?:fill|stroke)(?:: |=\")(#\w{6})", drawn))


def test_limits_hold_as_long_as_they_decide() -> None:
    half = timedelta(hours=12)
    by_factor = panel(facts(1, iops=4_000.0), facts(2, iops=4_100.0), facts(3, iops=3_900.0))
    assert by_factor.bands == {"within the factor that makes no change": (2_000.0, 8_000.0)}
    assert not any("threshold" in label for label in by_factor.points)
    by_line = panel(*(facts(n, iops=4_000.0, threshold=[2_000.0, 2_000.0, 3_000.0][n - 1]) for n in (1, 2, 3)))
    assert by_line.points["threshold 2,000 IOPS"] == [(at(1) - half, 2_000.0), (at(2) + half, 2_000.0)]
    assert by_line.points["threshold 3,000 IOPS"] == [(at(3) - half, 3_000.0), (at(3) + half, 3_000.0)]
    assert not by_line.bands


def test_other_settings_break_the_line() -> None:
    made = panel(facts(1, iops=4_000.0), facts(2, iops=4_000.0), facts(3, iops=1_000.0, setting="b"))
    assert [len(np.ravel(line.get_xdata())) for line in made.axes.get_lines()[:2]] == [2, 1]
    assert made.points["other settings or another host"][0][0] == at(3) - timedelta(hours=12)


@pytest.mark.parametrize(
    ("concluded", "said"),
    [
        (answer(State.FOUND, "0123456789abcdef"), "from 0123456789ab on"),
        (answer(State.NARROWED), "narrowed to several"),
        (answer(State.FAILED), "no answer"),
        (None, "bisection not ended"),
    ],
)
def test_a_bisection_stands_where_its_change_was_seen(concluded: BisectionConcluded | None, said: str) -> None:
    later = () if concluded is None else (concluded,)
    made = panel(facts(1, iops=4_000.0), facts(2, begun(2), iops=1_000.0), facts(2, *later))
    assert made.points[f"1: 2026-01-03, {said}"][0][0] == at(2)


def test_changes_are_numbered_across_all_panels() -> None:
    one = plot(facts(1, iops=4_000.0), facts(2, begun(2), iops=1_000.0))
    first, second = panels(replace(one, trends=(*one.trends, *one.trends)))
    label = "2026-01-03, bisection not ended"
    assert f"1: {label}" in first.points
    assert f"2: {label}" in second.points


def test_levels_and_the_commit_that_made_one() -> None:
    figures = series((4_000, 10), (1_000, 10))
    found = (begun(11), answer(State.FOUND, "c" * 40))
    made = panel(*(facts(n, *(found if n == 11 else ()), iops=iops) for n, iops in enumerate(figures, 1)))
    (change,) = (label for label in made.points if label.startswith("1: "))
    assert change.startswith("1: 2026-01-12, from cccccccccccc on, 3,973 to 995 IOPS, p = ")
    half = timedelta(hours=12)
    (_, before), (end, _), (start, after), (last, _) = made.points["level (median)"]
    assert (end, start, last) == (at(11) - half, at(11) - half, at(20) + half)
    assert (before, after) == (pytest.approx(4_000, rel=0.02), pytest.approx(1_000, rel=0.02))


# By a latency, of which less is better


METRIC = "read.clat.mean"
SETTINGS = f'bisect.strategy = "git"\nbisect.metric = "{METRIC}"'


@pytest.fixture
def by_latency(world: World) -> World:
    world.settings = SETTINGS
    # The jobs of a slow commit wait for longer: 2 ms at 4,000 IOPS, 8 ms at 1,000.
    world.engines["cache"].also = lambda _, made: fakes.waiting(made, 8e9)
    return world


def shown(by_latency: World) -> tuple[list[str], NightsPlot, list[Night]]:
    with NightRecord.open(nights_home() / DATABASE, readonly=True) as record:
        known = list(record.nights())
    found = trends(by_latency.events())
    return as_text(lines_of(trend_blocks(found, known), 100)).splitlines(), NightsPlot.of(found, known), known


def test_a_night_that_got_slower_by_latency_is_bisected(by_latency: World) -> None:
    by_latency.slower()
    by_latency.night()
    assert by_latency.classes() == ["first", "slower"]
    (concluded,) = by_latency.history().nights[-1].concluded
    assert (concluded.state, by_latency.name_of(concluded.first_sha)) == (State.FOUND, "c6")
    assert "cache: regression, 2.00 to 8.00 ms (read.clat.mean of the worst job): bisecting" in by_latency.told
    assert not [line for line in by_latency.told if "IOPS" in line]
    lines, plot, _ = shown(by_latency)
    head = next(n for n, line in enumerate(lines) if line.split() == ["night", "tip", METRIC, "class"])
    assert lines[head + 1].split()[3:] == ["2.00", "ms", "/", "1.00", "ms", "first"]  # the worst job first
    assert "8.00 ms / 1.00 ms" in lines[head + 2]
    assert plot.title == "read.clat.mean of the worst job, night by night"
    (panel,) = panels(plot)
    assert panel.values("tip, compared with nothing yet") == [2e6]
    assert panel.values("tip slower") == pytest.approx([8e6])


def test_a_metric_that_fio_does_not_write_is_told_after_one_trial(by_latency: World) -> None:
    """It is no fault of the tip, and no busy host: more trials of it tell nothing."""
    by_latency.settings = SETTINGS.replace(METRIC, "read.clat.p99.5")
    by_latency.night()
    assert len(by_latency.engines["cache"].measured) == 1
    trouble = by_latency.history().nights[-1].trouble
    assert trouble is not None
    assert (trouble.step, trouble.message) == ("measure", "the full run has no read.clat.p99.5")
    assert "read.clat.p99" in trouble.hint


def test_another_metric_begins_anew(by_latency: World) -> None:
    by_latency.settings = 'bisect.strategy = "git"'
    before = conditions(load(by_latency.config()).jobs[0].measuring)
    by_latency.night()
    by_latency.settings = SETTINGS
    assert conditions(load(by_latency.config()).jobs[0].measuring) != before
    by_latency.night()
    assert by_latency.classes() == ["first", "first"]
    assert by_latency.measured() == ["c2", "c2"]
    _, plot, known = shown(by_latency)
    begun = [datetime.fromisoformat(one.started_at) for one in known]
    first = panels(plot)[0].points["tip, compared with nothing yet"]
    assert [when for when, _ in first] == [begun[1], begun[0]]
    assert [value for _, value in first] == [2e6, 0.03], "IOPS have no place on the axis of a latency"
