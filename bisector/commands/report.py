"""``report``, ``plot`` and ``mail``: a run's record as a document, as pictures and as a letter."""

import argparse
import shlex
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from bisector.commands.arguments import (
    SEARCH_SETTINGS,
    TWO_SIDED_SETTINGS,
    Verbs,
    add_verb,
    count,
    given_settings,
    known_run,
    objective_of,
    one_of,
    repeatable,
    run_directory,
)
from bisector.commands.output import note, save, write, write_document, write_rows
from bisector.config import Settings, options
from bisector.core import json_document
from bisector.core.errors import BisectorError, UserError
from bisector.core.metric import is_short, named, short
from bisector.core.objective import Objective
from bisector.core.printable import clean
from bisector.git.repository import Repository
from bisector.mail import compose, outbox, smtp
from bisector.mail.compose import Proposal, parse, propose
from bisector.report import comparison, page, reporting, sections
from bisector.report.blocks import Role
from bisector.report.comparison import ComparisonReport
from bisector.report.comparison_plots import plots_of, rows_of
from bisector.report.document import Basis, Report
from bisector.report.drawing import Picture, Plot, draw, following
from bisector.report.page import PlotKind, html, markdown
from bisector.report.plots import curves_of
from bisector.report.terminal import plain
from bisector.status.blocks import Blocks, names
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store

_REPORT_EXAMPLES = """\
examples:
  bisector report                            the newest run, also while it runs
  bisector report --format markdown -o report.md
  bisector report --format html -o report.html   one file: plots, and a table that sorts; behind
                                             each row its console and its .config
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
  bisector plot --metric read.clat.p99       by another metric, of a comparison or a bisection
kinds:
  curves     IOPS over time of each job and of all together, before and after the change; a panel
             for each run
  commits    the value that decides of each commit in the order of history, with levels and the step
of a comparison:
  ratios     each kernel against the first one, with its interval; a panel for each metric, and one
             for differences where a figure is zero
  runs       every run in the order of measuring, blocks joined
  curves     the IOPS that fio logged of every kernel, over time, in the last block of each setup
             that counts
"""
_MAIL_EXAMPLES = """\
examples:
  bisector mail                              write report.eml into the run directory, and propose
                                             recipients
  bisector mail --send --to dm-devel@lists.linux.dev,snitzer@kernel.org
  bisector mail --send --proposed            to the proposed recipients
  bisector mail --send --to LIST --follows RUN   in the thread of another run's report
settings: [mail] of bisector.toml; mail.from may also come from the run's record; the login is in
BISECTOR_SMTP_USERNAME and BISECTOR_SMTP_PASSWORD, or in the file mail.login_file
"""
_NOTHING = {
    PlotKind.CURVES: "no curves: these trials left no IOPS log",
    PlotKind.COMMITS: "no figures by commit: nothing is measured yet",
}
RATIOS, RUNS, CURVES = KINDS = ("ratios", "runs", "curves")  # the plots of a comparison
_ALT = "Plot: {}. The tables have its figures."


class Format(StrEnum):
    """The formats of ``bisector report --format``."""

    TEXT = "text"
    MAIL = "mail"
    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"


RENDERERS: Mapping[Format, Callable[[Report], str]] = {
    Format.TEXT: lambda report: plain(sections.page(report)),
    Format.MAIL: compose.render,
    Format.MARKDOWN: lambda report: markdown(sections.page(report)),
    Format.JSON: json_document.text,
    Format.HTML: lambda report: html(sections.page(report)),
}
Plots = dict[str, Plot]  # the keys are file names without ending


def add(verbs: Verbs) -> None:
    """Register ``report``, ``plot`` and ``mail``."""
    verb = add_verb(verbs, "report", report, "metric run", examples=_REPORT_EXAMPLES, disturbs=True)
    verb.add_argument("--format", **one_of(Format, Format.TEXT), help="default: text")
    verb.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to FILE instead of standard output")

    verb = add_verb(verbs, "plot", plot, "metric run", examples=_PLOT_EXAMPLES, disturbs=True)
    kinds = tuple(dict.fromkeys((*map(str, PlotKind), *KINDS)))
    what = "which plot; repeatable (default: all)"
    verb.add_argument("--kind", choices=kinds, action="append", default=[], help=what)
    verb.add_argument(
        "--trial", type=count, **repeatable("N", "curves of trial N, as numbered in the table; repeatable")
    )
    verb.add_argument("--format", **one_of(Picture), help="default: by the ending of FILE, else png")
    what = f"a file, or a directory (default: {_PLOTS} in the run directory)"
    verb.add_argument("-o", "--output", type=Path, metavar="FILE|DIR", help=what)

    verb = add_verb(verbs, "mail", mail, "run", examples=_MAIL_EXAMPLES)
    verb.add_argument("--to", **repeatable("LIST", "recipients, separated by commas; repeatable"))
    verb.add_argument("--cc", **repeatable("LIST", "recipients of a copy; repeatable"))
    for flag, what in (
        ("--proposed", "also to those that scripts/get_maintainer.pl and the commit name"),
        ("--send", "send the letter; no report is sent twice"),
        ("--again", "with --send: send even if it was sent, or may have been"),
        ("--regzbot", "have the kernel's regression tracker follow it"),
    ):
        verb.add_argument(flag, action="store_true", help=what)
    verb.add_argument("--follows", type=Path, metavar="RUN", help="reply to the report of another run")
    verb.add_argument("--config", type=Path, metavar="FILE", help="settings file; only its [mail] is read")
    verb.add_argument("--set", **repeatable("KEY=VALUE", "a mail setting, such as mail.host=smtp.example.org"))


