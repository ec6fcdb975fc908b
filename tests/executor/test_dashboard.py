"""Dask's own pages about a fleet at work: there for who asks for them, and on this machine alone."""

import socket
import subprocess
from http.client import HTTPConnection
from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.executor.cluster.coordinator import Coordinator
from bisector.executor.cluster.security import door
from tests.executor import fleet
from tests.executor.engines import WAIT_S

pytestmark = pytest.mark.fleet
DOOR = door("tcp://127.0.0.1:0", None)


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number: int = listening.getsockname()[1]
    return number


def got(port: int, path: str) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.rare
def test_the_pages_are_there(tmp_path: Path, port: int) -> None:
    with (
        Coordinator(DOOR, dashboard=port) as coordinator,
        fleet.worker(coordinator.address, None, tmp_path / "spool", "bench7") as worker,
    ):
        worker.said("connected")
        status, page = got(port, "/status")
        assert status == 200
        assert b"Dask" in page
        assert b"bokeh" in page


@pytest.mark.rare
def test_no_other_machine_reaches_the_pages(port: int) -> None:
    with Coordinator(DOOR, dashboard=port):
        listening = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=True)
        assert [line.split()[3] for line in listening.stdout.splitlines()] == [f"127.0.0.1:{port}"]


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot listen at 127.0.0.1, port {port}"), Coordinator(DOOR, None, port):
            pass
