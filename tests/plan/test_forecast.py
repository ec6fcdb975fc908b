"""``bisector plan``: on real repositories, with what earlier runs on this host left on record."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bisector.cli import main
from bisector.config import Settings, options
from bisector.core.figures import EarlyStop, StopReason
from bisector.core.subject import Commit
from bisector.core.trial import Fill, Timings, Trial
from bisector.core.verdict import State
from bisector.git.repository import Repository
from bisector.git.transfer import bundled
from bisector.host.identity import host_id
from bisector.plan.experience import experience
from bisector.search.effect import NOTHING_CHANGED
from bisector.search.noise import EarlierSearches
from bisector.store.facts import RunHeader
from bisector.store.rundir import Index, IndexEntry, keep_inputs
from bisector.store.store import Store
from tests import fakes
from tests.docs.json_schema import valid
from tests.examples import BUSY
from tests.git.histories import Node, build, linear

DEFAULTS = options.load(directory=Path("/")).settings
LONG_RUNS = options.load({"workload.runtime": "15min"}, directory=Path("/")).settings
SMALL_CACHE = options.load({"storage.cache_size": "32MiB"}, directory=Path("/")).settings
MANY = ("--searches", "10")  # where it makes a difference what comes of them
TIMINGS = Timings(build_s=60.0, boot_s=6.0, storage_s=4.0, workload_s=90.0, total_s=161.0)


@dataclass
class Place:
    """A repository, a state directory with an index of runs, and what commands print."""

    home: Path
    shas: Mapping[str, str]
    output: pytest.CaptureFixture[str]

    def trial(self, name: str, iops: float, *, host: str = "", build_s: float = 60.0) -> Trial:
        sha = self.shas[name]
        made = fakes.trial(Commit(sha, sha, name, "2026-01-01T00:00:00Z"), iops)
        assert made.kernel is not None
        kernel = replace(made.kernel, build_s=build_s)
        return replace(made, host=host or host_id(), timings=TIMINGS, kernel=kernel)

    def run(self, name: str, *trials: Trial, settings: Settings = DEFAULTS) -> Path:
        """A run on record, in the index."""
        where = self.home / name
        where.mkdir()
        row = RunHeader(
            self.home / "linux", "c0", self.shas["c0"], "c16", self.shas["c16"],
            (), False, (), options.to_json(settings), "0", "2026-01-01T00:00:00Z",
        )  # fmt: skip
        with Store.create(where / "record.sqlite", row) as store:
            for trial in trials:
                store.add_trials([trial])
        Index().add(IndexEntry(str(where), str(self.home / "linux"), "c0", "c16", "2026-01-01T00:00:00Z"))
        return where

    def plan(self, *words: str, code: int = 0) -> str:
        """What it prints, or why it refuses to."""
        self.output.readouterr()
        ends = (self.shas["c0"], self.shas["c16"])
        assert main(["plan", *ends, "--repo", str(self.home / "linux"), "--searches", "2", *words]) == code
        said = self.output.readouterr()
        return " ".join((said.err if code == 2 else said.out).split())

    def json(self, *words: str, code: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = valid("plan", self.plan("--json", *words, code=code))
        return found


@pytest.fixture(scope="module")
def linux(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, str]]:
    """A repository of seventeen commits in a row, for all tests to copy."""
    path = tmp_path_factory.mktemp("place") / "linux"
    return path, build(path, linear(17))


@pytest.fixture
def place(
    linux: tuple[Path, Mapping[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Place:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(linux[0], tmp_path / "linux", symlinks=True)
    return Place(tmp_path, linux[1], capsys)


def test_nothing_measured_yet(place: Place) -> None:
    text = place.plan()
    assert "16 commits, how many can matter to this kernel is known once both ends are built" in text
    assert "assumed, not measured on this machine: builds" in text
    assert place.json()["can_matter"] is None


def test_earlier_runs_tell_times_noise_and_factor(place: Place) -> None:
    place.run("one", place.trial("c0", 1000), place.trial("c16", 4000, build_s=20), place.trial("c0", 1100))
    found = place.json("--seed", "5")
    assert found["warnings"] == []
    source = "assumed: no kernel of the better side was read twice here"
    assert found["wrong_runs"] == {"value": 0.05, "source": source, "measured": False}
    assert found["seed"] == 5
    times = {"build_least_s": (20, "builds"), "build_most_s": (60, "builds"), "setup_s": (10, "trials")}
    for key, (seconds, what) in {**times, "runs_s": (90, "trials")}.items():
        assert found[key] == {"value": seconds, "source": f"of 3 {what} here", "measured": True}
    factor = pytest.approx(4000 / (1000 * 1100) ** 0.5)
    assert found["factor"] == {"value": factor, "source": "1,049 IOPS and 4,000 IOPS, measured here", "measured": True}
    noise = found["spread"]
    assert noise["value"] == pytest.approx(0.0674, abs=1e-4)  # ln(1.1) / sqrt(2)
    assert noise["source"] == "2 readings of 1 kernel here"
    assert found["first_answer_right"] == 1.0


def test_earlier_runs_tell_how_often_readings_mislead(place: Place) -> None:
    again = [place.trial("c0", 1000), place.trial("c16", 4000), place.trial("c16", 1100), place.trial("c3", 1000)]
    twice = [place.trial("c16", 4100), place.trial("c3", 1050), place.trial("c5", 4000)]
    run_dir = place.run("one", place.trial("c0", 1000), place.trial("c16", 4000), *again, *twice)
    place.run("elsewhere", place.trial("c0", 1000, host="other"), place.trial("c16", 4000, host="other"))
    found = experience(DEFAULTS, host_id(), [run_dir, place.home / "elsewhere"]).earlier
    # Of the better end three more readings, one of them wrong; of the worse end one more, and one of c3.
    assert found == EarlierSearches(better=3, better_contradicted=1, worse=2, worse_contradicted=0)
    # 5 % and 0.3 % of twenty readings, and these.
    assert (found.noise.new_as_old, found.noise.old_as_new) == pytest.approx((2 / 23, 0.06 / 22))


def test_earlier_searches_tell_how_often_nothing_had_changed(place: Place) -> None:
    ends = (place.trial("c0", 1000), place.trial("c16", 4000))
    sentence = f"{NOTHING_CHANGED} read.iops: the new end's was 1.10 times the old end's"
    found, undecided, running = (State.FOUND, ""), (State.NARROWED, "one of 3 commits"), (State.RUNNING, "")
    outcomes = (found, (State.NARROWED, sentence), undecided, running)
    runs = [place.run(f"run-{n}", *ends) for n in range(len(outcomes) + 1)]
    for run_dir, outcome in zip(runs, outcomes, strict=False):
        with Store.open(run_dir / "record.sqlite") as store:
            store.set_state(*outcome)
    elsewhere = place.run("elsewhere", place.trial("c0", 1000, host="other"))
    with Store.open(elsewhere / "record.sqlite") as store:
        store.set_state(State.FOUND)
    earlier = experience(DEFAULTS, host_id(), [*runs, elsewhere]).earlier
    assert (earlier.searches, earlier.without_change) == (2, 1)
    other = replace(DEFAULTS, machine=replace(DEFAULTS.machine, memory_bytes=DEFAULTS.machine.memory_bytes + 1))
    assert experience(other, host_id(), runs).earlier.searches == 0


def test_plan_says_that_the_ends_are_to_be_read_again(place: Place) -> None:
    place.run("one", place.trial("c0", 1000), place.trial("c16", 2200), place.trial("c0", 1200))
    assert place.json()["ends_again"] >= 1
    assert "times more before the search, to tell them apart" in place.plan()


def test_a_cache_that_was_filled_in_several_rounds_took_what_it_took(place: Place) -> None:
    one = place.trial("c0", 1000)
    empty, full = one.runs
    place.run("one", replace(one, runs=(empty, replace(empty, name="empty@2"), full)))
    assert place.json("--seed", "5")["runs_s"] == {"value": 90, "source": "of 1 trial here", "measured": True}


def test_runs_that_were_stopped_early_are_no_figures_and_have_times_of_their_own(place: Place) -> None:
    above = _stopped(place.trial("c3", 3000), StopReason.ABOVE, 50.0)
    below = _stopped(place.trial("c4", 500), StopReason.NOT_ABOVE, 40.0)
    run_dir = place.run("one", place.trial("c0", 1000), place.trial("c16", 4000), above, below)
    found = place.json()
    assert [found[key]["value"] for key in ("runs_s", "early_old_s", "early_new_s")] == [90, 40, 50]
    assert "stopped early 40 s on the old side, 50 s on the new one" in place.plan()
    assert place.json("--full-runs")["early_new_s"] == found["runs_s"]
    assert "stopped early" not in place.plan("--full-runs")
    assert set(experience(DEFAULTS, host_id(), [run_dir]).scores) == {place.shas["c0"], place.shas["c16"]}


@pytest.mark.rare
def test_ends_both_ways_and_what_a_short_fill_takes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """In runs of 15 min; by itself it is not tried among 16 commits, of which two trials more find half."""
    # So far apart that a slow run is clear, too: one that is not has no figure after a short fill.
    monkeypatch.setattr("bisector.plan.forecast.LEAST_FACTOR", 8.0)
    whole = ("--runtime", "15min")
    assert place.json(*whole)["fill_s"] is None
    long = (*whole, "--set", "storage.fill=short")
    usual = place.json(*long)
    assert usual["fill_s"] == {"value": 180, "source": "assumed", "measured": False}
    assert (usual["early_old_s"]["value"], usual["early_new_s"]["value"]) == (pytest.approx(1642.5 - 720), 1395 - 720)
    without = place.json(*whole)
    assert usual["trials"] == pytest.approx(without["trials"] + 2, abs=1)
    ends_s = 2 * (15 + 180 + 0.6 * 900)  # their runs end once they are like the whole ones
    assert ends_s - 6 * 720 < (usual["hours"] - without["hours"]) * 3600 < ends_s - 2 * 720
    text = place.plan(*long)
    assert "filling 3 min until a cache is settled (assumed)" in text
    assert "filling" not in place.plan()

    trials = [_long(place.trial("c0", 1000)), _long(place.trial("c16", 9000))]
    short = [_filled_short(trial) for trial in trials]
    early = [_stopped(short[1], StopReason.ABOVE, 700.0), _stopped(trials[1], StopReason.ABOVE, 1_300.0)]
    place.run("long", *trials, *short, *early, settings=LONG_RUNS)
    known = place.json(*long)
    assert known["fill_s"] == {"value": 360, "source": "of 3 short fills here", "measured": True}
    assert known["early_new_s"]["value"] == 700  # with a short fill, as the search has them
    assert known["early_old_s"]["value"] == pytest.approx(1642.5 - 540)
    assert known["runs_s"]["value"] == 1800
    assert place.json("--runtime", "15min")["early_new_s"]["value"] == 1_300


def test_a_run_that_is_held_against_another_one_needs_the_same_random_numbers(place: Place, tmp_path: Path) -> None:
    job = tmp_path / "own.fio"
    text = "[partial]\nrw=randread\nnumjobs=2\nrandrepeat=0\nsize=${FILE_SIZE}\nruntime=${RUNTIME}\n"
    job.write_text(f"{text}directory=${{DIRECTORY}}\ntime_based\n", encoding="utf-8")
    words = ("--runtime", "15min", "--searches", "4")
    assert place.json(*words, "--job", str(job))["hours"] > place.json(*words)["hours"] + 0.1


def _long(trial: Trial) -> Trial:
    runs = (
        replace(run, duration_s=900.0, jobs=tuple(replace(job, runtime_ms=900_000) for job in run.jobs))
        for run in trial.runs
    )
    return replace(trial, runs=tuple(runs), timings=replace(trial.timings, workload_s=1_800.0))


def _filled_short(trial: Trial) -> Trial:
    stop = EarlyStop(StopReason.SETTLED, 360.0, 98.0, 95.0, "full", "cache.filled")
    first, last = trial.runs
    timings = replace(trial.timings, workload_s=1_260.0)
    return replace(
        trial, runs=(replace(first, duration_s=360.0, stopped_early=stop), last), fill=Fill.SHORT, timings=timings
    )


@pytest.mark.rare
def test_no_run_is_stopped_early_by_what_is_known_at_its_end_only(place: Place) -> None:
    """As `bisector start` says: a latency has no live counter, so that each run takes its whole time."""
    of_latency = ("--metric", "read.clat.p99", "--runtime", "40s")
    found = place.json(*of_latency)
    assert [found[key]["value"] for key in ("runs_s", "early_old_s", "early_new_s")] == [80, 80, 80]
    assert "stopped early" not in place.plan(*of_latency)
    assert found["hours"] > place.json("--runtime", "40s")["hours"]
    assert place.json("--metric", "read.bw", "--runtime", "40s")["early_old_s"]["value"] == 73


def test_what_start_would_refuse_is_not_forecast(place: Place) -> None:
    assert "no job has write.iops: none is told to write" in place.plan("--metric", "write.iops", code=2)
    (place.home / "bad.config").write_text("CONFIG_HZ\n")
    for command in (["plan"], ["plan", "compare"]):
        place.output.readouterr()
        words = (place.shas["c0"], place.shas["c16"], "--repo", str(place.home / "linux"))
        assert main([*command, *words, "--fragment", "./bad.config"]) == 2
        assert "bad.config:1" in place.output.readouterr().err


def test_the_clone_that_a_workload_searches_is_the_one_that_start_makes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the files of a workload earlier trials are told to be alike."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.home / "cache"))
    of_clone = ("--set", "workload.gitgrep.commit=main", "--set")
    searched = {"gitgrep.pattern": "dm", "gitgrep.commit": "main", "gitgrep.path": "drivers"}
    settings = options.load({f"workload.{key}": value for key, value in searched.items()}).settings
    repository = Repository.open(place.home / "linux")
    started = keep_inputs(bundled(settings, repository), place.home)
    trial = place.trial("c0", 1000)
    place.run("one", replace(trial, cell=replace(trial.cell, setup=started.setup)), settings=started)
    found = place.json("--grep", "dm", *of_clone, "workload.gitgrep.path=drivers")
    assert found["runs_s"] == {"value": 90, "source": "of 1 trial here", "measured": True}
    refused = place.plan("--grep", "dm", *of_clone, "workload.gitgrep.path=fs", code=2)
    assert "has no directory 'fs' to clone" in refused


def test_a_tree_that_lacks_what_the_stack_needs_is_refused_as_start_does(place: Place) -> None:
    lacks = Node("c17", ("c16",), files={"drivers/Kconfig": "config BLK_DEV_LOOP\n\tbool\n"})
    shas = build(place.home / "other", (*linear(17), lacks))
    words = [shas["c0"], shas["c17"], "--repo", str(place.home / "other")]
    place.output.readouterr()
    assert main(["plan", *words]) == 2
    said = place.output.readouterr().err
    assert "has no CONFIG_MD, " in said
    assert main(["start", *words, "--run-dir", str(place.home / "run")]) == 2
    assert place.output.readouterr().err == said


def test_hours_are_those_of_the_trials(place: Place) -> None:
    place.run("one", place.trial("c0", 1000), place.trial("c16", 4000))
    found = place.json("--full-runs")
    trials, hours = found["trials"], found["hours"]
    assert 6 <= trials <= 12  # both ends, four halvings of 16 commits, and the confirmation
    assert hours == pytest.approx(trials * 160 / 3600, rel=0.2)
    with_disks = place.json("--full-runs", "--baselines")["hours"]
    assert with_disks == pytest.approx(hours + (2 * 10 + 90) / 3600)


def test_ends_that_measured_the_same_are_hopeless(place: Place) -> None:
    place.run("one", place.trial("c0", 1000), place.trial("c16", 1030))
    text = place.plan(code=1)
    assert "hopeless: the ends measured 1.030 times apart, and less than 5% is not looked for" in text
    closer = place.json("--least-effect", "1%", code=1)
    assert not any("is not looked for" in str(one) for one in closer["warnings"])


def test_what_changes_take_at_the_noise_on_record(place: Place) -> None:
    steady = [place.trial("c3", iops) for iops in (1000, 1052, 950)]
    place.run("one", place.trial("c0", 1000), place.trial("c16", 4000), *steady)
    effects = place.json()["effects"]
    assert [(one["effect"], one["pairs"]) for one in effects] == [(0.05, 63), (0.1, 19), (0.2, 8)]
    assert [one["trials"] > 2 for one in effects] == [True] * 3
    assert sorted((one["trials"] for one in effects), reverse=True) == [one["trials"] for one in effects]
    text = place.plan()
    assert "changes of 5%: 63 pairs of the ends and" in text


def test_noise_that_swallows_the_effect_is_hopeless(place: Place) -> None:
    wild = [place.trial("c3", iops) for iops in (10, 1000, 100_000, 30, 30_000)]
    place.run("one", place.trial("c0", 1000), place.trial("c16", 2100), *wild)
    found = place.json("--searches", "1", code=1)
    assert any("hopeless: with this noise" in str(text) for text in found["warnings"])
    assert found["least_factor"] is None or found["least_factor"] > 2.1


@pytest.mark.rare
def test_an_effect_that_is_not_surely_found_is_a_warning(place: Place) -> None:
    restless = [place.trial("c3", iops) for iops in (1000, 2500, 5500)]
    place.run("one", place.trial("c0", 1000), place.trial("c16", 2100), *restless)
    found = place.json()
    assert any("is not surely found" in str(text) for text in found["warnings"])
    assert found["hopeless"] is False


@pytest.mark.parametrize(
    ("changed", "builds", "readings"),
    [
        pytest.param({"storage": SMALL_CACHE.storage}, 1, 0, id="another cache"),
        pytest.param({"workload": LONG_RUNS.workload}, 1, 0, id="longer runs"),
        pytest.param({"kernel": replace(DEFAULTS.kernel, fragments=("tiny", "vm"))}, 0, 0, id="another kernel"),
        pytest.param({"bisect": replace(DEFAULTS.bisect, max_repeats=9)}, 1, 1, id="what does not matter"),
        pytest.param({"storage": replace(DEFAULTS.storage, overwrite=("WD-1",))}, 1, 1, id="a disk's new content"),
    ],
)
def test_only_the_same_experiment_counts(place: Place, changed: dict[str, Any], builds: int, readings: int) -> None:
    where = place.run("one", place.trial("c0", 1000), settings=replace(DEFAULTS, **changed))
    known = experience(DEFAULTS, host_id(), [where])
    assert (len(known.builds_s), len(known.workloads_s), len(known.scores)) == (builds, readings, readings)


def test_figures_of_two_clocks_are_not_of_one_experiment(place: Place) -> None:
    """On a stack in memory, and emulated by one CPU, nothing else differs."""
    by_host = {"storage.stack": "ram+ext4", "machine.accelerator": "tcg", "machine.vcpus": "1"}
    counted = {**by_host, "machine.clock": "instructions"}
    host, eight, four = (
        options.load(flags, directory=Path("/")).settings
        for flags in (by_host, counted, {**counted, "machine.instruction_ns": "4"})
    )
    trial = place.trial("c0", 1000)
    in_ram = replace(trial, cell=replace(trial.cell, setup=eight.setup), runs=(replace(trial.runs[-1], name="run"),))
    where = place.run("one", in_ram, settings=eight)
    found = [len(experience(one, host_id(), [where]).setups_s) for one in (eight, host, four)]
    assert found == [1, 0, 0]


COUNTED = ("--clock", "instructions", "--stack", "ram+ext4", "--searches", "1")


def test_counted_time_has_no_noise_of_the_hosts(place: Place) -> None:
    found, by_host = place.json(*COUNTED), place.json("--stack", "ram+ext4")
    source = "assumed: the host has no part in counted time"
    assert found["spread"] == {"value": 0.002, "source": source, "measured": False}
    assert found["wrong_runs"]["value"] == 0.0
    assert found["least_factor"] < 1.01 < by_host["least_factor"]
    assert found["clock"] == {"kind": "instructions", "instruction_ns": 8}
    assert found["clock_note"].startswith("the guests' clock counts instructions, 8 ns each")
    text = place.plan(*COUNTED)
    assert "findable what is at least 1.00" in text
    assert "clock the guests' clock counts instructions" in text


def test_a_counted_guest_takes_as_long_as_its_instructions(place: Place) -> None:
    """125 million of them are a second of the guest's; of a slower one fewer are."""
    for ns, runs_s in ((8, 40 * 125 / 120), (64, 40 * 15.625 / 120)):
        found = place.json(*COUNTED, "--runtime", "40s", "--set", f"machine.instruction_ns={ns}")["runs_s"]
        assert found["value"] == pytest.approx(runs_s)
        assert found["source"] == "assumed: 120 million instructions a second, and no idle guest"


