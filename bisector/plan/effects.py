"""What changes of some sizes take at the noise that is on record: pairs of readings of the ends, and trials."""

import math
from typing import Annotated

from bisector.core.json_document import Record
from bisector.core.kinds import percent_text
from bisector.search.difference import pairs_to_tell
from bisector.search.noise import Noise, error_rate, expected_runs
from bisector.search.step import Rules

_EFFECTS, _EFFECTS_COUNTED = (0.05, 0.10, 0.20), (0.001, 0.01, 0.05)


class Detectable(Record, frozen=True, kw_only=True):
    """What a change of one size takes."""

    effect: Annotated[float, "the change of the value, as a share"]
    pairs: Annotated[int | None, "readings of each end that tell nine of ten such changes; `null` for none that do"]
    trials: Annotated[float | None, "trials of the search at least, both ends aside; `null` for none that do"]

    @property
    def text(self) -> str:
        """For a person: ``10%: 18 pairs of the ends and 45 trials``."""
        if self.pairs is None or self.trials is None:
            return f"{percent_text(self.effect)}: cannot be told"
        return f"{percent_text(self.effect)}: {self.pairs} pairs of the ends and {self.trials:.0f} trials"


def effects_of(commits: int, spread: float, noise: Noise, *, counted: bool) -> tuple[Detectable, ...]:
    """Those of usual sizes among so many commits, for readings with this standard deviation in natural log units.

    A search takes no fewer trials than the channel's bound (:func:`bisector.search.noise.expected_runs`).
    """
    return tuple(_effect(one, commits, spread, noise) for one in (_EFFECTS_COUNTED if counted else _EFFECTS))


def _effect(effect: float, commits: int, spread: float, noise: Noise) -> Detectable:
    trials = expected_runs(commits, error_rate(1 + effect, spread, noise), 1 - Rules().target)
    return Detectable(effect=effect, pairs=pairs_to_tell(spread, effect), trials=None if math.isinf(trials) else trials)


def effects_text(effects: tuple[Detectable, ...]) -> str:
    """All of them, for a person."""
    return f"of {'; of '.join(one.text for one in effects)} at least"
