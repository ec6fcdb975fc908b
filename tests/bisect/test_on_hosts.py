"""``bisector start --hosts``: a coordinator and workers as processes, with TLS, killed at any moment."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bisector.analysis.verdicts import host_of
from bisector.config.options import CONFIG_FILE
from bisector.core.deadline import Deadline
from bisector.executor.spool import Spool
from bisector.store.facts import Ended, Ending
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests.executor import engines, fleet
from tests.executor.engines import WAIT_S
from tests.executor.fleet import ROOT, Authority, WorkerProcess
from tests.git import histories

pytestmark = pytest.mark.fleet

COUNT, CULPRIT = 33, "c21"
# By so many times the figures of one host are as large as those of another.
HOSTS = {"bench1": 1.0, "bench2": 2.0, "bench3": 0.3}


@dataclass
class Place:
    """A person's clone and fleet, and hosts, which are directories."""

    home: Path
    stack: ExitStack
    authority: Authority = field(default_factory=Authority.new)

    def __post_init__(self) -> None:
        nodes = histories.linear(COUNT)
        self.shas = histories.build(self.home / "linux", nodes)
        above = histories.ancestors(nodes)
        self.new = [self.shas[name] for name, those in above.items() if CULPRIT in those]
        self.authority.certify(self.home / "data" / "bisector" / "fleet" / "coordinator")
        self.of_hosts = self.authority.certify(self.home / "of-hosts")
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.address = f"tls://127.0.0.1:{server.getsockname()[1]}"
        (self.home / "hosts.toml").write_text(f'coordinator = "{self.address}"\n')
        settings = self.home / "config/bisector" / CONFIG_FILE
        settings.parent.mkdir(parents=True)
        settings.write_text('[bisect]\npart = "whole"\n')  # the trials that its hosts make up have no logs
        self.run = RunDirectory(self.home / "run")
        self.log = self.home / "log"

    def spool(self, name: str) -> Path:
        return self.home / name / "spool"

    def worker(self, name: str, engine: str = engines.SEARCHED) -> WorkerProcess:
        engines.truth(self.spool(name), self.shas[CULPRIT], self.new, HOSTS.get(name, 1.0))
        started = fleet.worker(self.address, self.of_hosts, self.spool(name), name, engine)
        return self.stack.enter_context(started)

    def coordinator(self, *words: str) -> "subprocess.Popen[bytes]":
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        env |= {f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("DATA", "STATE", "CACHE", "CONFIG")}
        command = [sys.executable, "-m", "bisector", *words, "--run-dir", str(self.run.path)]
        with self.log.open("ab") as file:
            child = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=env)
        self.stack.callback(child.wait, WAIT_S)
        self.stack.callback(child.kill)
        return child

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        ends = (self.shas["c0"], self.shas[f"c{COUNT - 1}"])
        hosts = ("--hosts", str(self.home / "hosts.toml"))
        return self.coordinator("start", *ends, "--repo", str(self.home / "linux"), *hosts, *words)

    def resume(self) -> "subprocess.Popen[bytes]":
        """It remembers its hosts."""
        return self.coordinator("resume")

    def check_found(self) -> None:
        """The answer is right, and each trial is on record once, as its host measured it."""
        said = self.log.read_text()
        assert f"{self.shas[CULPRIT][:12]} is the first fixed commit" in said, said
        assert "Traceback" not in said
        with Store.open(self.run.database, readonly=True) as store:
            assert not store.in_flight()
            trials = store.trials()
        assert len({n for n, _ in trials}) == len(trials)
        for _, trial in trials:
            for artifact in trial.artifacts:
                assert (self.run.path / artifact.path).stat().st_size == artifact.size_bytes
        self.hosts = {host_of(trial) for _, trial in trials}
        spools = [Spool(self.spool(name)) for name in HOSTS if self.spool(name).exists()]
        Deadline("empty spools", WAIT_S).poll(lambda: True if not any(one.held() for one in spools) else None)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(tmp_path, stack)


