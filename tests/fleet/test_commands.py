"""``bisector fleet`` as it is typed; the host is reached by a real sshd, and runs the real thing."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.fleet import extra, hosts
from bisector.fleet.extra import Extra, Source
from bisector.fleet.home import FleetHome
from bisector.fleet.hosts import Host
from tests.docs.json_schema import valid
from tests.fleet.sshd import Sshd
from tests.fleet.test_adding import DOCTOR

Typed = Callable[..., str]
CLONE = ("--repository", "/srv/linux")


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """What a command prints, on both streams; it ends with ``code``."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)

    def typed(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(words) == code
        seen = capsys.readouterr()
        assert "Traceback" not in seen.err
        return seen.out if "--json" in words else seen.err + seen.out

    return typed


@pytest.fixture
def program(there: Path) -> str:
    """bisector over there, but for its doctor, which would look at this machine."""
    (there / "doctor.json").write_text(DOCTOR)
    path = there / "bisector"
    doctor = f'[ "$1" != doctor ] || {{ cat {there}/doctor.json; exit 1; }}'
    path.write_text(f'#!/bin/sh\n{doctor}\nexec {sys.executable} -m bisector "$@"\n')
    path.chmod(0o755)
    shutil.rmtree(there / "DATA", ignore_errors=True)
    return str(path)


def test_init(typed: Typed, tmp_path: Path) -> None:
    first = typed("fleet", "init")
    assert first.count("made now, valid until") == 2
    assert f": {tmp_path}/data/bisector/fleet/coordinator\n" in first
    assert "whoever has a certificate of this authority can run programs on every machine of the fleet" in first
    assert "next: bisector fleet add USER@HOST" in first
    again = typed("fleet", "init")
    assert again.count("kept, valid until") == 2
    assert "next" not in again
    document = valid("fleet init", typed("fleet", "init", "--json"))
    assert (document["made"], document["renewed"], document["coordinator"]["days_left"]) == (False, False, 364)
    assert document["authority"]["authority"] == document["coordinator"]["authority"]
    document = valid("fleet init", typed("fleet", "init", "--new-authority", "--json"))
    assert (document["made"], document["renewed"]) == (True, True)


@pytest.mark.rare
def test_a_host_comes_and_goes(typed: Typed, program: str, server: Sshd, bench: Host, there: Path) -> None:
    words = ("fleet", "add", str(bench.ssh), "--bisector", program, "--coordinator", "tls://desk:8786", *CLONE)
    typed("fleet", "init")
    refused = typed(*words, code=2)
    assert f"the SSH key of bench1 (bench1.example) is {server.fingerprint} (ssh-ed25519)" in refused
    assert "nobody is here to accept that key" in refused
    said = typed(*words, "--yes", code=1)
    assert f"SSH key      {server.fingerprint}\ncertificate  until 20" in said
    assert "doctor       1 rows; `bisector start` would fail there\nflex  missing  flex: not installed\n" in said
    worker = there / "DATA" / "bisector" / "fleet" / "worker"
    assert (worker / "key.pem").stat().st_mode & 0o777 == 0o600
    assert hosts.load(Path("hosts.toml")).hosts == (
        Host("bench1", bench.ssh, repository="/srv/linux", bisector=program),
    )
    added = valid("fleet add", typed(*words, "--json", code=1))
    assert added["certificate"]["name"] == "bench1"
    assert added["start"].endswith(f"worker tls://desk:8786 --name bench1 --certificates {worker} --repo /srv/linux")
    forgotten = valid("fleet remove", typed("fleet", "remove", "bench1", "--forget", "--json"))
    assert len(forgotten["removed"]) == 3
    assert forgotten["certificate"] == added["certificate"]
    assert (worker / "key.pem").exists()
    typed(*words, "--yes", code=1)
    said = typed("fleet", "remove", "bench1")
    assert "its certificate stays valid until 20" in said
    assert "bisector fleet init --new-authority" in said
    assert not worker.exists()
    assert hosts.load(Path("hosts.toml")).hosts == ()
    assert "there is no host bench1" in typed("fleet", "remove", "bench1", code=2)


def test_a_person_answers(typed: Typed, bench: Host, monkeypatch: pytest.MonkeyPatch, server: Sshd) -> None:
    typed("fleet", "init")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer in ("", "y\n", "no\n"):
        monkeypatch.setattr("sys.stdin.readline", lambda answer=answer: answer, raising=False)
        before = server.logins()
        said = typed("fleet", "add", str(bench.ssh), "--coordinator", "tls://desk:8786", *CLONE, code=2)
        assert "Is it that machine? (yes/no)" in said
        assert "bench1 was not added" in said
        assert server.logins() == before
    assert not FleetHome.of_person().known_hosts.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "-oProxyCommand=x"), "fleet add has no flag -oProxyCommand"),
        (("add", "a b"), "cannot be the name of a host"),
        (("add", "anna@x;id", "--name", "x"), "anna@x;id: expected [USER@]HOST"),
        (("add", "x", "--port", "0"), "--port 0: expected a port"),
        (("add", "x", "--ssd", "sdb"), "--ssd sdb: expected a path on that host"),
        (("add", "x", "--coordinator", "desk"), "--coordinator desk: expected an address"),
        (("add", "x", "--name", "all"), "no host can be called all"),
        (("add", "x", "--coordinator", "tls://d:1"), "there is no fleet yet"),
        (("remove", "x"), "there is no host x"),
        (("on-host", "request", "../x"), "cannot be the name of a host"),
    ],
)
def test_what_is_refused(typed: Typed, words: tuple[str, ...], said: str) -> None:
    assert said in typed("fleet", *words, code=2)


