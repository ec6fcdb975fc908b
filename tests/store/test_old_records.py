"""A record that an older version wrote means what it meant, and goes on; one real file of each version says so.

Each file but those of the versions 11, 13, 15 and 17 to 24 was written by the store of the commit that brought its
version, from the examples of that commit's own tests, under its default settings: to version 10 on the stack ``hdd``,
then on ``lvmcache`` with the SSD alone as a baseline, and the HDD alone as others measured it. Columns that are taken
away from a file of today would say nothing of the quirks of theirs.
"""

import gzip
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.analysis.speed import speed_of
from bisector.core.figures import EarlyStop, Run, StopReason
from bisector.core.subject import Cell, Compiler, Kind, Setup
from bisector.core.trial import Control, Fault, FaultKind, Fill, Stage, Trial
from bisector.core.verdict import State
from bisector.search.noise import Earlier
from bisector.storage.filling import FILLED
from bisector.store import schema
from bisector.store.comparison import Budget, Place
from bisector.store.database import DATABASE
from bisector.store.facts import BuildTry, Ended, Ending, NumberedTrial, Submitted, Work
from bisector.store.store import Store
from tests import fakes
from tests.examples import EARLY, SETUP, alone, baseline, cell, commit
from tests.store import examples

FILES = Path(__file__).parents[1] / "data/records"
HDD = Setup("hdd+ext4", "fio(partial.fio)")


def written_by(version: int, directory: Path) -> Path:
    """A copy of the file of a version."""
    path = directory / DATABASE
    path.write_bytes(gzip.decompress((FILES / f"version-{version}.sqlite.gz").read_bytes()))
    return path


def test_there_is_a_file_of_each_older_version() -> None:
    found = [re.fullmatch(r"version-(\d+)\.sqlite\.gz", path.name) for path in FILES.iterdir()]
    assert sorted(int(one[1]) for one in found if one) == list(range(1, schema.VERSION))


def expected(version: int) -> list[Trial]:
    """What was recorded, as far as the version could tell it."""
    measured = examples.measured(1)
    if version == 3 and measured.kernel is not None:
        measured = replace(measured, kernel=replace(measured.kernel, modules=None))
    by_others = replace(examples.imported(8), cell=Cell(examples.imported(8).subject, Setup("hdd")))
    trials = [
        measured,
        examples.faulty(2),
        *([examples.stopped(3)] if version >= 7 else ()),
        examples.equal_kernel(4),
        *([examples.imported(5)] if version >= 6 else ()),
        *([baseline("ssd", 5_000.0, 9_000.0), by_others] if version >= 11 else ()),
        *([replace(examples.measured(6), cell=cell(examples.measured(6).commit, Kind.REVERTED, "d" * 40))]
          if version >= 10 else ()),
    ]  # fmt: skip
    ours = {SETUP: HDD} if version < 11 else {}
    trials = [replace(one, cell=Cell(one.subject, ours.get(one.setup, one.setup))) for one in trials]
    # Before version 14 what was counted is derived from what dm-cache showed; since then it is what was derived then.
    # And since the metric of a cache's fill came, it is among that.
    return (
        trials
        if version < 14 or version >= 19
        else [replace(one, runs=tuple(map(_before_filling, one.runs))) for one in trials]
    )


def _before_filling(run: Run) -> Run:
    return replace(run, counters=tuple((name, value) for name, value in run.counters if name != FILLED))


