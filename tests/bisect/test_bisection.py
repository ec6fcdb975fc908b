"""The loop on real git and a bench that answers from a table, by git's strategy."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.events import TrialJudged
from bisector.core.json_document import text
from bisector.core.subject import Mattering
from bisector.core.trial import Fault, FaultKind, Stage
from bisector.core.verdict import State, Verdict
from tests import fakes
from tests.bisect.lab import DEFAULTS, Lab
from tests.docs.json_schema import valid
from tests.git import histories

HANG = Fault(Stage.WORKLOAD, FaultKind.HANG, "fio never ended")


@pytest.mark.parametrize("culprit", ["c1", "c16"])
def test_line(line: Lab, culprit: str) -> None:
    engine = line.engine(culprit)
    assert line.found(line.bisect(engine)) == culprit
    assert engine.controls == []  # an answer that rests on no skip asks no end whether it still works
    assert f"# first fixed commit: [{line.shas[culprit]}]" in line.log


@pytest.mark.parametrize("culprit", ["b2", "m"])
def test_merge_from_an_old_base(tmp_path: Path, culprit: str) -> None:
    lab = Lab(tmp_path, histories.old_base_merge(), "c0", "c5")
    assert lab.found(lab.bisect(lab.engine(culprit))) == culprit


def test_ends_on_two_branches_try_the_merge_base_first(tmp_path: Path) -> None:
    lab = Lab(tmp_path, histories.stable_tags(), "s2", "n2")
    engine = lab.engine("c4")
    assert lab.found(lab.bisect(engine)) == "c4"
    assert lab.names[engine.measured[2]] == "c2"


def test_new_merge_base_is_told_apart(tmp_path: Path) -> None:
    lab = Lab(tmp_path, histories.stable_tags(), "s2", "n2")
    engine = fakes.FakeExecutor(lambda sha: sha != lab.shas["s2"])
    with pytest.raises(EndsDoNotReproduce, match="merge base"):
        lab.bisect(engine)


def test_figures_that_are_no_measurement_are_tried_again_and_never_judged(line: Lab) -> None:
    engine = line.engine("c8", iops={"c4": 0.0})
    assert line.found(line.bisect(engine)) == "c8"
    tries = engine.measured.count(line.shas["c4"])
    assert tries > 1
    shown = [one for one in line.view().trials if one.trial.commit.sha == line.shas["c4"]]
    assert [one.verdict for one in shown] == [Verdict.WEAK] * tries
    assert "not a measurement" in shown[0].why or "did no I/O" in shown[0].why
    assert valid("status", text(line.view()))
    again = line.engine("c8")
    assert line.found(line.bisect(again)) == "c8"
    assert again.measured == []


def test_skips_beside_the_culprit_leave_a_set(line: Lab) -> None:
    engine = line.engine("c8", faults={"c7": fakes.BUILD_ERROR, "c8": fakes.PANIC})
    outcome = line.bisect(engine)
    assert outcome.state is State.NARROWED
    assert [line.names[commit.sha] for commit in outcome.candidates] == ["c9", "c8", "c7"]
    assert {line.names[commit.sha] for commit in outcome.skipped} == {"c7", "c8"}


def test_known_bad_commits_are_never_measured(line: Lab) -> None:
    line.skips = ("c8",)
    engine = line.engine("c3")
    assert line.found(line.bisect(engine)) == "c3"
    assert line.shas["c8"] not in engine.measured


@pytest.mark.parametrize(
    ("fault", "times"), [(fakes.BUILD_ERROR, 1), (fakes.BUILD_TIMEOUT, 2), (fakes.PANIC, 2), (HANG, 2)]
)
def test_compile_error_is_believed_at_once_and_what_a_busy_host_does_is_not(
    line: Lab, fault: Fault, times: int
) -> None:
    engine = line.engine("c3", faults={"c8": fault})
    line.bisect(engine)
    assert engine.measured.count(line.shas["c8"]) == times
    assert [trial.fault for trial in line.trials() if trial.commit.sha == line.shas["c8"]] == [fault] * times


def test_a_reading_that_moves_the_line_turns_earlier_verdicts_round(line: Lab) -> None:
    """Once c12 is read between them, c8 and c16 are no longer on two levels: git has to forget that c8 was old."""
    steps = ((300.0, range(5)), (1_350.0, range(5, 9)), (2_670.0, range(9, 13)), (6_000.0, range(13, 17)))
    iops = {f"c{number}": figure for figure, numbers in steps for number in numbers}
    assert line.found(line.bisect(line.engine("c5", iops=iops))) == "c5"
    c8 = next(e for e in line.events if isinstance(e, TrialJudged) and e.trial.commit.sha == line.shas["c8"])
    assert c8.verdict is Verdict.OLD
    assert f"git bisect fixed {line.shas['c8']}" in line.log
    resumed = line.engine("c5", iops=iops)
    assert line.found(line.bisect(resumed)) == "c5"
    assert not resumed.measured


def test_host_that_stays_contended_makes_a_skip_not_a_verdict(line: Lab) -> None:
    engine = line.engine("c7", busy={"c8": 99})
    assert line.found(line.bisect(engine)) == "c7"
    assert engine.measured.count(line.shas["c8"]) == DEFAULTS.bisect.max_repeats + 1
    assert f"git bisect skip {line.shas['c8']}" in line.log


def test_equal_kernels_are_measured_once(line: Lab) -> None:
    engine = line.engine("c7", content={"c8": "same", "c9": "same", "c16": "same"})
    assert line.found(line.bisect(engine)) == "c7"
    assert [name for name in ("c8", "c9", "c16") if line.shas[name] in engine.measured] == ["c16"]
    reused = [trial.same_kernel_as for trial in line.trials() if trial.same_kernel_as]
    assert set(reused) == {line.shas["c16"]}


@pytest.mark.parametrize("kernel", ["measured", "panics"])
def test_what_is_known_of_a_kernel_holds_for_its_equals(line: Lab, kernel: str) -> None:
    faults = {} if kernel == "measured" else {"c8": fakes.PANIC, "c9": fakes.PANIC}
    engine = line.engine("c7", content={"c8": "same", "c9": "same"}, faults=faults)
    engine.is_new = lambda sha: sha not in {line.shas[f"c{n}"] for n in range(9)}
    outcome = line.bisect(engine)
    assert [name for name in ("c8", "c9") if line.shas[name] in engine.measured] == ["c8"]
    reused = {line.names[t.commit.sha]: line.names[t.same_kernel_as] for t in line.trials() if t.same_kernel_as}
    assert reused == {"c9": "c8"}
    if kernel == "panics":
        # c9 has its parent's kernel, so it is c8 or c10 that made the change.
        assert outcome.state is State.NARROWED
        assert [line.names[commit.sha] for commit in outcome.candidates] == ["c10", "c8"]
        assert outcome.message.startswith("one of 2 commits")
        assert line.shown(outcome) == ["c10", "c8"]
    else:
        assert line.found(outcome) == "c10"


def test_a_host_that_was_too_busy_says_nothing_of_an_equal_kernel(line: Lab) -> None:
    engine = line.engine("c7", content={"c8": "same", "c6": "same"}, busy={"c8": 99})
    line.bisect(engine)
    assert line.shas["c6"] in engine.measured


def test_a_commit_with_its_parents_kernel_is_never_the_answer(line: Lab) -> None:
    line.twins = {"c7": "c6"}
    with pytest.raises(InfraError, match=r"is fixed and has the kernel of its parent .* not fixed") as caught:
        line.bisect(line.engine("c7"))
    assert f"bisector test {line.shas['c6'][:12]}" in caught.value.hint


def test_how_much_can_matter_is_said_and_recorded_once(line: Lab) -> None:
    line.known = Mattering(14_565, frozenset(f"{n:040x}" for n in range(1_012)))
    line.bisect(line.engine("c7"))
    told = line.notes
    assert "14,565 commits, 1,012 can matter to this kernel" in told
    with line._store() as store:
        assert store.mattering() == line.known.shas
    line.events.clear()
    line.known = Mattering(1, frozenset())
    line.bisect(line.engine("c7"))
    assert "14,565 commits, 1,012 can matter to this kernel" in line.notes


TROUBLED: dict[str, Mapping[str, object]] = {"faults": {"c8": fakes.PANIC}, "busy": {"c4": 1}}


def test_killed_and_resumed_nothing_is_measured_twice(line: Lab, tmp_path: Path) -> None:
    whole = Lab(tmp_path / "whole", line.nodes, "c0", "c16")
    undisturbed, engine = whole.engine("c7", **TROUBLED), line.engine("c7", **TROUBLED, kill_at=7)
    assert whole.found(whole.bisect(undisturbed)) == "c7"
    with pytest.raises(fakes.Killed):
        line.bisect(engine)
    engine.kill_at = None
    assert line.found(line.bisect(engine)) == "c7"
    assert engine.measured == undisturbed.measured


def test_paths_limit_what_is_tried(tmp_path: Path) -> None:
    nodes = [
        replace(node, files={"drivers/md/dm.c": node.name}) if node.name in ("c3", "c6", "c9") else node
        for node in histories.linear(12)
    ]
    lab = Lab(tmp_path, nodes, "c0", "c11", paths=("drivers/md",))
    engine = lab.engine("c6")
    assert lab.found(lab.bisect(engine)) == "c6"
    assert {lab.names[sha] for sha in engine.measured[2:]} <= {"c3", "c6", "c9"}
