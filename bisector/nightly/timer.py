"""A systemd service and timer for nights (systemd.exec(5), systemd.timer(5)).

Both units are made from the templates ``bisector-nightly.*`` beside this module, which give a reason for each line. A
system timer runs as root, so nobody but root may be able to change what it runs.
"""

import os
import pwd
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bisector.config import EMBEDDED
from bisector.core import resources
from bisector.core.errors import InfraError, UserError
from bisector.git.repository import Repository
from bisector.host import process
from bisector.nightly.plan import NightJob, NightPlan

_COMMAND_S = 60.0
_RUNNING = Path("/run/systemd/system")  # sd_booted(3)
_SYSTEM = Path("/etc/systemd/system")
NAME = "bisector-nightly"
_UNITS = (f"{NAME}.service", f"{NAME}.timer")
# Environment variables that the unit keeps, besides the search path.
_DIRECTORIES = ("XDG_STATE_HOME", "XDG_CACHE_HOME", "CCACHE_DIR")
_KEPT = (*_DIRECTORIES, "PATH")
_AT = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_ROOT = frozenset((0,))
_MOST_LINKS = 40  # the kernel's limit (path_resolution(7))
# What git reads in its directory, or in that of a linked worktree (gitrepository-layout(5)).
_FOLLOWED = ("config", "config.worktree", "commondir", "objects", "info", "worktrees")
_WRITABLE = ((stat.S_IWGRP, "its group"), (stat.S_IWOTH, "everybody"))
_HINT = (
    "install it as root, outside of homes: python3 -m venv /opt/bisector; or without --system: a timer of your own,"
    " with loginctl enable-linger"
)


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


def systemd_runs() -> bool:
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


@dataclass(frozen=True, slots=True)
class Timer:
    """The nights of one plan, at a time of day (HH:MM), for the system or for this user.

    ``hosts`` is the file of the hosts that measure, if others do.
    """

    plan: NightPlan
    at: str
    system: bool
    hosts: Path | None = None

    def __post_init__(self) -> None:
        if not _AT.fullmatch(self.at):
            raise UserError(f"--at {self.at}: expected a time of day", "for example: --at 01:30")

    @property
    def command(self) -> tuple[str, ...]:
        """The command that the service starts."""
        hosts = () if self.hosts is None else ("--hosts", str(self.hosts))
        return (sys.executable, "-m", "bisector", "nightly", "--config", str(self.plan.path), *hosts)

    def files(self) -> dict[str, str]:
        """The text of each unit, by file name."""
        # Imported only when units are made, since it takes time to load.
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
            "command": command_line(self.command),
            "config": str(self.plan.path).replace("%", "%%"),
            "embedded": all(job.measuring.machine.connect == EMBEDDED for job in self.plan.jobs),
            "environment": [quoted(f"{name}={value}") for name, value in kept.items()],
            "longest_s": int(self.plan.budget_s) + 3600,
            "system": self.system,
        }
        return {name: units.get_template(name).render(words) for name in _UNITS}

    def crontab(self) -> str:
        """The line for cron that starts a night at the same time; cron has no journal."""
        hours, minutes = self.at.split(":")
        line = f"{int(minutes)} {int(hours)} * * * {shlex.join(self.command)}"
        return line.replace("%", r"\%")  # cron takes an unescaped % as a newline


def write(timer: Timer, where: Path) -> tuple[Path, ...]:
    """Write both units; raises :class:`UserError` if a unit of another plan exists, or if a file cannot be written."""
    config = f"ExecStart={command_line(timer.command)}\n"
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
    """Remove both units; return the paths of the removed files."""
    paths = tuple(path for path in (where / name for name in reversed(_UNITS)) if path.exists())
    try:
        for path in paths:
            path.unlink()
    except OSError as error:
        raise UserError(f"cannot remove {error.filename}: {error.strerror}", "sudo, or without --system") from error
    return paths


def check_for_root(timer: Timer) -> None:
    """Raise :class:`UserError` unless everything that such nights use belongs to root and only root can write it.

    That is the interpreter, the package and its libraries, the programs of the search path, the jobs' file and the
    files it names, compilers included, and the repositories, since git follows their configuration; for a linked
    worktree also the repository it belongs to. The makefiles of the measured commits are not checked.
    """
    for what, path in _parts(timer):
        if (found := _changeable(path)) is not None:
            place, why = found
            raise UserError(f"{place} {why}, and root would run {what} {path} every night", _HINT)


def _parts(timer: Timer) -> Iterator[tuple[str, Path]]:
    yield "the jobs of", timer.plan.path
    if timer.hosts is not None:  # a host of the fleet can run programs on this machine
        yield "with the hosts of", timer.hosts
    for job in timer.plan.jobs:
        yield from _of_job(job)
    yield "the interpreter", Path(sys.executable)
    for entry in filter(None, os.environ.get("PATH", "").split(os.pathsep)):
        yield "the programs in", Path(entry)
    for name in _DIRECTORIES:
        if os.environ.get(name):
            yield f"with {name} at", Path(os.environ[name])
    for own in (resources.PACKAGE, resources.kconfigs(), resources.jobs(), resources.vm_images()):
        yield from (("the package with", one) for one in (own, *own.rglob("*")))
    for library in filter(Path.is_absolute, map(Path, sys.path[1:])):  # the first entry is the caller's
        within = library.rglob("*") if library.name in ("site-packages", "dist-packages") else ()
        yield from (("the library", one) for one in (library, *within))


def _of_job(job: NightJob) -> Iterator[tuple[str, Path]]:
    settings = job.measuring
    named = (settings.kernel.base_config, *settings.workload.inputs.values(), settings.mail.login_file)
    fragments = (Path(one) for one in settings.kernel.fragments if "/" in one)
    yield from ((f"job {job.name} with", Path(one)) for one in (*named, *fragments) if one)
    for word in (word for command in settings.kernel.compilers for word in command.split()):
        if "/" in (found := shutil.which(word) or word):
            yield f"job {job.name} with the compiler", Path(found)
    for place in _git_directories(job.repository):
        yield from ((f"git for job {job.name} in", part) for part in (place, *(place / name for name in _FOLLOWED)))


def _git_directories(path: Path) -> Iterator[Path]:
    """The directories of a repository; git itself is asked what a file .git names, after that file was checked."""
    yield from (path, path / ".git")
    repository = Repository.open(path)
    yield from (repository.common_dir, *map(Path, repository.ask("rev-parse", "--absolute-git-dir").lines))


def _changeable(path: Path) -> tuple[Path, str] | None:
    """The first component of a path that somebody other than root can change, and the reason."""
    for step in _way(path):
        status = step.lstat()
        if status.st_uid not in _ROOT:
            try:
                owner = pwd.getpwuid(status.st_uid).pw_name
            except KeyError:
                owner = f"user {status.st_uid}"
            return step, f"belongs to {owner}"
        # In a sticky directory nobody can remove root's files (chmod(1)); a link has no mode of its own.
        if stat.S_ISLNK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
            continue
        for bit, who in _WRITABLE:
            if status.st_mode & bit:
                return step, f"can be written by {who}"
    return None


def _way(path: Path) -> Iterator[Path]:
    """Every existing directory, link and file that a path leads through."""
    left = list(reversed(path.absolute().parts))
    here, links = Path("/"), 0
    while left:
        part = left.pop()
        step = here.parent if part == ".." else here / part  # joining "/" restarts at the root
        if not os.path.lexists(step):
            return
        yield step
        if step.is_symlink() and links < _MOST_LINKS:
            links += 1
            left.extend(reversed(step.readlink().parts))
        else:
            here = step
