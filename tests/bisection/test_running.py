"""A run from what was asked to its end, whatever kind that is."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bisector.bisection import running
from bisector.errors import InfraError
from bisector.events import Listener
from bisector.history.repository import Repository
from bisector.model import State
from bisector.record.store import Store
from bisector.settings import Settings
from tests.history import histories
from tests.recorded_run import RecordedRun


@pytest.fixture
def begun(tmp_path: Path) -> RecordedRun:
    return RecordedRun(tmp_path, histories.linear(9))


def test_a_full_disk_anywhere_stops_the_run_and_is_no_traceback(begun: RecordedRun) -> None:
    @contextmanager
    def equip(
        _settings: Settings, run_dir: Path, _repository: Repository, _tell: Listener
    ) -> Iterator[running.Equipment]:
        raise OSError(errno.ENOSPC, "No space left on device", str(run_dir / "sources"))
        yield  # a generator

    with Store.open(begun.run.database) as store:
        with pytest.raises(InfraError, match="sources: No space left on device") as caught:
            running.go_on(begun.run, store, lambda event: None, equip)
        state = store.state()
    assert f"df -h {begun.run.path}" in caught.value.hint
    assert f"go on with: bisector resume --run-dir {begun.run.path}" in caught.value.hint
    assert state is not None
    assert (state.state, state.message) == (State.STOPPED, str(caught.value))
