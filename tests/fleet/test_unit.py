"""The unit of a host's worker, and what systemd is told."""

import getpass
import os
from pathlib import Path

import pytest

from bisector.core import json_document
from bisector.core.errors import UserError
from bisector.fleet import on_host
from bisector.fleet.authority import Authority, initialised
from bisector.fleet.documents import Installation
from bisector.fleet.home import FleetHome
from bisector.host import process, systemd

AT = "tls://desk:8786"
CLONE = "/srv/linux"


@pytest.fixture
def home(tmp_path: Path) -> FleetHome:
    return FleetHome(tmp_path / "a $home, 100%")


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the manager was told, which is a script that writes it down."""
    monkeypatch.setattr(systemd, "_RUNNING", tmp_path)
    monkeypatch.setattr(on_host, "_LINGER", tmp_path / "linger")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    script = tmp_path / "bin" / "systemctl"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\n[ "$2" = is-active ] && echo activating && exit 3\necho "$@" >> {tmp_path}/told\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "told"


def installation(home: FleetHome, tmp_path: Path) -> str:
    signer = initialised(FleetHome(tmp_path / "coordinator"))[0]
    signed = signer.sign(on_host.request(home, "bench1").encode(), "bench1")
    given = Installation(
        certificate=signed.decode(), authority=signer.certificate.decode(), coordinator=AT, repository=CLONE
    )
    return json_document.text(given)


def test_systemd_is_told_and_asked(home: FleetHome, told: Path, tmp_path: Path) -> None:
    unit = tmp_path / "config" / "systemd" / "user" / "bisector-worker.service"
    assert on_host.describe(home).worker is None
    found = on_host.install(home, installation(home, tmp_path))
    assert (found.worker, found.linger, found.trouble) == ("activating", False, "")
    (tmp_path / "linger").mkdir()
    (tmp_path / "linger" / getpass.getuser()).touch()
    assert on_host.describe(home).linger is True
    assert unit.read_text() == on_host.unit_text(home, AT, CLONE)
    left = on_host.remove(home)
    assert (left.worker, left.certificate, left.start) == (None, None, "")
    assert not unit.exists()
    assert told.read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable --now bisector-worker.service",
        "--user disable --now --no-block bisector-worker.service",
    ]


def test_a_user_without_a_manager(home: FleetHome, told: Path, tmp_path: Path) -> None:
    """The certificate is there, and so is the unit for when there is one; why it does not run is told."""
    script = tmp_path / "bin" / "systemctl"
    script.write_text("#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2; exit 1\n")
    found = on_host.install(home, installation(home, tmp_path))
    assert "Failed to connect to bus" in found.trouble
    assert found.certificate is not None
    assert found.worker == "unknown"
    assert "Failed to connect to bus" in on_host.remove(home).trouble


def test_systemd_finds_no_fault(home: FleetHome, tmp_path: Path) -> None:
    path = tmp_path / on_host.UNIT
    path.write_text(on_host.unit_text(home, "tls://[fe80::1%eth0]:8786", CLONE))
    words = ["systemd-analyze", "--man=no", "--user", "verify", str(path)]
    found = process.run(words, deadline_s=60, env={"XDG_RUNTIME_DIR": str(tmp_path)}, check=False)
    assert not [line for line in found.stderr.splitlines() if "bisector-worker" in line]


def test_what_the_unit_says(home: FleetHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/50 %/data")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    lines = on_host.unit_text(home, AT, CLONE).splitlines()
    (command,) = [line for line in lines if line.startswith("ExecStart=")]
    directory = str(home.worker.directory).replace("$", "$$").replace("%", "%%")
    assert command.endswith(f'-m bisector worker {AT} --certificates "{directory}" --repo {CLONE}')
    assert 'Environment="XDG_DATA_HOME=/srv/50 %%/data"' in lines
    assert not [line for line in lines if "XDG_STATE_HOME" in line]
    assert {"Restart=always", "KillMode=control-group", "OOMPolicy=continue", "LimitCORE=0"} <= set(lines)
    assert not [line for line in lines if line.startswith(("Nice", "CPU", "IO", "Memory"))]


def test_the_authority_is_not_made_by_a_host(home: FleetHome, tmp_path: Path) -> None:
    on_host.request(home, "bench1")
    assert not home.authority.exists()
    with pytest.raises(UserError, match="there is no fleet yet"):
        Authority.open(home)
