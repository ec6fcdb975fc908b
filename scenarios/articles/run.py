"""``make articles``: the recorded sets again, scaled to this machine, and one page of what came of them.

Each run has a directory of its own. What has ended is not run again, and what was killed is gone on with. The exit
status is 0 when everything ran, whatever held; 1 when something could not be measured; 130 when it was interrupted.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bisector.core.figures import Run as PhaseRun
from bisector.core.resources import cache_home
from bisector.report.page import html, markdown
from bisector.store.rundir import TRIALS, state_home
from bisector.workload.fio import output
from scenarios import kept_runs
from scenarios.articles import kernels, sets
from scenarios.articles.articles import Article, articles
from scenarios.articles.findings import Measured, run_of
from scenarios.articles.page import Spent, page
from scenarios.articles.sets import Run
from scenarios.kept_runs import INTERRUPTED, Clock, waited_for, write

_INCOMPLETE = 1
_NAME = "articles"


class Desk(kept_runs.Desk):
    """Where the articles' runs lie, and what is read of them."""

    def build(self, made: kernels.Kernels) -> None:
        """Build every kernel that is compared, so that no run has a build in it; one that fails, its run tells of."""
        with Clock(self.work / "builds.times", None):
            for commit in made.built:
                words = ("kernel", "build", commit, "--repo", made.repo, "--run-dir", self.work / "build")
                if (status := waited_for(self.tool(*words, *sets.fragments()), self.work)) == INTERRUPTED:
                    raise KeyboardInterrupt
                if status:
                    self.say(f"{commit}: its build ended with {status}")

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
            if not self.has_ended(run):
                ended = (
                    f"bisector ended with exit status {failed[run.name]}" if run.name in failed else "it was not run"
                )
                missing[run.name] = "; ".join(filter(None, (ended, _standing(document))))
        return Measured(documents, of_phases, missing)

    def spent(self, run: Run) -> Spent:
        """How long a run took, as far as is known."""
        document = self.shown(run) or {}
        builds_s = sum(trial["build_s"] or 0.0 for trial in document.get("trials", ()))
        took_s = self.clock(run).total_s()
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


def again(desk: Desk, made: kernels.Kernels, only: Sequence[str] = (), *, measure: bool = True) -> int:
    """Measure what is missing, or what ``only`` names of it, and write the page; the exit status."""
    runs, about = sets.runs(made), articles(made)
    left = desk.left(runs, only) if measure else []
    if left:
        desk.build(made)
    failed = {name: status for name, status in desk.each(left).items() if status}
    measured = desk.measured(runs, about, failed)
    absent = {sets.SUBMIT: made.no_patch} if made.no_patch else {}
    spent = {run.name: desk.spent(run) for run in runs}
    shown = page(
        about,
        runs,
        replace(measured, missing={**measured.missing, **absent}),
        spent,
        Clock(desk.work / "builds.times", None).total_s(),
    )
    write(desk.work / "articles.md", markdown(shown))
    write(desk.work / "articles.html", html(shown))
    desk.say(shown.title)
    desk.say(f"the page is {desk.work / 'articles.html'}, and {desk.work / 'articles.md'} as text")
    if INTERRUPTED in failed.values():
        return INTERRUPTED
    return _INCOMPLETE if measured.missing else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m scenarios.articles.run", description="Run the recorded sets again, and write a page of it."
    )
    parser.add_argument("--only", action="append", default=[], metavar="RUN", help="measure this run alone; repeatable")
    parser.add_argument("--page", action="store_true", help="write the page of what there is, and measure nothing")
    options = parser.parse_args(arguments)
    desk = Desk(state_home() / _NAME, name=_NAME)

    def work() -> int:
        return again(desk, kernels.make(cache_home() / "demo", desk.work), options.only, measure=not options.page)

    return desk.command(work)


if __name__ == "__main__":
    sys.exit(main())
