"""The equipment of a run whose trials are made on other hosts.

dask.distributed is imported only when such a run begins: it is not needed on a single machine.
"""

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bisector.campaign.equipment import Equipment, KernelEquality, MeasurerFactory
from bisector.campaign.instructions import Crew
from bisector.config import Settings
from bisector.core import resources
from bisector.core.errors import InfraError, UserError
from bisector.core.events import Listener, Note
from bisector.executor.local import kept_kernels, kernel_builder
from bisector.fleet.hosts import Hosts, check_installed
from bisector.fleet.spec import run_key
from bisector.git.repository import Repository
from bisector.git.trees import Trees
from bisector.host import locks
from bisector.host.files import our_files, remove_abandoned, scratch
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store

_CONNECT_S = 300.0


def on_hosts(hosts: Hosts) -> MeasurerFactory:
    """Return the equipment for these hosts; raises :class:`UserError` without Dask, or if all hosts only build."""
    check_installed("--hosts")
    builders = hosts.builders
    if builders and len(builders) == len(hosts.hosts):
        raise UserError(f"all hosts of {hosts.path} only build", 'role = "measure" for one of them')

    @contextmanager
    def equip(settings: Settings, run_dir: Path, repository: Repository, tell: Listener) -> Iterator[Equipment]:
        from bisector.fleet.cluster import client_of  # noqa: PLC0415 - Dask is an extra, and slow to load
        from bisector.fleet.executor import Arrival, FleetExecutor  # noqa: PLC0415 - see above

        with Store.open(RunDirectory(run_dir).database, readonly=True) as store:
            key = run_key(run_dir, store.bisection().created_at)
        arrived: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        builder, home = kernel_builder(settings.kernel), resources.cache_home()
        with our_files(home):
            home.mkdir(parents=True, exist_ok=True)
        for directory in (home, run_dir):  # a killed coordinator leaves files that were being transferred
            remove_abandoned(directory)
        with (
            locks.using_caches(home),
            scratch("sent", home) as place,
            client_of(hosts, lambda text: arrived.put(Note(text))) as client,
        ):
            executor = FleetExecutor(
                client,
                hosts,
                key,
                run_dir,
                settings,
                repository,
                kept_kernels(),
                place,
                builder.compilers,
                tell,
                arrived,
            )
            if not (executor.wait(_CONNECT_S) or executor.idle):
                raise InfraError(f"no host was there within {_CONNECT_S:g} s", "bisector fleet status")
            kernels = KernelEquality(Trees(repository), builder, settings.bisect.first_parent)
            yield Equipment(executor, kernels, crew=Crew(len(hosts.hosts) - len(builders), builders))

    return equip
