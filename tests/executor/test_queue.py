"""A worker as a job of a queue: the line of the docs, with a stand-in for srun(1) that gives it the node."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bisector.core import resources
from bisector.core.deadline import Deadline
from bisector.executor.cluster.coordinator import Coordinator
from bisector.executor.cluster.security import door
from tests.executor.engines import WAIT_S
from tests.executor.fleet import ROOT, Authority

# As srun does, it runs the command once on a node that nobody else has, and passes signals on.
_SRUN = """\
#!/bin/sh
[ "$1" = --exclusive ] || exit 2
shift
exec 9>"$NODE"
flock --nonblock 9 || exit 1
exec "$@"
"""


@pytest.mark.fleet
@pytest.mark.rare
def test_the_line_of_the_docs_connects_a_job_of_a_queue(tmp_path: Path) -> None:
    page = (resources.ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^ +(srun .*)$", page, re.MULTILINE)
    authority = Authority.new()
    own, other = (authority.certify(tmp_path / name) for name in ("coordinator", "host"))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("srun", _SRUN), ("bisector", f'#!/bin/sh\nexec {sys.executable} -m bisector "$@"\n')):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    with Coordinator(door("tls://127.0.0.1:0", own)) as coordinator:
        words = shlex.split(line.replace("DIRECTORY", str(other)))
        words = [coordinator.address if word.startswith("tls://") else word for word in words]
        env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "NODE": str(tmp_path / "node")}
        env |= {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state")}
        child = subprocess.Popen([programs / words[0], *words[1:]], env=env)
        try:
            Deadline("the worker", WAIT_S).poll(lambda: coordinator.hosts() or None, 0.1)
            second = subprocess.run([programs / words[0], *words[1:]], env=env, timeout=WAIT_S, check=False)
            assert second.returncode == 1  # the node is taken
            child.send_signal(signal.SIGTERM)  # as scancel(1), and srun at the end of its time
            assert child.wait(WAIT_S) == 0
        finally:
            child.kill()
            child.wait(WAIT_S)
