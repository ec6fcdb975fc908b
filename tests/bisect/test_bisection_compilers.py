"""Which compiler the loop settles on, what it records, and what a resumed run makes of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import EndsDoNotReproduce, UserError
from bisector.core.subject import Compiler
from bisector.store.store import Store
from tests import fakes
from tests.bisect.lab import BY_GIT, Lab
from tests.fakes import BUILD_ERROR, GCC, OLD_GCC
from tests.git import histories

BOTH = (GCC, OLD_GCC)


@pytest.fixture
def line(tmp_path: Path) -> Lab:
    return Lab(tmp_path, histories.linear(9), "c0", "c8")


def engine(lab: Lab, *failing: tuple[str, str], installed: tuple[Compiler, ...] = BOTH) -> fakes.FakeExecutor:
    fails = {(command, lab.shas[name]): BUILD_ERROR for command, name in failing}
    return lab.engine("c5", installed=installed, does_not_build=fails)


def recorded(lab: Lab) -> tuple[Compiler, ...]:
    with Store.open(lab.path / "record.sqlite") as store:
        return store.compilers()


def test_the_only_compiler_is_not_tried(line: Lab) -> None:
    bench = engine(line, installed=(GCC,))
    assert line.found(line.bisect(bench)) == "c5"
    assert bench.tried == []
    assert recorded(line) == (GCC,)
    assert {one.compilers for one in bench.requests} == {(GCC,)}


def test_the_first_that_builds_both_ends_builds_all(line: Lab) -> None:
    bench = engine(line, ("gcc", "c8"))
    assert line.found(line.bisect(bench)) == "c5"
    assert bench.tried == [(one, line.shas[end]) for one in ("gcc", "gcc-11") for end in ("c0", "c8")]
    assert recorded(line) == (OLD_GCC,)
    assert {one.compilers for one in bench.requests} == {(OLD_GCC,)}
    said = line.notes
    assert any(text.startswith("gcc does not build") and BUILD_ERROR.reason in text for text in said)


def test_none_is_told_with_what_each_failed_at(line: Lab) -> None:
    bench = engine(line, ("gcc", "c8"), ("gcc-11", "c0"))
    with pytest.raises(EndsDoNotReproduce, match="no compiler of this host builds both ends") as caught:
        line.bisect(bench)
    for words in ("gcc fails at", "gcc-11 fails at", line.shas["c8"][:12], line.shas["c0"][:12], BUILD_ERROR.reason):
        assert words in caught.value.message
    assert bench.measured == []
    tried = [("gcc", "c0"), ("gcc", "c8"), ("gcc-11", "c0")]  # and of the second one no other end in vain
    assert bench.tried == [(command, line.shas[name]) for command, name in tried]


@pytest.mark.parametrize("chosen", [(OLD_GCC,), BOTH], ids=["one", "a change that was asked for"])
def test_compilers_that_are_named_are_not_tried_but_taken(line: Lab, chosen: tuple[Compiler, ...]) -> None:
    names = tuple(one.command for one in chosen)
    line.settings = replace(BY_GIT, kernel=replace(BY_GIT.kernel, compilers=names))
    bench = engine(line, ("gcc-11", "c8"), installed=chosen)
    assert line.found(line.bisect(bench)) == "c5"
    assert bench.tried == []
    assert recorded(line) == chosen
    assert {one.compilers for one in bench.requests} == {chosen}


@pytest.mark.parametrize("kill_at_build", [1, 4])
def test_killed_while_choosing_nothing_is_built_twice(line: Lab, kill_at_build: int) -> None:
    bench = engine(line, ("gcc", "c8"))
    bench.kill_at_build = kill_at_build
    with pytest.raises(fakes.Killed):
        line.bisect(bench)
    bench.kill_at_build = None
    assert line.found(line.bisect(bench)) == "c5"
    assert recorded(line) == (OLD_GCC,)
    assert len(bench.tried) == 5


def test_what_was_tried_of_a_compiler_that_has_changed_since_counts_for_nothing(line: Lab) -> None:
    bench = engine(line, ("gcc", "c8"))
    bench.kill_at_build = 3
    with pytest.raises(fakes.Killed):
        line.bisect(bench)
    new = Compiler("gcc", "gcc 13.1.0, GNU ld 2.41")
    assert line.found(line.bisect(engine(line, installed=(new, OLD_GCC)))) == "c5"
    assert recorded(line) == (new,)


def test_a_resumed_run_goes_on_with_what_it_began_with(line: Lab) -> None:
    bench = engine(line, ("gcc", "c8"))
    bench.kill_at = 3
    with pytest.raises(fakes.Killed):
        line.bisect(bench)
    bench = engine(line)  # gcc would do now, and comes first
    assert line.found(line.bisect(bench)) == "c5"
    assert bench.tried == []
    assert {one.compilers for one in bench.requests} == {(OLD_GCC,)}


@pytest.mark.parametrize(
    "now",
    [
        pytest.param((Compiler("gcc", "gcc 12.3.0, GNU ld 2.40"),), id="upgraded"),
        pytest.param((OLD_GCC,), id="removed"),
    ],
)
def test_a_compiler_that_changed_meanwhile_is_refused(line: Lab, now: tuple[Compiler, ...]) -> None:
    bench = engine(line, installed=(GCC,))
    bench.kill_at = 3
    with pytest.raises(fakes.Killed):
        line.bisect(bench)
    changed = engine(line, installed=now)
    with pytest.raises(UserError, match="gcc has changed since this run began"):
        line.bisect(changed)
    assert changed.measured == []
    assert line.found(line.bisect(engine(line, installed=(GCC,)))) == "c5"
