"""How long runs are follows from the ends' first readings: from the logs of these to a search with other runs."""

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.analysis.ends import TooNoisy
from bisector.bisect.equipment import Equipment
from bisector.bisect.facts import Crew, Facts, Heard, Recorded, Task
from bisector.bisect.instructions import Ask, Cancel, Done, Installed, Instruction, KeptKernels, Submit, Tell, Wait
from bisector.bisect.run_length import CoursesOf
from bisector.bisect.step import step
from bisector.config import GuestClock, Settings, options
from bisector.core.events import Event, Listener, Note
from bisector.core.figures import Run
from bisector.core.subject import Cell, Subject
from bisector.core.trial import Artifact, Timings, Trial
from bisector.core.verdict import State
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.search.run_length import PAIRS, RunLength
from bisector.status import from_record
from bisector.status.view import BisectionView
from bisector.store.facts import InFlight, Submitted, Work
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.site import CheckingOut, Site
from tests.examples import HOST, SETUP, commit


def by_git(**given: str) -> Settings:
    """A short search, whose caches are filled by whole runs."""
    flags = {
        "bisect.strategy": "git",
        "storage.fill": "whole",
        **{f"workload.{key}": one for key, one in given.items()},
    }
    return options.load(flags, directory=Path("/")).settings


BY_GIT = by_git()
AROUND_S = 320.0
BEFORE_S, BEST_S = 40.0, 160.0
SAMPLE_S = 0.5


@dataclass
class Logging(CheckingOut):
    """A bench whose trials leave fio's logs: of runs of ``runtime_s``, each of which has noise of its own.

    A run of 40 s deviates by ``within_runs``, a trial by ``between_trials``; ``runs`` are the lengths of all runs.
    """

    run_dir: Path = Path()
    runtime_s: float = 0.0
    within_runs: float = 0.04
    between_trials: float = 0.0
    logs: bool = True
    runs: list[float] = field(default_factory=list)

    def _measured(self, request: TrialRequest) -> Trial:
        made = super()._measured(request)
        if not made.runs:
            return made
        self.runs.append(self.runtime_s)
        draw, samples = random.Random(request.n), int(self.runtime_s / SAMPLE_S)
        noise = [draw.gauss(0, self.within_runs * math.sqrt(BEFORE_S / SAMPLE_S)) for _ in range(samples)]
        # Of each kernel once up and once down, so that nothing is told by chance.
        sign = (-1) ** self.measured.count(request.commit.sha)
        mean = sign * (self.between_trials + 0.8 * self.within_runs * math.sqrt(BEFORE_S / self.runtime_s))
        level = made.runs[-1].jobs[0].iops_mean
        rates = [level * (1 + mean + one - sum(noise) / samples) for one in noise]
        lines = [f"{500 * n}, {rate:.3f}, 0, 4096, 0" for n, rate in enumerate(rates, 1)]
        names = [f"full/partial_iops.{n}.log" for n in (1, 2)] if self.logs else []
        kept = [Artifact(name, f"{request.n}/{name}", "", 0) for name in names]
        for one in kept:
            path = self.run_dir / one.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines), encoding="utf-8")
        runs = (*map(self._lasting, made.runs[:-1]), self._lasting(made.runs[-1], sum(rates) / len(rates)))
        took = Timings(47.0, 5.7, 4.2, 2 * self.runtime_s, AROUND_S + 2 * self.runtime_s)
        return replace(made, runs=runs, artifacts=tuple(kept), runtime_s=self.runtime_s, timings=took)

    def _lasting(self, run: Run, iops: float = 0.0) -> Run:
        """Both jobs do the same, so that either may be the one that decides."""
        figures = ((job, iops or job.iops_mean) for job in run.jobs)
        lasted_ms = round(1000 * self.runtime_s)
        jobs = tuple(replace(job, runtime_ms=lasted_ms, iops_mean=one, bw_kib_s=4 * one) for job, one in figures)
        return replace(run, jobs=jobs, duration_s=self.runtime_s + 0.2)


