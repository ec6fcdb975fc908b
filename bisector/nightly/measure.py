"""What a night works with: its record, the mailer that tells people, and the bench that measures tips.

The trials of a tip, and of the tag that it is compared with, are in a store of the job's own. There is one for each way
in which the job has been measured: what is in it can be compared.
"""

import getpass
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from email.utils import formatdate, make_msgid
from pathlib import Path

from bisector.analysis.judgement import SoundMeasurement, judged_run
from bisector.analysis.verdicts import changes_of_hosts
from bisector.campaign.equipment import Equip, Equipment
from bisector.campaign.single import Settled, Single, SingleTrials
from bisector.config import Settings
from bisector.core.deadline import Deadline
from bisector.core.errors import Finding, InfraError
from bisector.core.events import Listener, Note
from bisector.core.subject import Commit
from bisector.doctor import checks
from bisector.fleet.hosts import HostRole, Hosts
from bisector.git.bundle import bundled
from bisector.git.repository import Repository
from bisector.host.files import discard, our_files, write_whole
from bisector.host.load import host_id
from bisector.mail import compose, outbox, smtp
from bisector.mail.addresses import parse
from bisector.mail.outbox import Mails
from bisector.nightly.plan import NightJob, Send
from bisector.report.document import Envelope
from bisector.store.facts import InfraFault
from bisector.store.nights import JobFact, Measurement, NightRecord, TipRole
from bisector.store.run_files import TRIALS, keep_inputs
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store

_DIGITS = 12  # of the digest of the conditions, as the name of a directory
AWAY_S = 300.0  # as long as a worker's own patience: one that is started anew is back by then


class Mailer:
    """Writes drafts, or sends to a job's recipients; each method returns what became of it, for a person.

    ``directory`` keeps the notices. Both raise :class:`bisector.core.errors.BisectorError` where nobody could be told.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def report(self, job: NightJob, run: RunDirectory, store: Store) -> str:
        """The letter that ``bisector mail`` would write, or send, once."""
        mail = job.measuring.mail
        if job.report is Send.DRAFT:
            return f"draft {outbox.Post(run, store, mail).draft()[0]}"
        if any(one.sent for one in Mails(store.log).all()):
            return "sent before this night was killed, or by hand"
        said = outbox.Post(run, store, mail, outbox.Delivery(to=job.to)).send(smtp.find_login(mail.login_file))
        return f"sent to {', '.join(job.to)}: {said}"

    def notice(self, job: NightJob, subject: str, text: str) -> str:
        """A few lines; the newest ones of a job take the place of those before."""
        mail = job.measuring.mail
        sender = mail.sender or f"{getpass.getuser()}@{socket.gethostname()}"
        envelope = Envelope(sender, make_msgid(domain=socket.gethostname()), formatdate(localtime=True), job.notify, ())
        made = compose.notice(envelope, subject, f"{text}\n")
        path = self.directory / f"{job.name}-notice.eml"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_whole(path, made.as_bytes())
        except OSError as error:
            raise InfraError(f"cannot write {path}: {error.strerror}", f"ls -ld {self.directory}") from error
        if not job.notify:
            return f"draft {path}"
        addresses = [address.addr_spec for address in parse(job.notify)]
        said = smtp.send(mail, smtp.find_login(mail.login_file), made, parse([sender])[0].addr_spec, addresses)
        return f"sent to {', '.join(job.notify)}: {said}"


@dataclass(frozen=True, slots=True)
class NightContext:
    """What a night works with; ``home`` keeps the files of its jobs, ``hosts`` are those that measure, if others do."""

    record: NightRecord
    mailer: Mailer
    tell: Listener
    home: Path
    equip: Equip
    hosts: Hosts | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A commit to measure, its role in the night, and its name for people."""

    commit: Commit
    role: TipRole
    rev: str


