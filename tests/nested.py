"""Directories in each other, deeper than a path can say and than Python's own functions go."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def nest(top: Path, depth: int) -> None:
    """Make that many of them."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=here)
        inner = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


@contextmanager
def nested(top: Path, depth: int) -> Iterator[None]:
    """Make them, and leave none of them: pytest itself cannot remove them."""
    nest(top, depth)
    try:
        yield
    finally:
        subprocess.run(["rm", "-rf", "--", top / "deep"], check=True)
