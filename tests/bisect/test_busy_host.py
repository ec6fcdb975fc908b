"""A host that was busy for a while costs time, never an answer; one that changes is judged by lines of its own."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.config import Settings
from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.trial import Era, Trial
from bisector.core.verdict import State, Verdict
from bisector.report.reporting import hosts_of
from bisector.status import from_record
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.lab import BOTH, BY_GIT, DEFAULTS, Lab
from tests.examples import BUSY, ERA, STARTED_AT, UPGRADED
from tests.git import histories
from tests.recorded_run import FAST, SLOW, RecordedRun

REPEATS = DEFAULTS.bisect.max_repeats


@pytest.mark.parametrize("end", ["c0", "c16"])
def test_an_end_that_was_kept_from_being_measured_is_measured_anew(line: Lab, end: str) -> None:
    busy = line.engine("c7", busy={end: 99})
    with pytest.raises(InfraError, match=f"end {line.shas[end][:12]} could not be measured: no sound measurement in 4"):
        line.bisect(busy)
    assert busy.measured.count(line.shas[end]) == 1 + REPEATS
    line.search("c7")


def test_an_end_with_a_fault_of_its_own_is_still_no_end(line: Lab) -> None:
    for _ in range(2):
        with pytest.raises(EndsDoNotReproduce, match="cannot be judged: panic"):
            line.bisect(line.engine("c7", faults={"c16": fakes.PANIC}))


def kept_from(lab: Lab, name: str) -> fakes.FakeExecutor:
    """A bench too busy for one commit, on which no end without a commit works, by which it could be known, too."""
    return lab.engine("c7", busy={name: 99}, changed_fault=fakes.PANIC)


@BOTH
def test_what_was_given_up_is_tried_again_by_each_next_process(line: Lab, settings: Settings) -> None:
    """The culprit itself was never measured soundly; in a quiet night it is."""
    line.settings = settings
    for _ in range(2):
        busy = kept_from(line, "c7")
        outcome = line.bisect(busy)
        assert outcome.state is State.NARROWED
        assert [commit.sha for commit in outcome.skipped] == [line.shas["c7"]]
        assert busy.measured.count(line.shas["c7"]) == 1 + REPEATS
        assert settings is DEFAULTS or f"git bisect skip {line.shas['c7']}" in line.log
    resumed = line.engine("c7")
    outcome = line.bisect(resumed)
    assert outcome.candidates[0].sha == line.shas["c7"]
    assert outcome.skipped == ()
    assert resumed.measured[0] == line.shas["c7"]
    if settings is BY_GIT:
        assert outcome.state is State.FOUND


def test_only_what_was_tried_before_waits_for_a_quiet_host(line: Lab) -> None:
    engine = line.engine("c7", busy={"c8": 1})
    line.bisect(engine)
    seen: set[str] = set()
    for one in engine.requests:
        assert one.again is (one.commit.sha in seen)
        seen.add(one.commit.sha)


def test_an_answer_needs_no_weak_trial_once_more(by_bayes: Lab) -> None:
    """It would be cancelled because of the answer and, since it is the last one, begun again, for ever."""
    by_bayes.search("c7")
    other = next(one for one in by_bayes.trials() if by_bayes.names.get(one.commit.sha) not in ("c0", "c7", "c16"))
    with by_bayes._store() as store:
        store.add_trials([fakes.trial(other.commit, contention=BUSY)])
    assert not by_bayes.search("c7").requests


def test_resume_goes_on_with_a_run_that_was_narrowed_by_a_busy_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = RecordedRun(tmp_path, histories.linear(3), {"bisect.strategy": "git"})
    recorded.add("c0", SLOW)
    recorded.add("c2", FAST)
    engine = fakes.FakeExecutor(fakes.among([recorded.shas["c1"], recorded.shas["c2"]]), culprit="c1",
                              busy={recorded.shas["c1"]: 1 + REPEATS})  # fmt: skip

    def state() -> State:
        with Store.open(recorded.run.database, readonly=True) as store:
            return from_record.view(recorded.run, store).state

    monkeypatch.setattr("bisector.commands.measuring.here", fakes.equipped(engine))
    resume = ["resume", "--quiet", "--run-dir", str(recorded.run.path)]
    assert main(resume) == 3
    assert state() is State.NARROWED
    assert main(resume) == 0
    assert state() is State.FOUND
    measured = len(engine.measured)
    assert main(resume) == 0
    assert len(engine.measured) == measured


def test_a_trial_at_another_speed_of_the_cores_is_made_again(by_bayes: Lab) -> None:
    line = by_bayes
    line.search("c7", mib_s=lambda n: 210.0 if n in (2, 4) else 400.0)
    weak = [one for one in line.view().trials if one.verdict is Verdict.WEAK]
    assert [one.n for one in weak] == [2, 4]
    assert {"52% of the speed they had when the ends were read" in one.why for one in weak} == {True}


@pytest.mark.parametrize(("settings", "changes_at"), [(BY_GIT, 2), (DEFAULTS, 5)], ids=["git", "bayes"])
def test_once_the_cores_have_another_speed_for_good_the_ends_are_read_again(
    line: Lab, settings: Settings, changes_at: int
) -> None:
    """At half of it everything does half of the I/Os, which would be on the wrong side of the line."""
    line.settings = settings
    slow = line.engine(
        "c7", mib_s=lambda n: 400.0 if n < changes_at else 200.0, factor=lambda n: 1.0 if n < changes_at else 0.4
    )
    assert line.finds(slow) == "c7"
    assert slow.measured.count(line.shas["c0"]) >= 2
    assert slow.measured.count(line.shas["c16"]) >= (2 if changes_at > 2 else 1)


def test_a_host_whose_speed_changes_each_time_gives_no_verdict(line: Lab) -> None:
    restless = line.engine("c7", mib_s=lambda n: 400.0 * 1.3 ** (n % 5))
    with pytest.raises(InfraError, match="the host's cores ran at"):
        line.bisect(restless)


CULPRIT = "c11"


@dataclass
class Upgraded(fakes.FakeExecutor):
    """A bench whose QEMU is another one from trial ``since`` on, under which everything is eight times as slow."""

    since: int = 0
    slow: float = 1 / 8
    era: Era | None = ERA

    def measure(self, request: TrialRequest) -> Trial:
        changed = request.n >= self.since
        fast, slow = self.fast_iops, self.slow_iops
        if changed:
            self.fast_iops, self.slow_iops = fast * self.slow, slow * self.slow
        made = super().measure(request)
        self.fast_iops, self.slow_iops = fast, slow
        return replace(made, era=UPGRADED if changed else self.era)


def bench(lab: Lab, since: int, **more: object) -> Upgraded:
    return lab.bench(Upgraded, CULPRIT, since=since, fast_iops=8_000.0, **more)


@pytest.mark.parametrize(("settings", "since"), [(BY_GIT, 2), (BY_GIT, 5), (DEFAULTS, 3), (DEFAULTS, 6)])
def test_the_ends_are_measured_again_and_the_answer_is_right(line: Lab, settings: Settings, since: int) -> None:
    line.settings = settings
    assert line.finds(bench(line, since)) == CULPRIT
    told = [text for text in line.notes if "changed" in text]
    assert told == [
        f"the host changed since trial {since - 1}: QEMU 7.2.22 → 7.2.23; both ends are measured again here"
    ]
    own = [(trial.era, line.names.get(trial.commit.sha)) for trial in line.trials()]
    assert {name for era, name in own[since - 1 : since + 2] if era == UPGRADED} >= {"c0", "c16"}
    view = line.view()
    lines = [(one.era, one.threshold) for one in view.host_thresholds]
    if since > 2:
        assert [era for era, _ in lines] == [ERA.digest, UPGRADED.digest]
        assert lines[0][1] == pytest.approx(8 * lines[1][1])
    (host,) = hosts_of(line.path, line.trials())
    changed = f"{UPGRADED.digest}, since {STARTED_AT}: QEMU 7.2.22 → 7.2.23"
    assert dict(host.facts)["era"] == f"{ERA.digest}, since {STARTED_AT}; {changed}"
    first = view.trials[since - 1]
    assert first.verdict in (Verdict.OLD, Verdict.NEW)
    assert (first.verdict is Verdict.NEW) is (int(line.names[first.trial.commit.sha][1:]) >= int(CULPRIT[1:]))


def test_what_an_older_version_measured_is_of_an_era_that_is_not_known(line: Lab) -> None:
    line.killed(bench(line, 99, era=None, kill_at=5))
    assert line.finds(bench(line, 0)) == CULPRIT
    told = [text for text in line.notes if "changed" in text]
    assert told == [
        "the host changed since trial 4: what figures depended on before is not on record; both ends are measured again"
        " here"
    ]


def test_a_host_that_was_changed_back_has_its_line_already(line: Lab) -> None:
    line.killed(bench(line, 4, kill_at=7))
    seen = len(line.trials())
    assert line.finds(bench(line, 99)) == CULPRIT
    assert not {"c0", "c16"} & {line.names.get(trial.commit.sha) for trial in line.trials()[seen:]}
    assert sum("changed" in text for text in line.notes) == 1


@BOTH
def test_what_was_measured_while_a_host_was_changed_is_measured_again(line: Lab, settings: Settings) -> None:
    """It was killed before both ends were measured there, so nothing has told what that figure means."""
    line.settings = settings
    line.killed(bench(line, 4, kill_at=5))
    assert line.finds(bench(line, 99)) == CULPRIT


@BOTH
def test_an_end_that_fails_after_a_change_of_the_host_is_measured_anew_by_the_next_process(
    line: Lab, settings: Settings
) -> None:
    line.settings = settings
    line.killed(bench(line, 99, kill_at=5))
    for _ in range(2):
        broken = bench(line, 0, faults=dict.fromkeys((line.shas["c0"], line.shas["c16"]), fakes.PANIC))
        with pytest.raises(InfraError, match="could not be measured: panic"):
            line.bisect(broken)
        assert len(broken.measured) >= DEFAULTS.retries.faults_believed
    assert line.finds(bench(line, 99)) == CULPRIT
