"""``report``, ``plot`` and ``mail``: what a run's record says, as a document, as pictures and as a letter."""

import argparse
import shlex
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from bisector.commands import comparison_report
from bisector.commands.arguments import (
    OF_A_SEARCH,
    OF_TWO_SIDES,
    Verbs,
    add_metric,
    add_run,
    add_verb,
    count,
    given_settings,
    known_run,
    objective_of,
    one_of,
    run_directory,
)
from bisector.commands.output import note, save, write, write_document
from bisector.config import Settings, options
from bisector.core import json_document
from bisector.core.errors import BisectorError, UserError
from bisector.core.objective import Objective
from bisector.git.repository import Repository
from bisector.mail import compose, outbox, smtp
from bisector.mail.addresses import Proposal, parse, propose
from bisector.report import as_html, illustrations, reporting
from bisector.report.as_text import markdown, plain
from bisector.report.before_after import Basis
from bisector.report.document import Report
from bisector.report.drawing import Picture, draw
from bisector.report.illustrations import PlotKind
from bisector.report.sections import page
from bisector.status.blocks import Blocks
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


class Format(StrEnum):
    """What ``bisector report --format`` takes."""

    TEXT = "text"
    MAIL = "mail"
    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"


RENDERERS: Mapping[Format, Callable[[Report], str]] = {
    Format.TEXT: lambda report: plain(page(report)),
    Format.MAIL: compose.render,
    Format.MARKDOWN: lambda report: markdown(page(report)),
    Format.JSON: json_document.text,
    Format.HTML: as_html.render,
}


def add(verbs: Verbs) -> None:
    """Register ``report``, ``plot`` and ``mail``."""
    _add_report(verbs)
    _add_plot(verbs)
    _add_mail(verbs)


def _add_report(verbs: Verbs) -> None:
    verb = add_verb(verbs, "report", report, examples=_REPORT_EXAMPLES, disturbs=True)
    verb.add_argument("--format", type=one_of(Format), choices=tuple(Format), default=Format.TEXT, help="default: text")
    verb.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to FILE instead of standard output")
    add_metric(verb)
    add_run(verb)


def _add_plot(verbs: Verbs) -> None:
    verb = add_verb(verbs, "plot", plot, examples=_PLOT_EXAMPLES, disturbs=True)
    verb.add_argument(
        "--kind",
        choices=tuple(dict.fromkeys((*map(str, PlotKind), *comparison_report.KINDS))),
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
    add_metric(verb)
    verb.add_argument(
        "--format", type=one_of(Picture), choices=tuple(Picture), help="default: by the ending of FILE, else png"
    )
    verb.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE|DIR",
        help=f"a file, or a directory (default: {_PLOTS} in the run directory)",
    )
    add_run(verb)


def _add_mail(verbs: Verbs) -> None:
    verb = add_verb(verbs, "mail", mail, examples=_MAIL_EXAMPLES)
    add_run(verb)
    verb.add_argument(
        "--to", action="append", default=[], metavar="LIST", help="recipients, separated by commas; repeatable"
    )
    verb.add_argument("--cc", action="append", default=[], metavar="LIST", help="recipients of a copy; repeatable")
    verb.add_argument("--proposed", action="store_true",
                      help="also to those that scripts/get_maintainer.pl and the commit name")  # fmt: skip
    verb.add_argument("--send", action="store_true", help="send the letter; no report is sent twice")
    verb.add_argument("--again", action="store_true", help="with --send: send even if it was sent, or may have been")
    verb.add_argument("--follows", type=Path, metavar="RUN", help="reply to the report of another run")
    verb.add_argument("--regzbot", action="store_true", help="have the kernel's regression tracker follow it")
    verb.add_argument("--config", type=Path, metavar="FILE", help="settings file; only its [mail] is read")
    verb.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a mail setting, such as mail.host=smtp.example.org",
    )


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
    output = arguments.output or run.path / _PLOTS
    with Store.open(run.database, readonly=True) as store:
        if (plan := store.plan) is not None:
            if arguments.over is not None:
                raise UserError("a comparison has each metric over jobs as it decides", "leave out --over")
            asked = comparison_report.PlotRequest(tuple(arguments.kind), arguments.metric, output, arguments.format)
            comparison_report.plot(run, store, Blocks.of(plan, store), asked)
            return 0
        wanted = _kinds(arguments)
        paths = _paths(wanted, output, arguments.format)
        source = illustrations.source(run, store, tuple(dict.fromkeys(arguments.trial)), objective_of(arguments))
    made = {kind: illustrations.plotted(kind, source) for kind in wanted}
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


def _kinds(arguments: argparse.Namespace) -> tuple[PlotKind, ...]:
    """What is to be drawn of a bisection; raises :class:`UserError` for a plot of a comparison."""
    foreign = next((kind for kind in arguments.kind if kind not in tuple(PlotKind)), None)
    if foreign is not None:
        raise UserError(
            f"{foreign} is a plot of a comparison, and this run is none", f"choose of {', '.join(PlotKind)}"
        )
    asked = tuple(dict.fromkeys(map(PlotKind, arguments.kind)))
    return asked or ((PlotKind.CURVES,) if arguments.trial else tuple(PlotKind))


