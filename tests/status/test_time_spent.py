"""What the hours of a run went to."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.trial import Timings
from bisector.status.blocks import TimeSpent
from bisector.store.log import DATABASE
from bisector.store.store import Store
from tests.examples import commit, trial
from tests.store import examples


def test_what_is_neither_build_nor_boot_nor_layout_nor_workload_is_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bisector.status.blocks.process_s", lambda _: 300.0)
    monkeypatch.setattr("bisector.status.blocks.build_seconds", lambda _: 90.0)
    took = [Timings(build_s=10.0, boot_s=6.0, storage_s=4.0, workload_s=84.0, total_s=110.0), Timings(workload_s=96.0)]
    with Store.create(tmp_path / DATABASE, examples.bisection()) as store:
        found = TimeSpent.of(store, [replace(trial(commit(n)), timings=one) for n, one in enumerate(took)])
        assert TimeSpent.of(store, []) is None
    assert found == TimeSpent(300.0, 100.0, 6.0, 4.0, 180.0)
    assert found.other_s == 10.0
    assert found.other_share == pytest.approx(0.05)
    assert replace(found, total_s=100.0).other_share == 0.0