@dataclass
class Noisy(Site):
    """A clone whose ends differ by 6 %, on a bench where runs of 40 s differ by nearly as much."""

    def __post_init__(self) -> None:
        super().__post_init__()
        new, run_dir = self.engine.is_new, self.home / "run"
        self.engine: Logging = Logging(new, culprit="c3", slow_iops=1000.0, fast_iops=1060.0, run_dir=run_dir)

    @contextmanager
    def _equip(self, settings: Settings, run_dir: Path, repository: Repository, tell: Listener) -> Iterator[Equipment]:
        self.engine.runtime_s = settings.workload.runtime_s
        with SourceTree(repository, run_dir) as self.engine.tree:
            yield Equipment(self.engine, fakes.FakeKin(repository), fakes.at_once)

    @contextmanager
    def store(self) -> Iterator[Store]:
        with Store.open(self.home / "run/record.sqlite", readonly=True) as store:
            yield store

    @property
    def length(self) -> RunLength | None:
        with self.store() as store:
            return store.run_length()

    @property
    def view(self) -> BisectionView:
        with self.store() as store:
            return from_record.view(RunDirectory(self.home / "run"), store)

    @property
    def notes(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Note)]


@pytest.fixture
def noisy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Noisy:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("bisector.doctor.checks.check", lambda *_: None)
    return Noisy(tmp_path, BY_GIT)


def assert_chosen(noisy: Noisy) -> None:
    """The ends were read with either length, and nothing that was measured with the first one counts any more."""
    length = noisy.length
    assert length is not None
    assert (length.runtime_s, length.before_s, length.best_s) == (BEST_S, BEFORE_S, BEST_S)
    assert length.within_runs == pytest.approx(0.04, rel=0.5)
    with noisy.store() as store:
        trials = store.trials()
        settings = options.from_json(store.bisection().settings)
    assert {trial.runtime_s for _, trial in trials} == {BEST_S}
    assert trials[0][0] >= length.since
    assert settings.workload.runtime_s == BEST_S
    assert not settings.workload.choose_runtime
    assert settings.machine.trial_deadline_s > noisy.settings.machine.trial_deadline_s + 2 * (BEST_S - BEFORE_S)
    assert {noisy.names[trial.commit.sha] for _, trial in trials[:2]} == {"c0", "c5"}


def test_where_the_noise_of_runs_dominates_both_ends_are_read_again_with_longer_ones(noisy: Noisy) -> None:
    assert noisy.begin() is State.FOUND
    assert_chosen(noisy)
    assert noisy.engine.runs[: 2 * PAIRS] == [BEFORE_S] * 2 * PAIRS
    assert set(noisy.engine.runs[2 * PAIRS :]) == {BEST_S}
    (said,) = (one for one in noisy.notes if one.startswith("runs of 160s from trial 9 on: readings of one kernel"))
    assert "trials before 9 count no more" in said
    view = noisy.view
    assert view.run_length == noisy.length
    assert view.trials[0].n == 9
    assert view.first_fixed is not None
    assert noisy.names[view.first_fixed.sha] == "c3"


@pytest.mark.parametrize("at", ["the choice", "the first reading", "a reading after it"])
def test_a_process_that_is_killed_around_the_choice_goes_on_with_it(noisy: Noisy, at: str) -> None:
    if at == "the choice":
        noisy.events = Killing(noisy.events)
    noisy.engine.kill_at = {"the choice": None, "the first reading": 2 * PAIRS + 1, "a reading after it": 12}[at]
    with pytest.raises(fakes.Killed):
        noisy.begin()
    noisy.events, noisy.engine.kill_at = [], None
    assert noisy.resume() is State.FOUND
    assert_chosen(noisy)
    assert not any(one.startswith("runs of 160s") for one in noisy.notes)


class Killing(list[Event]):
    """The process is gone as soon as it has told that the length of runs was chosen."""

    def append(self, event: Event) -> None:
        super().append(event)
        if isinstance(event, Note) and event.text.startswith("runs of 160s"):
            raise fakes.Killed


def test_a_length_that_is_given_stays_and_a_better_one_is_told(noisy: Noisy) -> None:
    given = by_git(runtime="40s")
    noisy.settings = replace(given, bisect=replace(given.bisect, most_pairs=8))
    with pytest.raises(TooNoisy) as caught:
        noisy.begin()
    assert set(noisy.engine.runs) == {BEFORE_S}
    assert caught.value.hint.startswith("--runtime 160s has less noise for the time it takes; or look for larger")
    length = noisy.length
    assert length is not None
    assert (length.is_chosen, length.best_s) == (False, BEST_S)
    assert any("from trial to trial: with --runtime 160s " in one for one in noisy.notes)
    assert [trial.n for trial in noisy.view.trials] == list(range(1, len(noisy.engine.runs) + 1))


