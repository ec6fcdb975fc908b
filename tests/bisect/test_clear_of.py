"""Runs that an answer rests on, stopped once they are clear of their counterpart's whole run, by its logs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.analysis.early_stop import StopRule
from bisector.analysis.verdicts import Judging
from bisector.bisect.stop_rule import rule_alike, rule_clear_of
from bisector.config import options
from bisector.core.figures import EarlyStop, StopReason
from bisector.core.trial import Artifact, Fill, Trial
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.lab import DEFAULTS, Lab
from tests.bisect.test_stop_rule import FAST, OTHER, SLOW, Record
from tests.examples import BUSY, EARLY
from tests.workload.test_job_file import GOOD


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path)


@pytest.fixture
def ends(record: Record) -> tuple[Trial, Trial]:
    return record.end(SLOW, fakes.SLOW_IOPS, (0, 0)), record.end(FAST, fakes.FAST_IOPS, (8, 12))


def rule_of(record: Record, trials: Sequence[Trial], *shas: str) -> StopRule | None:
    judging = Judging(record.settings, tuple(enumerate(trials, 1)), SLOW.sha, FAST.sha)
    return rule_clear_of(judging, record.run_dir, shas)


def test_the_whole_run_of_the_counterpart_comes_along(record: Record, ends: tuple[Trial, Trial]) -> None:
    rule = rule_of(record, ends, FAST.sha)
    assert rule is not None
    assert rule.threshold == pytest.approx(2_000.0)
    assert rule.guard_s == 25.0
    (other,) = rule.counterparts
    assert (other.sha, other.is_better, other.batch_s, len(other.rates)) == (FAST.sha, True, 0.5, 2)
    assert [one[10] for one in other.rates] == [10.0, 10.0]
    assert [one[20] for one in other.rates] == [8_000.0, 10.0]
    slow = rule_of(record, ends, SLOW.sha)
    assert slow is not None
    assert [one.is_better for one in slow.counterparts] == [False]


def test_those_that_have_one_are_taken(record: Record, ends: tuple[Trial, Trial]) -> None:
    other = fakes.trial(OTHER, fakes.SLOW_IOPS, stopped=replace(EARLY, reason=StopReason.NOT_ABOVE, bound=500.0))
    rule = rule_of(record, (*ends, other), OTHER.sha, "9" * 40, SLOW.sha, FAST.sha)
    assert rule is not None
    assert [one.sha for one in rule.counterparts] == [SLOW.sha, FAST.sha]


def short_filled(trial: Trial) -> Trial:
    settled = EarlyStop(StopReason.SETTLED, 20.0, 98.0, 95.0, "full", "cache.filled")
    return replace(trial, runs=(replace(trial.runs[0], stopped_early=settled), trial.runs[1]), fill=Fill.SHORT)


@pytest.mark.parametrize(
    "lacking", ["no logs", "stopped early", "a short fill", "weak", "not measured", "other numbers", "full runs"]
)
def test_without_it_the_run_is_whole(record: Record, ends: tuple[Trial, Trial], lacking: str, tmp_path: Path) -> None:
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
    trials = ends if lacking == "not measured" else (*ends, changed.get(lacking, other))
    assert rule_of(record, trials, OTHER.sha) is None
    record.settings = DEFAULTS
    assert rule_of(record, (*ends, other), OTHER.sha) is not None


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
    assert line.found(line.bisect(engine)) == "c7"
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
    assert line.found(line.bisect(engine)) == "c7"
    found = counterparts(line, engine)
    assert found["changed"] == "c16"
    assert "c6" in found
    whole = {line.names.get(trial.commit.sha) for trial in line.trials() if trial.stopped_early is None}
    assert {"c0", "c16", "c7"} <= whole


def test_the_first_of_a_pair_is_whole(line: Lab) -> None:
    """Of a search in which all that matters was stopped by the line: then the culprit's run is the one to rest on."""
    engine = logging(line, "c1")
    assert line.found(line.bisect(engine)) == "c1"
    # Its parent is the old end, which is whole anyway.
    assert counterparts(line, engine) == {}


def alike_of(record: Record, trials: Sequence[Trial], sha: str) -> StopRule | None:
    judging = Judging(record.settings, tuple(enumerate(trials, 1)), SLOW.sha, FAST.sha)
    return rule_alike(judging, record.run_dir, sha)


def test_an_end_with_a_short_fill_is_held_against_its_own_whole_run(record: Record, ends: tuple[Trial, Trial]) -> None:
    rule = alike_of(record, ends, SLOW.sha)
    assert rule is not None
    assert rule.guard_s == pytest.approx(40 / 3)  # by its own run, and not by when the other end is fast
    assert rule.counterparts == ()
    assert rule.alike is not None
    assert rule.alike.run.sha == SLOW.sha
    assert rule.alike.most == pytest.approx(1.25)
    record.settings = options.load({"workload.full_runs": "true"}, directory=Path("/")).settings
    assert alike_of(record, ends, SLOW.sha) is None
    record.settings = DEFAULTS
    assert alike_of(record, (replace(ends[0], artifacts=()), ends[1]), SLOW.sha) is None
