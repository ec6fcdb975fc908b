"""One night: the order in which the jobs have their turns within the hours they share, or what it would do."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from bisector.core.deadline import Deadline
from bisector.core.errors import BisectorError, InfraError, Interrupted
from bisector.core.events import Note
from bisector.core.json_document import JsonObject
from bisector.core.json_keys import SCHEMA
from bisector.git.remotes import Branch
from bisector.git.repository import Repository
from bisector.host.locks import Held, held
from bisector.nightly.job_history import JobHistory, replay
from bisector.nightly.job_run import JobRun, Mailer, NightContext
from bisector.nightly.plan import NightJob, NightPlan
from bisector.nightly.trouble import NightOver, StepFailed, caught, fingerprint
from bisector.store.nights import JobBegun, Night, NightEnding, NightEvent

LOCK = "lock"
_TOLD = "no-night"
_JOURNAL = "If a timer began it: journalctl -u bisector-nightly; of a user's timer, --user-unit instead of -u."


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
    with Repository.open(job.repository) as repository:
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
    if history.untold:
        yield "report what was found and not told"
