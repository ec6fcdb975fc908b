"""``hosts.toml``, in which a person lists the machines that measure for this one.

Paths in the file are paths on the host. They must be absolute; ``bisector doctor --hosts`` checks them on the host.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from bisector.config import file as configfile
from bisector.core.errors import UserError

HOSTS_FILE = "hosts.toml"
PROGRAM = "bisector"
CLUSTER = "tls://"
# Neither may begin like an option of ssh(1), or contain characters that a shell or a ProxyCommand would interpret.
_LOGIN = r"^(?:[A-Za-z0-9_][A-Za-z0-9_.+-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%-]*$"
_ADDRESS = r"^(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}$"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_.-]{0,61}[a-z0-9])?")
Row = TypeVar("Row")
_DISK = Annotated[str, msgspec.Meta(pattern="^/")]


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
    table = configfile.read(path)
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
