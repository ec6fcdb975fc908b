"""What is compared, and the blocks of it, come back as they were added."""

from dataclasses import replace
from pathlib import Path

from bisector.config import Settings, options
from bisector.core.subject import Cell, Kind, Setup, Subject
from bisector.store.facts import (
    Absent,
    Arm,
    Block,
    Ended,
    Ending,
    Extent,
    NumberedTrial,
    Place,
    Placed,
    Plan,
    RunHeader,
    Submitted,
    Work,
)
from bisector.store.log import DATABASE
from bisector.store.store import Store
from tests.examples import commit, run, trial
from tests.store import examples


def settings(stack: str) -> Settings:
    return options.load({"storage.stack": stack}, directory=Path("/")).settings


ARMS = (
    Arm("v6.1", Subject(commit(1))),
    Arm("without it", Subject(commit(2), Kind.REVERTED, "d" * 40)),
    Arm("v6.1 (again)", Subject(commit(1))),
    Arm("v6.1 + quiet", Subject(commit(1), parameters="quiet")),
    Arm("v6.1 + hz.config", Subject(commit(1), fragment="e" * 64), Path("/run/inputs/hz.config")),
)
PLAN = Plan(
    ARMS,
    (settings("lvmcache"), settings("hdd")),
    Extent(7, 6, until=0.05, budget_s=3600.0, delta=0.1),
    (Absent(0, 1, "needs CONFIG_DM_CACHE"),),
)


def row() -> RunHeader:
    return RunHeader.of(PLAN.setups[0], Path("/src/linux"))


def test_a_plan_comes_back(tmp_path: Path) -> None:
    with Store.create(tmp_path / DATABASE, row(), plan=PLAN) as store:
        assert store.plan == PLAN
        assert [str(one.setup) for one in PLAN.setups] == [
            "fio(partial.fio) on lvmcache(ssd,hdd)+ext4",
            "fio(partial.fio) on hdd+ext4",
        ]
    with Store.create(tmp_path / "other", examples.bisection()) as store:
        assert store.plan is None
    with Store.open(tmp_path / DATABASE, readonly=True) as store:
        assert store.plan == PLAN
        assert (store.is_search, store.facts(Block), store.placed()) == (False, (), ())


def test_the_inputs_of_a_plan_move_with_its_directory(tmp_path: Path) -> None:
    (inputs := tmp_path / "run" / "inputs").mkdir(parents=True)
    (job := inputs / "mine.fio").touch()
    (own := inputs / "hz.config").touch()
    setups = [replace(one, workload=one.workload.with_inputs({"job": job})) for one in PLAN.setups]
    plan = replace(PLAN, arms=(*ARMS[:-1], replace(ARMS[-1], file=own)), setups=tuple(setups))
    with Store.create(tmp_path / "run" / DATABASE, row(), plan=plan) as store:
        assert store.plan == plan
    with Store.open(inputs.parent.rename(tmp_path / "moved") / DATABASE, readonly=True) as store:
        moved = store.plan
    assert moved is not None
    there = tmp_path / "moved" / "inputs"
    assert moved.arms[-1].file == there / own.name
    assert [one.workload.inputs["job"] for one in moved.setups] == [there / job.name] * 2


def test_a_fragment_of_an_arm_is_the_last_of_the_settings() -> None:
    settings_of = [PLAN.settings(1, arm) for arm in range(len(ARMS))]
    fragments = settings_of[0].kernel.fragments
    assert [one.kernel.fragments for one in settings_of] == [*[fragments] * 4, (*fragments, "/run/inputs/hz.config")]
    assert PLAN.with_fragment == (4,)


def test_blocks_and_the_trials_in_them_come_back(tmp_path: Path) -> None:
    blocks = Block(1, 1, 1, 99, (2, 0)), Block(2, 0, 1, 2**31, (0, 2, 1))
    on_hdd = Setup("hdd+ext4", "fio(partial.fio)")
    first = replace(trial(commit(1), run("once", 500.0)), cell=Cell(ARMS[0].subject, on_hdd))
    second = trial(commit(1), run("empty", 500.0), run("full", 600.0))
    with Store.create(tmp_path / DATABASE, row(), plan=PLAN) as store:
        store.add(*blocks)
        submitted = Submitted(Work.TRIAL, commit(1).sha, 1, block=1, arm=2)
        id_ = store.add(submitted)
        assert [(one.id, one.fact) for one in store.in_flight()] == [(id_, submitted)]
        store.add(NumberedTrial(1, first, place=Place(1, 2)), Ended(id_, Ending.DONE))
        store.add(NumberedTrial(2, second, place=Place(2, 0)))
        assert store.facts(Block) == blocks
        assert store.placed() == (Placed(1, Place(1, 2), first), Placed(2, Place(2, 0), second))
        assert (store.next_n, store.in_flight()) == (3, ())
