"""The trials of a night's tip, and of the tag that it is compared with, in a store of the job's own.

There is one for each way in which the job has been measured: what is in it can be compared.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bisector.analysis.judgement import Measured, judged_run
from bisector.bisect import session
from bisector.bisect.single import Attempts, Settled, Single, settle
from bisector.config import Settings
from bisector.core.errors import Finding
from bisector.core.events import Listener, Note
from bisector.core.subject import Commit
from bisector.doctor import checks
from bisector.git.repository import Repository
from bisector.host.files import discard, our_files
from bisector.nightly.plan import Job
from bisector.store.nights import Fact, Measurement, Role
from bisector.store.run_files import TRIALS, keep_inputs
from bisector.store.rundir import RunDirectory

_DIGITS = 12  # of the digest of the conditions, as the name of a directory


@dataclass(frozen=True, slots=True)
class Target:
    """A commit to measure, its role in the night, and its name for people."""

    commit: Commit
    role: Role
    rev: str


@dataclass(frozen=True, slots=True)
class TipBench:
    """Measures for one job, in a run directory below its own."""

    job: Job
    directory: Path
    tell: Listener
    equip: session.Equip

    def measure(self, repository: Repository, targets: Iterable[Target], record: Callable[[Fact], None]) -> None:
        """One measurement after the other, each recorded when its trials are.

        Raises :class:`bisector.core.errors.UserError` for a machine that lacks something, :class:`InfraError` for
        an infrastructure error that stays.
        """
        checks.check(self.job.measuring, self.directory, self._warn)
        run = RunDirectory(self.directory / self.job.conditions[:_DIGITS])
        with our_files(self.directory):
            run.path.mkdir(exist_ok=True)
        settings = keep_inputs(self.job.measuring, run.path)
        with run.lock(), Single.open(run, repository, settings) as single:
            with self.equip(settings, run.path, repository, self.tell) as equipment:
                attempts = Attempts(equipment.executor, record, self.tell, equipment.pause, settings.retries)
                for target in targets:
                    purpose = f"{self.job.name}: {target.role} {target.rev}"
                    settled = settle(settings, target.commit, attempts, single.store, purpose)
                    record(self._measurement(run, target, settled, settings))
            discard(run.path / "build")

    def _warn(self, finding: Finding) -> None:
        self.tell(Note(f"{self.job.name}: {finding.warning}"))

    def _measurement(self, run: RunDirectory, target: Target, settled: Settled, settings: Settings) -> Measurement:
        n, trial = settled.trials[-1]
        sound = settled.settlement.trial if isinstance(settled.settlement, Measured) else None
        counts = next((n for n, trial in settled.trials if trial is sound), None)
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
            directory=run.path / TRIALS / f"{n:04d}-{target.commit.short}",
            metric=objective.metric,
            over=objective.over,
            n=counts,
        )
