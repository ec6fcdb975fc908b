"""The loop under the posterior on a line: real git, a bench that answers from a table and, where asked to, misleads."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bisector.core.events import Note
from bisector.core.subject import Kind
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.git.bisect import Bisect
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.lab import DEFAULTS, Lab, kinds, lab_of, tried
from tests.git import histories


@pytest.fixture
def line(tmp_path: Path) -> Lab:
    return lab_of(tmp_path, histories.linear(17), "c0", "c16")


@pytest.mark.parametrize("culprit", ["c1", "c16"])
def test_line(line: Lab, culprit: str) -> None:
    engine = line.engine(culprit)
    outcome = line.bisect(engine)
    assert line.found(outcome) == culprit
    assert engine.builds == []  # a host that is alone builds what it measures
    assert outcome.message.startswith(f"{line.shas[culprit][:12]} is the first fixed commit: {culprit} (")
    assert f"# first fixed commit: [{line.shas[culprit]}]" in line.log
    # Itself, its parent, and an end without it, or with it, have been measured.
    assert {f"c{int(culprit[1:]) - 1}", culprit} <= set(tried(line))
    assert (Kind.REVERTED, culprit) in kinds(line)
    assert len(line.trials()) <= 12


@pytest.mark.parametrize("times", [1, 99], ids=["once", "always"])
def test_a_commit_that_misleads_is_outvoted(line: Lab, times: int) -> None:
    assert line.found(line.bisect(line.engine("c7", wrong={"c8": times}))) == "c7"
    assert f"# first fixed commit: [{line.shas['c7']}]" in line.log
    view = line.view()
    assert view.belief is not None
    assert view.belief.contradictions >= 1


def test_an_untestable_culprit_is_known_by_taking_it_out(line: Lab) -> None:
    outcome = line.bisect(line.engine("c8", faults={"c7": fakes.BUILD_ERROR, "c8": fakes.PANIC}))
    assert [line.names[commit.sha] for commit in outcome.candidates][:1] == ["c8"]
    assert (Kind.REVERTED, "c8") in kinds(line)
    view = line.view()
    assert view.belief is not None
    assert view.belief.best.probability > 0.95
    assert Kind.REVERTED in view.belief.confirmed


def test_untestable_commits_that_cannot_be_undone_are_git_skips(line: Lab) -> None:
    faults = {"c7": fakes.BUILD_ERROR, "c8": fakes.PANIC}
    engine = line.engine("c8", faults=faults, changed_fault=fakes.PANIC)
    outcome = line.bisect(engine)
    assert outcome.state is State.NARROWED
    names = [line.names[commit.sha] for commit in outcome.candidates]
    assert set(names[:3]) == {"c7", "c8", "c9"}
    assert line.shown(outcome) == names
    assert {line.names[commit.sha] for commit in outcome.skipped} == {"c7", "c8"}
    for name in ("c7", "c8"):
        assert f"git bisect skip {line.shas[name]}" in line.log
    assert line.log.count("# possible first fixed commit") == 3
    assert len(set(kinds(line))) <= 6  # what cannot be had costs a build each time


def test_kernels_that_are_kept_are_measured_first_where_they_tell_much(line: Lab) -> None:
    """Builds take 47 s, runs 84 s."""
    line.kept = ("c6", "c15")
    assert line.found(line.bisect(line.far_engine("c11"))) == "c11"
    assert tried(line)[2] == "c6"
    assert "c15" not in tried(line)
    assert tried(line).count("c0") == 1  # ends that lie far apart are read once


def test_an_untestable_parent_does_not_keep_git_from_naming_what_is_sure(line: Lab) -> None:
    line.skips = ("c6",)
    engine = line.engine("c7")
    assert line.found(line.bisect(engine)) == "c7"
    assert line.shas["c6"] not in engine.measured
    assert {(Kind.REVERTED, "c7"), (Kind.REVERTED, "c6")} <= set(kinds(line))
    assert f"# first fixed commit: [{line.shas['c7']}]" in line.log


def test_a_whole_run_on_a_busy_host_is_repeated_whole(line: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = line.far_engine("c7", stops_early=True)
    real, sha = engine._measured, line.shas["c7"]
    spoiled: list[int] = []

    def measured(request: TrialRequest) -> Trial:
        if request.commit.sha == sha and request.stop is None and not spoiled:
            spoiled.append(len([one for one, _ in engine.rules if one == sha]))
            engine.busy = {sha: engine.attempts[sha] + 1}
        return real(request)

    monkeypatch.setattr(engine, "_measured", measured)
    assert line.found(line.bisect(engine)) == "c7"
    rules = [rule for one, rule in engine.rules if one == sha]
    assert rules[spoiled[0] :][:2] == [None, None]


def test_equal_kernels_are_measured_once_and_cannot_be_apart(line: Lab) -> None:
    content = {"c6": "x", "c7": "x", "c8": "x"}
    engine = line.engine("c6", content=content)
    assert line.found(line.bisect(engine)) == "c6"
    view = line.view()
    assert view.belief is not None
    assert view.belief.contradictions == 0


def test_an_equal_of_the_old_end_is_old(line: Lab) -> None:
    engine = line.engine("c9", content={f"c{n}": "old" for n in range(9)})
    assert line.found(line.bisect(engine)) == "c9"
    measured = [line.names.get(sha, "") for sha in engine.measured]
    assert set(measured) & {f"c{n}" for n in range(1, 8)} == set()


def test_a_parent_with_the_same_sources_is_looked_at_before_anything_is_named(line: Lab) -> None:
    line.twins = {"c7": "c2"}  # were c2 a parent of c7
    engine = line.engine("c7")
    assert line.found(line.bisect(engine)) == "c7"  # it was not the same after all
    assert tried(line)[-1] == "c2"


def test_two_changes_are_not_named_one(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, histories.linear(9), "c0", "c8")
    engine = lab.engine("c8", culprit="none")
    engine.is_new = fakes.among(lab.shas[f"c{n}"] for n in (2, 3, 5, 6, 8))
    outcome = lab.bisect(engine)
    assert outcome.state is State.NARROWED
    view = lab.view()
    assert view.belief is not None
    if not view.belief.one_change:
        assert outcome.message.startswith("not one change")
    assert view.first_fixed is None


def test_what_lies_between_the_levels_does_not_have_the_change_yet(line: Lab) -> None:
    """As in the recorded bisect of 2017, where the fix's parent, alone of all, read 6,120 IOPS."""
    iops = {f"c{number}": 2_000.0 for number in (5, 6, 7, 8)}
    line_up = {f"c{number}": 300.0 for number in range(5)}
    engine = line.engine("c9", iops=iops | line_up)
    engine.slow_iops, engine.fast_iops = 2_000.0, 7_000.0
    assert line.found(line.bisect(engine)) == "c9"


