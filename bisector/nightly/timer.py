"""A systemd service and timer for the nights, each line with its reason (systemd.exec(5), systemd.timer(5))."""

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
        return {f"{NAME}.service": self._service(), f"{NAME}.timer": self._timer()}

    def _service(self) -> str:
        kept = {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
        environment = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in kept.items())
        return _SERVICE.format(
            config=str(self.plan.path).replace("%", "%%"),
            network=_NETWORK if self.system else "",
            # Of root's own manager, and where journals are not split, `journalctl --user -u` finds nothing.
            journal="-u" if self.system else "--user-unit",
            command=_command(self.command),
            environment=environment,
            longest_s=int(self.plan.budget_s) + 3600,
            sandbox=self._sandbox() if self.system else _OF_A_USER,
        )

    def _sandbox(self) -> str:
        embedded = all(job.measuring.machine.connect == EMBEDDED for job in self.plan.jobs)
        return _OF_THE_SYSTEM + (_OWN_TMP if embedded else _SHARED_TMP)

    def _timer(self) -> str:
        return _TIMER.format(at=self.at)

    def crontab(self) -> str:
        """The same for cron, which has no journal."""
        hours, minutes = self.at.split(":")
        line = f"{int(minutes)} {int(hours)} * * * {shlex.join(self.command)}"
        return line.replace("%", r"\%")  # an unescaped one is a new line there


# Each line is there, or is not, for its reason. With all of them, systemd 252 as the init of a container has started
# nights of root by the timer: fetches, the guest image, a kernel's build, a whole trial in emulation by libvirt's
# embedded driver, and a stop in the middle. Not seen: KVM, a libvirt daemon, an SELinux policy.
_SERVICE = """\
# Made by `bisector nightly --install-timer`; `--remove-timer` removes it.
[Unit]
Description=bisector: a night of {config}
Documentation=man:systemd.service(5)
{network}
[Service]
Type=exec
ExecStart={command}
{environment}# SIGTERM ends a night as Ctrl-C would: what was measured is kept, and the next night goes on from there.
KillMode=mixed
TimeoutStopSec=10min
SuccessExitStatus=130
# The night ends itself; this is for one that hangs.
RuntimeMaxSec={longest_s}
# A compiler that is killed for want of memory fails its build, which is tried again; the default, "stop", would end the
# night with it.
OOMPolicy=continue
# A QEMU that crashes would leave its guest's whole memory as a file.
LimitCORE=0
# Left out on purpose, since QEMU is a child of this service and its figures are what a night is for:
#   Nice, CPUWeight, IOWeight, IOSchedulingClass   a guest that has to wait for others measures them, too
#   MemoryMax, MemoryHigh    how much a guest and a build take is in the settings; near a limit the kernel reclaims page
#                            cache and throttles who writes, and so the disks that are measured
# Plain lines, for the journal: journalctl {journal} bisector-nightly
StandardOutput=journal
StandardError=journal
SyslogIdentifier=bisector
{sandbox}"""

_NETWORK = """\
# The fetch needs the network.
Wants=network-online.target
After=network-online.target
"""

_OF_THE_SYSTEM = """\
# HOME, for git's configuration and the caches, is set only with a user.
User=root
# /usr, /boot and /etc are only read. Not "strict": disks, repositories and run directories may be anywhere.
ProtectSystem=full
# Nothing that is started needs rights by set-user-ID: as root, mmdebstrap unpacks the guest image without newuidmap.
NoNewPrivileges=yes
# Modules are built, never loaded: they are the guest's.
ProtectKernelModules=yes
# Nothing here reads the host kernel's log, renames the host or asks for real-time scheduling.
ProtectKernelLogs=yes
ProtectHostname=yes
RestrictRealtime=yes
# Left out on purpose:
#   PrivateDevices, DevicePolicy  /dev/kvm, loop devices and test disks are used
#   ProtectHome                   repositories and caches are in home directories
#   RestrictNamespaces            the guest image is made in namespaces, and make runs in some
#   RestrictSUIDSGID              the guest image has set-user-ID programs in it
#   MemoryDenyWriteExecute        QEMU without KVM translates code and executes it
#   ProtectControlGroups          libvirt's QEMU driver may make control groups
#   ProtectClock                  it closes all devices but the real-time clock
#   PrivateNetwork, IPAddressDeny the fetch, and the guest's SSH on the loopback device
"""
_OWN_TMP = """\
# libvirt's driver and QEMU are children of this service, so they see the same /tmp.
PrivateTmp=yes
"""
_SHARED_TMP = """\
# A libvirt daemon's QEMU has to see files of ours in /tmp.
PrivateTmp=no
"""
_OF_A_USER = """\
# No sandbox: a user's manager makes one only in a user namespace, and within one newuidmap cannot map the
# subordinate users that the guest image is made with; NoNewPrivileges=yes would stop newuidmap at once. What a
# user may do is the limit.
"""
_TIMER = """\
# Made by `bisector nightly --install-timer`; `--remove-timer` removes it.
[Unit]
Description=bisector: every night

[Timer]
OnCalendar=*-*-* {at}:00
# A night that the machine slept through, or was off, begins when it is on again.
Persistent=yes
AccuracySec=1min

[Install]
WantedBy=timers.target
"""


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
    paths = tuple(path for path in (where / f"{NAME}.timer", where / f"{NAME}.service") if path.exists())
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
