"""Ends on two branches: what both come from is tried first, since git takes it for old."""

from pathlib import Path

from bisector.git.bisect import CommitToTry, FirstNew, MergeBaseIsNew
from tests.git.histories import criss_cross, git, stable_tags
from tests.git.searches import NEW, OLD, Begin


def test_log_of_a_tried_merge_base_can_be_replayed(begin: Begin, tmp_path: Path) -> None:
    nodes = stable_tags()
    search = begin(nodes, "s2", "n2")
    search.to("c4", nodes)
    (tmp_path / "log").write_text(search.bisect.log())
    git(search.repository.top, "worktree", "add", "-q", "--detach", str(tmp_path / "again"))
    said = git(tmp_path / "again", "bisect", "replay", str(tmp_path / "log"))
    assert f"{search.shas['c4']} is the first fixed commit" in said


def test_merge_base_is_tried_first(begin: Begin) -> None:
    nodes = stable_tags()
    search = begin(nodes, "s2", "n2")
    first = search.bisect.next()
    assert isinstance(first, CommitToTry)
    assert (first.commit.subject, first.is_merge_base) == ("c2", True)
    step = search.to("c4", nodes)
    assert isinstance(step, FirstNew)
    assert step.commit.subject == "c4"


def test_merge_base_that_is_new(begin: Begin) -> None:
    search = begin(stable_tags(), "s2", "n2")
    step = search.run(lambda _: NEW)
    assert isinstance(step, MergeBaseIsNew)
    assert (step.merge_base.subject, step.old.subject, step.new.subject) == ("c2", "s2", "n2")
    assert search.bisect.tell(search.shas["c4"], OLD) is False
    search.bisect.start(told=[(search.shas["c2"], NEW)])
    assert search.bisect.next() == step


def test_skipped_merge_base(begin: Begin) -> None:
    nodes = stable_tags()
    search = begin(nodes, "s2", "n2", skips=("c2",))
    step = search.to("c5", nodes)
    assert isinstance(step, FirstNew)
    assert "c2" not in search.tried


def test_two_merge_bases(begin: Begin) -> None:
    nodes = criss_cross()
    search = begin(nodes, "p", "q")
    step = search.to("y", nodes)
    assert isinstance(step, FirstNew)
    assert step.commit.subject == "y"
    assert {"a", "b"} <= set(search.tried)


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
