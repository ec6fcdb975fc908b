"""Each disk of a stack alone, measured once by the same job: what the figures of a cache lie between.

They are facts of this host and its disks. Nothing is concluded from them, so what cannot be measured is said and
stops nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from bisector.analysis.settle import Again, Measured, Untestable
from bisector.analysis.verdicts import Judging, Numbered
from bisector.bisect.retry import Attempts
from bisector.config import Settings
from bisector.core.errors import BisectorError, InfraError
from bisector.core.events import Note, Planned
from bisector.core.model import Commit, Trial, alone_name
from bisector.executor.base import Engine
from bisector.report.baselines import sentence
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest


def missing(settings: Settings, store: Store) -> tuple[str, ...]:
    """The disks of the stack that are not measured yet, in the order of measuring."""
    known = {trial.alone for _, trial in store.baselines()}
    return tuple(disk for disk in settings.storage.stack.baselines if disk not in known)


@dataclass(frozen=True, slots=True)
class Baselines:
    """What measures a disk under the kernel of ``commit``, which was built before."""

    commit: Commit
    settings: Settings
    store: Store
    engine: Engine
    attempts: Attempts

    def measure(self) -> None:
        """Measure what is missing and record it; what fails is told, and the other disk goes on."""
        for disk in missing(self.settings, self.store):
            try:
                self.measure_one(disk)
            except BisectorError as error:
                self.attempts.tell(Note(f"no baseline: {error}"))

    def measure_one(self, disk: str) -> None:
        """One disk, by a whole run, again while the evidence is weak: only a sound run is recorded.

        Raises :class:`InfraError` when there is none to be had, :class:`bisector.core.errors.UserError` for what does
        not fit on the disk.
        """
        match self._settled(disk):
            case Measured(trial=trial):
                self.store.add_trial(trial)
                self.attempts.tell(Note(f"{alone_name(disk)}: {sentence([trial])}"))
            case Untestable(why=why):
                raise InfraError(
                    f"the {alone_name(disk)} could not be measured: {why}", "bisector baselines tries it again"
                )

    def _settled(self, disk: str) -> Measured | Untestable:
        tried: tuple[Numbered, ...] = ()
        while isinstance(now := self._settlement(tried), Again):
            # What is tried in vain is not recorded, so the number is that of the one that will be.
            n = self.store.next_n
            self.attempts.tell(
                Planned(n, self.commit, f"the {alone_name(disk)}{f', again: {now.why}' if tried else ''}", 0, 0)
            )
            request = TrialRequest(n, self.commit, {}, self.store.compilers(), alone=disk, again=bool(tried))
            trial = self.attempts.at(self.commit, partial(self.engine.measure, request))
            tried = (*tried, (n, trial))
        return now

    def _settlement(self, tried: Iterable[tuple[int, Trial]]) -> Measured | Untestable | Again:
        return Judging(self.settings, tuple(tried)).settlement(self.commit.sha)
