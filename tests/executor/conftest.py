"""A workload that ends at once, on a stack that is made at once; processes of jobs that find their engines here."""

import pytest

from bisector.core import resources
from bisector.storage import layout
from bisector.workload.fio.fio import Fio
from tests.executor.bench import Workload


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
