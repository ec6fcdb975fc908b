"""A root shell in a running guest: the only module that uses fabric and paramiko.

paramiko waits without a time limit in several places (the answer to "exec", the window of a channel). So every such
call runs in one worker thread while the caller's thread watches the clock and the guest; when either says stop, the
connection is closed, which frees the worker.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

import fabric
import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey
from paramiko.pkey import UnknownKeyType

from bisector.core.deadline import AttentiveClock, Deadline
from bisector.vm.base import DEFAULT_BOUNDS, Bounds, GuestLink, GuestLost, GuestRefused, StreamedText
from bisector.vm.image import GuestImage

T = TypeVar("T")
Watch = Callable[[], None]

_WATCH_EVERY_S = 0.2
_HANG_UP_S = 2.0
_CHUNK_BYTES = 65536

# paramiko prints tracebacks of its own when a peer goes away; the exceptions tell the same.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


class Guest(GuestLink):
    """A connection to a guest by SSH."""

    def __init__(self, connection: Any, watch: Watch, bounds: Bounds) -> None:
        super().__init__(watch, bounds, AttentiveClock())
        self._connection = connection
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="guest")

    @classmethod
    def connect(
        cls,
        port: int,
        image: GuestImage,
        deadline: Deadline,
        watch: Watch = lambda: None,
        bounds: Bounds = DEFAULT_BOUNDS,
    ) -> Self:
        """Log in as root on the loopback port, once the guest has reported to be ready.

        Raises :class:`GuestRefused` for a wrong key, :class:`GuestLost` and :class:`GuestTimeout`.
        """
        guest = cls(_connection(port, image, deadline), watch, bounds)
        try:
            guest._ask(guest._connection.open, deadline)
        except BaseException:
            guest.close()
            raise
        return guest

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection and the worker; idempotent."""
        self._hang_up()
        self._worker.shutdown()

    def _execute(
        self, command: str, data: bytes, on_line: Callable[[str], None], deadline: Deadline
    ) -> tuple[int, bytes, str]:
        def start() -> paramiko.Channel:
            if not self._connection.is_connected:  # fabric would silently open a new one, to whatever listens there now
                raise EOFError
            channel: paramiko.Channel = self._connection.create_session()
            channel.exec_command(command)
            with suppress(OSError):  # the command ended before it read all of it; its exit status tells
                channel.sendall(data)
            channel.shutdown_write()  # a command that reads its standard input sees its end
            return channel

        channel = self._ask(start, deadline)
        stdout, stderr, arrived = bytearray(), StreamedText(on_line), threading.Event()
        for buffer in (channel.in_buffer, channel.in_stderr_buffer):
            buffer.set_event(arrived)  # paramiko's thread may write to the channel's own pipe while close() closes it
        transport = self._connection.client.get_transport()
        ask_life = partial(transport.global_request, "keepalive@openssh.com", wait=True)
        # The clock counts no time in which this process was stopped.
        seen_bytes, since_s, asked = 0, self._clock.now_s(), None
        try:
            while not self._finished(channel):
                self._guard(deadline)
                wait_s = min(_WATCH_EVERY_S, deadline.remaining_s)
                if channel.eof_received:  # no more output arrives, only the exit status is missing
                    channel.status_event.wait(wait_s)
                elif not (channel.recv_ready() or channel.recv_stderr_ready()):  # reading one clears it for both
                    arrived.wait(wait_s)
                now_s, read_bytes = self._clock.now_s(), len(stdout) + stderr.read_bytes
                if read_bytes != seen_bytes or (asked is not None and asked.done()):
                    seen_bytes, since_s, asked = read_bytes, now_s, None
                elif asked is None and now_s - since_s > self._bounds.silence_s:
                    since_s, asked = now_s, self._worker.submit(ask_life)
                elif asked is not None and now_s - since_s > self._bounds.answer_s:
                    silent_s = self._bounds.silence_s + self._bounds.answer_s
                    raise GuestLost(f"nothing was heard of the guest for {silent_s:g} s during `{command}`")
                if channel.recv_ready():
                    stdout += channel.recv(_CHUNK_BYTES)
                if channel.recv_stderr_ready():
                    stderr.feed(channel.recv_stderr(_CHUNK_BYTES))
                self._check_output(len(stdout) + stderr.read_bytes, command)
            return channel.recv_exit_status(), bytes(stdout), stderr.end()
        except (paramiko.SSHException, EOFError) as error:
            raise GuestLost(f"the connection to the guest broke during `{command}`") from error
        finally:
            with suppress(paramiko.SSHException, EOFError, OSError):
                channel.close()

    @staticmethod
    def _finished(channel: paramiko.Channel) -> bool:
        """Whether all output was read and the exit status is known; raises ``EOFError`` if that will never be so."""
        if channel.recv_ready() or channel.recv_stderr_ready() or not channel.exit_status_ready():
            return False
        if channel.closed and not channel.eof_received:  # a command that ends, even by a signal, sends an end of file
            raise EOFError
        return bool(channel.eof_received)

    def _ask(self, call: Callable[[], T], deadline: Deadline) -> T:
        """The result of a call that the worker makes."""
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
        except (OSError, paramiko.SSHException, EOFError) as error:
            raise GuestLost(f"{deadline.what} failed: {error or 'the connection broke'}") from error

    def _hang_up(self) -> None:
        """Close the connection while the worker waits on it, which makes the wait fail."""
        transport = self._connection.client.get_transport()
        with suppress(paramiko.SSHException, EOFError, OSError):
            self._connection.close()
        with suppress(paramiko.SSHException, EOFError, OSError):
            self._connection.client.close()  # fabric closes only a connection that it knows to be open
        if transport is not None:
            transport.join(_HANG_UP_S)  # its thread reads with a short time-out, and then sees that it is closed


def _connection(port: int, image: GuestImage, deadline: Deadline) -> Any:
    """A fabric connection that knows this guest's key and nothing of the user's ssh configuration."""
    # lazy: neither fabric.yaml nor ~/.ssh/config is read.
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
    # By default fabric accepts any host key.
    connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        entry = HostKeyEntry.from_line(f"[127.0.0.1]:{port} {image.host_public_key}")
    except (InvalidHostKey, UnknownKeyType, paramiko.SSHException) as error:
        raise GuestRefused(f"the pinned host key of the guest image is none: {error}") from error
    if entry is None or entry.key is None:
        raise GuestRefused(f"the pinned host key of the guest image is none: {image.host_public_key}")
    connection.client.get_host_keys().add(entry.hostnames[0], entry.key.get_name(), entry.key)
    return connection
