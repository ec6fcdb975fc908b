"""Small changes: of some per cent, which readings in turn tell; and less in counted time, by several guests at once."""

import random
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.analysis.levels import LEAST_FACTOR
from bisector.campaign.instructions import Crew, Done
from bisector.config import options
from bisector.core.errors import EndsDoNotReproduce
from bisector.core.events import OnHost, Planned
from bisector.core.trial import Artifact, Trial
from bisector.core.verdict import State
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.crew import Guests
from tests.bisect.lab import DEFAULTS, Lab, lab_of, tried
from tests.examples import ERA
from tests.git import histories

COMMITS = 24


def lab(path: Path) -> Lab:
    return lab_of(path, histories.linear(COMMITS), "c0", f"c{COMMITS - 1}", settings=DEFAULTS)


def engine(at: Lab, effect: float, spread: float, culprit: str = "c7") -> fakes.FakeExecutor:
    made = at.engine(culprit)
    noise = random.Random(3)
    factors = [1 + spread * noise.gauss(0, 1) for _ in range(300)]
    return replace(made, slow_iops=1000.0, fast_iops=1000.0 * (1 + effect), factor=lambda n: factors[n])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Done]:
    """A search for a change of a tenth that nobody kills."""
    at = lab(tmp_path_factory.mktemp("whole"))
    return at, at.bisect(engine(at, 0.1, 0.03))


def test_a_small_change_is_found_and_its_effect_is_said(whole: tuple[Lab, Done]) -> None:
    (at, outcome), effect = whole, 0.1
    assert at.found(outcome) == "c7"
    belief = at.belief(outcome)
    assert belief.effect is not None
    assert belief.effect.without == f"its parent {at.shas['c6'][:12]}"
    low, high = belief.effect.factor.interval or (0.0, 0.0)
    assert (1 + effect) ** 0.5 < low < 1 + effect < high
    counts = [at.names.get(trial.commit.sha) for trial in at.trials()]
    values = len(belief.effect.values_without), len(belief.effect.values_with)
    assert values == (counts.count("c6"), counts.count("c7"))
    assert abs(values[0] - values[1]) <= 2


def test_a_process_that_is_killed_between_two_readings_of_a_pair_goes_on(
    tmp_path: Path, whole: tuple[Lab, Done]
) -> None:
    at, trials = lab(tmp_path), len(whole[0].trials())
    at.killed(replace(engine(at, 0.1, 0.03), kill_at=trials - 1))
    assert len(at.trials()) == trials - 2
    assert at.finds(engine(at, 0.1, 0.03)) == "c7"
    assert len(at.trials()) == trials


def test_where_the_commit_before_is_the_old_end_that_is_read_in_turn(tmp_path: Path) -> None:
    at = lab(tmp_path)
    outcome = at.bisect(engine(at, 0.1, 0.03, "c1"))
    assert at.found(outcome) == "c1"
    belief = at.belief(outcome)
    assert belief.effect is not None
    assert belief.effect.without == f"its parent {at.shas['c0'][:12]}"


def test_what_its_own_readings_do_not_show_is_not_named(tmp_path: Path) -> None:
    """Each commit makes it a little faster: none of them has half of what the ends differ by."""
    at = lab(tmp_path)
    made = engine(at, 0.0, 0.004)
    creeping = {sha: 1000.0 * 1.005 ** int(name[1:]) for name, sha in at.shas.items()}
    outcome = at.bisect(replace(made, iops=creeping))
    assert outcome.state is not State.FOUND
    assert "readings without it and with it differ by 1." in outcome.message
    assert re.search(r", where 1\.\d{3} times would be half of what the ends differ by", outcome.message)


@pytest.mark.parametrize(("level", "noise"), [(1000.0, 0.004), (1100.0, 0.02)])
def test_where_the_ends_differed_by_the_day_alone_nothing_in_the_range_did_it(
    tmp_path: Path, level: float, noise: float
) -> None:
    """While the ends were read, the new one was a tenth faster; since then all kernels are as fast as one of them."""
    at = lab(tmp_path)
    made = engine(at, 0.1, noise)
    ends, noisy = {at.shas["c0"], at.shas[f"c{COMMITS - 1}"]}, made.factor
    made.is_new = lambda sha: sha == at.shas[f"c{COMMITS - 1}"]
    made.culprit = ""

    def on_that_day(n: int) -> float:
        """What is measured times this is the day's level."""
        if ends >= set(made.measured):
            return noisy(n)
        last = made.measured[-1]
        is_fast = made.is_new(last) or last not in at.names  # the new end with a commit reverted, too
        return noisy(n) * level / (made.fast_iops if is_fast else made.slow_iops)

    made.factor = on_that_day
    outcome = at.bisect(made)
    assert (outcome.state, outcome.candidates) == (State.NARROWED, ())
    assert outcome.message.startswith("nothing in this range changed read.iops of the worst job: the new end's was 1.")
    assert at.belief(outcome).no_change
    assert at.view().candidates == ()
    assert len(at.trials()) <= 60


# In counted time: it is shown to be exact, small changes are found, and several guests measure at a time


