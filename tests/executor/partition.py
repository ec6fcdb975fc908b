"""A coordinator and a host in network namespaces of their own, and a network between them that loses every packet.

``PLACE SECONDS``: cut for so long while a trial is under way; 0 is until the coordinator has missed the host and given
the trial up. What was heard is printed as JSON. It is run by ``unshare -Urn`` (unshare(1)), so by anybody who may have
user namespaces (namespaces(7), veth(4)); all that it makes ends with it.

A packet is lost as behind a switch that has forgotten who is where: each end sends to a MAC address that nobody has
(ip-neighbour(8)), so no interface goes down, no connection is refused, and no ICMP comes back. tc-netem(8) would do the
same, but not every kernel has it.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from bisector.core.deadline import Deadline
from bisector.core.errors import AttemptLost
from bisector.executor.base import Failed
from bisector.executor.cluster import dask_settings
from tests.executor import engines, fleet, worker_main
from tests.executor.engines import WAIT_S, let_go, plan, reached
from tests.executor.fleet import Fleet, emptied, job, last_news

# From 11 s on (distributed/comm/tcp.py: keepalive has 10 probes, and begins after 2 s or a quarter of it).
TIMEOUT_S = 12
HERE, THERE = "10.77.0.1", "10.77.0.2"
_NOBODY = "02:00:00:00:00:01"


class Network:
    """Two namespaces with a cable between them; the first one is this process's own."""

    def __init__(self, stack: ExitStack) -> None:
        other = stack.enter_context(subprocess.Popen(["unshare", "-n", "sleep", str(10 * WAIT_S)]))
        stack.callback(other.kill)
        self.within = ("nsenter", f"--net=/proc/{other.pid}/ns/net")
        own, its = Path("/proc/self/ns/net"), Path(f"/proc/{other.pid}/ns/net")
        Deadline("a namespace", WAIT_S).poll(lambda: None if own.readlink() == its.readlink() else True, 0.01)
        self._ip("link", "add", "coordinator", "type", "veth", "peer", "name", "bench")
        self._ip("link", "set", "bench", "netns", str(other.pid))
        for within, device, address in (((), "coordinator", HERE), (self.within, "bench", THERE)):
            self._ip("address", "add", f"{address}/24", "dev", device, within=within)
            for name in (device, "lo"):
                self._ip("link", "set", name, "up", within=within)

    def cut(self) -> None:
        """Lose every packet, in both directions."""
        self._neighbours("replace", "lladdr", _NOBODY, "nud", "permanent")

    def join(self) -> None:
        """Pass packets on again."""
        self._neighbours("delete")

    def _neighbours(self, verb: str, *words: str) -> None:
        self._ip("neighbour", verb, THERE, "dev", "coordinator", *words)
        self._ip("neighbour", verb, HERE, "dev", "bench", *words, within=self.within)

    @staticmethod
    def _ip(*words: str, within: tuple[str, ...] = ()) -> None:
        subprocess.run([*within, "ip", *words], check=True, timeout=WAIT_S)


def main(place: Path, seconds: float) -> None:
    settings = {"distributed.comm.timeouts.tcp": f"{TIMEOUT_S} s"}
    dask_settings.SETTINGS = {**dask_settings.SETTINGS, **settings}
    os.environ[worker_main.SETTINGS] = json.dumps(settings)
    heard, began_s = [], time.monotonic()
    with ExitStack() as stack:
        network = Network(stack)
        hosts = Fleet(place, stack, at=HERE)
        spool = hosts.spool("bench1")
        plan(spool, job_3=engines.MEASURED)
        worker = stack.enter_context(fleet.worker(hosts.coordinator.address, hosts.other, spool, within=network.within))
        executor = hosts.executor(patience_s=0.5)
        executor.submit(job(3))
        reached(spool, 3, engines.MEASURED)
        network.cut()
        if seconds:
            time.sleep(seconds)  # of the network, in which nothing can be waited for
            network.join()
        else:
            lost = last_news(executor)
            assert isinstance(lost, Failed)
            assert type(lost.error) is AttemptLost
            heard.append("lost")
            executor.acknowledge(3)
            worker.said("is lost; what runs goes on")
            network.join()
            executor.wait_for_hosts(1, WAIT_S)
        let_go(spool, 3, engines.MEASURED)
        news = last_news(executor)
        heard.append(f"{type(news).__name__} {news.id} of {news.host}")
        executor.acknowledge(3)
        emptied(spool)
        connections = worker.log.read_text().count("connected to")
    found = {"heard": heard, "runs": engines.runs(spool, 3), "connections": connections}
    sys.stdout.write(json.dumps({**found, "seconds": round(time.monotonic() - began_s)}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
