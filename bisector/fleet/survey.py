"""``bisector doctor --hosts``: it examines all hosts at the same time, each by its own doctor."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from bisector.config import file as configfile
from bisector.core import examination, json_document
from bisector.core.errors import BisectorError, Finding, Grade
from bisector.core.examination import Examination
from bisector.core.json_document import JsonObject
from bisector.core.json_keys import SCHEMA
from bisector.core.printable import clean
from bisector.fleet import ssh, versions
from bisector.fleet.hosts import Host, Hosts
from bisector.fleet.status import described

SSH = "ssh"  # the only row of a host that cannot be reached
_DOCTOR_S = 240.0  # a doctor may try KVM and QEMU, but builds nothing
_MOST_CLOCK_S = 2.0


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
    found = ssh.of_each(listed.hosts, lambda host: tuple(map(_clean, _findings(host, settings))))
    return dict(zip((host.name for host in listed.hosts), found, strict=True))


def document(surveyed: Mapping[str, Sequence[Finding]]) -> HostsExamination:
    """Return the findings as a document for scripts."""
    hosts = tuple(
        HostExamination(name=name, ready=examination.ready(found), findings=tuple(found))
        for name, found in surveyed.items()
    )
    return HostsExamination(ready=all(one.ready for one in hosts), hosts=hosts)


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
    if apart := versions.differences(found.versions):
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
    given = configfile.write({**settings, **disks})
    words = ("doctor", "--json", "--config", "/dev/stdin")
    answer = ssh.asked(host, *words, within_s=_DOCTOR_S, stdin=given)
    try:
        return json_document.parsed(answer, Examination)
    except ValueError as error:
        said = clean((answer.strip() or "nothing").splitlines()[-1])
        raise BisectorError(f"its doctor gave no answer: {said}", f"ssh {host.login} {host.bisector} doctor") from error


def _clean(row: Finding) -> Finding:
    remedy = None if row.remedy is None else "\n".join(map(clean, row.remedy.split("\n")))
    return Finding(clean(row.name), row.state, clean(row.what), remedy)
