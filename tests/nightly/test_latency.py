"""Nights of a job that is judged by a latency, of which less is better."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from bisector.core.json_document import text
from bisector.core.objective import Objective
from bisector.core.trial import Trial
from bisector.core.verdict import Direction, State
from bisector.nightly.documents import History
from bisector.nightly.job_history import classify
from bisector.nightly.night import dry_run
from bisector.nightly.plan import conditions, load
from bisector.nightly.trend import nights_plot, trend_lines, trends
from bisector.report.nights import NightMark, Nights, NightSeen
from bisector.report.terminal import as_text
from bisector.store.log import DATABASE
from bisector.store.nights import Measurement, Night, NightEvent, NightRecord, nights_home
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.docs.json_schema import valid
from tests.nightly.conftest import World
from tests.nightly.test_trend import night, series

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


def shown(world: World) -> tuple[list[str], Nights, list[Night]]:
    with NightRecord.open(nights_home() / DATABASE, readonly=True) as record:
        known = list(record.nights())
    found = trends(world.events())
    return [as_text([line]).rstrip() for line in trend_lines(found, known, 100)], nights_plot(found, known), known


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
    assert lines[1].split() == ["night", "tip", METRIC, "class"]
    assert lines[2].split()[3:] == ["2.00", "ms", "/", "1.00", "ms", "first"]  # the worst job first
    assert "8.00 ms / 1.00 ms" in lines[3]
    assert plot.title == "read.clat.mean of the worst job, night by night"
    assert [mark.value for mark in plot.panels[0].marks] == [2e6, pytest.approx(8e6)]


def test_a_metric_that_fio_does_not_write_is_told_after_one_trial(world: World) -> None:
    """It is no fault of the tip, and no busy host: more trials of it tell nothing."""
    world.settings = SETTINGS.replace(METRIC, "read.clat.p99.5")
    world.night()
    assert len(world.engines["cache"].measured) == 1
    trouble = world.history().nights[-1].trouble
    assert trouble is not None
    assert (trouble.step, trouble.message) == ("measure", "the full run has no read.clat.p99.5")
    assert "read.clat.p99" in trouble.hint


def test_what_a_night_would_do_names_the_unit(world: World) -> None:
    world.night()
    world.push("cache", "c5")
    (planned,) = dry_run(load(world.config()), (), world.events()).jobs
    assert planned.steps[1] == f"compare it with {world.shas['c2'][:12]} at 2.00 ms"


def measured(value: float, threshold: float | None = None, metric: str = METRIC) -> Measurement:
    found = night(1, value)[2].fact
    assert isinstance(found, Measurement)
    return replace(found, threshold=threshold, objective=Objective(metric))


@pytest.mark.parametrize(
    ("now", "threshold", "word"),
    [(3e6, None, "same"), (4e6, None, "slower"), (1e6, None, "faster"), (3e6, 2.5e6, "slower"), (1.5e6, 2.5e6, "same")],
)
def test_more_latency_is_slower(world: World, now: float, threshold: float | None, word: str) -> None:
    world.night()
    reference = world.history().reference
    assert reference is not None
    assert (reference.value, reference.text) == (2e6, "2.00 ms")
    got = replace(measured(now, threshold), conditions=reference.conditions, host=reference.host)
    assert str(classify(got, reference, 2.0)) == word
    assert str(classify(replace(got, objective=Objective()), reference, 2.0)) == "first"


def test_equal_values_are_the_same_whatever_factor_is_asked_for(world: World) -> None:
    world.night()
    reference = world.history().reference
    assert reference is not None
    got = replace(measured(reference.value), conditions=reference.conditions, host=reference.host)
    assert str(classify(got, reference, 1.0)) == "same"
    assert str(classify(replace(got, value=reference.value * 1.01), reference, 1.0)) == "slower"


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
    assert plot.panels[0].marks == (
        NightMark(begun[0], NightSeen.FIRST, None),
        NightMark(begun[1], NightSeen.FIRST, 2e6),
    )


def test_a_level_that_creeps_has_its_unit() -> None:
    def of_latency(event: NightEvent) -> NightEvent:
        fact = event.fact
        return replace(
            event, fact=replace(fact, objective=Objective(METRIC)) if isinstance(fact, Measurement) else fact
        )

    values = series((2e6, 20), (2.3e6, 12))
    found = trends([of_latency(event) for n, value in enumerate(values, 1) for event in night(n, value)])
    at = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
    nights = tuple(Night(n, at, "nightly.toml", 3600.0, 1) for n in range(1, 33))
    last = as_text([trend_lines(found, nights, 120)[-1]])
    assert " ms instead of 2.00 ms (read.clat.mean of the worst job, medians), p = " in last.replace("1.99", "2.00")
    document = valid("history", text(History.of(found, nights)))
    (job,) = document["jobs"]
    objective = Objective(METRIC)
    assert job["nights"][0]["objective"] == {"metric": METRIC, "over": "worst", "unit": "ns", "better": "lower"}
    assert job["nights"][0]["value"] == values[0]
    assert objective.text(job["nights"][20]["level_change"]["from"]).endswith(" ms")


def test_the_direction_is_the_metrics(world: World) -> None:
    """A tip that got faster, where regressions are wanted, is not bisected."""
    world.slow_from["cache"] = "c0"
    world.night()
    world.slow_from.clear()
    world.push("cache", "c5")
    world.night()
    history = world.history()
    assert world.classes() == ["first", "faster"]
    assert history.result is not None
    assert history.result.direction is Direction.IMPROVEMENT
    assert not history.nights[-1].begun
