"""``status``, ``table`` and ``log`` show how a run stands, also while it runs.

They are asked again and again beside a measurement, so they do not load what letters and pages need.
"""

import argparse
import shutil
import sys

from rich.console import Console

from bisector.commands.arguments import (
    Verbs,
    add_json,
    add_metric,
    add_run,
    add_verb,
    objective_of,
    run_directory,
    write_json,
)
from bisector.commands.comparison_show import show
from bisector.commands.output import write
from bisector.core.errors import UserError
from bisector.report.display import print_report
from bisector.report.summary import footer_lines
from bisector.report.table import report_lines
from bisector.report.terminal import as_text
from bisector.status import from_record
from bisector.store.rundir import GIT_LOG
from bisector.store.store import Store

_EXAMPLES = {
    "status": """\
examples:
  bisector status                            the newest run
  bisector status --json | jq -r '.first_fixed.sha // .state'
""",
    "table": """\
examples:
  bisector table                             the newest run, also while it runs
  bisector table --times --logs              where the time went, and why commits were skipped
  bisector table --run-dir RUN --metric read.clat.p99   the same runs by another metric
""",
    "log": """\
examples:
  bisector log > bisect.log                  for `git bisect replay bisect.log`
""",
}
_WIDTH = 120


def add(verbs: Verbs) -> None:
    """Register ``status``, ``table`` and ``log``."""
    for name, command in (("status", status), ("table", table)):
        shown = add_verb(verbs, name, command, examples=_EXAMPLES[name])
        add_run(shown)
        add_json(shown)
        if command is table:
            add_metric(shown)
            shown.add_argument("--times", action="store_true", help="where each trial's seconds went, too")
            shown.add_argument("--logs", action="store_true", help="the last log lines of skipped commits, too")
    add_run(add_verb(verbs, "log", log, examples=_EXAMPLES["log"]))


def status(arguments: argparse.Namespace) -> int:
    """How a run stands, also while it runs."""
    run = run_directory(arguments)
    with Store.open(run.database, readonly=True) as store:
        if (plan := store.plan) is not None:
            return show(run, store, plan, as_json=arguments.json)
        view = from_record.view(run, store)
    if arguments.json:
        write_json(view)
    else:
        write(as_text((*footer_lines(view, _width()),)))
    return 0


def table(arguments: argparse.Namespace) -> int:
    """The verdict table of a run, also while it runs."""
    run = run_directory(arguments)
    with Store.open(run.database, readonly=True) as store:
        if (plan := store.plan) is not None:
            return show(run, store, plan, as_json=arguments.json)
        view = from_record.view(run, store, objective_of(arguments))
    if arguments.json:
        write_json(view)
    elif sys.stdout.isatty():
        print_report(Console(), view, logs=arguments.logs, times=arguments.times)
    else:
        footer = footer_lines(view, _WIDTH)
        write(as_text(report_lines(view, footer, _WIDTH, logs=arguments.logs, times=arguments.times)))
    return 0


def log(arguments: argparse.Namespace) -> int:
    """Git's own log of the bisection, as of the last verdict."""
    run = run_directory(arguments)
    path = run.path / GIT_LOG
    with Store.open(run.database, readonly=True) as store:
        if store.plan is not None:
            raise UserError(f"{run.path} holds a comparison, in which git bisects nothing", "bisector table")
        if store.by_others:
            raise UserError(f"{run.path} was imported, and git bisected nothing in it", "bisector table")
    if not path.is_file():
        raise UserError("git has no log of this run yet: both ends are measured first", "bisector status")
    write(path.read_text(encoding="utf-8"))
    return 0


def _width() -> int:
    return shutil.get_terminal_size((_WIDTH, 24)).columns
