"""The hosts that measure for this one: their list, ``hosts.toml``, and connections to them.

Paths in the list are paths on the host. They must be absolute; ``bisector doctor --hosts`` checks them on the host.

Connections are made by OpenSSH's own client with a person's configuration, agent and known_hosts: a login often needs
more than an address (ProxyJump, Match, certificates, keys on a token, Kerberos). ssh(1) never asks a question
(``BatchMode``), so an unknown or changed host key is an error.
"""

import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from bisector.config import options
from bisector.core.errors import InfraError, UserError
from bisector.core.printable import clean
from bisector.host import packages, process

HOSTS_FILE = "hosts.toml"
PROGRAM = "bisector"
CLUSTER = "tls://"
# Neither may begin like an option of ssh(1), or contain characters that a shell or a ProxyCommand would interpret.
_LOGIN = r"^(?:[A-Za-z0-9_][A-Za-z0-9_.+-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%-]*$"
_ADDRESS = r"^(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}$"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_.-]{0,61}[a-z0-9])?")
_DISK = Annotated[str, msgspec.Meta(pattern="^/")]
_CONNECT_S = 15
_GRACE_S = 10  # from SIGTERM to SIGKILL, on the host
_MARGIN_S = _CONNECT_S + _GRACE_S + 5  # from the deadline on the host to the deadline here
SSH_FAILED = 255
_TIMED_OUT = 124  # timeout(1)
CANNOT_RUN = (126, 127)
# The variables that ssh needs beside those of every command: for the agent, and for Kerberos.
_KEPT_VARIABLES = ("SSH_AUTH_SOCK", "KRB5CCNAME")
_OPTIONS = (
    *("BatchMode=yes", f"ConnectTimeout={_CONNECT_S}", "ServerAliveInterval=10", "ServerAliveCountMax=3"),
    # A shared connection would end with the process that opened it.
    *("ControlMaster=no", "ControlPath=none", "ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes"),
    *("RemoteCommand=none", "RequestTTY=no", "PermitLocalCommand=no", "LogLevel=ERROR", "EscapeChar=none"),
)

Row = TypeVar("Row")
Found = TypeVar("Found")


class HostRole(StrEnum):
    """The role of a host: trials with their builds, or builds alone."""

    MEASURE = "measure"
    BUILD = "build"


