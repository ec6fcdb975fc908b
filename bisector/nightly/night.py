"""One night: the order of the jobs within the hours they share and the turn of each, or what the night would do.

A job's turn is what earlier nights left unfinished, the fetch, the tip, and what follows from it. Each step of the turn
ends by adding a fact to the history, and begins by asking the history what is left to do.
"""

import getpass
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate, make_msgid
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from bisector.analysis.judgement import SoundMeasurement, judged_run
from bisector.analysis.verdicts import Judging, changes_of_hosts, in_era
from bisector.bisect import session
from bisector.campaign.equipment import Equipment, MeasurerFactory
from bisector.campaign.life import remove_build
from bisector.campaign.single import SingleTrials, opened
from bisector.compare.session import confirm
from bisector.core.deadline import Deadline
from bisector.core.errors import BisectorError, EndsDoNotReproduce, Finding, InfraError, Interrupted, UserError
from bisector.core.events import Listener, Note
from bisector.core.json_document import SCHEMA, JsonObject
from bisector.core.objective import MetricAbsent
from bisector.core.subject import Commit
from bisector.core.verdict import State
from bisector.doctor import checks
from bisector.fleet.hosts import HostRole, Hosts
from bisector.git.ranges import Range, check_range
from bisector.git.repository import Repository
from bisector.git.transfer import Branch, bundled
from bisector.host import process
from bisector.host.files import our_files, write_atomically
from bisector.host.identity import host_id
from bisector.host.locks import Held, held
from bisector.mail import compose, outbox, smtp
from bisector.nightly.job_history import TELLING, JobHistory, TipChange, TipResult, replay
from bisector.nightly.plan import NightJob, NightPlan, Send, TipRule
from bisector.nightly.trouble import NightOver, StepFailed, caught, fingerprint, until
from bisector.report.document import Envelope
from bisector.status import from_record
from bisector.store.facts import InfraFault
from bisector.store.nights import (
    BisectionBegun,
    BisectionConcluded,
    JobBegun,
    JobDone,
    JobFact,
    JobTrouble,
    LetterTold,
    Measurement,
    Night,
    NightEnding,
    NightEvent,
    NightRecord,
    Tip,
    TipRole,
)
from bisector.store.rundir import TRIALS, RunDirectory, keep_inputs, run_name, state_home
from bisector.store.store import Store

_DIGITS = 12  # of the conditions' digest, which names a directory
AWAY_S = 300.0  # as long as a worker waits itself, so that a restarted worker is back by then
_PATIENCE = 3  # nights with trouble after which an unfinished bisection is given up
LOCK = "lock"
_TOLD = "no-night"
_JOURNAL = "If a timer began it: journalctl -u bisector-nightly; of a user's timer, --user-unit instead of -u."


class Mailer:
    """Writes drafts, or sends letters to a job's recipients; each method returns the outcome as text for a person.

    ``directory`` keeps the notices. Raises :class:`BisectorError` if nobody could be told.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def report(self, job: NightJob, run: RunDirectory, store: Store) -> str:
        """Draft or send the letter that ``bisector mail`` would write; it is sent only once."""
        mail = job.measuring.mail
        if job.report is Send.DRAFT:
            return f"draft {outbox.Post(run, store, mail).draft()[0]}"
        if any(one.sent for one in outbox.mails(store.log)):
            return "sent before this night was killed, or by hand"
        said = outbox.Post(run, store, mail, outbox.Delivery(to=job.to)).send(smtp.find_login(mail.login_file))
        return f"sent to {', '.join(job.to)}: {said}"

    def notice(self, job: NightJob, subject: str, text: str) -> str:
        """Draft or send a few lines; the draft of a job's newest notice replaces the one before."""
        mail = job.measuring.mail
        sender = mail.sender or f"{getpass.getuser()}@{socket.gethostname()}"
        envelope = Envelope(sender, make_msgid(domain=socket.gethostname()), formatdate(localtime=True), job.notify, ())
        made = compose.notice(envelope, subject, f"{text}\n")
        path = self.directory / f"{job.name}-notice.eml"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_atomically(path, made.as_bytes())
        except OSError as error:
            raise InfraError(f"cannot write {path}: {error.strerror}", f"ls -ld {self.directory}") from error
        if not job.notify:
            return f"draft {path}"
        addresses = [address.addr_spec for address in compose.parse(job.notify)]
        said = smtp.send(mail, smtp.find_login(mail.login_file), made, compose.parse([sender])[0].addr_spec, addresses)
        return f"sent to {', '.join(job.notify)}: {said}"