@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize("version", [3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 21, 24, 27])
def test_trials_are_of_the_setup_that_the_settings_say(tmp_path: Path, version: int, readonly: bool) -> None:
    """Or of the disk that was measured alone, under the file system of the settings."""
    trials = dict(enumerate(expected(version), 1))
    setup = SETUP if version >= 11 else HDD
    baselines = {n: trial for n, trial in trials.items() if trial.setup in (alone("ssd"), Setup("hdd"))}
    with Store.open(written_by(version, tmp_path), readonly=readonly) as store:
        assert store.setup == setup
        assert dict(store.baselines()) == baselines
        assert dict(store.trials()) == {n: trial for n, trial in trials.items() if n not in baselines}
        state = store.state()
        assert state is not None
        assert (state.state, state.message) == (State.STOPPED, "interrupted")
        if not readonly:
            more = (replace(examples.stopped(8), cell=Cell(examples.stopped(8).subject, setup)), examples.imported(9))
            numbers = store.add_trials((*more, baseline("hdd", 500.0, 501.0)))
            assert numbers == tuple(range(len(trials) + 1, len(trials) + 4))
            assert dict(store.trials())[numbers[0]] == more[0]
            whole = dict((*store.trials(), *store.baselines()))
            assert [whole[n].setup for n in numbers] == [setup, Setup(), alone("hdd")]
            assert store.database.connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            assert store.database.connection.execute("PRAGMA user_version").fetchone()[0] == schema.VERSION


@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_the_first_versions(tmp_path: Path, version: int, readonly: bool) -> None:
    """The examples were others then."""
    with Store.open(written_by(version, tmp_path), readonly=readonly) as store:
        measured, faulty, equal = (trial for _, trial in store.trials())
        assert {trial.setup for _, trial in store.trials()} == {store.setup} == {HDD}
        assert store.baselines() == ()
        assert [[job.iops_mean for job in run.jobs] for run in measured.runs] == [[1002.25, 8046.0]] * 2
        assert measured.kernel is not None
        assert (measured.kernel.release, measured.kernel.modules) == ("4.12.0-rc3", None)
        assert faulty.fault is not None
        assert (faulty.fault.kind, faulty.fault.cached, faulty.stage) == (FaultKind.PANIC, False, Stage.BOOT)
        assert (equal.same_kernel_as, equal.runs, equal.subject.is_commit) == ("d" * 40, (), True)
        assert store.bisection().old_rev == "v4.11"
        if not readonly:
            fault = Fault(Stage.BUILD, FaultKind.BUILD_ERROR, "x.c:1: error: no", (), cached=True)
            assert store.add_trial(replace(examples.faulty(5), fault=fault)) == 4


@pytest.mark.parametrize("readonly", [True, False])
def test_a_record_that_version_11_wrote_means_what_it_meant(tmp_path: Path, readonly: bool) -> None:
    """A file of that version itself; columns that are taken away from one of today say nothing of its quirks."""
    path = written_by(11, tmp_path)
    trials = (
        *(examples.measured(1), examples.faulty(2), examples.stopped(3)),
        *(examples.equal_kernel(4), examples.imported(5)),
    )
    with Store.open(path, readonly=readonly) as store:
        assert store.bisection() == examples.bisection()
        assert store.trials() == tuple(enumerate(trials, 1))
        assert [fault.message for fault in store.infra_faults()] == ["libvirt is out of reach"]
        assert store.mattering() == frozenset(("a" * 40,))
        assert store.controls() == ()
        state = store.state()
        assert state is not None
        assert state.state is State.STOPPED
        if not readonly:
            store.add_skips(("d" * 40,))
            store.add(Control("now", "box", "b" * 40, Stage.BUILD, (2,), "build error: no"))
            assert [n for n, trial in store.trials() if trial.doubted] == [2]


@pytest.mark.parametrize("readonly", [True, False])
def test_a_record_that_version_13_wrote_means_what_it_meant(tmp_path: Path, readonly: bool) -> None:
    """Its runs were held against read IOPS of the worst job; there was nothing else."""
    path = written_by(13, tmp_path)
    with Store.open(path, readonly=readonly) as store:
        assert [trial.stopped_early for _, trial in store.trials()] == [None, None, EARLY, None, None]
        assert (EARLY.metric, EARLY.over) == ("read.iops", "worst")
        assert [control.trials for control in store.controls()] == [(2,)]
        assert "d" * 40 in store.bisection().skips
        if not readonly:
            other = replace(EARLY, metric="write.bw", over="sum", bound=80.0 * 2**20)
            stopped = examples.stopped(6)
            runs = (*stopped.runs[:-1], replace(stopped.runs[-1], stopped_early=other))
            n = store.add_trial(replace(stopped, runs=runs))
            assert dict(store.trials())[n].stopped_early == other


