"""Both ends with a short fill, too, before other commits have one; what an answer rests on has whole fills."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.analysis.early_stop import StopRule
from bisector.analysis.verdicts import Judging
from bisector.config import Settings
from bisector.core.events import TrialJudged
from bisector.core.figures import EarlyStop, StopReason
from bisector.core.subject import Mattering
from bisector.core.trial import Fill, Timings, Trial
from bisector.core.verdict import State, Verdict
from bisector.storage.layer import FILLED, FillMode
from bisector.storage.lvmcache import LvmCache
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.lab import BY_GIT, DEFAULTS, FAR_IOPS, Clock, Lab
from tests.bisect.test_stop_rule import with_logs
from tests.examples import BUSY
from tests.git import histories

SETTLED = EarlyStop(
    StopReason.SETTLED, 14.0, 98.0, 95.0, "the cache was full for 4 s, and its figures held still", FILLED
)


@dataclass
class Filler(fakes.FakeExecutor):
    """Its caches settle within a short fill, unless it is told otherwise; what it then measures at some commits.

    ``busy_fills`` says how many of the first short fills of a commit the host disturbs.
    """

    settles: bool = True
    after_short: dict[str, float] = field(default_factory=dict)
    busy_fills: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, Fill, bool]] = field(default_factory=list)

    def measure(self, request: TrialRequest) -> Trial:
        """As the others, in 20 s instead of 84."""
        sha, short = request.commit.sha, request.fill is Fill.SHORT
        self.asked.append((sha, request.fill, request.stop is None))
        made = super().measure(request)
        made = replace(made, fill=request.fill, timings=replace(made.timings, workload_s=20.0))
        if not made.runs or not short or not self.settles:
            return made
        first, last = made.runs
        if (least := self.after_short.get(sha)) is not None:
            last = fakes.trial(request.commit, least).runs[-1]
        if self.busy_fills.get(sha, 0):
            self.busy_fills[sha] -= 1
            last = replace(last, contention=BUSY)
        return replace(made, runs=(replace(first, stopped_early=SETTLED), last))


def settles_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy so quick that a run of 40 s can do without most of itself."""
    empty, full = LvmCache.phases
    monkeypatch.setattr(LvmCache, "phases", (replace(empty, period_s=1.0), full))


def filler(lab: Lab, culprit: str, **more: object) -> Filler:
    return lab.bench(Filler, culprit, **{"stops_early": True, **more})


def asked(lab: Lab, engine: Filler) -> list[tuple[str, Fill]]:
    return [(lab.names.get(sha, "changed"), fill) for sha, fill, _ in engine.asked]


ENDS_BOTH_WAYS = [("c0", Fill.WHOLE), ("c16", Fill.WHOLE), ("c0", Fill.SHORT), ("c16", Fill.SHORT)]


@pytest.fixture(autouse=True)
def _settling(monkeypatch: pytest.MonkeyPatch) -> None:
    settles_quickly(monkeypatch)


@pytest.mark.parametrize(("settings", "least"), [(BY_GIT, 4), (DEFAULTS, 1)], ids=["git", "bayes"])
def test_a_fill_that_changes_neither_end_is_used_and_the_answer_rests_on_whole_ones(
    line: Lab, settings: Settings, least: int
) -> None:
    line.settings = settings
    engine = filler(line, "c7", fast_iops=FAR_IOPS)
    outcome = line.bisect(engine)
    assert line.found(outcome) == "c7"
    found = asked(line, engine)
    assert found[:4] == ENDS_BOTH_WAYS
    assert all(is_whole for _, _, is_whole in engine.asked[:4])
    searched = [name for name, fill in found[4:] if fill is Fill.SHORT]
    assert len(searched) >= least
    assert {"c6", "c7"} <= {name for name, fill in found[4:] if fill is Fill.WHOLE}
    # A run that may stop early has a short fill, and one that may not has a whole one.
    assert all((fill is Fill.WHOLE) is is_whole for _, fill, is_whole in engine.asked[4:])
    assert "caches are filled until they are settled, which changes neither end" in line.notes
    # What is read of an end without the commit after its whole run is its side only.
    undone = [fill for name, fill in found if name == "changed"]
    assert undone[:1] == ([] if settings is BY_GIT else [Fill.WHOLE])
    told = [(event.n, event.verdict) for event in line.events if isinstance(event, TrialJudged) and event.n in (3, 4)]
    assert told == [(3, Verdict.MEASURED), (4, Verdict.NEW), (3, Verdict.OLD)]


