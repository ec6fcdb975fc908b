"""On which host of a fleet the tips of a job are measured.

Figures of two hosts are not compared, so all tips of a job's history are measured on one: the one that measured the
last. It is remembered with the history, and nowhere else.
"""

from collections.abc import Callable

from bisector.campaign.equipment import Equipment
from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError
from bisector.fleet.hosts import Hosts, Role
from bisector.host.load import host_id

AWAY_S = 300.0  # as long as a worker's own patience: one that is started anew is back by then


def host_for(
    equipment: Equipment, listed: Hosts, last: str, say: Callable[[str], None], hear: Callable[[], object]
) -> str:
    """The host that measured the ``last`` tip, once it is idle; the first one that measures where there was none.

    One that is no host any more is not waited for: another one begins a new history, and that is said. Nor does one
    begin it that the file does not list, if it lists any: it would be no host the next time. What comes late of other
    jobs meanwhile is to ``hear``. Raises :class:`InfraError` for a host that is not there in time.
    """
    executor, builders = equipment.executor, equipment.crew.builders
    is_host, deadline = _is_host(listed, last), Deadline("the host of the last tip", AWAY_S)
    measuring = _measuring(listed)
    while not deadline.expired:
        idle = [name for name in executor.idle if name not in builders and name in (measuring or (name,))]
        if last in idle:
            return last
        if idle and not is_host:
            if last:
                say(f"the last tip was measured on {last}, which is no host any more: {idle[0]} begins a new history")
            return idle[0]
        if executor.wait(deadline.remaining_s):
            hear()
    if not is_host:
        raise InfraError("no host that measures is there", "bisector fleet status")
    raise InfraError(
        f"{last}, which measured the last tip, is not there; figures of two hosts are not compared",
        f"bisector fleet status; or take {last} out of {listed.path}: then another host begins a new history",
    )


def _is_host(listed: Hosts, name: str) -> bool:
    """Whether a machine may come; where the file lists none, any may but the one that measured here, before."""
    measuring = _measuring(listed)
    return name in measuring if measuring else name not in ("", host_id())


def _measuring(listed: Hosts) -> tuple[str, ...]:
    return tuple(one.name for one in listed.hosts if one.role is Role.MEASURE)
