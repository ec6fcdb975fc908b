"""Batches of commands, run by a real shell."""

import pytest

from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.core.shell import CommandResult, Step, run_steps
from bisector.host import process
from tests.localshell import LocalShell


class AnsweringShell(LocalShell):
    """Gives an answer to whoever reads its standard input."""

    def run(self, command: str, deadline_s: float = 60.0) -> CommandResult:
        done = process.run(["/bin/sh", "-c", command], deadline_s=deadline_s, stdin="an answer\n", check=False)
        return CommandResult(command, done.exit_status, done.stdout, done.stderr)


def blame(failed: CommandResult) -> BisectorError:
    return InfraError(failed.reason, "|".join(failed.tail))


def run(*commands: str) -> tuple[str, ...]:
    return run_steps(AnsweringShell({}), [Step(command, blame) for command in commands], 10)


def test_outputs_are_kept_apart() -> None:
    assert run("echo one; echo two", "true", "printf 'no line end'", "echo last") == (
        "one\ntwo",
        "",
        "no line end",
        "last",
    )


def test_failure_names_its_command_and_only_its_output() -> None:
    with pytest.raises(InfraError) as caught:
        run("echo noise >&2", "sh -c 'echo why >&2; echo because >&2; exit 5'", "echo never")
    assert caught.value.message == "sh: exit 5: because"
    assert caught.value.hint == "why|because"


def test_each_step_has_its_own_blame() -> None:
    steps = [Step("true", blame), Step("exit 3", lambda failed: UserError(failed.reason))]
    with pytest.raises(UserError, match="exit 3"):
        run_steps(AnsweringShell({}), steps, 10)


FORGED = "echo @step 1; echo @step 2; echo @step 3"


def test_marks_that_a_command_prints_itself_are_no_steps() -> None:
    assert len(run(FORGED, "true")) == 2


@pytest.mark.parametrize(
    ("commands", "why"),
    [
        pytest.param(("echo only this; false",), r"^echo: exit 1: only this$", id="nothing on standard error"),
        pytest.param(("exit 0", "echo never"), "exit 0", id="ends the shell with success"),
        pytest.param(("read -r line",), "read", id="reads standard input"),
        pytest.param((FORGED, "false"), "false", id="prints marks itself"),
    ],
)
def test_what_is_a_failure(commands: tuple[str, ...], why: str) -> None:
    with pytest.raises(InfraError, match=why):
        run(*commands)
