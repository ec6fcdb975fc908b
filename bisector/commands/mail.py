"""``mail``: a report as a letter, drafted always, sent only with --send."""

import argparse
import shlex
from pathlib import Path

from bisector.commands.arguments import Verbs, add_run_dir, add_verb, given_settings, run_directory
from bisector.commands.output import write
from bisector.config import options
from bisector.core.errors import BisectorError
from bisector.git.repository import Repository
from bisector.mail import compose, outbox, smtp
from bisector.mail.addresses import Proposal, parse, propose
from bisector.report.document import Report
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store

_EXAMPLES = """\
examples:
  bisector mail                              write report.eml into the run directory, propose recipients
  bisector mail --send --to dm-devel@lists.linux.dev,snitzer@kernel.org
  bisector mail --send --proposed            to the proposed recipients
  bisector mail --send --to LIST --follows RUN_DIR   in the thread of another run's report
settings: [mail] of bisector.toml; mail.from may also come from the run's record; the login is in
BISECTOR_SMTP_USERNAME and BISECTOR_SMTP_PASSWORD, or in the file mail.login_file
"""


def add(verbs: Verbs) -> None:
    """Register ``mail``."""
    verb = add_verb(verbs, "mail", mail, examples=_EXAMPLES)
    add_run_dir(verb)
    verb.add_argument(
        "--to", action="append", default=[], metavar="LIST", help="recipients, separated by commas; repeatable"
    )
    verb.add_argument("--cc", action="append", default=[], metavar="LIST", help="recipients of a copy; repeatable")
    verb.add_argument("--proposed", action="store_true",
                      help="also to those that scripts/get_maintainer.pl and the commit name")  # fmt: skip
    verb.add_argument("--send", action="store_true", help="send the letter; no report is sent twice")
    verb.add_argument("--again", action="store_true", help="with --send: send even if it was sent, or may have been")
    verb.add_argument("--follows", type=Path, metavar="RUN_DIR", help="reply to the report of another run")
    verb.add_argument("--regzbot", action="store_true", help="have the kernel's regression tracker follow it")
    verb.add_argument("--config", type=Path, metavar="FILE", help="settings file; only its [mail] is read")
    verb.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a mail setting, such as mail.host=smtp.example.org",
    )


def mail(arguments: argparse.Namespace) -> int:
    """Draft, propose, and with --send send."""
    run = run_directory(arguments)
    with run.lock(), Store.open(run.database) as store:
        recorded = options.from_json(store.bisection().settings)
        settings = options.overlaid(recorded, "mail.", given_settings(arguments), arguments.config, kept=("mail.from",))
        proposal = _proposal(store, outbox.Post(run, store, settings.mail).report())
        post = outbox.Post(run, store, settings.mail, _delivery(arguments, proposal))
        if arguments.send:
            said = post.send(smtp.find_login(settings.mail.login_file))
            write(f"sent to {', '.join((*post.delivery.to, *post.delivery.cc))}: {said}\n")
            return 0
        path, report = post.draft()
    _show(path, report, proposal)
    return 0


def _delivery(arguments: argparse.Namespace, proposal: Proposal) -> outbox.Delivery:
    to, cc = (tuple(map(str, parse(texts))) for texts in (arguments.to, arguments.cc))
    if arguments.proposed:
        to, cc = (*to, *proposal.to), (*cc, *proposal.cc)
    follows = RunDirectory.open(arguments.follows) if arguments.follows else None
    return outbox.Delivery(to, cc, arguments.regzbot, arguments.again, follows)


def _proposal(store: Store, report: Report) -> Proposal:
    """Who would want to know of the answer; nobody without one."""
    first, where = report.bisection.first_fixed, store.bisection().repository
    if first is None or where is None:
        return Proposal((), ())
    try:
        with Repository.open(where) as repository:
            return propose(repository, first.sha)
    except BisectorError as error:
        return Proposal((), (), (f"nobody proposed: {error}",))


def _show(path: Path, report: Report, proposal: Proposal) -> None:
    rows = [("draft", str(path)), ("subject", compose.subject(report))]
    rows += [("proposed", f"To: {address}") for address in proposal.to]
    rows += [("proposed", f"Cc: {address}") for address in proposal.cc]
    rows += [("note", note) for note in proposal.notes]
    rows += [("next", "bisector mail --send --to LIST, or with --proposed to those above")]
    rows += [("", f"git send-email --to=LIST {shlex.quote(str(path))}")]
    write("".join(f"{name:10}{text}\n" for name, text in rows))
