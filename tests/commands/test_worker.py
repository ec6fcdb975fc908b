"""``bisector worker``: what it refuses, and that it connects with what it was told."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.executor.cluster.coordinator import Coordinator
from bisector.executor.cluster.security import door
from tests.executor.fleet import ROOT, Authority, executor
from tests.git.histories import build, linear

WAIT_S = 60.0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("tcp://192.0.2.7:8786",), "is not encrypted"),
        (("tls://192.0.2.7:8786",), "needs a certificate"),
        (("tls://192.0.2.7:8786", "--certificates", "/nowhere"), "/nowhere/ca.pem: No such file"),
        (("bench0",), "no address of a coordinator"),
        (("tcp://127.0.0.1:8786", "--repo", "/nowhere"), "/nowhere is no git repository to borrow objects from"),
    ],
)
def test_what_cannot_work_is_refused(words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", *words]) == 2
    assert told in capsys.readouterr().err


def test_without_the_extra_it_tells_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "bisector.executor.cluster.security")
    monkeypatch.setitem(sys.modules, "distributed.security", None)
    assert main(["worker", "tcp://127.0.0.1:8786"]) == 2
    assert "-m pip install " in (said := capsys.readouterr().err)
    assert "[fleet]'" in said
    assert "'bisector[fleet]" not in said


def test_it_connects_and_leaves_at_sigterm(tmp_path: Path) -> None:
    authority = Authority.new()
    with Coordinator(door("tls://127.0.0.1:0", authority.certify(tmp_path / "own"))) as coordinator:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
        certificates = str(authority.certify(tmp_path / "host"))
        words = ("--certificates", certificates, "--repo", str(tmp_path / "linux"), "--port", port)
        build(tmp_path / "linux", linear(2))
        child = subprocess.Popen(
            [sys.executable, "-m", "bisector", "worker", coordinator.address, *words, "--name", "bench1"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state")},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            remote = executor(coordinator, tmp_path / "run")
            remote.wait_for_hosts(1, WAIT_S)
            assert list(remote.idle) == ["bench1"]
            assert [host.address for host in coordinator.hosts()] == [f"tls://127.0.0.1:{port}"]
            assert (tmp_path / "state" / "bisector" / "spool").is_dir()
            child.send_signal(signal.SIGTERM)
            _, told = child.communicate(timeout=WAIT_S)
        finally:
            child.kill()
            child.wait()
    assert child.returncode == 0
    assert "Traceback" not in told
    assert f"connected to {coordinator.address} as bench1" in told
