"""What the fixture of a test that failed does afterwards, without a guest."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.in_vms.conftest import Tool


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("script", ["print('no')", "import time; time.sleep(600)"], ids=["ended", "running"])
def test_a_test_that_failed_leaves_no_second_error(tmp_path: Path, script: str, read: bool) -> None:
    tool = Tool(tmp_path, tmp_path, tmp_path)
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    tool.children.append(child)
    if read and script.startswith("print"):
        assert child.communicate()[0] == "no\n"
    elif read:
        assert child.stdout is not None
        child.stdout.close()
    tool.end()
    assert child.poll() is not None
