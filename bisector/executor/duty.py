"""What a host's worker is doing, and whether the host takes jobs: two small files in its spool, beside the jobs.

``SPOOL/worker`` is the worker's own: which process it is, whom it works for, and whether it is connected.
``SPOOL/drained`` is there as long as the host is to take no jobs; so that holds across restarts of worker and
coordinator, and needs neither. Each appears and goes by one rename(2) or unlink(2), so whoever writes one may be killed
at any moment. A worker that runs is told to look by SIGUSR1.
"""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

from bisector.core import json_document
from bisector.core.json_document import Record
from bisector.core.printable import clean
from bisector.executor.spool import Spool, is_locked, sync
from bisector.host.detached import ProcessIdentity
from bisector.host.files import our_files, write_whole
from bisector.store.log import now

LOOK_SIGNAL = signal.SIGUSR1
_WORKER, _DRAINED = "worker", "drained"
_MOST_BYTES = 64 << 10
_LONGEST_REASON = 200
Written = TypeVar("Written", bound=Record)


class Link(StrEnum):
    """Whether a worker has its coordinator: waiting for it, connected, or leaving once its job is done."""

    WAITING = "waiting"
    CONNECTED = "connected"
    LEAVING = "leaving"


class Drained(Record, frozen=True, kw_only=True):
    """That a host is to take no jobs."""

    since: Annotated[str, "time"]
    reason: Annotated[str, "why, as somebody said; may be empty"]


class Duty(Record, frozen=True, kw_only=True):
    """What a worker writes of itself."""

    pid: int
    started: int
    boot_id: str
    since: str
    name: str
    coordinator: str
    link: Link
    link_since: str

    @property
    def process(self) -> ProcessIdentity:
        """The worker, for good."""
        return ProcessIdentity(self.pid, self.started, self.boot_id)


@dataclass(frozen=True, slots=True)
class DutyFiles:
    """The two files of a spool."""

    spool: Spool

    def drained(self) -> Drained | None:
        """Whether the host is to take no jobs; a file that nobody can read means that it is."""
        path = self.spool.home / _DRAINED
        if not os.path.lexists(path):
            return None
        return _read(path, Drained) or Drained(since="", reason="")

    def drain(self, reason: str = "") -> Drained:
        """Have the host take no more jobs; one that is drained stays so, with the new reason if there is one.

        Raises :class:`bisector.core.errors.InfraError` where that cannot be written.
        """
        was = self.drained()
        if was is not None and was.since and not reason:
            wanted = was
        else:
            since = was.since if was is not None and was.since else now()
            wanted = Drained(since=since, reason=clean(reason)[:_LONGEST_REASON])
            self._write(_DRAINED, wanted)
        self._tell()
        return wanted

    def release(self) -> bool:
        """Let the host take jobs again; whether it was drained."""
        path = self.spool.home / _DRAINED
        was = os.path.lexists(path)
        with our_files(self.spool.home):
            path.unlink(missing_ok=True)
            if was:
                sync(self.spool.home)
        self._tell()
        return was

    def report(self, duty: Duty) -> None:
        """Write what this worker is doing; where that cannot be written, nobody is worse off but who asks."""
        with suppress(OSError):
            write_whole(self.spool.home / _WORKER, json_document.text(duty).encode())

    def duty(self) -> Duty | None:
        """What the worker of this spool is doing; None when none runs."""
        found = _read(self.spool.home / _WORKER, Duty)
        return found if found is not None and is_locked(self.spool.lock) and found.process.lives else None

    def _tell(self) -> None:
        """Wake the worker. It has its handler before it writes who it is, and looks by itself now and then."""
        if (duty := self.duty()) is None or (pidfd := duty.process.open()) is None:
            return
        try:
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(pidfd, LOOK_SIGNAL)
        finally:
            os.close(pidfd)

    def _write(self, name: str, record: Record) -> None:
        home = self.spool.home
        with our_files(home):
            home.mkdir(parents=True, exist_ok=True)
            write_whole(home / name, json_document.text(record).encode())
            sync(home)


def _read(path: Path, kind: type[Written]) -> Written | None:
    with suppress(OSError, ValueError), path.open("rb") as file:
        return json_document.parsed(file.read(_MOST_BYTES).decode(), kind)
    return None
