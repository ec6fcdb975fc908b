"""systemd's units and its manager, for this tool's own units: a nightly timer, and a host's worker."""

import os
import re
import shlex
from pathlib import Path

from bisector.core.errors import InfraError
from bisector.host import process

_COMMAND_S = 60.0
_RUNNING = Path("/run/systemd/system")  # sd_booted(3)
_SYSTEM = Path("/etc/systemd/system")


def command_line(words: tuple[str, ...]) -> str:
    """A command line for a unit (systemd.service(5): variables are expanded in it)."""
    return " ".join(quoted(word.replace("$", "$$")) for word in words)


def quoted(word: str) -> str:
    """A word of a command line or an assignment (systemd.syntax(7), and systemd.unit(5) for the per cent sign)."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{plain}"' if re.search(r"[\s\"'\\;]", plain) else plain


def directory(*, system: bool) -> Path:
    """The directory of units (systemd.unit(5), "Unit File Load Path")."""
    if system:
        return _SYSTEM
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".config") / "systemd" / "user"


def runs() -> bool:
    """Whether systemd is the init of this machine."""
    return _RUNNING.is_dir()


def systemctl(*words: str, system: bool) -> None:
    """Send one command to systemd's manager; raises :class:`InfraError`."""
    argv = ["systemctl", *([] if system else ["--user"]), *words]
    environment = {name: os.environ[name] for name in ("DBUS_SESSION_BUS_ADDRESS",) if name in os.environ}
    try:
        process.run(argv, deadline_s=_COMMAND_S, env=environment)
    except (process.CommandFailed, process.CommandMissing, process.CommandTimeout) as error:
        raise InfraError(str(error), shlex.join(argv)) from error
