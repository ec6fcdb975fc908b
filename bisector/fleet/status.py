"""The state of the hosts of ``hosts.toml``, and what their doctors find; all are asked at once, by SSH."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from bisector.config import options
from bisector.core import examination, json_document
from bisector.core.errors import BisectorError, Finding, Grade, InfraError, UserError
from bisector.core.events import StageStarted
from bisector.core.examination import Examination
from bisector.core.json_document import SCHEMA, JsonObject
from bisector.core.printable import clean
from bisector.core.trial import Stage
from bisector.fleet import hosts, spec
from bisector.fleet.hosts import Host, Hosts
from bisector.fleet.spec import Spec, Versions
from bisector.host.files import disk_room_bytes, nearest, write_atomically
from bisector.host.locks import holder_of
from bisector.store.log import now
from bisector.store.rundir import LOCK, jobs_home
from bisector.trial.runner import TrialRequest

QUESTION_S = 60.0
_FILE = "job.json"
SSH = "ssh"  # the only row of a host that cannot be reached
_DOCTOR_S = 240.0  # a doctor may try KVM and QEMU, but builds nothing
_MOST_CLOCK_S = 2.0


class UnderWay(JsonObject, frozen=True, kw_only=True):
    """A job that is under way on a host."""

    run: Annotated[str, "key of its run"]
    id: Annotated[int, "number of the job in its run"]
    n: Annotated[int | None, "number of the trial that it makes; `null` for a build, or a control trial"]
    sha: Annotated[str, "hash of the commit that it is about"]
    stage: Annotated[Stage | None, "stage that it began last; `null` before the first"]
    detail: Annotated[str, "more on that, for people; may be empty"]
    since: Annotated[str, "time at which that stage, or the job, began"]

    @classmethod
    def of(cls, spec: Spec, stage: StageStarted | None = None) -> Self:
        """Describe the job of a spec, or a stage of the job, that begins now."""
        request = spec.request
        return cls(
            run=spec.key.run,
            id=spec.key.id,
            n=request.n if isinstance(request, TrialRequest) else None,
            sha=request.commit.sha,
            stage=stage.stage if stage is not None else None,
            detail=stage.detail if stage is not None else "",
            since=now(),
        )

    def write(self, place: Path) -> None:
        """Write the file that shows this job while the lock of ``place`` is held."""
        with suppress(OSError):  # a full disk is reported when facts are written
            write_atomically(place / _FILE, json_document.text(self).encode())


class HostDescription(JsonObject, frozen=True, kw_only=True):
    """The description that a host gives of itself to bisector on another machine."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    versions: Annotated[Versions, "what has to be the same on all machines"]
    clock_s: Annotated[float, "its clock, in seconds since 1970"]
    jobs: Annotated[tuple[UnderWay, ...], "jobs of other machines' runs that are under way"]
    free_bytes: Annotated[int, "room left where such jobs are done"]


class HostState(StrEnum):
    """The state of a host."""

    WORKING = "working"
    IDLE = "idle"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"


class HostStatus(JsonObject, frozen=True, kw_only=True):
    """A host of the file, and its state."""

    name: Annotated[str, "name of the host"]
    state: Annotated[HostState, "what it does; `refused`: its versions differ from those here, or it cannot be asked"]
    trouble: Annotated[str | None, "why it is so, if that is trouble; sentences may change"]
    remedy: Annotated[str | None, "command that fixes it, or a hint"]
    told: Annotated[HostDescription | None, "what it told; `null` if it did not answer"]


class FleetStatus(JsonObject, frozen=True, kw_only=True):
    """The output of ``bisector fleet status --json``."""

    schema: Annotated[Literal[2], SCHEMA] = 2
    versions: Annotated[Versions, "those of this machine"]
    hosts: Annotated[tuple[HostStatus, ...], "in the order of the file"]

    @property
    def complete(self) -> bool:
        """Whether each host can measure for this machine."""
        return all(host.state in (HostState.WORKING, HostState.IDLE) for host in self.hosts)


def describe() -> HostDescription:
    """Return the description of this machine as a host."""
    home = jobs_home()
    return HostDescription(
        versions=spec.own_versions(),
        clock_s=time.time(),
        jobs=tuple(_under_way(home)),
        free_bytes=disk_room_bytes(nearest(home)),
    )


def _under_way(home: Path) -> Iterator[UnderWay]:
    for file in sorted(home.glob(f"*/{_FILE}")):
        with suppress(OSError, InfraError, ValueError):  # the job has just ended, or is of another version of bisector
            if holder_of(file.parent / LOCK) is not None:
                yield json_document.parsed(file.read_text(encoding="utf-8"), UnderWay)


def described(host: Host) -> HostDescription:
    """Ask a host for its description; raises as :func:`hosts.asked` does, and :class:`UserError` if versions differ."""
    answer = hosts.asked(host, "fleet", "on-host", "describe", within_s=QUESTION_S)
    try:
        return json_document.parsed(answer, HostDescription)
    except ValueError as error:
        said = clean((answer.strip() or "nothing").splitlines()[-1])
        there = hosts.asked(host, "--version", within_s=QUESTION_S).strip()
        raise UserError(
            f"{host.name} has {clean(there)}, and here is bisector {spec.own_versions().bisector}; it answered: {said}",
            "install the same bisector on both machines",
        ) from error


