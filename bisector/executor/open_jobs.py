"""A job on other hosts that has not ended, as its executor knows it; and why a job, or a host, is of no use."""

from collections.abc import Iterable
from dataclasses import dataclass

from bisector.core.deadline import Deadline
from bisector.executor.base import BuildRequest
from bisector.executor.hosts import Host
from bisector.executor.spec import Key, Spec

CONNECT = "on each host: bisector worker ADDRESS"


@dataclass(slots=True)
class OpenJob:
    """A job that has not ended: on which host, the newest attempt at hearing of it, since when it is silent, and why.

    ``spec`` is None of a job that an earlier process has submitted. ``address`` is empty while no host that is
    connected has it.
    """

    spec: Spec | None
    wanted: str
    host: str = ""
    machine: str = ""
    address: str = ""
    attempt: int = 0
    why: str = ""
    cancelled: bool = False
    silent: Deadline | None = None

    @property
    def is_build(self) -> bool:
        """Whether nothing is lost with it but a kernel, as far as is known."""
        return self.spec is not None and isinstance(self.spec.request, BuildRequest)


def why_given_up(key: Key, one: OpenJob, patience_s: float, hosts: Iterable[Host]) -> tuple[str, str]:
    """Why a job is given up after so long, and what may be done about that; ``hosts`` are those that are there."""
    minutes = f"{patience_s / 60:g} min"
    why = f" ({one.why})" if one.why else ""
    if one.host or one.spec is None:
        where = f" on {one.host}" if one.host else ""
        return f"nothing was heard of job {key}{where} for {minutes}{why}; it is given up", CONNECT
    drained = [host.name for host in hosts if one.wanted in ("", host.name)]
    if drained:
        return (
            f"no host took job {key} within {minutes}; drained, or leaving: {', '.join(drained)}",
            f"bisector fleet release {drained[0]}",
        )
    return f"no host had job {key} within {minutes}{why}", CONNECT


def difference(theirs: tuple[tuple[str, str], ...], ours: tuple[tuple[str, str], ...]) -> str:
    """In what versions differ, for people."""
    found = dict(theirs)
    return ", ".join(
        f"{name} {found.get(name, 'missing')} there, {version} here"
        for name, version in ours
        if found.get(name) != version
    )
