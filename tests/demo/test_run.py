"""The judge of the demonstration; the demonstration itself is ``make demo``."""

from pathlib import Path

import pytest

from bisector.errors import UserError
from tests.demo.history import History, MadeCommit
from tests.demo.run import newest_tarball, verdict

CULPRIT = MadeCommit("c" * 40, "dm cache policy smq: mend", "code", "k")
MADE = History("/linux", "a" * 40, "b" * 40, CULPRIT, (CULPRIT,))


@pytest.mark.parametrize(
    ("first_fixed", "right"),
    [
        pytest.param({"sha": "c" * 40, "subject": "dm cache policy smq: mend"}, True, id="the culprit"),
        pytest.param({"sha": "d" * 40, "subject": "another"}, False, id="another commit"),
        pytest.param(None, False, id="none"),
    ],
)
def test_only_the_culprit_is_right(first_fixed: dict[str, str] | None, right: bool) -> None:
    answer, sentence = verdict(MADE, {"first_fixed": first_fixed, "state": "narrowed"})
    assert answer is right
    assert sentence.startswith("RIGHT" if right else "WRONG")
    assert "c" * 12 in sentence


def test_the_newest_source_is_taken_by_number(tmp_path: Path) -> None:
    for name in ("linux-source-6.1.tar.xz", "linux-source-6.12.tar.xz", "linux-source-6.9.tar.xz", "other.tar.xz"):
        (tmp_path / name).touch()
    assert newest_tarball(tmp_path).name == "linux-source-6.12.tar.xz"


def test_no_source_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no linux-source"):
        newest_tarball(tmp_path)
