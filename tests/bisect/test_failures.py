"""Faults are believed while a sound end works: a host that breaks costs no commit, a commit that breaks no run."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.bisect import session
from bisector.campaign import life
from bisector.cli import main
from bisector.config import RetryPolicy, Settings
from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.core.events import Planned
from bisector.core.subject import Subject
from bisector.core.trial import AttemptFailed, Control, Fault, FaultKind, Stage, Trial, TrialRefused
from bisector.core.verdict import State, Verdict
from bisector.store.facts import InfraFault, Skip
from bisector.store.store import Store
from tests import fakes
from tests.bisect.lab import BOTH, BY_GIT, DEFAULTS, FAR_IOPS, Lab
from tests.git import histories
from tests.recorded_run import RecordedRun

INNER = [f"c{number}" for number in range(1, 16)]
NO_ROOT = Fault(Stage.BOOT, FaultKind.PANIC, "VFS: Unable to mount root fs")
NO_HEADER = Fault(Stage.BUILD, FaultKind.BUILD_ERROR, "fatal error: gelf.h: No such file or directory")
NO_SPACE = Fault(Stage.WORKLOAD, FaultKind.IO_ERROR, "fio: job partial: EIO")
NOT_READ = AttemptFailed("the network went away", "", Stage.BOOT, "box")


def faulty(lab: Lab) -> list[Trial]:
    return [trial for trial in lab.trials() if trial.fault is not None]


@pytest.mark.parametrize(
    ("fault", "settings"),
    [(NO_ROOT, BY_GIT), (NO_HEADER, DEFAULTS), (NO_SPACE, BY_GIT)],
    ids=["image", "header", "disk"],
)
def test_a_host_that_breaks_in_the_middle_costs_no_commit(line: Lab, fault: Fault, settings: Settings) -> None:
    line.settings = settings
    broken = line.engine("c3", faults=dict.fromkeys(INNER, fault), broken={fault.stage: fault})
    with pytest.raises(InfraError, match=r"the fixed end .* which was measured before, fails now: ") as caught:
        line.bisect(broken)
    assert f"controls/{fault.stage}-{line.shas['c16'][:12]}" in caught.value.hint
    assert caught.value.skippable == ""
    assert len({trial.commit.sha for trial in faulty(line)}) == 3
    assert all(trial.doubted for trial in faulty(line))
    (control,) = line.facts(Control)
    assert (control.sha, control.stage, control.failed) == (line.shas["c16"], fault.stage, fault.sentence)
    view = line.view()
    assert {trial.verdict for trial in view.trials if trial.trial.fault} == {Verdict.WEAK}
    # Put right, the run goes on, and what was doubted is measured where it is wanted.
    fixed = line.engine("c3")
    line.events.clear()
    assert line.finds(fixed) == "c3"
    again = [event.purpose for event in line.events if isinstance(event, Planned) and "again: " in event.purpose]
    assert again
    assert all(text.endswith(f"again: {fault.kind}, doubted since a sound end failed, too") for text in again)
    assert not {trial.commit.sha for trial in faulty(line)}.isdisjoint(fixed.measured)
    anew = {line.names[one.commit.sha] for one in fixed.requests if one.anew}
    assert anew <= (set(INNER) if fault is NO_HEADER else set())
    assert bool(anew) is (fault is NO_HEADER)


def test_faults_of_the_commits_themselves_stand_when_the_end_still_works(by_bayes: Lab) -> None:
    line = by_bayes
    engine = line.engine("c8", faults=dict.fromkeys(INNER[3:12], NO_ROOT))
    outcome = line.bisect(engine)
    assert line.shas["c8"] in {commit.sha for commit in outcome.candidates}
    assert engine.controls
    assert set(engine.controls) == {(line.shas["c16"], Stage.BOOT)}
    asked = [n for control in line.facts(Control) for n in control.trials]
    assert len(asked) == len(set(asked))
    assert all(control.answered for control in line.facts(Control))
    assert not any(trial.doubted for trial in line.trials())
    assert any(text.endswith("those are of the commits themselves") for text in line.notes)


def test_an_answer_that_rests_on_a_skip_waits_for_the_end(tmp_path: Path) -> None:
    # One commit between the ends: in a longer range git's choice beside a skipped commit follows from hashes.
    short, faults = Lab(tmp_path, histories.linear(3), "c0", "c2", BY_GIT), {"c1": fakes.PANIC}
    with pytest.raises(InfraError, match="fails now: panic: VFS"):
        short.bisect(short.engine("c1", faults=faults, broken={"boot": NO_ROOT}))
    outcome = short.bisect(short.engine("c1", faults=faults))
    assert outcome.state is State.NARROWED
    assert [control.answered for control in short.facts(Control)] == [False, True]


def test_one_slow_build_of_the_end_doubts_nothing(line: Lab) -> None:
    """A host that is busy for an hour makes a deadline expire; a compiler's error cannot be chance."""
    faults = dict.fromkeys(INNER[3:12], NO_HEADER)
    engine = line.engine("c8", faults=faults, broken={"build": [fakes.BUILD_TIMEOUT, *[None] * 9]})
    assert line.bisect(engine).state is State.NARROWED
    assert engine.controls[:2] == [(line.shas["c16"], Stage.BUILD)] * 2
    assert all(control.answered for control in line.facts(Control))
    assert not any(trial.doubted for trial in faulty(line))