@pytest.mark.parametrize("readonly", [True, False])
def test_a_record_that_version_15_wrote_means_what_it_meant(tmp_path: Path, readonly: bool) -> None:
    """A trial that a control spoke for was named by the control."""
    path = written_by(15, tmp_path)
    failed = Control("2026-11-21T04:00:00+00:00", "box", "b" * 40, Stage.BUILD, (2,), "build error: gelf.h")
    answered = Control("2026-11-21T05:00:00+00:00", "box", "b" * 40, Stage.BOOT, (4,))
    with Store.open(path, readonly=readonly) as store:
        trials = dict(store.trials())
        assert [n for n, trial in trials.items() if trial.doubted] == [2]
        assert [n for n, trial in trials.items() if trial.vouched_for] == [4]
        assert store.controls() == (failed, answered)
        assert (store.in_flight(), store.next_n) == ((), 5)
        if not readonly:
            store.add(NumberedTrial(5, examples.faulty(5), vouched_by=store.add(replace(answered, trials=()))))
            assert store.controls()[2].trials == (5,)


@pytest.mark.parametrize("readonly", [True, False])
def test_a_record_that_version_17_wrote_means_what_it_meant(tmp_path: Path, readonly: bool) -> None:
    """It knew of no comparisons; what it had in flight belongs to no block."""
    with Store.open(written_by(17, tmp_path), readonly=readonly) as store:
        assert [n for n, _ in store.trials()] == [1, 2, 3, 4, 5, 8]
        assert [n for n, _ in store.baselines()] == [6, 7]
        (one,) = store.in_flight()
        assert one.submitted == Submitted(Work.TRIAL, "e" * 40, 9, "box")
        assert (store.plan, store.blocks(), store.placed(), store.next_n) == (None, (), (), 10)
        assert [trial.doubted for _, trial in store.trials()] == [False, True, False, False, False, False]
        if not readonly:
            id_ = store.add(Submitted(Work.TRIAL, "f" * 40, 10, block=1, arm=0), Ended(one.id, Ending.LOST))
            assert [one.id for one in store.in_flight()] == [id_]


@pytest.mark.parametrize("readonly", [True, False])
def test_a_record_that_version_18_wrote_means_what_it_meant(tmp_path: Path, readonly: bool) -> None:
    """Its arms had no configuration of their own; a comparison that was killed goes on."""
    gcc = Compiler("gcc", "gcc 12.2.0, GNU ld 2.40")
    with Store.open(written_by(18, tmp_path), readonly=readonly) as store:
        assert store.plan is not None
        assert [arm.name for arm in store.plan.arms] == ["v6.1", "without it", "v6.1 (again)", "v6.1 + quiet"]
        assert {(arm.subject.fragment, arm.file) for arm in store.plan.arms} == {("", None)}
        assert store.build_tries() == (BuildTry(gcc, commit(1).sha, ""),)
        (placed,) = store.placed()
        assert (placed.place, placed.trial.subject) == (Place(1, 3), store.plan.arms[3].subject)
        assert len(store.blocks()) == 2
        (one,) = store.in_flight()
        if not readonly:
            store.add(BuildTry(gcc, "a" * 40, "", "e" * 64), Ended(one.id, Ending.LOST))
            assert store.build_tries()[1].fragment == "e" * 64


@pytest.mark.parametrize("readonly", [True, False])
def test_a_record_that_version_19_wrote_means_what_it_meant(tmp_path: Path, readonly: bool) -> None:
    """Its comparison had one budget for good; one that ended by it can be given more time."""
    with Store.open(written_by(19, tmp_path), readonly=readonly) as store:
        assert store.plan is not None
        assert store.plan.extent.budget == Budget(3600.0)
        assert store.plan.arms[4].subject.fragment == "e" * 64
        last = store.state()
        assert last is not None
        assert (last.state, last.message) == (State.MEASURED, "another block would end after the budget of 1 h")
        assert store.budgets() == ()
        if not readonly:
            store.add(Budget(7200.0, 3500.0))
            assert store.budgets() == (Budget(7200.0, 3500.0),)


