"""What ``bisector fleet`` prints with ``--json``, and what two bisectors tell each other about a host."""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from bisector.core.examination import ShownFinding
from bisector.core.json_document import SCHEMA, Record


class Versions(Record, frozen=True, kw_only=True):
    """What has to be the same on all machines of a fleet."""

    python: Annotated[str, "major and minor version of Python"]
    bisector: Annotated[str, "version of bisector"]
    source: Annotated[str, "digest of bisector's own modules"]
    distributed: Annotated[str | None, "version of distributed; `null` where it is not installed"]
    cloudpickle: Annotated[str | None, "version of cloudpickle"]
    msgpack: Annotated[str | None, "version of msgpack"]
    executable: Annotated[str, "Python that runs bisector there; may differ"]


class ShownCertificate(Record, frozen=True, kw_only=True):
    """A certificate."""

    name: Annotated[str, "whose it is"]
    serial: Annotated[str, "serial number, in hex"]
    until: Annotated[str, "time at which it expires"]
    days_left: Annotated[int, "whole days until then"]
    authority: Annotated[str, "SHA-256 of the certificate of the authority that it goes with"]

    @classmethod
    def of(cls, name: str, serial: str, until: datetime, days_left: int, authority: str) -> Self:
        """With the time as documents have it."""
        when = until.isoformat(timespec="seconds")
        return cls(name=name, serial=serial, until=when, days_left=days_left, authority=authority)


class HostDescription(Record, frozen=True, kw_only=True):
    """What ``bisector fleet on-host`` prints, for another bisector."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    versions: Annotated[Versions, "what has to be the same on all machines"]
    clock_s: Annotated[float, "its clock, in seconds since 1970"]
    certificate: Annotated[ShownCertificate | None, "the certificate that its worker has"]
    worker: Annotated[str | None, "state of its unit, as systemd has it; `null` without systemd or the unit"]
    linger: Annotated[bool | None, "whether units of its user run while nobody is logged in; `null` without systemd"]
    start: Annotated[str, "line that starts the worker by hand; empty where it has no certificate"]
    trouble: Annotated[str, "why systemd could not be told; empty when it was"] = ""


class Installation(Record, frozen=True, kw_only=True):
    """What a host is given."""

    certificate: Annotated[str, "its certificate (PEM)"]
    authority: Annotated[str, "certificate of the authority (PEM)"]
    coordinator: Annotated[str, "address of the coordinator"]
    repository: Annotated[str | None, "absolute path of a clone on the host; `null` without one"] = None


class FleetMade(Record, frozen=True, kw_only=True):
    """What ``bisector fleet init --json`` prints."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    directory: Annotated[Path, "where all of it is kept"]
    made: Annotated[bool, "whether the authority was made now"]
    renewed: Annotated[bool, "whether the coordinator's certificate was made now"]
    authority: Annotated[ShownCertificate, "certificate of the authority"]
    coordinator: Annotated[ShownCertificate, "certificate of the coordinator"]


class HostAdded(Record, frozen=True, kw_only=True):
    """What ``bisector fleet add --json`` prints."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    name: Annotated[str, "name of the host"]
    ssh: Annotated[str, "how it is logged into"]
    key: Annotated[str, "fingerprint of its SSH key, which is pinned"]
    certificate: Annotated[ShownCertificate, "its certificate"]
    worker: Annotated[str | None, "state of its unit, as systemd has it; `null` without systemd"]
    linger: Annotated[bool | None, "whether its unit runs while nobody is logged in; `null` without systemd"]
    start: Annotated[str, "line that starts the worker by hand"]
    ready: Annotated[bool, "whether `bisector start` could begin there (exit code 0)"]
    findings: Annotated[tuple[ShownFinding, ...], "what its doctor found"]
    hosts_file: Annotated[Path, "file that lists it"]


class HostExamination(Record, frozen=True, kw_only=True):
    """What was found out about a host."""

    name: Annotated[str, "name of the host"]
    ready: Annotated[bool, "whether `bisector start` could begin there"]
    findings: Annotated[
        tuple[ShownFinding, ...], "`ssh`, `clock`, `certificate`, `worker`, `versions`, then its doctor's"
    ]


class HostsExamination(Record, frozen=True, kw_only=True):
    """What ``bisector doctor --hosts --json`` prints."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    ready: Annotated[bool, "whether `bisector start` could begin on every host (exit code 0)"]
    hosts: Annotated[tuple[HostExamination, ...], "in the order of the file"]


class HostRemoved(Record, frozen=True, kw_only=True):
    """What ``bisector fleet remove --json`` prints."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    name: Annotated[str, "name of the host"]
    removed: Annotated[tuple[str, ...], "what was removed, in words"]
    certificate: Annotated[ShownCertificate | None, "its certificate, which stays valid; `null` if it had none"]