def test_an_end_that_is_not_built_in_time_twice_stops_the_run(line: Lab) -> None:
    faults = dict.fromkeys(INNER[3:12], NO_HEADER)
    engine = line.engine("c8", faults=faults, broken={"build": fakes.BUILD_TIMEOUT})
    with pytest.raises(InfraError, match="fails now: "):
        line.bisect(engine)
    assert engine.controls == [(line.shas["c16"], Stage.BUILD)] * 2


# Failures that look like infrastructure errors


def test_a_commit_that_breaks_the_network_is_skipped(by_bayes: Lab) -> None:
    line = by_bayes
    engine = line.search("c3", infra={f"c{n}": 99 for n in range(6, 11)})
    blamed = faulty(line)
    assert blamed
    for trial in blamed:
        assert trial.fault is not None
        assert trial.fault.sentence == "never reached SSH: the network went away"
        assert trial.vouched_for
        assert trial.control is not None
        assert trial.control.stage is Stage.BOOT
        assert engine.attempts[trial.commit.sha] == 3  # twice, and once more after the end answered
    assert len({trial.commit.sha for trial in blamed}) == len(blamed)  # believed at once
    assert len(line.facts(InfraFault)) == 3 * len(blamed)
    plans = [event for event in line.events if isinstance(event, Planned)]
    again = next(index for index, plan in enumerate(plans) if "does it still work" in plan.purpose)
    commit, end, once_more = plans[again - 1 : again + 2]
    assert (end.commit.sha, end.n) == (line.shas["c16"], commit.n)
    assert once_more.commit == commit.commit
    assert once_more.purpose == f"once more, the fixed end {line.shas['c16'][:12]} still works"


def test_trouble_that_passes_while_the_end_is_tried_is_no_commits(line: Lab) -> None:
    line.search("c3", infra={"c8": 2})
    assert faulty(line) == []
    assert [control.trials for control in line.facts(Control)] == [()]
    assert [fault.message for fault in line.facts(InfraFault)] == ["the network went away"] * 2
    assert any("network went away" in text for text in line.notes)


@pytest.mark.parametrize("stage", [Stage.CHECKOUT, None], ids=["checkout", "without facts"])
def test_trouble_for_which_no_end_can_speak_stops_the_run_and_costs_no_commit(line: Lab, stage: Stage | None) -> None:
    """A partial clone fetches a commit's files when it is checked out; those of the ends are there already."""
    engine = line.far_engine("c3", infra=dict.fromkeys(INNER, 12), infra_stage=stage)
    with pytest.raises(AttemptFailed, match=r"^the network went away$") as caught:
        line.bisect(engine)
    first = caught.value.skippable
    assert line.names[first] in INNER
    assert engine.attempts == {first: RetryPolicy().attempts, line.shas["c0"]: 1, line.shas["c16"]: 1}
    assert engine.controls == []
    assert faulty(line) == []
    line.search("c3", fast_iops=FAR_IOPS)


def test_such_trouble_is_waited_out(line: Lab) -> None:
    line.search("c3", infra={"c8": RetryPolicy().attempts - 1}, infra_stage=None)
    assert faulty(line) == []


@pytest.mark.parametrize("end_now", [NOT_READ, NO_ROOT], ids=["alike", "otherwise"])
def test_where_the_end_fails_too_it_is_ours(line: Lab, end_now: Fault | Exception) -> None:
    broken: Mapping[str, object] = {"boot": end_now}
    with pytest.raises(AttemptFailed, match=r"the fixed end .* which was measured before, fails ") as caught:
        line.bisect(line.engine("c3", infra=dict.fromkeys(INNER, 99), broken=broken))
    assert caught.value.message.endswith(
        "alike" if end_now is NOT_READ else "now, too: panic: VFS: Unable to mount root fs"
    )
    assert line.names[caught.value.skippable] in INNER
    assert caught.value.hint
    assert faulty(line) == []
    line.search("c3")


def test_a_commit_that_makes_the_input_look_wrong_is_skipped(line: Lab) -> None:
    engine = line.search("c3", refused={f"c{n}": 99 for n in range(6, 11)})
    (fault, *_) = (trial.fault for trial in faulty(line))
    assert fault is not None
    assert fault.sentence == "command failed: the guest's root disk is full"
    assert set(engine.controls) == {(line.shas["c16"], Stage.WORKLOAD)}


