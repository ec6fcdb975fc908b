"""Whatever is killed, and whenever: each job ends once, is begun once at most, and nothing is left in the end."""

import os
import random
import signal
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bisector.core.errors import AttemptFailed
from bisector.core.trial import Trial
from bisector.executor.base import Failed, Finished
from bisector.executor.remote import RemoteExecutor
from bisector.executor.spec import Key
from bisector.executor.spool import Spool
from bisector.host import process
from bisector.host.load import host_id
from tests.executor import engines
from tests.executor.engines import WAIT_S, let_go, plan, reached
from tests.executor.fleet import COMMIT, Fleet, Proxy, WorkerProcess, emptied, job, last_news, start_worker

JOBS = 10
POINTS = (engines.BEGUN, engines.MEASURED, engines.KEPT)
MORTALS = ("worker", "job", "coordinator", "connection")


@dataclass
class Site:
    """A coordinator and one host, each of which may be killed and is started again."""

    hosts: Fleet
    spool: Path
    proxy: Proxy
    worker: WorkerProcess = field(init=False)
    executor: RemoteExecutor = field(init=False)

    def __post_init__(self) -> None:
        self.work()
        self.executor = self.hosts.executor()

    def work(self) -> None:
        self.worker = start_worker(self.proxy.address, self.hosts.other, self.spool, "bench1")
        self.hosts.stack.callback(self.worker.end)

    def kill(self, what: str, id_: int) -> None:
        match what:
            case "worker":
                self.worker.kill()
                self.work()
            case "job":
                runner = Spool(self.spool).entry(Key("run", id_)).runner()
                assert runner is not None
                with suppress(ProcessLookupError):
                    os.kill(runner.pid, signal.SIGKILL)
            case "coordinator":
                self.hosts.restart_coordinator()
                self.executor = self.hosts.executor(before=(id_,))
            case "connection":
                self.proxy.cut()

    def ends(self, id_: int, point: str, killed: list[str]) -> Finished | Failed:
        """What comes of a job that waits at a point until all that is to die is dead."""
        self.executor.submit(job(id_))
        reached(self.spool, id_, point)
        for what in killed:
            self.kill(what, id_)
        let_go(self.spool, id_, point)
        news = last_news(self.executor)
        with pytest.raises(ValueError, match="no job"):
            self.executor.next()
        self.executor.acknowledge(id_)
        self.executor.wait_for_hosts(1, WAIT_S)
        emptied(self.spool)
        return news


@pytest.mark.fleet
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.rare) for seed in (2, 3))])
def test_each_job_ends_once_whatever_is_killed(tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    points = {id_: drawn.choice(POINTS) for id_ in range(1, JOBS + 1)}
    with ExitStack() as stack:
        hosts = Fleet(tmp_path, stack)
        spool = hosts.spool("bench1")
        plan(spool, **{f"job_{id_}": point for id_, point in points.items()})
        site = Site(hosts, spool, stack.enter_context(Proxy(hosts.coordinator.address)))
        for id_, point in points.items():
            killed = drawn.sample(MORTALS, drawn.randint(1, 2))
            news = site.ends(id_, point, killed)
            assert news.id == id_
            if point == engines.KEPT or "job" not in killed:
                assert isinstance(news, Finished)
                assert isinstance(news.result, Trial)
                assert news.result.runs[-1].jobs[0].iops_mean == engines.figure(COMMIT.sha, host_id(), id_)
            else:
                assert isinstance(news, Failed)
                assert type(news.error) is AttemptFailed
        assert [engines.runs(spool, id_) for id_ in points] == [1] * JOBS
        assert not [path for path in process.marked() if path.is_relative_to(tmp_path)]
