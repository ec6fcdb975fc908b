"""A network that loses every packet for a while: shorter than the timeout of TCP, and longer.

Where there are no user or network namespaces this fails: what it shows is shown by nothing else here.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.executor import fleet, partition


@pytest.mark.fleet
@pytest.mark.parametrize(
    ("seconds", "heard", "connections"),
    [
        (partition.TIMEOUT_S / 3, ["Finished 3 of bench1"], 1),
        (0, ["lost", "Finished 3 of bench1"], 2),
    ],
    ids=["shorter", "longer"],
)
@pytest.mark.rare
def test_a_trial_outlives_its_network(tmp_path: Path, seconds: float, heard: list[str], connections: int) -> None:
    words = ["unshare", "-Urn", sys.executable, "-m", partition.__name__, str(tmp_path), str(seconds)]
    done = subprocess.run(
        words,
        check=False,
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "PYTHONPATH": str(fleet.ROOT)},
    )
    log = tmp_path / "bench1" / "bench1.log"
    assert done.returncode == 0, f"{done.stderr}\n{log.read_text() if log.exists() else ''}"
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["heard"], found["runs"], found["connections"]) == (heard, 1, connections)