def test_input_that_is_wrong_for_the_end_too_stops_with_its_message(line: Lab) -> None:
    refused = TrialRefused("the guest's root disk is full", "the image needs some free space")
    broken: Mapping[str, object] = {"workload": refused}
    with pytest.raises(TrialRefused, match=r"^the guest's root disk is full$") as caught:
        line.bisect(line.engine("c3", refused=dict.fromkeys(INNER, 99), broken=broken))
    assert caught.value.hint == "the image needs some free space"
    assert line.names[caught.value.skippable] in INNER


@pytest.mark.parametrize("end", ["c0", "c16"])
@pytest.mark.parametrize(("table", "kind"), [("infra", AttemptFailed), ("refused", TrialRefused)])
def test_of_an_end_nothing_is_blamed_on_the_kernel_and_it_cannot_be_left_out(
    line: Lab, end: str, table: str, kind: type[BisectorError]
) -> None:
    engine = line.engine("c3", **{table: {end: 99}})
    with pytest.raises(kind) as caught:
        line.bisect(engine)
    assert caught.value.skippable == ""
    assert engine.controls == []
    assert line.facts(Control) == ()


def test_figures_of_another_commit_are_none_of_this_one(by_bayes: Lab) -> None:
    """A result that was mixed up would put the new side where the old one is."""
    line = by_bayes

    def of_the_new_end(trial: Trial) -> Trial:
        new = replace(trial.commit, sha=line.shas["c16"])
        return replace(fakes.trial(new, fakes.FAST_IOPS), cell=replace(trial.cell, subject=Subject(new)))

    line.search("c7", mixed_up={1: of_the_new_end, 4: of_the_new_end})
    assert ["answered with" in one.message for one in line.facts(InfraFault)] == [True, True]


# A person gives up on a commit, and the bisection goes on without it


def give_up(lab: Lab, *names: str) -> None:
    with lab._store() as store:
        store.add(*(Skip(lab.shas[name]) for name in names))


@BOTH
def test_the_commit_that_stops_a_run_is_named_and_can_be_left_out(line: Lab, settings: Settings) -> None:
    line.settings = settings
    broken = {"boot": AttemptFailed("the network went away")}
    stuck = line.engine("c3", infra={f"c{n}": 99 for n in range(7, 10)}, broken=broken)
    with pytest.raises(AttemptFailed, match="network went away") as caught:
        line.bisect(stuck)
    assert line.names[caught.value.skippable] in ("c7", "c8", "c9")
    give_up(line, "c7", "c8", "c9")
    outcome = line.bisect(stuck)
    assert line.found(outcome) == "c3"
    assert f"git bisect skip {line.shas['c8']}" in line.log


def test_a_commit_that_was_begun_is_not_gone_on_with(line: Lab) -> None:
    engine = line.killed(line.engine("c3", busy={"c8": 99}, kill_at=4))
    begun = line.names[line.trials()[-1].commit.sha]
    give_up(line, begun)
    before = len(engine.measured)
    assert line.finds(engine) == "c3"
    assert line.shas[begun] not in engine.measured[before:]


@pytest.fixture
def stopped(tmp_path: Path) -> RecordedRun:
    return RecordedRun(tmp_path, histories.linear(9))


def test_recorded_all_or_none(stopped: RecordedRun) -> None:
    with Store.open(stopped.run.database) as store:
        with pytest.raises(UserError, match="'nope'"):
            session.skip(store, (stopped.shas["c4"], "nope"))
        assert store.bisection().skips == ()
        session.skip(store, (stopped.shas["c4"][:12], "main~2"))
        assert store.bisection().skips == (stopped.shas["c4"], stopped.shas["c6"])


@pytest.mark.parametrize(("rev", "words"), [("nope", "unknown revision"), ("main", "an end of the range")])
def test_what_cannot_be_skipped_is_refused_before_anything_begins(
    stopped: RecordedRun, rev: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", "--run-dir", str(stopped.run.path), "--skip", rev]) == 2
    assert words in capsys.readouterr().err
    with Store.open(stopped.run.database) as store:
        assert store.state() is None


def test_how_to_go_on_without_the_commit_is_told(stopped: RecordedRun) -> None:
    error = InfraError("no luck", "look there")
    error.skippable = stopped.shas["c4"]
    with Store.open(stopped.run.database) as store:
        with pytest.raises(InfraError) as caught, life.ends_recorded(stopped.run, store):
            raise error
        state = store.state()
    resume = f"bisector resume --run-dir {stopped.run.path}"
    assert caught.value.hint.split("\n  ") == [
        "look there",
        f"go on with: {resume}",
        f"or without that commit: {resume} --skip {stopped.shas['c4'][:12]}",
    ]
    assert state is not None
    assert state.state is State.STOPPED
