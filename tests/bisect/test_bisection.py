"""The loop on real git and a bench that answers from a table and, where asked to, misleads, by each strategy."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bisector.config import Settings
from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.events import Note, TrialJudged
from bisector.core.json_document import text
from bisector.core.subject import Kind, Mattering, NotChanged
from bisector.core.trial import Fault, FaultKind, Stage, Trial
from bisector.core.verdict import State, Verdict
from bisector.git.bisect import Bisect
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.lab import BOTH, BY_GIT, DEFAULTS, FAR_IOPS, Lab, kinds, lab_of, tried
from tests.docs.json_schema import valid
from tests.git import histories
from tests.git.histories import Node

HANG = Fault(Stage.WORKLOAD, FaultKind.HANG, "fio never ended")


@BOTH
@pytest.mark.parametrize("culprit", ["c1", "c16"])
def test_line(line: Lab, settings: Settings, culprit: str) -> None:
    line.settings = settings
    engine = line.search(culprit)
    assert engine.controls == []  # an answer that rests on no skip asks no end whether it still works
    assert engine.builds == []  # a host that is alone builds what it measures
    assert f"# first fixed commit: [{line.shas[culprit]}]" in line.log
    if settings is DEFAULTS:
        # Itself, its parent, and an end without it, or with it, have been measured.
        assert {f"c{int(culprit[1:]) - 1}", culprit} <= set(tried(line))
        assert (Kind.REVERTED, culprit) in kinds(line)
        assert len(line.trials()) <= 12


@BOTH
def test_ends_on_two_branches_try_the_merge_base_first(tmp_path: Path, settings: Settings) -> None:
    lab = lab_of(tmp_path, histories.stable_tags(), "s2", "n2", settings=settings)
    lab.search("c4", fast_iops=FAR_IOPS)
    assert tried(lab)[2] == "c2"


@BOTH
def test_new_merge_base_is_told_apart(tmp_path: Path, settings: Settings) -> None:
    lab = lab_of(tmp_path, histories.stable_tags(), "s2", "n2", settings=settings)
    engine = fakes.FakeExecutor(lambda sha: sha != lab.shas["s2"])
    with pytest.raises(EndsDoNotReproduce, match="merge base"):
        lab.bisect(engine)


TROUBLED: tuple[tuple[Settings, Mapping[str, object]], ...] = (
    (BY_GIT, {"faults": {"c8": fakes.PANIC}, "busy": {"c4": 1}}),
    (DEFAULTS, {"faults": {"c4": fakes.PANIC}, "busy": {"c6": 1}, "wrong": {"c5": 1}}),
)


@pytest.mark.parametrize(("settings", "trouble"), TROUBLED, ids=["git", "bayes"])
def test_killed_and_resumed_nothing_is_measured_twice(
    tmp_path: Path, settings: Settings, trouble: Mapping[str, object]
) -> None:
    """With a panic, a busy host and, where the search bears it, a run that misleads on the way."""
    whole, lab = (lab_of(tmp_path / name, histories.linear(17), "c0", "c16", settings=settings) for name in "ab")
    undisturbed = whole.engine("c5", **trouble)
    expected = whole.bisect(undisturbed)
    engine = lab.killed(lab.engine("c5", **trouble, kill_at=7))
    assert lab.bisect(engine) == expected
    assert lab.found(expected) == "c5"
    assert engine.measured == undisturbed.measured
    assert [trial.subject for trial in lab.trials()] == [trial.subject for trial in whole.trials()]
    assert lab.log == whole.log


# The strategy "git"


@pytest.mark.parametrize("culprit", ["b2", "m"])
def test_merge_from_an_old_base(tmp_path: Path, culprit: str) -> None:
    lab = Lab(tmp_path, histories.old_base_merge(), "c0", "c5")
    lab.search(culprit)


def test_figures_that_are_no_measurement_are_tried_again_and_never_judged(line: Lab) -> None:
    engine = line.search("c8", iops={"c4": 0.0})
    tries = engine.measured.count(line.shas["c4"])
    assert tries > 1
    shown = [one for one in line.view().trials if one.trial.commit.sha == line.shas["c4"]]
    assert [one.verdict for one in shown] == [Verdict.WEAK] * tries
    assert "not a measurement" in shown[0].why or "did no I/O" in shown[0].why
    assert valid("status", text(line.view()))
    again = line.search("c8")
    assert again.measured == []


def test_skips_beside_the_culprit_leave_a_set(line: Lab) -> None:
    engine = line.engine("c8", faults={"c7": fakes.BUILD_ERROR, "c8": fakes.PANIC})
    outcome = line.bisect(engine)
    assert outcome.state is State.NARROWED
    assert [line.names[commit.sha] for commit in outcome.candidates] == ["c9", "c8", "c7"]
    assert {line.names[commit.sha] for commit in outcome.skipped} == {"c7", "c8"}


def test_known_bad_commits_are_never_measured(line: Lab) -> None:
    line.skips = ("c8",)
    engine = line.search("c3")
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
    line.search("c5", iops=iops)
    c8 = next(e for e in line.events if isinstance(e, TrialJudged) and e.trial.commit.sha == line.shas["c8"])
    assert c8.verdict is Verdict.OLD
    assert f"git bisect fixed {line.shas['c8']}" in line.log
    resumed = line.search("c5", iops=iops)
    assert not resumed.measured


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
    assert line.facts(Mattering) == (line.known,)
    line.events.clear()
    line.known = Mattering(1, frozenset())
    line.bisect(line.engine("c7"))
    assert "14,565 commits, 1,012 can matter to this kernel" in line.notes


def test_paths_limit_what_is_tried(tmp_path: Path) -> None:
    nodes = [
        replace(node, files={"drivers/md/dm.c": node.name}) if node.name in ("c3", "c6", "c9") else node
        for node in histories.linear(12)
    ]
    lab = Lab(tmp_path, nodes, "c0", "c11", paths=("drivers/md",))
    engine = lab.search("c6")
    assert {lab.names[sha] for sha in engine.measured[2:]} <= {"c3", "c6", "c9"}


# The strategy "bayes", on a line


@pytest.mark.parametrize("times", [1, 99], ids=["once", "always"])
def test_a_commit_that_misleads_is_outvoted(by_bayes: Lab, times: int) -> None:
    by_bayes.search("c7", wrong={"c8": times})
    assert f"# first fixed commit: [{by_bayes.shas['c7']}]" in by_bayes.log
    assert by_bayes.belief().contradictions >= 1


def test_an_untestable_culprit_is_known_by_taking_it_out(by_bayes: Lab) -> None:
    outcome = by_bayes.bisect(by_bayes.engine("c8", faults={"c7": fakes.BUILD_ERROR, "c8": fakes.PANIC}))
    assert [by_bayes.names[commit.sha] for commit in outcome.candidates][:1] == ["c8"]
    assert (Kind.REVERTED, "c8") in kinds(by_bayes)
    belief = by_bayes.belief()
    assert belief.best.probability > 0.95
    assert Kind.REVERTED in belief.confirmed


def test_untestable_commits_that_cannot_be_undone_are_git_skips(by_bayes: Lab) -> None:
    faults = {"c7": fakes.BUILD_ERROR, "c8": fakes.PANIC}
    engine = by_bayes.engine("c8", faults=faults, changed_fault=fakes.PANIC)
    outcome = by_bayes.bisect(engine)
    assert outcome.state is State.NARROWED
    names = [by_bayes.names[commit.sha] for commit in outcome.candidates]
    assert set(names[:3]) == {"c7", "c8", "c9"}
    assert by_bayes.shown(outcome) == names
    assert {by_bayes.names[commit.sha] for commit in outcome.skipped} == {"c7", "c8"}
    for name in ("c7", "c8"):
        assert f"git bisect skip {by_bayes.shas[name]}" in by_bayes.log
    assert by_bayes.log.count("# possible first fixed commit") == 3
    assert len(set(kinds(by_bayes))) <= 6  # what cannot be had costs a build each time


def test_kernels_that_are_kept_are_measured_first_where_they_tell_much(by_bayes: Lab) -> None:
    """Builds take 47 s, runs 84 s."""
    by_bayes.kept = ("c6", "c15")
    by_bayes.search("c11", fast_iops=FAR_IOPS)
    assert tried(by_bayes)[2] == "c6"
    assert "c15" not in tried(by_bayes)
    assert tried(by_bayes).count("c0") == 1  # ends that lie far apart are read once


def test_an_untestable_parent_does_not_keep_git_from_naming_what_is_sure(by_bayes: Lab) -> None:
    by_bayes.skips = ("c6",)
    engine = by_bayes.search("c7")
    assert by_bayes.shas["c6"] not in engine.measured
    assert {(Kind.REVERTED, "c7"), (Kind.REVERTED, "c6")} <= set(kinds(by_bayes))
    assert f"# first fixed commit: [{by_bayes.shas['c7']}]" in by_bayes.log


def test_a_whole_run_on_a_busy_host_is_repeated_whole(by_bayes: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = by_bayes.far_engine("c7", stops_early=True)
    real, sha = engine._measured, by_bayes.shas["c7"]
    spoiled: list[int] = []

    def measured(request: TrialRequest) -> Trial:
        if request.commit.sha == sha and request.stop is None and not spoiled:
            spoiled.append(len([one for one, _ in engine.rules if one == sha]))
            engine.busy = {sha: engine.attempts[sha] + 1}
        return real(request)

    monkeypatch.setattr(engine, "_measured", measured)
    assert by_bayes.finds(engine) == "c7"
    rules = [rule for one, rule in engine.rules if one == sha]
    assert rules[spoiled[0] :][:2] == [None, None]


def test_equal_kernels_cannot_be_apart(by_bayes: Lab) -> None:
    content = {"c6": "x", "c7": "x", "c8": "x"}
    by_bayes.search("c6", content=content)
    assert by_bayes.belief().contradictions == 0


def test_an_equal_of_the_old_end_is_old(by_bayes: Lab) -> None:
    engine = by_bayes.search("c9", content={f"c{n}": "old" for n in range(9)})
    measured = [by_bayes.names.get(sha, "") for sha in engine.measured]
    assert set(measured) & {f"c{n}" for n in range(1, 8)} == set()


def test_a_parent_with_the_same_sources_is_looked_at_before_anything_is_named(by_bayes: Lab) -> None:
    by_bayes.twins = {"c7": "c2"}  # were c2 a parent of c7
    by_bayes.search("c7")  # it was not the same after all
    assert tried(by_bayes)[-1] == "c2"


def test_two_changes_are_not_named_one(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, histories.linear(9), "c0", "c8")
    engine = lab.engine("c8", culprit="none")
    engine.is_new = fakes.among(lab.shas[f"c{n}"] for n in (2, 3, 5, 6, 8))
    outcome = lab.bisect(engine)
    assert outcome.state is State.NARROWED
    if not lab.belief().one_change:
        assert outcome.message.startswith("not one change")
    assert lab.view().first_fixed is None


def test_what_lies_between_the_levels_does_not_have_the_change_yet(by_bayes: Lab) -> None:
    """As in the recorded bisect of 2017, where the fix's parent, alone of all, read 6,120 IOPS."""
    iops = {f"c{number}": 2_000.0 for number in (5, 6, 7, 8)}
    line_up = {f"c{number}": 300.0 for number in range(5)}
    engine = by_bayes.engine("c9", iops=iops | line_up)
    engine.slow_iops, engine.fast_iops = 2_000.0, 7_000.0
    assert by_bayes.finds(engine) == "c9"


