"""``report``: all that is known of a run, as text, Markdown, JSON, HTML or a letter."""

import argparse
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from bisector.commands.arguments import Verbs, add_metric, add_run_dir, add_verb, objective_of, run_directory
from bisector.commands.output import write_document
from bisector.config import options
from bisector.core.errors import UserError
from bisector.core.objective import Objective
from bisector.mail import compose, outbox
from bisector.report import as_html, as_json, as_markdown, as_text, illustrations, reporting
from bisector.report.document import Report
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store

_EXAMPLES = """\
examples:
  bisector report                            the newest run, also while it runs
  bisector report --format markdown -o report.md
  bisector report --format html -o report.html   one file: sortable, with curves and consoles behind each row
  bisector report --format json | jq -r '.rows[] | "\\(.place) \\(.sha[:12]) \\(.verdict)"'
  bisector report --metric read.clat.p99     what the same runs say by another metric
  bisector report --format mail              the letter that `bisector mail` drafts, to look at
"""


class Format(StrEnum):
    """What ``bisector report --format`` takes."""

    TEXT = "text"
    MAIL = "mail"
    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"


RENDERERS: Mapping[Format, Callable[[Report], str]] = {
    Format.TEXT: as_text.render,
    Format.MAIL: compose.render,
    Format.MARKDOWN: as_markdown.render,
    Format.JSON: as_json.render,
    Format.HTML: as_html.render,
}


def add(verbs: Verbs) -> None:
    """Register ``report``."""
    verb = add_verb(verbs, "report", report,
                    examples=_EXAMPLES, disturbs=True)  # fmt: skip
    verb.add_argument("--format", type=Format, choices=tuple(Format), default=Format.TEXT, help="default: text")
    verb.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to FILE instead of standard output")
    add_metric(verb)
    add_run_dir(verb)


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
