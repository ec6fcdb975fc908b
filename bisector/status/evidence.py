"""Turn the record of a bisection into what the search needs: a problem, facts, and the weights of readings; pure.

Each kernel has one set of readings, whichever commits it was built from: commits with equal kernels share them. Such
commits cannot be told apart, so that no commit between them is the first new one.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bisector.analysis.judgement import SoundMeasurement, Untestable
from bisector.analysis.verdicts import Judging, host_of
from bisector.core.subject import NotChanged, Subject
from bisector.core.trial import Timings, Trial
from bisector.core.verdict import Direction, Verdict
from bisector.git.ranges import SearchRange
from bisector.search.choice import Costs, SearchProblem
from bisector.search.graph import OLD_END, Floats, Kernel, Mask, Reading, SearchFacts, as_mask
from bisector.search.likelihood import HostScale, Weighing
from bisector.search.noise import OF_COUNTED, OF_HOSTS, EarlierSearches, Rates
from bisector.search.posterior import prior
from bisector.search.step import Search

_MIN_S = 60.0


def costs_of(judging: Judging) -> Costs:
    """The minutes that builds and runs took here, or the defaults for what was not measured yet."""
    default, sound = Costs(), judging.sound()
    builds = [trial.timings.build_s for _, trial in judging.trials if trial.timings.build_s]
    faulty = [trial.timings.total_s for _, trial in judging.trials if trial.fault is not None]
    whole = [trial for trial, _ in sound if trial.bears_answer]
    # An end's run after a short fill is in neither list: it lasts until it is like the whole run, and occurs once.
    early = [one for one in sound if not one[0].bears_answer and one[0].commit.sha not in (judging.old, judging.new)]

    def run_min(side: Verdict, otherwise: float) -> float:
        """The mean of the side's early runs (most are stopped early), else of all early runs, else of the side's."""
        of_side = [[trial for trial, one in trials if one is side] for trials in (early, sound)]
        expected = of_side[0] or [trial for trial, _ in early] or of_side[1]
        return _minutes([trial.timings.workload_s for trial in expected], otherwise)

    usual = replace(
        default,
        build_min=_minutes(builds, default.build_min),
        build_spare=max(builds) * len(builds) / math.fsum(builds) if builds else 1.0,
        setup_min=_minutes([_beside_s(trial.timings) for trial, _ in sound], default.setup_min),
        old_run_min=run_min(Verdict.OLD, default.old_run_min),
        new_run_min=run_min(Verdict.NEW, default.new_run_min),
        whole_run_min=_minutes([trial.timings.workload_s for trial in whole], default.whole_run_min),
        skip_min=_minutes(faulty, _minutes(builds, default.skip_min)),
    )
    took = ((one, (_beside_s(one.timings) + one.timings.workload_s) / _MIN_S)
            for one in (*whole, *(trial for trial, _ in early)))  # fmt: skip
    longer = (minutes / usual.longest(0.0, whole=trial.bears_answer) for trial, minutes in took)
    return replace(usual, spare=max((1.0, *longer)))


def _beside_s(timings: Timings) -> float:
    return max(timings.boot_s + timings.storage_s, timings.total_s - timings.build_s - timings.workload_s)


def _minutes(seconds: list[float], otherwise: float) -> float:
    return math.fsum(seconds) / len(seconds) / _MIN_S or otherwise if seconds else otherwise


# The weight of a commit between two with equal kernels. Only colliding hashes could make such a commit the answer, so
# no evidence may outweigh it.
IMPOSSIBLE_WEIGHT = 1e-9
_ENDS_ALWAYS_CUT = (Kernel.REVERTED, Kernel.PICKED)


@dataclass(frozen=True, slots=True)
class Known:
    """Facts beside the trials.

    ``skips`` are hashes of commits that a person says are untestable, ``mattering`` those of commits that can change
    the kernel (None if that is not known), ``bases`` those of the commits that both ends contain. ``earlier`` counts
    the readings of comparable runs on this host. ``left_s`` is the time left for measuring. ``kept`` are the hashes of
    commits whose kernels were kept from earlier runs. The subjects in ``in_flight`` are being measured; the next trial
    is for ``host``, if one is named.
    """

    skips: tuple[str, ...] = ()
    mattering: frozenset[str] | None = None
    not_changed: tuple[NotChanged, ...] = ()
    bases: tuple[str, ...] = ()
    earlier: EarlierSearches | None = None
    left_s: float = math.inf
    kept: frozenset[str] = frozenset()
    in_flight: tuple[Subject, ...] = ()
    host: str = ""


@dataclass(frozen=True)
class Case:
    """Everything known about a bisection whose ends are measured."""

    search_range: SearchRange
    judging: Judging
    known: Known

    @cached_property
    def problem(self) -> SearchProblem:
        """The range, the prior (which rules out commits between equal kernels), and the commits that can matter."""
        return SearchProblem(self.search_range.graph, self._prior(self.search_range.suspects), self._relevant)

    @cached_property
    def unsuspecting(self) -> SearchProblem:
        """The same problem without suspected paths."""
        return replace(self.problem, log_prior=self._prior(None))

    @cached_property
    def search(self) -> Search:
        """The weights of readings, the costs of trials, and the time that is left."""
        better = self.judging.direction is not Direction.REGRESSION
        if self.judging.reference.is_exact:
            rates = Rates.of_counted()
        else:
            rates = Rates.unknown(new_is_better=better, earlier=self.known.earlier)
        nothing, numbers = (self.known.earlier or EarlierSearches()).nothing, self.search_range.numbers
        costs = costs_of(self.judging)
        # A kernel that exists takes no build.
        made = (trial.commit.sha for _, trial in self.judging.trials if trial.kernel is not None)
        builds_min = np.full(len(self.search_range.graph), costs.build_min)
        builds_min[[numbers[sha] for sha in self.known.kept.union(made) if sha in numbers]] = 0.0
        costs = replace(costs, builds_min=builds_min)
        return Search(Weighing(rates, self._scales, nothing), costs, left_min=self.known.left_s / _MIN_S)

    @cached_property
    def facts(self) -> SearchFacts:
        """All readings, as one set for each kernel; the skips; and the changed ends that cannot be had."""
        numbers = self.search_range.numbers
        skipped = [sha for sha, verdict in self.judging.verdicts() if verdict is Verdict.SKIP]
        came_to_nothing = (
            trial.subject
            for _, trial in self.judging.trials
            if self._gives_no_more(trial) and not self.judging.sound(trial.commit.sha)
        )
        return SearchFacts(
            tuple(self._readings()),
            tuple(sorted({numbers[sha] for sha in (*self.known.skips, *skipped) if sha in numbers})),
            tuple(sorted(self._failed())),
            tuple((twin, group[0]) for group in self._groups for twin in group[1:]),
            tuple(sorted(self._exhausted())),
            len({(one.kind, one.changed_by) for one in came_to_nothing}),
            tuple(key for one in self.known.in_flight if (key := self.number(one)) is not None),
        )

    @cached_property
    def impossible(self) -> Mask:
        """The commits between two commits with equal kernels."""
        graph, numbers = self.search_range.graph, self.search_range.numbers
        nothing = np.zeros(len(graph), dtype=np.bool_)
        found = nothing.copy()
        for shas in self._shas_by_kernel.values():
            masks = [graph.ancestors(numbers[sha]) for sha in shas if sha in numbers]
            masks += [nothing for sha in shas if sha in self._before]
            if masks:
                found |= np.logical_or.reduce(masks) & ~np.logical_and.reduce(masks)
        return found

    def commit_for(self, number: int) -> str:
        """The hash of the commit to measure for the kernel of commit ``number``; it may be the old end."""
        if number == OLD_END:
            return self.judging.old
        return self.search_range.shas[self._representatives.get(self.search_range.shas[number], number)]

    # Commits with equal kernels.

    @property
    def _before(self) -> frozenset[str]:
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
        """The groups of commits that share a kernel, by number; the commit that was measured first comes first."""
        numbers = self.search_range.numbers
        groups = (tuple(numbers[sha] for sha in shas if sha in numbers) for shas in self._shas_by_kernel.values())
        return tuple(group for group in groups if len(group) > 1)

    @cached_property
    def _representatives(self) -> Mapping[str, int]:
        """The number under which the readings of each commit's kernel are recorded."""
        found = dict(self.search_range.numbers)
        for shas in self._shas_by_kernel.values():
            inside = [self.search_range.numbers[sha] for sha in shas if sha in self.search_range.numbers]
            known = [sha for sha in shas if sha in self.search_range.numbers or sha in self._before]
            found.update(dict.fromkeys(known if inside else (), inside[0] if inside else 0))
        return found

    # Readings.

    def _readings(self) -> Iterator[Reading]:
        found = [(self._kernel(trial), trial, verdict) for trial, verdict in self.judging.readings()]
        counts = Counter(kernel for kernel, _, _ in found)
        # Only hours of trials count: what a host does between them is unknown.
        hours = defaultdict[str, float](float)
        for kernel, trial, verdict in found:
            host = host_of(trial)
            if kernel is not None and verdict in (Verdict.OLD, Verdict.NEW):
                reading = self._reading(kernel, trial, verdict, alone=counts[kernel] == 1)
                yield replace(reading, hour=hours[host], host=host)
            hours[host] += trial.timings.total_s / 3600

    def number(self, subject: Subject) -> tuple[int, Kernel] | None:
        """The number and the kind of a subject whose kernel is not built yet; None outside the range."""
        if not subject.is_commit:
            number = self.search_range.numbers.get(subject.changed_by or "")
            return None if number is None else (number, subject.kind)
        number = self._representatives.get(subject.commit.sha)
        return None if number is None else (number, Kernel.COMMIT)

    def _kernel(self, trial: Trial) -> tuple[int, Kernel] | None:
        """The number and the kind that a trial is a reading of; None before the range, except for the old end."""
        sha = trial.commit.sha
        if not trial.subject.is_commit:
            shas = self._shas_by_kernel.get(trial.kernel.content_sha256, ()) if trial.kernel is not None else ()
            if not shas:
                return self.number(trial.subject)
            sha = shas[0]
        number = self._representatives.get(sha, OLD_END if sha == self.judging.old else None)
        return None if number is None else (number, Kernel.COMMIT)

    def _reading(self, kernel: tuple[int, Kernel], trial: Trial, verdict: Verdict, *, alone: bool) -> Reading:
        """Return what a trial says about its kernel; ``alone`` if it is the kernel's only reading.

        Only the verdict counts, and not the score, if a person gave the threshold, because then there are no levels,
        and for a run that was stopped early or came after a short fill, because it cannot be compared with whole runs.
        With a given threshold, the first verdict on an end says nothing: without that verdict there would be no search.
        A value that is on neither end's level says nothing the first time and is measured again; seen twice it is no
        accident, and its side counts.
        """
        full, judging = trial.bears_answer, self.judging.on(host_of(trial))
        ends = (judging.old, judging.new)
        if not self._scales:
            wholes = ([one for one, _ in judging.sound(sha) if one.is_whole] for sha in ends)
            first = any(trial is ones[0] for ones in wholes if ones)
            return Reading(*kernel, Verdict.MEASURED if first else verdict, full=full)
        scores = [found for sha in ends if (found := judging.scores.get(sha))]
        homes = {level for level in judging.levels if any(found[0] in level for found in scores)}
        # If the ends share a level, they are not apart yet, and no value can be off their levels.
        if trial.is_whole and len(homes) == len(ends) and not any(judging.score(trial) in level for level in homes):
            return Reading(*kernel, Verdict.MEASURED if alone else verdict, full=full)
        return Reading(*kernel, verdict, self.judging.score(trial) if trial.is_whole else None, full)

    @cached_property
    def _scales(self) -> Mapping[str, HostScale]:
        """The threshold of each host and the scores that told the ends apart; empty if a person gave the threshold."""
        judging, found = self.judging, dict[str, HostScale]()
        if judging.settings.bisect.threshold_value is not None:
            return found
        above = judging.direction is not Direction.REGRESSION
        for host, own in judging.hosts.items():
            ends, line = own.ends_line, judging.line_on(host)
            if ends is not None and line is not None:
                expected = OF_COUNTED if own.is_exact else OF_HOSTS
                found[host] = HostScale((ends.old, ends.new), line, above, expected)
        return found

    # Readings that cannot be had.

    def _exhausted(self) -> Iterator[int]:
        """Commits that were measured, but of which too many trials have come to nothing since."""
        tried = {trial.commit.sha for _, trial in self.judging.trials if trial.subject.is_commit}
        tired = {
            self._representatives[sha]
            for sha in tried & self._representatives.keys()
            if isinstance(self.judging.settlement(sha), SoundMeasurement)
            and isinstance(self.judging.since(sha), Untestable)
        }
        yield from tired | {twin for group in self._groups for twin in group if group[0] in tired}

    def _failed(self) -> Iterator[tuple[int, Kernel]]:
        """The (commit, kind) of each changed end that cannot be made, does not work, or has a kernel known already."""
        numbers = self.search_range.numbers
        failed = {(numbers[one.sha], one.kind) for one in self.known.not_changed if one.sha in numbers}
        for _, trial in self.judging.trials:
            number = numbers.get(trial.subject.changed_by or "")
            if number is not None and self._gives_no_more(trial):
                failed.add((number, trial.subject.kind))
        if self.search_range.outside:  # the range's tip then stands for many commits
            failed |= {(self.search_range.graph.tip, kind) for kind in _ENDS_ALWAYS_CUT}
        yield from failed

    def _gives_no_more(self, trial: Trial) -> bool:
        """Whether a changed end is of no (further) use: it does not work, or its kernel equals a commit's."""
        if trial.subject.is_commit:
            return False
        known = trial.kernel is not None and trial.kernel.content_sha256 in self._shas_by_kernel
        return known or isinstance(self.judging.since(trial.commit.sha), Untestable)

    # The prior.

    @property
    def _relevant(self) -> Mask | None:
        if self.known.mattering is None:
            return None
        numbers = self.search_range.numbers
        mask = as_mask(len(numbers), tuple(numbers[sha] for sha in self.known.mattering if sha in numbers))
        if self.search_range.outside:
            mask[self.search_range.graph.tip] = True
        return mask

    def _prior(self, suspects: Mask | None) -> Floats:
        log_prior = prior(len(self.search_range.graph), self._relevant, suspects)
        impossible: Floats = np.where(self.impossible, math.log(IMPOSSIBLE_WEIGHT), 0.0)
        return log_prior + impossible