def test_a_belief_that_turns_is_told_to_git_anew(line: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []
    start = Bisect.start

    def counting(self: Bisect, *args: Any) -> object:
        starts.append(args)
        return start(self, *args)

    monkeypatch.setattr(Bisect, "start", counting)
    engine = line.engine("c3", wrong={"c8": 1})
    assert line.found(line.bisect(engine)) == "c3"
    assert len(starts) > 1
    assert not re.search(rf"^git bisect broken {line.shas['c8']}", line.log, re.MULTILINE)


def test_runs_may_end_early_but_for_those_that_the_answer_rests_on(line: Lab) -> None:
    engine = line.engine("c7", stops_early=True)
    assert line.found(line.bisect(engine)) == "c7"
    runs = [(line.names.get(sha, "changed"), rule is None) for sha, rule in engine.rules]
    first = dict(reversed(runs))
    assert all(first[name] for name in ("c0", "c16", "changed"))  # what is read of them later is their side only
    assert {("c6", True), ("c7", True), ("c8", False)} <= set(runs)


def test_killed_and_resumed_nothing_is_measured_twice(tmp_path: Path) -> None:
    """With a panic, a busy host and a run that misleads on the way."""
    whole, lab = (lab_of(tmp_path / name, histories.linear(9), "c0", "c8") for name in ("whole", "killed"))
    undisturbed, engine = (
        one.engine("c5", faults={"c4": fakes.PANIC}, busy={"c6": 1}, wrong={"c5": 1}) for one in (whole, lab)
    )
    expected = whole.bisect(undisturbed)
    engine.kill_at = 7
    with pytest.raises(fakes.Killed):
        lab.bisect(engine)
    engine.kill_at = None
    assert lab.bisect(engine) == expected
    assert engine.measured == undisturbed.measured
    assert [trial.subject for trial in lab.trials()] == [trial.subject for trial in whole.trials()]
    assert lab.log == whole.log


@dataclass
class Timed(fakes.FakeExecutor):
    """An executor whose jobs take as long for each I/O as their IOPS at a depth of 16 make it."""

    def measure(self, request: TrialRequest) -> Trial:
        trial = super().measure(request)
        return replace(
            trial,
            runs=tuple(
                replace(run, jobs=tuple(replace(job, clat_mean_ns=16e9 / job.iops_mean) for job in run.jobs))
                for run in trial.runs
            ),
        )


@pytest.mark.parametrize(
    ("metric", "over", "values", "turned"),
    [
        ("read.clat.mean", "worst", ("16.0 ms", "2.00 ms"), False),
        ("read.bw", "sum", ("35.2 MiB/s", "62.5 MiB/s"), True),
        ("read.iops", "job0", ("1,000 IOPS", "8,000 IOPS"), False),
    ],
)
def test_any_metric_is_bisected_in_either_direction_by_the_same_code(
    tmp_path: Path, metric: str, over: str, values: tuple[str, str], turned: bool
) -> None:
    chosen = replace(DEFAULTS.bisect, metric=metric, over=over)
    lab = lab_of(tmp_path, histories.linear(12), "c0", "c11", settings=replace(DEFAULTS, bisect=chosen))
    speeds = (8_000.0, fakes.SLOW_IOPS) if turned else (fakes.SLOW_IOPS, 8_000.0)
    engine = lab.bench(Timed, "c7", slow_iops=speeds[0], fast_iops=speeds[1], stops_early=True)
    outcome = lab.bisect(engine)
    assert lab.found(outcome) == "c7"
    assert f"is the first {'bad' if turned else 'fixed'} commit" in outcome.message
    said = next(event.text for event in lab.events if isinstance(event, Note) and "threshold" in event.text)
    first, last = reversed(values) if turned else values
    assert f"{metric} " in said
    assert f"from {first} to {last}" in said
    rules = [rule for _, rule in engine.rules if rule is not None]
    assert bool(rules) is (metric != "read.clat.mean")
    assert all((rule.objective.metric, rule.objective.over) == (metric, over) for rule in rules)
