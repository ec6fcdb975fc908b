import subprocess
import sys
from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.host import shared_caches

USER = """
import sys
from pathlib import Path
from bisector.host import shared_caches
with shared_caches.in_use(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.readline()
"""


def test_alone_is_who_nobody_shares_with(tmp_path: Path) -> None:
    home = tmp_path / "cache"
    with shared_caches.alone(home) as nobody_else:
        assert nobody_else
    with shared_caches.in_use(home), shared_caches.in_use(home), shared_caches.alone(home) as nobody_else:
        assert not nobody_else
    with shared_caches.alone(home) as nobody_else:
        assert nobody_else


@pytest.mark.parametrize("ending", ["by itself", "killed"])
def test_a_process_that_ends_lets_go_of_it(tmp_path: Path, ending: str) -> None:
    argv = [sys.executable, "-c", USER, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        with shared_caches.alone(tmp_path) as nobody_else:
            assert not nobody_else
        if ending == "killed":
            process.kill()
        process.communicate("\n" if ending != "killed" else None, timeout=30)
    with shared_caches.alone(tmp_path) as nobody_else:
        assert nobody_else


def test_a_place_that_cannot_be_written_is_the_hosts_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfraError, match="Not a directory"), shared_caches.in_use(tmp_path / "file" / "cache"):
        pass
