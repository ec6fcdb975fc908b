"""What earlier runs on this host took and read, as far as they were of the same experiment."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bisector.analysis.verdicts import Judging
from bisector.config import Settings, options
from bisector.core.errors import BisectorError
from bisector.core.figures import StopReason
from bisector.core.subject import Kernel
from bisector.core.trial import Trial
from bisector.store.run_files import kernel_inputs
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store


@dataclass(frozen=True, slots=True)
class Spread:
    """The standard deviation of a kernel's readings in natural log units, from so many readings of so many kernels."""

    deviation: float
    readings: int
    kernels: int


@dataclass(frozen=True, slots=True)
class Experience:
    """Seconds of each part of the trials of comparable runs, what their kernels read, and the kernels.

    ``above_s`` and ``below_s`` are the runs of trials that were stopped early, by what was clear then. Builds are
    comparable when the configuration is the same; the rest when guest, storage and workload are, too. ``scores`` are
    those of all sound whole trials by commit, ``kernels`` what was built of a commit.
    """

    builds_s: tuple[float, ...] = ()
    setups_s: tuple[float, ...] = ()
    workloads_s: tuple[float, ...] = ()
    above_s: tuple[float, ...] = ()
    below_s: tuple[float, ...] = ()
    scores: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()

    @property
    def spread(self) -> Spread | None:
        """From kernels that were read more than once; None when none was."""
        repeats = [all_of for all_of in self.scores.values() if len(all_of) > 1]
        if not repeats:
            return None
        squares = math.fsum((x - math.fsum(all_of) / len(all_of)) ** 2 for all_of in repeats for x in all_of)
        readings = sum(map(len, repeats))
        return Spread(math.sqrt(squares / (readings - len(repeats))), readings, len(repeats))


def experience(settings: Settings, host: str, run_dirs: Iterable[Path]) -> Experience:
    """All comparable trials of these runs on ``host``; a run that cannot be read is named, and passed over."""
    found = _Collected()
    for run_dir in run_dirs:
        try:
            with Store.open(RunDirectory.open(run_dir).database, readonly=True) as store:
                for theirs, trials in _measured_in(store):
                    found.add(settings, theirs, trials, host)
        except BisectorError as error:
            found.unreadable.append(f"{run_dir}: {error}")
    return found.whole()


def _measured_in(store: Store) -> Iterator[tuple[Settings, tuple[tuple[int, Trial], ...]]]:
    """The trials of a run, with what they were measured with: those of a comparison by their setups."""
    if store.plan is None:
        yield options.from_json(store.bisection().settings), store.trials()
        return
    placed = store.placed()
    for one in store.plan.setups:
        yield one.settings, tuple((each.n, each.trial) for each in placed if each.trial.setup == one.setup)


@dataclass(slots=True)
class _Collected:
    builds_s: list[float] = field(default_factory=list)
    setups_s: list[float] = field(default_factory=list)
    workloads_s: list[float] = field(default_factory=list)
    above_s: list[float] = field(default_factory=list)
    below_s: list[float] = field(default_factory=list)
    scores: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    kernels: dict[str, Kernel] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    def add(self, ours: Settings, theirs: Settings, trials: tuple[tuple[int, Trial], ...], host: str) -> None:
        here = tuple((n, trial) for n, trial in trials if trial.host == host)
        if kernel_inputs(ours.kernel) != kernel_inputs(theirs.kernel):
            return
        for _, trial in here:
            if trial.kernel is not None:
                self.kernels[trial.commit.sha] = trial.kernel
                self.builds_s += [trial.kernel.build_s] if _built(trial) else []
        if _measured_with(ours) != _measured_with(theirs):
            return
        for _, trial in _ran(here, tuple(phase.name for phase in theirs.storage.stack.phases)):
            self.setups_s.append(trial.timings.boot_s + trial.timings.storage_s)
            self._runs_of(trial).append(trial.timings.workload_s)
        seen = replace(theirs, bisect=theirs.bisect.by(ours.bisect.objective))
        for sha, scores in Judging(seen, here).scores.items():
            self.scores[sha] += scores

    def _runs_of(self, trial: Trial) -> list[float]:
        stop = trial.stopped_early
        if stop is None:
            return self.workloads_s
        return self.above_s if stop.reason is StopReason.ABOVE else self.below_s

    def whole(self) -> Experience:
        return Experience(
            tuple(self.builds_s),
            tuple(self.setups_s),
            tuple(self.workloads_s),
            tuple(self.above_s),
            tuple(self.below_s),
            {sha: tuple(scores) for sha, scores in self.scores.items()},
            self.kernels,
            tuple(self.unreadable),
        )


def _built(trial: Trial) -> bool:
    return trial.kernel is not None and not trial.kernel.cached and not trial.same_sources


def _ran(trials: Iterable[tuple[int, Trial]], runs: tuple[str, ...]) -> Iterator[tuple[int, Trial]]:
    """The trials that took what one takes today; on a disk without a cache there were two runs once."""
    for n, one in trials:
        if one.fault is None and tuple(run.name for run in one.runs if not run.repeats) == runs:
            yield n, one


def _measured_with(settings: Settings) -> tuple[object, ...]:
    """What figures and times depend on: guest, storage, workload; not where files lie or how long is waited."""
    machine, storage, workload = settings.machine, settings.storage, settings.workload
    return (
        (machine.accelerator, machine.vcpus, machine.memory_bytes, machine.image, machine.append),
        (storage.stack, storage.used_disks, storage.used_layers),
        workload.kind,
        {field: value for field, value in workload.values.items() if field not in workload.input_fields},
        tuple(path.read_bytes() if path.is_file() else b"" for path in workload.inputs.values()),
    )
