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
            if not phase.fills or now - start + longest_s > self.storage.fill_deadline_s:
                return
            if not filling.goes_on(runs[first:], self.storage.fill_rounds):
                return
            if self.fill is not None and len(runs) - first >= self.storage.fill_rounds:
                self.fill(self.storage.fill_deadline_s - (now - start))
                took = (filling.FILL, self.clock.now_s() - now)
                runs[-1] = replace(runs[-1], counters=(*runs[-1].counters, took))
                return
