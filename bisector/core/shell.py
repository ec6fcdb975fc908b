"""A root shell in a running guest, as storage and workload see it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A finished command in the guest."""

    command: str
    exit_status: int
    stdout: str
    stderr: str


class Shell(Protocol):
    """A root shell in a running guest, as storage and workload see it.

    Every method may raise what the caller of the trial sorts out: a dead kernel is a
    ``KernelFault``, a lost connection to a live one an ``InfraError``.
    """

    def run(self, command: str, deadline_s: float = 60.0) -> CommandResult:
        """Run to the end, whatever the exit status."""
        ...

    def stream(self, command: str, on_line: Callable[[str], None], deadline_s: float) -> CommandResult:
        """Run to the end, handing over each line of standard error as it comes."""
        ...

    def put(self, text: str, remote: str) -> None:
        """Write a small text file in the guest."""
        ...

    def get(self, remote: str, local: Path) -> None:
        """Copy a file out of the guest."""
        ...
