"""What a search stands on, taken from real histories."""

from dataclasses import replace

import pytest

from bisector.core.errors import UserError
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.status.range_graph import Ground, check_suspects
from tests.git.conftest import Make
from tests.git.histories import Node, old_base_merge

MD = "drivers/md/x.c"


def nodes(*touching: str) -> list[Node]:
    return [replace(one, files={MD: one.name}) if one.name in touching else one for one in old_base_merge()]


def ground(make: Make, *suspects: str, touching: tuple[str, ...] = (), **limits: object) -> tuple[Ground, list[str]]:
    repository, names = make(nodes(*touching))
    old, new = repository.commits((names["c0"], names["c5"]))
    made = Ground.of(repository, Range(old, new, **limits), suspects)  # type: ignore[arg-type] # Range's own fields
    by_sha = {sha: name for name, sha in names.items()}
    return made, [by_sha[sha] for sha in made.shas]


def test_suspects_are_who_touches_the_paths_on_any_branch_and_no_merge(make: Make) -> None:
    made, names = ground(make, "drivers/md", touching=("b2", "c2"))
    assert {name for name, suspect in zip(names, made.suspects, strict=True) if suspect} == {"b2", "c2"}
    assert [made.numbers[sha] for sha in made.shas] == list(range(len(names)))
    assert not made.outside


def test_a_first_parents_merge_is_suspected_for_what_it_brings(make: Make) -> None:
    made, names = ground(make, "drivers/md", touching=("b2", "m"), first_parent=True)
    assert {name for name, suspect in zip(names, made.suspects, strict=True) if suspect} == {"m"}


def test_nobody_is_suspected_without_paths(make: Make) -> None:
    made, _ = ground(make, touching=("b2",))
    assert not made.suspects.any()


def test_an_end_that_touches_none_of_the_paths_stands_for_all_that_do_not(make: Make) -> None:
    made, names = ground(make, touching=("c2",), paths=("drivers/md",))
    assert names[-1] == "c5"
    assert "c2" in names
    assert made.outside
    assert [made.is_outside(number) for number in range(len(names))] == [False] * (len(names) - 1) + [True]


def test_paths_that_git_does_not_take_are_refused_by_name(make: Make) -> None:
    repository: Repository
    repository, names = make(nodes())
    (new,) = repository.commits([names["c5"]])
    check_suspects(repository, ("drivers/md", "no/such/path"), new)
    with pytest.raises(UserError, match=r"does not accept the suspected paths ':\(nonsense\)x'") as caught:
        check_suspects(repository, (":(nonsense)x",), new)
    assert "bisect.suspect" in caught.value.hint