def test_where_guests_are_emulated_it_is_said_that_counted_time_exists(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bisector.vm.accelerator.KVM_DEVICE", place.home / "none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.home / "cache"))
    told = "clock guests are emulated here, as fast as this host is at the time; --clock instructions gives"
    assert told in place.plan()
    assert place.json("--ssd", str(place.home), "--hdd", str(place.home))["clock_note"] is None
    (place.home / "none").touch()  # then it is not known
    assert place.json()["clock_note"] is None
    assert told in place.plan("--accelerator", "tcg")


def test_other_hosts_and_weak_evidence_do_not_count(place: Place) -> None:
    busy = fakes.trial(Commit(place.shas["c3"], "", "", ""), contention=BUSY)
    where = place.run("one", place.trial("c0", 1000, host="elsewhere"), replace(busy, host=host_id()))
    assert not experience(DEFAULTS, host_id(), [where]).scores


def test_a_disk_without_a_cache_has_one_run(place: Place) -> None:
    """Its trials once had two, and took as long; what they read counts."""
    ssd = options.load({"storage.stack": "ssd"}, directory=Path("/")).settings
    two = place.trial("c0", 1000)
    one = replace(place.trial("c16", 4000), runs=(replace(two.runs[-1], name="ssd"),), timings=TIMINGS)
    two, one = (replace(trial, cell=replace(trial.cell, setup=ssd.setup)) for trial in (two, one))
    where = place.run("ssd", two, one, settings=ssd)
    known = experience(ssd, host_id(), [where])
    assert len(known.workloads_s) == 1
    assert set(known.scores) == {place.shas["c0"], place.shas["c16"]}


