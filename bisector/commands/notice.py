"""``--notify``: a person's command that is run once when a long command has ended by itself."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bisector.commands.output import note
from bisector.core.errors import BisectorError, Interrupted
from bisector.host import process

_DEADLINE_S = 60.0


@dataclass(slots=True)
class Notice:
    """What is told, once there is a run to tell of: a command that was refused, or was interrupted, is not.

    The run is told of when its lock is free again, so that the command can look at it.
    """

    command: str = ""
    run_dir: Path | None = None
    exit_code: int = 0
    answer: str = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.command or self.run_dir is None or isinstance(error, (KeyboardInterrupt, Interrupted)):
            return
        if error is not None:
            known = isinstance(error, BisectorError)
            self.exit_code = error.exit_code if isinstance(error, BisectorError) else BisectorError.exit_code
            self.answer = str(error) if known else "a bug in bisector"
        self._run()

    def _run(self) -> None:
        told = {
            "BISECTOR_EXIT_CODE": str(self.exit_code),
            "BISECTOR_RUN_DIR": str(self.run_dir),
            "BISECTOR_ANSWER": self.answer,
        }
        try:
            process.run(("sh", "-c", self.command), deadline_s=_DEADLINE_S, env={**os.environ, **told})
        except (process.CommandFailed, process.CommandMissing, process.CommandTimeout, OSError) as failed:
            note(f"bisector: warning: --notify: {failed}")


def add_notify(verb: argparse.ArgumentParser) -> None:
    """``--notify`` of a command without settings of its own; without it counts what the run has on record."""
    verb.add_argument("--notify", metavar="COMMAND", help="command that runs once when this one has ended by itself")
