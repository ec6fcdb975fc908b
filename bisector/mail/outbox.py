"""Letters about a run: drafted automatically, sent only on request, each once, with corrections in the same thread.

An attempt is recorded before it is made. If the process is killed at any moment, the record says that nothing was
tried, that the letter was sent or refused, or that its fate is unknown: it never says that nothing happened when
something may have.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from email import message_from_bytes
from email.utils import format_datetime
from enum import StrEnum
from pathlib import Path

from bisector.config import MailSettings
from bisector.core.deadline import retried
from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.core.events import Listener, Note
from bisector.core.verdict import Direction, State
from bisector.host.files import inside, our_files, sha256_of, write_atomically
from bisector.mail import compose, smtp
from bisector.mail.compose import Told, parse, sender_of
from bisector.mail.smtp import SmtpLogin
from bisector.report import comparison, reporting
from bisector.report.comparison import ComparisonReport
from bisector.report.document import Envelope, Report
from bisector.status.blocks import Blocks
from bisector.status.conclusion import CONFIG_ARTIFACT, DEFCONFIG_ARTIFACT
from bisector.store.log import Log, now
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store

DRAFT = "report.eml"
_REGRESSIONS = "regressions@lists.linux.dev"
_BETWEEN_ATTEMPTS_S = (15.0, 30.0, 60.0)
_ID_DOMAIN_MOST = 36  # a header of one Message-ID has to fit into a line of 78, or folding breaks it


class DeliveryOutcome(StrEnum):
    """The outcome of an attempt: SENDING with nothing after it means a killed process, or a lost answer."""

    SENDING = "sending"
    SENT = "sent"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class MailEvent:
    """An attempt to send letter number ``mail``, or the end of one; ``detail`` is the server's answer."""

    mail: int
    at: str
    outcome: DeliveryOutcome
    recipients: tuple[str, ...]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Mail:
    """A letter: its claim, its Message-ID, those of the thread before it (``refs``), and the attempts to send it."""

    at: str
    message_id: str
    claim: str
    subject: str
    refs: tuple[str, ...]
    number: int = 0
    events: tuple[MailEvent, ...] = ()

    @property
    def sent(self) -> bool:
        """Whether a server has taken it."""
        return any(event.outcome is DeliveryOutcome.SENT for event in self.events)

    @property
    def uncertain(self) -> bool:
        """Whether a server may have taken it, which is not known."""
        return bool(self.events) and self.events[-1].outcome in (DeliveryOutcome.SENDING, DeliveryOutcome.UNKNOWN)


def mails(log: Log) -> tuple[Mail, ...]:
    """Every letter on record, oldest first, with its events."""
    log.refresh()
    events = [entry.fact for entry in log.of(MailEvent)]
    return tuple(
        replace(one.fact, number=one.id, events=tuple(event for event in events if event.mail == one.id))
        for one in log.of(Mail)
    )


@dataclass(frozen=True, slots=True)
class Delivery:
    """The recipients of a letter, and how to send it; ``follows`` is another run, whose last letter it answers."""

    to: tuple[str, ...] = ()
    cc: tuple[str, ...] = ()
    regzbot: bool = False
    again: bool = False
    follows: RunDirectory | None = None

    @property
    def copies(self) -> tuple[str, ...]:
        """Who gets copies; with ``regzbot`` also its list (Documentation/admin-guide/reporting-regressions.rst)."""
        known = {address.addr_spec for address in parse((*self.to, *self.cc))}
        return self.cc if not self.regzbot or _REGRESSIONS in known else (*self.cc, _REGRESSIONS)