def test_one_that_changes_an_end_is_used_for_nothing_else(line: Lab) -> None:
    engine = filler(line, "c7", after_short={line.shas["c16"]: 1_100.0})
    assert line.finds(engine) == "c7"
    found = asked(line, engine)
    assert found[:4] == ENDS_BOTH_WAYS
    assert {fill for _, fill in found[4:]} == {Fill.WHOLE}
    assert [name for name, _ in found].count("c16") == 2
    why = "with it an end is on the other side of the threshold"
    assert f"caches are filled by whole runs: {why}" in line.notes
    view = line.view()
    shown = {one.n: one for one in view.trials}
    assert [shown[n].verdict for n in (1, 2, 3, 4)] == [Verdict.OLD, Verdict.NEW, Verdict.WEAK, Verdict.WEAK]
    assert shown[4].why.endswith(why)


def test_caches_that_do_not_settle_are_tried_once(line: Lab) -> None:
    engine = filler(line, "c7", settles=False)
    assert line.finds(engine) == "c7"
    found = asked(line, engine)
    assert found[:4] == ENDS_BOTH_WAYS
    assert {fill for _, fill in found[4:]} == {Fill.WHOLE}
    why = "the caches of both ends were not settled before the end of a whole run"
    assert f"caches are filled by whole runs: {why}" in line.notes


def test_a_disturbed_one_is_repeated_and_given_up_at_last(line: Lab) -> None:
    engine = filler(line, "c7", busy_fills={line.shas["c0"]: 2, line.shas["c16"]: 9})
    assert line.finds(engine) == "c7"
    found = asked(line, engine)
    assert found[2:5] == [("c0", Fill.SHORT)] * 3
    assert found[5:9] == [("c16", Fill.SHORT)] * 4
    assert {fill for _, fill in found[9:]} == {Fill.WHOLE}


def test_killed_between_both_ways_it_goes_on_with_the_other_end(line: Lab) -> None:
    engine = line.killed(filler(line, "c7", kill_at=4))
    assert line.finds(engine) == "c7"
    assert asked(line, engine)[:5] == [*ENDS_BOTH_WAYS, ("c16", Fill.SHORT)]


def test_it_is_not_tried_where_too_few_trials_are_left_to_save_as_much(line: Lab) -> None:
    line.known = Mattering(16, frozenset({line.shas["c7"], line.shas["c9"]}))
    engine = filler(line, "c7")
    outcome = line.bisect(engine)
    assert outcome.state is State.FOUND
    assert {fill for _, fill in asked(line, engine)} == {Fill.WHOLE}


def test_it_is_tried_whatever_it_takes_where_it_is_asked_for(line: Lab) -> None:
    line.known = Mattering(16, frozenset({line.shas["c7"], line.shas["c9"]}))
    line.settings = replace(BY_GIT, storage=replace(BY_GIT.storage, fill=FillMode.SHORT))
    engine = filler(line, "c7")
    assert line.finds(engine) == "c7"
    assert asked(line, engine)[:4] == ENDS_BOTH_WAYS


@pytest.mark.parametrize("given", ["whole fills", "full runs"])
def test_it_is_not_tried_where_it_is_not_wanted(line: Lab, given: str) -> None:
    if given == "whole fills":
        line.settings = replace(BY_GIT, storage=replace(BY_GIT.storage, fill=FillMode.WHOLE))
    if given == "full runs":
        line.settings = replace(BY_GIT, workload=replace(BY_GIT.workload, full_runs=True))
    engine = filler(line, "c7")
    assert line.finds(engine) == "c7"
    assert {fill for _, fill in asked(line, engine)} == {Fill.WHOLE}