@dataclass(frozen=True, slots=True)
class NightContext:
    """The equipment of a night.

    ``home`` keeps the files of its jobs. ``hosts`` are the other hosts that measure, if this one does not.
    """

    record: NightRecord
    mailer: Mailer
    tell: Listener
    home: Path
    equip: MeasurerFactory
    hosts: Hosts | None = None


@dataclass(frozen=True, slots=True)
class JobRun:
    """One job in one night; raises :class:`bisector.nightly.trouble.NightOver` when the night's hours are over."""

    night: int
    job: NightJob
    context: NightContext
    deadline: Deadline

    def take(self) -> None:
        """Do the whole job; a failure is recorded and told once. Raises :class:`InfraError` for the history itself."""
        self._add(JobBegun(self.job.name))
        if isinstance(failed := caught(self._work, self._files), StepFailed):
            self._trouble(failed)
        else:
            self._add(JobDone())

    def _work(self) -> None:
        if (left := self._history().open) is not None:
            self._say(f"going on with the bisection of an earlier night, {left.run_dir}")
            self._bisect(left)
        with self._step("fetch"):
            repository = Repository.open(self.job.repository, run_marker=self._directory)
            tip, branch = self._fetch(repository)
            if self._history().knows(tip.sha, self.job.conditions):
                self._say(f"the tip is {tip.short}, which was measured already")
            else:
                self._measure(repository, branch, tip)
        history = self._history()
        if history.result is TipResult.UNTESTABLE and history.last is not None:
            message = f"the tip {history.last.sha[:12]} cannot be judged: {history.last.why}"
            raise StepFailed("tip", UserError(message, f"its files: {history.last.directory}"))
        if history.change is not None:
            self._bisect(self._begin(history.change))
        self._report()

    # The steps

    def _fetch(self, repository: Repository) -> tuple[Commit, Branch]:
        """Fetch the tip and record it; before the branch moves, hold the commits that a rebase would lose."""
        job, history = self.job, self._history()
        process.reap(self._directory)
        branch = Branch(repository, job.name, job.remote, job.branch)
        self._say(f"fetching {job.branch} from {branch.shown}")
        with until(self.deadline):
            if history.reference is not None:
                branch.keep_reference(history.reference.sha)
            tip = branch.fetch(tags=job.rule is TipRule.NEWEST_TAG)
        repository.check_kernel_tree(tip)
        facts = (tip.sha, tip.subject, tip.committed_at, job.rule.value, job.wanted.value)
        self._add(Tip(repository.top, f"{branch.shown} {job.branch}", *facts))
        return tip, branch

    def _measure(self, repository: Repository, branch: Branch, tip: Commit) -> None:
        """Measure the tip and, before it, the tag that it is compared with, if the tag was not measured there yet.

        Each is recorded as soon as its trials are. With a fleet, both are measured on the host of the last tip. Each
        set of conditions has a store of its own, within which all values can be compared.
        """
        job, context, history = self.job, self.context, self._history()
        targets = [(tip, TipRole.TIP, job.branch)]
        if job.rule is TipRule.NEWEST_TAG:
            name, tag = branch.newest_tag(job.tags, tip)
            if not history.knows_tag(tag.sha, job.conditions):
                targets.insert(0, (tag, TipRole.TAG, name))
        measured = (one for one in (history.last, history.tag) if one is not None and one.conditions == job.conditions)
        last_host = next((one.host for one in measured), "")
        with self._step("measure"), until(self.deadline), our_files(self._directory):
            settings = bundled(job.measuring, repository)
            if context.hosts is None:
                checks.check(settings, self._directory, self._warn)
            run = RunDirectory(self._directory / job.conditions[:_DIGITS])
            run.path.mkdir(exist_ok=True)
            settings = keep_inputs(settings, run.path)
            with run.lock(), opened(run, repository, settings) as store:
                with context.equip(settings, run.path, repository, context.tell) as equipment:
                    trials = SingleTrials(store, settings, equipment, context.tell)
                    host = "" if context.hosts is None else host_for(equipment, context.hosts, last_host, self._say)
                    for target in targets:
                        self._settle(run, trials, target, host)
                remove_build(run.path, repository.top)

    def _settle(self, run: RunDirectory, trials: SingleTrials, target: tuple[Commit, TipRole, str], host: str) -> None:
        """Measure a target and record its result, and each fault that occurred."""
        commit, role, rev = target
        store, settings = trials.store, trials.settings
        before = len(store.facts(InfraFault))
        try:
            settled = trials.settle(commit, f"{self.job.name}: {role} {rev}", host)
        finally:
            for fault in store.facts(InfraFault)[before:]:
                self._add(fault)
        # If the host has changed since its last trial, the result has nothing to be compared with.
        for one in changes_of_hosts(store.trials()):
            if one.since == settled.trials[0][0]:
                what = f"{one.host} changed since trial {one.before}: {one.what}"
                self._say(f"{what}; a new history begins there")
        n, trial = settled.trials[-1]
        found = settled.settlement(commit.sha)
        sound, why = (found.trial, "") if isinstance(found, SoundMeasurement) else (None, found.why)
        era, objective = (sound or trial).era, settings.bisect.objective
        measured = Measurement(
            role=role,
            rev=rev,
            sha=commit.sha,
            conditions=self.job.conditions,
            threshold=settings.bisect.threshold_value,
            min_ratio=1 + settings.bisect.least_effect,
            host=trial.host,
            value=objective.value(judged_run(sound)) if sound else None,
            why=why,
            fault=why if any(one.fault for _, one in settled.trials) else "",
            trials=len(settled.trials),
            total_s=sum(one.timings.total_s for _, one in settled.trials),
            directory=run.path / TRIALS / f"{n:04d}-{commit.short}",
            objective=objective,
            n=next((n for n, trial in settled.trials if trial is sound), None),
            era=era.digest if era is not None else "",
        )
        self._add(measured)

    def _begin(self, change: TipChange) -> BisectionBegun:
        """Begin a bisection of the change; it is recorded before anything of it exists."""
        old, new = change.old.sha, change.new.sha
        run_dir = state_home() / "runs" / run_name(change.old.rev[:40], f"{self.job.name}-{new[:12]}")
        begun = BisectionBegun(run_dir, change.direction, old, new)
        first_parent = self.job.measuring.bisect.first_parent
        with self._step("range"):
            repository = Repository.open(self.job.repository)
            old_end, new_end = repository.commits((old, new))
            try:
                check_range(repository, Range(old_end, new_end, first_parent, self.job.paths))
            except UserError as error:  # for example, the branch was reset: the tip becomes the reference
                self._add(BisectionConcluded(run_dir, State.FAILED, error.message, "", new, change.new.value))
                raise
        self._add(begun)
        self._say(f"{change.direction}, {change.text}: bisecting")
        return begun

    def _bisect(self, begun: BisectionBegun) -> None:
        """Begin or continue a bisection, and record how it ended, once it did."""
        with self._step("bisection"):
            try:
                with until(self.deadline), self._run(begun) as (run, store):
                    # Also if it had ended, unrecorded, when a night was killed: the same facts give the same end.
                    outcome = session.go_on(run, store, self.context.tell, self.context.equip)
                    if outcome.state is State.FOUND:
                        confirm(run, store, self.context.tell, self.context.equip)
                    session.let_go(run, store, self.context.tell)
            except (EndsDoNotReproduce, MetricAbsent):  # it would end so every night
                self._conclude(begun)
                raise
            self._conclude(begun)

    @contextmanager
    def _run(self, begun: BisectionBegun) -> Iterator[tuple[RunDirectory, Store]]:
        if (run := RunDirectory(begun.run_dir)).database.exists():
            with run.lock(), Store.open(run.database) as store:
                run.remember_job(self.job.name)
                yield run, store
            return
        job = self.job
        settings, hosts = job.settings[begun.direction], self.context.hosts
        asked = session.BisectRequest(job.repository, begun.old_sha, begun.new_sha, settings, job.paths)
        with session.begun(asked, begun.run_dir, self._warn, measures_here=hosts is None) as (run, store):
            run.remember_job(self.job.name)
            run.remember_hosts(None if hosts is None else hosts.path)
            yield run, store

    def _conclude(self, begun: BisectionBegun) -> None:
        run = RunDirectory.open(begun.run_dir)
        with Store.open(run.database, readonly=True) as store:
            view = from_record.view(run, store)
            judging = Judging(store.settings, store.trials())
        # The value of the new end on the host that measures the tips; if that host had no part in the bisection, the
        # tip's value, unless the change was not seen again.
        value, sha = None, begun.new_sha
        if (last := self._history().last) is not None:
            own = judging.on(in_era(last.host, last.era))
            if isinstance(settled := own.settlement(sha), SoundMeasurement):
                value = own.value(settled.trial)
            elif view.state in TELLING and last.sha == sha:
                value = last.value
        first = view.first_fixed.sha if view.first_fixed else ""
        self._add(BisectionConcluded(begun.run_dir, view.state, view.message, first, sha, value))
        self._say(view.message)

    def _report(self) -> None:
        for concluded in self._history().unreported:
            run = RunDirectory(concluded.run_dir)
            outcome = "not told: its record is gone"
            if run.database.exists():
                with self._step("report"), run.lock(), Store.open(run.database) as store:
                    outcome = self.context.mailer.report(self.job, run, store)
            self._add(LetterTold(str(concluded.run_dir), outcome))
            self._say(f"report: {outcome}")

    # What fails

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        try:
            with our_files(self._files):
                yield
        except Interrupted:
            raise
        except BisectorError as error:
            raise StepFailed(name, error) from error

    def _trouble(self, failed: StepFailed) -> None:
        """Record and tell a failure; a bisection that fails every night is given up, since it blocks the job.

        A job with an open bisection begins with it, so the bisection is what failed, whichever step it was. Nights that
        end by a person's mistake do not count: it costs no hours, and the bisection goes on once it is put right.
        """
        error = failed.error
        self._add(JobTrouble(failed.step, error.message, error.hint, isinstance(error, UserError)))
        self._say(f"failed: {error.message}")
        history = self._history()
        if (left := history.open) is not None:
            first = next((one.night for one in history.nights if one.begun == left), self.night)
            troubles = (one.trouble for one in history.nights if one.night >= first)
            if sum(one is not None and not one.is_mistake for one in troubles) >= _PATIENCE:
                message = f"given up after {_PATIENCE} nights: {error.message}"
                value = history.last.value if history.last else None
                self._add(BisectionConcluded(left.run_dir, State.FAILED, message, "", left.new_sha, value))
                resume, reset = (from_record.run_command(name, left.run_dir) for name in ("resume", "reset"))
                hint = (
                    f"{resume} goes on with it all the same; until it is ended by {reset} its files stay, and its"
                    f" references in {self.job.repository}"
                )
                about = fingerprint(str(left.run_dir), message)
                self._notify(StepFailed("bisection", BisectorError(message, hint)), about)
        about = fingerprint(failed.step, error.message)
        if about not in self._history().told:
            self._notify(failed, about)

    def _notify(self, failed: StepFailed, about: str) -> None:
        subject = f"bisector nightly: {self.job.name}: {failed.step} failed"
        said = (failed.error.message, failed.error.hint, "This is said once, as long as it stays the same.")
        text = "\n\n".join(filter(None, said))
        outcome = caught(partial(self.context.mailer.notice, self.job, subject, text), self._files)
        if isinstance(outcome, StepFailed):
            self._say(f"nobody could be told: {outcome.error}")
        else:
            self._add(LetterTold(about, outcome))
            self._say(f"notice: {outcome}")

    # The history and the messages

    @property
    def _files(self) -> Path:
        return self.context.home / "jobs" / self.job.name

    @property
    def _directory(self) -> Path:
        """The directory of the job's files, made if needed."""
        with our_files(self.context.home):
            self._files.mkdir(parents=True, exist_ok=True)
        return self._files

    def _history(self) -> JobHistory:
        return replay(event for event in self.context.record.events() if event.job == self.job.name)

    def _add(self, fact: JobFact) -> None:
        self.context.record.add(fact)

    def _warn(self, finding: Finding) -> None:
        self._say(finding.warning)

    def _say(self, text: str) -> None:
        self.context.tell(Note(f"{self.job.name}: {text}"))


