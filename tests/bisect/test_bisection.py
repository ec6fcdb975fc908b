"""The loop on real git and a bench that answers from a table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.bisect.git_side import GitSide
from bisector.bisect.instructions import Done
from bisector.bisect.loop import Bisection, task_of
from bisector.config import Settings, options
from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.events import Event, Note, Planned, TrialJudged
from bisector.core.json_document import text
from bisector.core.objective import MetricAbsent
from bisector.core.subject import Mattering
from bisector.core.trial import Fault, FaultKind, Stage, Trial
from bisector.core.verdict import Direction, State, Strategy, Terms, Verdict
from bisector.git.bisect import Bisect
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.status import document_of, from_record
from bisector.status.view import BisectionView
from bisector.store.rows import BisectionRow
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.docs.json_schema import valid
from tests.examples import BUSY
from tests.git import histories
from tests.git.histories import Node

DEFAULTS = options.load(directory=Path("/")).settings
BY_GIT = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, strategy=Strategy.GIT))


@dataclass
class Lab:
    """A history in a real repository, a store and a run directory; bisects with a fake bench."""

    path: Path
    nodes: Sequence[Node]
    old: str
    new: str
    settings: Settings = BY_GIT
    paths: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()
    twins: Mapping[str, str] = field(default_factory=dict)
    known: Mattering | None = None
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shas = histories.build(self.path / "linux", self.nodes)
        self.names = {sha: name for name, sha in self.shas.items()}
        self.above = histories.ancestors(self.nodes)

    def engine(self, culprit: str, **table: Mapping[str, object]) -> fakes.FakeExecutor:
        """A bench on which every commit with ``culprit`` among its ancestors is new."""
        new = [self.shas[name] for name, above in self.above.items() if culprit in above]
        by_sha = {key: {self.shas.get(name, name): value for name, value in row.items()} for key, row in table.items()}
        return fakes.FakeExecutor(fakes.among(new), culprit=culprit, **by_sha)  # type: ignore[arg-type] # rows of the right type each

    def bisect(self, engine: fakes.FakeExecutor) -> Done:
        """One process's life: from the store's facts to an answer, or to its death."""
        with Repository.open(self.path / "linux") as repository, self._store() as store:
            old, new = repository.commits((self.shas[self.old], self.shas[self.new]))
            wanted = Range(old, new, self.settings.bisect.first_parent, self.paths)
            with Bisect(repository, self.path, wanted, self.settings.bisect.terms or Terms.usual(None)) as bisect:
                skips = (*(self.shas[name] for name in self.skips), *store.bisection().skips)
                kin = fakes.FakeKin(repository, {self.shas[a]: self.shas[b] for a, b in self.twins.items()}, self.known)
                git = GitSide(repository, wanted, bisect, kin)
                task = task_of(git, store, self.settings, skips)
                outcome = Bisection(task, store, git, engine, self.events.append, fakes.at_once).run()
                self.log = bisect.log()
        return outcome

    def trials(self) -> tuple[Trial, ...]:
        with self._store() as store:
            return tuple(trial for _, trial in store.trials())

    def _store(self) -> Store:
        database = self.path / "record.sqlite"
        if database.exists():
            return Store.open(database)
        row = BisectionRow(
            self.path / "linux", self.old, self.shas[self.old], self.new, self.shas[self.new], "broken", "fixed",
            Direction.IMPROVEMENT, self.paths, self.settings.bisect.first_parent, (), options.to_json(self.settings),
            "0", "2026-01-01T00:00:00Z",
        )  # fmt: skip
        return Store.create(database, row)

    def shown(self, outcome: Done) -> list[str]:
        """The candidates that ``status`` shows of the record."""
        return [self.names[commit.sha] for commit in self.view(outcome).candidates]

    def view(self, outcome: Done | None = None) -> BisectionView:
        """All that is shown of the record, once it has ended in some way."""
        with self._store() as store:
            if outcome is not None:
                store.set_state(outcome.state, outcome.message)
            return from_record.view(RunDirectory(self.path), store)

    def found(self, outcome: Done) -> str:
        assert outcome.state is State.FOUND
        (commit,) = outcome.candidates
        return self.names[commit.sha]


@pytest.fixture
def line(tmp_path: Path) -> Lab:
    return Lab(tmp_path, histories.linear(17), "c0", "c16")


@pytest.mark.parametrize("culprit", ["c1", "c7", "c16"])
def test_line(line: Lab, culprit: str) -> None:
    assert line.found(line.bisect(line.engine(culprit))) == culprit
    assert f"# first fixed commit: [{line.shas[culprit]}]" in line.log


@pytest.mark.parametrize("culprit", ["b2", "m", "c2", "c4"])
def test_merge_from_an_old_base(tmp_path: Path, culprit: str) -> None:
    lab = Lab(tmp_path, histories.old_base_merge(), "c0", "c5")
    assert lab.found(lab.bisect(lab.engine(culprit))) == culprit


def test_ends_on_two_branches_try_the_merge_base_first(tmp_path: Path) -> None:
    lab = Lab(tmp_path, histories.stable_tags(), "s2", "n2")
    engine = lab.engine("c4")
    assert lab.found(lab.bisect(engine)) == "c4"
    assert lab.names[engine.measured[2]] == "c2"


def test_new_merge_base_is_told_apart(tmp_path: Path) -> None:
    lab = Lab(tmp_path, histories.stable_tags(), "s2", "n2")
    engine = fakes.FakeExecutor(lambda sha: sha != lab.shas["s2"])
    with pytest.raises(EndsDoNotReproduce, match="merge base"):
        lab.bisect(engine)


@pytest.mark.parametrize("figure", [math.inf, 0.0])
def test_figures_that_are_no_measurement_are_tried_again_and_never_judged(line: Lab, figure: float) -> None:
    """As older versions recorded them: each later reading of the record has to get past them."""
    engine = line.engine("c8", iops={"c4": figure})
    assert line.found(line.bisect(engine)) == "c8"
    tries = engine.measured.count(line.shas["c4"])
    assert tries > 1
    shown = [one for one in line.view().trials if one.trial.commit.sha == line.shas["c4"]]
    assert [one.verdict for one in shown] == [Verdict.WEAK] * tries
    assert "no measurement" in shown[0].why or "did no I/O" in shown[0].why
    # An infinite figure, which fio's output is refused for today, is null in JSON: the schema has a number there.
    assert not math.isfinite(figure) or valid("status", text(document_of.status(line.view())))
    again = line.engine("c8")
    assert line.found(line.bisect(again)) == "c8"
    assert again.measured == []


def test_skips_beside_the_culprit_leave_a_set(line: Lab) -> None:
    engine = line.engine("c8", faults={"c7": fakes.BUILD_ERROR, "c8": fakes.PANIC})
    outcome = line.bisect(engine)
    assert outcome.state is State.NARROWED
    assert [line.names[commit.sha] for commit in outcome.candidates] == ["c9", "c8", "c7"]
    assert {line.names[commit.sha] for commit in outcome.skipped} == {"c7", "c8"}


def test_skips_elsewhere_do_not_hide_the_culprit(line: Lab) -> None:
    outcome = line.bisect(line.engine("c3", faults={"c8": fakes.BUILD_ERROR, "c12": fakes.PANIC}))
    assert line.found(outcome) == "c3"


def test_known_bad_commits_are_never_measured(line: Lab) -> None:
    line.skips = ("c8",)
    engine = line.engine("c3")
    assert line.found(line.bisect(engine)) == "c3"
    assert line.shas["c8"] not in engine.measured


@pytest.mark.parametrize(("fault", "times"), [(fakes.BUILD_ERROR, 1), (fakes.BUILD_TIMEOUT, 2), (fakes.PANIC, 2)])
def test_compile_error_is_believed_at_once_and_what_a_busy_host_does_is_not(
    line: Lab, fault: Fault, times: int
) -> None:
    engine = line.engine("c3", faults={"c8": fault})
    line.bisect(engine)
    assert engine.measured.count(line.shas["c8"]) == times


def test_infra_fault_is_tried_again_and_recorded(line: Lab) -> None:
    outcome = line.bisect(line.engine("c7", infra={"c8": 2}))
    assert line.found(outcome) == "c7"
    with line._store() as store:
        assert [fault.message for fault in store.infra_faults()] == ["the network went away"] * 2
    assert any(isinstance(event, Note) and "network went away" in event.text for event in line.events)


def calibrating(lab: Lab, times: int, *, killed_at: int, **table: Mapping[str, object]) -> None:
    """The ends are to be measured so often, and the process dies at a trial on the way."""
    lab.settings = replace(lab.settings, bisect=replace(lab.settings.bisect, calibrate=times))
    engine = lab.engine("c7", **table)
    engine.kill_at = killed_at
    with pytest.raises(fakes.Killed):
        lab.bisect(engine)


def test_ends_are_measured_in_turn_as_often_as_asked_for(line: Lab) -> None:
    ends = line.shas["c0"], line.shas["c16"]
    calibrating(line, 3, killed_at=5, busy={"c16": 1})
    assert line.found(line.bisect(line.engine("c7"))) == "c7"
    measured = [trial.commit.sha for trial in line.trials()]
    assert measured[:7] == [ends[0], ends[1], ends[1], *ends, *ends]  # the second one was on a busy host
    assert not set(ends) & set(measured[7:])


def test_an_end_that_cannot_be_measured_again_stops_nothing(line: Lab) -> None:
    calibrating(line, 2, killed_at=3)
    assert line.found(line.bisect(line.engine("c7", busy={"c0": 99}))) == "c7"
    tried = [trial.commit.sha for trial in line.trials()].count(line.shas["c0"])
    assert tried == 1 + 1 + DEFAULTS.bisect.max_repeats


def test_a_reading_that_moves_the_line_turns_earlier_verdicts_round(line: Lab) -> None:
    """Once c12 is read between them, c8 and c16 are no longer on two levels: git has to forget that c8 was old."""
    steps = ((300.0, range(5)), (1_350.0, range(5, 9)), (2_670.0, range(9, 13)), (6_000.0, range(13, 17)))
    iops = {f"c{number}": figure for figure, numbers in steps for number in numbers}
    assert line.found(line.bisect(line.engine("c5", iops=iops))) == "c5"
    c8 = next(e for e in line.events if isinstance(e, TrialJudged) and e.trial.commit.sha == line.shas["c8"])
    assert c8.verdict is Verdict.OLD
    assert f"git bisect fixed {line.shas['c8']}" in line.log
    resumed = line.engine("c5", iops=iops)
    assert line.found(line.bisect(resumed)) == "c5"
    assert not resumed.measured


def test_lasting_infra_fault_stops_and_says_nothing_of_the_commit(line: Lab) -> None:
    with pytest.raises(InfraError, match="network went away"):
        line.bisect(line.engine("c7", infra={"c8": 99}, broken={Stage.BOOT: InfraError("the network went away")}))
    assert line.shas["c8"] not in {trial.commit.sha for trial in line.trials()}
    assert line.found(line.bisect(line.engine("c7"))) == "c7"


def test_contended_run_is_measured_again(line: Lab) -> None:
    engine = line.engine("c7", busy={"c8": 2, "c0": 1})
    assert line.found(line.bisect(engine)) == "c7"
    assert engine.measured.count(line.shas["c8"]) == 3
    weak = {event.n for event in line.events if isinstance(event, TrialJudged) and event.verdict is Verdict.WEAK}
    assert len(weak) == 3


def test_host_that_stays_contended_makes_a_skip_not_a_verdict(line: Lab) -> None:
    engine = line.engine("c7", busy={"c8": 99})
    assert line.found(line.bisect(engine)) == "c7"
    assert engine.measured.count(line.shas["c8"]) == DEFAULTS.bisect.max_repeats + 1
    assert f"git bisect skip {line.shas['c8']}" in line.log


def test_equal_kernels_are_measured_once(line: Lab) -> None:
    engine = line.engine("c7", content={"c8": "same", "c9": "same", "c16": "same"})
    assert line.found(line.bisect(engine)) == "c7"
    assert [name for name in ("c8", "c9", "c16") if line.shas[name] in engine.measured] == ["c16"]
    reused = [trial.same_kernel_as for trial in line.trials() if trial.same_kernel_as]
    assert set(reused) == {line.shas["c16"]}


@pytest.mark.parametrize("kernel", ["measured", "panics"])
def test_what_is_known_of_a_kernel_holds_for_its_equals(line: Lab, kernel: str) -> None:
    faults = {} if kernel == "measured" else {"c8": fakes.PANIC, "c9": fakes.PANIC}
    engine = line.engine("c7", content={"c8": "same", "c9": "same"}, faults=faults)
    engine.is_new = lambda sha: sha not in {line.shas[f"c{n}"] for n in range(9)}
    outcome = line.bisect(engine)
    assert [name for name in ("c8", "c9") if line.shas[name] in engine.measured] == ["c8"]
    reused = {line.names[t.commit.sha]: line.names[t.same_kernel_as] for t in line.trials() if t.same_kernel_as}
    assert reused == {"c9": "c8"}
    if kernel == "panics":
        # c9 has its parent's kernel, so it is c8 or c10 that made the change.
        assert outcome.state is State.NARROWED
        assert [line.names[commit.sha] for commit in outcome.candidates] == ["c10", "c8"]
        assert outcome.message.startswith("one of 2 commits")
        assert line.shown(outcome) == ["c10", "c8"]
    else:
        assert line.found(outcome) == "c10"


def test_a_host_that_was_too_busy_says_nothing_of_an_equal_kernel(line: Lab) -> None:
    engine = line.engine("c7", content={"c8": "same", "c6": "same"}, busy={"c8": 99})
    line.bisect(engine)
    assert line.shas["c6"] in engine.measured


def test_a_commit_with_its_parents_kernel_is_never_the_answer(line: Lab) -> None:
    line.twins = {"c7": "c6"}
    with pytest.raises(InfraError, match=r"is fixed and has the kernel of its parent .* not fixed") as caught:
        line.bisect(line.engine("c7"))
    assert f"bisector test {line.shas['c6'][:12]}" in caught.value.hint


def test_how_much_can_matter_is_said_and_recorded_once(line: Lab) -> None:
    line.known = Mattering(14_565, frozenset(f"{n:040x}" for n in range(1_012)))
    line.bisect(line.engine("c7"))
    told = [event.text for event in line.events if isinstance(event, Note)]
    assert "14,565 commits, 1,012 can matter to this kernel" in told
    with line._store() as store:
        assert store.mattering() == line.known.shas
    line.events.clear()
    line.known = Mattering(1, frozenset())
    line.bisect(line.engine("c7"))
    assert "14,565 commits, 1,012 can matter to this kernel" in [e.text for e in line.events if isinstance(e, Note)]


TROUBLED: dict[str, Mapping[str, object]] = {"faults": {"c8": fakes.PANIC}, "busy": {"c4": 1}}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """The answer of a run that nobody kills, and what it measured."""
    whole = Lab(tmp_path_factory.mktemp("whole"), histories.linear(17), "c0", "c16")
    engine = whole.engine("c7", **TROUBLED)
    return whole.found(whole.bisect(engine)), [whole.names[sha] for sha in engine.measured]


@pytest.mark.parametrize("kill_at", range(1, 9, 2))
def test_killed_anywhere_and_resumed_nothing_is_measured_twice(
    line: Lab, unbroken: tuple[str, list[str]], kill_at: int
) -> None:
    engine = line.engine("c7", **TROUBLED)
    engine.kill_at = kill_at
    try:
        outcome = line.bisect(engine)
    except fakes.Killed:
        engine.kill_at = None
        outcome = line.bisect(engine)
    assert (line.found(outcome), [line.names[sha] for sha in engine.measured]) == unbroken


@pytest.fixture
def close_ends(line: Lab) -> fakes.FakeExecutor:
    return replace(line.engine("c7"), fast_iops=fakes.SLOW_IOPS * 1.9)


def test_ends_too_close_are_refused(line: Lab, close_ends: fakes.FakeExecutor) -> None:
    with pytest.raises(EndsDoNotReproduce, match=r"1\.90 times apart"):
        line.bisect(close_ends)
    assert len(close_ends.measured) == 2


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


def test_a_metric_without_a_live_counter_has_whole_runs_and_says_so(line: Lab) -> None:
    line.settings = replace(BY_GIT, bisect=replace(BY_GIT.bisect, metric="read.clat.mean", threshold="1.6ms"))
    engine = line.engine("c7")
    engine.stops_early = True
    with pytest.raises(EndsDoNotReproduce, match=r"measured 1\.50 ms, the new end 1\.50 ms \(read\.clat\.mean"):
        line.bisect(engine)
    said = [event.text for event in line.events if isinstance(event, Note)]
    assert said[0] == "no run is stopped early: read.clat.mean is known only when a run has ended"


def test_which_direction_the_change_is_in_is_seen_and_said(line: Lab) -> None:
    """Nobody said what was expected: the words of either direction follow from the measured ends."""
    new = line.engine("c7").is_new
    engine = fakes.FakeExecutor(lambda sha: not new(sha))
    outcome = line.bisect(engine)
    assert line.found(outcome) == "c7"
    assert "is the first bad commit" in outcome.message
    assert "first bad commit" in line.log
    said = [event.text for event in line.events if isinstance(event, Note)]
    changed = "a regression: read.iops of the worst job from 4,000 IOPS to 1,000 IOPS"
    assert f"{changed}; threshold 2,000 IOPS, the middle of the gap between the ends" in said
    purposes = [event.purpose for event in line.events if isinstance(event, Planned)]
    assert purposes[:2] == ["the old end", "the new end"]
    words = [event.word for event in line.events if isinstance(event, TrialJudged)]
    assert words[:3] == ["measured", "bad", "good"]


def test_end_that_does_not_build_is_refused(line: Lab) -> None:
    with pytest.raises(EndsDoNotReproduce, match=r"cannot be judged.*expected ';'"):
        line.bisect(line.engine("c7", faults={"c0": fakes.BUILD_ERROR}))


def test_given_threshold_needs_both_ends_on_their_sides(line: Lab) -> None:
    line.settings = replace(BY_GIT, bisect=replace(BY_GIT.bisect, threshold="5000"))
    with pytest.raises(EndsDoNotReproduce, match="both ends are on one side"):
        line.bisect(line.engine("c7"))


def test_regression_uses_the_same_code(tmp_path: Path) -> None:
    chosen = replace(BY_GIT.bisect, expect=Direction.REGRESSION, terms=Terms("fast", "slow"))
    lab = Lab(tmp_path, histories.linear(9), "c0", "c8", replace(DEFAULTS, bisect=chosen))
    new = lab.engine("c5").is_new
    engine = fakes.FakeExecutor(lambda sha: not new(sha))
    outcome = lab.bisect(engine)
    assert lab.found(outcome) == "c5"
    assert outcome.message.startswith(f"{lab.shas['c5'][:12]} is the first slow commit")
    assert "first slow commit" in lab.log


def test_paths_limit_what_is_tried(tmp_path: Path) -> None:
    nodes = [
        replace(node, files={"drivers/md/dm.c": node.name}) if node.name in ("c3", "c6", "c9") else node
        for node in histories.linear(12)
    ]
    lab = Lab(tmp_path, nodes, "c0", "c11", paths=("drivers/md",))
    engine = lab.engine("c6")
    assert lab.found(lab.bisect(engine)) == "c6"
    assert {lab.names[sha] for sha in engine.measured[2:]} <= {"c3", "c6", "c9"}


def test_unjudgeable_first_run_of_a_fault_is_a_fact(line: Lab) -> None:
    hang = Fault(Stage.WORKLOAD, FaultKind.HANG, "fio never ended")
    line.bisect(line.engine("c7", faults={"c8": hang}))
    assert [trial.fault for trial in line.trials() if trial.commit.sha == line.shas["c8"]] == [hang, hang]


def test_ends_are_whole_and_the_answer_rests_on_whole_runs(line: Lab) -> None:
    engine = line.engine("c7")
    engine.stops_early = True
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
    engine = line.engine("c7")
    engine.stops_early = True
    assert line.found(line.bisect(engine)) == "c7"
    assert {rule for _, rule in engine.rules} == {None}
    assert len(engine.measured) == len(set(engine.measured))


@pytest.mark.parametrize("misleading", ["c8", "c6"])
def test_a_whole_run_wins_over_one_that_was_stopped_and_the_search_goes_on(line: Lab, misleading: str) -> None:
    engine = line.engine("c7")
    engine.stops_early, engine.misleading = True, frozenset({line.shas[misleading]})
    outcome = line.bisect(engine)
    assert line.found(outcome) == "c7"
    notes = [event.text for event in line.events if isinstance(event, Note)]
    assert any(f"a whole run says that {line.shas[misleading][:12]} is " in note for note in notes)
    assert f"# first fixed commit: [{line.shas['c7']}]" in line.log
    assert line.shown(outcome) == ["c7"]


def test_killed_before_the_whole_runs_it_makes_them_then(line: Lab) -> None:
    engine = line.engine("c7")
    engine.stops_early, engine.kill_at = True, 8
    with pytest.raises(fakes.Killed):
        line.bisect(engine)
    engine.kill_at = None
    assert line.found(line.bisect(engine)) == "c7"
    assert [line.names[sha] for sha, rule in engine.rules if rule is None] == ["c0", "c16", "c7", "c6"]


def test_whole_runs_that_stay_weak_are_not_made_for_ever(line: Lab) -> None:
    engine = line.engine("c7")
    engine.stops_early = True
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
    engine = line.engine("c7", content={"c7": "same", "c8": "same"})
    engine.stops_early = True
    assert line.found(line.bisect(engine)) == "c7"
    assert [line.names[sha] for sha, rule in engine.rules if rule is None] == ["c0", "c16", "c8", "c6"]


def test_a_regression_is_held_against_the_same_rule(line: Lab) -> None:
    chosen = {"bisect.expect": "regression", "bisect.strategy": "git"}
    line.settings = options.load(chosen, directory=Path("/")).settings
    engine = line.engine("c7")
    engine.stops_early = True
    engine.slow_iops, engine.fast_iops = engine.fast_iops, engine.slow_iops
    assert line.found(line.bisect(engine)) == "c7"
