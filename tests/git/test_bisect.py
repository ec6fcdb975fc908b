import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bisector.core.errors import UserError
from bisector.core.verdict import SideWords, Verdict
from bisector.git.bisect import (
    Bisect,
    CommitToTry,
    Contradiction,
    FirstNewCommit,
    MergeBaseIsNew,
    OnlySkippedLeft,
    OutsidePaths,
    check_terms,
)
from bisector.git.ranges import Range
from tests.git.checks import assert_git_agrees, footprint
from tests.git.conftest import Make
from tests.git.histories import Node, criss_cross, git, linear, old_base_merge, stable_tags
from tests.git.searches import NEW, OLD, SKIP, Begin


def test_line(begin: Begin) -> None:
    nodes = linear(12)
    search = begin(nodes, "c0", "c11")
    first = search.bisect.next()
    assert isinstance(first, CommitToTry)
    assert (first.candidates_left, first.steps_left, first.is_merge_base) == (11, 4, False)
    found = search.to("c7", nodes)
    assert isinstance(found, FirstNewCommit)
    assert found.commit.subject == "c7"
    assert len(search.tried) <= 4
    assert search.bisect.candidates() == (search.shas["c7"],)


@pytest.mark.parametrize(
    ("history", "ends", "how", "told"),
    [
        (old_base_merge, ("c1", "c5"), {}, ("b2", "b2", "")),
        (old_base_merge, ("c1", "c5"), {"first_parent": True}, ("b2", "m", "b1 b2 b3")),
        (stable_tags, ("s2", "n2"), {}, ("c4", "c4", "")),
        (stable_tags, ("s2", "n2"), {"skips": ("c2",)}, ("c5", "c5", "c2")),
        (criss_cross, ("p", "q"), {}, ("y", "y", "")),
        (partial(linear, 9), ("c2", "c8"), {"skips": ("c0", "c2", "c4", "c5", "c8")}, ("c7", "c7", "c4 c5")),
    ],
)
def test_history_that_is_not_a_line(
    begin: Begin,
    history: Callable[[], tuple[Node, ...]],
    ends: tuple[str, str],
    how: dict[str, Any],
    told: tuple[str, str, str],
) -> None:
    """A merge base is tried first, and so is each of two; what is skipped or beside the first parents is not tried."""
    nodes, (culprit, found, not_tried) = history(), told
    search = begin(nodes, *ends, **how)
    bases = {stable_tags: {"c2"}, criss_cross: {"a", "b"}}.get(history, set()) - set(how.get("skips", ()))
    step = search.to(culprit, nodes)
    assert isinstance(step, FirstNewCommit)
    assert step.commit.subject == found
    assert set(search.tried[: len(bases)]) == bases
    assert not set(not_tried.split()) & set(search.tried)


def test_log_is_gits_own_and_can_be_replayed(begin: Begin, tmp_path: Path) -> None:
    nodes = linear(9)
    search = begin(nodes, "c0", "c8", terms=SideWords("slow", "fast"))
    search.to("c7", nodes, "c4")
    log = search.bisect.log()
    assert log.splitlines()[-1] == f"# first fast commit: [{search.shas['c7']}] c7"
    home = next((tmp_path / "run/worktrees").iterdir())
    assert log.rstrip() == git(home, "bisect", "log")
    (tmp_path / "log").write_text(log)
    git(tmp_path, "clone", "-q", str(search.repository.top), "again")
    said = git(tmp_path / "again", "bisect", "replay", str(tmp_path / "log"))
    assert f"{search.shas['c7']} is the first fast commit" in said


def test_the_users_own_bisection_goes_on(begin: Begin, make: Make) -> None:
    nodes = linear(9)
    search = begin(nodes, "c0", "c8")
    top = search.repository.top
    git(top, "bisect", "start", "main~1", "main~7")
    before = footprint(search.repository), git(top, "bisect", "log")
    assert isinstance(search.to("c3", nodes), FirstNewCommit)
    with search.bisect:
        pass
    assert (footprint(search.repository), git(top, "bisect", "log")) != before  # our worktree was listed
    git(top, "bisect", "bad", "main~2")
    assert "c6" in git(top, "bisect", "log")


def test_nothing_is_left_in_the_repository(make: Make, tmp_path: Path) -> None:
    repository, names = make(linear(9), checkout=True)
    git(repository.top, "pack-refs", "--all")  # git makes an empty packed-refs for the sake of its lock
    before = footprint(repository)
    wanted = Range(repository.resolve(names["c0"]), repository.resolve(names["c8"]))
    with Bisect(repository, tmp_path / "run", wanted, SideWords()) as bisect:
        bisect.start()
        assert footprint(repository) != before
        bisect.tell(names["c4"], OLD)
        assert footprint(repository)[0] == before[0]  # refs/bisect is the worktree's own
    assert footprint(repository) == before
    assert not (tmp_path / "run/worktrees").exists()


def test_path_limit_that_leaves_the_culprit_out(begin: Begin) -> None:
    nodes = linear(9)
    step = begin(nodes, "c0", "c8", "files/c/3", "files/c/6").to("c7", nodes)
    assert isinstance(step, OutsidePaths)
    assert {commit.subject for commit in step.candidates} == {"c6", "c7", "c8"}


def test_path_with_odd_characters_survives_the_replay(begin: Begin) -> None:
    nodes = (*linear(3), Node("odd", ("c2",), files={"it's a $(path)": "\n"}), Node("end", ("odd",)))
    search = begin(nodes, "c0", "end", "it's a $(path)")
    search.bisect.start(told=[(search.shas["odd"], NEW)])
    step = search.bisect.next()
    assert isinstance(step, FirstNewCommit)
    assert step.commit.subject == "odd"
    assert_git_agrees(search.bisect, step)


