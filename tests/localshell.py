"""A guest that is this host: scripts for a guest run here, in directories of a test."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bisector.core.shell import CommandResult


@dataclass
class LocalShell:
    """Runs what it is told; ``moved`` are paths of the guest and what stands for them here."""

    moved: dict[str, str]
    commands: list[str] = field(default_factory=list)

    def run(self, command: str, deadline_s: float = 60.0) -> CommandResult:
        return self.stream(command, lambda line: None, deadline_s)

    def stream(self, command: str, on_line: Callable[[str], None], deadline_s: float) -> CommandResult:
        self.commands.append(command)
        done = subprocess.run(
            ["sh", "-c", self.here(command)], capture_output=True, text=True, timeout=deadline_s, check=False
        )
        for line in done.stderr.splitlines():
            on_line(line)
        return CommandResult(command, done.returncode, done.stdout, done.stderr)

    def put(self, text: str, remote: str) -> None:
        Path(self.here(remote)).write_text(self.here(text), encoding="utf-8")

    def send(self, local: Path, remote: str) -> None:
        shutil.copy(local, self.here(remote))

    def get(self, remote: str, local: Path) -> None:
        assert not os.path.lexists(local)
        shutil.copyfile(self.here(remote), local)

    def here(self, text: str) -> str:
        for guest, host in self.moved.items():
            text = text.replace(guest, host)
        return text
