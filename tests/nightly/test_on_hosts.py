"""``bisector nightly --hosts`` with workers as processes, and TLS."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.executor.spool import Spool
from bisector.nightly.job_history import JobHistory, TipResult, replay
from bisector.store.log import DATABASE
from bisector.store.nights import Measurement, NightRecord
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests.bisect.test_on_hosts import COUNT, CULPRIT, Place, place  # noqa: F401 - place is a fixture
from tests.executor import engines
from tests.executor.engines import WAIT_S
from tests.executor.fleet import ROOT
from tests.git import histories

pytestmark = pytest.mark.fleet


@dataclass
class Nights:
    """A branch that moves, and nights on the hosts of a place."""

    place: Place
    upstream: Path

    def push(self, tip: str) -> None:
        histories.git(self.upstream, "update-ref", "refs/heads/tested", self.place.shas[tip])

    def begun(self) -> "subprocess.Popen[str]":
        home = self.place.home
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        env |= {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("DATA", "STATE", "CACHE", "CONFIG")}
        words = ("nightly", "--config", str(home / "nightly.toml"), "--hosts", str(home / "hosts.toml"))
        command = [sys.executable, "-m", "bisector", *words]
        child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.place.stack.callback(child.wait, WAIT_S)
        self.place.stack.callback(child.kill)
        return child

    def night(self, code: int = 0) -> str:
        child = self.begun()
        said, _ = child.communicate(timeout=3 * WAIT_S)
        assert child.returncode == code, said
        return said

    def history(self) -> JobHistory:
        with NightRecord.open(self.place.home / "state" / "bisector" / "nightly" / DATABASE, readonly=True) as record:
            return replay(record.events())

    def hosts_of_tips(self) -> list[str]:
        measured = [one.measured for one in self.history().nights]
        return [one.host for one in measured if isinstance(one, Measurement)]


@pytest.fixture
def nights(place: Place) -> Nights:  # noqa: F811 - the fixture
    upstream = place.home / "upstream.git"
    histories.git(place.home, "clone", "-q", "--bare", str(place.home / "linux"), str(upstream))
    (place.home / "nightly.toml").write_text(
        f'[[job]]\nname = "cache"\nrepository = "{place.home}/linux"\nremote = "{upstream}"\nbranch = "tested"\n'
        'direction = "both"\n[job.settings.bisect]\npart = "whole"\n'  # trials that hosts make up have no logs
    )
    with (place.home / "hosts.toml").open("a") as file:
        file.write("[hosts.bench1]\n[hosts.bench2]\n")
    return Nights(place, upstream)


def test_tips_have_one_host_and_what_changed_is_bisected_on_all(nights: Nights) -> None:
    worker = nights.place.worker("bench1")
    nights.push("c2")
    nights.night()
    worker.kill()
    for name in ("bench2", "bench1"):
        nights.place.worker(name)
    nights.push("c3")
    nights.night()
    nights.push(f"c{COUNT - 1}")
    assert "cache: report: draft " in nights.night()
    assert nights.hosts_of_tips() == ["bench1"] * 3
    assert [one.result for one in nights.history().nights] == [TipResult.FIRST, TipResult.SAME, TipResult.FASTER]
    (concluded,) = (one for night in nights.history().nights for one in night.concluded)
    assert concluded.first_sha == nights.place.shas[CULPRIT]
    with Store.open(RunDirectory(concluded.run_dir).database, readonly=True) as store:
        assert {trial.host for _, trial in store.trials()} == {"bench1", "bench2"}


@pytest.mark.parametrize("signum", [pytest.param(signal.SIGINT, marks=pytest.mark.rare), signal.SIGKILL])
def test_a_tip_under_way_when_its_night_ends_goes_on_and_is_heard_by_the_next_one(
    nights: Nights, signum: signal.Signals
) -> None:
    spool = nights.place.spool("bench1")
    engines.plan(spool, job_1=engines.MEASURED)
    nights.place.worker("bench1")
    nights.push("c2")
    child = nights.begun()
    engines.reached(spool, 1, engines.MEASURED)
    child.send_signal(signum)
    child.communicate(timeout=WAIT_S)
    engines.let_go(spool, 1, engines.MEASURED)
    nights.night()
    assert nights.hosts_of_tips() == ["bench1"]
    assert [engines.runs(spool, id_) for id_ in (1, 2)] == [1, 0]
    Deadline("an empty spool", WAIT_S).poll(lambda: not Spool(spool).held() or None)