class Host(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine of ``hosts.toml``.

    ``ssh`` is the destination for ssh(1), and ``bisector`` the path of the program there. ``repository`` is a clone
    whose objects are borrowed, and which is never written. ``ssd`` and ``hdd`` are disks that each trial overwrites.
    """

    name: str = ""
    ssh: Annotated[str, msgspec.Meta(pattern=_LOGIN)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    repository: Annotated[str, msgspec.Meta(pattern="^/")] | None = None
    ssd: _DISK | None = None
    hdd: _DISK | None = None
    role: HostRole = HostRole.MEASURE
    bisector: Annotated[str, msgspec.Meta(pattern=f"^(/.*|{PROGRAM})$")] = PROGRAM

    @property
    def disks(self) -> Mapping[str, str]:
        """The paths, by name, of the storage stack's disks that the file names for this host."""
        return {name: path for name, path in (("ssd", self.ssd), ("hdd", self.hdd)) if path is not None}

    @property
    def login(self) -> str:
        """The arguments that a person types after ``ssh``."""
        return self.ssh if self.port is None else f"-p {self.port} {self.ssh}"


class _HostsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    address: Annotated[str, msgspec.Meta(pattern=_ADDRESS)] = ""
    hosts: dict[str, dict[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Hosts:
    """All machines of a file, in its order; or none, and the address of an existing Dask ``cluster`` that measures.

    ``address`` is the HOST:PORT at which hosts reach this machine; if empty, they use its SSH client address, any port.
    """

    path: Path
    hosts: tuple[Host, ...]
    address: str = ""
    cluster: str = ""

    @property
    def builders(self) -> frozenset[str]:
        """The names of the hosts that only build."""
        return frozenset(host.name for host in self.hosts if host.role is HostRole.BUILD)


def load(path: Path | str) -> Hosts:
    """Return the hosts of a file, or of a cluster's address; raises :class:`UserError` that names the file and key."""
    # A cluster's address that was made a Path has lost one of its slashes.
    if found := re.fullmatch(r"(\w+):/{1,2}(\S+:\d+)", str(path)):
        if f"{found[1]}://" != CLUSTER:
            raise UserError(
                f"{found[1]}://{found[2]}: anybody could run programs there", f"--hosts {CLUSTER}{found[2]}"
            )
        return Hosts(Path(path), (), cluster=f"{CLUSTER}{found[2]}")
    path = Path(path)
    if not path.exists():
        raise UserError(f"there is no file {path}", "docs/fleet.md has an example; or name it: --hosts FILE")
    table = options.read(path)
    listed = _convert(path, "", table, _HostsFile)
    hosts = tuple(_host(path, name, row) for name, row in listed.hosts.items())
    if not hosts:
        raise UserError(f"{path} lists no host", '[hosts.bench1] with ssh = "USER@HOST"')
    by_way: dict[tuple[str, int | None], str] = {}
    for host in hosts:
        # Two rows for one machine would have it run two trials at once, each of which makes the other one weak.
        if (other := by_way.setdefault((host.ssh, host.port), host.name)) != host.name:
            raise UserError(f"{path}: {host.name} is the same machine as {other}", "leave one of them out")
    return Hosts(path, hosts, listed.address)


def _host(path: Path, name: str, row: Mapping[str, object]) -> Host:
    if not _NAME.fullmatch(name):
        raise UserError(f"{path}: {name!r} cannot be the name of a host", "at most 63 of a-z, 0-9, - _ and .")
    if "name" in row:
        raise UserError(f"{path}: hosts.{name} has no key name", f"its name is that of its table: [hosts.{name}]")
    return _convert(path, f"hosts.{name}: ", {**row, "name": name}, Host)


def _convert(path: Path, where: str, table: Mapping[str, object], kind: type[Row]) -> Row:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: {where}{error}", "docs/fleet.md has an example of such a file") from error


# Connections


def client(host: Host) -> tuple[str, ...]:
    """Return the command line of ssh(1) up to the destination."""
    port = () if host.port is None else ("-p", str(host.port))
    return ("ssh", "-T", *(word for option in _OPTIONS for word in ("-o", option)), *port)


def remote(host: Host, *words: str, within_s: float | None = None) -> str:
    """Return the command by which any shell on the host runs bisector with these words, for ``within_s`` at most.

    Text appended to the command becomes further words.
    """
    # A command does not end together with its connection.
    limit = () if within_s is None else ("timeout", f"--kill-after={_GRACE_S}", f"{within_s:g}")
    # "pip install --user" puts the program there, and a command run by SSH reads no profile that would add it to PATH.
    path = 'PATH="$HOME/.local/bin:$PATH"; export PATH; ' if host.bisector == PROGRAM else ""
    script = f'{path}exec {shlex.join((*limit, host.bisector, *words))} "$@"'
    return f"exec sh -c {shlex.quote(script)} sh"


def asked(host: Host, *words: str, within_s: float, stdin: str = "") -> str:
    """Run bisector on a host, and return what it prints, whatever its exit status.

    Raises :class:`InfraError` if the host cannot be reached or does not answer in time, and :class:`UserError` if a
    person has to act: an unknown host key, no login, no bisector, a login shell that prints something.
    """
    argv = (*client(host), "--", host.ssh, remote(host, *words, within_s=within_s))
    try:
        done = process.run(argv, deadline_s=within_s + _MARGIN_S, stdin=stdin, check=False, env=variables())
    except process.CommandMissing as error:
        raise packages.not_installed("ssh", "openssh-client") from error
    except process.CommandTimeout as error:
        raise InfraError(f"{host.name}: no answer within {within_s:g} s", f"ssh {host.login} true") from error
    if done.exit_status == _TIMED_OUT:
        raise InfraError(f"{host.name}: `{host.bisector} {words[0]}` did not end within {within_s:g} s")
    if done.exit_status == SSH_FAILED or done.exit_status in CANNOT_RUN:
        raise failure(host, done.exit_status, done.stderr)
    first = done.stdout.lstrip().partition("\n")[0]
    if "{" in done.stdout and not first.startswith("{"):
        raise UserError(
            f"{host.name}: what its login shell prints stands before what was asked: {clean(first)!r}",
            f"let it print nothing without a terminal, [ -t 1 ] || return; then: ssh {host.login} true",
        )
    return done.stdout or done.stderr


def failure(host: Host, exit_status: int, stderr: str) -> InfraError | UserError:
    """Return the error for a command that did not run on a host, by the exit status and output of ssh(1)."""
    said = clean((stderr.strip() or "it printed nothing").splitlines()[-1])
    by_hand = f"ssh {host.login} true"
    if exit_status in CANNOT_RUN:
        hint = f'install it there as here; or name it: bisector = "/opt/bisector/bin/bisector" in [hosts.{host.name}]'
        return UserError(f"{host.name}: {host.bisector} cannot be run there: {said}", hint)
    if "Host key verification failed" in stderr:
        hint = f"{by_hand}, which shows the key and asks; ssh-keygen -R takes out one that was replaced"
        return UserError(f"{host.name}: its SSH key is not the one of known_hosts, or unknown", hint)
    if "Permission denied" in stderr:
        hint = f"ssh-copy-id {host.login}; or, if your key has a passphrase: ssh-add"
        return UserError(f"{host.name}: no login by SSH without a password: {said}", hint)
    if not stderr.strip():  # ssh(1) has a message of its own for each connection that it could not make
        return InfraError(f"{host.name}: the command or its connection was killed", by_hand)
    return InfraError(f"{host.name} cannot be reached: {said}", by_hand)


def variables() -> dict[str, str]:
    """Return the variables of this process's environment that ssh(1) gets beside those of every command."""
    return {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}


def of_each(hosts: tuple[Host, ...], question: Callable[[Host], Found]) -> tuple[Found, ...]:
    """Ask all hosts at the same time, and return the answers in the order of the hosts."""
    with ThreadPoolExecutor(max(1, len(hosts)), thread_name_prefix="host") as pool:
        return tuple(pool.map(question, hosts))


def check_installed(command: str) -> None:
    """Raise :class:`UserError` if a package of the extra ``fleet`` is missing; call this before importing one."""
    missing = [name for name in ("distributed", "cryptography") if importlib.util.find_spec(name) is None]
    if missing:
        install = f"{sys.executable} -m pip install 'bisector[fleet]', from where bisector was installed"
        raise UserError(f"{command} needs what is not installed: {', '.join(missing)}", install)
