"""Derive all verdicts of a bisection from all of its facts. Pure, and replayed after every trial.

Figures of two hosts are never compared: each host has a threshold and levels of its own. A host that has changed
(:class:`bisector.core.trial.Era`) counts as another host. In counted time a second trial of a kernel tells nothing,
once the host has shown that it is the same to the last bit (qemu(1), ``-icount``).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from bisector.analysis import early_stop
from bisector.analysis.early_stop import BothWays, ShortFill
from bisector.analysis.judgement import (
    Again,
    Judgement,
    Numbered,
    Settlement,
    SoundMeasurement,
    TrialEvidence,
    Untestable,
    classify,
    holds,
    judged_run,
    settle,
    unclear,
)
from bisector.analysis.levels import (
    EndsAreTheSame,
    MeasuredEnds,
    ReadingLevel,
    Threshold,
    differing,
    from_scores,
    given,
    levels,
    other_gaps,
    told_apart,
)
from bisector.analysis.quality import AtSpeed, Speed, host_speed, speed_of, unscored, weaknesses
from bisector.config import Settings
from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.objective import Objective
from bisector.core.subject import Commit, Kernel
from bisector.core.trial import Fill, Trial, difference
from bisector.core.verdict import Direction, SideWords, Verdict
from bisector.search.effect import PairsRule

_OF_HOST = frozenset(("host.json", "build.log"))


@dataclass(frozen=True, slots=True)
class SameAgain:
    """Two trials, by their numbers, that should be the same; ``unlike`` has the names of the files that differ."""

    first: int
    again: int
    unlike: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Whether the two trials are the same."""
        return not self.unlike

    @property
    def sentence(self) -> str:
        """The comparison of the two trials, for a person."""
        both = f"trials {self.first} and {self.again}, of one kernel with the same seed,"
        if self.is_exact:
            return f"{both} are the same to the last bit: counted time is exact here"
        return f"{both} differ in {', '.join(self.unlike)}: counted time is not exact here, and readings count as noisy"


def repeats(trials: Iterable[Numbered]) -> Iterator[SameAgain]:
    """Yield each whole trial in counted time that should be the same as an earlier one, with that one."""
    seen: dict[tuple[object, ...], Numbered] = {}
    for n, trial in trials:
        if not trial.is_counted or not trial.is_whole or trial.kernel is None:
            continue
        key = (trial.kernel.content_sha256, trial.guest_seed, trial.setup, trial.era, trial.fill)
        if key not in seen:
            seen[key] = n, trial
            continue
        first_n, first = seen[key]
        one, other = (
            {artifact.name: artifact.sha256 for artifact in each.artifacts if artifact.name not in _OF_HOST}
            for each in (first, trial)
        )
        yield SameAgain(first_n, n, tuple(name for name in one | other if one.get(name) != other.get(name)))


def host_of(trial: Trial) -> str:
    """The host of a trial, with its era: figures are comparable if this is equal.

    All trials that others measured are of one host, the empty string.
    """
    return in_era(trial.host, trial.era.digest if trial.era is not None else "") if trial.origin is None else ""


def in_era(host: str, era: str) -> str:
    """The name of a host in an era; ``era`` is empty if it is not known."""
    return f"{host} (era {era})" if era else host


@dataclass(frozen=True, slots=True)
class Changed:
    """A change of a host: ``before`` is its last trial before the change, ``since`` its first one after it.

    ``what`` describes the change, for a person.
    """

    host: str
    before: int
    since: int
    what: str


def changes_of_hosts(trials: Iterable[Numbered]) -> Iterator[Changed]:
    """Yield each change of a host between two of its trials, oldest first."""
    last: dict[str, Numbered] = {}
    for n, trial in trials:
        before = last.get(trial.host)
        if before is not None and host_of(before[1]) != host_of(trial):
            yield Changed(trial.host, before[0], n, difference(before[1].era, trial.era))
        last[trial.host] = n, trial


