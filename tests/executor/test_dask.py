"""What Dask is told, and when it is not even imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.executor import fleet
from tests.executor.engines import WAIT_S


def python(script: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "PYTHONPATH": str(fleet.ROOT), **variables},
    )
    return done.stdout


def test_a_persons_own_configuration_of_dask_does_not_win(tmp_path: Path) -> None:
    (tmp_path / "dask.yaml").write_text(
        "distributed:\n  scheduler:\n    allowed-failures: 7\n  worker:\n    preload: [antigravity]\n"
    )
    script = (
        "from bisector.executor.cluster import coordinator, dask_settings\n"
        "import dask\ndask_settings.settle()\n"
        "print([dask.config.get(f'distributed.{key}') for key in\n"
        "  ('scheduler.allowed-failures', 'scheduler.work-stealing', 'worker.preload', 'comm.timeouts.tcp')])\n"
    )
    said = python(script, DASK_CONFIG=str(tmp_path), DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING="True")
    assert said == "[0, False, [], '5 minutes']\n"


@pytest.mark.parametrize(
    "script",
    [
        "import bisector.cli\ntry: bisector.cli.main(['--help'])\nexcept SystemExit: pass",
        "import bisector.executor.local, bisector.executor.remote, bisector.executor.watch, bisector.bisect.session",
        "import bisector.cli\nfor name in ('start', 'worker'):\n"
        "  try: bisector.cli.main([name, '--help'])\n  except SystemExit: pass",
    ],
)
def test_dask_is_imported_only_for_hosts(script: str) -> None:
    said = python(f"{script}\nimport sys\nprint('dask' in sys.modules, 'distributed' in sys.modules)")
    assert said.splitlines()[-1] == "False False"