def of_fleet(listed: Hosts) -> FleetStatus:
    """Return the state of all hosts of a file."""
    return FleetStatus(versions=spec.own_versions(), hosts=hosts.of_each(listed.hosts, _status))


def _status(host: Host) -> HostStatus:
    try:
        told = described(host)
    except BisectorError as error:
        state = HostState.REFUSED if isinstance(error, UserError) else HostState.UNREACHABLE
        trouble, remedy = clean(error.message), error.hint or None
        return HostStatus(name=host.name, state=state, trouble=trouble, remedy=remedy, told=None)
    if apart := spec.version_differences(told.versions):
        remedy = "install the same commit of bisector, and the same packages, on both machines"
        return HostStatus(name=host.name, state=HostState.REFUSED, trouble=apart, remedy=remedy, told=told)
    state = HostState.WORKING if told.jobs else HostState.IDLE
    return HostStatus(name=host.name, state=state, trouble=None, remedy=None, told=told)


# What doctors find


class HostExamination(JsonObject, frozen=True, kw_only=True):
    """The findings about a host."""

    name: Annotated[str, "name of the host"]
    ready: Annotated[bool, "whether `bisector start` could begin there"]
    findings: Annotated[tuple[Finding, ...], "`ssh`, `clock`, `versions`, then its doctor's"]


class HostsExamination(JsonObject, frozen=True, kw_only=True):
    """The output of ``bisector doctor --hosts --json``."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    ready: Annotated[bool, "whether `bisector start` could begin on every host (exit code 0)"]
    hosts: Annotated[tuple[HostExamination, ...], "in the order of the file"]


def survey(listed: Hosts, settings: Mapping[str, object]) -> dict[str, tuple[Finding, ...]]:
    """Examine each host with these settings; return the findings by host, in the order in which they are shown."""
    found = hosts.of_each(listed.hosts, lambda host: tuple(map(_clean, _findings(host, settings))))
    return dict(zip((host.name for host in listed.hosts), found, strict=True))


def document(surveyed: Mapping[str, Sequence[Finding]]) -> HostsExamination:
    """Return the findings as a document for scripts."""
    examined = tuple(
        HostExamination(name=name, ready=examination.ready(found), findings=tuple(found))
        for name, found in surveyed.items()
    )
    return HostsExamination(ready=all(one.ready for one in examined), hosts=examined)


def clock(there_s: float, began_s: float, ended_s: float) -> Finding:
    """Return whether a host's clock, read between two moments of this machine's clock, agrees with it.

    Credentials are valid from the moment they are made; by a clock that is behind, they are not valid yet.
    """
    apart_s = max(began_s - there_s, there_s - ended_s, 0.0)
    if apart_s <= _MOST_CLOCK_S:
        return Finding("clock", Grade.OK, "as here")
    side = "behind" if there_s < began_s else "ahead of"
    return Finding("clock", Grade.WARN, f"{apart_s:.0f} s {side} this machine's", "timedatectl set-ntp true")


def _findings(host: Host, settings: Mapping[str, object]) -> Iterator[Finding]:
    began, began_s = time.time(), time.monotonic()
    try:
        found = described(host)
    except BisectorError as error:
        yield Finding(SSH, Grade.MISSING, error.message, error.hint or None)
        return
    yield Finding(SSH, Grade.OK, "answers")
    yield clock(found.clock_s, began, began + time.monotonic() - began_s)
    if apart := spec.version_differences(found.versions):
        yield Finding("versions", Grade.MISSING, apart, "install the same commit of bisector on both machines")
        return
    yield Finding("versions", Grade.OK, "as here")
    try:
        examined = _examined(host, settings)
    except BisectorError as error:
        yield Finding("doctor", Grade.MISSING, error.message, error.hint or None)
        return
    yield from examined.findings


def _examined(host: Host, settings: Mapping[str, object]) -> Examination:
    """What a host's doctor finds with these settings and the host's disks, without the host's configuration files."""
    disks = {f"storage.{name}.path": path for name, path in host.disks.items()}
    given = options.write({**settings, **disks})
    words = ("doctor", "--json", "--config", "/dev/stdin")
    answer = hosts.asked(host, *words, within_s=_DOCTOR_S, stdin=given)
    try:
        return json_document.parsed(answer, Examination)
    except ValueError as error:
        said = clean((answer.strip() or "nothing").splitlines()[-1])
        raise BisectorError(f"its doctor gave no answer: {said}", f"ssh {host.login} {host.bisector} doctor") from error


def _clean(row: Finding) -> Finding:
    remedy = None if row.remedy is None else "\n".join(map(clean, row.remedy.split("\n")))
    return Finding(clean(row.name), row.state, clean(row.what), remedy)
