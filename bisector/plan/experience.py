"""What earlier runs on this host took and read, as far as they were of the same experiment."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bisector.analysis.verdicts import Judging, host_of
from bisector.config import Settings
from bisector.core.errors import BisectorError
from bisector.core.figures import StopReason
from bisector.core.subject import Kernel
from bisector.core.trial import Trial
from bisector.core.verdict import State, Verdict
from bisector.search.alternatives import NOTHING_CHANGED
from bisector.search.noise import EarlierSearches
from bisector.store.facts import StateChange
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

    ``above_s`` and ``below_s`` are the runs of trials that were stopped early, by what was clear then, after whole
    fills; ``short_above_s`` and ``short_below_s`` after short ones, and ``fills_s`` are those short fills alone. Builds
    are comparable when the configuration is the same; the rest when guest, storage and workload are, too. ``scores``
    are those of all sound whole trials by commit, ``kernels`` what was built of a commit. ``earlier`` counts the
    readings of kernels that were read more than once.
    """

    builds_s: tuple[float, ...] = ()
    setups_s: tuple[float, ...] = ()
    workloads_s: tuple[float, ...] = ()
    above_s: tuple[float, ...] = ()
    below_s: tuple[float, ...] = ()
    short_above_s: tuple[float, ...] = ()
    short_below_s: tuple[float, ...] = ()
    fills_s: tuple[float, ...] = ()
    scores: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    earlier: EarlierSearches = field(default_factory=EarlierSearches)
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
                asked = store.bisection()
                taken = store.taken().keys()
                for theirs, trials in _measured_in(store):
                    for home in dict.fromkeys(host_of(trial) for _, trial in trials if trial.host == host):
                        here = tuple((n, trial) for n, trial in trials if host_of(trial) == home)
                        found.add(settings, theirs, here, taken, (asked.old_sha, asked.new_sha))
                    if store.plan is None and any(trial.host == host for _, trial in trials):
                        found.add_outcome(settings, theirs, store.state())
        except BisectorError as error:
            found.unreadable.append(f"{run_dir}: {error}")
    return found.whole()


def _measured_in(store: Store) -> Iterator[tuple[Settings, tuple[tuple[int, Trial], ...]]]:
    """The trials of a run, with what they were measured with: those of a comparison by their setups."""
    if store.plan is None:
        yield store.settings, store.trials()
        return
    placed = store.placed()
    for one in store.plan.setups:
        yield one.settings, tuple((each.n, each.trial) for each in placed if each.trial.setup == one.setup)


