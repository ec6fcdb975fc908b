"""A run of fio in a guest that answers from a table."""

from pathlib import Path

import pytest

from tests.workload.fio_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "logs")
