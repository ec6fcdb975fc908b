"""All facts of a bisection to all its verdicts: pure, and replayed after every trial.

The loop decides by it and ``status`` shows it, so both always agree.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from bisector.analysis import short_fill, threshold
from bisector.analysis.early_stop import holds
from bisector.analysis.judgement import (
    Again,
    Evidence,
    Judgement,
    Measured,
    Numbered,
    Settlement,
    Untestable,
    classify,
    judged_run,
    lacks_whole_run,
    score,
    settle,
    unclear,
    why_unscored,
)
from bisector.analysis.quality import Limits, weaknesses
from bisector.analysis.short_fill import BothWays, ShortFill
from bisector.analysis.threshold import Ends, Level, Threshold, levels, other_gaps
from bisector.config import Settings
from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.objective import Objective
from bisector.core.subject import Commit
from bisector.core.trial import Fill, Trial
from bisector.core.verdict import Direction, Terms, Verdict


@dataclass(frozen=True)
class Judging:
    """The trials of one bisection, seen under its settings; ``old`` and ``new`` are the ends' hashes.

    A weak trial up to the number ``forgiven`` is no reason (any more) to give up its commit. Without ends (a single
    trial) there is no threshold but the one the settings give. What all trials amount to together is found once: each
    of them is judged by it.
    """

    settings: Settings
    trials: tuple[Numbered, ...]
    old: str = ""
    new: str = ""
    forgiven: int = 0

    @property
    def objective(self) -> Objective:
        """Which value of a run decides."""
        return self.settings.bisect.objective

    @property
    def expected(self) -> Direction | None:
        """The direction of the change that somebody named."""
        return self.settings.bisect.expected

    @property
    def direction(self) -> Direction | None:
        """The direction of the change, as expected or as the ends show; None before they are measured."""
        return self._line.direction if self._line is not None else self.expected

    @property
    def terms(self) -> Terms:
        """The words for both sides: as chosen, or by the direction once that is known."""
        return self.settings.bisect.terms or Terms.usual(self.direction)

    def check_metric(self, sha: str) -> None:
        """Raise :class:`UserError` when a run of a commit, which nothing disturbed, has no value that can decide."""
        for _, trial in self._trials_of(sha):
            if trial.fault is None and trial.runs and trial.origin is None and not self._disturbances(trial):
                with suppress(InfraError):  # that is a weakness
                    self.objective.value(judged_run(trial))

    def value(self, trial: Trial) -> float | None:
        """The value of a trial's last run; None where it has none."""
        if trial.fault is not None or not trial.runs or self._unscored(trial):
            return None
        return self.objective.value(judged_run(trial))

    def score(self, trial: Trial) -> float:
        """The score of a sound trial; raises what :meth:`Objective.deciding` raises."""
        return score(trial, self.objective)

    def settlement(self, sha: str) -> Settlement:
        """What all trials of a commit, and of the one whose equal kernel was measured, amount to.

        An end needs a whole run of its kernel, since the threshold comes from the ends: nothing that is asked of an end
        may depend on the threshold.
        """
        whole = sha in (self.old, self.new)
        return settle(self._evidence_of(self._trials_of(sha), whole=whole), self.settings.retries)

    @cached_property
    def short_fill(self) -> ShortFill:
        """Whether caches that are filled only until they are settled measure the same."""
        line = self._line.score if self._line is not None else None
        return short_fill.standing(self.both_ways, line, self.settings.retries.weak_repeats + 1)

    @property
    def both_ways(self) -> tuple[BothWays, BothWays]:
        """Both ends with either fill."""
        return self._both_ways(self.old), self._both_ways(self.new)

    def _both_ways(self, sha: str) -> BothWays:
        tried = [one for _, one in self.trials if one.commit.sha == sha and one.fill is Fill.SHORT]
        sound = [one for one in tried if self._whole_evidence(one).sound]
        return BothWays.of(sha, tuple(self.scores.get(sha, ())), sound, len(tried), self.objective)

    def _is_set_aside(self, trial: Trial) -> bool:
        """Whether the short fill of a trial's cache is not known to be harmless."""
        return trial.filled_short and not self.short_fill.harmless

    @property
    def given_up(self) -> tuple[str, ...]:
        """The commits of which no measurement was sound, with no fault of their own."""
        settled = {sha: self.settlement(sha) for sha in dict.fromkeys(trial.commit.sha for _, trial in self.trials)}
        return tuple(sha for sha, one in settled.items() if isinstance(one, Untestable) and one.weak)

    def _evidence_of(self, trials: Sequence[Numbered], *, whole: bool = False) -> list[Evidence]:
        """What trials amount to one by one; one with a short fill that does not count here is none."""
        short = not whole and self.short_fill.harmless
        set_aside = (one.filled_short or (whole and one.unlike is not None) for _, one in trials)
        counted = (one for one, aside in zip(trials, set_aside, strict=True) if short or not aside)
        found = ((n, self._whole_evidence(trial) if whole else self._evidence(trial)) for n, trial in counted)
        return [replace(one, forgiven=n <= self.forgiven) for n, one in found]

    def _trials_of(self, sha: str) -> list[Numbered]:
        """The trials that measured a commit's kernel, under its own name or that of a commit with an equal one."""
        same = {trial.commit.sha: trial.same_kernel_as for _, trial in self.trials if trial.same_kernel_as is not None}
        shas = [sha]
        while (other := same.get(shas[-1])) is not None and other not in shas:
            shas.append(other)
        return [(n, one) for n, one in self.trials if one.commit.sha in shas and one.same_kernel_as is None]

    def to_measure_whole(self, sha: str) -> Commit | None:
        """The commit that needs a whole run, when what is known of this one rests on a run that was stopped early.

        Another one, when that has an equal kernel and was measured. None when there is nothing (more) to try.
        """
        known = self._trials_of(sha)
        return known[0][1].commit if lacks_whole_run(self._evidence_of(known), self.settings.retries) else None

    @property
    def better_trials(self) -> tuple[Trial, ...]:
        """The sound trials of the better end, and all others on its side of the threshold."""
        if self.direction is None:
            return ()
        better = self.direction.verdict(better=True)
        end = self.new if better is Verdict.NEW else self.old
        return tuple(trial for trial, verdict in self.sound() if trial.commit.sha == end or verdict is better)

    def since(self, sha: str) -> Settlement:
        """What the trials of a commit amount to since its last sound one: whether another can be had.

        Where no trial of the commit is sound, it is what :meth:`settlement` gives.
        """
        mine = [(n, one) for n, one in self.trials if one.commit.sha == sha and not self._is_set_aside(one)]
        ended = [
            place
            for place, (_, one) in enumerate(mine, 1)
            if one.same_kernel_as is not None or self._evidence(one).sound
        ]
        rest = mine[ended[-1] :] if ended else mine
        if not rest and mine:
            return self.settlement(sha)
        return settle(self._evidence_of(rest), self.settings.retries)

    def sound(self, sha: str | None = None) -> tuple[tuple[Trial, Verdict], ...]:
        """Every trial whose figures count, of one commit or of all, with the side it is on; MEASURED without a line."""
        return tuple(
            (trial, self._judge_sound(trial).verdict)
            for _, trial in self.trials
            if sha in (None, trial.commit.sha) and trial.same_kernel_as is None and self._evidence(trial).sound
        )

    def verdicts(self) -> Iterator[tuple[str, Verdict]]:
        """The settled verdicts on commits as the history has them, in the order in which they were first tried."""
        for sha in dict.fromkeys(trial.commit.sha for _, trial in self.trials if trial.subject.is_commit):
            if (judgement := self.judge(sha)) is not None:
                yield sha, judgement.verdict

    def holds_for_equals(self, trial: Trial) -> bool:
        """Whether what is known of a trial's commit holds for any commit with an equal kernel.

        A panic that was believed does; a host that was too busy each time says nothing of the kernel.
        """
        if trial.fault is None:
            return bool(trial.runs) and self._evidence(trial).sound
        sha = trial.commit.sha
        all_faults = all(other.fault is not None for _, other in self.trials if other.commit.sha == sha)
        return all_faults and isinstance(self.settlement(sha), Untestable)

    def threshold(self) -> Threshold | None:
        """The line between the two sides; None until both ends are measured.

        Raises :class:`EndsDoNotReproduce` when the ends do not differ, or are not as expected.
        """
        old, new = self.settlement(self.old), self.settlement(self.new)
        if not (isinstance(old, Measured) and isinstance(new, Measured)):
            return None
        if self._unscored(old.trial) or self._unscored(new.trial):
            return None
        options = self.settings.bisect
        words = options.terms or Terms.usual(self.expected)
        ends = Ends(self.score(old.trial), self.score(new.trial), self.objective, self.expected, words)
        if (given := options.threshold_value) is not None:
            return threshold.given(self.objective.score(given), ends)
        return threshold.from_scores(ends, self.scores, options.min_ends_ratio)

    @cached_property
    def _line(self) -> Threshold | None:
        """The line that trials are judged by; None also when the ends do not differ, or are not as expected."""
        try:
            return self.threshold()
        except EndsDoNotReproduce:
            return None

    @cached_property
    def scores(self) -> dict[str, list[float]]:
        """The scores of every sound trial of whole runs alone, by the commit's hash."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for _, trial in self.trials:
            # The line is found without those whose cache was filled in another way: they are held against it.
            whole = trial.same_kernel_as is None and trial.is_whole
            if whole and not self._unscored(trial) and self._evidence(trial).sound:
                found[trial.commit.sha].append(self.score(trial))
        return dict(found)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """On which levels the readings lie, worst first; two when there is one change and a little noise."""
        return levels(self.scores)

    def is_on_an_ends_level(self, trial: Trial) -> bool:
        """Whether a sound whole trial lies where one of the ends does; any does while the ends are not told apart."""
        ends = [scores for sha in (self.old, self.new) if (scores := self.scores.get(sha))]
        homes = {level for level in self.levels if any(scores[0] in level for scores in ends)}
        return len(homes) != len(("old", "new")) or any(self.score(trial) in level for level in homes)

    @property
    def other_lines(self) -> tuple[float, ...]:
        """The scores of the other steps between the ends, the widest first; empty while there is but one."""
        found = self._line
        return other_gaps(found.score, found.old, found.new, self.levels) if found is not None else ()

    @cached_property
    def line(self) -> float | None:
        """The score of the threshold; None while it is not known, and when the ends are not as expected."""
        if self._line is not None:
            return self._line.score
        given = self.settings.bisect.threshold_value
        return None if given is None else self.objective.score(given)

    @property
    def threshold_value(self) -> float | None:
        """The threshold as a value of the metric."""
        return None if self.line is None else self.objective.value_of(self.line)

    def judge(self, sha: str) -> Judgement | None:
        """The settled verdict on a commit; None while it has to be measured (again)."""
        match self.settlement(sha):
            case Again():
                return None
            case Measured(trial=trial):
                return self._judge_sound(trial)
            case other:
                return Judgement(Verdict.SKIP, other.why)

    def judged_trials(self) -> Iterator[tuple[int, Trial, Judgement]]:
        """Every trial with what it says by itself."""
        for n, trial in self.trials:
            yield n, trial, self._judge_trial(trial)

    def _judge_trial(self, trial: Trial) -> Judgement:
        if trial.same_kernel_as is not None:
            other = self.judge(trial.same_kernel_as)
            verdict = other.verdict if other is not None else Verdict.WEAK
            return Judgement(verdict, trial.sameness)
        evidence = self._evidence(trial)
        if trial.doubted and trial.fault is not None:
            return Judgement(Verdict.WEAK, f"doubted, a sound end failed, too: {trial.fault.sentence}")
        if evidence.trial.fault is not None:
            return Judgement(Verdict.SKIP, evidence.trial.fault.sentence)
        if self._is_set_aside(trial) and self.short_fill.missing and len(evidence.weaknesses) == 1:
            found = self.objective.deciding_text(judged_run(trial))
            return Judgement(Verdict.MEASURED, f"{found}, after a short fill, which is yet to be compared")
        if evidence.weaknesses:
            return Judgement(Verdict.WEAK, "; ".join(evidence.weaknesses))
        return self._judge_sound(trial)

    def _judge_sound(self, trial: Trial) -> Judgement:
        if why := self._unscored(trial):
            return Judgement(Verdict.MEASURED, why)
        if self.line is None:
            found = self.objective.deciding_text(judged_run(trial))
            return Judgement(Verdict.MEASURED, f"{found}, no threshold yet")
        return classify(trial, self.line, self.direction, self.objective)

    def _evidence(self, trial: Trial) -> Evidence:
        """A trial and its weaknesses; a run that was stopped early may have been held against another threshold."""
        if self._is_set_aside(trial):
            why = f"the short fill of its cache is not known to be harmless: {self.short_fill.why}"
            return Evidence(trial, (*self._weaknesses(trial), why))
        stop = trial.stopped_early
        if stop is None or trial.commit.sha in (self.old, self.new) or (line := self.threshold_value) is None:
            return self._whole_evidence(trial)
        clear = holds(stop, line, self.objective) is not None
        return Evidence(trial, (*self._weaknesses(trial), *(() if clear else [unclear(stop, line, self.objective)])))

    def _whole_evidence(self, trial: Trial) -> Evidence:
        """A trial and its weaknesses where the threshold is not known, or comes from this trial."""
        too_early = trial.stopped_early is not None and trial.unlike is None
        early = ("stopped early, where a whole run is needed",) if too_early else ()
        return Evidence(trial, (*self._weaknesses(trial), *early))

    def _disturbances(self, trial: Trial) -> tuple[str, ...]:
        """The weaknesses of how a trial was measured, whatever it measured."""
        limits = self.settings.contention
        held = Limits(limits.max_other_cores, limits.max_steal_share, float(self.settings.workload.runtime_s))
        return weaknesses(trial, held, self.settings.storage.stack, self.objective.io_direction)

    def _weaknesses(self, trial: Trial) -> tuple[str, ...]:
        found = self._disturbances(trial)
        if found or trial.origin is not None or trial.fault is not None or not trial.runs:
            return found
        return tuple(filter(None, (self._unscored(trial),)))

    @cached_property
    def _reasons(self) -> dict[int, str]:
        return {}

    def _unscored(self, trial: Trial) -> str:
        """Why a trial has no score; empty when it has one. It is asked of each trial with every conclusion.

        What others measured may lack the metric, and so may any run that is looked at again by another one.
        """
        if id(trial) not in self._reasons:
            self._reasons[id(trial)] = why_unscored(trial, self.objective)
        return self._reasons[id(trial)]
