"""A phase that fills a cache goes on until the cache is full and steady, or its deadline has come.

By the short fill a run of it ends once the cache is settled.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.analysis.early_stop import StopRule
from bisector.core.figures import StopReason
from bisector.core.shell import Shell, Step
from bisector.core.trial import Fill, KernelFault, Stage
from bisector.storage import layers
from bisector.storage.disks import kernel_fault
from bisector.storage.layer import Counters, Device, Layer, LayerPlan, Phase
from bisector.trial.runner import TrialRequest, uptime_s
from bisector.workload.fio import output
from tests.guest_answers import FIO_FILES, FIO_RUNS, listed
from tests.guestshell import Answer, FakeShell
from tests.trial.place import RAN, REQUEST, Place, sound_but

RULE = StopRule(1_363.0, 40.0, 20.5)


@dataclass
class Pool:
    """A cache that fills as told: how full it is after each run, in percent."""

    after_runs: list[float] = field(default_factory=list)
    readings: int = 0
    fills: bool = False

    def read(self, shell: Shell) -> float:
        """Read before and after each run; the first reading of a run is of what the one before left."""
        self.readings += 1
        return [0.0, *self.after_runs, self.after_runs[-1]][self.readings // 2]


class Slow(Layer):
    """Of another package: a cache that takes its time to fill."""

    name = "slow"
    phases = (Phase("empty", judged=False, fills=True), Phase("full"))
    pool = Pool()

    def make(self, below: Sequence[Device], suffix: str) -> LayerPlan:
        counters = Counters(self.pool.read, lambda before, after: [("cache.filled", after)])
        fill = self.pool.fills and (lambda seconds: (Step(f"fill-the-pool {seconds:.0f}", kernel_fault),))
        return LayerPlan("/dev/slow", (), counters=counters, fill=fill or None)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    made = Pool()
    monkeypatch.setattr(Slow, "pool", made)
    layers.register(Slow)
    yield made
    layers.forget("slow")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.play(sound_but({"stat -L": Answer("fe:10\n")}))
    return made


def runs(place: Place, **given: str) -> list[str]:
    stack = {"storage.stack": "slow(hdd)+ext4"}
    trial = place.measure(
        replace(REQUEST, stop=RULE), given=stack | {f"storage.{key}": one for key, one in given.items()}
    )
    assert (trial.fault, trial.stage) == (None, Stage.DONE)
    return [run.name for run in trial.runs]


@pytest.mark.parametrize(
    ("after_runs", "given", "names"),
    [
        pytest.param([100, 100], {}, ["empty", "full"], id="full at once"),
        pytest.param([30, 30, 30], {}, ["empty", "empty@2", "full"], id="it never fills"),
        # A run takes 43 s: no round begins that would end after the deadline.
        pytest.param([20, 40, 60, 80], {"fill_deadline": "100s"}, ["empty", "empty@2", "full"], id="no time for more"),
    ],
)
def test_a_cache_is_filled_until_it_is_full_or_fills_no_more_or_time_is_over(
    place: Place, pool: Pool, after_runs: list[float], given: dict[str, str], names: list[str]
) -> None:
    pool.after_runs = after_runs
    assert runs(place, **given) == names


def test_a_cache_that_fills_slowly_is_waited_for_on_the_same_files(place: Place, pool: Pool) -> None:
    pool.after_runs = [40, 80, 97, 98, 98]
    assert runs(place) == ["empty", "empty@2", "empty@3", "empty@4", "full"]
    assert [detail for stage, detail in place.stages if stage is Stage.WORKLOAD] == [
        *("empty run", "empty run, round 2", "empty run, round 3", "empty run, round 4", "full run")
    ]
    commands = [command for command in place.commands if FIO_RUNS in command]
    assert ['ln "$file" /mnt/empty@' in one for one in commands] == [False, True, True, True, False]
    assert ["/.kept/empty/*" in one for one in commands] == [False, True, True, True, False]
    assert ["--status-interval" in one for one in commands] == [False, False, False, False, True]
    left = {path.parent.name for path in place.run_dir.rglob("fio.json")}
    assert left == {"empty", "empty@2", "empty@3", "empty@4", "full"}


def test_a_cache_that_fills_itself_does_so_once_and_how_long_that_took_is_noted(place: Place, pool: Pool) -> None:
    pool.after_runs, pool.fills = [40, 40], True
    place.play(sound_but({"stat -L": Answer("fe:10\n"), "fill-the-pool": Answer(takes_s=7.0)}))
    trial = place.measure(REQUEST, given={"storage.stack": "slow(hdd)+ext4"})
    assert [run.name for run in trial.runs] == ["empty", "full"]
    empty, full = (dict(run.counters) for run in trial.runs)
    assert empty["cache.fill"] == pytest.approx(7.0, abs=0.5)
    assert "cache.fill" not in full
    (command,) = [one for one in place.commands if "fill-the-pool" in one]
    assert "fill-the-pool 257" in command  # what is left of five minutes after a run of 43 s
    assert [detail for stage, detail in place.stages if stage is Stage.WORKLOAD] == [
        *("empty run", "filling the cache", "full run")
    ]


@pytest.mark.parametrize(
    ("rounds", "deadline", "names", "left_s"),
    [
        ("1", "80s", ["empty", "full"], 37),  # a run takes 43 s: there is no time for a second one
        ("1", "50s", ["empty", "full"], 7),
        ("2", "80s", ["empty", "full"], 37),
        ("2", "100s", ["empty", "empty@2", "full"], 14),
        ("3", "120s", ["empty", "empty@2", "full"], 34),
    ],
)
def test_a_cache_that_fills_itself_needs_not_the_time_of_a_round(
    place: Place, pool: Pool, *, rounds: str, deadline: str, names: list[str], left_s: int
) -> None:
    pool.after_runs, pool.fills = [40, 50, 50], True
    assert runs(place, fill_rounds=rounds, fill_deadline=deadline) == names
    (command,) = [one for one in place.commands if "fill-the-pool" in one]
    assert f"fill-the-pool {left_s}" in command


@pytest.mark.parametrize(("after", "given"), [([100, 100], {}), ([40, 40], {"storage.fill_deadline": "0s"})])
def test_a_full_cache_is_not_filled_and_none_without_time(
    place: Place, pool: Pool, after: list[float], given: dict[str, str]
) -> None:
    pool.after_runs, pool.fills = after, True
    place.measure(REQUEST, given={"storage.stack": "slow(hdd)+ext4", **given})
    assert not any("fill-the-pool" in one for one in place.commands)


class Quick(Slow):
    """The same, which says how long it takes to settle once it is full."""

    name = "quick"
    phases = (Phase("empty", judged=False, fills=True, period_s=5.0), Phase("full"))


def interrupted(seconds: int) -> Answer:
    """A run of fio that reports each second, and is interrupted at the last of them."""
    status, reports = json.loads(FIO_FILES["fio.json"]), []
    for second in range(1, seconds + 1):
        for job in status["jobs"]:
            job["read"] |= {"runtime": second * 1000, "total_ios": second * 5_000}
        reports.append(json.dumps(status, indent=2))
    return Answer(
        listed("fio.json", "job.fio"),
        "\n".join(("", "@uptime 10.00", *reports, f"@uptime {11 + seconds}.00", "")),
        output.INTERRUPTED,
        takes_s=seconds + 1.0,
        files={"/tmp/bisector/fio.json": "\n".join(reports)},
    )


@dataclass
class Gauge(Pool):
    """A cache that is full from the given look on; the first reading is before the run."""

    full_from: int = 1

    def read(self, shell: Shell) -> float:
        shell.run("look at the pool")
        self.readings += 1
        return 100.0 if self.readings > self.full_from else 50.0


@pytest.fixture
def gauge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gauge]:
    made = Gauge()
    monkeypatch.setattr(Slow, "pool", made)
    layers.register(Quick)
    yield made
    layers.forget("quick")


SHORT = replace(REQUEST, fill=Fill.SHORT)
ON_QUICK = {"storage.stack": "quick(hdd)+ext4", "workload.runtime": "40s"}


def test_a_short_fill_ends_its_run_once_the_cache_is_settled(place: Place, gauge: Gauge) -> None:
    """Full from the fifth look on, and five seconds later, six periods before its end, fio is interrupted."""
    gauge.full_from = 5
    answers = {"stat -L": Answer("fe:10\n"), "DIRECTORY=/mnt/empty": interrupted(10), FIO_RUNS: RAN}
    place.play(sound_but(answers))
    trial = place.measure(SHORT, given=ON_QUICK)
    assert (trial.fault, trial.fill, trial.filled_short, trial.bears_answer) == (None, Fill.SHORT, True, False)
    empty, full = trial.runs
    assert (empty.name, full.name, full.stopped_early) == ("empty", "full", None)
    stop = empty.stopped_early
    assert stop is not None
    assert (stop.reason, stop.at_s, stop.metric) == (StopReason.SETTLED, 10.0, "cache.filled")
    assert stop.why == "the cache was full for 5 s, and its figures held still"
    (kill,) = [n for n, command in enumerate(place.commands) if "kill -INT" in command]
    looks = [n for n, command in enumerate(place.commands) if command == "look at the pool"]
    assert sum(n < kill for n in looks) == 11  # before the run, and each second of it
    first, second = [command for command in place.commands if FIO_RUNS in command]
    assert ("--status-interval=1000ms" in first, "/.kept" in first) == (True, True)
    assert "--status-interval" not in second


def test_a_cache_that_is_not_settled_in_time_is_filled_by_a_whole_run(place: Place, gauge: Gauge) -> None:
    gauge.full_from = 31
    trial = place.measure(SHORT, given=ON_QUICK)
    assert (trial.fill, trial.filled_short, trial.bears_answer) == (Fill.SHORT, False, True)
    assert not any("kill -INT" in command for command in place.commands)


@pytest.mark.parametrize(
    ("request_", "given"),
    [
        pytest.param(REQUEST, {}, id="a whole fill is asked for"),
        pytest.param(SHORT, {"storage.fill": "whole"}, id="the settings want whole ones"),
        pytest.param(SHORT, {"workload.full_runs": "true"}, id="no run is to end early"),
        pytest.param(SHORT, {"workload.runtime": "9s"}, id="the run is too short for that"),
    ],
)
def test_other_fills_are_not_looked_at(
    place: Place, gauge: Gauge, request_: TrialRequest, given: dict[str, str]
) -> None:
    gauge.full_from = 0
    trial = place.measure(request_, given=ON_QUICK | given)
    assert not trial.filled_short
    assert place.commands.count("look at the pool") == 4  # before and after each run
    assert not any("--status-interval" in command for command in place.commands)


def test_seconds_since_the_guest_was_booted() -> None:
    assert uptime_s(FakeShell({"/proc/uptime": Answer("12.34\n")})) == 12.34


@pytest.mark.parametrize("told", ["soon\n", "\n"])
def test_a_guest_that_does_not_know(told: str) -> None:
    with pytest.raises(KernelFault, match="/proc/uptime says"):
        uptime_s(FakeShell({"/proc/uptime": Answer(told)}))
