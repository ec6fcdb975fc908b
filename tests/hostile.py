"""What a stranger's tree may try when something of it is run, and whether it came to anything."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bisector.core.deadline import Deadline, DeadlineExpired

SECRET = "correct-horse-battery"
_SCRIPT = """\
exec 2>/dev/null
echo mine > {home}/.profile
cat {home}/.config/bisector/smtp
cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep BISECTOR_SMTP_PASSWORD
bash -c 'echo hello > /dev/tcp/127.0.0.1/{port}'
setsid sleep {nap} > /dev/null < /dev/null &
sleep 0.2
exit 0
"""


@dataclass(frozen=True)
class Prey:
    """A home with a login file, a process with a password in its environment, a port that somebody listens on."""

    home: Path
    listener: socket.socket
    nap: str

    @property
    def script(self) -> str:
        """For sh: takes what it can get, and prints it."""
        return _SCRIPT.format(home=self.home, port=self.listener.getsockname()[1], nap=self.nap)

    def harm(self, printed: str) -> set[str]:
        """What of it succeeded; ``printed`` is what came of the output."""
        told = {
            "home": (self.home / ".profile").exists(),
            "login": "password=" + SECRET in printed,
            "environment": "BISECTOR_SMTP_PASSWORD=" + SECRET in printed,
            "network": _connected(self.listener),
            "daemon": any(self.daemons()),
        }
        return {name for name, happened in told.items() if happened}

    def daemons(self) -> Iterator[int]:
        """What was left running."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (entry / "cmdline").exists():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if self.nap.encode() in words:
                    yield int(entry.name)


EVERYTHING = {"home", "login", "environment", "network", "daemon"}


@contextmanager
def prey(path: Path) -> Iterator[Prey]:
    """Everything that is worth an attack, below ``path``; nothing of an attack is left afterwards."""
    home = path / "home"
    login = home / ".config/bisector/smtp"
    login.parent.mkdir(parents=True)
    login.write_text(f"username=anna\npassword={SECRET}\n")
    environment = {**os.environ, "BISECTOR_SMTP_PASSWORD": SECRET}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        bystander = subprocess.Popen(["sleep", "300"], env=environment)
        made = Prey(home, listener, f"300.{os.getpid()}{listener.getsockname()[1]}")
        try:
            yield made
        finally:
            bystander.kill()
            bystander.wait()
            for pid in made.daemons():
                os.kill(pid, signal.SIGKILL)


def _connected(listener: socket.socket) -> bool:
    listener.setblocking(False)

    def accepted() -> bool | None:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return None
        return True

    try:
        return Deadline("a connection", 0.2).poll(accepted, every_s=0.02)
    except DeadlineExpired:
        return False
