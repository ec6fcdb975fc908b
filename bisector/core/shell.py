"""A root shell in a running guest, as storage and workload see it, and several commands in one round trip.

A round trip over SSH takes 0.1 to 0.3 s in an emulated guest, longer than most of the commands. Each failure still
names its command.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from bisector.core.errors import BisectorError

_MARK = "@step"
_TAIL_LINES = 20
TIMED_OUT = 124  # the exit status of timeout(1) for a command that it ended


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command that ended by itself, in a guest or on this host; for a step, its own output alone."""

    command: str
    exit_status: int
    stdout: str
    stderr: str

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines of its output, of standard error if that is not empty."""
        lines = [line.strip() for line in (self.stderr or self.stdout).splitlines()]
        return tuple(line for line in lines if line)[-_TAIL_LINES:]

    @property
    def reason(self) -> str:
        """``lvconvert: exit 5: last line``."""
        return ": ".join((self.command.split()[0], f"exit {self.exit_status}", *self.tail[-1:]))


class Shell(Protocol):
    """A root shell in a guest.

    Every method may raise ``KernelFault`` for a dead kernel, and ``InfraError`` for a lost connection to a live one.
    """

    def run(self, command: str, deadline_s: float = 60.0) -> CommandResult:
        """Run a command to its end, whatever its exit status."""
        ...

    def stream(self, command: str, on_line: Callable[[str], None], deadline_s: float) -> CommandResult:
        """Run a command to its end, calling ``on_line`` with each line of standard error as it comes."""
        ...

    def put(self, text: str, remote: str) -> None:
        """Write a small text file in the guest."""
        ...

    def send(self, local: Path, remote: str) -> None:
        """Copy a file of this host, possibly a large one, into the guest, with its mode."""
        ...

    def get(self, remote: str, local: Path) -> None:
        """Copy a file out of the guest."""
        ...


Blame: TypeAlias = Callable[[CommandResult], BisectorError]


@dataclass(frozen=True, slots=True)
class Step:
    """A shell command, and who is to blame if it fails."""

    command: str
    blame: Blame


def run_steps(shell: Shell, steps: Sequence[Step], deadline_s: float) -> tuple[str, ...]:
    """Run steps until the first failure, and return the standard output of each.

    Raises the error that the failed step's ``blame`` returns, and the errors of the shell itself.
    """
    marked = (
        f"printf '\\n{_MARK} {n}\\n'; printf '\\n{_MARK} {n}\\n' >&2\n{{ {step.command}\n}} || exit $?"
        for n, step in enumerate(steps)
    )
    # Standard input is closed: a tool that asks a question must fail, not wait.
    finished = shell.run("\n".join(("exec </dev/null", "export LC_ALL=C", *marked)), deadline_s)
    stdout, stderr = _split(finished.stdout, len(steps)), _split(finished.stderr, len(steps))
    if finished.exit_status != 0 or len(stdout) < len(steps):
        last = max(len(stdout) - 1, 0)
        said = ("".join(stdout[-1:]), "".join(stderr[-1:]))
        raise steps[last].blame(CommandResult(steps[last].command, finished.exit_status, *said))
    return stdout


def _split(output: str, count: int) -> tuple[str, ...]:
    """The text after each mark, in order; at most ``count`` texts, whatever the guest prints."""
    parts: list[list[str]] = []
    for line in output.splitlines():
        if len(parts) < count and line == f"{_MARK} {len(parts)}":
            parts.append([])
        elif parts:
            parts[-1].append(line)
    return tuple("\n".join(part).strip("\n") for part in parts)
