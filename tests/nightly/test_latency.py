"""Nights of a job that is judged by a latency, of which less is better."""

from dataclasses import dataclass, replace
from datetime import datetime

import pytest

from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.nightly.plan import conditions, load
from bisector.nightly.trend import NightsPlot, trend_blocks, trends
from bisector.report.terminal import as_text, lines_of
from bisector.store.log import DATABASE
from bisector.store.nights import Night, NightRecord, nights_home
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.nightly.conftest import World
from tests.report.drawn import panels

METRIC = "read.clat.mean"
SETTINGS = f'bisect.strategy = "git"\nbisect.metric = "{METRIC}"'


@dataclass
class Latencies(fakes.FakeExecutor):
    """The jobs of a slow commit wait for longer: 2 ms at 4,000 IOPS, 8 ms at 1,000."""

    def measure(self, request: TrialRequest) -> Trial:
        trial = super().measure(request)
        runs = (
            replace(run, jobs=tuple(replace(job, clat_mean_ns=8e9 / job.iops_mean) for job in run.jobs))
            for run in trial.runs
        )
        return replace(trial, runs=tuple(runs))


@pytest.fixture
def world(world: World) -> World:
    world.settings = SETTINGS
    engine = world.engines["cache"]
    world.engines["cache"] = Latencies(engine.is_new, slow_iops=engine.slow_iops, fast_iops=engine.fast_iops)
    return world


def shown(world: World) -> tuple[list[str], NightsPlot, list[Night]]:
    with NightRecord.open(nights_home() / DATABASE, readonly=True) as record:
        known = list(record.nights())
    found = trends(world.events())
    return as_text(lines_of(trend_blocks(found, known), 100)).splitlines(), NightsPlot.of(found, known), known


def test_a_night_that_got_slower_by_latency_is_bisected(world: World) -> None:
    world.night()
    world.slow_from["cache"] = "c6"
    world.push("cache", "c9")
    world.night()
    assert world.classes() == ["first", "slower"]
    (concluded,) = world.history().nights[-1].concluded
    assert (concluded.state, world.name_of(concluded.first_sha)) == (State.FOUND, "c6")
    assert "cache: regression, 2.00 to 8.00 ms (read.clat.mean of the worst job): bisecting" in world.told
    assert not [line for line in world.told if "IOPS" in line]
    lines, plot, _ = shown(world)
    head = next(n for n, line in enumerate(lines) if line.split() == ["night", "tip", METRIC, "class"])
    assert lines[head + 1].split()[3:] == ["2.00", "ms", "/", "1.00", "ms", "first"]  # the worst job first
    assert "8.00 ms / 1.00 ms" in lines[head + 2]
    assert plot.title == "read.clat.mean of the worst job, night by night"
    (panel,) = panels(plot)
    assert panel.values("tip, compared with nothing yet") == [2e6]
    assert panel.values("tip slower") == pytest.approx([8e6])


def test_a_metric_that_fio_does_not_write_is_told_after_one_trial(world: World) -> None:
    """It is no fault of the tip, and no busy host: more trials of it tell nothing."""
    world.settings = SETTINGS.replace(METRIC, "read.clat.p99.5")
    world.night()
    assert len(world.engines["cache"].measured) == 1
    trouble = world.history().nights[-1].trouble
    assert trouble is not None
    assert (trouble.step, trouble.message) == ("measure", "the full run has no read.clat.p99.5")
    assert "read.clat.p99" in trouble.hint


def test_another_metric_begins_anew(world: World) -> None:
    world.settings = 'bisect.strategy = "git"'
    before = conditions(load(world.config()).jobs[0].measuring)
    world.night()
    world.settings = SETTINGS
    assert conditions(load(world.config()).jobs[0].measuring) != before
    world.night()
    assert world.classes() == ["first", "first"]
    assert world.measured() == ["c2", "c2"]
    _, plot, known = shown(world)
    begun = [datetime.fromisoformat(one.started_at) for one in known]
    first = panels(plot)[0].points["tip, compared with nothing yet"]
    assert [when for when, _ in first] == [begun[1], begun[0]]
    assert [value for _, value in first] == [2e6, 0.03], "IOPS have no place on the axis of a latency"
