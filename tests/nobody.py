"""What holds for an ordinary user, where the tests themselves are run by root: in a process without root's rights."""

import os
import re
import sys
from pathlib import Path

import pytest

from bisector.core.shell import CommandResult
from bisector.host.process import run

TOP = Path(__file__).parent.parent
# Of no account. Not 65534, which in a user namespace is the number of whoever has none there: of root, say.
_NOBODY = "63999"
_DROP = ("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups")
_PASSED = re.compile(r"^(\d+) passed(?!.*(failed|error))", re.MULTILINE)


def as_nobody(*words: str | Path, home: Path, deadline_s: float = 60.0) -> CommandResult:
    """Run a command in ``home``, which that user owns; the test is left out where it cannot read this checkout."""
    os.chown(home, int(_NOBODY), int(_NOBODY))
    readable = run(
        [*_DROP, "test", "-r", TOP / "pyproject.toml", "-a", "-r", pytest.__file__], deadline_s=60.0, check=False
    )
    if readable.exit_status != 0:
        pytest.skip("an ordinary user cannot read this checkout")
    environment = {"HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(TOP), *filter(None, sys.path)])
    return run([*_DROP, *words], deadline_s=deadline_s, env=environment, cwd=home, check=False)


def passed(*tests: str, home: Path) -> int:
    """How many of these tests pass for that user; none where one fails."""
    pytest_ = (
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={TOP}",
        f"-c{TOP}/pyproject.toml",
    )
    done = as_nobody(*pytest_, f"--basetemp={home}/tests", *tests, home=home)
    found = _PASSED.search(done.stdout)
    assert found is not None, done.stdout + done.stderr
    return int(found[1])
