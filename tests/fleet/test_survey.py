"""All hosts at the same time, by a real sshd; a host's bisector is the real one, but for its doctor."""

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec.structs
import pytest

from bisector.cli import main
from bisector.core.errors import Finding, Grade, UserError
from bisector.fleet import authority, edit_hosts, on_host, ssh, survey
from bisector.fleet.authority import Authority, initialised
from bisector.fleet.documents import HostDescription, ShownCertificate
from bisector.fleet.home import FleetHome
from bisector.fleet.hosts import Host, Hosts
from bisector.host import systemd
from tests.docs.json_schema import valid
from tests.fleet.sshd import Sshd

BENCH = Host("bench1", "anna@bench1")
OURS = ShownCertificate(name="bench1", serial="1", until="2027-11-26T00:00:00+00:00", days_left=200, authority="us")


@pytest.mark.parametrize(
    ("changed", "state", "what"),
    [
        ({}, Grade.OK, "valid until 2027-11-26"),
        ({"days_left": 59}, Grade.WARN, "valid until 2027-11-26: 59 days"),
        ({"days_left": -1}, Grade.MISSING, "expired: valid until 2027-11-26"),
        ({"authority": "them"}, Grade.MISSING, "it is of another authority than this machine's"),
    ],
)
def test_certificates(changed: dict[str, object], state: Grade, what: str) -> None:
    found = survey.certificate(BENCH, msgspec.structs.replace(OURS, **changed), "us")
    assert (found.state, found.what) == (state, what)
    assert found.remedy == ("" if state is Grade.OK else "bisector fleet add anna@bench1")


def test_no_certificate() -> None:
    assert survey.certificate(BENCH, None, "us").state is Grade.MISSING


@pytest.mark.parametrize(
    ("there_s", "state", "what"),
    [
        (100.0, Grade.OK, "as here"),
        (98.1, Grade.OK, "as here"),
        (103.0, Grade.OK, "as here"),
        (97.0, Grade.WARN, "3 s behind this machine's"),
        (111.0, Grade.WARN, "10 s ahead of this machine's"),
    ],
)
def test_a_clock_is_read_between_two_moments(there_s: float, state: Grade, what: str) -> None:
    found = survey.clock(there_s, 100.0, 101.0)
    assert (found.state, found.what) == (state, what)


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostDescription:
    monkeypatch.setattr(systemd, "_RUNNING", tmp_path / "no")
    return on_host.describe(FleetHome(tmp_path / "there"))


@pytest.mark.parametrize(
    ("state", "linger", "grade", "what"),
    [
        ("active", True, Grade.OK, "its unit runs"),
        ("active", False, Grade.WARN, "it ends with its user's last login"),
        ("failed", True, Grade.WARN, "its unit is failed"),
        (None, True, Grade.WARN, "it has no unit"),
        (None, None, Grade.INFO, "no systemd: it is started by hand"),
    ],
)
def test_workers(
    described: HostDescription, *, state: str | None, linger: bool | None, grade: Grade, what: str
) -> None:
    found = survey.worker(BENCH, msgspec.structs.replace(described, worker=state, linger=linger))
    assert (found.state, found.what) == (grade, what)


