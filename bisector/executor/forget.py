"""That a run is over, said on a host by whoever comes there by SSH: beside the host's worker, or where none runs."""

from typing import Annotated, Literal

from bisector.core.errors import UserError
from bisector.core.json_document import SCHEMA, Record
from bisector.executor.spec import Key
from bisector.executor.spool import Spool
from bisector.executor.watch import Desk
from bisector.git.mirror import Mirror
from bisector.host.files import our_files


class Forgotten(Record, frozen=True, kw_only=True):
    """What a host has done about a run that is over."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    found: Annotated[bool, "whether there was anything of the run"]
    ended: Annotated[tuple[int, ...], "numbers of the jobs that were under way, and are ended"]
    left: Annotated[bool, "whether files of it are still there: they go when no job of another run is under way"]


def forget(spool: Spool, run: str) -> Forgotten:
    """End what runs of a run, guests and builds included, and remove what it has left.

    A run that is not known here is no trouble. Raises :class:`UserError` for what is no name of a run, and
    :class:`bisector.core.errors.InfraError` for a process that does not end.
    """
    key = Key(run, 0)
    if not key.is_sound:
        raise UserError(f"{run!r} is no key of a run")
    home = spool.home / run
    if not home.is_dir():
        return Forgotten(found=False, ended=(), left=False)
    with our_files(spool.home):
        ended = tuple(entry.key.id for entry in spool.entries() if entry.key.run == run and entry.runs)
        Desk(spool, "", spool.sources).over(key)  # it begins no job, so no engine has a name
        Mirror(spool.sources).abandon(run)
        return Forgotten(found=True, ended=ended, left=home.is_dir())
