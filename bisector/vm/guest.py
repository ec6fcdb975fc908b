"""A root shell in a running guest: the one owner of fabric and paramiko.

paramiko waits without a time limit in several places (the answer to "exec", an SFTP reply). So every such call runs in
one worker thread while the caller's thread watches the clock and the guest; when either says stop, the connection is
closed, which frees the worker. The guest runs the kernel under test, and is not trusted: whatever it sends is bounded.
"""

import codecs
import logging
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

import fabric
import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey
from paramiko.pkey import UnknownKeyType

from bisector.core.deadline import AttentiveClock, Deadline
from bisector.core.errors import InfraError
from bisector.core.shell import CommandResult
from bisector.host.files import our_files
from bisector.vm.base import GuestCopyFailed, GuestError, GuestLost, GuestNonsense, GuestRefused, GuestTimeout
from bisector.vm.image import GuestImage

_MIB = 1 << 20
_LONGEST_LINE = 65536


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that is taken from a guest: of one file, and of the output of one command (both streams together).

    After ``silence_s`` without output the guest is asked for a sign of life, for which it has ``answer_s``.
    """

    file_bytes: int = 64 * _MIB
    output_bytes: int = 64 * _MIB
    silence_s: float = 60.0
    answer_s: float = 120.0


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that was not there, and is not a link to another one; half of it is removed.

    Raises :class:`InfraError` when it cannot be made or written.
    """
    descriptor = _made(path)
    try:
        with our_files(path.parent), os.fdopen(descriptor, "wb") as file:  # what is written last may fail at its end
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _made(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InfraError(f"cannot make {path}: {error.strerror}", f"ls -ld {path.parent}") from error


class StreamedText:
    """A stream of bytes as text, all of it at the end and line by line meanwhile."""

    def __init__(self, on_line: Callable[[str], None] | None = None) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._on_line = on_line
        self._all: list[str] = []
        self._begun = ""
        self.read_bytes = 0

    def feed(self, data: bytes, final: bool = False) -> None:
        """Take the next piece; ``final`` is the last one."""
        self.read_bytes += len(data)
        text = self._decoder.decode(data, final)
        self._all.append(text)
        if self._on_line is not None:
            first, *others = re.split(r"\r\n|\r|\n", text)
            *lines, self._begun = self._begun + first, *others
            if len(self._begun) > _LONGEST_LINE:
                lines.append(self._begun)
                self._begun = ""
            for line in lines:
                self._on_line(line)

    def end(self) -> str:
        """Everything there was; a last line without an end is handed over too."""
        self.feed(b"", final=True)
        if self._on_line is not None and self._begun:
            self._on_line(self._begun)
        return "".join(self._all)


@dataclass(slots=True)
class Life:
    """Asks a guest for a sign of life, by ``ask``, after ``silence_s``, and gives it up ``answer_s`` later.

    By ``now``, which counts no time in which this process was stopped.
    """

    ask: Callable[[], Future[object]]
    silence_s: float
    answer_s: float
    command: str
    now: Callable[[], float]
    _heard_bytes: int = 0
    _waited_s: float = 0.0
    _asked: Future[object] | None = None
    _last: float = field(init=False)

    def __post_init__(self) -> None:
        self._last = self.now()

    def check(self, heard_bytes: int) -> None:
        """To be called again and again; raises :class:`GuestLost` when a sign of life does not come."""
        now = self.now()
        self._waited_s += now - self._last
        self._last = now
        if heard_bytes != self._heard_bytes or (self._asked is not None and self._asked.done()):
            self._heard_bytes, self._waited_s, self._asked = heard_bytes, 0.0, None
        elif self._asked is None and self._waited_s > self.silence_s:
            self._waited_s, self._asked = 0.0, self.ask()
        elif self._asked is not None and self._waited_s > self.answer_s:
            waited_s = self.silence_s + self.answer_s
            raise GuestLost(f"nothing was heard of the guest for {waited_s:g} s during `{self.command}`")


T = TypeVar("T")
Watch = Callable[[], None]

_WATCH_EVERY_S = 0.2
_COPY_S = 120.0
_LEAST_BYTES_S = 256 << 10  # of a large file; an emulated guest takes a few MiB/s
_HANG_UP_S = 2.0
_CHUNK_BYTES = 65536
_BOUNDS = Bounds()

# paramiko prints tracebacks of its own when a peer goes away; what happened is in the exceptions.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


class Guest:
    """A connection to a guest; implements :class:`bisector.core.shell.Shell`.

    ``watch`` is called about five times a second while the guest is waited for; what it raises
    (a :class:`bisector.core.errors.KernelFault` when the console shows a panic) ends the wait at once.
    Every method raises :class:`GuestLost` or :class:`GuestTimeout` when it is not answered, and
    :class:`GuestNonsense` when more comes than ``bounds`` allow.
    """

    def __init__(self, connection: Any, watch: Watch, bounds: Bounds) -> None:
        self._connection = connection
        self._watch = watch
        self._bounds = bounds
        self._clock = AttentiveClock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="guest")

    @classmethod
    def connect(
        cls, port: int, image: GuestImage, deadline: Deadline, watch: Watch = lambda: None, bounds: Bounds = _BOUNDS
    ) -> Self:
        """Log in as root on the loopback port; to be called once the guest has said it is ready.

        Raises :class:`GuestRefused` for keys, :class:`GuestLost` and :class:`GuestTimeout`.
        """
        guest = cls(_connection(port, image, deadline), watch, bounds)
        try:
            guest._ask(guest._connection.open, deadline)
        except BaseException:
            guest.close()
            raise
        return guest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection and the worker; may be called again."""
        self._hang_up()
        self._worker.shutdown()

    def run(self, command: str, deadline_s: float = 60.0) -> CommandResult:
        """Run to the end, whatever the exit status (-1: ended by a signal)."""
        return self.stream(command, lambda line: None, deadline_s)

    def stream(self, command: str, on_line: Callable[[str], None], deadline_s: float) -> CommandResult:
        """Run to the end, handing over each line of standard error (CR ends one too), at most 64 KiB, as it comes."""
        most_bytes = self._bounds.output_bytes
        deadline = self._deadline(f"the end of `{command}` in the guest", deadline_s)

        def start() -> paramiko.Channel:
            channel: paramiko.Channel = self._live().create_session()
            channel.exec_command(command)
            channel.shutdown_write()  # a command that reads its standard input sees its end
            return channel

        channel = self._ask(start, deadline)
        stdout, stderr, arrived = StreamedText(), StreamedText(on_line), threading.Event()
        for buffer in (channel.in_buffer, channel.in_stderr_buffer):
            buffer.set_event(arrived)  # paramiko's thread may write to the channel's own pipe while close() closes it
        transport = self._connection.client.get_transport()
        ask = partial(transport.global_request, "keepalive@openssh.com", wait=True)
        life = Life(
            lambda: self._worker.submit(ask), self._bounds.silence_s, self._bounds.answer_s, command, self._clock.now_s
        )
        try:
            while not self._finished(channel):
                self._guard(deadline)
                wait_s = min(_WATCH_EVERY_S, deadline.remaining_s)
                if channel.eof_received:  # nothing more arrives; what is missing is the exit status
                    channel.status_event.wait(wait_s)
                elif not (channel.recv_ready() or channel.recv_stderr_ready()):  # reading one clears it for both
                    arrived.wait(wait_s)
                life.check(stdout.read_bytes + stderr.read_bytes)
                if channel.recv_ready():
                    stdout.feed(channel.recv(_CHUNK_BYTES))
                if channel.recv_stderr_ready():
                    stderr.feed(channel.recv_stderr(_CHUNK_BYTES))
                if stdout.read_bytes + stderr.read_bytes > most_bytes:
                    raise GuestNonsense(f"the guest wrote more than {_size(most_bytes)} of output: `{command}`")
            return CommandResult(command, channel.recv_exit_status(), stdout.end(), stderr.end())
        except (paramiko.SSHException, EOFError) as error:
            raise GuestLost(f"the connection to the guest broke during `{command}`") from error
        finally:
            with suppress(paramiko.SSHException, EOFError, OSError):
                channel.close()

    def put(self, text: str, remote: str) -> None:
        """Write a small text file in the guest; raises :class:`GuestCopyFailed`."""
        deadline = self._deadline(f"the copy to {remote} in the guest", _COPY_S)
        self._ask(lambda: self._live().put(BytesIO(text.encode()), remote), deadline, GuestCopyFailed)

    def send(self, local: Path, remote: str) -> None:
        """Copy a file of this host into the guest, with its mode.

        Raises :class:`GuestCopyFailed`, and :class:`InfraError` when ``local`` cannot be read.
        """
        with our_files(local.parent), local.open("rb") as file:
            status = os.fstat(file.fileno())
            seconds = _COPY_S + status.st_size / _LEAST_BYTES_S
            deadline = self._deadline(f"the copy of {local.name} to {remote} in the guest", seconds)

            def copy() -> None:
                sftp = self._live().sftp()
                sftp.putfo(file, remote)
                sftp.chmod(remote, stat.S_IMODE(status.st_mode))

            self._ask(copy, deadline, GuestCopyFailed)

    def get(self, remote: str, local: Path) -> None:
        """Copy a regular file out of the guest, into one that is not there yet.

        Raises :class:`GuestCopyFailed`, :class:`GuestNonsense` for what is not a regular file or larger than the bound,
        and :class:`InfraError` when ``local`` is there already or cannot be written.
        """
        deadline = self._deadline(f"the copy of {remote} out of the guest", _COPY_S)
        most = self._bounds.file_bytes

        def copy(file: BinaryIO) -> None:
            sftp = self._live().sftp()
            # Before it is opened: opening a FIFO would wait, and a device never ends.
            _check_copied(remote, sftp.stat(remote), most)
            with sftp.open(remote, "rb") as source:
                source.prefetch(_check_copied(remote, source.stat(), most))
                copied = 0
                while data := source.read(_CHUNK_BYTES):
                    copied += len(data)
                    if copied > most:  # whatever it said before
                        raise GuestNonsense(f"{remote} in the guest has more than {_size(most)}")
                    with our_files(local.parent):  # no room is not the guest's failure
                        file.write(data)

        with new_file(local) as file:
            self._ask(lambda: copy(file), deadline, GuestCopyFailed)

    def _deadline(self, what: str, seconds: float) -> Deadline:
        return Deadline.by(self._clock, what, seconds)

    def _live(self) -> Any:
        """The connection, while it is one: fabric would quietly make a new one, to whatever listens there now."""
        if not self._connection.is_connected:
            raise EOFError
        return self._connection

    @staticmethod
    def _finished(channel: paramiko.Channel) -> bool:
        """Whether all output was read and the exit status is known; raises when neither will ever be."""
        if channel.recv_ready() or channel.recv_stderr_ready() or not channel.exit_status_ready():
            return False
        if channel.closed and not channel.eof_received:  # a command that ends, even by a signal, sends an end of file
            raise EOFError
        return bool(channel.eof_received)

    def _ask(self, call: Callable[[], T], deadline: Deadline, failed: type[GuestError] = GuestLost) -> T:
        """The call's answer, made in the worker; ``failed`` is raised when it fails on a connection that holds."""
        future = self._worker.submit(call)
        try:
            while not wait((future,), min(_WATCH_EVERY_S, deadline.remaining_s)).done:
                self._guard(deadline)
        except BaseException:
            self._hang_up()
            raise
        try:
            return future.result()
        except (paramiko.AuthenticationException, paramiko.BadHostKeyException) as error:
            raise GuestRefused(f"the guest's SSH: {error}", "are these the keys of this guest image?") from error
        except OSError as error:
            kind = failed if self._connection.is_connected else GuestLost
            raise kind(f"{deadline.what} failed: {error}") from error
        except (paramiko.SFTPError, UnicodeDecodeError) as error:  # no SFTP at all, or a name that is no text
            raise failed(f"{deadline.what} failed: {error}") from error
        except (paramiko.SSHException, EOFError) as error:
            raise GuestLost(f"{deadline.what} failed: {error or 'the connection broke'}") from error

    def _guard(self, deadline: Deadline) -> None:
        self._watch()
        if deadline.expired:
            raise GuestTimeout(f"{deadline.what} not seen within {deadline.seconds:g} s")

    def _hang_up(self) -> None:
        """Close the connection under whatever waits for it, which then ends with an error."""
        transport = self._connection.client.get_transport()
        with suppress(paramiko.SSHException, EOFError, OSError):
            self._connection.close()
        with suppress(paramiko.SSHException, EOFError, OSError):
            self._connection.client.close()  # fabric closes only what it has seen connected
        if transport is not None:
            transport.join(_HANG_UP_S)  # it reads with a short time-out, and then sees that it is closed


