"""``bisector nightly --hosts`` with workers as processes."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.nightly.job_history import JobHistory, TipResult, replay
from bisector.store.log import DATABASE
from bisector.store.nights import Measurement, NightRecord
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests.fleet import engines
from tests.fleet.conftest import place, server  # noqa: F401 - fixtures
from tests.fleet.engines import MEASURED, WAIT_S
from tests.fleet.place import CULPRIT, NEW, Place
from tests.git import histories

pytestmark = pytest.mark.fleet


@dataclass
class Nights:
    """A branch that moves, and nights on the hosts of a place."""

    place: Place
    upstream: Path

    def push(self, tip: str) -> None:
        histories.git(self.upstream, "update-ref", "refs/heads/tested", self.place.shas[tip])

    def begun(self) -> "subprocess.Popen[bytes]":
        words = ("nightly", "--config", str(self.place.home / "nightly.toml"), "--hosts", str(self.place.file))
        return self.place.bisector(*words)

    def night(self, code: int = 0) -> str:
        return self.place.ended(self.begun(), code)

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
    return Nights(place, upstream)


def test_tips_have_one_host_and_what_changed_is_bisected_on_all(nights: Nights) -> None:
    nights.place.host("bench1")
    nights.push("c0")
    nights.night()
    nights.place.host("bench2")
    nights.push("c1")
    nights.night()
    nights.push(NEW)
    nights.night()
    assert nights.hosts_of_tips() == ["bench1"] * 3
    assert [one.result for one in nights.history().nights] == [TipResult.FIRST, TipResult.SAME, TipResult.FASTER]
    (concluded,) = (one for night in nights.history().nights for one in night.concluded)
    assert concluded.first_sha == nights.place.shas[CULPRIT]
    with Store.open(RunDirectory(concluded.run_dir).database, readonly=True) as store:
        assert {trial.host for _, trial in store.trials()} == {"bench1", "bench2"}


def test_a_tip_under_way_when_its_night_is_killed_is_measured_by_the_next_one(nights: Nights) -> None:
    host = nights.place.host("bench1")
    engines.plan(host, trial_1=MEASURED)
    nights.push("c2")
    child = nights.begun()
    nights.place.reached(1)
    child.kill()
    child.wait(WAIT_S)
    nights.place.check_nothing_runs()
    nights.night()
    assert nights.hosts_of_tips() == ["bench1"]
    assert engines.runs(host, 1) == 2
