"""A real sshd(8) of this user's on a port of the loopback device, and the ssh configuration that leads there."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bisector.core.deadline import Deadline
from bisector.host.process import FinishedCommand, run

# What it would be called in a person's own configuration.
ALIAS = "bench1.example"


@dataclass
class Sshd:
    """The server, and the directory with all its files."""

    place: Path
    port: int

    @property
    def host_key(self) -> Path:
        return self.place / "host_key"

    @property
    def fingerprint(self) -> str:
        return keygen("-lf", str(self.host_key)).stdout.split()[1]

    def logins(self) -> int:
        """How many there were so far."""
        return (self.place / "log").read_text().count("Accepted publickey")

    @contextmanager
    def running(self, environment: Mapping[str, str]) -> Iterator[None]:
        """Serve; commands get the variables of ``environment``, whatever the user's own are."""
        program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
        assert program, "openssh-server is not installed"
        variables = " ".join(f'"{name}={value}"' for name, value in environment.items())
        config = self.place / "sshd_config"
        config.write_text(
            f"ListenAddress 127.0.0.1:{self.port}\nHostKey {self.host_key}\nPidFile none\nUsePAM no\nStrictModes no\n"
            f"AuthorizedKeysFile {self.place}/authorized_keys\nPasswordAuthentication no\nPermitRootLogin yes\n"
            f"KbdInteractiveAuthentication no\nSetEnv {variables}\n"
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

    def new_key(self) -> None:
        """As after an installation."""
        for path in (self.host_key, self.host_key.with_suffix(".pub")):
            path.unlink(missing_ok=True)
        keygen("-q", "-t", "ed25519", "-N", "", "-f", str(self.host_key))

    def client(self) -> Path:
        """A directory with an ``ssh`` that has a person's configuration: OpenSSH looks for it in no other home."""
        program = shutil.which("ssh")
        keygen("-q", "-t", "ed25519", "-N", "", "-f", str(self.place / "login"))
        shutil.copy(self.place / "login.pub", self.place / "authorized_keys")
        config = self.place / "ssh_config"
        config.write_text(
            f"Host {ALIAS}\n  HostName 127.0.0.1\n  Port {self.port}\n  IdentityFile {self.place}/login\n"
            "  IdentitiesOnly yes\n  IdentityAgent none\n  StrictHostKeyChecking no\n"
        )
        script = self.place / "bin" / "ssh"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec {program} -F {config} "$@"\n')
        script.chmod(0o755)
        return script.parent


def made(place: Path) -> Sshd:
    """A server that is not started yet, on a port that is free."""
    place.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        server = Sshd(place, probe.getsockname()[1])
    server.new_key()
    return server


def keygen(*words: str) -> FinishedCommand:
    return run(["ssh-keygen", *words], deadline_s=30)
