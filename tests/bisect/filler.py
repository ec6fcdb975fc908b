"""A bench whose caches settle, for tests of short fills, and what it was asked for."""

from dataclasses import dataclass, field, replace

import pytest

from bisector.core.figures import EarlyStop, StopReason
from bisector.core.trial import Fill, Trial
from bisector.storage.layer import FILLED, Settling
from bisector.storage.lvmcache import LvmCache
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.lab import Lab
from tests.examples import BUSY

SETTLED = EarlyStop(
    StopReason.SETTLED, 14.0, 98.0, 95.0, "the cache was full for 4 s, and its figures held still", FILLED
)


@dataclass
class Filler(fakes.FakeExecutor):
    """Its caches settle within a short fill, unless it is told otherwise; what it then measures at some commits.

    ``busy_fills`` says how many of the first short fills of a commit the host disturbs.
    """

    settles: bool = True
    after_short: dict[str, float] = field(default_factory=dict)
    busy_fills: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, Fill, bool]] = field(default_factory=list)

    def measure(self, request: TrialRequest) -> Trial:
        """As the others, in 20 s instead of 84."""
        sha, short = request.commit.sha, request.fill is Fill.SHORT
        self.asked.append((sha, request.fill, request.stop is None))
        made = super().measure(request)
        made = replace(made, fill=request.fill, timings=replace(made.timings, workload_s=20.0))
        if not made.runs or not short or not self.settles:
            return made
        first, last = made.runs
        if (least := self.after_short.get(sha)) is not None:
            last = fakes.trial(request.commit, least).runs[-1]
        if self.busy_fills.get(sha, 0):
            self.busy_fills[sha] -= 1
            last = replace(last, contention=BUSY)
        return replace(made, runs=(replace(first, stopped_early=SETTLED), last))


def settles_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy so quick that a run of 40 s can do without most of itself."""
    empty, full = LvmCache.phases
    monkeypatch.setattr(LvmCache, "phases", (replace(empty, settling=Settling(1.0)), full))


def filler(lab: Lab, culprit: str, **more: object) -> Filler:
    return lab.bench(Filler, culprit, **{"stops_early": True, **more})


def asked(lab: Lab, engine: Filler) -> list[tuple[str, Fill]]:
    return [(lab.names.get(sha, "changed"), fill) for sha, fill, _ in engine.asked]


ENDS_BOTH_WAYS = [("c0", Fill.WHOLE), ("c16", Fill.WHOLE), ("c0", Fill.SHORT), ("c16", Fill.SHORT)]