def program(there: Path, name: str, doctor: str) -> str:
    """bisector of a host, in a home of its own, whose doctor is a script."""
    path = there / name
    path.write_text(
        f'#!/bin/sh\nexport XDG_DATA_HOME={there}/{name}.data\n[ "$1" != doctor ] || {{ {doctor}; }}\n'
        f'exec {sys.executable} -m bisector "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetHome:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    home = FleetHome.of_person()
    initialised(home)
    return home


@pytest.fixture
def certified(fleet: FleetHome, bench: Host, there: Path) -> Callable[..., Host]:
    """A host of this fleet, whose doctor is a script."""
    key = ssh.shown_key(bench)

    def certified(name: str, doctor: str) -> Host:
        host = Host(name, bench.ssh, bisector=program(there, name, doctor))
        ssh.pin(fleet, name, key)
        there_home = FleetHome(there / f"{name}.data" / "bisector" / "fleet")
        signer = Authority.open(fleet)
        signed = signer.sign(on_host.request(there_home, name).encode(), name)
        authority.install(there_home.worker, signed, signer.certificate)
        return host

    return certified


def says(*findings: Finding) -> str:
    document = {"schema": 1, "ready": True, "findings": [
        {"name": one.name, "state": one.state, "what": one.what, "remedy": one.remedy or None} for one in findings
    ]}  # fmt: skip
    return f"cat <<'END'\n{json.dumps(document)}\nEND\nexit 0"


def rows(found: survey.Surveyed) -> dict[str, tuple[Grade, str]]:
    return {one.name: (one.state, one.what) for one in found.findings}


def test_all_hosts_are_looked_at(certified: Callable[..., Host], fleet: FleetHome, there: Path, server: Sshd) -> None:
    asked = f'echo "$@" > {there}/asked; cat > {there}/given;'
    fine = certified("fine", asked + says(Finding("git", Grade.OK, "2.39\x1b[31m")))
    hosts = (
        replace(fine, ssd="/dev/disk/by-id/x"),
        certified("dies", "echo a traceback >&2; exit 70"),
        Host("gone", "127.0.0.1", 1),
        Host("strange", fine.ssh),
        Host("dials"),
    )
    ssh.pin(fleet, "gone", ssh.HostKey("ssh-ed25519", "QUJD"))
    told: list[str] = []
    found = survey.survey(fleet, Hosts(Path("hosts.toml"), None, hosts), {"storage.stack": "hdd+ext4"}, told.append)
    assert sorted(told) == sorted(one.host for one in found)
    by_name = {one.host: rows(one) for one in found}
    assert list(by_name) == ["fine", "dies", "gone", "strange", "dials"]
    assert list(by_name["fine"]) == ["ssh", "clock", "certificate", "worker", "versions", "git"]
    assert by_name["fine"]["git"] == (Grade.OK, "2.39")
    assert by_name["fine"]["certificate"][0] is Grade.OK
    assert by_name["dies"]["doctor"] == (Grade.MISSING, "dies: its doctor gave no answer: a traceback")
    assert by_name["gone"]["ssh"][1].startswith("gone cannot be reached: ")
    assert by_name["strange"] == {"ssh": (Grade.MISSING, "strange: its SSH key is not pinned")}
    assert by_name["dials"]["ssh"][0] is Grade.WARN
    assert (there / "asked").read_text() == "doctor --json --config /dev/stdin\n"
    assert (
        there / "given"
    ).read_text() == '[storage]\nstack = "hdd+ext4"\n\n[storage.ssd]\npath = "/dev/disk/by-id/x"\n'
    assert not survey.ready(found)
    assert survey.ready(found[:1])


def test_interrupted_it_does_not_wait_for_them(certified: Callable[..., Host], fleet: FleetHome) -> None:
    hosts = (certified("slow", "sleep 60"), Host("dials"))

    def interrupt(_name: str) -> None:
        threading.Event().wait(1)  # the slow one has begun
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        survey.survey(fleet, Hosts(Path("hosts.toml"), None, hosts), {}, interrupt)
    assert time.monotonic() - began < 10


def test_no_fleet(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no fleet yet"):
        survey.survey(FleetHome(tmp_path), Hosts(Path("hosts.toml"), None, ()), {}, lambda name: None)


def test_doctor_of_hosts(certified: Callable[..., Host], capsys: pytest.CaptureFixture[str]) -> None:
    listed = Path("hosts.toml")
    for name in ("one", "two"):
        host = certified(name, says(Finding("git", Grade.OK, "2.39"), Finding("host", Grade.OK, name)))
        edit_hosts.put(listed, host if name == "one" else replace(host, port=None, ssh=f"root@{host.ssh}"), "tls://d:1")
    assert main(["doctor", "--hosts", "hosts.toml"]) == 0
    seen = capsys.readouterr()
    lines = seen.out.splitlines()
    assert ["git", "ok", "all", "2", "2.39"] in [line.split() for line in lines]
    assert [line.split()[-1] for line in lines if line.split()[-1:] in (["one"], ["two"])] == ["one", "two"]
    assert lines[-2:] == ["one  `bisector start` can begin there", "two  `bisector start` can begin there"]
    assert "bisector: one: looked at\n" in seen.err
    assert main(["doctor", "--hosts", "hosts.toml", "--json"]) == 0
    document = valid("doctor --hosts", capsys.readouterr().out)
    assert (document["ready"], [one["name"] for one in document["hosts"]]) == (True, ["one", "two"])
    certified("two", says(Finding("flex", Grade.MISSING, "flex: not installed")))
    assert main(["doctor", "--hosts", "hosts.toml", "--json"]) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--run-dir", "x"), "--run-dir is a place on this machine"),
        ((), "hosts.toml lists no host"),
        (("--set", "storage.stack=none"), "storage.stack"),
    ],
)
def test_what_is_refused(
    fleet: FleetHome, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    Path("hosts.toml").write_text("[hosts.bench1]\n" if "--set" in words else "")
    assert main(["doctor", "--hosts", "hosts.toml", *words]) == 2
    assert said in capsys.readouterr().err
