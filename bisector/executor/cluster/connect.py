"""The hosts that connect to this one: an executor over them for as long as a bisection lasts, or a word to them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bisector.config import Settings
from bisector.core import resources
from bisector.core.deadline import Deadline
from bisector.core.events import Listener
from bisector.core.subject import Compiler
from bisector.executor.cluster.coordinator import Coordinator
from bisector.executor.cluster.security import Door
from bisector.executor.hosts import Joined
from bisector.executor.kernels import kernels_of
from bisector.executor.local import kept_kernels
from bisector.executor.remote import RemoteExecutor
from bisector.executor.supply import Supplies
from bisector.executor.telling import Telling
from bisector.executor.untold import Untold
from bisector.fleet.versions import compared
from bisector.git.repository import Repository
from bisector.host.files import our_files, scratch

_CONNECT_S = 300.0


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
    hold is heard by the process that goes on with the run. They are told of runs that were reset while they were away.
    """
    untold = Untold()
    untold.strike_run(run)  # it goes on, so it is over for nobody
    with _files() as place, Coordinator(door, Supplies(repository, kept_kernels(), place), dashboard) as coordinator:
        executor = RemoteExecutor(
            Telling(coordinator, untold),
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


def tell_over(door: Door, untold: Untold, names: Collection[str], seconds: float) -> frozenset[str]:
    """Listen at ``door`` until these hosts have been told what they are to be told; those that have, in that time.

    Raises as :func:`remote_executor` for an address that cannot be listened at.
    """
    with Coordinator(door) as coordinator:
        connection, deadline = Telling(coordinator, untold), Deadline("hosts that connect", seconds)
        told = {host.name for host in connection.hosts()}
        while not told.issuperset(names) and not deadline.expired:
            match connection.news(deadline.remaining_s):
                case Joined(host):
                    told.add(host.name)
        return frozenset(told.intersection(names))


@contextmanager
def _files() -> Iterator[Path]:
    """Where files are made to be sent: not in the system's directory for temporary files, which may be memory."""
    home = resources.cache_home()
    with our_files(home):
        home.mkdir(parents=True, exist_ok=True)
    with scratch("sent", home) as place:
        yield place