@dataclass(frozen=True, slots=True)
class Post:
    """A run whose report becomes a letter; ``mail`` are today's settings."""

    run: RunDirectory
    store: Store
    mail: MailSettings
    delivery: Delivery = Delivery()

    def report(self) -> Told:
        """The report with its envelope, whatever state the run is in; nothing is recorded."""
        made: Told
        if (plan := self.store.plan) is not None:
            made = comparison.report(self.run, self.store, Blocks.of(plan, self.store))
        else:
            made = reporting.report(self.run, self.store)
        if self.delivery.regzbot:
            if isinstance(made, ComparisonReport):
                raise UserError(
                    "regzbot tracks regressions by their commits, and this is a comparison", "leave out --regzbot"
                )
            if made.bisection.direction is Direction.IMPROVEMENT or made.bisection.is_no_change:
                this = "nothing in this range is one" if made.bisection.is_no_change else "this is an improvement"
                raise UserError(f"regzbot tracks regressions, and {this}", "leave out --regzbot")
        return replace(made, envelope=self._envelope(made))

    def draft(self) -> tuple[Path, Told]:
        """Write the letter, and record it once per claim; raises :class:`UserError` if there is nothing to report."""
        made = self.report()
        self._check_tells(made)
        self._check_artifacts()
        self._recorded(made)
        path = self.run.path / DRAFT
        with our_files(self.run.path):
            write_atomically(path, compose.render(made).encode())
        return path, made

    def _check_tells(self, made: Told) -> None:
        if isinstance(made, ComparisonReport):
            last = self.store.state()
            if last is None or last.state is not State.MEASURED or not any(made.result.blocks.values()):
                what = "the comparison is not over, or no block of it counts"
                raise UserError(f"there is nothing to tell yet: {what}", "bisector status")
            return
        match made.bisection.state:
            case State.FOUND | State.NARROWED if made.bisection.is_unreadable:
                raise UserError(made.bisection.message, "bisector status")
            case State.FOUND | State.NARROWED:
                return
            case State.MEASURED:
                what = "holds the trials of single commits, and no answer to tell"
            case State.IMPORTED:
                what = f"was imported, and has no answer to tell: {made.bisection.message}"
            case state:
                raise UserError(f"there is nothing to tell yet: the bisection is {state}", "bisector status")
        raise UserError(f"{self.run.path} {what}", "bisector report")

    def is_drafted(self) -> bool:
        """Whether the draft in the run directory makes the claim of the report, by its Message-ID."""
        try:
            # Read by compat32: email.policy.default raises various exceptions for a header that was cut short.
            found = message_from_bytes((self.run.path / DRAFT).read_bytes())
        except OSError:
            return False
        return str(found["Message-ID"]).strip() == compose.envelope_of(self.report()).message_id

    def send(self, login: SmtpLogin | None) -> str:
        """Send the letter that :meth:`draft` writes, never the same report twice; return the server's answer.

        Raises :class:`UserError` if the letter was sent already, or may have been, or is refused for good;
        :class:`InfraError` if the server cannot be reached, or if its answer was lost.
        """
        if not self.mail.host:
            hint = "set mail.host in bisector.toml, or --set mail.host=…"
            raise UserError("there is no mail server to send with", hint)
        if not (self.delivery.to or self.delivery.cc):
            raise UserError("nobody to send to", "--to ADDRESS, or --proposed for those that bisector mail proposes")
        recipients = tuple(address.addr_spec for address in parse((*self.delivery.to, *self.delivery.copies)))
        _, made = self.draft()
        mail = self._recorded(made)
        if not self.delivery.again:
            if mail.uncertain:
                what = f"this report may have been sent {mail.events[-1].at}: the attempt has no end on record"
                raise UserError(what, _uncertain_hint(mail))
            if mail.sent:
                event = next(event for event in mail.events if event.outcome is DeliveryOutcome.SENT)
                raise UserError(
                    f"this report was sent {event.at} to {', '.join(event.recipients)}, as {mail.message_id}",
                    "--again sends it once more, with the same Message-ID",
                )
        return self._transmit(mail, made, login, recipients)

    def _transmit(self, mail: Mail, made: Told, login: SmtpLogin | None, recipients: tuple[str, ...]) -> str:
        """Record each attempt before it is made: a kill leaves an attempt without an end, never an unrecorded one."""
        sender = parse([compose.envelope_of(made).sender])[0].addr_spec
        message = compose.message(made)

        def record(outcome: DeliveryOutcome, detail: str = "") -> None:
            self.store.log.add(MailEvent(mail.number, now(), outcome, recipients, detail))

        def attempt() -> str:
            record(DeliveryOutcome.SENDING)
            try:
                said = smtp.send(self.mail, login, message, sender, recipients)
            except (smtp.NotNow, smtp.Refused) as error:
                record(DeliveryOutcome.REFUSED, str(error))
                raise
            except smtp.Uncertain as error:
                record(DeliveryOutcome.UNKNOWN, str(error))
                error.hint = _uncertain_hint(mail)
                raise
            record(DeliveryOutcome.SENT, said)
            return said

        return retried(attempt, smtp.NotNow, _BETWEEN_ATTEMPTS_S)

    def _check_artifacts(self) -> None:
        for n, trial in (*self.store.trials(), *self.store.baselines()):
            for artifact in trial.artifacts:
                path = self.run.path / artifact.path
                try:
                    if sha256_of(inside(self.run.path, artifact.path)) == artifact.sha256:
                        continue
                    why = f"{path} has been changed: its SHA-256 is not the recorded one"
                except OSError as error:
                    why = f"cannot read {path}: {error.strerror}"
                what = f"a file of trial {n} of {trial.commit.short} does not bear it out: {why}"
                hint = "measure again: bisector start with another --run-dir"
                raise InfraError(f"no letter is written, because {what}", hint)

    def _recorded(self, made: Told) -> Mail:
        envelope = compose.envelope_of(made)
        if known := [mail for mail in mails(self.store.log) if mail.message_id == envelope.message_id]:
            return known[-1]
        mail = Mail(now(), envelope.message_id, compose.claim_of(made), compose.subject(made), envelope.references)
        return replace(mail, number=self.store.log.add(mail))

    def _envelope(self, made: Told) -> Envelope:
        """The envelope of a new letter in the thread of earlier ones, or of the last one if it made the same claim."""
        # Without a repository any directory will do: the sender is mostly configured for all repositories.
        sender = sender_of(self.mail, self.store.bisection().repository or Path())
        claim = compose.claim_of(made)
        letters = mails(self.store.log)
        sent = tuple(mail for mail in letters if mail.sent or mail.uncertain)
        repeated = sent[-1] if sent and sent[-1].claim == claim else None
        earlier = sent[:-1] if repeated else sent
        thread = earlier or self._others()
        config = defconfig = ""
        if isinstance(made, Report):  # the files of the answer's kernel, for a range of the new end's
            sha = (made.bisection.first_fixed or made.bisection.new).sha
            trials = [one.trial for one in made.bisection.trials if one.trial.commit.sha == sha]
            config, defconfig = (
                "".join(f"{line}\n" for line in reporting.first_text(self.run.path, trials, name))
                for name in (CONFIG_ARTIFACT, DEFCONFIG_ARTIFACT)
            )
        return Envelope(
            sender=sender,
            message_id=repeated.message_id if repeated else self._message_id(letters, claim, len(sent), sender),
            date=format_datetime(datetime.now().astimezone()),
            to=self.delivery.to,
            cc=self.delivery.copies,
            references=repeated.refs
            if repeated
            else tuple(dict.fromkeys(one for mail in thread for one in (*mail.refs, mail.message_id))),
            subject=(repeated or thread[0]).subject if repeated or thread else "",
            follows=compose.follows(thread[-1].claim, claim) if thread else "",
            regzbot=self.delivery.regzbot,
            config=config,
            defconfig=defconfig,
        )

    def _others(self) -> tuple[Mail, ...]:
        other = self.delivery.follows
        if other is None:
            return ()
        with Store.open(other.database, readonly=True) as store:
            sent = tuple(mail for mail in mails(store.log) if mail.sent)
        if not sent:
            raise UserError(f"no report of {other.path} was sent, so nothing can follow it", "leave out --follows")
        return sent

    def _message_id(self, letters: Iterable[Mail], claim: str, number: int, sender: str) -> str:
        """The ID of a draft with this claim; a new ID is derived from run and claim, not from chance."""
        asked = self.store.bisection()
        words = (str(self.run.path), asked.created_at, asked.old_sha, asked.new_sha, claim, str(number))
        local = hashlib.sha256("\0".join(words).encode()).hexdigest()[:24]
        drafted = next((mail.message_id for mail in letters if mail.message_id.startswith(f"<{local}@")), "")
        domain = parse([sender])[0].domain  # its last labels, as many as fit
        if len(domain) > _ID_DOMAIN_MOST:
            domain = domain[-_ID_DOMAIN_MOST:].partition(".")[2] or "bisector.invalid"
        return drafted or f"<{local}@{domain}>"


def leave_draft(run: RunDirectory, store: Store, tell: Listener) -> None:
    """Draft a letter beside an answer, once per claim, since a person may have edited it. A failure is noted."""
    post = Post(run, store, store.settings.mail)
    try:
        if post.is_drafted():
            text = f"{run.path / DRAFT} has this answer already, and stays as it is; bisector mail writes it anew"
        else:
            text = f"draft of a report by mail: {post.draft()[0]}"
        tell(Note(text))
    except BisectorError as error:
        tell(Note(f"no draft of a report by mail: {error}"))


def _uncertain_hint(mail: Mail) -> str:
    return (
        f"look for {mail.message_id} in your server's log or on the list; if it is not there: the same command with"
        " --again (who has it already gets the same Message-ID)"
    )
