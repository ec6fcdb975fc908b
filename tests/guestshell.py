"""A guest that answers as told: each step of a script is a row, the rest is done."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bisector.core.model import CommandResult


@dataclass(frozen=True)
class Answer:
    stdout: str = ""
    stderr: str = ""
    exit_status: int = 0


@dataclass
class FakeShell:
    """Answers by the first row whose key is in a command; scripts of steps are taken apart."""

    answers: Mapping[str, Answer] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)

    def run(self, command: str, deadline_s: float = 60.0) -> CommandResult:
        if "@step" not in command:
            return self._result(command, self._answer(command))
        stdout = stderr = ""
        for n, step in enumerate(_steps(command)):
            answer = self._answer(step)
            stdout += f"\n@step {n}\n{answer.stdout}"
            stderr += f"\n@step {n}\n{answer.stderr}"
            if answer.exit_status:
                return CommandResult(command, answer.exit_status, stdout, stderr)
        return CommandResult(command, 0, stdout, stderr)

    def stream(self, command: str, on_line: Callable[[str], None], deadline_s: float) -> CommandResult:
        answer = self._answer(command)
        for line in answer.stderr.splitlines():
            on_line(line)
        return self._result(command, answer)

    def put(self, text: str, remote: str) -> None:
        self.written[remote] = text

    def get(self, remote: str, local: Path) -> None:
        local.write_text(self.files[Path(remote).name], encoding="utf-8")

    def _answer(self, command: str) -> Answer:
        self.commands.append(command)
        return next((answer for key, answer in self.answers.items() if key in command), Answer())

    @staticmethod
    def _result(command: str, answer: Answer) -> CommandResult:
        return CommandResult(command, answer.exit_status, answer.stdout, answer.stderr)


def _steps(script: str) -> list[str]:
    parts = script.split("\n{ ")[1:]
    return [part.split("\n} || exit $?")[0] for part in parts]