def host_for(equipment: Equipment, listed: Hosts, last: str, say: Callable[[str], None]) -> str:
    """Wait for the host that measured the ``last`` tip; without such a host return the first idle one that measures.

    Values of two hosts are not compared, so all tips of a job's history are measured on one host. If that host is no
    longer listed, it is not waited for: another host begins a new history, which is told. If the file lists hosts that
    measure, only those are taken, so that the host is still there the next time. Raises :class:`InfraError` if no such
    host appears in time.
    """
    executor, builders = equipment.executor, equipment.crew.builders
    deadline = Deadline("the host of the last tip", AWAY_S)
    measuring = tuple(one.name for one in listed.hosts if one.role is HostRole.MEASURE)
    # If the file lists none, any machine may be that host, except this one, which measured before there was a fleet.
    is_host = last in measuring if measuring else last not in ("", host_id())
    while not deadline.expired:
        idle = [name for name in executor.idle if name not in builders and name in (measuring or (name,))]
        if last in idle:
            return last
        if idle and not is_host:
            if last:
                what = f"the last tip was measured on {last}, which is not a host any more"
                say(f"{what}: {idle[0]} begins a new history")
            return idle[0]
        executor.wait(deadline.remaining_s)
    if not is_host:
        raise InfraError("no host that measures is there", "bisector fleet status")
    raise InfraError(
        f"{last}, which measured the last tip, is not there; figures of two hosts are not compared",
        f"bisector fleet status; or take {last} out of {listed.path}: then another host begins a new history",
    )


