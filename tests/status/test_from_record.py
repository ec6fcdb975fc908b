"""What runs on record say by another metric than the one that decided."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.analysis.verdicts import Judging
from bisector.cli import main
from bisector.config import options
from bisector.core.objective import Objective
from bisector.core.subject import Commit
from bisector.core.trial import Trial
from bisector.status.from_record import seen_again
from tests import fakes
from tests.examples import EARLY
from tests.git.histories import linear
from tests.recorded_run import RecordedRun, found

SETTINGS = options.load(directory=Path("/")).settings
LATENCY = Objective("read.clat.mean")


def trial(sha: str, iops: float, clat_ms: float, early: bool = False) -> Trial:
    made = fakes.trial(Commit(sha, sha, sha, ""), iops, stopped=replace(EARLY, bound=3_000.0) if early else None)
    runs = tuple(
        replace(run, jobs=tuple(replace(job, clat_mean_ns=clat_ms * 1e6) for job in run.jobs)) for run in made.runs
    )
    return replace(made, runs=runs)


def said(*trials: Trial, by: Objective = LATENCY) -> str:
    judging = Judging(SETTINGS, tuple(enumerate(trials, 1)), "old", "new")
    seen = replace(judging, settings=replace(SETTINGS, bisect=SETTINGS.bisect.by(by)))
    return seen_again(judging, seen)


OLD, NEW = trial("old", 1_000, 16.0), trial("new", 4_000, 0.8)


def test_commits_that_would_be_on_another_side_are_named() -> None:
    """One kernel does many I/Os, and takes long for each of them."""
    found = said(OLD, NEW, trial("quick", 3_900, 0.7), trial("odd", 3_800, 15.0))
    assert found == (
        "by read.clat.mean of the worst job, improvement from 16.0 ms to 800 µs, "
        "1 of 4 commits would be on the other side (odd)"
    )


def test_agreement_is_said_as_well_and_what_was_stopped_early_says_nothing() -> None:
    agreed = "to 800 µs, all 2 commits are on the side that the verdicts say"
    assert said(OLD, NEW).endswith(agreed)
    assert said(OLD, NEW, trial("early", 4_000, 16.0, early=True)).endswith(f"{agreed}; of 1 it says nothing")


def test_ends_that_lie_close_in_it() -> None:
    found = said(trial("old", 1_000, 19.0), trial("new", 4_000, 16.0))
    assert found == (
        "by read.clat.mean of the worst job the ends cannot be told apart: their values lie close, and too few "
        "readings tell by how much those of one end differ"
    )


def test_nothing_is_compared_before_both_ends_are_measured_or_with_itself() -> None:
    assert (said(), said(OLD), said(OLD, NEW, by=Objective())) == ("", "", "")
    assert said(OLD, NEW, by=Objective("write.clat.mean")).startswith("by write.clat.mean of the worst job the ends")


@pytest.mark.parametrize(
    ("metric", "figures", "why"),
    [
        ("read.iops", (0.0, 8_000.0), "job partial/1 did no I/O"),
        ("write.iops", (1_000.0, 8_000.0), "the full run has no write.iops"),
    ],
)
def test_a_first_run_without_a_value_is_shown_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], metric: str, figures: tuple[float, ...], why: str
) -> None:
    """There is no other metric to look at: the table says what is wrong with the trial."""
    recorded = RecordedRun(tmp_path, linear(3), {"bisect.metric": metric})
    recorded.add("c0", figures)
    for command in ("status", "table", "report"):
        assert main([command, "--run-dir", str(recorded.run.path)]) == 0
    assert why in " ".join(capsys.readouterr().out.split())
    assert main(["table", "--metric", metric, "--run-dir", str(recorded.run.path)]) == (2 if figures[0] else 0)
    assert main(["table", "--metric", "trim.bw", "--run-dir", str(recorded.run.path)]) == 2


def test_an_answer_whose_repository_is_gone_is_not_called_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or where git does not trust it, as in a run of another user's: the record has the answer, and git its commits."""
    recorded = found(tmp_path)
    recorded.repository.rename(tmp_path / "elsewhere")
    why = f"the commits of the answer cannot be shown: {recorded.repository} is not a directory"
    for command in ("status", "table", "report"):
        assert main([command, "--run-dir", str(recorded.run.path)]) == 0
        said = capsys.readouterr().out
        assert why in " ".join(said.split())
        assert "no verdict on the range" not in said
    assert main(["mail", "--run-dir", str(recorded.run.path)]) == 2
    assert why in capsys.readouterr().err