@pytest.mark.parametrize("readonly", [True, False])
def test_a_record_that_version_20_wrote_means_what_it_meant(tmp_path: Path, readonly: bool) -> None:
    """No search of it ended for want of time, it knew nothing of earlier runs or of what a commit makes again.

    Its caches were filled by whole runs, and its runs were held against the line alone.
    """
    with Store.open(written_by(20, tmp_path), readonly=readonly) as store:
        state = store.state()
        assert state is not None
        assert (state.state, state.message, state.out_of_time) == (State.STOPPED, "interrupted", False)
        assert (store.budgets(), store.spent_s()) == ((), 600.0)
        assert store.earlier() == Earlier()
        assert store.mattering() == frozenset({expected(20)[0].commit.sha})
        trials = dict(store.trials())
        assert {trial.fill for trial in trials.values()} == {Fill.WHOLE}
        assert trials[3].stopped_early == EARLY
        assert (EARLY.against, EARLY.apart) == ("", None)
        if not readonly:
            _written_by_this_version(store)


@pytest.mark.parametrize("readonly", [True, False])
def test_a_record_that_version_21_wrote_means_what_it_meant(tmp_path: Path, readonly: bool) -> None:
    """Nobody had looked how fast the host's cores were."""
    with Store.open(written_by(21, tmp_path), readonly=readonly) as store:
        assert [one for _, trial in store.trials() if (one := speed_of(trial, 0.15)) is not None] == []
        if not readonly:
            made = examples.measured(9)
            runs = tuple(replace(run, contention=fakes.at_speed(412.5, after=400.0)) for run in made.runs)
            n = store.add_trial(replace(made, runs=runs))
            assert dict(store.trials())[n].runs == runs


@pytest.mark.parametrize("readonly", [True, False])
def test_a_record_that_version_27_wrote_means_what_it_meant(tmp_path: Path, readonly: bool) -> None:
    """Nobody had looked for the steady part of a run."""
    with Store.open(written_by(27, tmp_path), readonly=readonly) as store:
        jobs = [job for _, trial in store.trials() for run in trial.runs for job in run.jobs]
        assert {(job.steady_iops, job.settled_after_s) for job in jobs} == {(None, None)}
        if not readonly:
            (run,) = examples.imported(9).runs
            split = replace(run, jobs=tuple(replace(job, steady_iops=3464.5, settled_after_s=16.0) for job in run.jobs))
            n = store.add_trial(replace(examples.imported(9), runs=(split,)))
            assert dict(store.trials())[n].runs == (split,)


def _written_by_this_version(store: Store) -> None:
    store.set_state(State.NARROWED, "", out_of_time=True)
    state = store.state()
    assert state is not None
    assert state.out_of_time
    settled = EarlyStop(StopReason.SETTLED, 120.0, 97.5, 95.0, "the cache was full for 90 s", FILLED)
    clear = replace(EARLY, against="a" * 40, apart=7.5)
    empty, full = examples.stopped(9).runs
    runs = (replace(empty, stopped_early=settled), replace(full, stopped_early=clear))
    n = store.add_trial(replace(examples.stopped(9), runs=runs, fill=Fill.SHORT))
    read = dict(store.trials())[n]
    assert (read.fill, read.filled_short, read.runs) == (Fill.SHORT, True, runs)


@pytest.mark.parametrize("readonly", [True, False])
def test_a_record_that_version_24_wrote_means_what_it_meant(tmp_path: Path, readonly: bool) -> None:
    """Its work was timed by a wall clock, which was set back during the second trial."""
    with Store.open(written_by(24, tmp_path), readonly=readonly) as store:
        assert store.spent_s() == 600.0
        if not readonly:
            id_ = store.add(Submitted(Work.TRIAL, "f" * 40, 9, "box"))
            store.add(Ended(id_, Ending.DONE))
            assert 600.0 <= store.spent_s() < 660.0
