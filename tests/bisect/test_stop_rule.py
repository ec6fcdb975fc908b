"""The rule by which a run may end early, from the record and fio's logs, and the runs that a search does not stop."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from bisector.analysis.early_stop import StopRule
from bisector.analysis.verdicts import Judging
from bisector.bisect import stop_rule
from bisector.bisect.stop_rule import rule_alike, rule_clear_of
from bisector.config import Settings, options
from bisector.core.errors import EndsDoNotReproduce
from bisector.core.events import Note
from bisector.core.figures import EarlyStop, JobFigures, StopReason
from bisector.core.objective import Objective
from bisector.core.subject import Commit
from bisector.core.trial import Artifact, Fill, Trial
from bisector.core.verdict import Direction
from bisector.trial.runner import TrialRequest
from tests import examples, fakes
from tests.bisect.lab import BY_GIT, DEFAULTS, Lab
from tests.examples import BUSY, EARLY
from tests.workload.test_job_file import GOOD

SLOW = Commit("5" * 40, "5" * 40, "slow", "2026-01-01T00:00:00+00:00")
FAST = Commit("f" * 40, "f" * 40, "fast", "2026-01-02T00:00:00+00:00")
OTHER = replace(FAST, sha="8" * 40)


@dataclass
class Record:
    """Two ends with logs; the fast end's jobs become fast at these seconds."""

    run_dir: Path
    settings: Settings = DEFAULTS
    log_of: str = "{run}/partial_iops.{job}.log"

    def end(self, commit: Commit, least: float, jumps_s: Sequence[float], n: int = 1) -> Trial:
        trial = fakes.trial(commit, least)
        names = {job: self.log_of.format(run="full", job=job) for job in range(1, len(jumps_s) + 1)}
        kept = [Artifact(name, f"{n}-{commit.short}/{name}", "", 0) for name in names.values()]
        kept.append(Artifact("empty/partial_iops.1.log", f"{n}-{commit.short}/empty/partial_iops.1.log", "", 0))
        for artifact, jump_s in zip(kept, (*jumps_s, 0), strict=True):
            lines = [
                f"{ms}, {2 * least if ms > jump_s * 1000 else 10:.0f}, 0, 4096, 0" for ms in range(501, 40_502, 500)
            ]
            (self.run_dir / artifact.path).parent.mkdir(parents=True, exist_ok=True)
            (self.run_dir / artifact.path).write_text("\n".join(lines), encoding="utf-8")
        return replace(trial, artifacts=tuple(kept))

    def rule(self, *trials: Trial, old: Commit = SLOW, new: Commit = FAST) -> StopRule | None:
        judging = Judging(self.settings, tuple(enumerate(trials, 1)), old.sha, new.sha)
        return stop_rule.stop_rule(judging, self.run_dir)

    def guard(self, *trials: Trial, old: Commit = SLOW, new: Commit = FAST) -> float | None:
        """From when on a slow run may end, of a rule that there is."""
        return some(self.rule(*trials, old=old, new=new)).guard_s


def some(rule: StopRule | None) -> StopRule:
    assert rule is not None
    return rule


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path)


@pytest.fixture
def slow(record: Record) -> Trial:
    return record.end(SLOW, fakes.SLOW_IOPS, (0, 0))


@pytest.fixture
def fast(record: Record) -> Trial:
    return record.end(FAST, fakes.FAST_IOPS, (8, 12))


def test_guard_is_from_the_slower_job_of_the_fast_end(record: Record, slow: Trial, fast: Trial) -> None:
    rule = some(record.rule(slow, fast))
    assert rule.threshold == pytest.approx(2_000)
    assert rule.runtime_s == 40.0
    # 8,000 IOPS in the half second before second 12: two batches of six bring the mean of a window above the line
    assert rule.guard_s == pytest.approx(2 * 12.5)


def split(trial: Trial, settled_after_s: float) -> Trial:
    """The same with a judged run whose jobs were steady after so many seconds, at twice their mean."""
    first, last = trial.runs
    jobs = tuple(replace(job, steady_iops=2 * job.iops_mean, settled_after_s=settled_after_s) for job in last.jobs)
    return replace(trial, runs=(first, replace(last, jobs=jobs)))