def test_a_belief_that_turns_is_told_to_git_anew(by_bayes: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []
    start = Bisect.start

    def counting(self: Bisect, *args: Any) -> object:
        starts.append(args)
        return start(self, *args)

    monkeypatch.setattr(Bisect, "start", counting)
    by_bayes.search("c3", wrong={"c8": 1})
    assert len(starts) > 1
    assert not re.search(rf"^git bisect broken {by_bayes.shas['c8']}", by_bayes.log, re.MULTILINE)


def test_runs_may_end_early_but_for_those_that_the_answer_rests_on(by_bayes: Lab) -> None:
    engine = by_bayes.search("c7", stops_early=True)
    runs = [(by_bayes.names.get(sha, "changed"), rule is None) for sha, rule in engine.rules]
    first = dict(reversed(runs))
    assert all(first[name] for name in ("c0", "c16", "changed"))  # what is read of them later is their side only
    assert {("c6", True), ("c7", True), ("c8", False)} <= set(runs)


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
    engine = lab.engine("c7", slow_iops=speeds[0], fast_iops=speeds[1], stops_early=True)
    engine.also = lambda _, made: fakes.waiting(made, 16e9)
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


# On histories that are no line: merges, paths, commits that do not revert


def test_a_merge_cannot_be_taken_out_and_is_sure_when_its_neighbours_are_not_it(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, histories.old_base_merge(), "c0", "c5")
    outcome = lab.bisect(lab.engine("m"))
    assert lab.found(outcome) == "m"
    assert "m" not in {name for _, name in kinds(lab)}
    assert {"c3", "b3", "m"} <= set(tried(lab))
    assert len(tried(lab)) > len(set(tried(lab)))  # one of them twice, and not said to be its own equal
    assert not [trial for trial in lab.trials() if trial.same_kernel_as]
    assert lab.belief(outcome).confirmed == ()


def test_first_parents_merge_stands_for_what_it_brought(tmp_path: Path) -> None:
    chosen = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, first_parent=True))
    lab = lab_of(tmp_path, histories.old_base_merge(), "c0", "c5", settings=chosen)
    engine = lab.engine("b2", culprit="m")
    assert lab.finds(engine) == "m"
    assert not {"b1", "b2", "b3"} & set(tried(lab))
    assert set(kinds(lab)) == {(Kind.REVERTED, "m")}