@dataclass(slots=True)
class _Collected:
    builds_s: list[float] = field(default_factory=list)
    setups_s: list[float] = field(default_factory=list)
    workloads_s: list[float] = field(default_factory=list)
    early_s: defaultdict[tuple[StopReason, bool], list[float]] = field(default_factory=lambda: defaultdict(list))
    fills_s: list[float] = field(default_factory=list)
    scores: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    kernels: dict[str, Kernel] = field(default_factory=dict)
    earlier: EarlierSearches = field(default_factory=EarlierSearches)
    unreadable: list[str] = field(default_factory=list)

    def add(
        self,
        ours: Settings,
        theirs: Settings,
        here: tuple[tuple[int, Trial], ...],
        taken: Collection[int],
        ends: tuple[str, str],
    ) -> None:
        """The trials ``here`` of a run; those that it took over count with the run that measured them."""
        own = tuple((n, trial) for n, trial in here if n not in taken)
        if kernel_inputs(ours.kernel) != kernel_inputs(theirs.kernel):
            return
        for _, trial in own:
            if trial.kernel is not None:
                self.kernels[trial.commit.sha] = trial.kernel
                self.builds_s += (
                    [trial.kernel.build_s]
                    if (trial.kernel is not None and (not trial.kernel.cached) and (not trial.same_sources))
                    else []
                )
        if _measured_with(ours) != _measured_with(theirs):
            return
        for _, trial in _ran(own, tuple(phase.name for phase in theirs.storage.stack.phases)):
            self.setups_s.append(trial.timings.boot_s + trial.timings.storage_s)
            self._add_runs(trial)
        seen = replace(theirs, bisect=theirs.bisect.by(ours.bisect.objective))
        judging = Judging(seen, here, *ends)
        for sha, scores in replace(judging, trials=own).scores.items():
            self.scores[sha] += scores
        self.earlier = _more(self.earlier, judging, [trial for _, trial in own])

    def add_outcome(self, ours: Settings, theirs: Settings, state: StateChange | None) -> None:
        """Whether a search like this one ended with a commit, or with none since nothing had changed."""
        alike = kernel_inputs(ours.kernel) == kernel_inputs(theirs.kernel)
        if state is None or not alike or _measured_with(ours) != _measured_with(theirs):
            return
        nothing = state.state is State.NARROWED and state.message.startswith(NOTHING_CHANGED)
        ended, earlier = nothing or state.state is State.FOUND, self.earlier
        self.earlier = replace(
            earlier, searches=earlier.searches + ended, without_change=earlier.without_change + nothing
        )

    def _add_runs(self, trial: Trial) -> None:
        """One that was stopped because it was clear of another one, too, is neither whole nor as most are."""
        stop, seconds = trial.stopped_early, trial.timings.workload_s
        if trial.filled_short:
            self.fills_s.append(sum(run.duration_s for run in trial.runs[:-1]))
        elif stop is None:
            self.workloads_s.append(seconds)
        if stop is not None and not stop.against:
            self.early_s[stop.reason, trial.filled_short].append(seconds)

    def whole(self) -> Experience:
        above, below = (
            tuple(tuple(self.early_s[reason, short]) for short in (False, True))
            for reason in (StopReason.ABOVE, StopReason.NOT_ABOVE)
        )
        return Experience(
            tuple(self.builds_s),
            tuple(self.setups_s),
            tuple(self.workloads_s),
            above[False],
            below[False],
            above[True],
            below[True],
            tuple(self.fills_s),
            {sha: tuple(scores) for sha, scores in self.scores.items()},
            self.kernels,
            self.earlier,
            tuple(self.unreadable),
        )


def _more(earlier: EarlierSearches, judging: Judging, own: Sequence[Trial]) -> EarlierSearches:
    """The same with a run's ``own`` readings of kernels that were read more than once.

    An end is of its own side, another kernel of that of most of its readings. One reading of each says nothing: it is
    what the others are held against.
    """
    if judging.direction is None:
        return earlier
    ends = {judging.old: Verdict.OLD, judging.new: Verdict.NEW}
    better = judging.direction.verdict(better=True)
    counts = {True: [earlier.better, earlier.better_contradicted], False: [earlier.worse, earlier.worse_contradicted]}
    for sha in dict.fromkeys(trial.commit.sha for trial in own):
        sided = [(trial, verdict) for trial, verdict in judging.sound(sha) if verdict in (Verdict.OLD, Verdict.NEW)]
        if len(sided) > 1:
            verdicts = Counter(verdict for _, verdict in sided)
            side = ends.get(sha) or max(verdicts, key=verdicts.__getitem__)
            read = [verdict for trial, verdict in sided if any(trial is one for one in own)]
            readings = min(len(read), len(sided) - 1)
            count = counts[side is better]
            count[0] += readings
            count[1] += min(readings, sum(verdict is not side for verdict in read))
    (of_better, better_wrong), (of_worse, worse_wrong) = counts[True], counts[False]
    return replace(
        earlier,
        better=of_better,
        better_contradicted=better_wrong,
        worse=of_worse,
        worse_contradicted=worse_wrong,
    )


def _ran(trials: Iterable[tuple[int, Trial]], runs: tuple[str, ...]) -> Iterator[tuple[int, Trial]]:
    for n, one in trials:
        if one.fault is None and tuple(run.name for run in one.runs if not run.repeats) == runs:
            yield n, one


def _measured_with(settings: Settings) -> tuple[object, ...]:
    """What figures and times depend on: guest, storage, workload; not where files lie or how long is waited."""
    machine, storage, workload = settings.machine, settings.storage, settings.workload
    return (
        (machine.accelerator, machine.time, machine.vcpus, machine.memory_bytes, machine.image, machine.append),
        (storage.stack, storage.used_disks, storage.used_layers),
        workload.kind,
        replace(workload.values, **dict.fromkeys(workload.rows_of_inputs)),
        tuple(path.read_bytes() if path.is_file() else b"" for path in workload.inputs.values()),
    )
