from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisector.core.printable import clean
from bisector.core.verdict import Direction, Verdict
from bisector.report.blocks import Column, Fact, FactList, Role, Row, Table, verdict_role
from bisector.report.terminal import fill
from tests.report import examples


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


@settings(max_examples=40)
@given(st.text())
def test_clean_is_printable_and_final(raw: str) -> None:
    assert clean(raw).isprintable()
    assert clean(clean(raw)) == clean(raw)


FACTS = FactList((Fact("one", ("prose that is filled below itself",)), Fact("nothing"), Fact("next", command="a  b")))
TABLE = Table(
    (Column("setup"), Column("n", figures=True), Column("subject", movable=True)),
    (Row(("a", "1", "first"), "why \x1b[1mnot"), Row(("a", "22", "second"), command="bisector resume")),
    caption="of two",
    grouped=True,
)


def test_facts_are_filled_and_commands_are_whole() -> None:
    assert examples.shown([FACTS], 24) == ("one   prose that is\n      filled below\n      itself\nnext  a  b\n")
    long = Fact("a label that has its own line", ("said",))
    assert examples.shown([FactList((long,))]) == f"{long.label}\n{' ' * 22}said\n"


def test_a_table_names_each_group_once_and_has_remarks_below_its_rows() -> None:
    assert examples.shown([TABLE]) == (
        "of two\nsetup   n  subject\na       1  first\n    why not\n       22  second\n    bisector resume\n"
    )


def test_a_table_that_is_too_wide_moves_its_last_column_and_then_its_groups() -> None:
    assert examples.shown([TABLE], 16) == (
        "of two\nsetup   n\na       1\n    first\n    why not\n       22\n    second\n    bisector resume\n"
    )
    grouped = replace(TABLE, columns=(*TABLE.columns[:2], Column("subject")), rows=TABLE.rows[:1], caption="")
    assert examples.shown([grouped], 16) == "  n  subject\na\n  1  first\n    why not\n"


def test_wide_letters_keep_the_columns() -> None:
    rows = tuple(Row((name, "x")) for name in ("naïve", "日本"))
    assert examples.shown([Table((Column("name"), Column("")), rows)]) == "name\nnaïve  x\n日本   x\n"


def test_prose_is_filled_and_no_word_is_cut() -> None:
    assert [line.plain for line in fill("one two three", 7)] == ["one two", "three"]
    assert [line.plain for line in fill("ab unbreakable", 5)] == ["ab", "unbreakable"]
    assert [line.plain for line in fill("日本 日本", 8)] == ["日本", "日本"]
    assert fill("") == []


@pytest.mark.parametrize(
    "subject", ["x" * 400, "日本語の件名" * 30, "\x1b[2J\x1b[31mgone\x07", "a\tb\r\nc", "\u202egnp.exe", ""]
)
def test_no_subject_breaks_a_table(subject: str) -> None:
    lines = examples.shown([Table((Column("a"), Column("b")), (Row((subject, "end"), subject),))]).splitlines()
    assert all(line.isprintable() for line in lines)
    assert lines[1].endswith("end")
    assert len(lines) == 2 + bool(subject)


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
