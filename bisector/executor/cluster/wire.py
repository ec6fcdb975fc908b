"""What goes over Dask's connections beside tasks and their values, at both ends; and the task.

Messages are msgpack, so they are made of plain types here.
"""

import pickle
from collections.abc import Mapping
from typing import Any

from distributed import get_worker

from bisector.core.events import Event
from bisector.executor.duty import DutyFiles
from bisector.executor.hosts import Host
from bisector.executor.spec import Key, Spec
from bisector.executor.spool import Standing
from bisector.executor.watch import Declined, Desk, Returned
from bisector.fleet.versions import compared

TOPIC = "bisector"
INFORMATION = "bisector"  # of a worker, among what comes with its registration
RESOURCE = {"BENCH": 1}


def information(name: str, machine: str, desk: Desk) -> dict[str, Any]:
    """What a worker says of its host when it registers."""
    held = [[run, id_, str(standing)] for run, ids in desk.spool.held().items() for id_, standing in ids.items()]
    drained = DutyFiles(desk.spool).drained() is not None
    versions = [list(one) for one in compared()]
    return {"name": name, "machine": machine, "versions": versions, "held": held, "drained": drained}


def host_of(address: str, extra: Mapping[str, Any]) -> Host | None:
    """The host that a worker is on; None for a worker of somebody else's."""
    match extra.get(INFORMATION):
        case {"name": str(name), "machine": str(machine), "versions": [*pairs], "held": [*jobs], **more}:
            held = tuple((Key(run, id_), Standing(standing)) for run, id_, standing in jobs)
            versions = tuple((one, other) for one, other in pairs)
            return Host(address, name, machine, versions, held, more.get("drained") is True)
    return None


def watch(work: Spec | Key) -> Returned | Declined | None:
    """The task: what comes of a job on the host of the worker that runs it."""
    worker: Any = get_worker()
    key = work.key if isinstance(work, Spec) else work

    def tell(event: Event) -> None:
        worker.log_event(TOPIC, {"run": key.run, "id": key.id, "event": pickle.dumps(event)})

    desk: Desk = worker.desk
    return desk.watch(work, tell)
