"""Which compiler the loop settles on, what it records, and what a resumed run makes of it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.bisect.builds import next_build
from bisector.campaign.instructions import Record, Submit
from bisector.core.errors import EndsDoNotReproduce, UserError
from bisector.core.events import Note
from bisector.core.subject import Commit, Compiler
from bisector.executor.base import BuildRequest
from bisector.store.facts import BuildTry, Compilers
from bisector.store.store import Store
from tests import fakes
from tests.bisect.lab import DEFAULTS, Lab
from tests.fakes import BUILD_ERROR, GCC, OLD_GCC
from tests.git import histories

CLANG = Compiler("clang", "clang 14.0.6, GNU ld 2.40")
BOTH = (GCC, OLD_GCC)
ALL = (*BOTH, CLANG)
OLD, NEW = (Commit(letter * 40, "", "a subject", "") for letter in "ab")
ENDS = (OLD, NEW)


@pytest.fixture
def line(tmp_path: Path) -> Lab:
    return Lab(tmp_path, histories.linear(9), "c0", "c8")


def engine(lab: Lab, *failing: tuple[str, str], installed: tuple[Compiler, ...] = BOTH) -> fakes.FakeExecutor:
    bench = lab.engine("c5")
    bench.installed = installed
    bench.does_not_build = {(command, lab.shas[name]): BUILD_ERROR for command, name in failing}
    return bench


def recorded(lab: Lab) -> tuple[Compiler, ...]:
    with Store.open(lab.path / "record.sqlite") as store:
        return store.compilers()


def test_the_only_compiler_is_not_tried(line: Lab) -> None:
    bench = engine(line, installed=(GCC,))
    assert line.found(line.bisect(bench)) == "c5"
    assert bench.tried == []
    assert recorded(line) == (GCC,)
    assert set(bench.built_by.values()) == {(GCC,)}


def test_the_first_that_builds_both_ends_builds_all(line: Lab) -> None:
    bench = engine(line, ("gcc", "c8"))
    assert line.found(line.bisect(bench)) == "c5"
    assert bench.tried == [(one, line.shas[end]) for one in ("gcc", "gcc-11") for end in ("c0", "c8")]
    assert recorded(line) == (OLD_GCC,)
    assert set(bench.built_by.values()) == {(OLD_GCC,)}
    said = [event.text for event in line.events if isinstance(event, Note)]
    assert any(text.startswith("gcc does not build") and BUILD_ERROR.reason in text for text in said)


def test_none_is_told_with_what_each_failed_at(line: Lab) -> None:
    bench = engine(line, ("gcc", "c8"), ("gcc-11", "c0"))
    with pytest.raises(EndsDoNotReproduce, match="no compiler of this host builds both ends") as caught:
        line.bisect(bench)
    for words in ("gcc fails at", "gcc-11 fails at", line.shas["c8"][:12], line.shas["c0"][:12], BUILD_ERROR.reason):
        assert words in caught.value.message
    assert bench.measured == []


def test_a_compiler_that_is_chosen_is_not_tried_but_taken(line: Lab) -> None:
    line.settings = replace(DEFAULTS, kernel=replace(DEFAULTS.kernel, compilers=("gcc-11",)))
    bench = engine(line, ("gcc-11", "c8"), installed=(OLD_GCC,))
    assert line.found(line.bisect(bench)) == "c5"
    assert bench.tried == []
    assert recorded(line) == (OLD_GCC,)


def test_several_compilers_are_a_change_that_was_asked_for(line: Lab) -> None:
    line.settings = replace(DEFAULTS, kernel=replace(DEFAULTS.kernel, compilers=("gcc", "gcc-11")))
    bench = engine(line)
    assert line.found(line.bisect(bench)) == "c5"
    assert bench.tried == []
    assert recorded(line) == BOTH
    assert set(bench.built_by.values()) == {BOTH}


@pytest.mark.parametrize("kill_at_try", [1, 2, 3, 4])
def test_killed_while_choosing_nothing_is_built_twice(line: Lab, kill_at_try: int) -> None:
    bench = engine(line, ("gcc", "c8"))
    bench.kill_at_try = kill_at_try
    with pytest.raises(fakes.Killed):
        line.bisect(bench)
    bench.kill_at_try = None
    assert line.found(line.bisect(bench)) == "c5"
    assert recorded(line) == (OLD_GCC,)
    assert len(bench.tried) == 5


def test_a_resumed_run_goes_on_with_what_it_began_with(line: Lab) -> None:
    bench = engine(line, ("gcc", "c8"))
    bench.kill_at = 3
    with pytest.raises(fakes.Killed):
        line.bisect(bench)
    bench = engine(line)  # gcc would do now, and comes first
    assert line.found(line.bisect(bench)) == "c5"
    assert bench.tried == []
    assert set(bench.built_by.values()) == {(OLD_GCC,)}


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


def built(compiler: Compiler, end: Commit) -> BuildTry:
    return BuildTry(compiler, end.sha, "")


def failed(compiler: Compiler, end: Commit) -> BuildTry:
    return BuildTry(compiler, end.sha, "a.c:1: error: no")


def step(installed: Sequence[Compiler], tries: Iterable[BuildTry]) -> tuple[object, ...]:
    """The compiler and the end that are to be tried, or what is recorded to build all."""
    match next_build(installed, ENDS, tries):
        case Submit(request=BuildRequest(commit=commit, compiler=compiler)):
            return compiler, commit
        case Record(facts=(Compilers(compilers=compilers),)):
            return compilers
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize(
    ("tries", "next_one"),
    [
        pytest.param((), (GCC, OLD), id="nothing known"),
        pytest.param((built(GCC, OLD),), (GCC, NEW), id="one end"),
        pytest.param((built(GCC, OLD), built(GCC, NEW)), (GCC,), id="the first builds both"),
        pytest.param((failed(GCC, OLD),), (OLD_GCC, OLD), id="the other end is not tried in vain"),
        pytest.param((built(GCC, OLD), failed(GCC, NEW)), (OLD_GCC, OLD), id="fails at the new end"),
        pytest.param((failed(GCC, OLD), built(OLD_GCC, OLD), built(OLD_GCC, NEW)), (OLD_GCC,), id="the second"),
        pytest.param((failed(Compiler("gcc", "gcc 11"), OLD),), (GCC, OLD), id="it has changed since"),
    ],
)
def test_the_first_that_builds_both_ends(tries: tuple[BuildTry, ...], next_one: tuple[object, ...]) -> None:
    assert step(ALL, tries) == next_one
