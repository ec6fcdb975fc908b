"""A real SSH end in a thread of the test, in place of a guest: its commands run here, in a directory."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from bisector.host.process import run


def keypair(path: Path) -> paramiko.PKey:
    """A private key at ``path``, its public one beside it."""
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], deadline_s=20)
    return paramiko.Ed25519Key.from_private_key_file(str(path))


class SshServer:
    """Listens on a loopback port; ``authorized`` is the one public key that may log in as root."""

    def __init__(self, host_key: paramiko.PKey, authorized: paramiko.PKey, files: Path) -> None:
        self.host_key, self.authorized, self.files = host_key, authorized, files
        self.connections = 0
        self.answer_exec = True
        self.answer_life = True
        self.signs_of_life = 0
        self.released = threading.Event()
        self.transports: list[paramiko.Transport] = []
        self.threads: list[threading.Thread] = []
        self.children: list[subprocess.Popen[bytes]] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End everything; may be called again."""
        self.released.set()
        if self._socket.fileno() >= 0:
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.vanish()
        for child in self.children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
        for thread in (*self.threads, *self.transports):
            thread.join()
        for thread in threading.enumerate():  # paramiko's own, which it neither names nor joins
            if isinstance(thread, threading.Timer):
                thread.cancel()
                thread.join()

    def vanish(self) -> None:
        """Break every connection without a word of goodbye, as a virtual machine that is gone."""
        for transport in self.transports:
            transport.sock.close()

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)
        self.threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            transport = paramiko.Transport(connection)
            transport.add_server_key(self.host_key)
            self.transports.append(transport)
            try:
                transport.start_server(server=_Root(self))
            except (paramiko.SSHException, EOFError, OSError):
                continue  # the other end did not like our key

    def execute(self, channel: paramiko.Channel, command: str) -> None:
        child = subprocess.Popen(
            ["sh", "-c", command],
            cwd=self.files,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.children.append(child)
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        with child.stdout as out, child.stderr as err:
            reading = threading.Thread(target=_hand_over, args=(channel, child.stdin))
            copying = threading.Thread(target=_copy, args=(err.fileno(), channel.sendall_stderr))
            reading.start()
            copying.start()
            _copy(out.fileno(), channel.sendall)
            copying.join()
        status = child.wait()
        try:
            reading.join()  # the client's end of file comes after it has seen that the command was accepted
            if status >= 0:
                channel.send_exit_status(status)
            channel.shutdown_write()
            channel.close()
        except (OSError, EOFError, paramiko.SSHException):
            return


def _hand_over(channel: paramiko.Channel, stdin: IO[bytes]) -> None:
    with suppress(OSError), stdin:
        while data := channel.recv(65536):
            with suppress(BrokenPipeError):  # the command ended before it read all of it
                stdin.write(data)
                stdin.flush()


class _Root(paramiko.ServerInterface):
    def __init__(self, server: SshServer) -> None:
        self.server = server

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL if username == "root" and key == self.server.authorized else AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_global_request(self, kind: str, msg: paramiko.Message) -> bool:
        if not self.server.answer_life:
            self.server.released.wait()
        self.server.signs_of_life += 1
        return False

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if not self.server.answer_exec:
            self.server.released.wait()
            return False
        self.server._spawn(self.server.execute, channel, command.decode())
        return True


def _copy(fd: int, send: Callable[[bytes], object]) -> None:
    while data := os.read(fd, 65536):
        try:
            send(data)
        except (OSError, EOFError):
            return
