"""An answer of counted time beside the host's clock: how large the change is by either, and whether it can show there.

Counted time has no caches, no branch prediction and no second CPU, so that a change of some size by instructions may be
of another size, or none, where time is the host's. That is measured as a comparison of the answer with its parent
(:mod:`bisector.compare`), whose record lies below the run's. Nothing here changes the answer: it stands beside it.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from bisector.analysis.comparison import (
    DELTA,
    MOST_BLOCKS,
    Effect,
    Outcome,
    Scale,
    blocks_for_exact,
    blocks_to_tell,
    contrast,
    effect,
)
from bisector.analysis.verdicts import Judging
from bisector.core import units
from bisector.core.errors import BisectorError
from bisector.core.json_document import Key
from bisector.core.subject import Commit
from bisector.core.verdict import State, Verdict
from bisector.git.repository import Repository
from bisector.search.levels import OF_HOSTS
from bisector.status.blocks import Blocks, result_of
from bisector.store.rundir import RunDirectory, state_of
from bisector.store.store import Store

CONFIRMED = "confirmed"  # the directory of the comparison, in that of the run
MOST_PAIRS = 10
_LEAST_PAIRS = blocks_for_exact(1)
# Of one pair, whose two trials spread as those of any host do before it is known by how much.
_SPREAD_OF_A_PAIR = OF_HOSTS.spread * math.sqrt(2)
_NEAR_ONE, _WHOLE_FROM, _MOST_DIGITS = 0.1, 100, 6
_ENDED = (State.MEASURED, State.FAILED)


@dataclass(frozen=True, slots=True)
class Factor:
    """How many times the value of its parent a commit's is."""

    times: Annotated[float, "how many times the parent's value the commit's is"]
    interval: Annotated[
        tuple[float, float] | None, "in which the true one lies, 95 times of 100; `null` where the readings tell none"
    ]

    @property
    def text(self) -> str:
        """``1.02 times (95 %: 0.970 to 1.07)``, near 1 with as many digits as tell both ends of the interval apart."""
        if self.interval is None:
            return f"{_number(self.times)} times"
        apart = (digits for digits in range(3, _MOST_DIGITS) if len({f"{one:.{digits}f}" for one in self.interval}) > 1)
        digits = next(apart, _MOST_DIGITS)
        low, high = (_number(one, digits) for one in self.interval)
        return f"{_number(self.times, digits)} times (95 %: {low} to {high})"


def _number(times: float, digits: int = 3) -> str:
    if abs(times - 1) < _NEAR_ONE:
        return f"{times:.{digits}f}"
    return f"{times:#.3g}" if times < _WHOLE_FROM else f"{times:,.0f}"


@dataclass(frozen=True, slots=True)
class HostClock:
    """The answer by both clocks, as far as it is measured by the host's, in ``run_dir``.

    ``label`` says what decides. ``parent`` is None, and ``counted``, where nobody tells the parent (any more).
    ``state`` and ``message`` are those of the comparison, None before it is begun; ``pairs`` of it count. Its
    ``outcome`` is ``fragile`` where the permutations within pairs do not show it.
    """

    first: Commit
    label: str
    run_dir: Annotated[str, "path of the directory of the comparison, which is a run of its own"]
    parent: Annotated[Commit | None, "the parent; `null` where nobody tells it"] = None
    counted: Annotated[Factor | None, Key("by_instructions"), "how large the change is in counted time"] = None
    measured: Annotated[
        Factor | None, Key("by_host"), "how large it is by the host's clock; `null` until a pair counts"
    ] = None
    pairs: Annotated[int, "number of pairs that count"] = 0
    outcome: Annotated[Outcome | None, "what is said of the commit by the host's clock; `null` until a pair counts"] = (
        None
    )
    fragile: bool = False
    state: Annotated[State | None, "how that comparison stands; `null` before it is begun"] = None
    message: str = ""

    @property
    def needed(
        self,
    ) -> Annotated[
        int | None,
        Key("pairs_needed"),
        "number of pairs that a change of its size takes to show; `null` of too many",
    ]:
        """About how many pairs it takes to show; None of more than can be told, and without a factor."""
        return pairs_needed(self.counted.times) if self.counted is not None else None

    @property
    def is_due(self) -> bool:
        """Whether there is something left to measure."""
        shows = self.needed is not None and self.needed <= MOST_PAIRS
        return self.state not in _ENDED and (shows or self.state is not None)

    @property
    def waits(self) -> bool:
        """Whether it is left to measure, and nobody does."""
        return self.is_due and self.state is not State.RUNNING

    @property
    def plan(self) -> str:
        """What is about to be measured, and why so often."""
        parent, pairs = self.parent.short if self.parent is not None else units.UNKNOWN, self.needed or 0
        return (
            f"{self.first.short} is measured beside its parent {parent} by the host's clock, in"
            f" {units.plural(pairs, 'pair')}, as a change of the size that it has by instructions takes there"
        )

    @property
    def sentence(self) -> Annotated[str, "all of it in a sentence"]:
        """Both factors, and what the second one says of the first; or why there is none."""
        if self.parent is None or self.counted is None:
            return f"{self.first.short} has no parent on record to be measured beside by the host's clock"
        first = f"{self.label} is {self.counted.text} that of the parent {self.parent.short} by instructions"
        return f"{first}; by the host's clock {self._by_the_host}"

    @property
    def _by_the_host(self) -> str:
        if self.measured is not None:
            what = f"{self.measured.text} in {units.plural(self.pairs, 'pair')}: {self._compared}"
            return what if self.state in _ENDED else f"{what}, so far"
        if self.state is not None:
            yet, why = "" if self.state in _ENDED else " yet", f", {self.message}" if self.message else ""
            return f"no pair counts{yet}: {self.state}{why}"
        if self.is_due:
            return "it is yet to be measured"
        count = f"more than {MOST_BLOCKS:,}" if self.needed is None else f"about {self.needed:,}"
        apart = f"{100 * OF_HOSTS.spread:g} %"
        return (
            f"it was not measured: figures of one kernel are some {apart} apart there, so that a change of this size"
            f" takes {count} pairs to show, and at most {MOST_PAIRS} are measured"
        )

    @property
    def _compared(self) -> str:
        if self.measured is None or self.counted is None or self.outcome in (None, Outcome.UNCLEAR):
            return "not told apart from no change"
        if self.outcome is Outcome.SAME:
            return f"the same within {100 * DELTA:g} %, so that the change does not show there"
        same = math.log(self.measured.times) * math.log(self.counted.times) > 0
        what = "the change is seen there, too" if same else "a change the other way, which contradicts the answer"
        return f"{what} (fragile: the exact test does not show it)" if self.fragile else what