def _connection(port: int, image: GuestImage, deadline: Deadline) -> Any:
    """A fabric connection that knows this guest's key and nothing of the user's ssh configuration."""
    # lazy: neither fabric.yaml nor ~/.ssh/config is looked for.
    config = fabric.Config(lazy=True, overrides={"load_ssh_configs": False})
    connection = fabric.Connection(
        "127.0.0.1",
        user="root",
        port=port,
        config=config,
        connect_kwargs={
            "key_filename": str(image.ssh_key),
            "look_for_keys": False,
            "allow_agent": False,
            "timeout": deadline.remaining_s,
            "banner_timeout": deadline.remaining_s,
            "auth_timeout": deadline.remaining_s,
        },
    )
    # fabric's own choice is to accept any key.
    connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        entry = HostKeyEntry.from_line(f"[127.0.0.1]:{port} {image.host_public_key}")
    except (InvalidHostKey, UnknownKeyType, paramiko.SSHException) as error:
        raise GuestRefused(f"the pinned host key of the guest image is none: {error}") from error
    if entry is None or entry.key is None:
        raise GuestRefused(f"the pinned host key of the guest image is none: {image.host_public_key}")
    connection.client.get_host_keys().add(entry.hostnames[0], entry.key.get_name(), entry.key)
    return connection


def _check_copied(remote: str, attributes: paramiko.SFTPAttributes, most_bytes: int) -> int:
    """The size in bytes of what may be copied; raises :class:`GuestNonsense`."""
    if not stat.S_ISREG(attributes.st_mode or 0):
        raise GuestNonsense(f"{remote} in the guest is not a regular file")
    size = attributes.st_size or 0
    if size > most_bytes:
        raise GuestNonsense(f"{remote} in the guest has {_size(size)}, more than {_size(most_bytes)}")
    return size


def _size(size: int) -> str:
    return f"{size / _MIB:,.0f} MiB" if size >= _MIB else f"{size:,} bytes"
