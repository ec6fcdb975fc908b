"""The coordinator's side of a fleet, over a Dask client that is made up: which workers it uses, and what ends a job."""

import queue
import resource
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from distributed import KilledWorker
from distributed.comm.core import CommClosedError
from distributed.scheduler import NoValidWorkerError

from bisector.campaign.on_hosts import on_hosts
from bisector.config import options
from bisector.core import resources
from bisector.core.errors import InfraError
from bisector.core.events import Event, Note
from bisector.core.trial import AttemptFailed
from bisector.executor.base import BuildRequest, Failed, Finished, Job
from bisector.fleet import cluster, spec
from bisector.fleet import job as on_host
from bisector.fleet.executor import FleetExecutor
from bisector.fleet.hosts import Host, Hosts
from bisector.fleet.job import RESOURCE, Found, Introduction, Returned
from bisector.fleet.spec import Spec
from bisector.git import transfer
from bisector.host.files import scratch
from bisector.kernel.cache import KernelCache
from bisector.store.rundir import RunDirectory, jobs_home
from bisector.store.store import Store
from tests import fakes
from tests.examples import commit
from tests.store import examples as store_examples

WITHIN_S = 30.0


def machine(name: str, of: str = "") -> Introduction:
    return Introduction(name, of or f"machine of {name}", spec.own_versions())


@dataclass
class Client:
    """The workers of a cluster by address, and what their jobs come to."""

    workers: Mapping[str, Introduction]
    does: Callable[[str], object] = lambda address: None
    resources: Mapping[str, float] = field(default_factory=lambda: {RESOURCE: 1})
    given: list[str] = field(default_factory=list)

    def subscribe_topic(self, topic: str, handler: object) -> None: ...

    @property
    def scheduler(self) -> "Client":
        return self

    def sync(self, function: Callable[..., object], **words: int) -> object:
        return function(**words)

    def identity(self, n_workers: int) -> Mapping[str, Mapping[str, Any]]:
        return {"workers": {address: {"resources": self.resources} for address in self.workers}}

    def run(self, function: object, *, workers: list[str]) -> Mapping[str, Introduction]:
        assert function is on_host.introduce
        return {workers[0]: self.workers[workers[0]]}

    def submit(self, function: object, *words: Any, workers: list[str], **_: object) -> "Future":
        return Future(self, function, words[0], workers[0])


@dataclass
class Future:
    client: Client
    function: object
    word: Any
    address: str

    def result(self) -> object:
        if self.function is on_host.find:
            return Found((fakes.GCC,), "", True, (), "")
        assert isinstance(self.word, Spec)
        self.client.given.append(self.address)
        self.client.does(self.address)
        return Returned(Finished(self.word.key.id, "there", None, "now"))

    def release(self) -> None: ...


@dataclass
class Bench:
    """An executor over such workers, and what it tells."""

    client: Client
    place: Path
    told: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        hosts = tuple(Host(name=name, ssh=name) for name in {one.name for one in self.client.workers.values()})
        self.executor = FleetExecutor(
            cast("Any", self.client),
            Hosts(self.place / "hosts.toml", hosts),
            "run",
            self.place,
            options.load(directory=Path("/")).settings,
            cast("Any", None),  # each host has the commit
            KernelCache(self.place / "kernels", 1 << 30),
            self.place,
            lambda: (fakes.GCC,),
            self.told.append,
            queue.SimpleQueue(),
        )
        while len(self.executor._workers) < len(self.client.workers) or not self.looked:
            self.executor.wait(0.01)

    @property
    def looked(self) -> bool:
        """Whether each worker is used, or has been told of."""
        return len(self.notes) == len(self.client.workers)

    @property
    def notes(self) -> list[str]:
        return [one.text for one in self.told if isinstance(one, Note)]

    def end(self, id_: int, host: str) -> Finished | Failed:
        self.executor.submit(Job(id_, BuildRequest(commit(id_), fakes.GCC)), host)
        news = self.executor.next()
        assert isinstance(news, Finished | Failed)
        return news


@pytest.fixture(autouse=True)
def _no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "ancestors", lambda repository, sha: ())


def raising(error: Exception) -> Callable[[str], object]:
    def does(address: str) -> object:
        raise error

    return does


