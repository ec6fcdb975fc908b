"""The disks alone beside a bisection: real git, a store, and a bench that answers from a table."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.bisect import session
from bisector.cli import main
from bisector.config import options
from bisector.core.errors import InfraError, UserError
from bisector.core.events import Event, TrialJudged
from bisector.core.objective import Objective
from bisector.core.subject import Setup
from bisector.core.verdict import State
from bisector.report.table import baseline_facts
from bisector.storage.stack import lone_disk
from bisector.store.store import Store
from tests import examples, fakes
from tests.bisect.lab import BY_GIT, Lab
from tests.git import histories
from tests.recorded_run import RecordedRun, found
from tests.store.examples import imported

WISHING = replace(BY_GIT, bisect=replace(BY_GIT.bisect, baselines=True))


@pytest.fixture
def line(tmp_path: Path) -> Lab:
    return Lab(tmp_path, histories.linear(9), "c0", "c8", settings=WISHING)


def recorded(lab: Lab) -> list[str | None]:
    with lab._store() as store:
        return [lone_disk(trial.setup.stack) for _, trial in store.baselines()]


def test_measured_once_and_no_part_of_the_search(line: Lab, tmp_path: Path) -> None:
    engine = line.engine("c5")
    outcome = line.bisect(engine)
    assert line.found(outcome) == "c5"
    assert engine.measured[-2:] == ["ssd", "hdd"]
    again = line.engine("c5")
    assert (line.bisect(again), again.measured) == (outcome, [])
    assert recorded(line) == ["ssd", "hdd"]
    with line._store() as store:
        assert [n for n, _ in store.baselines()] == [store.next_n - 2, store.next_n - 1]
        assert {trial.commit.sha for _, trial in store.baselines()} == {line.shas["c8"]}
    # A bisection without them says the same of everything else.
    (tmp_path / "bare").mkdir()
    bare = Lab(tmp_path / "bare", line.nodes, "c0", "c8", settings=BY_GIT)
    without = bare.view(bare.bisect(bare.engine("c5")))
    view = line.view(outcome)
    for name in ("trials", "threshold", "levels", "other_steps", "candidates", "first_fixed", "message"):
        assert getattr(view, name) == getattr(without, name), name
    assert (len(view.baselines), without.baselines) == (2, ())


WEAK = "no sound measurement in 4: the host was busy: 1.40 cores of other work, limit 0.50"
TROUBLE: dict[str, tuple[Mapping[str, object], str, int]] = {
    "busy for good": ({"busy": {"ssd": 99}}, f"no baseline: the SSD alone could not be measured: {WEAK}", 4),
    "a network that stays away": ({"infra": {"ssd": 99}}, "no baseline: the network went away", 4),
    "a panic": ({"faults": {"ssd": fakes.PANIC}}, "no baseline: the SSD alone could not be measured: panic: ", 2),
}


@pytest.mark.parametrize(("table", "said", "attempts"), TROUBLE.values(), ids=TROUBLE)
def test_what_cannot_be_measured_costs_no_answer(
    line: Lab, table: Mapping[str, Mapping[str, object]], said: str, attempts: int
) -> None:
    engine = line.search("c5", **table)
    assert engine.attempts["ssd"] == attempts
    assert any(text.startswith(said) for text in line.notes)
    assert recorded(line) == ["hdd"]


def test_a_weak_run_is_repeated_and_never_recorded(line: Lab) -> None:
    engine = line.engine("c5", busy={"hdd": 2})
    line.bisect(engine)
    assert engine.attempts["hdd"] == 3
    with line._store() as store:
        assert [trial.runs[-1].contention for _, trial in store.baselines()] == [examples.QUIET] * 2
        assert store.next_n == len(store.trials()) + 3


def test_killed_between_the_disks(line: Lab) -> None:
    """Wished for when the search is over, they are all that is measured; a kill costs the disk it falls on."""
    line.settings = BY_GIT
    searched = len(line.search("c5").measured)
    line.settings = WISHING
    line.killed(line.engine("c5", kill_at=searched + 2))
    assert recorded(line) == ["ssd"]
    resumed = line.search("c5")
    assert resumed.measured == ["hdd"]
    assert recorded(line) == ["ssd", "hdd"]


# `bisector baselines`


@pytest.fixture
def ended(tmp_path: Path) -> RecordedRun:
    return found(tmp_path)


def measure(record: RecordedRun, engine: fakes.FakeExecutor) -> list[Event]:
    events: list[Event] = []
    with Store.open(record.run.database) as store:
        session.measure_baselines(record.run, store, events.append, fakes.equipped(engine))
    return events


def test_a_run_that_has_ended_gets_them_and_stays_as_it_is(ended: RecordedRun) -> None:
    left_over = ended.run.path / "trials" / "0006-half"
    left_over.mkdir()
    engine = fakes.FakeExecutor(lambda sha: True, busy={"ssd": 1})
    events = measure(ended, engine)
    assert not [event for event in events if isinstance(event, TrialJudged)]  # they were told when they were measured
    with Store.open(ended.run.database) as store:
        assert [lone_disk(trial.setup.stack) for _, trial in store.baselines()] == ["ssd", "hdd"]
        state = store.state()
        assert state is not None
        assert state.state is State.FOUND
    assert engine.measured == ["ssd", "ssd", "hdd"]
    assert not left_over.exists()
    assert measure(ended, engine) == []
    assert engine.measured == ["ssd", "ssd", "hdd"]


def test_a_disk_that_cannot_be_measured_is_an_error_there(ended: RecordedRun) -> None:
    with pytest.raises(InfraError, match="the SSD alone could not be measured: no sound measurement") as caught:
        measure(ended, fakes.FakeExecutor(lambda sha: True, busy={"ssd": 99}))
    assert caught.value.hint == "bisector baselines tries it again"


def test_files_that_do_not_fit_on_the_ssd(tmp_path: Path) -> None:
    large = {"workload.file_size": "240MiB", "storage.hdd.size": "2GiB"}
    record = found(tmp_path, large)
    with pytest.raises(UserError, match=r"bisect.baselines, workload.file_size, storage.ssd.size: 2 jobs of 240MiB"):
        measure(record, fakes.FakeExecutor(lambda sha: True))
    with pytest.raises(UserError, match=r"bisect.baselines = true .*on the SSD alone, of 512MiB, has no room"):
        options.load({"bisect.baselines": "true", **large}, directory=tmp_path)
    with pytest.raises(UserError, match="the stack has nothing between a disk and the file system"):
        options.load({"bisect.baselines": "true", "storage.stack": "hdd"}, directory=tmp_path)


def test_a_disk_alone_has_no_metric_of_a_cache(tmp_path: Path) -> None:
    """Each disk would be measured as often as on a busy host, in vain."""
    record = found(tmp_path, {"bisect.metric": "cache.hit_ratio"})
    engine = fakes.FakeExecutor(lambda sha: True)
    with pytest.raises(UserError, match=r"a disk alone has no cache, and so no cache\.hit_ratio"):
        measure(record, engine)
    assert engine.measured == []
    with pytest.raises(UserError, match=r"bisect.baselines = true .*bisect.metric = cache.hit_ratio"):
        options.load({"bisect.baselines": "true", "bisect.metric": "cache.hit_ratio"}, directory=tmp_path)


def test_the_command_shows_what_is_on_record(
    ended: RecordedRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(ended, fakes.FakeExecutor(lambda sha: True))
    capsys.readouterr()
    assert main(["baselines", "--quiet", "--run-dir", str(ended.run.path)]) == 0
    new = ended.shas["c4"][:12]
    assert capsys.readouterr().out.splitlines() == [
        f"SSD alone 5,000 / 9,000 IOPS on {new}",
        f"HDD alone 500 / 501 IOPS on {new}",
    ]


def test_a_disk_is_one_whoever_measured_it() -> None:
    """A run may have taken over what others did with their disk, and have measured its own."""
    theirs = examples.baseline("hdd", 90.0, 110.0)
    theirs = replace(theirs, cell=replace(theirs.cell, setup=Setup("hdd")))
    ours = [examples.baseline("hdd", 500.0, 501.0), examples.baseline("ssd", 5_000.0, 9_000.0)]
    short = examples.commit(7).short
    assert baseline_facts((theirs, *ours), Objective()) == (
        ("SSD alone", f"5,000 / 9,000 IOPS on {short}"),
        ("HDD alone", f"90 / 110 IOPS on {short}; 500 / 501 IOPS on {short}"),
    )


def test_imported_records_are_refused(tmp_path: Path) -> None:
    record = found(tmp_path)
    with Store.open(record.run.database) as store:
        store.add_trials([imported(6)])
    with pytest.raises(UserError, match="was imported; nothing can be measured in it"):
        measure(record, fakes.FakeExecutor(lambda sha: True))
