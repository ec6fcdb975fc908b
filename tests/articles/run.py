"""``make articles``: the recorded sets again, scaled to this machine, and one page of what came of them.

Each run has a directory of its own. What has ended is not run again, and what was killed is gone on with. The exit
status is 0 when everything ran, whatever held; 1 when something could not be measured; 130 when it was interrupted.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bisector.core.errors import BisectorError
from bisector.core.figures import Run as PhaseRun
from bisector.core.resources import cache_home
from bisector.report import as_html
from bisector.report.as_text import markdown
from bisector.store.database import DATABASE
from bisector.store.run_files import TRIALS
from bisector.store.rundir import state_home
from bisector.workload.fio import output
from tests.articles import kernels, sets
from tests.articles.articles import Article, articles
from tests.articles.findings import Measured, run_of
from tests.articles.page import Spent, page
from tests.articles.sets import Run
from tests.demo.run import bisector

_INCOMPLETE, _INTERRUPTED = 1, 130
_ENDED_BY_SIGNAL = 128


@dataclass(frozen=True, slots=True)
class Desk:
    """Where it all lies, and the command: ``tool`` makes its argument vector."""

    work: Path
    tool: Callable[..., list[str]] = bisector

    def run_dir(self, run: Run) -> Path:
        """The directory of bisector's run."""
        return self.work / "runs" / run.directory

    def document_path(self, run: Run) -> Path:
        """What bisector printed of a run that has ended well; so it is not there before."""
        return self.work / f"{run.directory}.json"

    def once(self, run: Run) -> int:
        """Begin a run that has not ended well, or go on with it; the exit status."""
        directory = self.run_dir(run)
        directory.parent.mkdir(parents=True, exist_ok=True)
        began = (directory / DATABASE).is_file()
        words = ("resume",) if began else run.words
        say(f"{run.name}: {'going on' if began else run.what}")
        with Clock(self.work / f"{run.directory}.times", directory / DATABASE):
            status = waited_for(self.tool(*words, "--run-dir", directory), self.work)
        if status == 0:
            _write(self.document_path(run), json.dumps(self.shown(run)))
        return status

    def shown(self, run: Run) -> dict[str, Any] | None:
        """What bisector prints of a run as JSON, whether it has ended or not; None without one."""
        directory = self.run_dir(run)
        if self.document_path(run).is_file():
            document: dict[str, Any] = json.loads(self.document_path(run).read_text(encoding="utf-8"))
            return document
        if not (directory / DATABASE).is_file():
            return None
        command = self.tool("status", "--json", "--run-dir", directory)
        done = subprocess.run(command, stdout=subprocess.PIPE, cwd=self.work, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def build(self, made: kernels.Kernels) -> None:
        """Build every kernel that is compared, so that no run has a build in it; one that fails, its run tells of."""
        with Clock(self.work / "builds.times", None):
            for commit in made.built:
                words = ("kernel", "build", commit, "--repo", made.repo, "--run-dir", self.work / "build")
                if (status := waited_for(self.tool(*words, *sets.fragments()), self.work)) == _INTERRUPTED:
                    raise KeyboardInterrupt
                if status:
                    say(f"{commit}: its build ended with {status}")

    def measured(self, runs: Iterable[Run], cells: Iterable[Article], failed: Mapping[str, int]) -> Measured:
        """What bisector shows of every run so far; ``failed`` has exit statuses."""
        phases = {cell.phase for article in cells for cell in article.cells if cell.phase}
        documents: dict[str, Mapping[str, Any]] = {}
        of_phases: dict[str, Mapping[tuple[int, str], PhaseRun]] = {}
        missing: dict[str, str] = {}
        for run in runs:
            document = self.shown(run)
            if document is not None:
                documents[run.name] = document
                of_phases[run.name] = dict(phase_runs(self.run_dir(run), document, phases))
            if not self.document_path(run).is_file():
                ended = (
                    f"bisector ended with exit status {failed[run.name]}" if run.name in failed else "it was not run"
                )
                missing[run.name] = "; ".join(filter(None, (ended, _standing(document))))
        return Measured(documents, of_phases, missing)

    def spent(self, run: Run) -> Spent:
        """How long a run took, as far as is known."""
        document = self.shown(run) or {}
        builds_s = sum(trial["build_s"] or 0.0 for trial in document.get("trials", ()))
        took_s = Clock(self.work / f"{run.directory}.times", self.run_dir(run) / DATABASE).total_s()
        return Spent(max(0.0, took_s - builds_s), builds_s)


def _standing(document: Mapping[str, Any] | None) -> str:
    return str((document or {}).get("standing") or (document or {}).get("message") or "")


def phase_runs(
    run_dir: Path, document: Mapping[str, Any], phases: Iterable[str]
) -> Iterable[tuple[tuple[int, str], PhaseRun]]:
    """The runs of the trials that count which are not judged: bisector keeps what fio printed of each."""
    numbers = {one["n"] for row in document.get("rows", ()) for one in row["values"]}
    for n in sorted(numbers):
        for phase in phases:
            for path in (run_dir / TRIALS).glob(f"{n:04d}-*/{phase}/fio.json"):
                yield (n, phase), run_of(output.parse_json(path.read_text(encoding="utf-8")), phase)


@dataclass
class Clock:
    """The seconds of a run, over all its processes; one that was killed counts up to the last fact that it recorded."""

    path: Path
    facts: Path | None
    attempts: list[list[float]] = field(default_factory=list)

    def __enter__(self) -> None:
        self._read()
        self.attempts.append([time.time()])
        _write(self.path, json.dumps(self.attempts))

    def __exit__(self, *_: object) -> None:
        self.attempts[-1].append(time.time())
        _write(self.path, json.dumps(self.attempts))

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


def waited_for(command: Sequence[str], directory: Path) -> int:
    """Run a command with our terminal; Ctrl-C reaches it too, and it ends in its own way."""
    with subprocess.Popen(command, cwd=directory) as child:
        while True:
            try:
                status = child.wait()
            except KeyboardInterrupt:
                continue
            return status if status >= 0 else _ENDED_BY_SIGNAL - status


def _write(path: Path, text: str) -> None:
    """Whole, or not at all."""
    aside = path.with_name(f"{path.name}.new")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def say(text: str) -> None:
    """A line of ours."""
    sys.stdout.write(f"articles: {text}\n")
    sys.stdout.flush()


def again(desk: Desk, made: kernels.Kernels, only: Sequence[str] = (), *, measure: bool = True) -> int:
    """Measure what is missing, or what ``only`` names of it, and write the page; the exit status."""
    runs, about = sets.runs(made), articles(made)
    failed: dict[str, int] = {}
    left = [run for run in runs if not desk.document_path(run).is_file() and (not only or run.name in only)]
    if measure and left:
        desk.build(made)
    for run in left if measure else ():
        if status := desk.once(run):
            failed[run.name] = status
            if status == _INTERRUPTED:
                break
    measured = desk.measured(runs, about, failed)
    spent = {run.name: desk.spent(run) for run in runs}
    shown = page(about, runs, measured, spent, Clock(desk.work / "builds.times", None).total_s())
    _write(desk.work / "articles.md", markdown(shown))
    _write(desk.work / "articles.html", as_html.render_page(shown))
    say(shown.title)
    say(f"the page is {desk.work / 'articles.html'}, and {desk.work / 'articles.md'} as text")
    if _INTERRUPTED in failed.values():
        say("interrupted; `make articles` goes on")
        return _INTERRUPTED
    return _INCOMPLETE if measured.missing else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.articles.run", description="Run the recorded sets again, and write a page of it."
    )
    parser.add_argument("--only", action="append", default=[], metavar="RUN", help="measure this run alone; repeatable")
    parser.add_argument("--page", action="store_true", help="write the page of what there is, and measure nothing")
    options = parser.parse_args(arguments)
    desk = Desk(state_home() / "articles")
    try:
        made = kernels.make(cache_home() / "demo", desk.work)
        return again(desk, made, options.only, measure=not options.page)
    except KeyboardInterrupt:
        say("interrupted; `make articles` goes on")
        return _INTERRUPTED
    except BisectorError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