def pairs_needed(times: float) -> int | None:
    """After about how many pairs a change by this factor would show by the host's clock; None above a thousand.

    They are as many as the exact test takes, at least.
    """
    guess = Effect(Scale.RATIO, 2, math.log(times), _SPREAD_OF_A_PAIR, math.log(times), p=1.0, exact_p=1.0, base=1.0)
    found = blocks_to_tell(guess, delta=0.0)
    return None if found is None else max(found, _LEAST_PAIRS)


def host_clock(run_dir: Path, repository: Path | None, judging: Judging, first: Commit) -> HostClock:
    """How the answer stands by both clocks, from the record of its run and that of the comparison."""
    made = _measured(HostClock(first, judging.objective.label, str(run_dir / CONFIRMED)))
    parent = made.parent or _parent(repository, first)
    return made if parent is None else replace(made, parent=parent, counted=_counted(judging, parent, first))


def _parent(repository: Path | None, first: Commit) -> Commit | None:
    if repository is not None:
        with suppress(BisectorError), Repository.open(repository) as opened:
            return next(iter(opened.commits(opened.parents(first.sha, first_only=True))), None)
    return None


def _counted(judging: Judging, parent: Commit, first: Commit) -> Factor | None:
    """By the readings of both kernels; of one that has none of its own, by all of its side."""
    sides = ((parent, Verdict.OLD), (first, Verdict.NEW))
    before, after = (judging.scores_of((one.sha,)) or judging.scores_of(_side(judging, side)) for one, side in sides)
    return _factor(*([judging.objective.value_of(score) for score in one] for one in (before, after)))


def _side(judging: Judging, side: Verdict) -> list[str]:
    return [sha for sha, verdict in judging.verdicts() if verdict is side]


def _factor(before: Sequence[float], after: Sequence[float]) -> Factor | None:
    if not (before and after):
        return None
    # Each side against 1, so that what they are apart is the ratio of both.
    old, new = (effect([1.0] * len(one), one) for one in (before, after))
    found = contrast(new, old)
    return Factor(math.exp(new.mean - old.mean), found.interval if found is not None else None)


def _measured(clock: HostClock) -> HostClock:
    """With what the comparison has on record; as it was where there is none."""
    try:
        if not RunDirectory.is_at(Path(clock.run_dir)):
            return clock
        run = RunDirectory.open(Path(clock.run_dir))
        with Store.open(run.database, readonly=True) as store:
            if (plan := store.plan) is None:
                return clock
            state, message = state_of(run, store)
            known = replace(clock, parent=plan.arms[0].commit, state=state, message=message)
            ((change, *_), *_) = (row.changes for row in result_of(Blocks.of(plan, store)).rows)
    except BisectorError as error:
        return replace(clock, state=State.STOPPED, message=str(error))
    found = change.effect
    if found is None or found.scale is not Scale.RATIO:
        return known
    interval = found.interval if math.isfinite(found.half_width) else None
    known = replace(known, measured=Factor(found.estimate, interval), pairs=found.blocks)
    said = change.decision
    return known if said is None else replace(known, outcome=said.outcome, fragile=said.fragile)
