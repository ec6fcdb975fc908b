"""Several machines side by side."""

from bisector.core.errors import Finding, Grade
from bisector.report.findings import side_by_side
from bisector.report.terminal import Role, as_text

GIT = Finding("git", Grade.OK, "2.39.5; tried: bisects and skips with terms of our choice, in more words than fit")
FLEX = Finding("flex", Grade.MISSING, "flex: not installed", "apt install flex")
IMAGE = Finding("guest image", Grade.WARN, "not built yet: the first start builds it", "bisector image build")
SSH = Finding("ssh", Grade.OK, "answers")
FOUND = {
    "b1": (SSH, GIT, FLEX, IMAGE, Finding("room", Grade.OK, "9 GiB free")),
    "b2": (SSH, GIT, Finding("flex", Grade.OK, "2.6"), IMAGE, Finding("room", Grade.OK, "8 GiB free")),
    "b3": (SSH, GIT, Finding("flex", Grade.OK, "2.6"), IMAGE, Finding("room", Grade.OK, "9 GiB free")),
    "gone": (Finding("ssh", Grade.MISSING, "cannot be reached: No route to host", "ssh gone"),),
}
TEXT = """\
ssh          ok       b1, b2, b3  answers
             missing  gone        cannot be reached: No route to host
                                  ssh gone
git          ok       b1, b2, b3  2.39.5; tried: bisects and ski…
flex         missing  b1          flex: not installed
                                  apt install flex
             ok       b2, b3      2.6
guest image  warn     b1, b2, b3  not built yet: the first start builds it
                                  bisector image build
room         ok       b1, b3      9 GiB free
             ok       b2          8 GiB free

b1    `bisector start` would fail there, 1 warning; missing: flex
b2    `bisector start` can begin there, 1 warning
b3    `bisector start` can begin there, 1 warning
gone  was not looked at
"""


def test_in_full_is_what_differs_or_is_bad() -> None:
    assert as_text(side_by_side(FOUND, 65)) == TEXT


def test_what_all_have_alike() -> None:
    same = {f"bench{number}": FOUND["b1"] for number in range(32)}
    lines = as_text(side_by_side(same, 65)).splitlines()
    assert [line.split()[0] for line in lines if "all 32" in line] == ["ssh", "git", "flex", "guest", "room"]
    assert lines[1] == "git          ok       all 32  2.39.5; tried: bisects and skips w…"


def test_many_names_take_more_lines() -> None:
    found = {f"bench{number}": FOUND["b1"] if number else FOUND["b2"] for number in range(9)}
    text = as_text(side_by_side(found, 100))
    for name in found:
        assert text.count(name) >= 3  # two rows that differ, and the sum
    assert max(map(len, text.splitlines())) <= 100


def test_states_have_their_roles() -> None:
    roles = [span.role for line in side_by_side(FOUND, 65) for span in line if span.text.strip() in tuple(Grade)]
    assert roles[:2] == [Role.BETTER, Role.WORSE]


def test_one_machine() -> None:
    assert as_text(side_by_side({"b1": (SSH, GIT)}, 40)) == (
        "ssh  ok       b1  answers\ngit  ok       b1  2.39.5; tried: bisect…\n\nb1  `bisector start` can begin there\n"
    )