def test_no_run_ends_before_the_ends_were_steady_where_that_decides(record: Record, slow: Trial, fast: Trial) -> None:
    ends = split(slow, 4.0), split(fast, 16.0)
    whole = some(record.rule(*ends))
    assert whole.threshold == pytest.approx(2_000)
    assert whole.steady_s == 0.0
    record.settings = options.load({"bisect.metric": "read.iops.steady"}, directory=Path("/")).settings
    rule = some(record.rule(*ends))
    assert rule.threshold == pytest.approx(4_000)
    assert rule.steady_s == 16.0


def begun_later(trial: Trial, seconds: int) -> Trial:
    """The same with so much more time between the beginnings of its runs."""
    first, last = trial.runs
    later = datetime.fromisoformat(last.started_at) + timedelta(seconds=seconds)
    return replace(trial, runs=(first, replace(last, started_at=later.isoformat())))


def test_a_cache_that_had_longer_is_no_sooner_fast(record: Record, slow: Trial) -> None:
    """Fast from the first second on, since the second run began late; the next kernel's begins in time."""
    at_once = record.end(FAST, fakes.FAST_IOPS, (0, 0))
    early, late = some(record.rule(slow, at_once)), some(record.rule(slow, begun_later(at_once, 14)))
    assert early.guard_s == pytest.approx(20.0)  # half of the run: one curve may be a quick one
    assert late.guard_s == pytest.approx(2 * (3 + 14))
    assert record.rule(begun_later(slow, 14), begun_later(at_once, 14)) == early


def test_a_fast_end_that_was_quick_once_does_not_speak_for_other_commits(record: Record, slow: Trial) -> None:
    quick, usual = record.end(FAST, fakes.FAST_IOPS, (0, 0)), record.end(OTHER, fakes.FAST_IOPS, (8, 12), n=2)
    rule = some(record.rule(slow, quick, usual))
    assert rule.guard_s == pytest.approx(2 * 12.5)
    slower = record.end(replace(OTHER, sha="9" * 40), fakes.SLOW_IOPS, (8, 12), n=3)
    assert record.rule(slow, quick, usual, slower) == rule


def test_every_sound_run_of_the_fast_end_counts(record: Record, slow: Trial, fast: Trial) -> None:
    later = record.end(FAST, fakes.FAST_IOPS, (8, 20), n=2)
    assert record.guard(slow, fast, later) == pytest.approx(1.5 * 20.5)
    weak = replace(later, runs=tuple(replace(run, contention=BUSY) for run in later.runs))
    assert record.rule(slow, fast, weak) == record.rule(slow, fast)


def test_a_run_that_was_stopped_as_fast_counts_too(record: Record, slow: Trial, fast: Trial) -> None:
    other = fakes.trial(OTHER, stopped=replace(EARLY, at_s=21.0, bound=3_000.0))
    assert record.guard(slow, fast, other) == pytest.approx(1.5 * 21.0)
    unclear = fakes.trial(other.commit, stopped=replace(EARLY, at_s=21.0, bound=1_999.0))
    below = fakes.trial(other.commit, stopped=replace(EARLY, reason=StopReason.NOT_ABOVE, bound=400.0))
    assert record.rule(slow, fast, unclear, below) == record.rule(slow, fast)


def test_a_run_that_was_to_be_clear_of_another_one_was_fast_sooner(record: Record, slow: Trial, fast: Trial) -> None:
    """It was not stopped before half of its time, whenever it became fast: its log tells."""
    clear = replace(EARLY, at_s=30.0, bound=3_000.0, against=SLOW.sha, apart=3.0)
    logged = record.end(OTHER, fakes.FAST_IOPS, (8, 12), n=2)
    stopped = replace(logged, runs=(logged.runs[0], replace(logged.runs[1], stopped_early=clear)))
    assert record.guard(slow, fast, stopped) == pytest.approx(1.5 * 12.5)
    assert record.guard(slow, fast, replace(stopped, artifacts=())) is None  # twice 30 s, as far as is known


