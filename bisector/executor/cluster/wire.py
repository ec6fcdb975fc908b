"""What goes over Dask's connections beside tasks and their values, at both ends; and the task.

Messages are msgpack, so they are made of plain types here.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from distributed import get_worker

from bisector.core.errors import BisectorError, InfraError
from bisector.core.events import Event
from bisector.core.subject import Compiler
from bisector.executor.duty import DutyFiles
from bisector.executor.freight import Holding, Part, Receiver, Sealed
from bisector.executor.hosts import Host
from bisector.executor.spec import Key, Spec
from bisector.executor.spool import Standing
from bisector.executor.watch import Declined, Desk, Returned
from bisector.fleet.versions import compared
from bisector.host.detached import machine_id
from bisector.host.load import host_id

TOPIC = "bisector"
INFORMATION = "bisector"  # of a worker, among what comes with its registration
RESOURCE = {"BENCH": 1}
RECEIVE = "bisector_receive"  # a request to a worker, outside of tasks: their arguments are kept by the scheduler
_METHODS = frozenset(("holding", "first", "add", "unpack", "compilers", "kept", "keep", "seal", "fetch"))


def information(name: str, machine: str, desk: Desk) -> dict[str, Any]:
    """What a worker says of its host when it registers."""
    held = [[run, id_, str(standing)] for run, ids in desk.spool.held().items() for id_, standing in ids.items()]
    drained = DutyFiles(desk.spool).drained() is not None
    versions = [list(one) for one in compared()]
    whose = f"{machine_id()} {desk.spool.home}"
    return {
        "name": name, "machine": machine, "versions": versions, "held": held, "drained": drained, "whose": whose,
    }  # fmt: skip


def host_of(address: str, extra: Mapping[str, Any]) -> Host | None:
    """The host that a worker is on; None for a worker of somebody else's."""
    match extra.get(INFORMATION):
        case {"name": str(name), "machine": str(machine), "versions": [*pairs], "held": [*jobs], **more}:
            held = tuple((Key(run, id_), Standing(standing)) for run, id_, standing in jobs)
            versions = tuple((one, other) for one, other in pairs)
            return Host(address, name, machine, versions, held, more.get("drained") is True, str(more.get("whose", "")))
    return None


class RemoteReceiver:
    """A :class:`Receiver` that asks the one at the other end; ``ask`` sends a message and waits for the answer."""

    def __init__(self, ask: Callable[[bytes], bytes]) -> None:
        self._send = ask

    def _ask(self, method: str, *words: object) -> object:
        answer = pickle.loads(self._send(pickle.dumps((method, words))))  # noqa: S301 - as each task's value is
        if isinstance(answer, BisectorError):
            raise answer
        return answer

    def holding(self, run: str, sha: str) -> Holding:
        """As a receiver does."""
        return cast("Holding", self._ask("holding", run, sha))

    def first(self, shas: Sequence[str]) -> str:
        """As a receiver does."""
        return cast("str", self._ask("first", shas))

    def add(self, part: Part) -> int:
        """As a receiver does."""
        return cast("int", self._ask("add", part))

    def unpack(self, run: str, sha: str, sha256: str) -> str:
        """As a receiver does."""
        return cast("str", self._ask("unpack", run, sha, sha256))

    def compilers(self, commands: Sequence[str]) -> tuple[Compiler, ...]:
        """As a receiver does."""
        return cast("tuple[Compiler, ...]", self._ask("compilers", commands))

    def kept(self, key: str) -> str:
        """As a receiver does."""
        return cast("str", self._ask("kept", key))

    def keep(self, key: str, sha256: str) -> str:
        """As a receiver does."""
        return cast("str", self._ask("keep", key, sha256))

    def seal(self, key: str) -> Sealed | None:
        """As a receiver does."""
        return cast("Sealed | None", self._ask("seal", key))

    def fetch(self, sha256: str, offset: int) -> bytes:
        """As a receiver does."""
        return cast("bytes", self._ask("fetch", sha256, offset))


def answered(receiver: Receiver | None, message: bytes) -> bytes:
    """The answer of this host's receiver to a message of a :class:`RemoteReceiver`."""
    method, words = pickle.loads(message)  # noqa: S301 - as each task is
    try:
        if receiver is None or method not in _METHODS:
            raise InfraError(f"this host takes nothing in by {method!r}")  # noqa: TRY301 - it is an answer as well
        return pickle.dumps(getattr(receiver, method)(*words))
    except BisectorError as error:
        return pickle.dumps(error)
    except Exception as error:  # noqa: BLE001 - whoever asked would wait for ever
        return pickle.dumps(BisectorError(f"a bug in bisector on {host_id()}: {type(error).__name__}: {error}"))


def watch(work: Spec | Key) -> Returned | Declined | None:
    """The task: what comes of a job on the host of the worker that runs it."""
    worker: Any = get_worker()
    key = work.key if isinstance(work, Spec) else work

    def tell(event: Event) -> None:
        worker.log_event(TOPIC, {"run": key.run, "id": key.id, "event": pickle.dumps(event)})

    desk: Desk = worker.desk
    return desk.watch(work, tell)