def conflicting(*names: str) -> list[Node]:
    """A line whose every commit changes one line of one file, so that none of ``names`` reverts or picks."""
    nodes = []
    for node in histories.linear(12):
        text = f"{node.name}\n"
        files = {"drivers/md/dm.c": text} if node.name in names else {}
        nodes.append(replace(node, files=files) if files else node)
    return nodes


def test_what_does_not_revert_is_picked_and_nobodys_checkout_or_references_are_touched(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, conflicting("c6", "c8"), "c0", "c11")
    git = partial(histories.git, tmp_path / "linux")
    git("reset", "-q", "--hard", "main")
    before = git("for-each-ref"), git("status", "--porcelain", "-b")
    lab.search("c6")
    assert kinds(lab) == [(Kind.PICKED, "c6")]
    (fact,) = lab.facts(NotChanged)
    assert (fact.kind, lab.names[fact.sha], lab.names[fact.end_sha]) == (Kind.REVERTED, "c6", "c11")
    assert (git("for-each-ref"), git("status", "--porcelain", "-b")) == before


def test_what_does_neither_is_likely_and_not_sure(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, conflicting(*(f"c{n}" for n in range(12))), "c0", "c11")
    outcome = lab.bisect(lab.engine("c6"))
    assert outcome.state is State.NARROWED
    assert lab.names[outcome.candidates[0].sha] == "c6"
    assert not [name for _, name in kinds(lab) if name == "c6"]
    of_it = {one.kind for one in lab.facts(NotChanged) if one.sha == lab.shas["c6"]}
    assert of_it == {Kind.REVERTED, Kind.PICKED}