def test_only_skipped_left(begin: Begin) -> None:
    nodes = linear(9)
    search = begin(nodes, "c0", "c8")
    step = search.to("c5", nodes, "c4", "c5")
    assert isinstance(step, OnlySkippedLeft)
    assert {commit.subject for commit in step.candidates} == {"c4", "c5", "c6"}
    assert {commit.subject for commit in step.skipped} == {"c4", "c5"}
    assert "only skipped commits left" in search.bisect.log()


def test_git_is_not_told_what_it_cannot_hold(begin: Begin) -> None:
    nodes = old_base_merge()
    search = begin(nodes, "c1", "c5")
    tell, sha = search.bisect.tell, search.shas
    assert tell(sha["c4"], NEW)
    assert not tell(sha["c5"], NEW)  # follows from c4
    assert tell(sha["c3"], NEW)
    assert not tell(sha["b2"], NEW)  # beside c3: git would forget c3
    assert not tell(sha["b2"], OLD)
    assert not tell(sha["b2"], SKIP)
    assert tell(sha["c2"], OLD)
    assert not tell(sha["c0"], OLD)
    step = search.bisect.next()
    assert isinstance(step, FirstNewCommit)
    assert step.commit.subject == "c3"


def test_contradiction_is_found_before_git_is_told(begin: Begin) -> None:
    search = begin(linear(9), "c0", "c8")
    tell, sha = search.bisect.tell, search.shas
    tell(sha["c5"], NEW)
    tell(sha["c2"], OLD)
    log = search.bisect.log()
    for name, verdict, other in (("c7", OLD, "c5"), ("c5", OLD, "c5"), ("c1", NEW, "c2"), ("c2", NEW, "c2")):
        with pytest.raises(Contradiction) as caught:
            tell(sha[name], verdict)
        assert (caught.value.sha, caught.value.other) == (sha[name], sha[other])
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert search.bisect.log() == log
    with pytest.raises(ValueError, match="weak"):
        tell(sha["c3"], Verdict.WEAK)


def test_everything_told_anew_is_the_same(begin: Begin) -> None:
    nodes = linear(20)
    search = begin(nodes, "c0", "c19", skips=("c3",))
    told = []
    for _ in range(3):
        step = search.bisect.next()
        assert isinstance(step, CommitToTry)
        name = step.commit.subject
        told.append((step.commit.sha, SKIP if name == "c9" else NEW if int(name[1:]) >= 13 else OLD))
        search.bisect.tell(*told[-1])
    before = search.bisect.next(), search.bisect.candidates(), search.bisect.log()
    # Which commits git proposes beside a skipped one follows from their hashes.
    useless = (search.shas["c18"], NEW) if NEW in dict(told).values() else (search.shas["c1"], OLD)
    assert search.bisect.start([search.shas["c3"]], [*told, useless]) == ((search.shas["c3"], SKIP), *told)
    assert (search.bisect.next(), search.bisect.candidates()) == before[:2]
    assert without_comments(search.bisect.log())[1:] == without_comments(before[2])[1:]
    assert isinstance(search.to("c13", nodes), FirstNewCommit)


def without_comments(log: str) -> list[str]:
    return [line for line in log.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("meddling", ["told by hand", "skipped by hand", "reset", "removed"])
def test_state_that_somebody_changed_is_built_again(begin: Begin, tmp_path: Path, meddling: str) -> None:
    nodes = linear(9)
    search = begin(nodes, "c0", "c8")
    search.bisect.tell(search.shas["c6"], NEW)
    home = next((tmp_path / "run/worktrees").iterdir())
    if meddling == "told by hand":
        git(home, "bisect", "fixed", search.shas["c2"])
    elif meddling == "skipped by hand":
        git(home, "bisect", "skip", search.shas["c5"])
    elif meddling == "reset":
        git(home, "bisect", "reset", "HEAD")
    else:
        git(search.repository.top, "worktree", "remove", "--force", str(home))
    step = search.to("c5", nodes)
    assert isinstance(step, FirstNewCommit)
    assert step.commit.subject == "c5"
    assert search.bisect.log().splitlines()[-1].startswith("# first fixed commit")


def test_merge_base_that_is_new(begin: Begin) -> None:
    search = begin(stable_tags(), "s2", "n2")
    step = search.run(lambda _: NEW)
    assert isinstance(step, MergeBaseIsNew)
    assert (step.merge_base.subject, step.old.subject, step.new.subject) == ("c2", "s2", "n2")
    assert search.bisect.tell(search.shas["c4"], OLD) is False
    search.bisect.start(told=[(search.shas["c2"], NEW)])
    assert search.bisect.next() == step


def test_second_merge_base_that_is_new(begin: Begin) -> None:
    search = begin(criss_cross(), "p", "q")
    first = search.bisect.next()
    assert isinstance(first, CommitToTry)
    other = ({"a", "b"} - {first.commit.subject}).pop()
    for again in (False, True):
        if again:
            search.bisect.start(told=[(search.shas[other], NEW)])
        else:
            search.bisect.tell(search.shas[other], NEW)
        step = search.bisect.next()
        assert isinstance(step, MergeBaseIsNew)
        assert step.merge_base.subject == other


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("slow", "slow"),
        ("skip", "fixed"),
        ("broken", "visualize"),
        ("bad", "good"),
        ("new", "old"),
        ("weak", "fixed"),
        ("", "fixed"),
        ("-x", "fixed"),
        ("a b", "fixed"),
        ("a/b", "fixed"),
        ("a.lock", "fixed"),
        ("broken", "1st"),
    ],
)
def test_words_that_git_does_not_take(old: str, new: str) -> None:
    with pytest.raises(UserError):
        check_terms(SideWords(old, new))
