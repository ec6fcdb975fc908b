"""A host may forget a result when it is on record, and not before."""

from dataclasses import dataclass, field
from pathlib import Path

from bisector.core.verdict import State
from bisector.store.facts import Ended
from bisector.store.log import DATABASE
from bisector.store.store import Store
from tests import fakes
from tests.bisect.lab import Lab
from tests.git import histories


@dataclass
class Keeper(fakes.FakeExecutor):
    """Looks what is on record of each job that it is to forget."""

    record: Path = Path()
    too_early: list[int] = field(default_factory=list)

    def acknowledge(self, id_: int) -> None:
        with Store.open(self.record, readonly=True) as store:
            self.too_early += [one.id for one in store.in_flight() if one.id == id_]
        super().acknowledge(id_)


def test_each_job_is_acknowledged_once_it_is_on_record(tmp_path: Path) -> None:
    lab = Lab(tmp_path, histories.linear(9), "c0", "c8")
    new = [lab.shas[f"c{n}"] for n in range(5, 9)]
    engine = Keeper(fakes.among(new), infra={lab.shas["c4"]: 1}, record=tmp_path / DATABASE)
    assert lab.bisect(engine).state is State.FOUND
    assert len(engine.acknowledged) > len(lab.trials())  # the attempt that failed, too
    with Store.open(engine.record, readonly=True) as store:
        assert sorted(engine.acknowledged) == sorted(one.submission for one in store.facts(Ended))
    assert not engine.too_early
