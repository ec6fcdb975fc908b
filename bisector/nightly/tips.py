"""The trials of a night's tip, and of the tag that it is compared with, in a directory of the job's own."""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bisector.analysis.classify import judged_run
from bisector.analysis.settle import Measured
from bisector.bisect import session
from bisector.bisect.measure import Settled, settle
from bisector.bisect.retry import Attempts
from bisector.config import Settings
from bisector.core.commit import Commit
from bisector.core.events import Listener, Note
from bisector.core.findings import Finding
from bisector.core.objective import Objective
from bisector.core.trial import Trial
from bisector.doctor import checks
from bisector.git.repository import Repository
from bisector.host.trees import discard
from bisector.nightly.plan import Job
from bisector.store import inputs
from bisector.store.artifacts import TRIALS, trial_number
from bisector.store.nights import Fact, Figure, Measurement, Role


@dataclass(frozen=True, slots=True)
class Target:
    """A commit to measure, its role in the night, and its name for people."""

    commit: Commit
    role: Role
    rev: str


@dataclass(frozen=True, slots=True)
class TipBench:
    """Measures for one job; its trials are numbered through all nights."""

    job: Job
    directory: Path
    tell: Listener
    equip: session.Equip

    def measure(
        self, repository: Repository, targets: Iterable[Target], before: int, record: Callable[[Fact], None]
    ) -> None:
        """One measurement after the other, each recorded; ``before`` trials are on record already.

        Raises :class:`bisector.core.errors.UserError` for a machine that lacks something, :class:`InfraError` for
        an infrastructure error that stays.
        """
        checks.check(self.job.measuring, self.directory, self._warn)
        settings = inputs.keep(self.job.measuring, self.directory)
        self._remove_unfinished(before)
        with self.equip(settings, self.directory, repository, self.tell) as equipment:
            attempts = Attempts(equipment.executor, record, self.tell, equipment.pause, settings.retries)
            for target in targets:
                purpose = f"{self.job.name}: {target.role} {target.rev}"
                settled = settle(settings, target.commit, attempts, purpose=purpose, first=before + 1)
                before += len(settled.trials)
                record(self._measurement(target, settled, settings))
        discard(self.directory / "build")

    def _warn(self, finding: Finding) -> None:
        self.tell(Note(f"{self.job.name}: {finding.warning}"))

    def _remove_unfinished(self, before: int) -> None:
        """What a night that was killed left of trials without a record."""
        for left in (self.directory / TRIALS).glob("*"):
            n = trial_number(left)
            if n is not None and n > before:
                shutil.rmtree(left)

    def _measurement(self, target: Target, settled: Settled, settings: Settings) -> Measurement:
        n, trial = settled.trials[-1]
        sound = settled.settlement.trial if isinstance(settled.settlement, Measured) else None
        why = "" if isinstance(settled.settlement, Measured) else settled.settlement.why
        objective = settings.bisect.objective
        return Measurement(
            role=target.role,
            rev=target.rev,
            sha=target.commit.sha,
            conditions=self.job.conditions,
            threshold=settings.bisect.threshold_value,
            min_ratio=settings.bisect.min_ends_ratio,
            host=trial.host,
            toolchain=trial.kernel.toolchain if trial.kernel else "",
            value=objective.value(judged_run(sound)) if sound else None,
            why=why,
            fault=why if any(one.fault for _, one in settled.trials) else "",
            trials=len(settled.trials),
            total_s=sum(one.timings.total_s for _, one in settled.trials),
            directory=self.directory / TRIALS / f"{n:04d}-{target.commit.short}",
            figures=_figures(sound, objective) if sound else (),
            metric=objective.metric,
            over=objective.over,
        )


def _figures(trial: Trial, objective: Objective) -> tuple[Figure, ...]:
    found = ((run.name, value) for run in trial.runs for value in objective.of_jobs(run))
    return tuple(Figure(run, value.job, value.name, value.value) for run, value in found)
