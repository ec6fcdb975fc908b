"""What the hours of a run went to; derived from its record."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from bisector.core.trial import Trial
from bisector.store import times
from bisector.store.store import Store


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Wall seconds of the processes of a run; of them those of builds, boots, layouts of the stack, and workloads."""

    total_s: Annotated[float, "from the beginning of each process to its end, pauses between them left out"]
    build_s: Annotated[float, "of that, building kernels"]
    boot_s: Annotated[float, "booting guests"]
    storage_s: Annotated[float, "laying out the stack"]
    workload_s: Annotated[float, "the workload, with the filling of caches"]

    @classmethod
    def of(cls, store: Store, trials: Sequence[Trial]) -> "TimeSpent | None":
        """Of a run with these trials; None of one that has measured nothing."""
        if not trials:
            return None
        took = [one.timings for one in trials]
        return cls(
            total_s=times.of_processes_s(store.log),
            build_s=times.of_builds_s(store.log) + math.fsum(one.build_s for one in took),
            boot_s=math.fsum(one.boot_s for one in took),
            storage_s=math.fsum(one.storage_s for one in took),
            workload_s=math.fsum(one.workload_s for one in took),
        )

    @property
    def other_s(
        self,
    ) -> Annotated[float, "all the rest: bisector's own, waiting for a quiet host, attempts that failed"]:
        """All the rest, waiting for a quiet host and attempts that failed among it."""
        return max(0.0, self.total_s - self.build_s - self.boot_s - self.storage_s - self.workload_s)

    @property
    def other_share(self) -> Annotated[float, "`other_s` as a share of what is no build"]:
        """The rest of what is no build; 0 of nothing."""
        return self.other_s / (self.total_s - self.build_s) if self.total_s > self.build_s else 0.0
