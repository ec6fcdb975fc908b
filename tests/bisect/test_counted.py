"""A search in counted time: it is shown to be exact, small changes are found, and several guests measure at a time."""

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.analysis.levels import LEAST_FACTOR
from bisector.campaign.instructions import Crew
from bisector.config import options
from bisector.core.errors import EndsDoNotReproduce
from bisector.core.events import OnHost, Planned
from bisector.core.trial import Artifact, Trial
from bisector.core.verdict import State
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.crew import Guests
from tests.bisect.lab import Lab, lab_of, tried
from tests.examples import ERA
from tests.git import histories

COUNTED = options.load({"machine.clock": "instructions"}, directory=Path("/")).settings
ERA_COUNTED = replace(ERA, clock="8 ns an instruction").sealed
COMMITS = 33
CULPRIT = "c19"


@dataclass
class Bench(fakes.FakeExecutor):
    """Guests that do the same again, unless ``is_exact`` says otherwise.

    The new side is ``effect`` times as fast; by a kernel and the seed of its guest, which together make
    always the same of it, a figure is off by a ``spread``.
    """

    effect: float = 1.01
    spread: float = 0.0003
    is_exact: bool = True
    seeds: list[int] = field(default_factory=list)

    def measure(self, request: TrialRequest) -> Trial:
        self.fast_iops, self.seeds = self.slow_iops * self.effect, [*self.seeds, request.guest_seed]
        key = f"{request.commit.sha}/{request.guest_seed}" + ("" if self.is_exact else f"/{request.n}")
        self.factor = lambda _: 1 + random.Random(key).gauss(0.0, self.spread)
        made = super().measure(request)
        console = Artifact("console.log", f"trials/{request.n:04d}-{request.commit.short}/console.log", key, 1)
        return replace(made, era=ERA_COUNTED, guest_seed=request.guest_seed, artifacts=(console,))


def lab(path: Path) -> Lab:
    return lab_of(path, histories.linear(COMMITS), "c0", f"c{COMMITS - 1}", settings=COUNTED)


@pytest.mark.parametrize(("effect", "spread"), [(1.001, 0.00003), (1.03, 0.003)])
def test_a_small_change_is_found(tmp_path: Path, effect: float, spread: float) -> None:
    at = lab(tmp_path)
    assert at.finds(at.bench(Bench, CULPRIT, effect=effect, spread=spread)) == CULPRIT
    assert len(at.trials()) <= 16
    assert sum("the same to the last bit" in text for text in at.notes) == 1


def test_the_old_end_is_read_with_the_same_seed_twice_and_then_with_others(tmp_path: Path) -> None:
    at = lab(tmp_path)
    at.bisect(at.bench(Bench, CULPRIT))
    seeds: dict[str, list[int]] = {name: [] for name in ("c0", f"c{COMMITS - 1}", CULPRIT)}
    for trial in at.trials():
        if (name := at.names.get(trial.commit.sha)) in seeds:
            seeds[name].append(trial.guest_seed)
    assert seeds["c0"][:3] == [0, 0, 1]
    assert seeds[f"c{COMMITS - 1}"][:2] == [0, 1]
    assert seeds[CULPRIT][0] == 0


@pytest.mark.parametrize(("guests", "is_exact"), [(1, True), (2, False)])
def test_far_ends_are_shown_to_be_exact_when_an_answer_is_near(tmp_path: Path, guests: int, is_exact: bool) -> None:
    at = lab(tmp_path)
    at.crew = Crew(guests=guests)
    engine = at.bench(Bench, CULPRIT, effect=8.0, spread=0.02, is_exact=is_exact)
    assert at.finds(Guests(engine, guests, random.Random(1))) == CULPRIT
    of = [at.names.get(trial.commit.sha) for trial in at.trials()]
    assert of.count("c0") == 2
    assert [place for place, name in enumerate(of) if name == "c0"][1] >= 5
    said = "the same to the last bit" if is_exact else "counted time is not exact here"
    assert sum(said in text for text in at.notes) == 1


def test_without_the_time_to_show_that_it_is_exact_there_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Lab(tmp_path, histories.linear(COMMITS), "c0", f"c{COMMITS - 1}", settings=COUNTED)
    line.give(1e6)
    engine = line.bench(Bench, CULPRIT, effect=8.0, spread=0.02)
    with monkeypatch.context() as patch:
        patch.setattr("bisector.bisect.strategies.ends_in_time", lambda facts, trial: False)
        outcome = line.bisect(engine)
    assert (outcome.state, outcome.out_of_time) == (State.NARROWED, True)
    assert outcome.message.startswith("one of 1 commit")
    trials = len(line.trials())
    assert line.finds(engine) == CULPRIT
    assert [line.names.get(trial.commit.sha) for trial in line.trials()[trials:]] == ["c0"]


def test_trials_that_cannot_be_compared_are_not_repeated_for_ever(tmp_path: Path) -> None:
    at = lab(tmp_path)
    assert at.finds(at.far_engine(CULPRIT)) == CULPRIT  # whose trials do not say that they were counted
    assert [at.names.get(trial.commit.sha) for trial in at.trials()].count("c0") == 3


def test_ends_that_are_the_same_but_for_what_a_seed_makes_are_no_change(tmp_path: Path) -> None:
    at = lab(tmp_path)
    with pytest.raises(EndsDoNotReproduce):
        at.bisect(at.bench(Bench, CULPRIT, effect=1.0, spread=0.01))


@pytest.mark.parametrize(("seed", "effect"), [(0, 1.01), (1, 8.0)])
def test_several_guests_at_a_time_come_to_the_same(tmp_path: Path, seed: int, effect: float) -> None:
    at = lab(tmp_path)
    at.crew = Crew(guests=2)
    guests = Guests(at.bench(Bench, CULPRIT, effect=effect, spread=0.00003), 2, random.Random(seed))
    assert at.finds(guests) == CULPRIT
    assert guests.most == 2
    places = {event.host for event in at.events if isinstance(event, OnHost) and isinstance(event.event, Planned)}
    assert places == {"guest 1", "guest 2"}
    assert len(tried(at)) <= 20
    # While the ends are read again, a guest without one of them measures what the search begins with.
    of_ends = [at.names.get(trial.commit.sha) for trial in at.trials()]
    lie_close = effect < LEAST_FACTOR
    assert (of_ends.count("c0"), of_ends.count(f"c{COMMITS - 1}")) == ((3, 2) if lie_close else (2, 1))


def test_a_process_that_is_killed_goes_on_with_all_its_guests(tmp_path: Path) -> None:
    at = lab(tmp_path)
    at.crew = Crew(guests=2)
    for kill_at in (2, 7):
        with pytest.raises(fakes.Killed):
            at.bisect(Guests(at.bench(Bench, CULPRIT, kill_at=kill_at), 2, random.Random(1)))
    assert at.finds(Guests(at.bench(Bench, CULPRIT), 2, random.Random(1))) == CULPRIT
