"""What a person has run when a long command has ended."""

from contextlib import suppress
from pathlib import Path

import pytest

from bisector.commands.measuring import Notice
from bisector.core.errors import BisectorError, InfraError, Interrupted


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (None, ["3", "run", "one of 3 commits"]),
        (InfraError("no host"), ["4", "run", "no host"]),
        (ZeroDivisionError(), ["70", "run", "a bug in bisector"]),
        (KeyboardInterrupt(), None),
        (Interrupted("interrupted"), None),
    ],
)
def test_it_is_told_how_a_command_ended_by_itself(
    tmp_path: Path, error: BaseException | None, told: list[str] | None
) -> None:
    file = tmp_path / "told"
    command = f"printenv BISECTOR_EXIT_CODE BISECTOR_RUN_DIR BISECTOR_ANSWER >> '{file}'"
    with suppress(BisectorError, ZeroDivisionError, KeyboardInterrupt), Notice(command, Path("run")) as notice:
        notice.exit_code, notice.answer = 3, "one of 3 commits"
        if error is not None:
            raise error
    assert (file.read_text().splitlines() if file.exists() else None) == told


def test_what_was_refused_is_not_told(tmp_path: Path) -> None:
    with suppress(InfraError), Notice(f"touch '{tmp_path}/told'"):
        raise InfraError("before there was a run")
    assert not (tmp_path / "told").exists()


def test_its_own_failure_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    with Notice("echo no bell >&2; exit 9", Path("run")):
        pass
    said = capsys.readouterr().err
    assert said.startswith("bisector: warning: --notify: ")
    assert "exit status 9: no bell" in said