def ended(child: "subprocess.Popen[bytes]", log: Path) -> None:
    code = child.wait(3 * WAIT_S)
    assert code == 0, log.read_text()


def test_three_hosts_with_levels_of_their_own_find_it(place: Place) -> None:
    for name in HOSTS:
        place.worker(name)
    ended(place.start(), place.log)
    place.check_found()
    assert place.hosts == set(HOSTS)


def test_a_coordinator_that_is_killed_hears_what_its_hosts_have_measured_meanwhile(place: Place) -> None:
    for name in ("bench1", "bench2"):
        engines.plan(place.spool(name), **{f"job_{id_}": engines.MEASURED for id_ in (5, 6)})
        place.worker(name)
    child = place.start()
    for id_ in (5, 6):
        some_reached(place, id_)
    child.send_signal(signal.SIGKILL)
    child.wait(WAIT_S)
    for name in ("bench1", "bench2"):
        for id_ in (5, 6):
            engines.let_go(place.spool(name), id_, engines.MEASURED)
    ended(place.resume(), place.log)
    place.check_found()
    for id_ in (5, 6):
        assert sum(engines.runs(place.spool(name), id_) for name in ("bench1", "bench2")) == 1


def test_a_worker_that_is_killed_costs_nothing(place: Place) -> None:
    for name in ("bench1", "bench2"):
        engines.plan(place.spool(name), job_5=engines.MEASURED)
    workers = {name: place.worker(name) for name in ("bench1", "bench2")}
    child = place.start()
    where = some_reached(place, 5)
    workers[where].kill()
    place.worker(where)
    engines.let_go(place.spool(where), 5, engines.MEASURED)
    ended(child, place.log)
    place.check_found()
    assert engines.runs(place.spool(where), 5) == 1


@pytest.mark.rare
def test_a_dashboard_is_there_while_a_run_lasts(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with (place.home / "hosts.toml").open("a") as file:
        file.write(f"dashboard = {port}\n")
    engines.plan(place.spool("bench1"), job_3=engines.MEASURED)
    place.worker("bench1")
    child = place.start()
    engines.reached(place.spool("bench1"), 3, engines.MEASURED)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=WAIT_S) as answer:
        assert b"Dask" in answer.read()
    engines.let_go(place.spool("bench1"), 3, engines.MEASURED)
    ended(child, place.log)
    place.check_found()


def test_a_host_that_joins_later_measures_its_ends_and_helps(place: Place) -> None:
    engines.plan(place.spool("bench1"), job_4=engines.MEASURED)
    place.worker("bench1")
    child = place.start()
    some_reached(place, 4)
    place.worker("bench2")
    Deadline("the ends of the second host", WAIT_S).poll(
        lambda: True if sum(engines.runs(place.spool("bench2"), id_) for id_ in range(30)) >= len("ab") else None
    )
    engines.let_go(place.spool("bench1"), 4, engines.MEASURED)
    ended(child, place.log)
    place.check_found()
    assert place.hosts == {"bench1", "bench2"}


# A host that only builds

AHEAD = range(3, 40)  # the jobs after two, with which it may be that both ends are built
SEARCHING = range(8, 40)  # the jobs after two builds and two trials of each end on two hosts, all but the first


@pytest.fixture
def shop(place: Place) -> Place:
    """Two hosts that measure, and stop at their next trial; a third one that builds."""
    with (place.home / "hosts.toml").open("a") as file:
        file.write('[hosts.bench1]\n[hosts.bench2]\n[hosts.builder]\nrole = "build"\n')
    for name in ("bench1", "bench2"):
        engines.plan(place.spool(name), **{f"job_{id_}": engines.MEASURED for id_ in SEARCHING})
    return place


def go_on(place: Place) -> None:
    for name in ("bench1", "bench2"):
        for id_ in SEARCHING:
            engines.let_go(place.spool(name), id_, engines.MEASURED)


