"""A workload that ends at once, on a stack that is made at once."""

import pytest

from bisector.storage import stack
from bisector.workload.fio.fio import Fio
from tests.executor.bench import Workload


@pytest.fixture
def workload(monkeypatch: pytest.MonkeyPatch) -> Workload:
    made = Workload()
    monkeypatch.setattr(stack, "lay_out", made.lay_out)
    monkeypatch.setattr(Fio, "run", lambda own, site: made.run(own, site))  # noqa: PLW0108 - as a method it gets the workload
    return made