# The whole night


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Hold the lock for this user's nights; raises :class:`InfraError` with the holder if another night has it."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        with held(home / LOCK):
            yield
    except Held as error:
        hint = "nights never overlap; bisector history shows what it does"
        raise InfraError(f"another night is under way: {error.holder}", hint) from error
    except OSError as error:
        raise InfraError(f"cannot write {error.filename}: {error.strerror}", f"ls -ld {home}") from error


def order(
    plan: NightPlan, nights: Iterable[Night], events: Sequence[NightEvent]
) -> Iterator[tuple[NightJob, JobHistory]]:
    """Each job with its history, in the order of turns: unfinished bisections first, then the job that waited longest.

    A bisection has no precedence if its last turn failed, since it may use up all hours before it fails again, or if
    its last night was killed, since the bisection may be what brings the process or the host down.
    """
    killed = {one.n for one in nights if one.ending is None}
    begun = {event.job: event.id for event in events if isinstance(event.fact, JobBegun)}
    histories = {job.name: replay(event for event in events if event.job == job.name) for job in plan.jobs}
    first = {
        name
        for name, one in histories.items()
        if one.open is not None and one.nights[-1].trouble is None and one.nights[-1].night not in killed
    }
    for job in sorted(plan.jobs, key=lambda job: (job.name not in first, begun.get(job.name, 0))):
        yield job, histories[job.name]


