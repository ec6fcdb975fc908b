"""Processes that outlive whoever started them, and how they are recognised, waited for and ended by anybody.

Each leads a session, and so a group, of its own, and is known by its number, the moment it was started and the boot of
its host: a number alone passes to another process. They are started with posix_spawn(3), which is safe beside other
threads, and which keeps no object that wants to wait for them.
"""

import os
import platform
import select
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError

_MACHINE_ID = Path("/etc/machine-id")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Fields 3, 5 and 22 of proc_pid_stat(5), of those that follow the name in parentheses.
_STATE, _GROUP, _START_TIME = 0, 2, 19
_GONE_S = 10.0  # SIGKILL to end: longer only in an uninterruptible sleep
KEPT_FILE = 3  # the descriptor under which a started process finds the file that it was given


def boot_id() -> str:
    """The boot of this host (random(4)); another one after each."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def machine_id() -> str:
    """The installation of this host (machine-id(5)); its name where it has none."""
    with suppress(OSError):
        return _MACHINE_ID.read_text(encoding="ascii").strip()
    return platform.node()


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, for good: ``started`` is in clock ticks since the boot."""

    pid: int
    started: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Self:
        """That of a process that is there; raises ``ProcessLookupError``."""
        if (started := _started(pid)) is None:
            raise ProcessLookupError(pid)
        return cls(pid, started, boot_id())

    @property
    def lives(self) -> bool:
        """Whether it is still there; one that has ended and is not waited for yet, a zombie, is."""
        return self.boot_id == boot_id() and _started(self.pid) == self.started

    @property
    def stopped(self) -> bool:
        """Whether it was stopped, by SIGSTOP or Ctrl-Z say, and does nothing until SIGCONT."""
        fields = _stat(self.pid)
        return self.lives and bool(fields) and fields[_STATE] in (b"T", b"t")

    def open(self) -> int | None:
        """A pidfd_open(2) of it, readable once it has ended, for the caller to close; None when it is gone."""
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(self.pid)
            if self.lives:  # looked at again, now that the number cannot pass to another one
                return pidfd
            os.close(pidfd)
        return None


def _started(pid: int) -> int | None:
    return int(fields[_START_TIME]) if (fields := _stat(pid)) else None


def _stat(pid: int) -> list[bytes]:
    """What follows the name in proc_pid_stat(5); nothing of a process that is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
    return []


def start(argv: Sequence[str], log: Path, kept_file: int, extra: Mapping[str, str]) -> int:
    """Start a program in a session of its own; its number.

    Standard input is empty, and what it writes is appended to ``log``. Of the files that are open here, which Python
    hands on to nobody (PEP 446), it has ``kept_file`` as :data:`KEPT_FILE`: a lock of flock(2) on it is held as long
    as either process lives.
    """
    words = list(argv)
    actions: list[tuple[object, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.fspath(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
        (os.POSIX_SPAWN_DUP2, kept_file, KEPT_FILE),
    ]
    usual = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGPIPE)
    environment = {**os.environ, **extra}
    # posix_spawn(3) leaves the flag of a descriptor that is duplicated onto itself, so it must not be that one.
    free = os.dup(kept_file) if kept_file == KEPT_FILE else None
    try:
        if free is not None:
            actions[-1] = (os.POSIX_SPAWN_DUP2, free, KEPT_FILE)
        return os.posix_spawn(words[0], words, environment, file_actions=actions, setsid=True, setsigdef=usual)
    finally:
        if free is not None:
            os.close(free)


def ended_within(pidfd: int, seconds: float) -> bool:
    """Whether a process ends in that time; one that this process started leaves no zombie (wait(2))."""
    if not select.select([pidfd], [], [], seconds)[0]:
        return False
    with suppress(ChildProcessError):  # another process's
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    return True


def end_group(leader: ProcessIdentity, grace_s: float) -> bool:
    """SIGTERM to a leader and its group, ``grace_s``, then SIGKILL; False when the leader was gone.

    Nobody of the group is left when this returns; raises :class:`InfraError` for one that does not go.
    """
    if (pidfd := leader.open()) is None:
        return False
    try:
        _signal(leader.pid, signal.SIGTERM)
        ended = select.select([pidfd], [], [], grace_s)[0]  # not waited for yet: its number stays that of the group
        _signal(leader.pid, signal.SIGKILL)
        if not (ended or ended_within(pidfd, _GONE_S)):
            raise _stays(leader.pid)
        ended_within(pidfd, 0.0)
    finally:
        os.close(pidfd)
    try:
        Deadline("the end of a process group", _GONE_S).poll(lambda: True if not _runs(leader.pid) else None)
    except DeadlineExpired as error:
        raise _stays(leader.pid) from error
    return True


def _signal(group: int, signum: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # nobody is left; or somebody who changed user
        os.killpg(group, signum)


def _runs(group: int) -> bool:
    """Whether anybody of a group runs; kill(2) counts zombies, too, which their parent may leave for good."""
    found = (_stat(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return any(int(fields[_GROUP]) == group and fields[_STATE] not in (b"Z", b"X") for fields in found if fields)


def _stays(pid: int) -> InfraError:
    return InfraError(
        f"process {pid} does not end, or left a child that does not", f"ps -o pid,stat,wchan,args -g {pid}"
    )