@pytest.mark.parametrize("fill", [FillMode.AUTO, FillMode.SHORT])
def test_who_asks_for_it_is_told_why_it_cannot_be(line: Lab, fill: FillMode, monkeypatch: pytest.MonkeyPatch) -> None:
    empty, full = LvmCache.phases
    monkeypatch.setattr(LvmCache, "phases", (replace(empty, period_s=60.0), full))
    line.settings = replace(BY_GIT, storage=replace(BY_GIT.storage, fill=fill))
    engine = filler(line, "c7")
    assert line.finds(engine) == "c7"
    assert {fill for _, fill in asked(line, engine)} == {Fill.WHOLE}
    why = "a short fill is for runs of 2 min and more"
    assert line.notes.count(f"caches are filled by whole runs: {why}") == (fill is FillMode.SHORT)


@dataclass
class LoggingFiller(Filler):
    """Its fio leaves logs, so that a run of an end after a short fill ends once it is like the whole one.

    What it does then is ``moved`` times that; no rule ends it when it is ``far`` from it.
    """

    run_dir: Path = Path()
    moved: float = 1.0
    far: bool = False
    held: list[tuple[str, str]] = field(default_factory=list)

    def measure(self, request: TrialRequest) -> Trial:
        if request.stop is not None and request.stop.alike is not None:
            self.held.append((request.commit.sha, request.stop.alike.run.sha))
        rule = None if self.far and request.stop is not None and request.stop.alike is not None else request.stop
        made = super().measure(replace(request, stop=rule))
        return with_logs(made, self.run_dir / "logs" / str(request.n), self.run_dir)

    def _stopped(self, sha: str, value: float, rule: StopRule) -> EarlyStop:
        stop = super()._stopped(sha, value, rule)
        is_above = stop.reason is StopReason.ABOVE
        held = (one for one in rule.counterparts if one.is_better is not is_above)
        other = rule.alike.run if rule.alike is not None else next(held, None)
        factor = self.moved if rule.alike is not None else 4.0 if is_above else 0.25
        return stop if other is None else replace(stop, against=other.sha, apart=factor)


def logging_filler(lab: Lab, **more: object) -> LoggingFiller:
    return lab.bench(LoggingFiller, "c7", stops_early=True, fast_iops=FAR_IOPS, run_dir=lab.path, **more)


def of_whole_runs(lab: Lab) -> list[int]:
    """How many figures of each end the threshold comes from."""
    old, new = lab.shas["c0"], lab.shas["c16"]
    scores = Judging(lab.settings, tuple(enumerate(lab.trials(), 1)), old, new).scores
    return [len(scores[old]), len(scores[new])]


def test_a_run_of_an_end_that_is_like_its_whole_one_ends_early(line: Lab) -> None:
    engine = logging_filler(line)
    assert line.finds(engine) == "c7"
    assert asked(line, engine)[:4] == ENDS_BOTH_WAYS
    ends = [line.shas["c0"], line.shas["c16"]]
    assert engine.held == [(sha, sha) for sha in ends]
    early = line.trials()[2:4]
    assert [(one.commit.sha, one.unlike, one.bears_answer) for one in early] == [(sha, 1.0, False) for sha in ends]
    view = line.view()
    assert [one.verdict for one in view.trials[:4]] == [Verdict.OLD, Verdict.NEW, Verdict.OLD, Verdict.NEW]
    assert Fill.SHORT in {fill for _, fill in asked(line, engine)[4:]}
    assert of_whole_runs(line) == [1, 1]


def test_a_factor_that_is_too_large_is_harm_all_the_same(line: Lab) -> None:
    """The rule lets none pass that is; the record is judged by itself."""
    engine = logging_filler(line, moved=1.3)
    assert line.finds(engine) == "c7"
    assert {fill for _, fill in asked(line, engine)[4:]} == {Fill.WHOLE}
    why = "with it an end measures 1.30 times as much or as little, limit 1.25"
    assert f"caches are filled by whole runs: {why}" in line.notes