def mail(arguments: argparse.Namespace) -> int:
    """Draft, propose, and with --send send."""
    run = run_directory(arguments)
    with run.lock(), Store.open(run.database) as store:
        recorded = store.settings
        settings = options.overlaid(recorded, "mail.", given_settings(arguments), arguments.config, kept=("mail.from",))
        proposal = _proposal(store, outbox.Post(run, store, settings.mail).report())
        post = outbox.Post(run, store, settings.mail, _delivery(arguments, proposal))
        if arguments.send:
            said = post.send(smtp.find_login(settings.mail.login_file))
            write(f"sent to {', '.join((*post.delivery.to, *post.delivery.copies))}: {said}\n")
            return 0
        path, drafted = post.draft()
        command = _missing_parent(store, recorded, drafted)
    _show(path, drafted, proposal, command)
    return 0


def _text(run: RunDirectory, store: Store, form: Format, by: Objective | None) -> str:
    """A page alone has more of the run than the document."""
    if (plan := store.plan) is not None:
        if by is not None:
            raise UserError(
                "a comparison has each metric in its report",
                "leave out --metric and --over; bisector plot --metric draws it",
            )
        if form is Format.MAIL:
            return compose.render(_letter(run, store))
        return comparison_report.text(run, store, Blocks.of(plan, store), form)
    if form is Format.HTML:
        return illustrations.page(illustrations.source(run, store, by=by))
    return RENDERERS[form](_document(run, store, form, by))


def _document(run: RunDirectory, store: Store, form: Format, by: Objective | None) -> Report:
    """A letter alone needs to know whom it is from."""
    if form is not Format.MAIL:
        return reporting.report(run, store, by)
    if by is not None:
        raise UserError("a letter tells of the metric that decided", "leave out --metric and --over")
    made = _letter(run, store)
    assert isinstance(made, Report)  # noqa: S101 - the document of a comparison is another one's
    return made


def _letter(run: RunDirectory, store: Store) -> compose.Told:
    return outbox.Post(run, store, store.settings.mail).report()


def _paths(kinds: tuple[PlotKind, ...], output: Path, wanted: Picture | None) -> dict[PlotKind, tuple[Path, Picture]]:
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


def _delivery(arguments: argparse.Namespace, proposal: Proposal) -> outbox.Delivery:
    to, cc = (tuple(map(str, parse(texts))) for texts in (arguments.to, arguments.cc))
    if arguments.proposed:
        to, cc = (*to, *proposal.to), (*cc, *proposal.cc)
    follows = RunDirectory.open(known_run(arguments.follows)) if arguments.follows else None
    return outbox.Delivery(to, cc, arguments.regzbot, arguments.again, follows)


def _proposal(store: Store, told: compose.Told) -> Proposal:
    """Who would want to know of the answer; nobody without one, and nobody of a comparison."""
    first = told.bisection.first_fixed if isinstance(told, Report) else None
    where = store.bisection().repository
    if first is None or where is None:
        return Proposal((), ())
    try:
        with Repository.open(where) as repository:
            return propose(repository, first.sha)
    except BisectorError as error:
        return Proposal((), (), (f"nobody proposed: {error}",))


def _missing_parent(store: Store, settings: Settings, told: compose.Told) -> str:
    """What measures an answer beside its parent, as the run measured; empty where the parent has figures."""
    if not isinstance(told, Report) or not told.parents:
        return ""
    compared = told.before_after
    if compared is None or compared.basis is not Basis.NEAREST:
        return ""
    words = ["bisector", "compare", told.parents[0].short, compared.after.commit.short]
    words += [word for flag in reporting.flags(settings, tuple(OF_A_SEARCH | OF_TWO_SIDES)) for word in flag]
    return shlex.join((*words, "--repo", str(store.bisection().repository)))


def _show(path: Path, drafted: compose.Told, proposal: Proposal, command: str) -> None:
    rows = [("draft", str(path)), ("subject", compose.subject(drafted))]
    if drafted.envelope is not None and (doubt := compose.doubtful(drafted.envelope)):
        rows.append(("warning", doubt))
    if command:
        rows.append(("parent", f"it has no figures, which others will ask for: {command}"))
    rows += [("proposed", f"To: {address}") for address in proposal.to]
    rows += [("proposed", f"Cc: {address}") for address in proposal.cc]
    rows += [("note", remark) for remark in proposal.notes]
    rows += [("next", "bisector mail --send --to LIST, or with --proposed to those above")]
    rows += [("", f"git send-email --to=LIST {shlex.quote(str(path))}")]
    write("".join(f"{name:10}{text}\n" for name, text in rows))
