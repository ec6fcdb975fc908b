"""The trend of a job: levels among figures that can be compared, and the lines that show them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bisector.core.json_document import text
from bisector.nightly.documents import History
from bisector.nightly.history import Trend, trend_lines, trends
from bisector.nightly.replay import Class, Reference, classify
from bisector.report.text import as_text, cells
from bisector.store.nights import Begun, Done, Event, Fact, Figure, Measurement, Night, Role, Tip
from tests.docs.json_schema import valid


def night(n: int, iops: float, conditions: str = "a", host: str = "box") -> tuple[Event, ...]:
    sha = f"{n:x}".ljust(40, "0")
    figures = (Figure("full", "job0", "read.iops", iops), Figure("full", "job1", "read.iops", 8_000.0))
    measured = Measurement(
        Role.TIP, "main", sha, conditions, None, 2.0, host, "gcc", iops, "", "", 1, 60.0, Path("/x"), figures
    )
    tip = Tip(Path("/srv/linux"), "origin main", sha, "a subject", "2026-01-01T00:00:00Z", "last-good", "regression")
    facts: tuple[Fact, ...] = (Begun(), tip, measured, Done())
    return tuple(Event(10 * n + k, n, "cache", "2026-01-01T01:30:00Z", fact) for k, fact in enumerate(facts))


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
    (point,) = found.changed
    assert point.night.night == 21
    assert {str(point.night.klass) for point in found.points} == {"first", "same"}
    document = valid("history", text(History.of([found], NIGHTS)))
    (change,) = [one["level_change"] for one in document["jobs"][0]["nights"] if one["level_change"]]
    assert change["to"] / change["from"] < 0.93


def test_other_settings_begin_another_series() -> None:
    assert not trend(series((4_000, 20), (3_600, 12)), "a" * 20 + "b" * 12).changed


def test_lines() -> None:
    lines = [as_text([line]).rstrip() for line in trend_lines([trend(series((4_000, 20), (3_600, 12)))], NIGHTS, 80)]
    assert lines[0] == "cache  origin main of /srv/linux, last-good, regression"
    assert lines[1].split() == ["night", "tip", "IOPS", "class"]
    assert len(lines) == 2 + 32 + 1
    (marked,) = [line for line in lines[2:-1] if "*" in line]
    assert marked.startswith("2026-01-22 01:30  150000000000  ")
    assert lines[-1].startswith("* from 2026-01-22 01:30 on 3,")
    assert max(map(cells, lines)) <= 80


@pytest.mark.parametrize("now", [(500.0, Class.SLOWER), (501.0, Class.SAME), (2_000.0, Class.FASTER)])
@pytest.mark.parametrize("threshold", [None, "one"])
def test_a_tip_is_faster_when_it_is_better_by_its_metric(now: tuple[float, Class], threshold: str | None) -> None:
    """Of IOPS more is, of a latency less; a factor that is exactly the least one is a change."""
    value, klass = now
    line = None if threshold is None else {Class.SLOWER: 500.0, Class.SAME: 5.0, Class.FASTER: 1_500.0}[klass]
    (_, _, event, _) = night(2, value)
    measured = event.fact
    assert isinstance(measured, Measurement)
    reference = Reference("0" * 40, "main", 1_000.0, "a", "box")
    assert classify(replace(measured, threshold=line), reference) is klass
    turned = replace(measured, value=1e6 / value, metric="read.clat.p50", threshold=line and 1e6 / line)
    assert classify(turned, replace(reference, objective=turned.objective)) is klass
    assert classify(turned, reference) is Class.FIRST
