"""The runs of a phase: one, or as many as it takes to fill a cache (:mod:`bisector.storage.filling`)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from bisector.config import StorageSettings
from bisector.core.deadline import Clock
from bisector.core.figures import Run
from bisector.storage import filling
from bisector.storage.layer import Phase


@dataclass(frozen=True, slots=True)
class Rounds:
    """How the runs of a phase come about.

    ``run`` makes the one of a number, from 1 on. ``fill`` fills what the runs left free of a cache, within so many
    seconds; None where nothing but the workload can.
    """

    storage: StorageSettings
    clock: Clock
    run: Callable[[int], Run]
    fill: Callable[[float], None] | None

    def go(self, phase: Phase, runs: list[Run]) -> None:
        """Append each run to those on record, as soon as it is over."""
        start, first = self.clock.now_s(), len(runs)
        longest_s = 0.0
        while True:
            began = self.clock.now_s()
            runs.append(self.run(len(runs) - first + 1))
            now = self.clock.now_s()
            longest_s = max(longest_s, now - began)
            rounds = runs[first:]
            is_settled = runs[-1].stopped_early is not None
            if not phase.fills or is_settled or not filling.goes_on(rounds, self.storage.fill_rounds):
                return
            left_s = self.storage.fill_deadline_s - (now - start)
            another = longest_s <= left_s
            # A fill is no round, and ends when it has to: it needs not the time of one.
            if self.fill is not None and left_s > 0 and not (another and len(rounds) < self.storage.fill_rounds):
                self.fill(left_s)
                took = (filling.FILL, self.clock.now_s() - now)
                runs[-1] = replace(runs[-1], counters=(*runs[-1].counters, took))
                return
            if not another:
                return
