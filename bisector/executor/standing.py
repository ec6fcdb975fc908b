"""How a host stands, read from its spool by whoever asks on the host: its worker, its jobs, its room.

Nothing is asked of the worker, which may be stopped, or busy, or none; and nothing is changed.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Literal

from bisector.core.errors import InfraError
from bisector.core.json_document import SCHEMA, Record
from bisector.core.trial import Stage
from bisector.executor.base import BuildRequest, ControlRequest, Request
from bisector.executor.duty import Drained, DutyFiles, Link
from bisector.executor.spool import Entry, Spool, Standing
from bisector.host.detached import machine_id
from bisector.host.files import disk_room_bytes, our_files
from bisector.store.facts import Work
from bisector.trial.runner import TrialRequest


class NamedCommit(Record, frozen=True, kw_only=True):
    """A commit, as another host names it."""

    sha: Annotated[str, "hash"]
    subject: Annotated[str, "subject line"]
    committed_at: Annotated[str, "time of the commit"]


class ShownWorker(Record, frozen=True, kw_only=True):
    """The worker of a host."""

    pid: Annotated[int, "its process"]
    since: Annotated[str, "time at which it was started"]
    name: Annotated[str, "what its results are known by"]
    coordinator: Annotated[str, "address of the coordinator that it works for"]
    link: Annotated[Link, "whether it is connected to the coordinator, waits for it, or leaves after its job"]
    link_since: Annotated[str, "time since which that is so"]
    stopped: Annotated[bool, "whether its process is stopped (SIGSTOP), so that it hears nothing"]


class ShownJob(Record, frozen=True, kw_only=True):
    """A job that a host was given and that its coordinator has not put on record."""

    run: Annotated[str, "key of its run"]
    id: Annotated[int, "number of the job in its run"]
    standing: Annotated[Standing, "`done`: its result waits for the coordinator; `lost`: its process died without one"]
    began: Annotated[str, "time at which the host took it"]
    work: Annotated[Work | None, "what is done; `null` if another version of bisector wrote that"]
    n: Annotated[int | None, "number of the trial that it makes, if any"]
    commit: Annotated[NamedCommit | None, "commit that it is about"]
    stage: Annotated[Stage | None, "stage that it began last; `null` before the first"]
    detail: Annotated[str, "more on that, for people; may be empty"]
    stage_since: Annotated[str | None, "time at which that stage began"]


class HostStanding(Record, frozen=True, kw_only=True):
    """How a host stands."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    machine: Annotated[str, "its machine-id(5)"]
    spool: Annotated[str, "directory of its jobs"]
    worker: Annotated[ShownWorker | None, "its worker; `null` when none runs"]
    drained: Annotated[Drained | None, "whether it is to take no jobs, since when and why; `null` when it takes some"]
    running: Annotated[tuple[ShownJob, ...], "jobs under way"]
    waiting: Annotated[tuple[ShownJob, ...], "jobs that are over and not on record"]
    free_bytes: Annotated[int, "room left on the file system of the spool"]


def standing(spool: Spool) -> HostStanding:
    """How this host stands now; raises :class:`InfraError` for a spool that cannot be read."""
    files = DutyFiles(spool)
    with our_files(spool.home):
        jobs = tuple(_jobs(spool))
        return HostStanding(
            machine=machine_id(),
            spool=str(spool.home),
            worker=_worker(files),
            drained=files.drained(),
            running=tuple(job for job in jobs if job.standing is Standing.RUNNING),
            waiting=tuple(job for job in jobs if job.standing is not Standing.RUNNING),
            free_bytes=disk_room_bytes(spool.home),
        )


def _worker(files: DutyFiles) -> ShownWorker | None:
    if (duty := files.duty()) is None:
        return None
    return ShownWorker(
        pid=duty.pid,
        since=duty.since,
        name=duty.name,
        coordinator=duty.coordinator,
        link=duty.link,
        link_since=duty.link_since,
        stopped=duty.process.stopped,
    )


def _jobs(spool: Spool) -> Iterator[ShownJob]:
    for entry in spool.entries():
        try:
            yield _job(entry)
        except FileNotFoundError:  # acknowledged in this moment
            continue


def _job(entry: Entry) -> ShownJob:
    how, stage = entry.standing, entry.stage()
    work: tuple[Work, int | None] | None = None
    commit = None
    try:
        request = entry.spec().request
        of = request.commit
        work, commit = _work(request), NamedCommit(sha=of.sha, subject=of.subject, committed_at=of.committed_at)
    except InfraError:  # of another version, or acknowledged in this moment
        if not entry.exists:
            raise FileNotFoundError(entry.path) from None
    return ShownJob(
        run=entry.key.run,
        id=entry.key.id,
        standing=how,
        began=_time(entry.taken_at),
        work=work[0] if work is not None else None,
        n=work[1] if work is not None else None,
        commit=commit,
        stage=stage[0].stage if stage is not None else None,
        detail=stage[0].detail if stage is not None else "",
        stage_since=_time(stage[1]) if stage is not None else None,
    )


def _work(request: Request) -> tuple[Work, int | None]:
    match request:
        case TrialRequest(n=n):
            return Work.TRIAL, n
        case ControlRequest():
            return Work.CONTROL, None
        case BuildRequest(measured=measured):
            return Work.BUILD if measured is None else Work.RECHECK, None


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")