COUNTED = options.load({"machine.clock": "instructions"}, directory=Path("/")).settings
ERA_COUNTED = replace(ERA, clock="8 ns an instruction").sealed
COUNTED_COMMITS = 33
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


@pytest.fixture
def counted(tmp_path: Path) -> Lab:
    return lab_of(tmp_path, histories.linear(COUNTED_COMMITS), "c0", f"c{COUNTED_COMMITS - 1}", settings=COUNTED)


@pytest.mark.parametrize(("effect", "spread"), [(1.001, 0.00003), (1.03, 0.003)])
def test_a_small_change_is_found(counted: Lab, effect: float, spread: float) -> None:
    assert counted.finds(counted.bench(Bench, CULPRIT, effect=effect, spread=spread)) == CULPRIT
    assert len(counted.trials()) <= 16
    assert sum("the same to the last bit" in text for text in counted.notes) == 1


def test_the_old_end_is_read_with_the_same_seed_twice_and_then_with_others(counted: Lab) -> None:
    counted.bisect(counted.bench(Bench, CULPRIT))
    seeds: dict[str, list[int]] = {name: [] for name in ("c0", f"c{COUNTED_COMMITS - 1}", CULPRIT)}
    for trial in counted.trials():
        if (name := counted.names.get(trial.commit.sha)) in seeds:
            seeds[name].append(trial.guest_seed)
    assert seeds["c0"][:3] == [0, 0, 1]
    assert seeds[f"c{COUNTED_COMMITS - 1}"][:2] == [0, 1]
    assert seeds[CULPRIT][0] == 0


@pytest.mark.parametrize(("guests", "is_exact"), [(1, True), (2, False)])
def test_far_ends_are_shown_to_be_exact_when_an_answer_is_near(counted: Lab, guests: int, is_exact: bool) -> None:
    counted.crew = Crew(guests=guests)
    engine = counted.bench(Bench, CULPRIT, effect=8.0, spread=0.02, is_exact=is_exact)
    assert counted.finds(Guests(engine, guests, random.Random(1))) == CULPRIT
    of = [counted.names.get(trial.commit.sha) for trial in counted.trials()]
    assert of.count("c0") == 2
    assert [place for place, name in enumerate(of) if name == "c0"][1] >= 5
    said = "the same to the last bit" if is_exact else "counted time is not exact here"
    assert sum(said in text for text in counted.notes) == 1


def test_without_the_time_to_show_that_it_is_exact_there_is_no_answer(
    counted: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted.give(1e6)
    engine = counted.bench(Bench, CULPRIT, effect=8.0, spread=0.02)
    with monkeypatch.context() as patch:
        patch.setattr("bisector.bisect.strategies.ends_in_time", lambda facts, trial: False)
        outcome = counted.bisect(engine)
    assert (outcome.state, outcome.out_of_time) == (State.NARROWED, True)
    assert outcome.message.startswith("most likely ")
    trials = len(counted.trials())
    assert counted.finds(engine) == CULPRIT
    assert [counted.names.get(trial.commit.sha) for trial in counted.trials()[trials:]] == ["c0"]


def test_trials_that_cannot_be_compared_are_not_repeated_for_ever(counted: Lab) -> None:
    assert counted.finds(counted.far_engine(CULPRIT)) == CULPRIT  # whose trials do not say that they were counted
    assert [counted.names.get(trial.commit.sha) for trial in counted.trials()].count("c0") == 3


def test_ends_that_are_the_same_but_for_what_a_seed_makes_are_no_change(counted: Lab) -> None:
    with pytest.raises(EndsDoNotReproduce):
        counted.bisect(counted.bench(Bench, CULPRIT, effect=1.0, spread=0.01))


@pytest.mark.parametrize(("seed", "effect"), [(0, 1.01), (1, 8.0)])
def test_several_guests_at_a_time_come_to_the_same(counted: Lab, seed: int, effect: float) -> None:
    counted.crew = Crew(guests=2)
    guests = Guests(counted.bench(Bench, CULPRIT, effect=effect, spread=0.00003), 2, random.Random(seed))
    assert counted.finds(guests) == CULPRIT
    assert guests.most == 2
    places = {event.host for event in counted.events if isinstance(event, OnHost) and isinstance(event.event, Planned)}
    assert places == {"guest 1", "guest 2"}
    assert len(tried(counted)) <= 20
    # While the ends are read again, a guest without one of them measures what the search begins with.
    of_ends = [counted.names.get(trial.commit.sha) for trial in counted.trials()]
    lie_close = effect < LEAST_FACTOR
    assert (of_ends.count("c0"), of_ends.count(f"c{COUNTED_COMMITS - 1}")) == ((3, 2) if lie_close else (2, 1))


def test_a_process_that_is_killed_goes_on_with_all_its_guests(counted: Lab) -> None:
    counted.crew = Crew(guests=2)
    for kill_at in (2, 7):
        with pytest.raises(fakes.Killed):
            counted.bisect(Guests(counted.bench(Bench, CULPRIT, kill_at=kill_at), 2, random.Random(1)))
    assert counted.finds(Guests(counted.bench(Bench, CULPRIT), 2, random.Random(1))) == CULPRIT
