"""``status``, ``table``, ``log``, ``report`` and ``plot``: what is known of a run, also while it runs."""

import argparse
import shutil
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from rich.console import Console

from bisector.commands.arguments import (
    Verbs,
    add_json,
    add_metric,
    add_run_dir,
    add_verb,
    count,
    objective_of,
    run_directory,
)
from bisector.commands.documents import write_json
from bisector.commands.output import note, save, write, write_document
from bisector.config import options
from bisector.core.errors import UserError
from bisector.core.objective import Objective
from bisector.mail import compose, outbox
from bisector.report import as_html, as_json, illustrations, reporting
from bisector.report.as_text import markdown, plain
from bisector.report.display import print_report
from bisector.report.document import Report
from bisector.report.drawing import Picture, draw
from bisector.report.illustrations import Kind
from bisector.report.summary import footer_lines
from bisector.report.table import report_lines
from bisector.report.text import as_text
from bisector.status import document_of, from_record
from bisector.store.rundir import GIT_LOG, RunDirectory
from bisector.store.store import Store

_WIDTH = 120
_REPORT_EXAMPLES = """\
examples:
  bisector report                            the newest run, also while it runs
  bisector report --format markdown -o report.md
  bisector report --format html -o report.html   one file: sortable, with curves and consoles behind each row
  bisector report --format json | jq -r '.rows[] | "\\(.place) \\(.sha[:12]) \\(.verdict)"'
  bisector report --metric read.clat.p99     what the same runs say by another metric
  bisector report --format mail              the letter that `bisector mail` drafts, to look at
"""
_PLOTS = "plots"
_PLOT_EXAMPLES = """\
examples:
  bisector plot                              every plot of the newest run, also while it runs
  bisector plot --kind curves -o before-and-after.svg
  bisector plot --kind curves --trial 4 --trial 7 -o curves.png
kinds:
  curves     IOPS over time: each job and their sum, a panel for each run, before and after the change
  commits    the value that decides of each commit in the order of history, with levels and the step
  posterior  where in the range the change was believed to be after each trial
"""
_NOTHING = {
    Kind.CURVES: "no curves: these trials left no IOPS log",
    Kind.COMMITS: "no figures by commit: nothing is measured yet",
    Kind.POSTERIOR: "no posterior: it needs both ends measured, and the strategy bayes",
}


class Format(StrEnum):
    """What ``bisector report --format`` takes."""

    TEXT = "text"
    MAIL = "mail"
    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"


RENDERERS: Mapping[Format, Callable[[Report], str]] = {
    Format.TEXT: plain,
    Format.MAIL: compose.render,
    Format.MARKDOWN: markdown,
    Format.JSON: as_json.render,
    Format.HTML: as_html.render,
}


def add(verbs: Verbs) -> None:
    """Register ``status``, ``table``, ``log``, ``report`` and ``plot``."""
    _add_state(verbs)
    _add_report(verbs)
    _add_plot(verbs)


def _add_state(verbs: Verbs) -> None:
    for name, command in (("status", status), ("table", table)):
        shown = add_verb(verbs, name, command)
        add_run_dir(shown)
        add_json(shown)
        if command is table:
            add_metric(shown)
    add_run_dir(add_verb(verbs, "log", log))


def _add_report(verbs: Verbs) -> None:
    verb = add_verb(verbs, "report", report, examples=_REPORT_EXAMPLES, disturbs=True)
    verb.add_argument("--format", type=Format, choices=tuple(Format), default=Format.TEXT, help="default: text")
    verb.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to FILE instead of standard output")
    add_metric(verb)
    add_run_dir(verb)


def _add_plot(verbs: Verbs) -> None:
    verb = add_verb(verbs, "plot", plot, examples=_PLOT_EXAMPLES, disturbs=True)
    verb.add_argument(
        "--kind",
        type=Kind,
        choices=tuple(Kind),
        action="append",
        default=[],
        help="which plot; repeatable (default: all)",
    )
    verb.add_argument(
        "--trial",
        type=count,
        action="append",
        default=[],
        metavar="N",
        help="curves of trial N, as numbered in the table; repeatable",
    )
    verb.add_argument("--format", type=Picture, choices=tuple(Picture), help="default: by the ending of FILE, else png")
    verb.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE|DIR",
        help=f"a file, or a directory (default: {_PLOTS} in the run directory)",
    )
    add_run_dir(verb)