def test_the_guard_is_from_trials_with_the_same_fill(record: Record, slow: Trial, fast: Trial) -> None:
    """How long the cache was there before a short one is over is another time."""
    settled = EarlyStop(StopReason.SETTLED, 20.0, 98.0, 95.0, "full", "cache.filled")
    late = record.end(FAST, fakes.FAST_IOPS, (20, 22), n=3)

    def shortly(trial: Trial) -> Trial:
        return replace(trial, runs=(replace(trial.runs[0], stopped_early=settled), trial.runs[1]), fill=Fill.SHORT)

    trials = (slow, fast, shortly(record.end(SLOW, fakes.SLOW_IOPS, (0, 0), n=4)), shortly(late))
    judging = Judging(record.settings, tuple(enumerate(trials, 1)), SLOW.sha, FAST.sha)
    assert judging.short_fill.harmless
    rules = [stop_rule.stop_rule(judging, record.run_dir, fill) for fill in (Fill.WHOLE, Fill.SHORT)]
    assert [rule.guard_s for rule in rules if rule is not None] == [pytest.approx(25.0), None]
    assert record.rule(slow, fast) == rules[0]


def test_of_a_regression_the_old_end_is_the_fast_one(record: Record, slow: Trial, fast: Trial) -> None:
    record.settings = options.load({"bisect.expect": "regression"}, directory=Path("/")).settings
    assert record.settings.bisect.expected is Direction.REGRESSION
    assert record.guard(fast, slow, old=FAST, new=SLOW) == pytest.approx(2 * 12.5)


@pytest.mark.parametrize("lost", ["a job has no log", "no log", "it is gone", "it is damaged", "no IOPS log"])
def test_without_the_curve_of_every_job_no_run_is_called_slow(record: Record, slow: Trial, lost: str) -> None:
    if lost == "no IOPS log":
        record.log_of = "{run}/partial_lat.{job}.log"
    fast = record.end(FAST, fakes.FAST_IOPS, {"a job has no log": (8,), "no log": ()}.get(lost, (8, 12)))
    if lost == "it is gone":
        (record.run_dir / fast.artifacts[0].path).unlink()
    if lost == "it is damaged":
        (record.run_dir / fast.artifacts[1].path).write_text("1, fast\n", encoding="utf-8")
    assert record.guard(slow, fast) is None


def test_no_rule_without_a_threshold_or_where_whole_runs_are_asked_for(
    record: Record, slow: Trial, fast: Trial
) -> None:
    assert record.rule(slow) is None
    record.settings = options.load({"workload.full_runs": "true"}, directory=Path("/")).settings
    assert record.rule(slow, fast) is None


def test_an_end_that_was_stopped_early_gives_no_threshold(record: Record, slow: Trial, fast: Trial) -> None:
    stopped = replace(fast, runs=(fast.runs[0], replace(fast.runs[1], stopped_early=EARLY)))
    assert record.rule(slow, stopped) is None
    assert record.rule(slow, stopped, fast) == record.rule(slow, fast)


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        # Of every job 8,000 a second once it is fast: one is at second 8, the other at second 12.
        (Objective("read.bw"), (2_000 * 4096, 12.5)),
        (Objective("read.bw", "sum"), (2_000 * 4096, 8.5)),
        (Objective("read.iops", "sum"), (2_000, 8.5)),
        (Objective("read.iops", "job0"), (2_000, 8.5)),
        (Objective("read.iops", "job1"), (2_000, 12.5)),
    ],
)
def test_the_guard_is_from_the_curve_that_decides(
    record: Record, slow: Trial, fast: Trial, objective: Objective, expected: tuple[float, float]
) -> None:
    """Of bandwidth the log of IOPS tells, as the bytes of an I/O are the same throughout."""
    line, after_s = expected
    typed = objective.definition.unit.typed(line)
    record.settings = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect.by(objective), threshold=typed))
    old = replace(slow, runs=tuple(replace(run, jobs=tuple(_slower(job) for job in run.jobs)) for run in slow.runs))
    rule = some(record.rule(old, fast))
    assert (rule.objective, rule.threshold) == (objective, line)
    assert rule.guard_s == pytest.approx(max(2 * after_s, 20.0))


def _slower(job: JobFigures) -> JobFigures:
    return replace(job, iops_mean=job.iops_mean / 100, bw_kib_s=job.bw_kib_s / 100)


def test_of_a_job_that_writes_the_curve_of_its_writes_counts(record: Record, slow: Trial, fast: Trial) -> None:
    record.settings = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, metric="write.iops"))
    written = [
        replace(one, runs=tuple(
            replace(run, jobs=tuple(replace(job, direction="write") for job in run.jobs)) for run in one.runs
        ))
        for one in (slow, fast)
    ]  # fmt: skip
    assert record.guard(*written) is None  # the logs are of reads
    for artifact in fast.artifacts:
        path = record.run_dir / artifact.path
        path.write_text(path.read_text(encoding="utf-8").replace(", 0, 4096", ", 1, 4096"), encoding="utf-8")
    assert record.guard(*written) == pytest.approx(2 * 12.5)


