import re

import pytest

from bisector.kernel.quirk_table import QUIRKS
from bisector.kernel.quirks import Quirk
from bisector.kernel.requirements import DEMANDS, Version, first_refusal, unchanged_since


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
def test_the_first_kernel_that_needs_no_mend(gcc: int, release: str) -> None:
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
