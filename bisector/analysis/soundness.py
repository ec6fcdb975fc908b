"""What is wrong with how a trial was measured, or with what it measured, by itself."""

from dataclasses import dataclass
from functools import cached_property

from bisector.analysis.judgement import why_unscored
from bisector.analysis.quality import Limits, weaknesses
from bisector.analysis.speed import Speed
from bisector.config import Settings
from bisector.core.trial import Trial


@dataclass(frozen=True)
class Soundness:
    """Under the settings of one run, on a host that had this ``speed`` when the ends were read, if they were."""

    settings: Settings
    speed: Speed | None = None

    def disturbances(self, trial: Trial) -> tuple[str, ...]:
        """The weaknesses of how a trial was measured, whatever it measured."""
        limits, runtime_s = self.settings.contention, float(self.settings.workload.runtime_s)
        held = Limits(
            limits.max_other_cores, limits.max_steal_share, runtime_s, limits.max_speed_change, speed=self.speed
        )
        return weaknesses(trial, held, self.settings.storage.stack, self.settings.bisect.objective.io_direction)

    def weaknesses(self, trial: Trial) -> tuple[str, ...]:
        """Those, and that it has no score."""
        found = self.disturbances(trial)
        if found or trial.origin is not None or trial.fault is not None or not trial.runs:
            return found
        return tuple(filter(None, (self.unscored(trial),)))

    @cached_property
    def _reasons(self) -> dict[int, str]:
        return {}

    def unscored(self, trial: Trial) -> str:
        """Why a trial has no score; empty when it has one. It is asked of each trial with every conclusion.

        What others measured may lack the metric, and so may any run that is looked at again by another one.
        """
        if id(trial) not in self._reasons:
            self._reasons[id(trial)] = why_unscored(trial, self.settings.bisect.objective)
        return self._reasons[id(trial)]