def test_a_metric_that_is_known_only_at_the_end_stops_no_run(record: Record, slow: Trial, fast: Trial) -> None:
    record.settings = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, metric="read.clat.mean", threshold="1ms"))
    quick = replace(fast, runs=tuple(
        replace(run, jobs=tuple(replace(job, clat_mean_ns=0.5e6) for job in run.jobs)) for run in fast.runs
    ))  # fmt: skip
    assert record.rule(slow, quick) is None
    assert "known only when a run has ended" in stop_rule.why_whole(Objective("read.clat.mean"))
    assert stop_rule.why_whole(Objective("write.bw", "sum")) == ""


def test_small_changes_in_counted_time_are_told_by_whole_runs_alone(record: Record) -> None:
    counted = replace(record, settings=options.load({"machine.clock": "instructions"}, directory=Path("/")).settings)
    for factor, has_rule in ((2.1, True), (1.9, False)):
        ends = [counted.end(SLOW, 1_000.0, (0, 0)), counted.end(FAST, 1_000.0 * factor, (0, 0))]
        assert (counted.rule(*ends, *ends) is not None) is has_rule


@pytest.fixture
def both_ends(record: Record) -> tuple[Trial, Trial]:
    return record.end(SLOW, fakes.SLOW_IOPS, (0, 0)), record.end(FAST, fakes.FAST_IOPS, (8, 12))


def rule_of(record: Record, trials: Sequence[Trial], *shas: str) -> StopRule | None:
    judging = Judging(record.settings, tuple(enumerate(trials, 1)), SLOW.sha, FAST.sha)
    return rule_clear_of(judging, record.run_dir, shas)


def test_the_whole_run_of_the_counterpart_comes_along(record: Record, both_ends: tuple[Trial, Trial]) -> None:
    rule = some(rule_of(record, both_ends, FAST.sha))
    assert rule.threshold == pytest.approx(2_000.0)
    assert rule.guard_s == 25.0
    (other,) = rule.counterparts
    assert (other.sha, other.is_better, other.batch_s, len(other.rates)) == (FAST.sha, True, 0.5, 2)
    assert [one[10] for one in other.rates] == [10.0, 10.0]
    assert [one[20] for one in other.rates] == [8_000.0, 10.0]
    assert [one.is_better for one in some(rule_of(record, both_ends, SLOW.sha)).counterparts] == [False]


def test_those_that_have_one_are_taken(record: Record, both_ends: tuple[Trial, Trial]) -> None:
    other = fakes.trial(OTHER, fakes.SLOW_IOPS, stopped=replace(EARLY, reason=StopReason.NOT_ABOVE, bound=500.0))
    rule = some(rule_of(record, (*both_ends, other), OTHER.sha, "9" * 40, SLOW.sha, FAST.sha))
    assert [one.sha for one in rule.counterparts] == [SLOW.sha, FAST.sha]


def short_filled(trial: Trial) -> Trial:
    settled = EarlyStop(StopReason.SETTLED, 20.0, 98.0, 95.0, "full", "cache.filled")
    return replace(trial, runs=(replace(trial.runs[0], stopped_early=settled), trial.runs[1]), fill=Fill.SHORT)


@pytest.mark.parametrize(
    "lacking", ["no logs", "stopped early", "a short fill", "weak", "not measured", "other numbers", "full runs"]
)
def test_without_it_the_run_is_whole(
    record: Record, both_ends: tuple[Trial, Trial], lacking: str, tmp_path: Path
) -> None:
    other = record.end(OTHER, fakes.SLOW_IOPS, (0, 0), n=3)
    changed = {
        "no logs": replace(other, artifacts=()),
        "stopped early": replace(other, runs=(other.runs[0], replace(other.runs[1], stopped_early=EARLY))),
        "a short fill": short_filled(other),
        "weak": replace(other, runs=tuple(replace(run, contention=BUSY) for run in other.runs)),
    }
    if lacking == "other numbers":
        job = tmp_path / "own.fio"
        job.write_text(f"{GOOD.replace('one', 'partial')}randrepeat=0\n", encoding="utf-8")
        record.settings = options.load({"workload.job": f"{job}"}, directory=Path("/")).settings
    if lacking == "full runs":
        record.settings = options.load({"workload.full_runs": "true"}, directory=Path("/")).settings
    trials = both_ends if lacking == "not measured" else (*both_ends, changed.get(lacking, other))
    assert rule_of(record, trials, OTHER.sha) is None
    record.settings = DEFAULTS
    assert rule_of(record, (*both_ends, other), OTHER.sha) is not None


