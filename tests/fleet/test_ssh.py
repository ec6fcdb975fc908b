"""The way to a host, through a real sshd: who is there, what its doctor says, and what stands in the way."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.core.errors import Grade
from bisector.fleet.status import clock
from tests.fleet import engines
from tests.fleet.engines import MEASURED, WAIT_S
from tests.fleet.place import Place

pytestmark = pytest.mark.fleet


@pytest.fixture
def own(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place whose ssh this process has, too."""
    monkeypatch.setenv("PATH", f"{place.server.place}/bin{os.pathsep}{os.environ['PATH']}")
    return place


def test_who_is_there_what_it_does_and_who_is_not(own: Place, capfd: pytest.CaptureFixture[str]) -> None:
    engines.plan(own.host("bench1"), trial_3=MEASURED)
    child = own.start()
    own.reached(3)
    own.host("bench2")
    other = own.host("other") / "bisector"
    other.write_text("#!/bin/sh\necho bisector 0.1\n")
    with own.file.open("a") as file:
        file.write('[hosts.away]\nssh = "127.0.0.1"\nport = 9\n')
    assert main(["fleet", "status", "--hosts", str(own.file), "--json"]) == 1
    found = {one["name"]: one for one in json.loads(capfd.readouterr().out)["hosts"]}
    assert {name: one["state"] for name, one in found.items()} == {
        "bench1": "working",
        "bench2": "idle",
        "other": "refused",
        "away": "unreachable",
    }
    (job,) = found["bench1"]["told"]["jobs"]
    assert (job["n"], job["stage"], job["detail"]) == (3, "workload", "full run")
    assert job["sha"] in own.shas.values()
    assert found["other"]["trouble"].startswith("other has bisector 0.1, and here is bisector ")
    assert found["away"]["remedy"] == "ssh -p 9 127.0.0.1 true"
    engines.let_go(own.home / "bench1", 3, MEASURED)
    assert child.wait(WAIT_S) == 0
    assert main(["fleet", "status", "--hosts", str(own.file)]) == 1
    assert re.search(r"^bench1 +idle +none ", capfd.readouterr().out, re.MULTILINE)


def test_a_key_that_nobody_has_seen_yet_is_refused_with_what_shows_it(
    own: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    own.host("bench1")
    own.server.known_hosts.write_text("")
    try:
        assert main(["fleet", "status", "--hosts", str(own.file)]) == 1
    finally:
        own.server.know()
    said = capfd.readouterr().out
    assert "bench1: its SSH key is not the one of known_hosts, or unknown" in said
    assert "ssh bench1.example true" in said


def test_a_login_that_is_refused_says_how_it_is_let_in(own: Place, capfd: pytest.CaptureFixture[str]) -> None:
    own.host("bench1")
    keys = own.server.place / "authorized_keys"
    text = keys.read_text()
    keys.write_text("")
    try:
        assert main(["fleet", "status", "--hosts", str(own.file)]) == 1
    finally:
        keys.write_text(text)
    assert "ssh-copy-id bench1.example" in capfd.readouterr().out


def test_each_host_is_asked_for_its_doctor_with_the_settings_of_here_and_its_own_disks(
    own: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    program = own.host("bench1", 'ssd = "/dev/no-such-disk"') / "bisector"
    assert main(["doctor", "--hosts", str(own.file), "--json", "--stack", "ssd"]) == 1
    (host,) = json.loads(capfd.readouterr().out)["hosts"]
    rows = {row["name"]: row for row in host["findings"]}
    assert [rows[name]["state"] for name in ("ssh", "clock", "versions")] == ["ok"] * 3
    assert not host["ready"]
    assert any("/dev/no-such-disk" in row["what"] for row in host["findings"])
    text = program.read_text()
    program.write_text(text.replace("exec ", "echo Welcome\nexec ", 1))
    assert main(["doctor", "--hosts", str(own.file), "--json"]) == 1
    (host,) = json.loads(capfd.readouterr().out)["hosts"]
    assert "what its login shell prints stands before" in host["findings"][0]["what"]


@pytest.mark.parametrize(("there_s", "grade"), [(0.0, Grade.OK), (-3.0, Grade.WARN), (9.0, Grade.WARN)])
def test_a_clock_that_is_apart_is_a_warning(there_s: float, grade: Grade) -> None:
    now_s = time.time()
    assert clock(now_s + there_s, now_s, now_s + 1.0).state is grade


def test_with_packages_missing_it_is_said_what_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["start", "a", "b", "--repo", str(tmp_path), "--hosts", str(tmp_path / "hosts.toml")]) == 2
