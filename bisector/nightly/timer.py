"""A systemd service and timer for the nights (systemd.exec(5), systemd.timer(5)).

The templates of both units, where each line has its reason, are the files ``bisector-nightly.*`` beside this one.
"""

import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from bisector.config import EMBEDDED
from bisector.core.errors import InfraError, UserError
from bisector.host import process
from bisector.nightly.plan import Plan
from bisector.nightly.trust import DIRECTORIES

NAME = "bisector-nightly"
_UNITS = (f"{NAME}.service", f"{NAME}.timer")
_KEPT = (*DIRECTORIES, "PATH")
_AT = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_COMMAND_S = 60.0
_RUNNING = Path("/run/systemd/system")  # sd_booted(3)
_SYSTEM = Path("/etc/systemd/system")


@dataclass(frozen=True, slots=True)
class Timer:
    """The nights of one plan, at one time of day (HH:MM), for the system or for this user."""

    plan: Plan
    at: str
    system: bool

    def __post_init__(self) -> None:
        if not _AT.fullmatch(self.at):
            raise UserError(f"--at {self.at}: expected a time of day", "for example: --at 01:30")

    @property
    def command(self) -> tuple[str, ...]:
        """What is started."""
        return (sys.executable, "-m", "bisector", "nightly", "--config", str(self.plan.path))

    def files(self) -> dict[str, str]:
        """The text of each unit, by its file name."""
        # Loaded when units are made, and not for every other command.
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - see above

        units = Environment(  # noqa: S701 - a unit is no HTML
            loader=PackageLoader("bisector.nightly", ""),
            undefined=StrictUndefined,
            trim_blocks=True,
            keep_trailing_newline=True,
        )
        kept = {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
        words = {
            "at": self.at,
            "command": _command(self.command),
            "config": str(self.plan.path).replace("%", "%%"),
            "embedded": all(job.measuring.machine.connect == EMBEDDED for job in self.plan.jobs),
            "environment": [_quoted(f"{name}={value}") for name, value in kept.items()],
            "longest_s": int(self.plan.budget_s) + 3600,
            "system": self.system,
        }
        return {name: units.get_template(name).render(words) for name in _UNITS}

    def crontab(self) -> str:
        """The same for cron, which has no journal."""
        hours, minutes = self.at.split(":")
        line = f"{int(minutes)} {int(hours)} * * * {shlex.join(self.command)}"
        return line.replace("%", r"\%")  # an unescaped one is a new line there


def _command(words: tuple[str, ...]) -> str:
    """A command line (systemd.service(5): variables are expanded in it)."""
    return " ".join(_quoted(word.replace("$", "$$")) for word in words)


def _quoted(word: str) -> str:
    """A word of a command line or an assignment (systemd.syntax(7), and systemd.unit(5) for the per cent sign)."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{plain}"' if re.search(r"[\s\"'\\;]", plain) else plain


def directory(*, system: bool) -> Path:
    """Where units are kept (systemd.unit(5), "Unit File Load Path")."""
    if system:
        return _SYSTEM
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".config") / "systemd" / "user"


def systemd_runs() -> bool:
    """Whether systemd is the init of this machine."""
    return _RUNNING.is_dir()


def write(timer: Timer, where: Path) -> tuple[Path, ...]:
    """Write both units; raises :class:`UserError` where those of another plan are, or nothing can be written."""
    config = f"ExecStart={_command(timer.command)}\n"
    paths = []
    try:
        where.mkdir(parents=True, exist_ok=True)
        for name, text in timer.files().items():
            path = where / name
            if name.endswith(".service") and path.exists() and config not in path.read_text(encoding="utf-8"):
                raise UserError(f"{path} is for the nights of another file", "bisector nightly --remove-timer")
            path.write_text(text, encoding="utf-8")
            paths.append(path)
    except OSError as error:
        raise UserError(f"cannot write {error.filename}: {error.strerror}", "sudo, or without --system") from error
    return tuple(paths)


def remove(where: Path) -> tuple[Path, ...]:
    """Remove both units; those that were there."""
    paths = tuple(path for path in (where / name for name in reversed(_UNITS)) if path.exists())
    try:
        for path in paths:
            path.unlink()
    except OSError as error:
        raise UserError(f"cannot remove {error.filename}: {error.strerror}", "sudo, or without --system") from error
    return paths


def systemctl(*words: str, system: bool) -> None:
    """One command to the manager; raises :class:`InfraError`."""
    argv = ["systemctl", *([] if system else ["--user"]), *words]
    environment = {name: os.environ[name] for name in ("DBUS_SESSION_BUS_ADDRESS",) if name in os.environ}
    try:
        process.run(argv, deadline_s=_COMMAND_S, env=environment)
    except (process.CommandFailed, process.CommandMissing, process.CommandTimeout) as error:
        raise InfraError(str(error), shlex.join(argv)) from error
