"""Settings of Dask that replace a person's own configuration; only this module uses ``dask``.

The keys are those of distributed's ``distributed.yaml``. Its defaults are made for many short tasks that may be rerun
anywhere; a trial runs for an hour, alone on a host that has to be quiet, and is repeated by the record.
"""

import logging
import resource
from collections.abc import Mapping

import dask.config

SETTINGS: Mapping[str, object] = {
    # By default, a task whose worker died would silently be rerun on up to three other workers.
    "distributed.scheduler.allowed-failures": 0,
    # By default, a task whose worker left would wait for it for ever (dask/distributed#7346).
    "distributed.scheduler.no-workers-timeout": "60 s",
    "distributed.scheduler.worker-ttl": "5 minutes",
    # By default, SpecCluster would forget a host whose worker is gone for 15 s; here the worker is restarted.
    "distributed.deploy.lost-worker-timeout": "1000 days",
    # By default, the worker's profiler takes a stack each 10 ms while a task runs (dask/distributed#6490).
    "distributed.worker.profile.enabled": False,
    # Also the time after which the kernel gives up a silent connection (TCP_USER_TIMEOUT of tcp(7)).
    "distributed.comm.timeouts.tcp": "60 s",
    "distributed.comm.timeouts.connect": "30 s",
}


def settle() -> None:
    """Replace the settings of files and environment by :data:`SETTINGS`; call this before any object of Dask is made.

    Dask's own log, with its tracebacks, is silenced, since bisector itself reports the state of connections. The limit
    of open files is raised to the system's maximum, since anyone who reaches a port can hold descriptors by handshakes
    that never end.
    """
    dask.config.refresh(paths=[], env={})
    dask.config.set(SETTINGS)
    for name in ("distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