def test_without_its_packages(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extra.NEEDED, Extra.FLEET, ("tomlkit", "no_such_package"))
    for words in (("fleet", "init"), ("fleet", "add", "x"), ("fleet", "remove", "x"), ("doctor", "--hosts", "x")):
        said = typed(*words, code=2)
        assert f"bisector {words[0]}" in said
        assert " needs what is not installed: no_such_package" in said
        assert re.search(r"-m pip install (--editable )?'/\S+\[fleet\]'", said)


def test_a_dashboard_without_its_packages(typed: Typed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(extra.NEEDED, Extra.DASHBOARD, ("no_such_package",))
    listed = tmp_path / "hosts.toml"
    listed.write_text('coordinator = "tls://desk:8786"\ndashboard = 8787\n')
    said = typed("start", "v1", "v2", "--hosts", str(listed), code=2)
    assert f"the dashboard of {listed} needs what is not installed: no_such_package" in said
    assert re.search(r"-m pip install (--editable )?'/\S+\[dashboard\]'", said)


@pytest.mark.parametrize(
    ("recorded", "here", "there"),
    [
        (
            '{"url": "file:///src/my%20tree", "dir_info": {"editable": true}}',
            "pip install --editable '/src/my tree[fleet]'",
            "pip wheel --no-deps '/src/my tree'; copy bisector-",
        ),
        (
            '{"url": "file:///src/tree", "dir_info": {}}',
            "pip install '/src/tree[fleet]'",
            "; then: ssh anna@b py -m pip",
        ),
        (
            '{"url": "https://a.example/t.git", "vcs_info": {"vcs": "git", "commit_id": "0123"}}',
            "pip install 'bisector[fleet] @ git+https://a.example/t.git@0123'",
            "ssh anna@b py -m pip install 'bisector[fleet] @ git+https://a.example/t.git@0123'",
        ),
        (
            '{"url": "https://a.example/bisector-1-py3-none-any.whl", "archive_info": {}}',
            "pip install 'bisector[fleet] @ https://a.example/bisector-1-py3-none-any.whl'",
            "ssh anna@b py -m pip install 'bisector[fleet] @ https://",
        ),
        (None, "pip install --editable '/checkout[fleet]'", "pip wheel --no-deps '/checkout'; copy bisector-"),
    ],
)
def test_what_is_installed_is_what_this_installation_came_from(
    recorded: str | None, here: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_file", lambda path: path == Path("/checkout/pyproject.toml"))
    source = Source.of(recorded, Path("/checkout"))
    assert source.install().endswith(f" -m {here}")
    assert there in source.install_there("anna@b", "py")


def test_of_an_index_it_is_the_version(tmp_path: Path) -> None:
    assert "pip install 'bisector[fleet]==" in Source.of(None, tmp_path).install()


def test_no_other_command_loads_its_packages() -> None:
    """What every command pays for, and what works without them."""
    script = "import json, sys; from bisector import cli; cli.parser(); print(json.dumps(list(sys.modules)))"
    seen = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not {"tomlkit", "distributed", "bisector.fleet.authority"} & set(json.loads(seen.stdout))


def test_a_coordinator_may_be_a_host_of_its_own_fleet(typed: Typed) -> None:
    """It is asked as a host while the command that asks changes the fleet."""
    typed("fleet", "init")
    with FleetHome.of_person().changing():
        assert typed("fleet", "on-host", "request", "desk").startswith("-----BEGIN CERTIFICATE REQUEST-----\n")
        assert "is changing the fleet" in typed("fleet", "init", code=2)