def status(arguments: argparse.Namespace) -> int:
    """How a run stands, also while it runs."""
    run = run_directory(arguments)
    with Store.open(run.database, readonly=True) as store:
        view = from_record.view(run, store)
    if arguments.json:
        write_json(document_of.status(view))
    else:
        write(as_text((*footer_lines(view, _width()),)))
    return 0


def table(arguments: argparse.Namespace) -> int:
    """The verdict table of a run, also while it runs."""
    run = run_directory(arguments)
    with Store.open(run.database, readonly=True) as store:
        view = from_record.view(run, store, objective_of(arguments))
    if arguments.json:
        write_json(document_of.table(view))
    elif sys.stdout.isatty():
        print_report(Console(), view)
    else:
        write(as_text(report_lines(view, footer_lines(view, _WIDTH), _WIDTH)))
    return 0


def log(arguments: argparse.Namespace) -> int:
    """Git's own log of the bisection, as of the last verdict."""
    run = run_directory(arguments)
    path = run.path / GIT_LOG
    if not path.is_file():
        raise UserError("git has no log of this run yet: both ends are measured first", "bisector status")
    write(path.read_text(encoding="utf-8"))
    return 0


def report(arguments: argparse.Namespace) -> int:
    """Render the record."""
    run = run_directory(arguments)
    with Store.open(run.database, readonly=True) as store:
        text = _text(run, store, arguments.format, objective_of(arguments))
    if arguments.output is None:
        write_document(text)
        return 0
    try:
        arguments.output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot write {arguments.output}: {error.strerror}", "name another file with -o FILE"
        ) from error
    return 0


def plot(arguments: argparse.Namespace) -> int:
    """Draw and say where the files are."""
    run = run_directory(arguments)
    kinds = tuple(dict.fromkeys(arguments.kind)) or ((Kind.CURVES,) if arguments.trial else tuple(Kind))
    paths = _paths(kinds, arguments.output or run.path / _PLOTS, arguments.format)
    with Store.open(run.database, readonly=True) as store:
        source = illustrations.source(run, store, tuple(dict.fromkeys(arguments.trial)))
    made = {kind: illustrations.plotted(kind, source) for kind in kinds}
    for complaint in (text for one in made.values() for text in one.complaints):
        note(f"bisector: not drawn: {complaint}")
    missing = [kind for kind, one in made.items() if one.plot is None]
    if len(missing) == len(made) or (missing and arguments.kind):
        raise UserError("; ".join(_NOTHING[kind] for kind in missing), "bisector status")
    for kind, one in made.items():
        if one.plot is None:
            note(f"bisector: {_NOTHING[kind]}")
            continue
        path, picture = paths[kind]
        save(path, draw(one.plot, picture))
        write(f"{path}\n")
    return 0


def _width() -> int:
    return shutil.get_terminal_size((_WIDTH, 24)).columns


def _text(run: RunDirectory, store: Store, form: Format, by: Objective | None) -> str:
    """A page alone has more of the run than the document."""
    if form is Format.HTML:
        return illustrations.page(illustrations.source(run, store, by=by))
    return RENDERERS[form](_document(run, store, form, by))


def _document(run: RunDirectory, store: Store, form: Format, by: Objective | None) -> Report:
    """A letter alone needs to know whom it is from."""
    if form is not Format.MAIL:
        return reporting.report(run, store, by)
    if by is not None:
        raise UserError("a letter tells of the metric that decided", "leave out --metric and --over")
    return outbox.Post(run, store, options.from_json(store.bisection().settings).mail).report()


def _paths(kinds: tuple[Kind, ...], output: Path, wanted: Picture | None) -> dict[Kind, tuple[Path, Picture]]:
    """Where each plot goes, and as what; a name that ends like a picture is a file. Raises :class:`UserError`."""
    ending = output.suffix.removeprefix(".").lower()
    if ending not in tuple(Picture) or output.is_dir():
        picture = wanted or Picture.PNG
        return {kind: (output / f"{kind}.{picture}", picture) for kind in kinds}
    if len(kinds) > 1:
        raise UserError(f"{output} is one file, and there are {len(kinds)} plots", f"one of them: --kind {kinds[0]}")
    if wanted not in (None, Picture(ending)):
        raise UserError(f"{output} has the ending of another format than --format {wanted}", "leave out --format")
    return {kind: (output, Picture(ending)) for kind in kinds}
