"""How Dask is to behave, whatever a person's own configuration of it says; the owner of ``dask``.

The keys are those of distributed's ``distributed.yaml``. Its defaults are made for many short tasks that may run again
anywhere; a trial is one that runs for an hour, alone on a host that is to be quiet, and is repeated by the record.
"""

import logging
import resource
from collections.abc import Mapping

import dask.config

SETTINGS: Mapping[str, object] = {
    # A task whose worker died would be run again on up to three more in silence.
    "distributed.scheduler.allowed-failures": 0,
    # A task whose worker left would wait for it for ever (dask/distributed#7346).
    "distributed.scheduler.no-workers-timeout": "60 s",
    "distributed.scheduler.worker-ttl": "5 minutes",
    # SpecCluster would forget a host whose worker is gone for 15 s, which is started again.
    "distributed.deploy.lost-worker-timeout": "1000 days",
    # Without a list the worker's profiler takes a stack each 10 ms while a task runs (dask/distributed#6490).
    "distributed.worker.profile.enabled": False,
    # Also the time after which the kernel gives up a connection that is silent (TCP_USER_TIMEOUT of tcp(7)).
    "distributed.comm.timeouts.tcp": "60 s",
    "distributed.comm.timeouts.connect": "30 s",
}


def settle() -> None:
    """Forget what files and the environment say, and set what is needed; before anything of Dask's is made.

    What happens to connections is told by bisector itself, so that Dask's own log, tracebacks included, stays silent.
    Whoever reaches a port can hold descriptors by handshakes that never go on: there are as many as the system allows.
    """
    dask.config.refresh(paths=[], env={})
    dask.config.set(SETTINGS)
    for name in ("distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
