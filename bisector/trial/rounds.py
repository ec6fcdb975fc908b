"""The runs of a phase: one, or as many as it takes to fill a cache (:mod:`bisector.storage.filling`)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from bisector.config import StorageSettings
from bisector.core.errors import KernelFault
from bisector.core.figures import Run
from bisector.core.shell import FailedStep, Shell, Step, run_steps
from bisector.core.trial import FaultKind, Stage
from bisector.storage import filling
from bisector.storage.layer import Phase

_QUESTION_S = 60.0
_QUOTED = 40


@dataclass(frozen=True, slots=True)
class Rounds:
    """How the runs of a phase come about.

    ``now_s`` are seconds since some moment. ``run`` makes the one of a number, from 1 on. ``fill`` fills what the runs
    left free of a cache, within so many seconds; None where nothing but the workload can.
    """

    storage: StorageSettings
    now_s: Callable[[], float]
    run: Callable[[int], Run]
    fill: Callable[[float], None] | None

    def go(self, phase: Phase, runs: list[Run]) -> None:
        """Append each run to those on record, as soon as it is over."""
        start, first = self.now_s(), len(runs)
        longest_s = 0.0
        while True:
            began = self.now_s()
            runs.append(self.run(len(runs) - first + 1))
            now = self.now_s()
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
                took = (filling.FILL, self.now_s() - now)
                runs[-1] = replace(runs[-1], counters=(*runs[-1].counters, took))
                return
            if not another:
                return


def uptime_s(shell: Shell) -> float:
    """Seconds since the guest was booted, by its own clock (proc_uptime(5)); raises :class:`KernelFault`."""

    def fault(failed: FailedStep) -> KernelFault:
        return KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, failed.reason, failed.tail)

    (told,) = run_steps(shell, (Step("cut -d ' ' -f 1 /proc/uptime", fault),), _QUESTION_S)
    try:
        return float(told)
    except ValueError as error:
        reason = f"/proc/uptime says {told[:_QUOTED]!r}"
        raise KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, reason) from error