@dataclass(frozen=True)
class Judging:
    """The trials of one bisection, judged by its settings; ``old`` and ``new`` are the hashes of the ends.

    Weak trials up to the number ``forgiven`` are no reason to give up their commits, nor are faults of commits that
    ``worked`` on some host in some era. Without ends (a single trial) there is no threshold but that of the settings.
    Results that depend on all trials are computed once, because each trial is judged by them.
    """

    settings: Settings
    trials: tuple[Numbered, ...]
    old: str = ""
    new: str = ""
    forgiven: int = 0
    worked: frozenset[str] = frozenset()

    @cached_property
    def hosts(self) -> Mapping[str, "Judging"]:
        """The trials of each host, in the order in which the hosts first had one."""
        names = dict.fromkeys(host_of(trial) for _, trial in self.trials)
        if len(names) == 1:
            return dict.fromkeys(names, self)
        return {
            name: replace(self, trials=tuple((n, one) for n, one in self.trials if host_of(one) == name))
            for name in names
        }

    def on(self, host: str) -> "Judging":
        """The trials of one host, possibly none."""
        return self.hosts.get(host) or replace(self, trials=())

    @cached_property
    def reference(self) -> "Judging":
        """The host whose threshold and levels are shown for all hosts: the first one that measured both ends."""
        hosts = tuple(self.hosts.values())
        return next((one for one in hosts if len(hosts) == 1 or one.ends_line is not None), (*hosts, self)[0])

    def _home(self, trial: Trial) -> "Judging":
        return self.hosts[host_of(trial)]

    @cached_property
    def _speed(self) -> Speed | None:
        """The speed of the host's cores when it measured the ends; None for several hosts together."""
        if len(self.hosts) > 1:
            return None
        found, limit = [], self.settings.contention.max_speed_change
        for n, trial in self.trials:
            mib_s = speed_of(trial, limit) if trial.fault is None else None
            if mib_s is not None and not weaknesses(trial, self.settings):
                found.append(AtSpeed(n, trial.commit.sha in (self.old, self.new), mib_s))
        return host_speed(found, limit)

    def _weaknesses(self, trial: Trial) -> tuple[str, ...]:
        """All weaknesses of a trial; to have no score is one, unless others measured it."""
        found = weaknesses(trial, self.settings, self._speed)
        if found or trial.origin is not None or trial.fault is not None or not trial.runs:
            return found
        return tuple(filter(None, (unscored(trial, self.objective),)))

    @cached_property
    def same_again(self) -> tuple[SameAgain, ...]:
        """The pairs of trials in counted time on one host that should be the same."""
        sound = ((n, one) for n, one in self.trials if one.same_kernel_as is None and self._whole_evidence(one).sound)
        return tuple(repeats(sound))

    @property
    def is_exact(self) -> bool:
        """Whether the guests of a host count their time, and all repeated trials so far were the same."""
        return self.settings.machine.is_counted and all(one.is_exact for one in self.same_again)

    @cached_property
    def _told_nothing(self) -> frozenset[int]:
        return frozenset(one.again for one in self.same_again if one.is_exact)

    @property
    def objective(self) -> Objective:
        """The value of a run that decides."""
        return self.settings.bisect.objective

    @property
    def expected(self) -> Direction | None:
        """The direction of the change that the user expects."""
        return self.settings.bisect.expected

    @property
    def direction(self) -> Direction | None:
        """The direction of the change that the ends show, else the expected one; None if neither is known."""
        return self.ends_line.direction if self.ends_line is not None else self.expected

    @property
    def terms(self) -> SideWords:
        """The words for both sides: as chosen, else by the direction of the change."""
        return self.settings.bisect.terms or SideWords.usual(self.direction)

    def check_metric(self, sha: str) -> None:
        """Raise :class:`UserError` if an undisturbed run of a commit has no value that can decide."""
        for _, trial in self._trials_of(sha):
            if (
                trial.fault is None
                and trial.runs
                and trial.origin is None
                and not weaknesses(trial, self.settings, self._speed)
            ):
                with suppress(InfraError):  # an InfraError is a weakness of the trial
                    self.objective.value(judged_run(trial))

    def value(self, trial: Trial) -> float | None:
        """The value of a trial's last run; None if it has none."""
        if trial.fault is not None or not trial.runs or unscored(trial, self.objective):
            return None
        return self.objective.value(judged_run(trial))

    def score(self, trial: Trial) -> float:
        """The score of a sound trial; raises what :meth:`Objective.deciding` raises."""
        return self.objective.score(self.objective.value(judged_run(trial)))

    def settlement(self, sha: str) -> Settlement:
        """Return the conclusion from all trials of a commit, including trials of a commit with an equal kernel.

        An end needs a whole run of its kernel, because the threshold comes from the ends: nothing that is asked of an
        end may depend on the threshold.
        """
        whole = sha in (self.old, self.new)
        return settle(self._evidence_of(self._trials_of(sha), whole=whole), self.settings.retries)

    @cached_property
    def short_fill(self) -> ShortFill:
        """Whether runs measure the same after a short fill, on one host."""
        if self.reference is not self:
            return self.reference.short_fill
        line = self.ends_line.score if self.ends_line is not None else None
        return early_stop.standing(self.both_ways, line, self.settings.retries.weak_repeats + 1)

    @property
    def both_ways(self) -> tuple[BothWays, BothWays]:
        """The readings of both ends with whole fills and with short fills, on one host."""

        def end(sha: str) -> BothWays:
            tried = [one for _, one in self.trials if one.commit.sha == sha and one.fill is Fill.SHORT]
            whole = tuple(self.scores.get(sha, ()))
            sound = [one for one in tried if whole and self._whole_evidence(one).sound]
            # A trial that ended for being like the first whole run is compared with it piece by piece, not by its mean.
            short = (
                self.score(one) if one.unlike is None else whole[0] + self.objective.better.sign * math.log(one.unlike)
                for one in sound
            )
            return BothWays(sha, whole, tuple(short), len(tried), sum(not one.filled_short for one in sound))

        return end(self.old), end(self.new)

    def _is_excluded(self, trial: Trial) -> bool:
        return trial.filled_short and not self._home(trial).short_fill.harmless

    @property
    def given_up(self) -> tuple[str, ...]:
        """The commits without a fault of their own that have been given up because no measurement was sound."""
        settled = {sha: self.settlement(sha) for sha in dict.fromkeys(trial.commit.sha for _, trial in self.trials)}
        return tuple(sha for sha, one in settled.items() if isinstance(one, Untestable) and one.weak)

    def _evidence_of(self, trials: Sequence[Numbered], *, whole: bool = False) -> list[TrialEvidence]:
        """Return the evidence of each trial, except trials with a short fill if those do not count here."""
        found = []
        for n, trial in trials:
            if trial.filled_short or trial.unlike is not None if whole else self._is_excluded(trial):
                continue
            one, speed = self._whole_evidence(trial) if whole else self._evidence(trial), self._home(trial)._speed
            # Trials from before the host reached its lasting speed are no reason to give up a commit
            forgiven = n <= self.forgiven or (speed is not None and n < speed.since)
            if trial.fault is not None:
                forgiven = n <= self.forgiven and trial.commit.sha in self.worked
            found.append(replace(one, forgiven=forgiven))
        return found

    def _trials_of(self, sha: str) -> list[Numbered]:
        """The trials that measured a commit's kernel, including trials of commits with an equal kernel."""
        same = {trial.commit.sha: trial.same_kernel_as for _, trial in self.trials if trial.same_kernel_as is not None}
        shas = [sha]
        while (other := same.get(shas[-1])) is not None and other not in shas:
            shas.append(other)
        return [(n, one) for n, one in self.trials if one.commit.sha in shas and one.same_kernel_as is None]

    def to_measure_whole(self, sha: str) -> Commit | None:
        """The commit to measure in a whole run, if what is known of ``sha`` rests on a trial that bears no answer.

        The run of such a trial was stopped early by the threshold alone, or followed a short fill. It is another commit
        if that one has an equal kernel and was measured. None if no (further) whole run is needed: one that ends weak
        or with a fault is tried again as often as any other.
        """
        known, policy = self._trials_of(sha), self.settings.retries
        evidence = self._evidence_of(known)
        counts = settle(evidence, policy)
        counted = (one.trial for one in evidence if not (one.forgiven or one.trial.doubted))
        whole = sum(trial.bears_answer or not trial.runs for trial in counted)
        rests_on_less = isinstance(counts, SoundMeasurement) and not counts.trial.bears_answer
        return known[0][1].commit if rests_on_less and whole <= policy.weak_repeats else None

    def since(self, sha: str) -> Settlement:
        """Return the conclusion from a commit's trials after its last sound one: whether another sound one is possible.

        If there is no trial after it, this is :meth:`settlement`; if no trial is sound, all trials count.
        """
        mine = [(n, one) for n, one in self.trials if one.commit.sha == sha and not self._is_excluded(one)]
        ended = [place for place, (_, one) in enumerate(mine, 1) if one.same_kernel_as or self._evidence(one).sound]
        rest = mine[ended[-1] :] if ended else mine
        if not rest and mine:
            return self.settlement(sha)
        return settle(self._evidence_of(rest), self.settings.retries)

    def sound(self, sha: str | None = None) -> tuple[tuple[Trial, Verdict], ...]:
        """All sound trials, of one commit or of all, each with its side; MEASURED without a threshold."""
        return tuple(
            (trial, self._judge_sound(trial).verdict)
            for _, trial in self.trials
            if sha in (None, trial.commit.sha) and trial.same_kernel_as is None and self._evidence(trial).sound
        )

    def readings(self) -> Iterator[tuple[Trial, Verdict]]:
        """The sound trials that tell something: exact repetitions do not."""
        nothing = {id(trial) for one in self.hosts.values() for n, trial in one.trials if n in one._told_nothing}
        return ((trial, verdict) for trial, verdict in self.sound() if id(trial) not in nothing)

    def verdicts(self) -> Iterator[tuple[str, Verdict]]:
        """Yield the settled verdict on each commit of the history, in the order in which they were first tried."""
        for sha in dict.fromkeys(trial.commit.sha for _, trial in self.trials if trial.subject.is_commit):
            if (judgement := self.judge(sha)) is not None:
                yield sha, judgement.verdict

    def threshold(self) -> Threshold | None:
        """Return the threshold between both sides, on the first host that has one; None until both ends are told apart.

        Figures that others measured cannot be read again, so their ends are taken to differ as measured. Raises
        :class:`EndsDoNotReproduce` if the ends do not differ, or not as expected; the hint names another metric in
        which they differ, if there is one.
        """
        if self.reference is not self:
            return self.reference.threshold()
        old, new = self.settlement(self.old), self.settlement(self.new)
        if not (isinstance(old, SoundMeasurement) and isinstance(new, SoundMeasurement)):
            return None
        if unscored(old.trial, self.objective) or unscored(new.trial, self.objective):
            return None
        options = self.settings.bisect
        words = options.terms or SideWords.usual(self.expected)
        ends = MeasuredEnds(self.score(old.trial), self.score(new.trial), self.objective, self.expected, words)
        if old.trial.origin is None:
            readings = [(is_new, self.score(trial)) for is_new, trial in self.ends_in_turn]
            try:
                apart = told_apart(ends, readings, PairsRule(options.least_effect, options.most_pairs))
            except EndsAreTheSame as error:
                runs = [(is_new, judged_run(trial)) for is_new, trial in self.ends_in_turn]
                if (other := differing(runs, self.objective)) is None:
                    raise
                raise EndsAreTheSame(error.message, other) from error
            if apart is None:
                return None
            ends = apart
        if (line := options.threshold_value) is not None:
            return given(self.objective.score(line), ends)
        return from_scores(ends, self.scores)

    @cached_property
    def ends_in_turn(self) -> tuple[tuple[bool, Trial], ...]:
        """The sound whole trials of both ends that tell something, in the order of measuring; True is for the new end.

        They are those of one host; the threshold comes from their scores.
        """
        ends = {self.old: False, self.new: True}
        return tuple((ends[trial.commit.sha], trial) for trial in self._whole if trial.commit.sha in ends)

    @cached_property
    def ends_line(self) -> Threshold | None:
        """The threshold that trials are judged by; None also if the ends do not differ, or not as expected."""
        if len(self.hosts) > 1:
            return next((one.ends_line for one in self.hosts.values() if one.ends_line is not None), None)
        try:
            return self.threshold()
        except EndsDoNotReproduce:
            return None

    @cached_property
    def scores(self) -> dict[str, list[float]]:
        """The scores of all sound trials without a run that was stopped early, on one host, by the commit's hash."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for trial in self._whole:
            found[trial.commit.sha].append(self.score(trial))
        return dict(found)

    @cached_property
    def _whole(self) -> tuple[Trial, ...]:
        """The sound trials of whole runs that tell something; the threshold comes from these alone.

        Trials with a short fill are left out, too, because they are compared with the threshold.
        """
        whole = ((n, one) for n, one in self.trials if one.same_kernel_as is None and one.is_whole)
        told = (one for n, one in whole if n not in self._told_nothing)
        return tuple(one for one in told if not unscored(one, self.objective) and self._evidence(one).sound)

    def scores_of(self, shas: Iterable[str]) -> tuple[float, ...]:
        """The scores of commits, including commits with equal kernels, on the host whose levels are shown."""
        of_kernels = dict.fromkeys(trial.commit.sha for sha in shas for _, trial in self._trials_of(sha))
        return tuple(score for sha in of_kernels for score in self.reference.scores.get(sha, ()))

    @cached_property
    def levels(self) -> tuple[ReadingLevel, ...]:
        """The levels of a host's readings, worst first; two if there is one change and a little noise."""
        return levels(self.reference.scores)

    @property
    def other_lines(self) -> tuple[float, ...]:
        """The scores of further thresholds between the ends, the widest gap first; empty if there is only one step."""
        found = self.ends_line
        return other_gaps(found.score, found.old, found.new, self.levels) if found is not None else ()

    @cached_property
    def line(self) -> float | None:
        """The score of the threshold; None if it is not known yet, or if the ends are not as expected."""
        if self.ends_line is not None:
            return self.ends_line.score
        given = self.settings.bisect.threshold_value
        return None if given is None else self.objective.score(given)

    def line_on(self, host: str) -> float | None:
        """The score of the threshold on one host; None also if its ends differ in the opposite direction to others'."""
        home = self.on(host)
        return home.line if home is self or home.direction in (None, self.direction) else None

    @property
    def threshold_value(self) -> float | None:
        """The threshold as a value of the metric."""
        return None if self.line is None else self.objective.value_of(self.line)

    def kernel_of(self, sha: str) -> Kernel | None:
        """The kernel that was built from a commit; None if none was."""
        kernels = (trial.kernel for _, trial in self.trials if trial.commit.sha == sha)
        return next(filter(None, kernels), None)

    def possible(self, candidates: Iterable[Commit], parents_of: Callable[[str], Iterable[str]]) -> tuple[Commit, ...]:
        """The candidates that can have made the change, without those that are known to have a parent's kernel."""
        made = ((trial.commit.sha, trial.kernel) for _, trial in self.trials)
        contents = {sha: kernel.content_sha256 for sha, kernel in made if kernel is not None}

        def differs(sha: str) -> bool:
            return sha not in contents or all(contents.get(parent) != contents[sha] for parent in parents_of(sha))

        return tuple(commit for commit in candidates if differs(commit.sha))

    def measured_kernels(self, *, whole: bool = False) -> dict[str, str]:
        """The kernels whose conclusions hold for any equal kernel: the content's hash, and the commit.

        A kernel is included if its figures count, or if a fault of its own was believed; a host that was busy each time
        says nothing about the kernel. If ``whole``, commits that still lack a whole run are left out.
        """
        ran = {trial.commit.sha for _, trial in self.trials if trial.fault is None}
        early = {trial.commit.sha for _, trial in self.trials if trial.runs and not trial.bears_answer}
        lacking = {sha for sha in early if whole and self.to_measure_whole(sha) is not None}
        found = {}
        for _, trial in self.trials:
            sha, is_sure = trial.commit.sha, trial.fault is None and bool(trial.runs) and self._evidence(trial).sound
            if trial.fault is not None and sha not in ran:
                is_sure = isinstance(self.settlement(sha), Untestable)
            if trial.kernel is not None and trial.subject.is_commit and is_sure:
                found[trial.kernel.content_sha256] = sha
        return {content: sha for content, sha in found.items() if sha not in lacking}

    def judge(self, sha: str) -> Judgement | None:
        """Return the settled verdict on a commit; None if it has to be measured (again).

        Once there is a threshold, a commit other than the ends needs a measurement on a host that has one.
        """
        match self.settlement(sha):
            case Again():
                return None
            case SoundMeasurement(trial=trial) if self.line is None or sha in (self.old, self.new):
                return self._judge_sound(trial)
            case SoundMeasurement(trial=first):
                sound = (one.trial for one in self._evidence_of(self._trials_of(sha)) if one.sound)
                on_lines = (one for one in (first, *sound) if self.line_on(host_of(one)) is not None)
                return next(map(self._judge_sound, on_lines), None)
            case other:
                return Judgement(Verdict.SKIP, other.why)

    def judged_trials(self) -> Iterator[tuple[int, Trial, Judgement]]:
        """Yield every trial with its number and its own judgement."""
        for n, trial in self.trials:
            fault, evidence = trial.fault, self._evidence(trial)
            if trial.same_kernel_as is not None:
                other = self.judge(trial.same_kernel_as)
                judgement = Judgement(other.verdict if other is not None else Verdict.WEAK, trial.sameness)
            elif trial.doubted and fault is not None:
                judgement = Judgement(Verdict.WEAK, f"doubted, a sound end failed, too: {fault.sentence}")
            elif fault is not None:
                judgement = Judgement(Verdict.SKIP, fault.sentence)
            elif self._is_excluded(trial) and self.short_fill.missing and len(evidence.weaknesses) == 1:
                found = self.objective.deciding_text(judged_run(trial))
                why = f"{found}, after a short fill, which is yet to be compared"
                judgement = Judgement(Verdict.MEASURED, why)
            elif evidence.weaknesses:
                judgement = Judgement(Verdict.WEAK, "; ".join(evidence.weaknesses))
            else:
                judgement = self._judge_sound(trial)
            yield n, trial, judgement

    def _judge_sound(self, trial: Trial) -> Judgement:
        if why := unscored(trial, self.objective):
            return Judgement(Verdict.MEASURED, why)
        line = self.line_on(host_of(trial))
        if line is None:
            found = self.objective.deciding_text(judged_run(trial))
            return Judgement(Verdict.MEASURED, f"{found}, no threshold {'yet' if len(self.hosts) <= 1 else 'there'}")
        return classify(trial, line, self.direction, self.objective)

    def _evidence(self, trial: Trial) -> TrialEvidence:
        """Return a trial's evidence; a run that was stopped early may have been judged by another threshold."""
        if (home := self._home(trial)) is not self:
            return home._evidence(trial)
        if self._is_excluded(trial):
            why = f"the short fill of its cache is not known to be harmless: {self.short_fill.why}"
            return TrialEvidence(trial, (*self._weaknesses(trial), why))
        stop = trial.stopped_early
        if stop is None or trial.commit.sha in (self.old, self.new) or (line := self.threshold_value) is None:
            return self._whole_evidence(trial)
        early = () if holds(stop, line, self.objective) is not None else (unclear(stop, line, self.objective),)
        if stop.against and trial is self.trials[0][1]:  # nothing was measured here before that it could be clear of
            early = ("stopped early, clear of a run of before its host changed",)
        return TrialEvidence(trial, (*self._weaknesses(trial), *early))

    def _whole_evidence(self, trial: Trial) -> TrialEvidence:
        """Return a trial's evidence without a threshold: it is not known, or comes from this trial."""
        too_early = trial.stopped_early is not None and trial.unlike is None
        early = ("stopped early, where a whole run is needed",) if too_early else ()
        return TrialEvidence(trial, (*self._home(trial)._weaknesses(trial), *early))
