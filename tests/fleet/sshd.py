"""A real sshd(8) of this user's on a port of the loopback device, and the ssh configuration that leads there."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bisector.core.deadline import Deadline
from bisector.core.shell import CommandResult
from bisector.host.process import run

# What its names end with in a person's own configuration: bench1.example.
DOMAIN = "example"


@dataclass
class Sshd:
    """The server, and the directory with all its files."""

    place: Path
    port: int

    @property
    def known_hosts(self) -> Path:
        return self.place / "known_hosts"

    @contextmanager
    def running(self) -> Iterator[None]:
        program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
        assert program, "openssh-server is not installed"
        config = self.place / "sshd_config"
        config.write_text(
            f"ListenAddress 127.0.0.1:{self.port}\nHostKey {self.place}/host_key\nPidFile none\nUsePAM no\n"
            f"StrictModes no\nAuthorizedKeysFile {self.place}/authorized_keys\nPasswordAuthentication no\n"
            "PermitRootLogin yes\nKbdInteractiveAuthentication no\n"
        )
        if os.geteuid() == 0:  # its child that has no rights works in there
            Path("/run/sshd").mkdir(exist_ok=True)
        with (self.place / "log").open("ab") as log:
            server = subprocess.Popen([program, "-D", "-e", "-f", config], stdin=subprocess.DEVNULL, stderr=log)
        try:
            Deadline("sshd", 10).poll(self._answers)
            yield
        finally:
            server.terminate()
            server.wait(10)

    def _answers(self) -> bool | None:
        with socket.socket() as probe:
            return True if probe.connect_ex(("127.0.0.1", self.port)) == 0 else None

    def know(self) -> None:
        """Have this person know the host's key."""
        public = (self.place / "host_key.pub").read_text().split(" ")
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public[0]} {public[1]}\n")


def made(place: Path) -> Sshd:
    """A server that is not started yet, on a port that is free; an ``ssh`` below it has a person's configuration."""
    place.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        server = Sshd(place, probe.getsockname()[1])
    for name in ("host_key", "login"):
        keygen("-q", "-t", "ed25519", "-N", "", "-f", str(place / name))
    shutil.copy(place / "login.pub", place / "authorized_keys")
    config = place / "ssh_config"
    config.write_text(
        f"Host *.{DOMAIN}\n  HostName 127.0.0.1\n  Port {server.port}\n"
        f"  IdentityFile {place}/login\n  IdentitiesOnly yes\n  IdentityAgent none\n"
        f"  UserKnownHostsFile {server.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
    )
    script = place / "bin" / "ssh"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
    script.chmod(0o755)
    server.know()
    return server


def keygen(*words: str) -> CommandResult:
    return run(["ssh-keygen", *words], deadline_s=30)