def report(arguments: argparse.Namespace) -> int:
    """Render the record of a run."""
    run = run_directory(arguments)
    with Store.open(run.database, readonly=True) as store:
        text = _text(run, store, arguments.format, objective_of(arguments))
    if arguments.output is None:
        write_document(text)
    else:
        save(arguments.output, text.encode())
    return 0


def plot(arguments: argparse.Namespace) -> int:
    """Draw plots into a directory, or one plot into a file, and print the paths."""
    run = run_directory(arguments)
    output, wanted = arguments.output or run.path / _PLOTS, arguments.format
    ending = output.suffix.removeprefix(".").lower()
    single = ending in tuple(Picture) and not output.is_dir()
    if single and wanted not in (None, Picture(ending)):
        raise UserError(f"{output} has the ending of another format than --format {wanted}", "leave out --format")
    with Store.open(run.database, readonly=True) as store:
        if (plan := store.plan) is not None:
            drawn = _of_comparison(arguments, run, store, Blocks.of(plan, store))
        else:
            drawn = _of_bisection(arguments, run, store)
    if single and len(drawn) > 1:
        hint = f"one of them: --kind {next(iter(drawn)).partition('-')[0]}; or name a directory"
        raise UserError(f"{output} is one file, and there are {len(drawn)} plots", hint)
    picture = Picture(ending) if single else wanted or Picture.PNG
    for name, one in drawn.items():
        path = output if single else output / f"{name}.{picture}"
        save(path, draw(one, picture))
        write(f"{path}\n")
    return 0


def _of_bisection(arguments: argparse.Namespace, run: RunDirectory, store: Store) -> Plots:
    """The requested plots of a bisection; raises :class:`UserError` if there is nothing to draw."""
    foreign = next((kind for kind in arguments.kind if kind not in tuple(PlotKind)), None)
    if foreign is not None:
        what = f"{foreign} is a plot of a comparison, and this run is not one"
        raise UserError(what, f"choose of {', '.join(PlotKind)}")
    asked = dict.fromkeys(map(PlotKind, arguments.kind))
    kinds = tuple(asked) or ((PlotKind.CURVES,) if arguments.trial else tuple(PlotKind))
    told, trials = reporting.report(run, store, objective_of(arguments)), tuple(dict.fromkeys(arguments.trial))
    made = {kind: page.plotted(kind, told, run.path, trials) for kind in kinds}
    for complaint in (text for _, complaints in made.values() for text in complaints):
        note(f"bisector: not drawn: {complaint}")
    missing = [kind for kind, (drawn, _) in made.items() if drawn is None]
    if len(missing) == len(made) or (missing and asked):
        raise UserError("; ".join(_NOTHING[kind] for kind in missing), "bisector status")
    for kind in missing:
        note(f"bisector: {_NOTHING[kind]}")
    return {kind: drawn for kind, (drawn, _) in made.items() if drawn is not None}


def _of_comparison(arguments: argparse.Namespace, run: RunDirectory, store: Store, blocks: Blocks) -> Plots:
    """The requested plots of a comparison; raises :class:`UserError` if there is nothing to draw."""
    if arguments.over is not None:
        raise UserError("a comparison has each metric over jobs as it decides", "leave out --over")
    report = comparison.report(run, store, blocks)
    metric = arguments.metric
    if metric is not None:
        metric = metric if is_short(metric) else named(metric).name
        if not rows_of(report.result, metric):
            found = (row.objective.metric for row in (*report.result.rows, *report.result.exploratory))
            listed = ", ".join(dict.fromkeys(map(short, found))) or "none yet"
            raise UserError(f"no run of this comparison has {metric}", f"its metrics are: {listed}")
    kinds, made = arguments.kind, _drawn(run, blocks, report, metric)
    drawn = {name: one for name, one in made.items() if not kinds or name.partition("-")[0] in kinds}
    if not drawn:
        raise UserError("there is nothing of that to plot", "bisector status")
    return drawn


