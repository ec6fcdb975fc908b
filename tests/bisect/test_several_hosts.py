"""A search over several hosts: each by its own ends, one record, and whatever one of them does."""

import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bisector.analysis.verdicts import host_of
from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.trial import AttemptFailed, Stage, Trial
from bisector.core.verdict import Direction
from bisector.executor.base import Job, News
from bisector.store.facts import Ended, Ending
from tests import fakes
from tests.bisect.crew import Fleet
from tests.bisect.lab import DEFAULTS, Lab, lab_of
from tests.git import histories

COUNT = 17
CULPRIT = "c11"
ENDS = {"c0", f"c{COUNT - 1}"}


@pytest.fixture
def line(tmp_path: Path) -> Lab:
    return lab_of(tmp_path, histories.linear(COUNT), "c0", f"c{COUNT - 1}")


def bench(lab: Lab, slow: float = 1_000.0, fast: float = 8_000.0, **more: object) -> fakes.FakeExecutor:
    """One on which old and new kernels are so fast."""
    return lab.engine(CULPRIT, slow_iops=slow, fast_iops=fast, **more)


def measured_on(lab: Lab) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for trial in lab.trials():
        found.setdefault(host_of(trial), []).append(lab.names.get(trial.commit.sha, "changed"))
    return found


def test_hosts_find_it_in_whatever_order_their_trials_end(line: Lab) -> None:
    fleet = Fleet({name: bench(line) for name in ("one", "two", "three", "four")}, random.Random(1))
    seen, submit = list[list[str]](), fleet.submit

    def watched(job: Job, host: str = "") -> None:
        submit(job, host)
        seen.append([line.names.get(one.request.commit.sha, "changed") for one in fleet.open.values()])

    fleet.submit = watched  # type: ignore[method-assign] # watched
    assert line.found(line.bisect(fleet)) == CULPRIT
    found = measured_on(line)
    assert set(found) == set(fleet.benches)
    assert all(set(shas[:2]) == ENDS for shas in found.values())
    assert (fleet.most, fleet.open) == (4, {})
    for together in seen:  # no kernel but an end is under way twice
        searched = [name for name in together if name not in (*ENDS, "changed")]
        assert len(set(searched)) == len(searched)
    with line._store() as store:
        assert not store.in_flight()
        numbers = [n for n, _ in store.trials()]
        ended = store.facts(Ended)
    assert numbers == sorted(set(numbers))
    assert {one.ending for one in ended} <= {Ending.DONE, Ending.CANCELLED}


def test_a_host_that_is_eight_times_as_fast_is_judged_by_its_own_ends(line: Lab) -> None:
    """Its slow kernels are as fast as the fast ones of the other host; put together, no line would part them."""
    fleet = Fleet({"slow": bench(line, 125.0, 1_000.0), "fast": bench(line, 1_000.0, 8_000.0)})
    assert line.found(line.bisect(fleet)) == CULPRIT
    found = measured_on(line)
    assert all(len(shas) > 2 for shas in found.values()), found
    assert not any("again" in text for text in line.notes)


def test_a_host_whose_ends_are_alike_is_excluded(line: Lab) -> None:
    alike = bench(line)
    alike.fast_iops = alike.slow_iops
    fleet = Fleet({"good": bench(line), "odd": alike})
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert any(text.startswith("odd is excluded from this run: ") for text in line.notes)
    assert set(measured_on(line)["odd"]) == ENDS


def test_where_the_ends_are_alike_on_all_hosts_there_is_nothing_to_bisect(line: Lab) -> None:
    benches = {name: bench(line) for name in ("one", "two")}
    for one in benches.values():
        one.fast_iops = one.slow_iops
    with pytest.raises(EndsDoNotReproduce):
        line.bisect(Fleet(benches))


def test_where_the_ends_differ_both_ways_nobody_knows_which_host_is_right(line: Lab) -> None:
    with pytest.raises(EndsDoNotReproduce, match="one way on good, and the other way on odd"):
        line.bisect(Fleet({"good": bench(line), "odd": bench(line, 8_000.0, 1_000.0)}))


def test_a_host_whose_ends_differ_the_other_way_than_expected_is_excluded(line: Lab) -> None:
    line.settings = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, expect=Direction.IMPROVEMENT))
    fleet = Fleet({"good": bench(line), "odd": bench(line, 8_000.0, 1_000.0)})
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert any(text.startswith("odd is excluded from this run: ") for text in line.notes)


def test_what_fails_on_one_host_is_made_by_another_and_the_host_is_excluded(line: Lab) -> None:
    """Its ends work; then everything fails there."""
    broken = bench(line)
    measure, failed = broken.measure, list[str]()

    def fails(request: object) -> Trial:
        sha = request.commit.sha  # type: ignore[attr-defined] # a request of a trial
        if line.names.get(sha) in ENDS:
            return measure(request)  # type: ignore[arg-type] # see above
        failed.append(sha)
        raise AttemptFailed("no space left on the device", "df", Stage.CHECKOUT, "broken")

    broken.measure = fails  # type: ignore[method-assign] # a bench that breaks
    fleet = Fleet({"good": bench(line), "broken": broken})
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert any(text.startswith("broken is excluded from this run: ") for text in line.notes)
    assert len(failed) == 4


def test_the_last_host_is_not_excluded(line: Lab) -> None:
    """What ends a run of one host ends it here, too."""
    broken = {name: bench(line, infra=dict.fromkeys(line.shas.values(), 99)) for name in ("one", "two")}
    with pytest.raises(InfraError, match="the network went away"):
        line.bisect(Fleet(broken))


@dataclass
class Twice(Fleet):
    """Each result is told a second time."""

    again: News | None = None

    def next(self) -> News:
        told, self.again = self.again, None
        if told is not None:
            return told
        self.again = super().next()
        return self.again


def test_a_result_that_is_told_twice_is_on_record_once(line: Lab) -> None:
    assert line.found(line.bisect(Twice({name: bench(line) for name in ("one", "two")}))) == CULPRIT
    with line._store() as store:
        numbers = [n for n, _ in store.trials()]
        ended = [one.submission for one in store.facts(Ended)]
    assert (len(set(numbers)), len(set(ended))) == (len(numbers), len(ended))


class Comes(Fleet):
    """A host comes while nobody has anything to do."""

    def wait(self, within_s: float | None) -> bool:
        if not self.open:
            self.gone.clear()
        return bool(self.open)


def test_a_host_that_comes_during_the_pause_of_another_one_is_used(line: Lab) -> None:
    fleet = Comes({"one": bench(line, infra={line.shas["c0"]: 1}), "two": bench(line)}, gone={"two"})
    assert line.found(line.bisect(fleet)) == CULPRIT
    assert line.trials()[0].host == "two"