@pytest.mark.parametrize(("stack", "seconds"), [("lvmcache", (80, 62, 73)), ("ssd", (40, 22, 33))])
def test_only_the_run_that_counts_is_shorter(place: Place, stack: str, seconds: tuple[float, ...]) -> None:
    found = place.json("--stack", stack)
    assert [found[key]["value"] for key in ("runs_s", "early_new_s", "early_old_s")] == pytest.approx(seconds)


def test_a_run_that_cannot_be_read_is_passed_over(place: Place) -> None:
    (place.run("one", place.trial("c0", 1000)) / "record.sqlite").write_bytes(b"x" * 8192)
    place.output.readouterr()
    words = (place.shas["c0"], place.shas["c16"], "--repo", str(place.home / "linux"), "--searches", "1")
    assert main(["plan", *words]) == 0
    assert "passed over" in place.output.readouterr().err


def _stopped(trial: Trial, reason: StopReason, workload_s: float) -> Trial:
    stop = EarlyStop(reason, 10.0, 2_500.0, 2_000.0, "clear")
    runs = (*trial.runs[:-1], replace(trial.runs[-1], stopped_early=stop))
    return replace(trial, runs=runs, timings=replace(trial.timings, workload_s=workload_s))


@pytest.mark.rare
def test_what_a_budget_reaches_is_said(place: Place) -> None:
    whole = place.json(*MANY)
    assert whole["reach"] is None
    assert "budget 10 of 10 simulated searches name a commit in 20 h" in place.plan("--budget", "20h", *MANY)
    half_s = round(whole["hours"] * 1800)
    reach = place.json("--budget", f"{half_s}s", *MANY)["reach"]
    assert (reach["budget_s"], reach["searches"]) == (half_s, 10)
    assert reach["named"] < 10
    assert 1 < reach["candidates"] <= 16
    assert "narrow it down to" in place.plan("--budget", f"{half_s}s", *MANY)


