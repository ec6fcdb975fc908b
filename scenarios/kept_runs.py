"""Runs of bisector that are gone on with where they were stopped: a directory for each, its document, its seconds.

A run has ended when its exit status says so; then what bisector prints of it is kept, and it is not run again. One
that was killed or stopped is gone on with.
"""

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bisector.core.errors import BisectorError, UserError
from bisector.store.log import DATABASE

INTERRUPTED = 130
_ENDED_BY_SIGNAL = 128


def bisector(*arguments: str | Path) -> list[str]:
    """The command line of the tool itself, with this interpreter."""
    return [sys.executable, "-m", "bisector", *map(str, arguments)]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of bisector: what it does, the words after ``bisector``, the seconds that are expected."""

    name: str
    what: str
    words: tuple[str, ...]
    expected_s: float

    @property
    def directory(self) -> str:
        """A name that is another one when what is run is another thing."""
        return f"{self.name}-{hashlib.sha256(chr(0).join(self.words).encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Desk:
    """Where the runs of ``name`` lie; ``tool`` makes the argument vector, ``ends`` are the statuses that end a run."""

    work: Path
    tool: Callable[..., list[str]] = bisector
    name: str = "runs"
    ends: frozenset[int] = frozenset({0})

    def run_dir(self, run: Run) -> Path:
        """The directory of bisector's run."""
        return self.work / "runs" / run.directory

    def document_path(self, run: Run) -> Path:
        """What bisector printed of a run that has ended; so it is not there before."""
        return self.work / f"{run.directory}.json"

    def has_ended(self, run: Run) -> bool:
        """Whether it is not to be run again."""
        return self.document_path(run).is_file()

    def once(self, run: Run, *more: str) -> int:
        """Begin a run that has not ended, with some ``more`` words, or go on with it; the exit status."""
        directory = self.run_dir(run)
        directory.parent.mkdir(parents=True, exist_ok=True)
        began = (directory / DATABASE).is_file()
        words = ("resume",) if began else (*run.words, *more)
        self.say(f"{run.name}: {'going on' if began else run.what}")
        with self.clock(run):
            status = waited_for(self.tool(*words, "--run-dir", directory), self.work)
        if status in self.ends and (document := self.shown(run)) is not None:
            write(self.document_path(run), json.dumps(document))
        return status

    def left(self, runs: Collection[Run], only: Collection[str] = ()) -> list[Run]:
        """Those that have not ended, or what ``only`` names of them; raises :class:`UserError` for a name of none."""
        names = [run.name for run in runs]
        if unknown := next((name for name in only if name not in names), None):
            raise UserError(f"no run is called {unknown}", f"the runs are {', '.join(names)}")
        return [run for run in runs if not self.has_ended(run) and (not only or run.name in only)]

    def each(
        self,
        runs: Iterable[Run],
        more: Callable[[Run], Iterable[str]] = lambda _: (),
        beside: Callable[[Run], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> dict[str, int]:
        """Run one after the other within ``beside``; the exit statuses by name. An interrupted one is the last."""
        statuses = {}
        for run in runs:
            with beside(run):
                statuses[run.name] = self.once(run, *more(run))
            if statuses[run.name] == INTERRUPTED:
                break
        return statuses

    def command(self, work: Callable[[], int]) -> int:
        """The exit status of a command that goes on where it was interrupted."""
        try:
            status = exit_status(work)
        except KeyboardInterrupt:
            status = INTERRUPTED
        if status == INTERRUPTED:
            self.say(f"interrupted; `make {self.name}` goes on")
        return status

    def shown(self, run: Run) -> dict[str, Any] | None:
        """What bisector prints of a run as JSON, whether it has ended or not; None without one."""
        directory = self.run_dir(run)
        if self.has_ended(run):
            document: dict[str, Any] = json.loads(self.document_path(run).read_text(encoding="utf-8"))
            return document
        if not (directory / DATABASE).is_file():
            return None
        command = self.tool("status", "--json", "--run-dir", directory)
        done = subprocess.run(command, stdout=subprocess.PIPE, cwd=self.work, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def clock(self, run: Run) -> "Clock":
        """The seconds that a run has taken."""
        return Clock(self.work / f"{run.directory}.times", self.run_dir(run) / DATABASE)

    def say(self, text: str) -> None:
        """Print a line of progress."""
        sys.stdout.write(f"{self.name}: {text}\n")
        sys.stdout.flush()


@dataclass
class Clock:
    """The seconds of a run, over all its processes; one that was killed counts up to the last fact that it recorded."""

    path: Path
    facts: Path | None
    attempts: list[list[float]] = field(default_factory=list)

    def __enter__(self) -> None:
        self._read()
        self.attempts.append([time.time()])
        write(self.path, json.dumps(self.attempts))

    def __exit__(self, *_: object) -> None:
        self.attempts[-1].append(time.time())
        write(self.path, json.dumps(self.attempts))

    def total_s(self) -> float:
        """Up to now."""
        self._read()
        return sum(max(0.0, ended - began) for began, ended in self.attempts)

    def _read(self) -> None:
        """Attempts without an end get one."""
        self.attempts = []
        with suppress(OSError, ValueError):
            self.attempts = json.loads(self.path.read_text(encoding="utf-8"))
        for attempt in self.attempts:
            if len(attempt) == 1:
                there = self.facts is not None and self.facts.is_file()
                attempt.append(self.facts.stat().st_mtime if there and self.facts is not None else attempt[0])


def exit_status(work: Callable[[], int]) -> int:
    """That of a command, or of the error that ended it, which is told."""
    try:
        return work()
    except BisectorError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return error.exit_code


def waited_for(command: Sequence[str], directory: Path | None = None) -> int:
    """Run a command with our terminal; Ctrl-C reaches it too, and it ends in its own way."""
    with subprocess.Popen(command, cwd=directory) as child:
        while True:
            try:
                status = child.wait()
            except KeyboardInterrupt:
                continue
            return status if status >= 0 else _ENDED_BY_SIGNAL - status


def write(path: Path, text: str) -> None:
    """Whole, or not at all."""
    aside = path.with_name(f"{path.name}.new")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
