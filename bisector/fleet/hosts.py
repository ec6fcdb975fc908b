"""The machines of a fleet, as their person lists them: ``hosts.toml``, read and checked as a whole.

Paths in it are those of the host, which is asked about them when it is connected; here they only have to be absolute.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from bisector.config import file as configfile
from bisector.core import setting
from bisector.core.errors import UserError
from bisector.core.setting import Form, Meta, Unfit
from bisector.fleet.home import check_name

HOSTS_FILE = "hosts.toml"
PROGRAM = "bisector"
_TABLE = "hosts"
_COORDINATOR = "coordinator"
_DASHBOARD = "dashboard"
# Neither may begin like an option of ssh(1), nor hold anything that a shell or a ProxyCommand takes apart.
_LOGIN = r"(?:[A-Za-z0-9_][A-Za-z0-9_.+-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%-]*"
_ADDRESS = re.compile(r"(tls|tcp)://(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")
_LAST_PORT = 65535


class Role(StrEnum):
    """What a host is for: trials with their builds, or builds alone."""

    MEASURE = "measure"
    BUILD = "build"


@dataclass(frozen=True, slots=True)
class Host:
    """One machine.

    ``ssh`` is how this machine logs in there; None for one that dials in by itself. ``repository`` is a clone whose
    objects are borrowed, and which is never written. ``bisector`` is the program there.
    """

    name: str
    ssh: str | None = None
    port: int | None = None
    repository: str | None = None
    ssd: str | None = None
    hdd: str | None = None
    role: Role = Role.MEASURE
    bisector: str = PROGRAM

    def over(self, listed: "Host") -> "Host":
        """What is listed, but for what this one has otherwise than usual."""
        usual = Host(self.name)
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(listed, **{key: value for key, value in own.items() if value != getattr(usual, key)})


@dataclass(frozen=True, slots=True)
class Hosts:
    """All machines of a file, in its order, and the address at which they find their coordinator.

    ``dashboard`` is the port on loopback of Dask's pages about a fleet at work; 0 for none.
    """

    path: Path
    coordinator: str | None
    hosts: tuple[Host, ...]
    dashboard: int = 0

    def named(self, name: str) -> Host:
        """The host of that name; raises :class:`UserError` with the nearest there is."""
        for host in self.hosts:
            if host.name == name:
                return host
        known = [host.name for host in self.hosts]
        raise UserError(f"{self.path}: there is no host {name}", _nearest(name, known) or "it lists no host")

    def __contains__(self, name: str) -> bool:
        return any(host.name == name for host in self.hosts)


def is_address(text: str) -> bool:
    """Whether it is where a scheduler of dask.distributed may listen, with its port."""
    found = _ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found[3]) <= _LAST_PORT


def _address(raw: object, _base: Path | None) -> object:
    if not isinstance(raw, str) or not is_address(raw):
        raise ValueError(raw)
    return raw


_Port = Annotated[int, Meta(ge=1, le=_LAST_PORT, description=f"a port, 1 to {_LAST_PORT}")]
_Place = Annotated[
    str,
    Meta(pattern="^/", description="a path on that host, such as /dev/disk/by-id/…"),
]
# The types of the values of a host's keys, and of those of the fleet.
_KEYS: Mapping[str, Any] = {
    "ssh": Annotated[str, Meta(pattern=rf"^{_LOGIN}$", description="[USER@]HOST, as ssh takes it")],
    "port": _Port,
    "repository": Annotated[str, Meta(pattern="^/", description="the absolute path of a clone on that host")],
    "ssd": _Place,
    "hdd": _Place,
    "role": Role,
    "bisector": Annotated[
        str, Meta(pattern=rf"^(/|{PROGRAM}$)", description="the absolute path of bisector on that host")
    ],
}
_FLEET: Mapping[str, Any] = {
    _COORDINATOR: Annotated[str, Form("an address such as tls://desk:8786", _address)],
    _DASHBOARD: _Port,
}


def load(path: Path) -> Hosts:
    """What the file lists; raises :class:`UserError` that names file and key."""
    if not path.exists():
        raise UserError(f"there is no file {path}", "bisector fleet add USER@HOST writes one; or name it: --hosts FILE")
    return parsed(path, configfile.read(path)[1])


def parsed(path: Path, table: Mapping[str, object]) -> Hosts:
    """The same of a text that is not in the file yet."""
    _refuse_unknown(table, (*_FLEET, _TABLE), path, "")
    raw_hosts = table.get(_TABLE, {})
    if not isinstance(raw_hosts, dict):
        raise UserError(f"{path}: hosts has a table for each host", "[hosts.bench1]")
    coordinator = _value(_FLEET, table, _COORDINATOR, path, "")
    hosts = tuple(_host(name, raw, path) for name, raw in raw_hosts.items())
    for number, host in enumerate(hosts):
        for other in hosts[:number]:
            # Two rows for one machine would have two trials at once on it, each of which makes the other one weak.
            if host.ssh is not None and (host.ssh, host.port) == (other.ssh, other.port):
                raise UserError(f"{path}: {host.name} is the same machine as {other.name}", "leave one of them out")
    return Hosts(path, coordinator, hosts, _value(_FLEET, table, _DASHBOARD, path, "") or 0)


def _value(known: Mapping[str, Any], table: Mapping[str, object], key: str, path: Path, prefix: str) -> Any:
    """The value of a key; None when it is not given."""
    if key not in table:
        return None
    try:
        return setting.read(known[key], table[key])
    except Unfit as error:
        shown, expected = configfile.literal(table[key]), setting.expected(known[key])
        raise UserError(
            f"{path}: {prefix}{key} = {shown}: expected {expected}", "docs/fleet.md has an example of such a file"
        ) from error


def _host(name: str, raw: object, path: Path) -> Host:
    prefix = f"{_TABLE}.{name}."
    if not isinstance(raw, dict):
        raise UserError(f"{path}: {name} is no key of hosts", f"a host is a table: [hosts.{name}]")
    try:
        check_name(name)
    except UserError as error:
        raise UserError(f"{path}: {error.message}", "a-z, 0-9, - _ and .: [hosts.bench1]") from error
    _refuse_unknown(raw, tuple(_KEYS), path, prefix)
    given = {key: _value(_KEYS, raw, key, path, prefix) for key in _KEYS if key in raw}
    if "port" in given and "ssh" not in given:
        raise UserError(f"{path}: {name} has a port and no ssh", 'ssh = "USER@HOST"')
    return Host(name, **given)


def _refuse_unknown(table: Mapping[str, object], known: tuple[str, ...], path: Path, prefix: str) -> None:
    for key in table:
        if key not in known:
            of = f"{prefix.removeprefix(_TABLE + '.').rstrip('.')} has" if prefix else "there is"
            raise UserError(f"{path}: {of} no key {key}", _nearest(key, known))


def _nearest(word: str, known: tuple[str, ...] | list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    listed = f"there are: {', '.join(known)}" if known else ""
    return f"did you mean {near[0]}? {listed}" if near else listed


def usual_name(ssh: str) -> str:
    """What a host is called when nobody says it: its address up to the first dot."""
    address = ssh.rpartition("@")[2]
    return address if ":" in address else address.partition(".")[0].lower()


def add_command(host: Host) -> str:
    """What is typed to make it a host once more."""
    port = "" if host.port is None else f" --port {host.port}"
    name = "" if host.name == usual_name(host.ssh or "") else f" --name {host.name}"
    return f"bisector fleet add {host.ssh}{port}{name}"


def check(host: Host, origin: str) -> None:
    """Raise :class:`UserError` for what a host of the command ``origin`` cannot have."""
    for key, value in written(host).items():
        try:
            setting.read(_KEYS[key], value)
        except Unfit as error:
            flag = "" if key == "ssh" else f"--{key} "
            raise UserError(f"{origin}: {flag}{value}: expected {setting.expected(_KEYS[key])}") from error


def written(host: Host) -> dict[str, object]:
    """A host's keys as TOML holds them, without those that have their usual value."""
    usual = Host(host.name)
    values = {one.name: getattr(host, one.name) for one in fields(host) if one.name != "name"}
    return {
        key: str(value) if isinstance(value, Role) else value
        for key, value in values.items()
        if value is not None and (value != getattr(usual, key))
    }