@pytest.mark.rare
def test_what_several_hosts_gain_is_said(place: Place) -> None:
    assert place.json()["shared"] is None
    found = place.json("--hosts", "2")["shared"]
    assert found["hosts"] == 2
    assert found["hours"] < found["hours_with_one_less"] == found["hours_alone"]
    assert "2 hosts" in place.plan("--hosts", "2")


@pytest.mark.rare
def test_a_host_that_is_not_worth_its_calibration_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among 16 commits there is nothing left for an eighth host to do."""
    monkeypatch.setattr("bisector.plan.forecast.LEAST_FACTOR", 4.0)
    assert "the last of 8 hosts is not worth its calibration: 7 take" in place.plan("--hosts", "8", *MANY)
    assert "not worth its calibration" not in place.plan("--hosts", "2")


def test_the_hosts_of_a_fleet_are_counted(place: Place) -> None:
    hosts = place.home / "hosts.toml"
    hosts.write_text('[hosts.a]\nssh = "a"\n[hosts.b]\nssh = "b"\n[hosts.c]\nssh = "c"\nrole = "build"\n')
    assert place.json("--hosts", str(hosts))["shared"]["hosts"] == 2


def test_git_tries_one_commit_at_a_time_on_several_hosts_as_well(place: Place) -> None:
    assert place.json("--hosts", "3", "--strategy", "git")["shared"] is None
