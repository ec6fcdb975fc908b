"""``--hosts``: what a command measures with, this host or those of a fleet, and how a run remembers it."""

import argparse
from pathlib import Path

from bisector.campaign.equipment import Equip, here
from bisector.store.rundir import RunDirectory

_HELP = "measure on the hosts of hosts.toml, or of tls://…, and not here"


def add_hosts(verb: argparse.ArgumentParser) -> None:
    """Add ``--hosts`` to a command."""
    verb.add_argument("--hosts", type=hosts_file, metavar="FILE", help=_HELP)


def hosts_file(text: str) -> Path:
    """Where a list of hosts is, from any directory; the address of a cluster (tls://…) stays one."""
    path = Path(text)
    return path if path.parts[:1] == ("tls:",) else path.absolute()


def equip_of(file: Path | None) -> Equip:
    """What measures: this host, or those of a fleet; raises :class:`UserError` for a file by which none can."""
    if file is None:
        return here
    from bisector.bisect.on_hosts import on_hosts  # noqa: PLC0415 - of a fleet alone
    from bisector.fleet import hosts  # noqa: PLC0415 - see above

    return on_hosts(hosts.load(file))


def remember(run: RunDirectory, file: Path | None) -> None:
    """Have ``resume`` go on where a run was begun."""
    if file is not None:
        run.remember_hosts(file)
