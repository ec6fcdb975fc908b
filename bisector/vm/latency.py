"""A disk that answers later than it could: its requests go by way of nbdkit on the host, which waits with each.

QEMU limits rates and has no delay of its own (qemu(1), "throttling.*"), and a delay in the guest (dm-delay) would be
code of the kernel under test. nbdkit serves the file or the block device to QEMU over a socket, and its delay filter
sleeps before each read, write and discard (nbdkit-delay-filter(1)). Up to 16 requests are under way at a time
(MAX_NBD_REQUESTS in QEMU's block/nbd.c), each of which waits on its own.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError
from bisector.host import process
from bisector.host.files import scratch
from bisector.host.packages import not_installed
from bisector.vm.definition import DiskSource, DiskSpec, SourceKind

PROGRAM = "nbdkit"
_THREADS = 32  # more than QEMU has requests under way
_STARTED_S = 20.0
_EVERY_S = 0.01


def check_program() -> None:
    """Raise :class:`bisector.core.errors.UserError` where nbdkit is not installed."""
    if shutil.which(PROGRAM) is None:
        raise not_installed(PROGRAM, PROGRAM)


@contextmanager
def delayed(disk: DiskSpec, latency_s: float, run_dir: Path) -> Iterator[DiskSpec]:
    """The same disk with so much time added to each request, in whole milliseconds.

    The process that does it is marked as the run's, so that the next one ends what a killed one has left. Raises
    :class:`InfraError` when it does not start, and as :func:`check_program`.
    """
    with scratch("nbd", mode=0o700) as place:  # a socket's path has at most 107 bytes (unix(7)), fewer than a run's
        socket, pid = place / "socket", place / "pid"
        number = _start(disk, round(latency_s * 1000), socket, pid, run_dir)
        try:
            yield replace(disk, source=DiskSource(SourceKind.NETWORK, str(socket)), part=None)
        finally:
            # One that has ended by itself has stopped the guest, whose disk answered with an error.
            process.end(number, lambda pid: _serves(pid, socket))


def _start(disk: DiskSpec, milliseconds: int, socket: Path, pid: Path, run_dir: Path) -> int:
    """The number of the process.

    It goes into the background once it listens (nbdkit(1), "--foreground"), but stays in its process group.
    What a command leaves in its group is ended with it, so it gets a session of its own (setsid(1)).
    """
    check_program()
    part = () if disk.part is None else (f"offset={disk.part[0]}", f"range={disk.part[1]}")
    filters = ("--filter=delay", *(("--filter=offset",) if part else ()))
    delays = (f"rdelay={milliseconds}ms", f"wdelay={milliseconds}ms")
    where = ("--unix", str(socket), "--pidfile", str(pid), f"--threads={_THREADS}")
    words = ("setsid", "--wait", PROGRAM, *where, *filters, "file", disk.source.name, "cache=none", *delays, *part)
    try:
        process.run(words, deadline_s=_STARTED_S, run_marker=run_dir)
        return Deadline("the start of nbdkit", _STARTED_S).poll(lambda: _number(pid), _EVERY_S)
    except (process.CommandMissing, process.CommandFailed, process.CommandTimeout, DeadlineExpired) as error:
        raise InfraError(f"the {disk.serial} disk gets no latency: {error}") from error


def _number(file: Path) -> int | None:
    """Its process, once it has written that: it does so in the background (write_pidfile() in its main.c)."""
    text = file.read_text(encoding="ascii") if file.exists() else ""
    return int(text) if text.endswith("\n") else None


def _serves(pid: int, socket: Path) -> bool:
    with suppress(OSError):
        return str(socket).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return False