def run(plan: NightPlan, context: NightContext) -> tuple[int, NightEnding]:
    """Run a night and return its number and how it ended; the caller holds the lock. Raises :class:`Interrupted`."""
    (context.home / _TOLD).unlink(missing_ok=True)  # if a later night cannot begin, that is told again
    _tell_of_a_killed_night(plan, context)
    n = context.record.begin(plan.path, plan.budget_s)
    # The time of a suspension counts: a laptop that was closed at night must not measure at noon.
    deadline = Deadline.through_suspension("the end of the night", plan.budget_s)
    ending = NightEnding.DONE
    try:
        for job, history in order(plan, context.record.nights(), context.record.events()):
            # In the second half of a night, a job waits if its last trial took longer than the rest: it would be lost.
            last_s = history.last.total_s if history.last is not None else 0.0
            late = deadline.elapsed_s > 0.5 * deadline.seconds and last_s > deadline.remaining_s
            if deadline.expired or late:
                ending = NightEnding.OUT_OF_TIME
                context.tell(Note(f"{job.name}: not in the time that is left; it has its turn the next night"))
                continue
            JobRun(n, job, context, deadline).take()
    except NightOver:
        ending = NightEnding.OUT_OF_TIME
        context.tell(Note(f"the {plan.budget_hours:g} h of this night are over; the next one goes on from here"))
    except (KeyboardInterrupt, Interrupted) as error:
        context.record.end(NightEnding.INTERRUPTED)
        raise Interrupted("interrupted; the next night goes on from here") from error
    context.record.end(ending)
    return n, ending