def with_logs(made: Trial, directory: Path, run_dir: Path) -> Trial:
    """A trial with the logs of its last run, if that was whole."""
    if not made.runs or made.stopped_early is not None:
        return made
    names = ("full/partial_iops.1.log", "full/partial_iops.2.log")
    kept = []
    for name, job in zip(names, made.runs[-1].jobs, strict=True):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{ms}, {job.iops_mean:.0f}, 0, 4096, 0" for ms in range(501, 40_502, 500)]
        path.write_text("\n".join(lines), encoding="utf-8")
        kept.append(Artifact(name, str(path.relative_to(run_dir)), "", 0))
    return replace(made, artifacts=tuple(kept))


@dataclass
class Logging(fakes.FakeExecutor):
    """Its fio leaves logs of whole runs, and a run that may be stopped is."""

    run_dir: Path = Path()
    asked: list[tuple[str, StopRule | None]] = field(default_factory=list)

    def measure(self, request: TrialRequest) -> Trial:
        self.asked.append((request.commit.sha, request.stop))
        return with_logs(super().measure(request), self.run_dir / "logs" / str(request.n), self.run_dir)

    def _stopped(self, sha: str, value: float, rule: StopRule) -> EarlyStop:
        stop = super()._stopped(sha, value, rule)
        is_above = stop.reason is StopReason.ABOVE
        if (other := next((one for one in rule.counterparts if one.is_better is not is_above), None)) is None:
            return stop
        return replace(stop, against=other.sha, apart=4.0 if is_above else 0.25)


def logging(lab: Lab, culprit: str) -> Logging:
    return lab.bench(Logging, culprit, stops_early=True, run_dir=lab.path)


def counterparts(lab: Lab, engine: Logging) -> dict[str, str]:
    """Of each commit whose run was to be clear of another one's, the first other one."""
    return {
        lab.names.get(sha, "changed"): lab.names[rule.counterparts[0].sha]
        for sha, rule in engine.asked
        if rule is not None and rule.counterparts
    }


def test_the_parents_run_is_held_against_the_whole_one_of_the_culprit(line: Lab) -> None:
    engine = logging(line, "c7")
    assert line.finds(engine) == "c7"
    assert counterparts(line, engine) == {"c6": "c7"}
    *_, culprit, parent = line.trials()
    assert (culprit.stopped_early, line.names[culprit.commit.sha]) == (None, "c7")
    assert parent.stopped_early is not None
    assert (parent.stopped_early.against, parent.bears_answer) == (line.shas["c7"], True)
    # Once each by the line alone, and once for the answer.
    assert [line.names[sha] for sha, _ in engine.asked].count("c6") == 2


def test_a_changed_end_is_held_against_that_end(line: Lab) -> None:
    line.settings = DEFAULTS
    engine = logging(line, "c7")
    assert line.finds(engine) == "c7"
    found = counterparts(line, engine)
    assert found["changed"] == "c16"
    assert "c6" in found
    whole = {line.names.get(trial.commit.sha) for trial in line.trials() if trial.stopped_early is None}
    assert {"c0", "c16", "c7"} <= whole


def test_the_first_of_a_pair_is_whole(line: Lab) -> None:
    """Of a search in which all that matters was stopped by the line: then the culprit's run is the one to rest on."""
    engine = logging(line, "c1")
    assert line.finds(engine) == "c1"
    # Its parent is the old end, which is whole anyway.
    assert counterparts(line, engine) == {}


def alike_of(record: Record, trials: Sequence[Trial], sha: str) -> StopRule | None:
    judging = Judging(record.settings, tuple(enumerate(trials, 1)), SLOW.sha, FAST.sha)
    return rule_alike(judging, record.run_dir, sha)


