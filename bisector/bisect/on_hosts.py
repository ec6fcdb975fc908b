"""The equipment of a run whose trials are made on other hosts: a scheduler here, to which their workers connect.

Of dask.distributed nothing is imported before such a run begins: who has one machine needs none of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bisector.campaign.equipment import Equip, Equipment, KernelEquality
from bisector.campaign.instructions import Crew
from bisector.config import Settings
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.core.events import Listener
from bisector.executor.local import kernel_builder
from bisector.executor.spec import run_key
from bisector.fleet.extra import Extra, check_installed
from bisector.fleet.home import FleetHome
from bisector.fleet.hosts import Hosts, Role
from bisector.git.repository import Repository
from bisector.git.trees import Trees
from bisector.host import locks
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store


def on_hosts(hosts: Hosts) -> Equip:
    """What measures on the hosts of a file; raises :class:`UserError` for a file by which none can connect."""
    check_installed("--hosts")
    if hosts.dashboard:
        check_installed(f"the dashboard of {hosts.path}", Extra.DASHBOARD)
    if hosts.coordinator is None:
        raise UserError(
            f"{hosts.path} does not say where the hosts find this machine", 'coordinator = "tls://NAME:8786"'
        )
    builders = frozenset(host.name for host in hosts.hosts if host.role is Role.BUILD)
    if builders and len(builders) == len(hosts.hosts):
        raise UserError(
            f"all hosts of {hosts.path} only build: nobody would measure", 'role = "measure" for one of them'
        )
    address = hosts.coordinator
    disks = {
        host.name: {name: path for name, path in (("ssd", host.ssd), ("hdd", host.hdd)) if path is not None}
        for host in hosts.hosts
    }

    @contextmanager
    def equip(settings: Settings, run_dir: Path, repository: Repository, tell: Listener) -> Iterator[Equipment]:
        from bisector.executor.cluster.connect import remote_executor  # noqa: PLC0415 - Dask is an extra, and slow to load
        from bisector.executor.cluster.security import door  # noqa: PLC0415 - see above

        with Store.open(RunDirectory(run_dir).database, readonly=True) as store:
            key = run_key(run_dir, store.bisection().created_at)
            before = {one.id: one.submitted.host for one in store.in_flight()}
            lost = tuple(one.id for one in store.silent())
        builder = kernel_builder(settings.kernel)
        with (
            locks.using_caches(resources.cache_home()),
            remote_executor(
                door(address, certificates(address)),
                key,
                run_dir,
                settings,
                tell,
                builds_with=builder.compilers,
                repository=repository,
                before=before,
                lost=lost,
                disks=disks,
                builders=builders,
                dashboard=hosts.dashboard,
            ) as executor,
        ):
            kernels = KernelEquality(Trees(repository), builder, settings.bisect.first_parent)
            yield Equipment(
                executor, kernels, adopted=tuple(before), crew=Crew(len(hosts.hosts) - len(builders), builders)
            )

    return equip


def certificates(address: str) -> Path | None:
    """The coordinator's own; raises :class:`UserError` where there are none and they are needed."""
    own = FleetHome.of_person().coordinator.directory
    if not own.is_dir():
        if address.startswith("tls:"):
            raise UserError("this machine has no fleet yet", "bisector fleet init")
        return None
    return own
