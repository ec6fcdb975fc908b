"""One compiler for a whole range, and what it is too old or too new for."""

import re

import pytest

from bisector.core.errors import UserError
from bisector.core.subject import Compiler
from bisector.kernel.compiler_choice import (
    DEMANDS,
    BuildTry,
    Chosen,
    NoneBuilds,
    TryBuild,
    Version,
    check_unchanged,
    first_refusal,
    next_step,
    unchanged_since,
)
from bisector.kernel.quirk_table import QUIRKS
from bisector.kernel.quirks import Quirk

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


@pytest.mark.parametrize(
    ("family", "version", "release"),
    [
        ("gcc", (12, 2, 0), None),
        ("gcc", (8, 1, 0), None),
        ("gcc", (7, 5, 0), "v6.15"),
        ("gcc", (4, 9, 4), "v5.15"),
        ("gcc", (4, 4, 7), "v4.19"),
        ("clang", (19, 1, 7), None),
        ("clang", (16, 0, 6), "v7.2"),
        ("clang", (14, 0, 6), "v6.15"),
        ("clang", (13, 0, 1), "v6.15"),
        ("clang", (10, 0, 0), "v5.10"),
        ("tcc", (0, 9, 27), None),
    ],
)
def test_the_first_kernel_that_a_compiler_is_too_old_for(family: str, version: Version, release: str | None) -> None:
    refusal = first_refusal(family, version)
    assert (refusal and refusal.release) == release


@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_later_kernels_ask_for_more(family: str) -> None:
    rows = [one for one in DEMANDS if one.family == family]
    releases = [tuple(map(int, one.release[1:].split("."))) for one in rows]
    assert releases == sorted(set(releases))
    assert [one.least for one in rows] == sorted({one.least for one in rows})
    assert all(re.fullmatch(r"[0-9a-f]{12}", one.commit) and one.subject for one in rows)


@pytest.mark.parametrize(("gcc", "release"), [(5, "v5.11"), (11, "v5.11"), (12, "v5.17"), (14, "v5.17"), (15, "v6.14")])
def test_the_first_kernel_that_needs_no_quirk(gcc: int, release: str) -> None:
    assert unchanged_since(gcc, QUIRKS) == release


def test_what_newer_tools_than_gcc_break_is_broken_with_any_gcc() -> None:
    assert (
        unchanged_since(4, [quirk for quirk in QUIRKS if quirk.name in ("max-page-size", "plt32", "no-pie")]) == "v4.16"
    )


@pytest.mark.parametrize("quirk", QUIRKS, ids=lambda quirk: quirk.name)
def test_a_row_says_the_same_to_people_and_to_the_table(quirk: Quirk) -> None:
    if (said := re.match(r"gcc (\d+)", quirk.symptom)) is not None:
        assert quirk.gcc == int(said[1])
    else:
        assert (quirk.gcc > 0) is quirk.symptom.startswith(("the same", "gcc with"))
