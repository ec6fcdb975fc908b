"""A bisection whose first end shows that it can have no answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bisector.bisect import session
from bisector.campaign.equipment import Equipment
from bisector.config import Settings
from bisector.core.events import Listener
from bisector.core.objective import MetricAbsent
from bisector.core.verdict import State
from bisector.git.repository import Repository
from bisector.store.store import Store
from tests import fakes
from tests.git.conftest import unconfigured as unconfigured  # noqa: PLC0414 - a fixture of this room, too
from tests.git.histories import linear
from tests.recorded_run import RecordedRun


@pytest.mark.parametrize("metric", ["read.clat.p99.5", "cpu.major_faults"])
def test_it_is_over_and_resume_is_not_advised(tmp_path: Path, metric: str) -> None:
    """fio does not write it for this job file, whatever the commit."""
    recorded = RecordedRun(tmp_path, linear(4), {"bisect.metric": metric})
    engine = fakes.FakeExecutor(lambda sha: sha == recorded.shas["c3"])

    @contextmanager
    def equip(_settings: Settings, _run_dir: Path, repository: Repository, _tell: Listener) -> Iterator[Equipment]:
        yield Equipment(engine, fakes.FakeEquality(repository))

    with Store.open(recorded.run.database) as store:
        with pytest.raises(MetricAbsent) as caught:
            session.go_on(recorded.run, store, lambda event: None, equip)
        last = store.state()
    assert last is not None
    assert (last.state, metric in last.message) == (State.FAILED, True)
    assert "resume" not in caught.value.hint
    assert len(engine.measured) == 1
