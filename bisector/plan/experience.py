"""The times and readings of earlier runs of the same experiment on this host."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from bisector.analysis.verdicts import Judging, host_of
from bisector.config import Settings
from bisector.core.errors import BisectorError
from bisector.core.figures import StopReason
from bisector.core.subject import Kernel
from bisector.core.trial import Trial
from bisector.core.verdict import State, Verdict
from bisector.search.effect import NOTHING_CHANGED
from bisector.search.noise import EarlierSearches
from bisector.store.rundir import RunDirectory, kernel_inputs
from bisector.store.store import Store


@dataclass(frozen=True, slots=True)
class Experience:
    """The times and readings of comparable runs, and their kernels; times are in seconds.

    ``early_s`` are the times of the runs of trials that were stopped early, by the reason and whether the fill before
    was short, and ``fills_s`` those of short fills alone. Builds are comparable if the configuration is the same;
    everything else if guest, storage and workload are the same, too. ``scores`` has the scores of all sound whole
    trials by commit, ``kernels`` the kernel that was built from each commit. ``earlier`` counts the readings of kernels
    that were read more than once. ``unreadable`` has a sentence for each run that could not be read.
    """

    builds_s: tuple[float, ...] = ()
    setups_s: tuple[float, ...] = ()
    workloads_s: tuple[float, ...] = ()
    fills_s: tuple[float, ...] = ()
    early_s: Mapping[tuple[StopReason, bool], tuple[float, ...]] = field(default_factory=dict)
    scores: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    earlier: EarlierSearches = field(default_factory=EarlierSearches)
    unreadable: tuple[str, ...] = ()

    def __add__(self, other: "Experience") -> "Experience":
        """The sum of both."""
        added = {name: getattr(self, name) + getattr(other, name) for name in _ADDED}
        early_s, scores = _joined(self.early_s, other.early_s), _joined(self.scores, other.scores)
        return Experience(**added, early_s=early_s, scores=scores, kernels={**self.kernels, **other.kernels})


_ADDED = tuple(one.name for one in fields(Experience) if one.name not in ("early_s", "scores", "kernels"))


def _joined(
    one: Mapping[Any, tuple[float, ...]], other: Mapping[Any, tuple[float, ...]]
) -> dict[Any, tuple[float, ...]]:
    return {key: one.get(key, ()) + other.get(key, ()) for key in {**one, **other}}


def experience(settings: Settings, host: str, run_dirs: Iterable[Path]) -> Experience:
    """Return the experience of all comparable trials of these runs on ``host``; it names the unreadable runs."""
    found = Experience()
    for run_dir in run_dirs:
        try:
            with Store.open(RunDirectory.open(run_dir).database, readonly=True) as store:
                for part in _of_run(settings, host, store):
                    found += part
        except BisectorError as error:
            found += Experience(unreadable=(f"{run_dir}: {error}",))
    return found


def _of_run(ours: Settings, host: str, store: Store) -> Iterator[Experience]:
    """Yield the experience of a run, or of each setup of a comparison; trials taken over count in their own run."""
    asked, taken = store.bisection(), store.taken().keys()
    measured: tuple[tuple[Settings, tuple[tuple[int, Trial], ...]], ...] = ((store.settings, store.trials()),)
    if (plan := store.plan) is not None:
        placed = store.placed()
        measured = tuple(
            (one, tuple((each.n, each.trial) for each in placed if each.trial.setup == one.setup))
            for one in plan.setups
        )
    for theirs, trials in measured:
        if kernel_inputs(ours.kernel) != kernel_inputs(theirs.kernel):
            continue
        is_alike, here = _measured_with(ours) == _measured_with(theirs), [one for one in trials if one[1].host == host]
        for home in dict.fromkeys(host_of(trial) for _, trial in here):
            of_home = tuple((n, trial) for n, trial in trials if host_of(trial) == home)
            own = tuple((n, trial) for n, trial in of_home if n not in taken)
            built = [(one.commit.sha, one.kernel, one.same_sources) for _, one in own if one.kernel is not None]
            yield Experience(
                builds_s=tuple(kernel.build_s for _, kernel, same in built if not kernel.cached and not same),
                kernels={sha: kernel for sha, kernel, _ in built},
            )
            if is_alike:
                yield _times([trial for _, trial in own], tuple(phase.name for phase in theirs.storage.stack.phases))
                seen = replace(theirs, bisect=theirs.bisect.by(ours.bisect.objective))
                judging = Judging(seen, of_home, asked.old_sha, asked.new_sha)
                scores = replace(judging, trials=own).scores
                earlier = _contradictions(judging, [trial for _, trial in own])
                yield Experience(scores={sha: tuple(found) for sha, found in scores.items()}, earlier=earlier)
        if is_alike and here and plan is None and (state := store.state()) is not None:
            nothing = state.state is State.NARROWED and state.message.startswith(NOTHING_CHANGED)
            ended = nothing or state.state is State.FOUND
            yield Experience(earlier=EarlierSearches(searches=int(ended), without_change=int(nothing)))


def _times(trials: Sequence[Trial], phases: tuple[str, ...]) -> Experience:
    ran = [
        one for one in trials if one.fault is None and tuple(run.name for run in one.runs if not run.repeats) == phases
    ]
    early: defaultdict[tuple[StopReason, bool], list[float]] = defaultdict(list)
    for one in ran:
        # A run that was also stopped by its counterpart is neither whole nor typical.
        if (stop := one.stopped_early) is not None and not stop.against:
            early[stop.reason, one.filled_short].append(one.timings.workload_s)
    return Experience(
        setups_s=tuple(one.timings.boot_s + one.timings.storage_s for one in ran),
        workloads_s=tuple(one.timings.workload_s for one in ran if one.is_whole),
        early_s={kind: tuple(seconds) for kind, seconds in early.items()},
        fills_s=tuple(sum(run.duration_s for run in one.runs[:-1]) for one in ran if one.filled_short),
    )


def _contradictions(judging: Judging, own: Sequence[Trial]) -> EarlierSearches:
    """Count a run's ``own`` readings of kernels that were read more than once, and those on the wrong side.

    The side of an end is known; the side of another kernel is that of most of its readings. The first reading of a
    kernel does not count, because the others are compared with it.
    """
    if judging.direction is None:
        return EarlierSearches()
    ends = {judging.old: Verdict.OLD, judging.new: Verdict.NEW}
    better = judging.direction.verdict(better=True)
    counts = {True: [0, 0], False: [0, 0]}
    for sha in dict.fromkeys(trial.commit.sha for trial in own):
        sided = [(trial, verdict) for trial, verdict in judging.sound(sha) if verdict in (Verdict.OLD, Verdict.NEW)]
        if len(sided) > 1:
            verdicts = Counter(verdict for _, verdict in sided)
            side = ends.get(sha) or max(verdicts, key=verdicts.__getitem__)
            read = [verdict for trial, verdict in sided if any(trial is one for one in own)]
            readings = min(len(read), len(sided) - 1)
            counts[side is better][0] += readings
            counts[side is better][1] += min(readings, sum(verdict is not side for verdict in read))
    return EarlierSearches(*counts[True], *counts[False])


def _measured_with(settings: Settings) -> tuple[object, ...]:
    """The settings that figures and times depend on: guest, storage, workload; not the places of files or waits."""
    machine, storage, workload = settings.machine, settings.storage, settings.workload
    return (
        (machine.accelerator, machine.time, machine.vcpus, machine.memory_bytes, machine.image, machine.append),
        (storage.stack, storage.used_disks, [storage.layers[layer.name] for layer in storage.stack.layers]),
        workload.kind,
        replace(workload.workload, **dict.fromkeys(workload.rows_of_inputs)),
        tuple(path.read_bytes() if path.is_file() else b"" for path in workload.inputs.values()),
    )
