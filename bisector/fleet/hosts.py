"""The machines of a fleet, as their person lists them: ``hosts.toml``, read and checked as a whole.

Paths in it are those of the host, which is asked about them when it is connected; here they only have to be absolute.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from bisector.config import file as configfile
from bisector.core import kinds
from bisector.core.errors import UserError
from bisector.core.kinds import Kind, Unfit
from bisector.fleet.home import check_name

HOSTS_FILE = "hosts.toml"
PROGRAM = "bisector"
_TABLE = "hosts"
_COORDINATOR = "coordinator"
_DASHBOARD = "dashboard"
# Neither may begin like an option of ssh(1), nor hold anything that a shell or a ProxyCommand takes apart.
_LOGIN = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.+-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%-]*")
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


def _matching(expected: str, fits: Callable[[str], object]) -> Kind:
    def read(raw: object, _base: Path | None) -> str:
        if not isinstance(raw, str) or not raw.isprintable() or not fits(raw):
            raise Unfit
        return raw

    return Kind(expected, read, str)


def _port() -> Kind:
    def read(raw: object, _base: Path | None) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or not 0 < raw <= _LAST_PORT:
            raise Unfit
        return raw

    return Kind(f"a port, 1 to {_LAST_PORT}", read, int)


def _on_host(expected: str, other: Callable[[str], bool] = lambda raw: False) -> Kind:
    return _matching(expected, lambda raw: raw.startswith("/") or other(raw))


def is_address(text: str) -> bool:
    """Whether it is where a scheduler of dask.distributed may listen, with its port."""
    found = _ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found[3]) <= _LAST_PORT


# Read as a table, so laid out as one.
# fmt: off
_KEYS: Mapping[str, Kind] = {
    "ssh":        _matching("[USER@]HOST, as ssh takes it", _LOGIN.fullmatch),
    "port":       _port(),
    "repository": _on_host("the absolute path of a clone on that host"),
    "ssd":        _on_host("a path on that host, such as /dev/disk/by-id/…"),
    "hdd":        _on_host("a path on that host, such as /dev/disk/by-id/…"),
    "role":       kinds.choice(Role),
    "bisector":   _on_host("the absolute path of bisector on that host", lambda raw: raw == PROGRAM),
}
# fmt: on
_FLEET: Mapping[str, Kind] = {
    _COORDINATOR: _matching("an address such as tls://desk:8786", is_address),
    _DASHBOARD: _port(),
}


def load(path: Path) -> Hosts:
    """What the file lists; raises :class:`UserError` that names file, line and key."""
    if not path.exists():
        raise UserError(f"there is no file {path}", "bisector fleet add USER@HOST writes one; or name it: --hosts FILE")
    text, table = configfile.read(path)
    return parsed(path, text, table)


def parsed(path: Path, text: str, table: Mapping[str, object]) -> Hosts:
    """The same of a text that is not in the file yet."""
    where = _Where(path, text)
    _refuse_unknown(table, (*_FLEET, _TABLE), where, "")
    raw_hosts = table.get(_TABLE, {})
    if not isinstance(raw_hosts, dict):
        raise UserError(f"{where(_TABLE)}: hosts has a table for each host", "[hosts.bench1]")
    coordinator = where.value(_FLEET, table, _COORDINATOR, "")
    hosts = tuple(_host(name, raw, where) for name, raw in raw_hosts.items())
    for number, host in enumerate(hosts):
        for other in hosts[:number]:
            # Two rows for one machine would have two trials at once on it, each of which makes the other one weak.
            if host.ssh is not None and (host.ssh, host.port) == (other.ssh, other.port):
                origin = where(f"{_TABLE}.{host.name}.ssh")
                raise UserError(f"{origin}: {host.name} is the same machine as {other.name}", "leave one of them out")
    return Hosts(path, coordinator, hosts, where.value(_FLEET, table, _DASHBOARD, "") or 0)


@dataclass(frozen=True, slots=True)
class _Where:
    """The file, for errors."""

    path: Path
    text: str

    def __call__(self, key: str) -> str:
        line = configfile.line_of(self.text, key)
        return f"{self.path}:{line}" if line else str(self.path)

    def value(self, known: Mapping[str, Kind], table: Mapping[str, object], key: str, prefix: str) -> Any:
        """The value of a key; None when it is not given."""
        if key not in table:
            return None
        try:
            return known[key].read(table[key], None)
        except Unfit as error:
            shown = configfile.literal(table[key])
            raise UserError(
                f"{self(prefix + key)}: {key} = {shown}: expected {known[key].expected}",
                "docs/fleet.md has an example of such a file",
            ) from error


def _host(name: str, raw: object, where: _Where) -> Host:
    prefix = f"{_TABLE}.{name}."
    if not isinstance(raw, dict):
        raise UserError(
            f"{where(_TABLE + '.' + name)}: {name} is no key of hosts", f"a host is a table: [hosts.{name}]"
        )
    try:
        check_name(name)
    except UserError as error:
        raise UserError(f"{where.path}: {error.message}", "a-z, 0-9, - _ and .: [hosts.bench1]") from error
    _refuse_unknown(raw, tuple(_KEYS), where, prefix)
    given = {key: where.value(_KEYS, raw, key, prefix) for key in _KEYS if key in raw}
    if "port" in given and "ssh" not in given:
        raise UserError(f"{where(prefix + 'port')}: {name} has a port and no ssh", 'ssh = "USER@HOST"')
    return Host(name, **given)


def _refuse_unknown(table: Mapping[str, object], known: tuple[str, ...], where: _Where, prefix: str) -> None:
    for key in table:
        if key not in known:
            of = f"{prefix.removeprefix(_TABLE + '.').rstrip('.')} has" if prefix else "there is"
            raise UserError(f"{where(prefix + key)}: {of} no key {key}", _nearest(key, known))


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
            _KEYS[key].read(value, None)
        except Unfit as error:
            flag = "" if key == "ssh" else f"--{key} "
            raise UserError(f"{origin}: {flag}{value}: expected {_KEYS[key].expected}") from error


def written(host: Host) -> dict[str, object]:
    """A host's keys as TOML holds them, without those that have their usual value."""
    usual = Host(host.name)
    values = {one.name: getattr(host, one.name) for one in fields(host) if one.name != "name"}
    return {
        key: _KEYS[key].write(value)
        for key, value in values.items()
        if value is not None and (value != getattr(usual, key))
    }