@dataclass(frozen=True, slots=True)
class TipBench:
    """Measures for one job, in a run directory below its own; of a fleet on the ``last_host``, if there was one."""

    job: NightJob
    directory: Path
    context: NightContext
    last_host: str

    def measure(self, repository: Repository, targets: Iterable[Target], record: Callable[[JobFact], None]) -> None:
        """One measurement after the other, each recorded when its trials are.

        Raises :class:`bisector.core.errors.UserError` for a machine that lacks something, :class:`InfraError` for
        an infrastructure error that stays.
        """
        measuring = bundled(self.job.measuring, repository)
        if self.context.hosts is None:
            checks.check(measuring, self.directory, self._warn)
        run = RunDirectory(self.directory / self.job.conditions[:_DIGITS])
        with our_files(self.directory):
            run.path.mkdir(exist_ok=True)
        settings = keep_inputs(measuring, run.path)
        with run.lock(), Single.open(run, repository, settings) as single:
            with self.context.equip(settings, run.path, repository, tell := self.context.tell) as equipment:
                trials = SingleTrials(single.store, settings, equipment, tell)
                host, faults = "", len(single.store.facts(InfraFault))
                if self.context.hosts is not None:
                    host = host_for(equipment, self.context.hosts, self.last_host, self._say)
                for target in targets:
                    purpose = f"{self.job.name}: {target.role} {target.rev}"
                    try:
                        settled = trials.settle(target.commit, purpose, host)
                    finally:
                        for fault in single.store.facts(InfraFault)[faults:]:
                            record(fault)
                        faults = len(single.store.facts(InfraFault))
                    # Where the host was another one at the last trial of before, this one is compared with nothing.
                    (first, _), *_ = settled.trials
                    for one in changes_of_hosts(single.store.trials()):
                        if one.since == first:
                            what = f"{one.host} changed since trial {one.before}: {one.what}"
                            self._say(f"{what}; a new history begins there")
                    record(self._measurement(run, target, settled, settings))
            discard(run.path / "build")

    def _say(self, text: str) -> None:
        self.context.tell(Note(f"{self.job.name}: {text}"))

    def _warn(self, finding: Finding) -> None:
        self._say(finding.warning)

    def _measurement(self, run: RunDirectory, target: Target, settled: Settled, settings: Settings) -> Measurement:
        n, trial = settled.trials[-1]
        sound = settled.settlement.trial if isinstance(settled.settlement, SoundMeasurement) else None
        era = (sound or trial).era
        counts = next((n for n, trial in settled.trials if trial is sound), None)
        why = "" if isinstance(settled.settlement, SoundMeasurement) else settled.settlement.why
        objective = settings.bisect.objective
        return Measurement(
            role=target.role,
            rev=target.rev,
            sha=target.commit.sha,
            conditions=self.job.conditions,
            threshold=settings.bisect.threshold_value,
            min_ratio=1 + settings.bisect.least_effect,
            host=trial.host,
            value=objective.value(judged_run(sound)) if sound else None,
            why=why,
            fault=why if any(one.fault for _, one in settled.trials) else "",
            trials=len(settled.trials),
            total_s=sum(one.timings.total_s for _, one in settled.trials),
            directory=run.path / TRIALS / f"{n:04d}-{target.commit.short}",
            objective=objective,
            n=counts,
            era=era.digest if era is not None else "",
        )


def host_for(equipment: Equipment, listed: Hosts, last: str, say: Callable[[str], None]) -> str:
    """The host that measured the ``last`` tip, once it is idle; the first one that measures where there was none.

    Figures of two hosts are not compared, so all tips of a job's history are measured on one. A host that is none any
    more is not waited for: another one begins a new history, and that is said. Where the file lists hosts that measure,
    it is one of them, which will be a host the next time, too.
    Raises :class:`InfraError` for a host that is not there in time.
    """
    executor, builders = equipment.executor, equipment.crew.builders
    deadline = Deadline("the host of the last tip", AWAY_S)
    measuring = tuple(one.name for one in listed.hosts if one.role is HostRole.MEASURE)
    # Where the file lists none, any machine may come but the one that measured here, before.
    is_host = last in measuring if measuring else last not in ("", host_id())
    while not deadline.expired:
        idle = [name for name in executor.idle if name not in builders and name in (measuring or (name,))]
        if last in idle:
            return last
        if idle and not is_host:
            if last:
                say(f"the last tip was measured on {last}, which is no host any more: {idle[0]} begins a new history")
            return idle[0]
        executor.wait(deadline.remaining_s)
    if not is_host:
        raise InfraError("no host that measures is there", "bisector fleet status")
    raise InfraError(
        f"{last}, which measured the last tip, is not there; figures of two hosts are not compared",
        f"bisector fleet status; or take {last} out of {listed.path}: then another host begins a new history",
    )
