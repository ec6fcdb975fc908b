"""``make demo-fleet`` without what it measures."""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

from bisector.core import resources

_DEMONSTRATION = """
    import sys
    from pathlib import Path
    from scenarios.demo import fleet

    def demonstrate() -> int:
        bench = fleet.Bench(Path(sys.argv[1]))
        with bench.served():
            child = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
            return fleet.followed([sys.executable, "-c", child], bench, lambda *_: None)

    fleet.demonstrate = demonstrate
    sys.exit(fleet.main())
"""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_what_it_has_started_ends_with_it(tmp_path: Path, signum: signal.Signals) -> None:
    words = (sys.executable, "-c", textwrap.dedent(_DEMONSTRATION), str(tmp_path / "demo"))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=resources.ROOT) as demonstration:
        assert demonstration.stdout is not None
        coordinator = int(demonstration.stdout.readline())
        children = Path(f"/proc/{demonstration.pid}/task/{demonstration.pid}/children").read_text().split()
        try:
            assert len(children) == 2
            assert str(coordinator) in children
            demonstration.send_signal(signum)
            assert demonstration.wait(20) == 130
            assert not [child for child in children if Path(f"/proc/{child}").exists()]
        finally:
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
