"""A workload that ends at once, on a stack that is made at once; processes of jobs that find their engines here."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bisector.core import resources
from bisector.storage import layout
from bisector.workload.fio.fio import Fio
from tests.executor.bench import Workload
from tests.executor.fleet import Fleet
from tests.executor.wires import Wires, host


@pytest.fixture(autouse=True)
def _engines_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engines of tests are installed nowhere, and a job's process looks for modules there alone (``python -P``)."""
    monkeypatch.setenv("PYTHONPATH", str(resources.ROOT))


@pytest.fixture
def workload(monkeypatch: pytest.MonkeyPatch) -> Workload:
    made = Workload()
    monkeypatch.setattr(layout, "lay_out", made.lay_out)
    monkeypatch.setattr(Fio, "run", lambda _, own, site: made.run(own, site))
    return made


@pytest.fixture
def wires() -> Wires:
    """A connection on which one host is there."""
    return Wires(known=(host(),))


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Fleet]:
    """A coordinator without workers."""
    with ExitStack() as stack:
        yield Fleet(tmp_path, stack)