def test_what_does_neither_is_sure_when_the_next_one_is_not_it(tmp_path: Path) -> None:
    """One of its neighbours, which it might have misled for, is ruled out by taking that out."""
    lab = lab_of(tmp_path, conflicting("c3", "c6", "c8"), "c0", "c11")
    lab.search("c6")
    assert kinds(lab) in ([(Kind.REVERTED, "c5")], [(Kind.REVERTED, "c7")])


def test_a_change_outside_the_paths_is_said_to_be_there(tmp_path: Path) -> None:
    nodes = [
        replace(node, files={f"drivers/md/{node.name}.c": node.name}) if node.name in ("c3", "c6") else node
        for node in histories.linear(12)
    ]
    lab = lab_of(tmp_path, nodes, "c0", "c11", paths=("drivers/md",))
    outcome = lab.bisect(lab.engine("c8"))
    assert outcome.state is State.NARROWED
    assert outcome.message == "no commit that touches drivers/md made the change"
    assert {lab.names[commit.sha] for commit in outcome.candidates} == {f"c{n}" for n in range(7, 12)}


def test_what_cannot_matter_is_hardly_looked_at(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, histories.linear(40), "c0", "c39")
    lab.known = Mattering(39, frozenset(lab.shas[name] for name in ("c5", "c12", "c20", "c33")))
    lab.search("c12")
    assert len(lab.trials()) <= 8


def test_a_wrong_suspicion_costs_little_and_is_told(tmp_path: Path) -> None:
    nodes = [
        replace(node, files={f"drivers/md/{node.name}.c": node.name}) if node.name in ("c3", "c11") else node
        for node in histories.linear(17)
    ]
    lab = lab_of(tmp_path, nodes, "c0", "c16")
    lab.search("c7")
    without = lab.belief().without_suspects
    assert without is not None
    assert lab.names[without.commit.sha] == "c7"
