"""The drawn histories as a repository, made of tiny trees."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from scenarios.demo import history
from scenarios.demo.run import newest_tarball
from scenarios.histories import make
from scenarios.histories.draw import Direction
from scenarios.histories.make import Histories, Made
from tests.scenarios.demo.test_history import git, pack, tree
from tests.scenarios.histories.test_draw import POOL, originals

SEED = 3


def sources(path: Path, version: str = make.KNOWN) -> Path:
    path.mkdir()
    pack(path / f"linux-source-{version}.tar.xz", tree(**originals()))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def histories(home: Path) -> Histories:
    return make.make(home / "demo", SEED, sources(home / "src"))


def shown(histories: Histories, revision: str, path: str) -> bytes:
    return git(histories.repo, "show", f"{revision}:{path}").encode()


def in_range(histories: Histories, made: Made) -> list[str]:
    ends = f"{made.drawn.old_tag}..{made.drawn.new_tag}"
    return git(histories.repo, "rev-list", ends).split()


def test_each_has_its_ends_and_what_was_drawn_between_them(histories: Histories) -> None:
    for made in histories.made:
        drawn = made.drawn
        base = git(histories.repo, "merge-base", drawn.old_tag, drawn.new_tag)
        assert base == git(histories.repo, "rev-parse", f"{drawn.old_tag}^{{commit}}")
        assert len(in_range(histories, made)) == len(drawn.in_range)


def test_what_is_planted_is_between_the_ends_and_makes_the_change(histories: Histories) -> None:
    for made in histories.made:
        assert len(made.planted) == len(made.drawn.changes)
        for key, planted in zip(made.drawn.changes, made.planted, strict=True):
            assert planted.sha in in_range(histories, made)
            fix = made.drawn.direction is Direction.FIX
            for edit in POOL.changes[key].edits:
                text, its_parents = shown(histories, planted.sha, edit.path), f"{planted.sha}^"
                slow, fast = (text, shown(histories, its_parents, edit.path))[:: -1 if fix else 1]
                assert edit.new in slow
                assert edit.new not in fast
                ends = (made.drawn.old_tag, made.drawn.new_tag)[:: 1 if fix else -1]
                assert [edit.new in shown(histories, end, edit.path) for end in ends] == [True, False]


def test_the_record_names_what_is_planted_and_where(histories: Histories) -> None:
    record = json.loads((histories.repo / ".git" / "bisector-histories.json").read_text(encoding="utf-8"))
    assert list(record) == [made.drawn.name for made in histories.made]
    for made in histories.made:
        row, drawn = record[made.drawn.name], made.drawn
        assert (row["setup"], row["direction"]) == (drawn.setup.name, drawn.direction)
        assert row["commits"] == len(drawn.in_range)
        for end, tag in (("old", drawn.old_tag), ("new", drawn.new_tag)):
            assert row[end] == git(histories.repo, "rev-parse", f"{tag}^{{commit}}").strip()
        assert row["planted"] == [asdict(one) for one in made.planted]
        for one, change in zip(made.planted, drawn.changes, strict=True):
            assert one.change == change
            assert git(histories.repo, "log", "-1", "--format=%s", one.sha).strip() == one.subject
            entry = drawn.in_range[one.place - 1]
            assert (entry.subject, entry.line) == (one.subject, one.line)


def test_what_is_broken_on_the_way_is_whole_at_both_ends(histories: Histories) -> None:
    for made in histories.made:
        for edit in (edit for entries in POOL.broken.values() for entry in entries for edit in entry.edits):
            for end in (made.drawn.old_tag, made.drawn.new_tag):
                assert edit.new not in shown(histories, end, edit.path)


def test_where_nothing_is_planted_the_ends_differ_in_harmless_edits_alone(histories: Histories) -> None:
    (made,) = (one for one in histories.made if not one.planted)
    differing = set(git(histories.repo, "diff", "--name-only", made.drawn.old_tag, made.drawn.new_tag).split())
    harmless = {edit.path for entry in (*POOL.code, *POOL.none) for edit in entry.edits}
    assert differing
    assert differing <= harmless


def test_the_same_seed_gives_the_same_hashes(histories: Histories, tmp_path: Path) -> None:
    again = make.make(tmp_path / "demo", SEED, sources(tmp_path / "src"))
    assert again.made == histories.made
    assert again.repo.name == histories.repo.name


def test_made_already_it_is_left_as_it_is(home: Path, histories: Histories) -> None:
    """A run that was stopped has worktrees and references in it."""
    git(histories.repo, "update-ref", "refs/bisector/kept", histories.made[0].drawn.old_tag)
    assert make.make(home / "demo", SEED, home / "src") == histories
    assert git(histories.repo, "rev-parse", "refs/bisector/kept")


def test_it_finds_the_source_where_that_is_now(tmp_path: Path) -> None:
    """That of an only version lies elsewhere once there is a newer one, whose history takes its place."""
    found = sources(tmp_path / "src")
    before = make.make(tmp_path / "demo", SEED, found)
    pack(found / "linux-source-6.12.tar.xz", tree(**originals(), VERSION=b"6.12"))
    history.make(newest_tarball(found), tmp_path / "demo" / "linux")
    assert make.make(tmp_path / "demo", SEED, found) == before
    assert git(before.repo, "log", "--format=%s", before.made[0].drawn.new_tag).split("\n")[-2].endswith(": import")


@pytest.mark.rare
def test_of_a_killed_making_nothing_is_taken(home: Path, histories: Histories) -> None:
    histories.repo.rename(histories.repo.with_name(f"{histories.repo.name}.making"))
    assert make.make(home / "demo", SEED, home / "src") == histories