def _drawn(run: RunDirectory, blocks: Blocks, report: ComparisonReport, metric: str | None = None) -> Plots:
    """All plots of a comparison that have data; a log that cannot be read is noted.

    With ``metric`` only that metric's changes and runs are drawn, whether it decides or not. Without it there are also
    curves of what fio logs: every kernel over time, in the last block of each setup that counts.
    """
    plots: Plots = dict(plots_of(report.result, metric))
    several = len(blocks.plan.setups) > 1
    for n, label in enumerate(names(blocks.plan) if metric is None else ()):
        if not (counted := blocks.counted(n)):
            continue
        kernels = [(clean(name), Role.PLAIN, trial) for name, (_, trial) in blocks.trials(counted[-1]).items()]
        about = f" on {clean(label)}, block {counted[-1].n}"
        drawn, complaints = curves_of(kernels, run.path, blocks.plan.setups[n].bisect.objective, about)
        for complaint in complaints:
            note(f"bisector: not drawn: {complaint}")
        if drawn is not None:
            plots[f"{CURVES}-{n + 1}" if several else CURVES] = drawn
    return plots


def mail(arguments: argparse.Namespace) -> int:
    """Draft a letter and propose recipients; send it with --send."""
    run = run_directory(arguments)
    with run.lock(), Store.open(run.database) as store:
        recorded = store.settings
        settings = options.current_mail_settings(recorded, given_settings(arguments), arguments.config)
        proposal = _proposal(store, outbox.Post(run, store, settings).report())
        to, cc = (tuple(map(str, parse(texts))) for texts in (arguments.to, arguments.cc))
        if arguments.proposed:
            to, cc = (*to, *proposal.to), (*cc, *proposal.cc)
        follows = RunDirectory.open(known_run(arguments.follows)) if arguments.follows else None
        delivery = outbox.Delivery(to, cc, arguments.regzbot, arguments.again, follows)
        post = outbox.Post(run, store, settings, delivery)
        if arguments.send:
            said = post.send(smtp.find_login(settings.login_file))
            write(f"sent to {', '.join((*post.delivery.to, *post.delivery.copies))}: {said}\n")
            return 0
        path, drafted = post.draft()
        command = _missing_parent(store, recorded, drafted)
    _show(path, drafted, proposal, command)
    return 0


def _text(run: RunDirectory, store: Store, form: Format, by: Objective | None) -> str:
    plan = store.plan
    if by is not None and plan is not None:
        hint = "leave out --metric and --over; bisector plot --metric draws it"
        raise UserError("a comparison has each metric in its report", hint)
    if form is Format.MAIL:
        if by is not None:
            raise UserError("a letter tells of the metric that decided", "leave out --metric and --over")
        return compose.render(outbox.Post(run, store, store.settings.mail).report())
    if plan is None:
        told = reporting.report(run, store, by)
        # The HTML page shows more of the run than the document has.
        return page.page(told, run.path) if form is Format.HTML else RENDERERS[form](told)
    blocks = Blocks.of(plan, store)
    made = comparison.report(run, store, blocks)
    if form is Format.JSON:
        return json_document.text(made)
    paged = comparison.page(made)
    if form is Format.HTML:
        plots = _drawn(run, blocks, made).values()
        return html(paged, {_ALT.format(one.title): following(one) for one in plots})
    return markdown(paged) if form is Format.MARKDOWN else plain(paged)


def _proposal(store: Store, told: compose.Told) -> Proposal:
    """The proposed recipients; none without an answer, and none for a comparison."""
    first = told.bisection.first_fixed if isinstance(told, Report) else None
    where = store.bisection().repository
    if first is None or where is None:
        return Proposal((), ())
    try:
        return propose(Repository.open(where), first.sha)
    except BisectorError as error:
        return Proposal((), (), (f"nobody proposed: {error}",))


def _missing_parent(store: Store, settings: Settings, told: compose.Told) -> str:
    """The command that measures the found commit beside its parent as the run did; empty if the parent has figures."""
    if not isinstance(told, Report) or not told.parents:
        return ""
    compared = told.before_after
    if compared is None or compared.basis is not Basis.NEAREST:
        return ""
    words = ["bisector", "compare", told.parents[0].short, compared.after.commit.short]
    words += [word for flag in reporting.flags(settings, tuple(SEARCH_SETTINGS | TWO_SIDED_SETTINGS)) for word in flag]
    return shlex.join((*words, "--repo", str(store.bisection().repository)))


def _show(path: Path, drafted: compose.Told, proposal: Proposal, command: str) -> None:
    rows = [("draft", str(path)), ("subject", compose.subject(drafted))]
    if doubt := compose.doubtful(compose.envelope_of(drafted)):
        rows.append(("warning", doubt))
    if command:
        rows.append(("parent", f"it has no figures, which others will ask for: {command}"))
    rows += [("proposed", f"To: {address}") for address in proposal.to]
    rows += [("proposed", f"Cc: {address}") for address in proposal.cc]
    rows += [("note", remark) for remark in proposal.notes]
    rows += [("next", "bisector mail --send --to LIST, or with --proposed to those above")]
    rows += [("", f"git send-email --to=LIST {shlex.quote(str(path))}")]
    write_rows(rows)
