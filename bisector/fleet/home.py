"""What a person's fleet keeps, and where: certificates and keys, the hosts' pinned SSH keys.

A machine may be a coordinator, a host of somebody's fleet, or both; each role has a directory of its own, with the
three files that TLS takes. Only the person can enter any of them.
"""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bisector.core import resources
from bisector.core.errors import UserError
from bisector.host import locks
from bisector.host.files import our_files

# What a host is called: in hosts.toml, in its certificate and in tables, and in known_hosts, where ssh(1) does not tell
# upper case from lower case.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_.-]{0,61}[a-z0-9])?")
COORDINATOR = "coordinator"
# No lists of names in tables may be taken for one.
_RESERVED = frozenset((COORDINATOR, "all"))


def check_name(name: str) -> str:
    """A name that a host can have; raises :class:`UserError`."""
    if name in _RESERVED:
        raise UserError(f"no host can be called {name}", "give it another name: --name bench1")
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} cannot be the name of a host", "at most 63 of a-z, 0-9, - _ and .: --name bench1")
    return name


@dataclass(frozen=True, slots=True)
class Identity:
    """The directory with the three files that one end of a TLS connection takes."""

    directory: Path

    @property
    def authority(self) -> Path:
        """The certificate of the fleet's authority, by which the other end is recognised."""
        return self.directory / "ca.pem"

    @property
    def certificate(self) -> Path:
        """The certificate of this end."""
        return self.directory / "cert.pem"

    @property
    def key(self) -> Path:
        """The private key of this end, which never leaves the machine that made it."""
        return self.directory / "key.pem"


@dataclass(frozen=True, slots=True)
class FleetHome:
    """The person's directory of all that is the fleet's, on a coordinator as on a host."""

    path: Path

    @classmethod
    def of_person(cls) -> "FleetHome":
        """Below $XDG_DATA_HOME."""
        return cls(resources.data_home() / "fleet")

    @property
    def authority(self) -> Path:
        """The authority's certificate and key; a coordinator has it."""
        return self.path / "authority"

    @property
    def coordinator(self) -> Identity:
        """What this machine shows as a coordinator."""
        return Identity(self.path / COORDINATOR)

    @property
    def worker(self) -> Identity:
        """What this machine shows as a host."""
        return Identity(self.path / "worker")

    @property
    def known_hosts(self) -> Path:
        """The pinned SSH keys of the hosts (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT")."""
        return self.path / "known_hosts"

    def issued(self, name: str) -> Path:
        """The certificate that a host was given last."""
        return self.path / "issued" / f"{name}.pem"

    @contextmanager
    def changing(self, part: str = "fleet") -> Iterator[None]:
        """Be the one process that changes a part of it; raises :class:`UserError` while another one does."""
        with ExitStack() as stack:
            with our_files(self.path):
                make_private(self.path)
                try:
                    stack.enter_context(locks.held(self.path / f"{part}.lock"))
                except locks.Held as error:
                    what = f"{error.holder} is changing the {part}"
                    raise UserError(what, "wait for it, then type the same again") from error
            yield


def make_private(directory: Path) -> None:
    """Make a directory that only this user can enter, or make one so. Raises ``OSError``."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)


def check_private(path: Path) -> None:
    """Raise :class:`UserError` for a key that somebody else can read, as ssh(1) refuses one; ``OSError`` without it."""
    status = path.stat()
    if status.st_mode & 0o077 or status.st_uid != os.geteuid():
        raise UserError(
            f"{path}: other users can read this private key (mode {status.st_mode & 0o777:04o})",
            f"chmod 600 {path}; if anybody may have read it: bisector fleet init --new-authority",
        )
