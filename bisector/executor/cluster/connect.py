"""An executor over the hosts that connect to this one, for as long as a bisection lasts."""

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bisector.config import Settings
from bisector.core import resources
from bisector.core.events import Listener
from bisector.core.subject import Compiler
from bisector.executor.cluster.coordinator import Coordinator
from bisector.executor.cluster.security import Door
from bisector.executor.kernels import kernels_of
from bisector.executor.local import kept_kernels
from bisector.executor.remote import RemoteExecutor
from bisector.executor.supply import Supplies
from bisector.fleet.versions import compared
from bisector.git.repository import Repository
from bisector.host.detached import machine_id
from bisector.host.files import our_files, scratch

_CONNECT_S = 300.0
_DIGITS = 16
_NAME_LENGTH = 80


def run_key(run_dir: Path, created_at: str) -> str:
    """A name that no other run has, or ever had, also on other coordinators; it may be the name of a directory.

    A run directory may be removed and made again with the same name, so the time of the record is part of it.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", run_dir.name).lstrip("._-")[:_NAME_LENGTH] or "run"
    whole = "\0".join((machine_id(), os.path.realpath(run_dir), created_at))
    return f"{name}-{hashlib.sha256(os.fsencode(whole)).hexdigest()[:_DIGITS]}"


@contextmanager
def remote_executor(
    door: Door,
    run: str,
    run_dir: Path,
    settings: Settings,
    tell: Listener,
    *,
    builds_with: Callable[[], tuple[Compiler, ...]],
    repository: Repository,
    before: Mapping[int, str] | None = None,
    lost: Iterable[int] = (),
    disks: Mapping[str, Mapping[str, str]] | None = None,
    builders: Collection[str] = (),
    hosts: int = 1,
    dashboard: int = 0,
) -> Iterator[RemoteExecutor]:
    """Listen at ``door`` and wait until ``hosts`` are there; see :class:`RemoteExecutor` for the rest.

    Hosts are sent the commits of ``repository`` that they lack, and this user's kernels; theirs are kept here, too.

    Raises :class:`bisector.core.errors.UserError` for an address that cannot be listened at, and
    :class:`bisector.core.errors.InfraError` when the hosts do not come. When it ends, the hosts' jobs go on: what they
    hold is heard by the process that goes on with the run.
    """
    with _files() as place, Coordinator(door, Supplies(repository, kept_kernels(), place), dashboard) as coordinator:
        executor = RemoteExecutor(
            coordinator,
            run,
            run_dir,
            settings,
            compared(),
            builds_with,
            tell,
            before or {},
            lost=lost,
            kernels_of=kernels_of,
            disks=disks or {},
            builders=builders,
        )
        executor.wait_for_hosts(hosts, _CONNECT_S)
        yield executor


@contextmanager
def _files() -> Iterator[Path]:
    """Where files are made to be sent: not in the system's directory for temporary files, which may be memory."""
    home = resources.cache_home()
    with our_files(home):
        home.mkdir(parents=True, exist_ok=True)
    with scratch("sent", home) as place:
        yield place
