"""Looking at a cache while a run fills it, so that the run ends once the cache is settled.

One that just ends sooner misleads: after a first run of 20 s instead of 40 s the demonstration's fixed kernel became
fast in second 36 of the second run, not in second 16, since smq looks its cache over once a minute. Its mean was 880
IOPS instead of 3,200, and below the threshold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bisector.analysis.settled import FillRule, Look, rule_for
from bisector.config import Settings
from bisector.core.figures import EarlyStop
from bisector.core.objective import Objective
from bisector.core.shell import Shell
from bisector.core.trial import Fill
from bisector.storage.filling import FILLED, HIT_RATIO
from bisector.storage.layout import Readings
from bisector.workload.base import MountedStack, Progress


@dataclass(slots=True)
class Looks:
    """One run under the rule, a condition for its workload to end by: the cache's counters are read as it goes on.

    ``objective`` names the direction of the jobs that are followed.
    """

    rule: FillRule
    objective: Objective
    stack: MountedStack
    shell: Shell
    _before: Readings | None = None
    _seen: list[Look] = field(default_factory=list)

    @property
    def runtime_s(self) -> float:
        """The length of a whole run."""
        return self.rule.runtime_s

    @property
    def batch_s(self) -> float:
        """How often the progress is asked for: with each of it, the cache is looked at."""
        return self.rule.every_s

    def met_by(self, jobs: Sequence[Progress]) -> EarlyStop | None:
        """What is recorded of a run that may end now; None: go on."""
        if not jobs or not all(job.at_s for job in jobs):
            return None
        at_s = min(job.at_s[-1] for job in jobs)
        if self._seen and at_s <= self._seen[-1].at_s:
            return None
        now = self.stack.read(self.shell)
        values = dict(self.stack.counted(self._before or now, now))
        self._before = now
        self._seen.append(Look(at_s, values.get(FILLED), values.get(HIT_RATIO), sum(job.done[-1] for job in jobs)))
        return self.rule.met_by(self._seen)


def once_settled(settings: Settings, fill: Fill, stack: MountedStack, shell: Shell) -> Looks | None:
    """By which a run that fills a cache ends before its time; None where none can, or a whole fill is asked for."""
    rule = rule_for(settings) if fill is Fill.SHORT else None
    return None if rule is None else Looks(rule, settings.bisect.objective, stack, shell)
