"""The loop under the posterior on histories that are no line: merges, branches, paths, commits that do not revert."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bisector.core.errors import EndsDoNotReproduce
from bisector.core.subject import Kind, Mattering, NotChanged
from bisector.core.verdict import State
from tests import fakes
from tests.bisect.lab import DEFAULTS, kinds, lab_of, tried
from tests.git import histories
from tests.git.histories import Node


def test_a_merge_cannot_be_taken_out_and_is_sure_when_its_neighbours_are_not_it(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, histories.old_base_merge(), "c0", "c5")
    outcome = lab.bisect(lab.engine("m"))
    assert lab.found(outcome) == "m"
    assert "m" not in {name for _, name in kinds(lab)}
    assert {"c3", "b3", "m"} <= set(tried(lab))
    assert len(tried(lab)) > len(set(tried(lab)))  # one of them twice, and not said to be its own equal
    assert not [trial for trial in lab.trials() if trial.same_kernel_as]
    view = lab.view(outcome)
    assert view.belief is not None
    assert view.belief.confirmed == ()


def test_first_parents_merge_stands_for_what_it_brought(tmp_path: Path) -> None:
    chosen = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, first_parent=True))
    lab = lab_of(tmp_path, histories.old_base_merge(), "c0", "c5", settings=chosen)
    engine = lab.engine("b2", culprit="m")
    assert lab.found(lab.bisect(engine)) == "m"
    assert not {"b1", "b2", "b3"} & set(tried(lab))
    assert set(kinds(lab)) == {(Kind.REVERTED, "m")}


def test_ends_on_two_branches_try_the_merge_base_first(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, histories.stable_tags(), "s2", "n2")
    assert lab.found(lab.bisect(lab.far_engine("c4"))) == "c4"
    assert tried(lab)[2] == "c2"


def test_new_merge_base_is_told_apart(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, histories.stable_tags(), "s2", "n2")
    engine = fakes.FakeExecutor(lambda sha: sha != lab.shas["s2"])
    with pytest.raises(EndsDoNotReproduce, match="merge base"):
        lab.bisect(engine)


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
    assert lab.found(lab.bisect(lab.engine("c6"))) == "c6"
    assert kinds(lab) == [(Kind.PICKED, "c6")]
    with lab._store() as store:
        ((kind, sha, end),) = [(one.kind, one.sha, one.end_sha) for one in store.facts(NotChanged)]
    assert (kind, lab.names[sha], lab.names[end]) == (Kind.REVERTED, "c6", "c11")
    assert (git("for-each-ref"), git("status", "--porcelain", "-b")) == before


def test_what_does_neither_is_likely_and_not_sure(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, conflicting(*(f"c{n}" for n in range(12))), "c0", "c11")
    outcome = lab.bisect(lab.engine("c6"))
    assert outcome.state is State.NARROWED
    assert lab.names[outcome.candidates[0].sha] == "c6"
    assert not [name for _, name in kinds(lab) if name == "c6"]
    with lab._store() as store:
        of_it = {one.kind for one in store.facts(NotChanged) if one.sha == lab.shas["c6"]}
    assert of_it == {Kind.REVERTED, Kind.PICKED}


def test_what_does_neither_is_sure_when_the_next_one_is_not_it(tmp_path: Path) -> None:
    """One of its neighbours, which it might have misled for, is ruled out by taking that out."""
    lab = lab_of(tmp_path, conflicting("c3", "c6", "c8"), "c0", "c11")
    assert lab.found(lab.bisect(lab.engine("c6"))) == "c6"
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
    engine = lab.engine("c12")
    assert lab.found(lab.bisect(engine)) == "c12"
    assert len(lab.trials()) <= 8


def test_a_wrong_suspicion_costs_little_and_is_told(tmp_path: Path) -> None:
    nodes = [
        replace(node, files={f"drivers/md/{node.name}.c": node.name}) if node.name in ("c3", "c11") else node
        for node in histories.linear(17)
    ]
    lab = lab_of(tmp_path, nodes, "c0", "c16")
    assert lab.found(lab.bisect(lab.engine("c7"))) == "c7"
    view = lab.view()
    assert view.belief is not None
    without = view.belief.without_suspects
    assert without is not None
    assert lab.names[without.commit.sha] == "c7"