@pytest.mark.parametrize(
    "error",
    [
        KilledWorker("job", cast("Any", None), 0),
        NoValidWorkerError("job", set(), set(), {}, 60.0),
        CommClosedError("closed"),
        OSError("Timed out trying to connect"),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_worker_that_is_gone_costs_an_attempt(tmp_path: Path, error: Exception) -> None:
    news = Bench(Client({"a": machine("one")}, raising(error)), tmp_path).end(1, "one")
    assert isinstance(news, Failed)
    assert isinstance(news.error, AttemptFailed)
    assert news.error.message == f"the worker of one, or the connection to it, has ended ({type(error).__name__})"


def test_a_bug_is_raised_and_no_attempt(tmp_path: Path) -> None:
    bench = Bench(Client({"a": machine("one")}, raising(ZeroDivisionError())), tmp_path)
    with pytest.raises(ZeroDivisionError):
        bench.end(1, "one")


def test_two_machines_under_one_name_are_not_one_host(tmp_path: Path) -> None:
    """Figures are compared by the name of their host."""
    client = Client({"a": machine("one", "first"), "b": machine("one", "second")})
    bench = Bench(client, tmp_path)
    assert "one is not used: another machine has that name, too; give it a name of its own" in bench.notes
    assert bench.executor.idle == ("one",)
    for id_ in range(1, 4):
        bench.end(id_, "one")
    assert len(set(client.given)) == 1


def test_one_machine_under_two_names_is_one_host(tmp_path: Path) -> None:
    bench = Bench(Client({"a": machine("one", "box"), "b": machine("two", "box")}), tmp_path)
    assert len(bench.executor.idle) == 1
    assert any("is not used: it is the same machine as" in text for text in bench.notes)


def test_another_bisector_is_refused_and_so_is_a_worker_without_the_resource(tmp_path: Path) -> None:
    other = replace(machine("one"), versions=spec.Versions(**{**_fields(), "bisector": "0.1"}))
    assert Bench(Client({"a": other}), tmp_path).notes[0].startswith("one is not used: bisector is 0.1 there")
    (said,) = Bench(Client({"a": machine("one")}, resources={}), tmp_path).notes
    assert said == "the worker at a is not used: it was not started with --resources trial=1"


def _fields() -> dict[str, str]:
    return {name: getattr(spec.own_versions(), name) for name in spec.Versions.__struct_fields__}


def test_hosts_that_do_not_take_what_they_are_sent_stop_no_other(tmp_path: Path) -> None:
    taken = threading.Event()
    names = [f"slow{number}" for number in range(8)]

    def does(address: str) -> object:
        return None if address == "quick" else taken.wait(WITHIN_S)

    bench = Bench(Client({name: machine(name) for name in (*names, "quick")}, does), tmp_path)
    for id_, name in enumerate(names, 2):
        bench.executor.submit(Job(id_, BuildRequest(commit(id_), fakes.GCC)), name)
    try:
        assert bench.end(1, "quick").id == 1
    finally:
        taken.set()


def test_what_a_killed_coordinator_had_on_its_way_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = RunDirectory(tmp_path / "run")
    left = []
    for parent in (resources.cache_home(), run.path):
        parent.mkdir(parents=True)
        with scratch("sent", parent) as path:
            left.append(path)
        path.mkdir()
    Store.create(run.database, store_examples.bisection()).close()

    def nobody(hosts: Hosts, tell: object) -> None:
        raise InfraError("no Dask scheduler answers")

    monkeypatch.setattr(cluster, "client_of", nobody)
    equip = on_hosts(Hosts(tmp_path / "hosts.toml", (Host(name="one", ssh="one"),)))
    settings = options.load(directory=Path("/")).settings
    with pytest.raises(InfraError), equip(settings, run.path, cast("Any", None), lambda event: None):
        pass
    assert not any(path.exists() for path in left)


def test_a_coordinator_and_its_workers_may_have_as_many_descriptors_as_the_system_allows() -> None:
    """Whoever reaches the port holds some by handshakes that never go on."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, most - 1), most))
    cluster.settle()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)


def test_hosts_that_share_a_home_have_a_place_for_jobs_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of files may be known to one host alone (NFS): each would remove what another one is at."""
    places = set()
    for name in ("node1", "node2"):
        monkeypatch.setattr("platform.node", lambda name=name: name)
        places.add(jobs_home())
    assert len(places) == 2
