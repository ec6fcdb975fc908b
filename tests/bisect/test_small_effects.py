"""Changes of some per cent: from ends that are told apart in turn to an answer whose effect is shown."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.campaign.instructions import Done
from bisector.core.verdict import State
from tests import fakes
from tests.bisect.lab import DEFAULTS, Lab, lab_of
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
