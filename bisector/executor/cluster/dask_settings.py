"""How Dask is to behave here, whatever a person's own configuration of it says; the owner of ``dask``.

The keys are those of distributed's ``distributed.yaml``. Its defaults are made for many short tasks that may run again
anywhere; ours is one that runs for an hour, alone on a host that is to be quiet, and never a second time.
"""

import logging
import sys
from collections.abc import Mapping

import dask.config

SETTINGS: Mapping[str, object] = {
    # A task whose worker died would be run again on up to three more in silence.
    "distributed.scheduler.allowed-failures": 0,
    # A task whose worker left would wait for it for ever (dask/distributed#7346).
    "distributed.scheduler.no-workers-timeout": "60 s",
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-ttl": "10 minutes",
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.http.routes": ["distributed.http.health"],
    # Without a list the worker's profiler takes a stack each 10 ms while a task runs (dask/distributed#6490).
    "distributed.worker.profile.enabled": False,
    "distributed.worker.http.routes": ["distributed.http.health"],
    # Also the time after which the kernel gives up a connection that is silent (TCP_USER_TIMEOUT of tcp(7)).
    "distributed.comm.timeouts.tcp": "5 minutes",
    "distributed.comm.timeouts.connect": "30 s",
    "distributed.admin.tick.interval": "1 s",
    "distributed.admin.tick.limit": "30 s",
    "distributed.admin.system-monitor.interval": "10 s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
}

# A connection's loop has to wait for as long as another thread computes: 5 ms (sys.setswitchinterval()) is a tenth of
# what a trial costs beside itself.
_SWITCH_S = 0.0005


def settle() -> None:
    """Forget what files and the environment say, and set what is needed; before anything of Dask's is made.

    What happens to connections is told by bisector itself, so that Dask's own log, tracebacks included, stays silent.
    """
    dask.config.refresh(paths=[], env={})
    dask.config.set(SETTINGS)
    sys.setswitchinterval(_SWITCH_S)
    for name in ("distributed", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