def test_where_trials_differ_more_than_runs_the_length_stays(noisy: Noisy) -> None:
    noisy.engine.within_runs, noisy.engine.between_trials = 0.01, 0.08
    noisy.settings = replace(BY_GIT, bisect=replace(BY_GIT.bisect, most_pairs=8))
    with pytest.raises(TooNoisy) as caught:
        noisy.begin()
    length = noisy.length
    assert length is not None
    assert (length.is_chosen, length.best_s) == (False, BEFORE_S)
    assert length.between_trials > 3 * length.within_runs
    assert caught.value.hint == "look for larger changes alone with --least-effect"
    assert any(one.endswith("from trial to trial: no other length of a run pays") for one in noisy.notes)


def test_where_no_log_tells_what_runs_are_like_the_length_stays(noisy: Noisy) -> None:
    noisy.engine.logs = False
    assert noisy.begin() is State.FOUND
    assert (set(noisy.engine.runs), noisy.length) == ({BEFORE_S}, None)


# The step alone


OLD, NEW = commit(0), commit(9)
READ = tuple(
    fakes.trial((OLD, NEW)[n % 2], figure)
    for n, figure in enumerate((1000.0, 1100.0, 1090.0, 1010.0, 950.0, 1020.0, 1150.0, 1040.0))
)
ASK = Ask(CoursesOf(tuple(range(1, 2 * PAIRS + 1))))
CHOSEN = RunLength(2 * PAIRS + 1, BEST_S, BEFORE_S, BEST_S, 0.1, 0.0, 0.05, 60, 20, 9e4, 5e4)


def facts(*trials: Trial, settings: Settings = BY_GIT, length: RunLength | None = None) -> Facts:
    task = Task(Range(OLD, NEW), settings, Path("/run"), crew=Crew(measuring=1, builders=frozenset({"builder"})))
    n = len(trials) + 1
    record = Recorded(task, tuple(enumerate(trials, 1)), (), (), (), (), n, (fakes.GCC,), (), None, None, ())
    heard = Heard(answers={Installed(): (fakes.GCC,), KeptKernels((fakes.GCC,)): frozenset({OLD.sha, NEW.sha})})
    return Facts(task, replace(record, run_length=length), heard)


def then(known: Facts) -> Instruction:
    while isinstance(said := step(known, {}, (HOST,)), Tell):
        known = replace(known, heard=replace(known.heard, told=known.heard.told | {*said.keys}))
    return said


def test_the_logs_are_looked_at_once_there_are_enough_pairs_and_no_length_is_on_record() -> None:
    assert then(facts(*READ)) == ASK
    assert isinstance(then(facts(*READ[:-1])), Submit)
    kept = replace(CHOSEN, runtime_s=BEFORE_S)
    assert isinstance(then(facts(*READ, length=kept)), Submit)


def test_counted_time_and_what_no_log_tells_of_need_no_length() -> None:
    counted = replace(BY_GIT, machine=replace(BY_GIT.machine, clock=GuestClock.INSTRUCTIONS))
    latency = replace(BY_GIT, bisect=replace(BY_GIT.bisect, metric="read.clat.mean"))
    assert then(facts(*READ, settings=counted)) != ASK
    longer = (replace(one, runs=tuple(map(_slower(n), one.runs))) for n, one in enumerate(READ))
    assert isinstance(then(facts(*longer, settings=latency)), Submit)


def _slower(n: int) -> Callable[[Run], Run]:
    """Latencies that lie close, and are not the same."""
    return lambda run: replace(run, jobs=tuple(replace(job, clat_mean_ns=1e6 + 3e4 * (n % 5)) for job in run.jobs))


def test_what_is_under_way_with_the_length_before_is_broken_off_before_it_goes_on_with_the_other() -> None:
    known = facts(length=CHOSEN)
    under_way = Submit(TrialRequest(9, Cell(Subject(OLD), SETUP), {}), "trial", host="other")
    in_flight = (InFlight(5, Submitted(Work.TRIAL, OLD.sha, 9, "other")),)
    busy = replace(known, recorded=replace(known.recorded, in_flight=in_flight))
    assert step(busy, {5: under_way}, (HOST,)) == Cancel(5)
    cancelled = replace(busy, heard=replace(busy.heard, cancelled=frozenset({5})))
    assert step(cancelled, {5: under_way}, (HOST, "builder")) == Wait()
    nothing_kept = replace(known.heard, answers={**known.heard.answers, KeptKernels((fakes.GCC,)): frozenset()})
    assert step(replace(known, heard=nothing_kept), {}, ("builder",)) == Wait()
    done = step(known, {}, (HOST, "builder"))
    assert isinstance(done, Done)
    assert done.state is State.RUNNING
    # The next process measures with the other length, from the first reading on.
    again = facts(settings=BY_GIT.lasting(BEST_S), length=CHOSEN)
    assert isinstance(then(again), Submit)