def test_an_end_with_a_short_fill_is_held_against_its_own_whole_run(
    record: Record, both_ends: tuple[Trial, Trial]
) -> None:
    rule = some(alike_of(record, both_ends, SLOW.sha))
    assert rule.guard_s == pytest.approx(40 / 3)  # by its own run, and not by when the other end is fast
    assert rule.counterparts == ()
    assert rule.alike is not None
    assert rule.alike.run.sha == SLOW.sha
    assert rule.alike.most == pytest.approx(1.25)
    record.settings = options.load({"workload.full_runs": "true"}, directory=Path("/")).settings
    assert alike_of(record, both_ends, SLOW.sha) is None
    record.settings = DEFAULTS
    assert alike_of(record, (replace(both_ends[0], artifacts=()), both_ends[1]), SLOW.sha) is None


def test_a_metric_without_a_live_counter_has_whole_runs_and_says_so(line: Lab) -> None:
    line.settings = replace(BY_GIT, bisect=replace(BY_GIT.bisect, metric="read.clat.mean", threshold="1.6ms"))
    engine = line.engine("c7", stops_early=True)
    with pytest.raises(EndsDoNotReproduce, match=r"measured 1\.50 ms, the new end 1\.50 ms \(read\.clat\.mean"):
        line.bisect(engine)
    said = line.notes
    assert said[0] == "no run is stopped early: read.clat.mean is known only when a run has ended"


def test_ends_are_whole_and_the_answer_rests_on_whole_runs(line: Lab) -> None:
    engine = line.search("c7", stops_early=True)
    whole = [line.names[sha] for sha, rule in engine.rules if rule is None]
    early = [line.names[sha] for sha, rule in engine.rules if rule is not None]
    assert whole == ["c0", "c16", "c7", "c6"]
    assert {"c6", "c7"} <= set(early)
    assert len(early) == len(set(early)) == 4
    assert [rule.threshold for _, rule in engine.rules if rule is not None] == [pytest.approx(2_000.0)] * 4
    stopped = [line.names[trial.commit.sha] for trial in line.trials() if trial.stopped_early]
    assert stopped == early


def test_full_runs_are_never_ended(line: Lab) -> None:
    line.settings = replace(BY_GIT, workload=replace(DEFAULTS.workload, full_runs=True))
    engine = line.search("c7", stops_early=True)
    assert {rule for _, rule in engine.rules} == {None}
    assert len(engine.measured) == len(set(engine.measured))


@pytest.mark.parametrize("misleading", ["c8", "c6"])
def test_a_whole_run_wins_over_one_that_was_stopped_and_the_search_goes_on(line: Lab, misleading: str) -> None:
    engine = line.engine("c7")
    engine.stops_early, engine.misleading = True, frozenset({line.shas[misleading]})
    outcome = line.bisect(engine)
    assert line.found(outcome) == "c7"
    notes = line.notes
    assert any(f"a whole run says that {line.shas[misleading][:12]} is " in note for note in notes)
    assert f"# first fixed commit: [{line.shas['c7']}]" in line.log
    assert line.shown(outcome) == ["c7"]


def test_whole_runs_that_stay_weak_are_not_made_for_ever(line: Lab) -> None:
    def busy(request: TrialRequest, trial: Trial) -> Trial:
        weak = request.stop is None and request.commit.sha == line.shas["c7"]
        return replace(trial, runs=tuple(replace(run, contention=BUSY) for run in trial.runs)) if weak else trial

    engine = line.search("c7", stops_early=True, also=busy)
    whole = [line.names[sha] for sha, rule in engine.rules if rule is None]
    assert whole.count("c7") == DEFAULTS.bisect.max_repeats + 1


def test_an_equal_kernel_measured_whole_answers_for_the_culprit(line: Lab) -> None:
    engine = line.search("c7", content={"c7": "same", "c8": "same"}, stops_early=True)
    assert [line.names[sha] for sha, rule in engine.rules if rule is None] == ["c0", "c16", "c8", "c6"]


def test_a_percentile_of_few_ios_is_told_once(line: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    line.settings = replace(BY_GIT, bisect=replace(BY_GIT.bisect, metric="read.clat.p99", threshold="9ms"))
    usual = examples.job
    monkeypatch.setattr(examples, "job", lambda *words: replace(usual(*words), total_ios=312))
    with pytest.raises(EndsDoNotReproduce):
        line.bisect(line.engine("c7"))
    said = [event.text if isinstance(event, Note) else "trial" for event in line.events]
    thin = [text for text in said if "read.clat.p99 of 312 I/Os" in text]
    assert thin == [
        "read.clat.p99 of 312 I/Os of job job0: about 3 of them lie beyond it, which is chance; 10 take 1,000 I/Os"
    ]
