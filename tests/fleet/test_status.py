"""``bisector fleet status``, ``drain`` and ``release`` as they are typed; hosts are reached by a real sshd."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bisector.cli import main
from bisector.executor.duty import DutyFiles
from bisector.executor.spool import Spool
from bisector.fleet import edit_hosts, ssh
from bisector.fleet.home import FleetHome
from bisector.fleet.hosts import Host
from tests.docs.json_schema import valid
from tests.executor.test_duty import duty

Typed = Callable[..., str]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """What a command prints, on both streams; it ends with ``code``."""
    for kind in ("DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    monkeypatch.chdir(tmp_path)

    def typed(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(("fleet", *words)) == code
        seen = capsys.readouterr()
        assert "Traceback" not in seen.err
        return seen.out if "--json" in words else seen.err + seen.out

    return typed


@pytest.fixture
def spool(there: Path) -> Spool:
    """That of the host, which keeps nothing of the test before."""
    home = there / "STATE" / "bisector" / "spool"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    return Spool(home)


@pytest.fixture
def listed(bench: Host, spool: Spool, typed: Typed) -> Path:
    """The host is in hosts.toml, and its key is pinned."""
    path = Path("hosts.toml")
    edit_hosts.put(path, bench, "tls://desk:8786")
    ssh.pin(FleetHome.of_person(), bench.name, ssh.shown_key(bench))
    return path


def rows(printed: str) -> dict[str, Any]:
    return {host["name"]: host for host in valid("fleet status", printed)["hosts"]}


def test_each_host_is_asked_whether_or_not_anybody_coordinates(typed: Typed, listed: Path, spool: Spool) -> None:
    edit_hosts.put(listed, Host("dials"), "")
    edit_hosts.put(listed, Host("gone", "127.0.0.1", 1), "")
    issued = FleetHome.of_person().issued("stranger")
    issued.parent.mkdir()
    issued.touch()
    DutyFiles(spool).drain("a new \x1b[31mSSD")
    with spool.owned():
        DutyFiles(spool).report(duty())
        found = rows(typed("status", "--json", code=1))
        said = typed("status", code=1)
    assert {name: host["state"] for name, host in found.items()} == {
        "bench1": "idle",
        "dials": "dials-in",
        "gone": "unreachable",
        "stranger": "unlisted",
    }
    bench = found["bench1"]["standing"]
    assert (bench["worker"]["coordinator"], bench["worker"]["link"]) == ("tls://desk:8786", "connected")
    assert (bench["drained"]["reason"], bench["spool"], bench["running"]) == ("a new SSD", str(spool.home), [])
    assert found["dials"]["remedy"] == "there: bisector fleet status --here"
    assert found["gone"]["trouble"] == "gone: its SSH key is not pinned"
    assert [line.split()[:2] for line in said.splitlines() if line[:1].strip()] == [
        ["host", "does"],
        ["bench1", "idle,"],
        ["dials", "dials"],
        ["gone", "unreachable"],
        ["stranger", "unlisted"],
    ]
    assert "a new SSD\n" in said
    assert "bisector fleet release bench1\n" in said


def test_a_host_without_a_worker(typed: Typed, listed: Path) -> None:
    host = rows(typed("status", "--json"))["bench1"]
    assert (host["state"], host["trouble"]) == ("no-worker", "no worker runs there")
    assert host["remedy"].startswith("ssh bench1.example systemctl --user start bisector-worker; without systemd,")


@pytest.mark.rare
def test_a_host_is_drained_and_released_from_here(typed: Typed, listed: Path, spool: Spool) -> None:
    said = typed("drain", "bench1", "--reason", "a new SSD; rm -rf $HOME")
    assert "bisector: bench1 takes no more trials\n" in said
    drained = DutyFiles(spool).drained()
    assert drained is not None
    assert drained.reason == "a new SSD; rm -rf $HOME"
    (again,) = rows(typed("drain", "bench1", "--json")).values()
    assert again["standing"]["drained"] == {"since": drained.since, "reason": drained.reason}
    assert "bench1 takes trials" in typed("release", "bench1")
    (released,) = rows(typed("release", "bench1", "--json")).values()
    assert released["standing"]["drained"] is None


def test_a_host_is_drained_and_released_where_it_is(typed: Typed, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "STATE" / "bisector" / "spool")
    assert "no worker" in typed("status", "--here")
    (host,) = rows(typed("drain", "--here", "--json", "--reason", "it is mine today")).values()
    assert host["remedy"].splitlines()[0] == "bisector fleet release --here"
    assert DutyFiles(spool).drained() is not None
    typed("release", "--here")
    assert DutyFiles(spool).drained() is None
    other = tmp_path / "other"
    typed("drain", "--here", "--spool", str(other))
    assert DutyFiles(Spool(other)).drained() is not None


def test_this_machine_is_shown_where_it_works_and_no_row_is_of_it(
    typed: Typed, listed: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = Spool(tmp_path / "STATE" / "bisector" / "spool")
    with own.owned():
        DutyFiles(own).report(duty())
        found = valid("fleet status", typed("status", "--json"))["hosts"]
    assert [(host["state"], host["standing"]["spool"]) for host in found] == [
        ("no-worker", str(spool.home)),
        ("idle", str(own.home)),
    ]
    monkeypatch.setenv("XDG_STATE_HOME", str(spool.home.parents[1]))
    with spool.owned():
        DutyFiles(spool).report(duty())
        assert len(valid("fleet status", typed("status", "--json", "--spool", str(spool.home)))["hosts"]) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("drain",), "which host?"),
        (("release", "bench1", "--here"), "which host?"),
        (("drain", "bench9"), "there is no host bench9"),
        (("release", "dials"), "dials dials in by itself"),
        (("status", "--hosts", "nothing.toml"), "there is no file nothing.toml"),
        (("status", "--hosts", "empty.toml"), "empty.toml lists no host"),
    ],
)
def test_what_is_refused(typed: Typed, words: tuple[str, ...], said: str) -> None:
    Path("empty.toml").touch()
    edit_hosts.put(Path("hosts.toml"), Host("dials"), "tls://desk:8786")
    assert said in typed(*words, code=2)


def test_a_host_of_another_version_is_told_of(typed: Typed, listed: Path, there: Path, bench: Host) -> None:
    program = there / "old-bisector"
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && echo bisector 0.0.1 && exit\nexit 2\n')
    program.chmod(0o755)
    edit_hosts.put(listed, Host("bench1", bench.ssh, bisector=str(program)), "")
    host = rows(typed("status", "--json", code=1))["bench1"]
    assert host["trouble"].startswith("bench1 has bisector 0.0.1, and here is ")


def test_nothing_of_dask_is_needed() -> None:
    script = (
        "import sys; from bisector.cli import main\n"
        "main(('fleet', 'status', '--here'))\n"
        "import json; print(json.dumps([*sys.modules]))"
    )
    seen = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not {"distributed", "cryptography", "tomlkit"} & set(json.loads(seen.stdout.splitlines()[-1]))
