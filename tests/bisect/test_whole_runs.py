"""Runs that may be stopped early, and the whole ones that the ends and the answer rest on."""

from dataclasses import replace

import pytest

from bisector.core.errors import EndsDoNotReproduce
from bisector.core.events import Note
from bisector.core.trial import Trial
from bisector.trial.runner import TrialRequest
from tests import examples
from tests.bisect.lab import BY_GIT, DEFAULTS, Lab
from tests.examples import BUSY


def test_a_metric_without_a_live_counter_has_whole_runs_and_says_so(line: Lab) -> None:
    line.settings = replace(BY_GIT, bisect=replace(BY_GIT.bisect, metric="read.clat.mean", threshold="1.6ms"))
    engine = line.engine("c7", stops_early=True)
    with pytest.raises(EndsDoNotReproduce, match=r"measured 1\.50 ms, the new end 1\.50 ms \(read\.clat\.mean"):
        line.bisect(engine)
    said = line.notes
    assert said[0] == "no run is stopped early: read.clat.mean is known only when a run has ended"


def test_ends_are_whole_and_the_answer_rests_on_whole_runs(line: Lab) -> None:
    engine = line.engine("c7", stops_early=True)
    assert line.found(line.bisect(engine)) == "c7"
    whole = [line.names[sha] for sha, rule in engine.rules if rule is None]
    early = [line.names[sha] for sha, rule in engine.rules if rule is not None]
    assert whole == ["c0", "c16", "c7", "c6"]
    assert {"c6", "c7"} <= set(early)
    assert len(early) == len(set(early)) == 4
    assert [rule.threshold for _, rule in engine.rules if rule is not None] == [pytest.approx(2_000.0)] * 4
    stopped = [line.names[trial.commit.sha] for trial in line.trials() if trial.stopped_early]
    assert stopped == early


def test_full_runs_are_never_ended(line: Lab) -> None:
    line.settings = replace(BY_GIT, workload=replace(DEFAULTS.workload, full_runs=True))
    engine = line.engine("c7", stops_early=True)
    assert line.found(line.bisect(engine)) == "c7"
    assert {rule for _, rule in engine.rules} == {None}
    assert len(engine.measured) == len(set(engine.measured))


@pytest.mark.parametrize("misleading", ["c8", "c6"])
def test_a_whole_run_wins_over_one_that_was_stopped_and_the_search_goes_on(line: Lab, misleading: str) -> None:
    engine = line.engine("c7")
    engine.stops_early, engine.misleading = True, frozenset({line.shas[misleading]})
    outcome = line.bisect(engine)
    assert line.found(outcome) == "c7"
    notes = line.notes
    assert any(f"a whole run says that {line.shas[misleading][:12]} is " in note for note in notes)
    assert f"# first fixed commit: [{line.shas['c7']}]" in line.log
    assert line.shown(outcome) == ["c7"]


def test_whole_runs_that_stay_weak_are_not_made_for_ever(line: Lab) -> None:
    engine = line.engine("c7", stops_early=True)
    busy = engine.measure

    def measure(request: TrialRequest) -> Trial:
        trial = busy(request)
        weak = request.stop is None and request.commit.sha == line.shas["c7"]
        return replace(trial, runs=tuple(replace(run, contention=BUSY) for run in trial.runs)) if weak else trial

    engine.measure = measure  # type: ignore[method-assign] # of this engine alone
    assert line.found(line.bisect(engine)) == "c7"
    whole = [line.names[sha] for sha, rule in engine.rules if rule is None]
    assert whole.count("c7") == DEFAULTS.bisect.max_repeats + 1


def test_an_equal_kernel_measured_whole_answers_for_the_culprit(line: Lab) -> None:
    engine = line.engine("c7", content={"c7": "same", "c8": "same"}, stops_early=True)
    assert line.found(line.bisect(engine)) == "c7"
    assert [line.names[sha] for sha, rule in engine.rules if rule is None] == ["c0", "c16", "c8", "c6"]


def test_a_percentile_of_few_ios_is_told_once(line: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    line.settings = replace(BY_GIT, bisect=replace(BY_GIT.bisect, metric="read.clat.p99", threshold="9ms"))
    usual = examples.job
    monkeypatch.setattr(examples, "job", lambda *words: replace(usual(*words), total_ios=312))
    with pytest.raises(EndsDoNotReproduce):
        line.bisect(line.engine("c7"))
    said = [event.text if isinstance(event, Note) else "trial" for event in line.events]
    thin = [text for text in said if "read.clat.p99 of 312 I/Os" in text]
    assert thin == [
        "read.clat.p99 of 312 I/Os of job job0: about 3 of them lie beyond it, which is chance; 10 take 1,000 I/Os"
    ]
