"""A comparison in a real repository and store: what is measured, what goes wrong, and what is on record then."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.campaign.instructions import Done
from bisector.cli import main
from bisector.core.errors import InfraError, Interrupted, UserError
from bisector.core.events import Note, TrialJudged
from bisector.core.objective import MetricAbsent
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.status.blocks import BlockState
from bisector.store.facts import Ended, Ending, InfraFault, Submitted, Work
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest
from tests import examples, fakes
from tests.compare import planted
from tests.compare.desk import Desk
from tests.git import histories


def test_every_arm_is_measured_in_every_block(desk: Desk) -> None:
    run = desk.begin("c0", "c3")
    assert desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    blocks = desk.blocks()
    assert [(block.setup, block.round) for block in blocks.blocks] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert [one.n for one in blocks.placed] == list(range(1, 9))
    of_requests = [(one.commit.sha, str(one.cell.setup), one.seed) for one in desk.bench.requests]
    setups = ("fio(partial.fio) on lvmcache(ssd,hdd)+ext4", "fio(partial.fio) on hdd+ext4")
    arms = (desk.shas["c0"], desk.shas["c3"])
    assert of_requests == [
        (arms[arm], setups[block.setup], block.seed) for block in blocks.blocks for arm in block.arms
    ]
    assert desk.state() == (State.MEASURED, "2 blocks on each setup")
    with Store.open(run.database) as store:
        assert store.in_flight() == ()


def test_a_trial_is_measured_with_the_settings_of_its_setup(desk: Desk) -> None:
    desk.begin("c0", "c3")
    desk.go_on()
    for request in desk.bench.requests:
        assert request.settings is not None
        assert request.settings.setup == request.cell.setup
        assert {Path(one).name for one in request.settings.kernel.fragments} == {
            "1-tiny.config", "2-vm.config", "3-storage-lvmcache.config",
        }  # fmt: skip
    assert len({one.settings.kernel for one in desk.bench.requests if one.settings}) == 1


def test_a_fault_that_was_believed_is_tried_once_more_by_each_resume(desk: Desk) -> None:
    desk.bench.faults = {desk.shas["c3"]: fakes.PANIC}
    desk.begin("c0", "c3", stacks=("hdd",))
    with pytest.raises(UserError, match=r"nothing can be compared: .*: panic: Kernel panic"):
        desk.go_on()
    faults = [one.trial.fault for one in desk.blocks().placed]
    with pytest.raises(UserError, match=r"nothing can be compared: .*: panic: Kernel panic"):
        desk.go_on()
    again = [one.trial.fault for one in desk.blocks().placed]
    assert (faults.count(fakes.PANIC), again.count(fakes.PANIC)) == (2, 3)
    desk.bench.faults = {}
    assert desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    assert len(desk.blocks().counted(0)) == 2


def test_what_was_measured_is_told_before_the_build_is_removed(
    desk: Desk, at_the_desk: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = desk.begin("c0", "c3", stacks=("hdd",))
    (run.path / "build").mkdir()
    monkeypatch.setattr("bisector.doctor.checks.warn_again", lambda *_: None)
    told = fakes.told_before_removal(monkeypatch, lambda: capsys.readouterr().out)
    assert main(["resume", "--run-dir", str(run.path)]) == 0
    assert told["build"].endswith("measured: 2 blocks on each setup\n")


def test_a_weak_block_is_repeated_and_the_host_is_waited_for(desk: Desk) -> None:
    desk.bench.busy_n = frozenset((2,))
    desk.begin("c0", "c3", stacks=("hdd",))
    desk.go_on()
    blocks = desk.blocks()
    assert [blocks.state(block) for block in blocks.blocks] == [BlockState.WEAK, BlockState.DONE, BlockState.DONE]
    assert [request.again for request in desk.bench.requests] == [False, False, True, True, False, False]
    assert Note("block 1 does not count") in desk.told
    judged = [event for event in desk.told if isinstance(event, TrialJudged)]
    assert [event.word for event in judged] == ["measured", "weak", *["measured"] * 4]
    assert [bool(event.why) for event in judged] == [False, True, *[False] * 4]


def test_trouble_of_the_host_is_tried_again_and_is_no_trial(desk: Desk) -> None:
    desk.bench.infra_n = {3: 2}
    desk.begin("c0", "c3", stacks=("hdd",))
    desk.go_on()
    assert desk.bench.waited_s == pytest.approx([5.0, 60.0], abs=3)
    blocks = desk.blocks()
    assert [one.n for one in blocks.placed] == [1, 2, 3, 4]
    assert blocks.count(BlockState.DONE) == len(blocks.blocks) == 2
    assert [one.message for one in desk.facts(InfraFault)] == ["the network went away"] * 2
    assert [one.ending for one in desk.facts(Ended)].count(Ending.FAILED) == 2


def test_what_is_another_arms_is_no_trial_of_this_one(desk: Desk) -> None:
    run = desk.begin("c0", "c3", stacks=("hdd",))
    desk.bench.mixed_up[2] = lambda _: planted.trial(desk.bench.requests[0].cell, 9.0)
    desk.go_on()
    with Store.open(run.database, readonly=True) as store:
        assert "answered with" in store.facts(InfraFault)[0].message
        assert all(one.trial.runs[-1].jobs[0].iops_mean != 9.0 for one in store.placed())


def test_trouble_that_stays_stops_the_run_which_goes_on_later(desk: Desk) -> None:
    desk.bench.infra_n = {3: 4}
    run = desk.begin("c0", "c3", stacks=("hdd",))
    desk.bench.leaves = run.path
    with pytest.raises(InfraError) as caught:
        desk.go_on()
    (block,) = (one for one in desk.blocks().blocks if one.n == 2)
    name = desk.blocks().plan.arms[block.arms[0]].name
    assert caught.value.message == f"{name} on fio(partial.fio) on hdd+ext4, block 2, stage boot: the network went away"
    assert f"its logs are in {run.path}/trials/0003-{name[:12]}" in caught.value.hint
    assert f"bisector resume --run-dir {run.path}" in caught.value.hint
    assert desk.state()[0] is State.STOPPED
    assert desk.held() == {desk.shas["c0"], desk.shas["c3"]}
    assert desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    assert desk.held() == set()
    assert [one.n for one in desk.blocks().placed] == [1, 2, 3, 4]


def test_another_clone_in_the_place_of_the_runs_is_told_of(desk: Desk) -> None:
    desk.bench.infra_n = {3: 4}
    desk.begin("c0", "c3", stacks=("hdd",))
    with pytest.raises(InfraError):
        desk.go_on()
    (desk.place / "linux").rename(desk.place / "moved")
    histories.build(desk.place / "linux", histories.linear(2))
    with pytest.raises(UserError, match=rf"linux has no {desk.shas['c3'][:12]} \({desk.shas['c3']}\), which is to be"):
        desk.go_on()
    assert "the network went away" in desk.state()[1]


def test_a_host_that_is_always_busy_stops_the_run_at_the_end(desk: Desk) -> None:
    desk.bench.busy_n = frozenset(range(1, 99))
    desk.begin("c0", "c3", stacks=("hdd",))
    with pytest.raises(InfraError, match=r"fio\(partial.fio\) on hdd\+ext4: no sound block in 4"):
        desk.go_on()
    assert desk.blocks().count(BlockState.WEAK) == 4
    desk.bench.busy_n = frozenset()
    assert desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    assert len(desk.blocks().blocks) == 6


def test_what_cannot_be_decided_by_ends_the_run(desk: Desk) -> None:
    desk.begin("c0", "c3", stacks=("lvmcache",), bisect__metric="cache.hit_ratio")
    with pytest.raises(MetricAbsent, match=r"has no cache\.hit_ratio"):
        desk.go_on()
    assert len(desk.bench.requests) == 1
    assert desk.state()[0] is State.FAILED


def test_a_job_without_the_metric_ends_the_run_at_once(desk: Desk) -> None:
    def lacking(request: TrialRequest, trial: Trial) -> Trial:
        *before, run = trial.runs
        has, lacks, *others = (replace(job, clat_mean_ns=5.0) for job in run.jobs)
        jobs = (has, replace(lacks, clat_mean_ns=None), *others)
        return replace(trial, runs=(*before, replace(run, jobs=jobs)))

    desk.bench.also = lacking
    desk.begin("c0", "c3", stacks=("hdd",), bisect__metric="read.clat.mean")
    with pytest.raises(MetricAbsent, match=r"has no read\.clat\.mean, and other jobs of the"):
        desk.go_on()
    assert len(desk.bench.requests) == 1


def test_ctrl_c_leaves_what_was_measured(desk: Desk) -> None:
    run = desk.begin("c0", "c3", stacks=("hdd",))
    stops = [2]

    def interrupted(request: TrialRequest) -> None:
        if request.n in stops:
            stops.remove(request.n)
            raise KeyboardInterrupt

    desk.bench.before = interrupted
    with pytest.raises(Interrupted):
        desk.go_on()
    assert desk.state() == (State.STOPPED, "interrupted")
    with Store.open(run.database) as store:
        (left,) = store.in_flight()
        assert left.fact == Submitted(Work.TRIAL, left.fact.sha, 2, fakes.HOST, block=1, arm=left.fact.arm)
    desk.go_on()
    assert any(
        isinstance(event, Note) and "trial 2, of " in event.text and "is lost" in event.text for event in desk.told
    )
    why = "interrupted after trial 1: its process ended"
    assert Note(f"block 1 does not count and is begun anew: {why}") in desk.told
    blocks = desk.blocks()
    assert [one.n for one in blocks.placed] == [1, 2, 3, 4, 5]
    assert [blocks.why(block) for block in blocks.blocks] == [why, "", ""]
    assert blocks.count(BlockState.DONE) == 2


def test_clone_that_a_workload_searches_is_made_before_the_first_trial(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(desk.place / "cache"))
    search = {"workload__gitgrep__pattern": "dm", "workload__gitgrep__path": "drivers"}
    run = desk.begin("c0", "c3", stacks=("hdd",), **search)
    (setup,) = desk.blocks().plan.setups
    assert setup.workload.inputs["bundle"].is_relative_to(run.path)
    assert setup.workload.inputs["bundle"].is_file()


def test_a_percentile_of_few_ios_is_told_at_the_first_trial(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = examples.job
    monkeypatch.setattr(examples, "job", lambda *words: replace(usual(*words), total_ios=312))
    desk.begin("c0", "c3", stacks=("hdd", "ssd"), bisect__metric="read.clat.p99")
    desk.go_on()
    said = [event.text for event in desk.told if isinstance(event, Note) and "of 312 I/Os" in event.text]
    assert [text.partition(": read.clat.p99 of")[0].rpartition(" ")[2] for text in said] == ["hdd+ext4", "ssd+ext4"]
