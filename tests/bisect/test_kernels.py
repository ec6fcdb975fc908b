"""Which compiler builds all kernels of a range, and that those on which an answer rests are built once more."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.config import Settings
from bisector.core.errors import EndsDoNotReproduce, InfraError, UserError
from bisector.core.subject import Compiler, RebuildCheck
from bisector.core.verdict import State
from bisector.store.facts import Compilers, KernelCheck
from tests import fakes
from tests.bisect.lab import BOTH, BY_GIT, Lab
from tests.fakes import BUILD_ERROR, GCC, OLD_GCC
from tests.git import histories

TWO = (GCC, OLD_GCC)


@pytest.fixture
def line(tmp_path: Path) -> Lab:
    return Lab(tmp_path, histories.linear(9), "c0", "c8")


def engine(lab: Lab, *failing: tuple[str, str], installed: tuple[Compiler, ...] = TWO) -> fakes.FakeExecutor:
    fails = {(command, lab.shas[name]): BUILD_ERROR for command, name in failing}
    return lab.engine("c5", installed=installed, does_not_build=fails)


def recorded(lab: Lab) -> tuple[Compiler, ...]:
    (found,) = lab.facts(Compilers)
    return found.compilers


def test_the_only_compiler_is_not_tried(line: Lab) -> None:
    bench = engine(line, installed=(GCC,))
    assert line.finds(bench) == "c5"
    assert bench.tried == []
    assert recorded(line) == (GCC,)
    assert {one.compilers for one in bench.requests} == {(GCC,)}


def test_the_first_that_builds_both_ends_builds_all(line: Lab) -> None:
    bench = engine(line, ("gcc", "c8"))
    assert line.finds(bench) == "c5"
    assert bench.tried == [(one, line.shas[end]) for one in ("gcc", "gcc-11") for end in ("c0", "c8")]
    assert recorded(line) == (OLD_GCC,)
    assert {one.compilers for one in bench.requests} == {(OLD_GCC,)}
    assert any(text.startswith("gcc does not build") and BUILD_ERROR.reason in text for text in line.notes)


def test_none_is_told_with_what_each_failed_at(line: Lab) -> None:
    bench = engine(line, ("gcc", "c8"), ("gcc-11", "c0"))
    with pytest.raises(EndsDoNotReproduce, match="no compiler of this host builds both ends") as caught:
        line.bisect(bench)
    for words in ("gcc fails at", "gcc-11 fails at", line.shas["c8"][:12], line.shas["c0"][:12], BUILD_ERROR.reason):
        assert words in caught.value.message
    assert bench.measured == []
    tried = [("gcc", "c0"), ("gcc", "c8"), ("gcc-11", "c0")]  # and of the second one no other end in vain
    assert bench.tried == [(command, line.shas[name]) for command, name in tried]


@pytest.mark.parametrize("chosen", [(OLD_GCC,), TWO], ids=["one", "a change that was asked for"])
def test_compilers_that_are_named_are_not_tried_but_taken(line: Lab, chosen: tuple[Compiler, ...]) -> None:
    names = tuple(one.command for one in chosen)
    line.settings = replace(BY_GIT, kernel=replace(BY_GIT.kernel, compilers=names))
    bench = engine(line, ("gcc-11", "c8"), installed=chosen)
    assert line.finds(bench) == "c5"
    assert bench.tried == []
    assert recorded(line) == chosen
    assert {one.compilers for one in bench.requests} == {chosen}


@pytest.mark.parametrize("kill_at_build", [1, 4])
def test_killed_while_choosing_nothing_is_built_twice(line: Lab, kill_at_build: int) -> None:
    bench = line.killed(replace(engine(line, ("gcc", "c8")), kill_at_build=kill_at_build))
    assert line.finds(bench) == "c5"
    assert recorded(line) == (OLD_GCC,)
    assert len(bench.tried) == 5


def test_what_was_tried_of_a_compiler_that_has_changed_since_counts_for_nothing(line: Lab) -> None:
    line.killed(replace(engine(line, ("gcc", "c8")), kill_at_build=3))
    new = Compiler("gcc", "gcc 13.1.0, GNU ld 2.41")
    assert line.finds(engine(line, installed=(new, OLD_GCC))) == "c5"
    assert recorded(line) == (new,)


def test_a_resumed_run_goes_on_with_what_it_began_with(line: Lab) -> None:
    line.killed(replace(engine(line, ("gcc", "c8")), kill_at=3))
    bench = engine(line)  # gcc would do now, and comes first
    assert line.finds(bench) == "c5"
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
    line.killed(replace(engine(line, installed=(GCC,)), kill_at=3))
    changed = engine(line, installed=now)
    with pytest.raises(UserError, match="gcc has changed since this run began"):
        line.bisect(changed)
    assert changed.measured == []
    assert line.finds(engine(line, installed=(GCC,))) == "c5"


OTHER = "e" * 64


def bench(lab: Lab, **more: object) -> fakes.FakeExecutor:
    return lab.far_engine("c5", **{"keyed": True, **more})


def rests_on(lab: Lab) -> set[str]:
    """The commit found, its parent, and what was made of the new end without it."""
    changed = [trial.commit.sha for trial in lab.trials() if trial.subject.changed_by == lab.shas["c5"]]
    return {lab.shas["c5"], lab.shas["c4"], *changed}


@BOTH
def test_each_is_built_once_and_what_passed_is_on_record(line: Lab, settings: Settings) -> None:
    line.settings = settings
    engine = line.killed(bench(line, kill_at_build=2))
    resumed = bench(line)
    outcome = line.bisect(resumed)
    assert line.found(outcome) == "c5"
    assert "once more" not in outcome.message
    assert resumed.measured == []
    assert {*engine.once_more, *resumed.once_more} == rests_on(line)
    assert len(engine.once_more) + len(resumed.once_more) == len(rests_on(line)) + 1  # the one at which it was killed
    assert {(one.sha, one.why_not) for one in line.facts(KernelCheck)} == {(sha, "") for sha in rests_on(line)}
    again = bench(line)
    assert line.finds(again) == "c5"
    assert again.once_more == []


def test_what_passed_in_an_earlier_run_is_told_as_such(line: Lab) -> None:
    name = line.shas["c5"][:12]
    for check, told in (
        (RebuildCheck((line.shas["c5"],), earlier=True), f"{name}, built once more in an earlier run, is the kernel"),
        (RebuildCheck((line.shas["c5"],)), f"{name}, built once more, is the kernel"),
    ):
        lab = Lab(line.path / str(check.earlier), line.nodes, "c0", "c8", line.settings)
        assert lab.finds(bench(lab, check_by_rebuild={lab.shas["c5"]: check})) == "c5"
        assert any(told in text for text in lab.notes)


def test_another_kernel_gives_no_answer(line: Lab) -> None:
    engine = bench(line, check_by_rebuild={line.shas["c4"]: RebuildCheck((OTHER, OTHER))})
    for _ in range(2):  # it is no verdict, and the next process tries it again
        with pytest.raises(InfraError) as caught:
            line.bisect(engine)
        for said in (line.shas["c4"][:12], OTHER[:16], f"instead of {line.shas['c4'][:16]}"):
            assert said in caught.value.message
        assert "bisector cache clear" in caught.value.hint
    assert line.shas["c4"] not in {one.sha for one in line.facts(KernelCheck)}
    assert engine.once_more.count(line.shas["c4"]) == 2
    assert line.finds(bench(line)) == "c5"


@pytest.mark.parametrize(
    ("check", "why_not"),
    [
        (RebuildCheck((OTHER, "d" * 64)), "each build makes another kernel"),
        (
            RebuildCheck((), why_not="this bisector builds kernels in another way"),
            "this bisector builds kernels in another",
        ),
        (fakes.BUILD_TIMEOUT, "build timeout: kernel build not done after 3600 s"),
    ],
)
def test_what_cannot_be_told_is_said_with_the_answer(tmp_path: Path, check: RebuildCheck, why_not: str) -> None:
    line = Lab(tmp_path, histories.linear(9), "c0", "c8", BY_GIT)
    outcome = line.bisect(bench(line, check_by_rebuild={line.shas["c5"]: check}))
    assert line.found(outcome) == "c5"
    assert f"could not be built once more to check it: {line.shas['c5'][:12]} ({why_not}" in outcome.message


@pytest.mark.parametrize(("recheck", "keyed"), [(False, True), (True, False)])
def test_it_is_asked_for_by_a_setting_and_of_kernels_whose_sources_are_known(
    tmp_path: Path, recheck: bool, keyed: bool
) -> None:
    settings = replace(BY_GIT, kernel=replace(BY_GIT.kernel, recheck=recheck))
    line = Lab(tmp_path, histories.linear(9), "c0", "c8", settings)
    engine = bench(line, keyed=keyed)
    assert line.bisect(engine).state is State.FOUND
    assert engine.once_more == []