def check_built_once(place: Place) -> None:
    """But for what was broken off while it was built."""
    with Store.open(place.run.database, readonly=True) as store:
        broken_off = {one.submission for one in store.facts(Ended) if one.ending is Ending.CANCELLED}
    built = [engines.builds(place.spool(name)) for name in ("bench1", "bench2", "builder")]
    shas = Counter(sha for one in built for id_, sha in one.items() if id_ not in broken_off)
    assert {place.shas["c0"], place.shas[f"c{COUNT - 1}"], place.shas[CULPRIT]} <= set(shas)
    assert set(shas.values()) == {1}, built


def test_a_build_host_builds_ahead_and_each_kernel_is_built_once(shop: Place) -> None:
    for name in ("builder", "bench1", "bench2"):
        shop.worker(name, engines.SHARING)
    child = shop.start()
    ends = {shop.shas["c0"], shop.shas[f"c{COUNT - 1}"]}
    Deadline("a kernel ahead", WAIT_S).poll(
        lambda: True if set(engines.builds(shop.spool("builder")).values()) - ends else None
    )
    go_on(shop)
    ended(child, shop.log)
    shop.check_found()
    assert shop.hosts == {"bench1", "bench2"}
    check_built_once(shop)
    with Store.open(shop.run.database, readonly=True) as store:
        measured = {trial.commit.sha for _, trial in store.trials()}
    assert measured & set(engines.builds(shop.spool("builder")).values()) - ends


@pytest.mark.rare
def test_a_build_host_that_dies_for_good_delays_nothing(shop: Place) -> None:
    engines.plan(shop.spool("builder"), **{f"job_{id_}": engines.BUILDING for id_ in SEARCHING})
    for name in ("bench1", "bench2"):
        shop.worker(name, engines.SHARING)
    child = shop.start()
    Deadline("a trial between the ends", WAIT_S).poll(
        lambda: next((True for id_ in SEARCHING for name in HOSTS if engines.runs(shop.spool(name), id_)), None)
    )
    builder = shop.worker("builder", engines.SHARING)
    Deadline("a build", WAIT_S).poll(lambda: engines.builds(shop.spool("builder")) or None)
    builder.end()
    go_on(shop)
    ended(child, shop.log)
    shop.check_found()
    assert shop.hosts == {"bench1", "bench2"}
    assert len(engines.builds(shop.spool("builder"))) == 1


@pytest.mark.rare
def test_a_coordinator_that_is_killed_goes_on_with_what_is_being_built(shop: Place) -> None:
    engines.plan(shop.spool("builder"), **{f"job_{id_}": engines.BUILDING for id_ in AHEAD})
    for name in ("bench1", "bench2", "builder"):
        shop.worker(name, engines.SHARING)
    child = shop.start()
    id_ = Deadline("a build", WAIT_S).poll(
        lambda: next((one for one in AHEAD if (shop.spool("builder") / f"{one}-{engines.BUILDING}").exists()), None)
    )
    child.send_signal(signal.SIGKILL)
    child.wait(WAIT_S)
    for one in AHEAD:
        engines.let_go(shop.spool("builder"), one, engines.BUILDING)
    go_on(shop)
    ended(shop.resume(), shop.log)
    shop.check_found()
    assert list(engines.builds(shop.spool("builder")).values()).count(engines.builds(shop.spool("builder"))[id_]) == 1


def test_where_all_hosts_only_build_nobody_would_measure(place: Place) -> None:
    with (place.home / "hosts.toml").open("a") as file:
        file.write('[hosts.builder]\nrole = "build"\n')
    assert place.start().wait(WAIT_S) == 2
    assert "hosts.toml only build: nobody would measure" in place.log.read_text()


def some_reached(place: Place, id_: int) -> str:
    """The host on which a job has come to its point."""

    def there() -> str | None:
        return next((name for name in HOSTS if (place.spool(name) / f"{id_}-{engines.MEASURED}").exists()), None)

    return Deadline(f"job {id_}", WAIT_S).poll(there, 0.02)
