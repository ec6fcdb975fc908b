"""What a stop rule makes of a run that reports as it goes; simulated runs whose curves make it hard."""

from dataclasses import dataclass

import numpy as np

from bisector.analysis.early_stop import Floats, StopRule, batch_s, became_fast_s, guard_s
from bisector.core.figures import EarlyStop, StopReason
from bisector.workload.base import RunProgress

LINE = 12_000.0
LENGTHS_S = (900.0, 40.0)


def stop_of(rule: StopRule, at_s: Floats, ios: Floats, first: int = 0) -> EarlyStop | None:
    """What becomes of a run that reports at these seconds."""
    for n in range(first + 1, at_s.size + 1):
        jobs = [RunProgress(f"job/{job}", at_s[:n].tolist(), done[:n].tolist()) for job, done in enumerate(ios, 1)]
        if (stop := rule.met_by(jobs)) is not None:
            return stop
    return None


def ended(stop: EarlyStop | None) -> tuple[StopReason, float] | None:
    """How and when a run was ended, if it was."""
    return None if stop is None else (stop.reason, stop.at_s)


Runs = Floats  # IOPS by run, job and twentieth of a batch


@dataclass(frozen=True)
class World:
    """Runs of two jobs of one length: what a job does is its level at each moment, times noise that lasts."""

    length_s: float
    rng: np.random.Generator
    count: int = 20

    @property
    def step_s(self) -> float:
        return batch_s(self.length_s) / 20

    @property
    def at(self) -> Floats:
        """The middle of each step, as a share of the run."""
        steps = np.arange(round(self.length_s / self.step_s), dtype=np.float64)
        return (steps + 0.5) * (self.step_s / self.length_s)

    def runs(self, *levels: Floats) -> Runs:
        """Noise as in the study: autocorrelation 0.8 of steps, 25 % a step, a slow drift of 5 %."""
        shape = (self.count, len(levels), self.at.size)
        noise, state = np.empty(shape), self.rng.normal(size=shape[:2])
        for step in range(shape[2]):
            state = 0.8 * state + 0.6 * self.rng.normal(size=shape[:2])
            noise[:, :, step] = state
        drift = np.sin(self.at * 2 * np.pi * 30 + self.rng.uniform(0, 6, (*shape[:2], 1)))
        return np.maximum(np.array(levels) * (1 + 0.25 * noise + 0.05 * drift), 0.0)

    def late_jump(self) -> Runs:
        """From slow to fast at some moment between 4 and 7 of 15 minutes, another one in each run."""
        jump = self.rng.uniform(4, 7, (self.count, 1, 1)) / 15
        return self.runs(*[np.ones(self.at.size)] * 2) * np.where(self.at < jump, 2_000.0, 22_000.0)

    def stalled(self, runs: Runs, share: float) -> Runs:
        """The host stands still for a while in the second half of each run; fio goes on reporting."""
        begin = self.rng.uniform(0.5, 0.85, (self.count, 1, 1))
        return np.where((self.at >= begin) & (self.at < begin + share), 0.0, runs)

    def guard(self, runs: Runs) -> float | None:
        """What three whole runs of the fast end give."""
        batches = runs[:3].reshape(3, 2, -1, 20).mean(-1)
        return guard_s([became_fast_s(list(run), self.length_s, LINE) for run in batches], self.length_s)

    def progress(self, runs: Runs) -> tuple[Floats, Floats]:
        """Second and I/Os at the end of each batch."""
        ios = np.cumsum(runs, axis=-1)[..., 19::20] * self.step_s
        return np.arange(1, ios.shape[-1] + 1) * batch_s(self.length_s), ios

    def stops(self, runs: Runs, guard: float | None, first: int = 0) -> list[EarlyStop | None]:
        at_s, ios = self.progress(runs)
        rule = StopRule(LINE, self.length_s, guard)
        return [stop_of(rule, at_s, run, first) for run in ios]


def concave(at: Floats) -> Floats:
    return 22_000.0 - 20_000.0 * np.exp(-at / 0.15)
