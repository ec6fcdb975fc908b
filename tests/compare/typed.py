"""Commands as they are typed at the desk."""

import pytest

from bisector.cli import main
from tests.compare.desk import Desk


def compare(desk: Desk, *words: str, code: int = 0) -> None:
    assert main(["compare", *words, "--repo", str(desk.place / "linux")]) == code


def shown(output: pytest.CaptureFixture[str], *words: str) -> str:
    output.readouterr()
    assert main(list(words)) == 0
    return output.readouterr().out
