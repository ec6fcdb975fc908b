"""The record of a bisection as the search wants it: a problem, facts, and what to weigh them by; pure.

One kernel has one set of readings, whichever commits it was built from: commits whose kernels are equal share
them, and cannot be apart, so that no commit between them is the first new one.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bisector.analysis.judgement import Measured, Untestable
from bisector.analysis.verdicts import Judging
from bisector.core.subject import NotChanged, Subject
from bisector.core.trial import Trial
from bisector.core.verdict import Direction, Verdict
from bisector.git.ranges import Ground
from bisector.search.choice import Costs, Problem
from bisector.search.graph import Floats, Mask
from bisector.search.likelihood import Kernel, Levels, Noise, Reading, Weighing
from bisector.search.posterior import Facts, as_mask, prior
from bisector.search.step import Search

# A commit between two with equal kernels: no evidence makes up for this, short of hashes that collide.
IMPOSSIBLE_WEIGHT = 1e-9
# So many spreads from both levels a figure between them says nothing by itself.
_BETWEEN_SPREADS = 3.0
_LEAST_LEAN = 0.01  # natural log units
_ENDS_ALWAYS_CUT = (Kernel.REVERTED, Kernel.PICKED)


@dataclass(frozen=True, slots=True)
class Known:
    """What is on record beside the trials.

    ``skips`` are the hashes a person knows to be untestable, ``mattering`` those that can change the kernel (None:
    not known), ``bases`` those that both ends have.
    """

    skips: tuple[str, ...] = ()
    mattering: frozenset[str] | None = None
    not_changed: tuple[NotChanged, ...] = ()
    bases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """Everything known of a bisection whose ends are measured."""

    ground: Ground
    judging: Judging
    known: Known

    @cached_property
    def problem(self) -> Problem:
        """The range, the odds before any trial but for what equal kernels rule out, and what can matter."""
        return Problem(self.ground.graph, self._prior(self.ground.suspects), self._relevant)

    @cached_property
    def unsuspecting(self) -> Problem:
        """The same when nobody is suspected."""
        return replace(self.problem, log_prior=self._prior(None))

    @cached_property
    def search(self) -> Search:
        """What readings are weighed by, and what trials cost."""
        # What misleads makes a run worse: a kernel that is as bad as it can be gets no better by accident.
        noise = Noise.worse_by_accident(new_is_better=self.judging.direction is not Direction.REGRESSION)
        return Search(Weighing(noise, self._levels), _costs(self.judging.sound(), self.judging))

    @cached_property
    def facts(self) -> Facts:
        """All readings, one set for each kernel; skips; ends that cannot be had."""
        readings = tuple(self._readings())
        return Facts(
            readings,
            tuple(sorted(self._skips())),
            tuple(sorted(self._failed())),
            tuple((twin, group[0]) for group in self._groups for twin in group[1:]),
            tuple(sorted(self._exhausted())),
            len({(one.kind, one.changed_by) for one in self._came_to_nothing()}),
        )

    @cached_property
    def impossible(self) -> Mask:
        """The commits between two that have equal kernels."""
        graph = self.ground.graph
        found = np.zeros(len(graph), dtype=np.bool_)
        for shas in self._shas_by_kernel.values():
            masks = [graph.ancestors(self.ground.numbers[sha]) for sha in shas if sha in self.ground.numbers]
            masks += [np.zeros(len(graph), dtype=np.bool_) for sha in shas if sha in self._before]
            if masks:
                found |= np.logical_or.reduce(masks) & ~np.logical_and.reduce(masks)
        return found

    def commit_for(self, number: int) -> str:
        """The hash of the commit whose trial is one of this commit's kernel."""
        return self.ground.shas[self._representatives.get(self.ground.shas[number], number)]

    # Which commits are one.

    @property
    def _before(self) -> frozenset[str]:
        """Commits that are known to be before the range."""
        return frozenset((self.judging.old, *self.known.bases))

    @cached_property
    def _shas_by_kernel(self) -> Mapping[str, tuple[str, ...]]:
        """The commits of each kernel that was built, in the order of measuring."""
        found: dict[str, dict[str, None]] = {}
        for _, trial in self.judging.trials:
            if trial.subject.is_commit and trial.kernel is not None:
                found.setdefault(trial.kernel.content_sha256, {})[trial.commit.sha] = None
        return {content: tuple(shas) for content, shas in found.items()}

    @cached_property
    def _groups(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of commits that have one kernel, where there are several; the one measured first stands first."""
        numbers = self.ground.numbers
        groups = (tuple(numbers[sha] for sha in shas if sha in numbers) for shas in self._shas_by_kernel.values())
        return tuple(group for group in groups if len(group) > 1)

    @cached_property
    def _representatives(self) -> Mapping[str, int]:
        """For each commit whose kernel gives readings the number that they are recorded under."""
        found = dict(self.ground.numbers)
        for shas in self._shas_by_kernel.values():
            inside = [self.ground.numbers[sha] for sha in shas if sha in self.ground.numbers]
            known = [sha for sha in shas if sha in self.ground.numbers or sha in self._before]
            found.update(dict.fromkeys(known if inside else (), inside[0] if inside else 0))
        return found

    # What trials say.

    def _readings(self) -> Iterator[Reading]:
        found = [(self._kernel(trial), trial, verdict) for trial, verdict in self.judging.sound()]
        counts: dict[tuple[int, Kernel], int] = {}
        for kernel, _, _ in found:
            if kernel is not None:
                counts[kernel] = counts.get(kernel, 0) + 1
        for kernel, trial, verdict in found:
            if kernel is not None and verdict in (Verdict.OLD, Verdict.NEW):
                score = self._score(trial, verdict, alone=counts[kernel] == 1)
                yield Reading(*kernel, verdict, score, full=is_whole(trial))

    def _kernel(self, trial: Trial) -> tuple[int, Kernel] | None:
        """What a trial's reading is of; None for what is not in the range, as the old end."""
        sha = trial.commit.sha
        if not trial.subject.is_commit:
            shas = self._shas_by_kernel.get(trial.kernel.content_sha256, ()) if trial.kernel is not None else ()
            if not shas:
                number = self.ground.numbers.get(trial.subject.changed_by or "")
                return None if number is None else (number, trial.subject.kind)
            sha = shas[0]
        number = self._representatives.get(sha)
        return None if number is None else (number, Kernel.COMMIT)

    def _score(self, trial: Trial, verdict: Verdict, *, alone: bool) -> float | None:
        """The score of a trial; None where the verdict alone is to count.

        That is so when a person drew the line, which the levels know nothing of, and of a run that was stopped early,
        which is not to be compared with whole ones. A score that is far from both levels says nothing and is
        measured again; twice seen it is no accident, and its side counts.
        """
        levels = self._levels
        if levels is None or not is_whole(trial):
            return None
        score = self.judging.score(trial)
        far = all(abs(score - level.centre) > _BETWEEN_SPREADS * level.spread for level in (levels.old, levels.new))
        if not far:
            return score
        return _leaning(score, levels, verdict) if alone else None

    @cached_property
    def _levels(self) -> Levels | None:
        if self.judging.settings.bisect.threshold_value is not None:
            return None
        scores: dict[str, list[float]] = {self.judging.old: [], self.judging.new: [], "": []}
        for trial, _ in self.judging.sound():
            if is_whole(trial) and self.judging.is_on_an_ends_level(trial):
                scores.get(trial.commit.sha, scores[""]).append(self.judging.score(trial))
        old, new = scores[self.judging.old], scores[self.judging.new]
        return Levels.learn(old, new, scores[""]) if old and new else None

    # What cannot be had.

    def _skips(self) -> Iterator[int]:
        numbers = self.ground.numbers
        skipped = [sha for sha, verdict in self.judging.verdicts() if verdict is Verdict.SKIP]
        yield from {numbers[sha] for sha in (*self.known.skips, *skipped) if sha in numbers}

    def _exhausted(self) -> Iterator[int]:
        """Commits that were measured, and of which too many trials since then came to nothing."""
        tired = {
            self._representatives[sha]
            for sha in {trial.commit.sha for _, trial in self.judging.trials if trial.subject.is_commit}
            if sha in self._representatives
            and isinstance(self.judging.settlement(sha), Measured)
            and isinstance(self.judging.since(sha), Untestable)
        }
        yield from tired | {twin for group in self._groups for twin in group if group[0] in tired}

    def _failed(self) -> Iterator[tuple[int, Kernel]]:
        """Ends that a commit does not come out of or into, or that do not work then, or are a kernel known already."""
        numbers = self.ground.numbers
        failed = {(numbers[one.sha], one.kind) for one in self.known.not_changed if one.sha in numbers}
        for _, trial in self.judging.trials:
            number = numbers.get(trial.subject.changed_by or "")
            if number is not None and self._gives_no_more(trial):
                failed.add((number, trial.subject.kind))
        if self.ground.outside:  # the new end stands for many commits there
            failed |= {(self.ground.graph.tip, kind) for kind in _ENDS_ALWAYS_CUT}
        yield from failed

    def _gives_no_more(self, trial: Trial) -> bool:
        """Whether a changed end is of no (more) use: it does not work, or has a commit's kernel."""
        if trial.subject.is_commit:
            return False
        known = trial.kernel is not None and trial.kernel.content_sha256 in self._shas_by_kernel
        return known or isinstance(self.judging.since(trial.commit.sha), Untestable)

    def _came_to_nothing(self) -> Iterator[Subject]:
        for _, trial in self.judging.trials:
            if self._gives_no_more(trial) and not self.judging.sound(trial.commit.sha):
                yield trial.subject

    # What is known beforehand.

    @property
    def _relevant(self) -> Mask | None:
        if self.known.mattering is None:
            return None
        numbers = self.ground.numbers
        mask = as_mask(len(numbers), tuple(numbers[sha] for sha in self.known.mattering if sha in numbers))
        if self.ground.outside:
            mask[self.ground.graph.tip] = True
        return mask

    def _prior(self, suspects: Mask | None) -> Floats:
        log_prior = prior(len(self.ground.graph), self._relevant, suspects)
        impossible: Floats = np.where(self.impossible, math.log(IMPOSSIBLE_WEIGHT), 0.0)
        return log_prior + impossible


def is_whole(trial: Trial) -> bool:
    """Whether the runs of a trial went their whole length."""
    return bool(trial.runs) and trial.stopped_early is None


def _leaning(score: float, levels: Levels, verdict: Verdict) -> float:
    """A score between the levels, where neither is, leans to its side of the line, however near the other level is."""
    low, high = sorted((levels.old.centre, levels.new.centre))
    middle = (low + high) / 2
    on_low_side = (verdict is Verdict.OLD) is (levels.old.centre < levels.new.centre)
    if not low < score < high:
        return score
    return min(score, middle - _LEAST_LEAN) if on_low_side else max(score, middle + _LEAST_LEAN)


def _costs(sound: Iterable[tuple[Trial, Verdict]], judging: Judging) -> Costs:
    """Minutes as they were measured here, the defaults where nothing was."""
    default = Costs()
    sound = tuple(sound)
    builds = [trial.timings.build_s for _, trial in judging.trials if trial.timings.build_s]
    faulty = [trial.timings.total_s for _, trial in judging.trials if trial.fault is not None]
    runs = {side: [trial.timings.workload_s for trial, one in sound if one is side] for side in Verdict}
    return replace(
        default,
        build_min=_minutes(builds, default.build_min),
        setup_min=_minutes([t.timings.boot_s + t.timings.storage_s for t, _ in sound], default.setup_min),
        old_run_min=_minutes(runs[Verdict.OLD], default.old_run_min),
        new_run_min=_minutes(runs[Verdict.NEW], default.new_run_min),
        whole_run_min=_minutes([t.timings.workload_s for t, _ in sound if is_whole(t)], default.whole_run_min),
        skip_min=_minutes(faulty, _minutes(builds, default.skip_min)),
    )


def _minutes(seconds: list[float], otherwise: float) -> float:
    mean = math.fsum(seconds) / len(seconds) / 60 if seconds else 0.0
    return mean or otherwise