def test_one_that_is_not_like_its_whole_run_goes_on_to_its_end(line: Lab) -> None:
    engine = logging_filler(line, far=True, after_short={line.shas["c16"]: 1_100.0})
    assert line.finds(engine) == "c7"
    assert [one.stopped_early for one in line.trials()[2:4]] == [None, None]
    assert {fill for _, fill in asked(line, engine)[4:]} == {Fill.WHOLE}


def test_a_cache_that_does_not_settle_and_a_run_that_is_like_the_whole_one_are_no_short_fill(line: Lab) -> None:
    engine = logging_filler(line, settles=False)
    assert line.finds(engine) == "c7"
    assert engine.held
    assert {fill for _, fill in asked(line, engine)[4:]} == {Fill.WHOLE}
    # Of an end, none of them is taken for a whole run.
    assert of_whole_runs(line) == [1, 1]
    assert not any(one.bears_answer for one in line.trials()[2:4])


WHOLE_S, SHORT_S = 70.0, 25.0
LONG_CULPRIT = "c11"
LONG_ENDS = ("c0", "c32")


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
    made = Clock()
    monkeypatch.setattr("bisector.store.log.since_boot_s", made.since_boot_s)
    return made


@pytest.fixture
def long(tmp_path: Path) -> Lab:
    return Lab(tmp_path, histories.linear(33), *LONG_ENDS, settings=DEFAULTS)


def host(lab: Lab, clock: Clock, times_apart: float) -> Host:
    return lab.bench(Host, LONG_CULPRIT, stops_early=True, fast_iops=times_apart * fakes.SLOW_IOPS, clock=clock)


def test_ends_that_lie_close_are_read_again_and_then_both_ways_before_the_search(long: Lab, clock: Clock) -> None:
    """No short fill is tried for runs that would all be whole; once the levels are known, most need not be."""
    engine = host(long, clock, times_apart=2.0)
    long.give(3_600.0)
    assert long.finds(engine) == LONG_CULPRIT
    found = asked(long, engine)
    both_ways = [(end, Fill.SHORT) for end in LONG_ENDS]
    before = found.index(both_ways[0])
    assert {name for name, _ in found[:before]} == set(LONG_ENDS)
    assert 2 < before <= 8
    assert {fill for _, fill in found[:before]} == {Fill.WHOLE}
    assert found[before : before + 2] == both_ways
    searched = found[before + 2 :]
    assert not set(LONG_ENDS) & {name for name, _ in searched}
    assert len([name for name, fill in searched if fill is Fill.SHORT]) >= 2
    assert {(LONG_CULPRIT, Fill.WHOLE), ("c10", Fill.WHOLE), ("changed", Fill.WHOLE)} <= set(searched)
    assert long.spent_s == sum(trial.timings.total_s for trial in long.trials())


def test_while_levels_overlap_no_short_fill_is_tried(long: Lab, clock: Clock) -> None:
    """Ends that are near for their spread stay so, however often they are read; each figure is of a whole run."""
    engine = host(long, clock, times_apart=1.3)  # by their first readings a little more than 2
    engine.wobble = (1.0, 1.6, 1.2, 0.8, 0.9)
    long.give(14 * WHOLE_S)
    long.bisect(engine)
    assert len(engine.asked) > 8
    assert {fill for _, fill in asked(long, engine)} == {Fill.WHOLE}
    assert all(is_whole for _, _, is_whole in engine.asked)


@pytest.mark.parametrize(("whole_trials", "tried"), [(7, False), (8, True)])
def test_where_little_time_is_left_it_is_not_spent_on_both_ways(
    long: Lab, clock: Clock, whole_trials: int, tried: bool
) -> None:
    """After both ends five trials are left, or six, of which two more of the ends are worth it."""
    engine = host(long, clock, times_apart=40.0)
    long.give(whole_trials * WHOLE_S)
    outcome = long.bisect(engine)
    assert long.spent_s <= whole_trials * WHOLE_S
    assert (outcome.state, outcome.out_of_time) == (State.NARROWED, True)
    assert ((LONG_ENDS[0], Fill.SHORT) in asked(long, engine)) is tried
    long.give(3_600.0)
    assert long.finds(engine) == LONG_CULPRIT
    assert any("caches are filled until they are settled" in note for note in long.notes) is tried
