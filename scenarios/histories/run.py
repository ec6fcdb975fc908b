"""``make histories``: ten histories with known changes, drawn from a seed, each bisected; a table of what came of it.

Each run has a directory of its own. What has ended is not run again, and what was killed is gone on with. The exit
status is 0 when every answer is right or narrowed; 1 when one is not; 130 when it was interrupted.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from bisector.core import units
from bisector.core.resources import cache_home
from bisector.report.page import markdown
from bisector.report.terminal import plain
from bisector.store.rundir import state_home
from scenarios.histories.draw import Drawn
from scenarios.histories.drift import drifting
from scenarios.histories.judge import Word, judged
from scenarios.histories.make import Histories, make
from scenarios.histories.setups import FRAGMENTS
from scenarios.histories.table import Row, page
from scenarios.kept_runs import INTERRUPTED, Desk, Run, write

SEED = 2017
_NAME = "histories"
# Found, narrowed, and ends that do not differ are answers (docs/commands.md, "Exit codes").
_ANSWERS = frozenset({0, 1, 3})
_FALSE = 1
# What a search takes that ends right, by simulations of these histories, and what a build takes on two cores. Ends that
# do not differ are known to within 5 % after eight pairs, where readings of one kernel spread by 3 %.
_TRIALS, _BUILDS, _BUILD_S = 10, 8, 45.0
_READINGS_OF_ENDS, _ENDS = 16, 2
# All of them take no longer, each no longer than so many times what is expected; and what is made before, and between.
MOST_S = 3 * 3600.0
_SPARE = 2.0
_ASIDE_S = 600.0


def runs(histories: Histories) -> tuple[Run, ...]:
    """A bisection of each history, as a person would type it."""
    return tuple(_run(made.drawn, str(histories.repo)) for made in histories.made)


def _run(drawn: Drawn, repo: str) -> Run:
    fragments = (word for name in FRAGMENTS for word in ("--fragment", name))
    words = ("start", drawn.old_tag, drawn.new_tag, "--repo", repo, *drawn.setup.words, "--fragments-only", *fragments)
    trials, builds = (_TRIALS, _BUILDS) if drawn.changes else (_READINGS_OF_ENDS, _ENDS)
    expected_s = trials * drawn.setup.trial_s + builds * _BUILD_S
    what = f"{units.plural(len(drawn.in_range), 'commit')} on {drawn.setup.name}, about {units.duration(expected_s)}"
    return Run(drawn.name, what, words, expected_s)


def desk_of(seed: int) -> Desk:
    """Where the runs of a seed lie."""
    return Desk(state_home() / _NAME / str(seed), name=_NAME, ends=_ANSWERS)


def bisected(desk: Desk, histories: Histories, seed: int, only: Sequence[str] = (), *, measure: bool = True) -> int:
    """Bisect what is left, or what ``only`` names of it, and write the table; the exit status."""
    desk.work.mkdir(parents=True, exist_ok=True)
    asked = runs(histories)
    if left := desk.left(asked, only) if measure else []:
        desk.say(f"{len(left)} to do, about {units.duration(sum(run.expected_s for run in left))}")
    drift = {made.drawn.name for made in histories.made if made.drawn.setup.drifts}
    statuses = desk.each(
        left, lambda run: _budget(desk, asked, run), lambda run: drifting() if run.name in drift else nullcontext()
    )
    rows = [_row(desk, histories, run) for run in asked]
    shown = page(rows, seed)
    write(desk.work / "histories.md", markdown(shown))
    sys.stdout.write(plain(shown))
    desk.say(f"the table is {desk.work / 'histories.md'}")
    if INTERRUPTED in statuses.values():
        return INTERRUPTED
    return 0 if all(row.judged.word in (Word.RIGHT, Word.NARROWED) for row in rows) else _FALSE


def _budget(desk: Desk, asked: Sequence[Run], run: Run) -> tuple[str, str]:
    """The time of a run: what is expected, and what the others can spare of all that there is."""
    spent_s = sum(desk.clock(one).total_s() for one in asked)
    others_s = sum(one.expected_s for one in asked if not desk.has_ended(one) and one != run)
    spare_s = MOST_S - _ASIDE_S - spent_s - others_s
    return "--budget", f"{round(max(run.expected_s, min(spare_s, _SPARE * run.expected_s)))}s"


def _row(desk: Desk, histories: Histories, run: Run) -> Row:
    made = next(one for one in histories.made if one.drawn.name == run.name)
    status: Mapping[str, object] | None = desk.shown(run)
    return Row(made, run, status, judged(made, status), desk.clock(run).total_s())


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the histories of a seed, bisect what is left of them, and write the table."""
    parser = argparse.ArgumentParser(
        prog="python -m scenarios.histories.run", description="Bisect ten histories with known changes."
    )
    parser.add_argument("--seed", type=int, default=SEED, help=f"what they are drawn from (default: {SEED})")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="bisect this one; repeatable")
    parser.add_argument("--table", action="store_true", help="write the table of what there is, and measure nothing")
    options = parser.parse_args(arguments)
    desk = desk_of(options.seed)

    def work() -> int:
        histories = make(cache_home() / "demo", options.seed)
        return bisected(desk, histories, options.seed, options.only, measure=not options.table)

    return desk.command(work)


if __name__ == "__main__":
    sys.exit(main())
