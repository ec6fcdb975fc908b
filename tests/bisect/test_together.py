"""Rates that are learnt, short fills and a budget in one search: what each leaves to the others."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.core.trial import Fill, Timings, Trial
from bisector.core.verdict import State
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.filler import Filler, asked, settles_quickly
from tests.bisect.lab import DEFAULTS, Clock, Lab
from tests.git import histories

WHOLE_S, SHORT_S = 70.0, 25.0
CULPRIT = "c11"
ENDS = ("c0", "c32")


@dataclass
class Host(Filler):
    """A trial takes 70 s, and 25 s where its cache was filled until it was settled and its run was stopped early.

    Figures are by ``wobble`` higher or lower than they should be, one after the other.
    """

    clock: Clock = field(default_factory=Clock)
    wobble: tuple[float, ...] = (1.0,)

    def measure(self, request: TrialRequest) -> Trial:
        sha = request.commit.sha
        usual = self.fast_iops if self.is_new(sha) else self.slow_iops
        self.iops = {sha: usual * self.wobble[len(self.asked) % len(self.wobble)]}
        made = super().measure(request)
        seconds = SHORT_S if made.filled_short and made.stopped_early is not None else WHOLE_S
        self.clock.passes(seconds)
        return replace(made, timings=Timings(2.0, 3.0, 3.0, seconds - 10.0, seconds))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    settles_quickly(monkeypatch)
    made = Clock()
    monkeypatch.setattr("bisector.store.log.since_boot_s", made.since_boot_s)
    return made


@pytest.fixture
def line(tmp_path: Path) -> Lab:
    return Lab(tmp_path, histories.linear(33), *ENDS, settings=DEFAULTS)


def host(lab: Lab, clock: Clock, times_apart: float) -> Host:
    return lab.bench(Host, CULPRIT, stops_early=True, fast_iops=times_apart * fakes.SLOW_IOPS, clock=clock)


def test_ends_that_lie_close_are_read_again_and_then_both_ways_before_the_search(line: Lab, clock: Clock) -> None:
    """No short fill is tried for runs that would all be whole; once the levels are known, most need not be."""
    engine = host(line, clock, times_apart=2.0)
    line.give(3_600.0)
    assert line.found(line.bisect(engine)) == CULPRIT
    found = asked(line, engine)
    both_ways = [(end, Fill.SHORT) for end in ENDS]
    before = found.index(both_ways[0])
    assert {name for name, _ in found[:before]} == set(ENDS)
    assert 2 < before <= 8
    assert {fill for _, fill in found[:before]} == {Fill.WHOLE}
    assert found[before : before + 2] == both_ways
    searched = found[before + 2 :]
    assert not set(ENDS) & {name for name, _ in searched}
    assert len([name for name, fill in searched if fill is Fill.SHORT]) >= 2
    assert {(CULPRIT, Fill.WHOLE), ("c10", Fill.WHOLE), ("changed", Fill.WHOLE)} <= set(searched)
    assert line.spent_s == sum(trial.timings.total_s for trial in line.trials())


def test_while_levels_overlap_no_short_fill_is_tried(line: Lab, clock: Clock) -> None:
    """Ends that are near for their spread stay so, however often they are read; each figure is of a whole run."""
    engine = host(line, clock, times_apart=1.3)  # by their first readings a little more than 2
    engine.wobble = (1.0, 1.6, 1.2, 0.8, 0.9)
    line.give(14 * WHOLE_S)
    line.bisect(engine)
    assert len(engine.asked) > 8
    assert {fill for _, fill in asked(line, engine)} == {Fill.WHOLE}
    assert all(is_whole for _, _, is_whole in engine.asked)


@pytest.mark.parametrize(("whole_trials", "tried"), [(7, False), (8, True)])
def test_where_little_time_is_left_it_is_not_spent_on_both_ways(
    line: Lab, clock: Clock, whole_trials: int, tried: bool
) -> None:
    """After both ends five trials are left, or six, of which two more of the ends are worth it."""
    engine = host(line, clock, times_apart=40.0)
    line.give(whole_trials * WHOLE_S)
    outcome = line.bisect(engine)
    assert line.spent_s <= whole_trials * WHOLE_S
    assert (outcome.state, outcome.out_of_time) == (State.NARROWED, True)
    assert ((ENDS[0], Fill.SHORT) in asked(line, engine)) is tried
    line.give(3_600.0)
    assert line.found(line.bisect(engine)) == CULPRIT
    assert any("caches are filled until they are settled" in note for note in line.notes) is tried
