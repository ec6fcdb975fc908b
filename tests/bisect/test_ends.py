"""Both ends are measured first: what they have to show before anything is searched, and how often they are measured."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from bisector.analysis.levels import EndsAreTheSame
from bisector.config import Settings
from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.events import Note, Planned, TrialJudged
from bisector.core.objective import MetricAbsent
from bisector.core.verdict import Direction
from tests import fakes
from tests.bisect.lab import BOTH, BY_GIT, DEFAULTS, Lab


def test_swapped_ends_are_seen(line: Lab) -> None:
    engine = fakes.FakeExecutor(lambda sha: sha == line.shas["c0"])
    line.settings = replace(BY_GIT, bisect=replace(BY_GIT.bisect, expect=Direction.IMPROVEMENT))
    with pytest.raises(EndsDoNotReproduce) as caught:
        line.bisect(engine)
    assert "swapped" in caught.value.hint


def test_a_metric_that_the_output_does_not_have_ends_it_after_one_end(line: Lab) -> None:
    """No run tells more than the first one: neither the other end nor anything else is measured."""
    line.settings = replace(BY_GIT, bisect=replace(BY_GIT.bisect, metric="write.iops"))
    engine = line.engine("c7")
    with pytest.raises(MetricAbsent, match=r"the full run has no write\.iops") as caught:
        line.bisect(engine)
    assert all(name in caught.value.hint for name in ("read.iops", "read.bw", "read.clat.mean", "elapsed"))
    assert len(engine.measured) == 1
    with pytest.raises(MetricAbsent):  # what was measured says so at once
        line.bisect(engine)
    assert len(engine.measured) == 1


def test_which_direction_the_change_is_in_is_seen_and_said(line: Lab) -> None:
    """Nobody said what was expected: the words of either direction follow from the measured ends."""
    new = line.engine("c7").is_new
    engine = fakes.FakeExecutor(lambda sha: not new(sha))
    outcome = line.bisect(engine)
    assert line.found(outcome) == "c7"
    assert "is the first bad commit" in outcome.message
    assert "first bad commit" in line.log
    said = line.notes
    changed = "a regression: read.iops of the worst job from 4,000 IOPS to 1,000 IOPS"
    assert f"{changed}; threshold 2,000 IOPS, the middle of the gap between the ends" in said
    purposes = [event.purpose for event in line.events if isinstance(event, Planned)]
    assert purposes[:2] == ["the old end", "the new end"]
    words = [event.word for event in line.events if isinstance(event, TrialJudged)]
    assert words[:3] == ["measured", "bad", "good"]


def test_given_threshold_needs_both_ends_on_their_sides(line: Lab) -> None:
    line.settings = replace(BY_GIT, bisect=replace(BY_GIT.bisect, threshold="5000"))
    with pytest.raises(EndsDoNotReproduce, match="both ends are on one side"):
        line.bisect(line.engine("c7"))


def calibrating(lab: Lab, times: int, *, killed_at: int, **table: Mapping[str, object]) -> None:
    """The ends are to be measured so often, and the process dies at a trial on the way."""
    lab.settings = replace(lab.settings, bisect=replace(lab.settings.bisect, calibrate=times))
    lab.killed(lab.engine("c7", **table, kill_at=killed_at))


def test_ends_are_measured_in_turn_as_often_as_asked_for(line: Lab) -> None:
    ends = line.shas["c0"], line.shas["c16"]
    calibrating(line, 3, killed_at=5, busy={"c16": 1})
    line.search("c7")
    measured = [trial.commit.sha for trial in line.trials()]
    assert measured[:7] == [ends[0], ends[1], ends[1], *ends, *ends]  # the second one was on a busy host
    assert not set(ends) & set(measured[7:])


def test_an_end_that_cannot_be_measured_again_stops_nothing(line: Lab) -> None:
    calibrating(line, 2, killed_at=3)
    line.search("c7", busy={"c0": 99})
    tried = [trial.commit.sha for trial in line.trials()].count(line.shas["c0"])
    assert tried == 1 + 1 + DEFAULTS.bisect.max_repeats


@BOTH
def test_a_history_without_any_change_is_not_searched_for_one_pair_that_differs(line: Lab, settings: Settings) -> None:
    """Of one kernel 197 and 207 were read, of which neither is better."""
    line.settings = settings
    engine = line.engine("c7", slow_iops=200.0, fast_iops=200.0)
    engine.factor = lambda n: (0.985, 1.035, 1.01, 0.99, 1.02, 0.98, 0.995, 1.005)[(n - 1) % 8]
    for _ in range(2):  # the next process comes to the same at once
        with pytest.raises(EndsAreTheSame, match=r"the same within 5%, 1\.0\d+ times \(95 %: 0\.9\d+ to 1\.0\d+\), by"):
            line.bisect(engine)
    read = [engine.measured.count(line.shas[name]) for name in ("c0", "c16")]
    assert read[0] == read[1] == len(engine.measured) / 2 >= 4
    assert not any("threshold" in event.text for event in line.events if isinstance(event, Note))
    # In which order a pair is read is drawn
    first = [engine.measured[place] == line.shas["c0"] for place in range(0, len(engine.measured), 2)]
    assert len(set(first)) == 2


@BOTH
def test_ends_that_noise_hides_are_given_up_before_all_pairs_are_read(line: Lab, settings: Settings) -> None:
    line.settings = settings
    engine = line.engine("c7", slow_iops=200.0, fast_iops=200.0)
    engine.factor = lambda n: 1 + 0.2 * ((n * 7 + n // 3) % 5 - 2) / 2
    with pytest.raises(EndsAreTheSame, match=r"too noisy to tell on this host: .* pairs tell a change of 5%"):
        line.bisect(engine)
    assert len(engine.measured) < 2 * settings.bisect.most_pairs


@BOTH
def test_ends_that_lie_close_are_read_until_they_are_told_apart(line: Lab, settings: Settings) -> None:
    line.settings = settings
    engine = line.engine("c7", busy={"c16": 1}, slow_iops=200.0, fast_iops=240.0)
    engine.factor = lambda n: 1.0 + 0.001 * (n % 2)
    assert line.finds(engine) == "c7"
    ends = [line.shas["c0"], line.shas["c16"]]
    assert engine.measured[:3] == [*ends, ends[1]]
    assert set(engine.measured[3:5]) == set(ends)
    told = next(event.text for event in line.events if isinstance(event, Note) and "threshold" in event.text)
    assert "from 200 IOPS to 240 IOPS, 1.1994 times (95 %: 1.1968 to 1.2020), by 2 pairs; threshold 219 IOPS" in told


def test_an_end_that_cannot_be_read_again_gives_no_direction(line: Lab) -> None:
    line.settings = BY_GIT
    line.killed(line.engine("c7", slow_iops=200.0, fast_iops=240.0, kill_at=3))
    busy = line.engine("c7", busy={"c0": 99}, slow_iops=200.0, fast_iops=240.0)
    with pytest.raises(InfraError, match=r"end .* could not be measured again: no sound measurement in 4"):
        line.bisect(busy)
    assert line.finds(replace(busy, busy={})) == "c7"
