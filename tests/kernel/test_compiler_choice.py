import pytest

from bisector.core.errors import UserError
from bisector.core.kernel import Compiler
from bisector.kernel.compiler_choice import BuildTry, Chosen, NoneBuilds, TryBuild, check_unchanged, next_step

GCC = Compiler("gcc", "gcc 12.2.0, GNU ld 2.40")
GCC_11 = Compiler("gcc-11", "gcc-11 11.3.0, GNU ld 2.40")
CLANG = Compiler("clang", "clang 14.0.6, GNU ld 2.40")
ALL = (GCC, GCC_11, CLANG)
ENDS = ("a" * 40, "b" * 40)
OLD, NEW = ENDS


def built(compiler: Compiler, sha: str) -> BuildTry:
    return BuildTry(compiler, sha, "")


def failed(compiler: Compiler, sha: str) -> BuildTry:
    return BuildTry(compiler, sha, "a.c:1: error: no")


@pytest.mark.parametrize(
    ("tries", "step"),
    [
        pytest.param((), TryBuild(GCC, OLD), id="nothing known"),
        pytest.param((built(GCC, OLD),), TryBuild(GCC, NEW), id="one end"),
        pytest.param((built(GCC, OLD), built(GCC, NEW)), Chosen((GCC,)), id="the first builds both"),
        pytest.param((failed(GCC, OLD),), TryBuild(GCC_11, OLD), id="the other end is not tried in vain"),
        pytest.param((built(GCC, OLD), failed(GCC, NEW)), TryBuild(GCC_11, OLD), id="fails at the new end"),
        pytest.param((failed(GCC, OLD), built(GCC_11, OLD), built(GCC_11, NEW)), Chosen((GCC_11,)), id="the second"),
        pytest.param(
            tuple(failed(one, OLD) for one in ALL), NoneBuilds(tuple(failed(one, OLD) for one in ALL)), id="none"
        ),
        pytest.param((failed(Compiler("gcc", "gcc 11"), OLD),), TryBuild(GCC, OLD), id="it has changed since"),
    ],
)
def test_the_first_that_builds_both_ends(tries: tuple[BuildTry, ...], step: object) -> None:
    assert next_step(ALL, ENDS, tries) == step


def test_a_single_one_needs_no_trying() -> None:
    assert next_step((GCC,), ENDS, ()) == Chosen((GCC,))


def test_it_ends_after_two_tries_of_each() -> None:
    tries: list[BuildTry] = []
    while isinstance(step := next_step(ALL, ENDS, tries), TryBuild):
        tries.append(BuildTry(step.compiler, step.sha, "no" if step.sha == NEW else ""))
    assert isinstance(step, NoneBuilds)
    assert len(tries) == 2 * len(ALL)


def test_the_same_compilers_pass() -> None:
    check_unchanged((GCC_11,), ALL)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        pytest.param((Compiler("gcc", "gcc 12.3.0, GNU ld 2.40"),), "and is gcc 12.3.0, GNU ld 2.40", id="compiler"),
        pytest.param((Compiler("gcc", "gcc 12.2.0, GNU ld 2.44"),), "and is gcc 12.2.0, GNU ld 2.44", id="linker"),
        pytest.param((GCC_11,), "and does not work any more", id="gone"),
    ],
)
def test_a_changed_compiler_is_refused(now: tuple[Compiler, ...], said: str) -> None:
    with pytest.raises(UserError, match="gcc has changed since this bisection began") as caught:
        check_unchanged((GCC,), now)
    assert said in caught.value.message
    assert "gcc 12.2.0, GNU ld 2.40" in caught.value.message
    assert "install that version of gcc again" in caught.value.hint
