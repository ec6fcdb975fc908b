import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisector.core.printable import clean
from bisector.core.verdict import Direction, Verdict
from bisector.report.terminal import Role, Span, as_text, cells, cut, left, right, shorten, verdict_role, wrapped


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("dm cache: plain", "dm cache: plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mC1", "C1"),
        ("tab\there\nline\r", "tab here line "),
        ("bell\x07 back\x08", "bell� back�"),
        ("cut \x1b", "cut �"),
        ("bidi \u202eevil\u202c", "bidi evil"),
        ("latin1 \udce9", "latin1 �"),
        ("naïve 日本", "naïve 日本"),
    ],
)
def test_clean(raw: str, shown: str) -> None:
    assert clean(raw) == shown


@given(st.text())
def test_clean_is_printable_and_final(raw: str) -> None:
    assert clean(raw).isprintable()
    assert clean(clean(raw)) == clean(raw)


@given(st.text(st.characters() | st.sampled_from("日本\u0301\x1b[m")), st.integers(0, 40))
def test_columns_are_exact(raw: str, width: int) -> None:
    assert cells(shorten(raw, width)) <= width
    assert cells(left(raw, width)) == width
    assert cells(right(raw, width)) == width


def test_shorten_marks_the_cut() -> None:
    assert shorten("dm cache policy", 15) == "dm cache policy"
    assert shorten("dm cache policy", 14) == "dm cache poli…"
    assert shorten("日本語", 5) == "日本…"
    assert shorten("日本語", 4) == "日…"
    assert shorten("x", 0) == ""


def test_wrapped_never_exceeds() -> None:
    assert wrapped(["one", "two", "three"], 7) == ["one two", "three"]
    assert wrapped(["unbreakable"], 5) == ["unbr…"]
    assert wrapped([], 5) == []
    assert wrapped(["ab", "cd"], 4) == ["ab", "cd"]
    assert wrapped(["ab", "cd"], 5) == ["ab cd"]


def test_cut_line() -> None:
    line = (Span("one ", Role.WORSE), Span("two "), Span("three"))
    assert as_text([cut(line, 13)]) == "one two three\n"
    assert cut(line, 7) == (Span("one ", Role.WORSE), Span("tw…"))
    assert as_text([cut(line, 8)]) == "one two\n"


def test_text_of_lines_is_clean() -> None:
    assert as_text([(Span("a \x1b[1mb", Role.WORSE), Span("  ")), ()]) == "a b\n\n"


@pytest.mark.parametrize(
    ("direction", "old", "new"),
    [
        (Direction.REGRESSION, Role.BETTER, Role.WORSE),
        (Direction.IMPROVEMENT, Role.WORSE, Role.BETTER),
        (None, Role.PLAIN, Role.PLAIN),
    ],
)
def test_the_better_side_has_one_role_whichever_side_it_is(direction: Direction | None, old: Role, new: Role) -> None:
    others = (Role.SKIP, Role.WEAK, Role.PLAIN)
    assert [verdict_role(one, direction) for one in Verdict] == [old, new, *others]
