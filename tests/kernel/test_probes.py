"""What a compiler is too old for, by the kernels that refuse it."""

import re

import pytest

from bisector.kernel.probes import DEMANDS, Version, first_refusal


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
