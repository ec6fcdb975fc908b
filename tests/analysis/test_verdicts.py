"""What is known of one commit's kernel, and whether it holds for another commit with an equal one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bisector.analysis.verdicts import Judging
from bisector.config import options
from bisector.core.errors import UserError
from bisector.core.figures import EarlyStop, StopReason
from bisector.core.subject import Commit
from bisector.core.trial import Trial
from bisector.core.verdict import Verdict
from tests import examples, fakes
from tests.examples import BUSY, ERA, UPGRADED

SETTINGS = options.load(directory=Path("/")).settings
COMMIT = Commit("8" * 40, "7" * 40, "a commit", "2026-01-01T00:00:00+00:00")
SOUND = fakes.trial(COMMIT, content="c8")
PANIC = fakes.trial(COMMIT, fault=fakes.PANIC, content="c8")
WEAK = fakes.trial(COMMIT, contention=BUSY, content="c8")


@pytest.mark.parametrize(
    ("trials", "holds"),
    [
        ([SOUND], True),
        ([WEAK, SOUND], True),
        ([PANIC], False),
        ([PANIC, PANIC], True),
        ([WEAK], False),
        ([WEAK] * (SETTINGS.bisect.max_repeats + 1), False),
        ([PANIC] + [WEAK] * (SETTINGS.bisect.max_repeats + 1), False),
    ],
)
def test_what_is_sure_of_a_kernel_holds_for_its_equals(trials: list[Trial], holds: bool) -> None:
    judging = Judging(SETTINGS, tuple(enumerate(trials, 1)))
    assert judging.measured_kernels() == ({"c8": COMMIT.sha} if holds else {})


def by(metric: str) -> Judging:
    """What is known of no trial yet, by a metric."""
    return Judging(replace(SETTINGS, bisect=replace(SETTINGS.bisect, metric=metric)), ())


def with_first_job(trial: Trial, **figures: Any) -> Trial:
    runs = tuple(replace(one, jobs=(replace(one.jobs[0], **figures), *one.jobs[1:])) for one in trial.runs)
    return replace(trial, runs=runs)


STALLED = with_first_job(SOUND, iops_mean=0.0, bw_kib_s=0.0, total_ios=0, clat_mean_ns=0.0, clat_p99_ns=None)


@pytest.mark.parametrize("metric", ["read.iops", "read.clat.mean", "read.clat.p99"])
def test_a_run_in_which_a_job_stood_still_is_measured_again_and_stops_nothing(metric: str) -> None:
    """Its latency of nothing, or none, is the host's doing, and no reason to choose another metric."""
    judging = replace(by(metric), trials=((1, STALLED),))
    judging.check_metric(COMMIT.sha)
    assert judging.judge(COMMIT.sha) is None


@pytest.mark.parametrize("metric", ["write.iops", "read.clat.p99", "cpu.system"])
def test_a_sound_run_without_the_metric_is_told_at_once(metric: str) -> None:
    with pytest.raises(UserError, match=metric):
        replace(by(metric), trials=((1, with_first_job(SOUND, clat_p99_ns=None)),)).check_metric(COMMIT.sha)


@pytest.mark.parametrize("metric", ["read.iops.steady", "settled_after"])
def test_a_run_without_a_steady_part_is_weak_and_says_how_long_it_would_have_to_be(metric: str) -> None:
    first, last = SOUND.runs
    settling = replace(last, jobs=tuple(replace(job, settled_after_s=40.0) for job in last.jobs))
    trials = [(n, replace(SOUND, runs=(first, settling))) for n in range(1, SETTINGS.bisect.max_repeats + 2)]
    once, often = replace(by(metric), trials=tuple(trials[:1])), replace(by(metric), trials=tuple(trials))
    once.check_metric(COMMIT.sha)
    assert once.judge(COMMIT.sha) is None
    judgement = often.judge(COMMIT.sha)
    assert judgement is not None
    assert judgement.verdict is Verdict.SKIP
    assert "the full run has no steady part in 40 s, and would have to be 80 s long or more" in judgement.why


def test_a_run_that_was_clear_of_another_one_is_none_once_its_host_has_changed() -> None:
    """That one was measured before; the line of the new era says nothing of it."""
    old, culprit, new = (examples.commit(n) for n in (1, 2, 3))
    stop = EarlyStop(StopReason.ABOVE, 12.0, 6_000.0, 2_800.0, "above", against=old.sha, apart=2.0)
    before = [replace(fakes.trial(end, iops), era=ERA) for end, iops in ((old, 1_000.0), (new, 8_000.0))]
    stopped = fakes.trial(culprit, 8_000.0, stopped=stop)
    for era, weak in ((ERA, False), (UPGRADED, True)):
        since = [replace(one, era=UPGRADED) for one in before]
        trials = tuple(enumerate((*before, replace(stopped, era=era), *since), 1))
        verdicts = list(Judging(SETTINGS, trials, old.sha, new.sha).judged_trials())
        assert [judgement.verdict for *_, judgement in verdicts] == [
            *(Verdict.OLD, Verdict.NEW),
            Verdict.WEAK if weak else Verdict.NEW,
            *(Verdict.OLD, Verdict.NEW),
        ]
