"""What is drawn from a seed: its kinds, its places, and that it holds together."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from bisector import cli
from bisector.commands.arguments import given_settings
from bisector.config import options
from bisector.config.checks import first_problem, first_size_problem
from bisector.core import resources
from bisector.workload.fio import job_file
from scenarios.demo.commits import Entry, plan
from scenarios.histories import pool
from scenarios.histories.draw import Direction, Drawn, draw
from scenarios.histories.pool import CODE, MERGE, NO_BUILD, NONE, PANIC
from scenarios.histories.setups import DRIFTING, JOBS, SETUPS, SMALL, Family, Setup
from tests.scenarios.demo.test_history import stand_ins

POOL = pool.load()
SEEDS = range(4)
EVERY = (*SETUPS, *SMALL, DRIFTING)
BROKEN = {edit.new for entries in POOL.broken.values() for entry in entries for edit in entry.edits}


def originals() -> Mapping[str, bytes]:
    """A file for each that is edited, with the texts that are looked for."""
    files = stand_ins()
    for edit in (edit for entry in POOL.all for edit in entry.edits):
        content = files.get(edit.path, b"a stand-in\n")
        files[edit.path] = content if edit.old in content else content + edit.old + b"\n"
    return files


def planted(drawn: Drawn) -> list[Entry]:
    return [entry for entry in drawn.in_range if entry.key.startswith("planted-")]


@pytest.fixture(params=SEEDS)
def drawn(request: pytest.FixtureRequest) -> tuple[Drawn, ...]:
    return draw(request.param, POOL)


def test_ten_of_each_kind_that_was_promised(drawn: tuple[Drawn, ...]) -> None:
    assert Counter(len(one.changes) for one in drawn) == {1: 8, 2: 1, 0: 1}
    single = [one for one in drawn if len(one.changes) == 1]
    assert Counter(one.direction for one in single) == {Direction.REGRESSION: 4, Direction.FIX: 4}
    assert {one.setup.family for one in single if one.setup not in SMALL} == set(Family)
    assert {one.setup for one in single} > set(SMALL)
    assert [one.setup for one in drawn if not one.changes] == [DRIFTING]
    assert len({one.setup.name for one in single}) == len(single)
    assert [one.name for one in drawn] == [f"h{number:02d}" for number in range(1, 11)]


def test_a_seed_gives_the_same_and_another_one_others() -> None:
    assert draw(5, POOL) == draw(5, POOL)
    assert draw(5, POOL) != draw(6, POOL)


def test_each_is_a_history_with_branches_and_much_that_is_harmless(drawn: tuple[Drawn, ...]) -> None:
    for one in drawn:
        effects = Counter(entry.effect for entry in one.in_range)
        assert 15 <= len(one.in_range) <= 40
        assert 1 <= effects[MERGE] <= 2
        assert effects[CODE] >= 6
        assert effects[NONE] >= 1
        assert [entry.tag for entry in one.entries if entry.tag] == [one.old_tag, one.new_tag]
        assert one.entries[-1].tag == one.new_tag
        assert len({entry.key for entry in one.entries}) == len(one.entries)
    effects = Counter(entry.effect for one in drawn for entry in one.in_range)
    assert effects[NO_BUILD] + effects[PANIC] >= 1


def test_its_edits_can_be_made_in_that_order(drawn: tuple[Drawn, ...]) -> None:
    """Also at the merges: each edited text is there once when its turn comes."""
    files = originals()
    for one in drawn:
        assert len(list(plan(one.entries, files))) == len(one.entries)


def test_the_ends_and_what_is_planted_are_not_broken(drawn: tuple[Drawn, ...]) -> None:
    """Their kernels are built of what is planted and of harmless commits alone."""
    for one in drawn:
        states: dict[int, dict[str, bytes]] = {1: dict(originals())}
        for step in plan(one.entries, originals()):
            states[step.mark] = {**states[step.parents[0]], **step.files}
            if step.entry.tag or step.entry in planted(one):
                assert not any(text in content for content in states[step.mark].values() for text in BROKEN)


def test_a_regression_is_between_the_ends_and_a_fix_takes_back_what_was_before() -> None:
    for one in (one for seed in SEEDS for one in draw(seed, POOL) if one.changes):
        *_, last = plan(one.entries, originals())
        made = [POOL.changes[key].edits for key in one.changes]
        fix = one.direction is Direction.FIX
        wanted = [POOL.changes[key].taken_back if fix else POOL.changes[key].edits for key in one.changes]
        assert [entry.edits for entry in planted(one)] == wanted
        before = [entry.edits for entry in one.entries[: len(one.entries) - len(one.in_range)]]
        assert all((edits in before) is fix for edits in made)
        assert last.entry.tag == one.new_tag


def test_of_two_changes_the_greater_one_is_the_slower_side() -> None:
    """So each shows: the second makes worse what the first made slow, and is taken back before it."""
    seen = set()
    for one in (one for seed in SEEDS for one in draw(seed, POOL) if len(one.changes) == 2):
        assert one.setup.pair is not None
        assert one.changes == (one.setup.pair if one.direction is Direction.REGRESSION else one.setup.pair[::-1])
        assert all(entry.line == "main" for entry in planted(one))
        seen.add(one.direction)
    assert seen == set(Direction)


def test_every_change_has_its_setup() -> None:
    keys = [key for setup in EVERY for key in setup.changes]
    assert sorted(keys) == sorted(POOL.changes)
    assert all(set(setup.pair or ()) <= set(setup.changes) for setup in EVERY)
    assert len({setup.name for setup in EVERY}) == len(EVERY)


@pytest.mark.parametrize("setup", EVERY, ids=lambda setup: setup.name)
def test_bisector_takes_the_words_of_each_setup(setup: Setup, tmp_path: Path) -> None:
    arguments = cli.parsed(["start", "old", "new", *setup.words])
    settings = options.load(given_settings(arguments), directory=tmp_path).settings
    assert first_problem(settings) is None
    assert first_size_problem(settings) is None
    with_own_job = [word for word in setup.words if word.startswith(str(JOBS))]
    for path in map(Path, with_own_job):
        text = path.read_text(encoding="utf-8")
        assert job_file.deciding(text)


def test_every_job_is_that_of_a_setup() -> None:
    words = {word for setup in EVERY for word in setup.words}
    assert {str(path) for path in JOBS.iterdir()} <= words
    assert not {path.name for path in JOBS.iterdir()} & {path.name for path in resources.jobs().iterdir()}