def _tell_of_a_killed_night(plan: NightPlan, context: NightContext) -> None:
    """Tell of a crash, a bug or a reboot that ended the last night before it could tell of it itself."""
    last = next(reversed(context.record.nights()), None)
    if last is None or last.ending is not None:
        return
    subject = "bisector nightly: the last night ended without a word"
    text = f"The night of {last.started_at} (process {last.pid}) was killed, or crashed; this one goes on from there."
    said = caught(partial(context.mailer.notice, plan.jobs[0], subject, f"{text}\n\n{_JOURNAL}"), context.home)
    context.tell(Note(f"{text} {f'nobody could be told: {said.error}' if isinstance(said, StepFailed) else said}"))


def tell_of_no_night(plan: NightPlan, mailer: Mailer, home: Path, error: BisectorError) -> str:
    """Tell once that a night could not begin; return the outcome as text, empty if it was told before."""
    about, told = fingerprint("night", error.message), home / _TOLD
    if told.exists() and told.read_text(encoding="utf-8") == about:
        return ""
    try:
        said = mailer.notice(plan.jobs[0], "bisector nightly: no night", f"{error.message}\n\n{error.hint}")
        told.write_text(about, encoding="utf-8")
    except (BisectorError, OSError) as silent:
        return f"nobody could be told: {silent}"
    return f"notice: {said}"


class PlannedJob(JsonObject, frozen=True, kw_only=True):
    """What a night would do for a job."""

    name: Annotated[str, "name of the job"]
    steps: Annotated[tuple[str, ...], "sentences, in order"] = ()
    problem: Annotated[str | None, "why it cannot be done, or `null`"] = None


class DryRun(JsonObject, frozen=True, kw_only=True):
    """The document that ``bisector nightly --dry-run --json`` prints."""

    schema: Annotated[Literal[2], SCHEMA] = 2
    budget_s: Annotated[float, "seconds that a night has"]
    jobs: Annotated[tuple[PlannedJob, ...], "in the order of the night"]


def dry_run(plan: NightPlan, nights: Iterable[Night], events: Sequence[NightEvent]) -> DryRun:
    """Return what a night would do; each remote is asked, but nothing is fetched or recorded."""
    jobs = []
    for job, history in order(plan, nights, events):
        try:
            jobs.append(PlannedJob(name=job.name, steps=tuple(_steps(job, history))))
        except BisectorError as error:
            jobs.append(PlannedJob(name=job.name, problem=error.message))
    return DryRun(budget_s=plan.budget_s, jobs=tuple(jobs))


def _steps(job: NightJob, history: JobHistory) -> Iterator[str]:
    if history.open is not None:
        yield f"go on with the bisection in {history.open.run_dir}"
    repository = Repository.open(job.repository)
    branch = Branch(repository, job.name, job.remote, job.branch)
    tip = branch.remote_tip()
    if history.knows(tip, job.conditions):
        yield f"fetch: {job.branch} of {branch.shown} is at {tip[:12]}, as the last time"
    else:
        yield f"fetch {job.branch} of {branch.shown}, which is at {tip[:12]}, and measure it"
        if history.reference is not None:
            yield f"compare it with {history.reference.sha[:12]} at {history.reference.text}"
    if history.change is not None:
        yield f"bisect {history.change.old.sha[:12]}..{history.change.new.sha[:12]}: {history.change.direction}"
    if history.unreported:
        yield "report what was found and not told"
