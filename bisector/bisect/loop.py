"""The loop over commits: both ends, then whatever the strategy asks for, until it has an answer.

One thread owns the state, and the state is the store's facts: after every trial everything is
derived again from them. Killed at any moment, the next process does the same with the same facts.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bisector.analysis.controls import Due, after_a_row, before_an_answer
from bisector.analysis.settle import Again, Measured, Untestable
from bisector.analysis.verdicts import Judging, Numbered
from bisector.bisect.baselines import Baselines
from bisector.bisect.by_bayes import ByBayes
from bisector.bisect.by_git import ByGit
from bisector.bisect.compilers import CompilerChoice
from bisector.bisect.control_trials import Controls
from bisector.bisect.mirror import Mirror
from bisector.bisect.retry import RETRIES, Attempts, RetryPolicy
from bisector.bisect.steps import Kin, Measure, MeasureChanged, Outcome, Outlook, Searcher
from bisector.bisect.stop_rule import stop_rule, why_whole
from bisector.config import Settings
from bisector.core.errors import AttemptFailed, BisectorError, EndsDoNotReproduce, InfraError, TrialRefused
from bisector.core.events import Listener, Note, Planned, TrialJudged
from bisector.core.model import Commit, Control, Kind, NotChanged, Strategy, Trial, Verdict
from bisector.executor.base import Engine
from bisector.git.apply import CannotBeHad, changed_end
from bisector.git.bisect import Bisect
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.status.evidence import Known
from bisector.status.range_graph import Ground
from bisector.store.rundir import GIT_LOG
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest


@dataclass(slots=True)
class Bisection:
    """A bisection in progress; ``skips`` are the hashes a person knows to be untestable."""

    wanted: Range
    skips: tuple[str, ...]
    settings: Settings
    run_dir: Path
    store: Store
    repository: Repository
    bisect: Bisect
    engine: Engine
    tell: Listener
    kin: Kin
    retries: RetryPolicy = RETRIES
    _judging: Judging | None = field(default=None, init=False)
    _known_before: int | None = field(default=None, init=False)

    @property
    def judging(self) -> Judging:
        """All verdicts, from all facts so far; derived again when there are more.

        What was given up for weak evidence by an earlier process is tried again: its host may have been busy.
        """
        trials = self.store.trials()
        if self._known_before is None:
            self._known_before = len(trials) and trials[-1][0]
        if self._judging is None or self._judging.trials is not trials:
            ends = self.wanted.old.sha, self.wanted.new.sha
            self._judging = Judging(self.settings, trials, *ends, forgiven=self._known_before)
        return self._judging

    @property
    def _attempts(self) -> Attempts:
        return Attempts(self.store, self.tell, self.retries)

    def run(self) -> Outcome:
        """Go on until there is an answer.

        Raises :class:`EndsDoNotReproduce` when there is nothing to bisect, :class:`InfraError`
        when our own side keeps failing, :class:`UserError` when the first measured end has no value
        that can decide. Everything measured is in the store either way.
        """
        self.prepare()
        self.bisect.terms = self.judging.terms
        searcher = _SEARCHERS[self.settings.bisect.strategy](self)
        searcher.begin()
        self._make_sure(after_a_row)
        while not isinstance(step := self._next(searcher), Outcome):
            match step:
                case Measure(commit=commit, purpose=purpose, outlook=outlook, whole=whole):
                    self._measure(commit, purpose, outlook, whole=whole)
                case MeasureChanged():
                    self._measure_changed(step)
            self._make_sure(after_a_row)
        self._make_sure(before_an_answer)
        if self.settings.bisect.baselines:
            # Last, so that nothing that fails or ends here can cost an answer.
            Baselines(self.wanted.new, self.settings, self.store, self.engine, self._attempts).measure()
        return step

    def prepare(self) -> None:
        """What comes before the search: a compiler, the ends, as often as wished, and what can matter between them.

        Raises what :meth:`run` does.
        """
        if why := why_whole(self.judging.objective):
            self.tell(Note(why))
        self._tell_again(lambda trial: True)
        wished = bool(self.settings.kernel.compilers)
        CompilerChoice(wished, self.engine, self.store, self._attempts, self.tell).settle(self._ends)
        self._measure_ends()
        self._repeat_ends()
        self._count_what_matters()

    @property
    def _ends(self) -> tuple[Commit, Commit]:
        return self.wanted.old, self.wanted.new

    def _next(self, searcher: Searcher) -> Measure | MeasureChanged | Outcome:
        """What comes next; what git was told on the way is written down beside the record."""
        step = searcher.next()
        new = self.run_dir / f"{GIT_LOG}.new"
        new.write_text(searcher.log(), encoding="utf-8")
        new.replace(self.run_dir / GIT_LOG)
        return step

    def _make_sure(
        self, due: Callable[[Sequence[Numbered], Collection[str], Callable[[str], bool]], Due | None]
    ) -> None:
        """Try a sound end again as long as that is due: what it was asked about is not asked again."""
        ends = {end.sha for end in self._ends}
        while (one := due(self.judging.trials, ends, self._is_skipped)) is not None:
            self._controls.make(one)

    def _is_skipped(self, sha: str) -> bool:
        return isinstance(self.judging.settlement(sha), Untestable)

    @property
    def _controls(self) -> Controls:
        terms = self.judging.terms
        return Controls(self.wanted.new, terms.new, self.engine, self.store, self._attempts)

    def _measure_ends(self) -> None:
        terms = self.judging.terms
        for commit, word in zip(self._ends, (terms.old, terms.new), strict=True):
            while (judgement := self.judging.judge(commit.sha)) is None:
                self.judging.check_metric(commit.sha)
                self._measure(commit, f"the {word} end", Outlook(), whole=True)
            if judgement.verdict is Verdict.SKIP:
                raise self._no_end(commit, word, judgement.why)
        line = self.judging.threshold()
        if line is None:
            raise RuntimeError("both ends are measured and there is no threshold")
        self.tell(Note(line.sentence(self.judging.objective)))
        # When the old end was measured there was no threshold yet.
        self._tell_again(lambda trial: trial.commit.sha == self.wanted.old.sha)

    def _no_end(self, commit: Commit, word: str, why: str) -> BisectorError:
        """Why an end cannot be judged: that of the host is no answer, and the next process measures it anew."""
        if commit.sha in self.judging.given_up:
            return InfraError(f"the {word} end {commit.short} could not be measured: {why}", "bisector doctor")
        return EndsDoNotReproduce(
            f"the {word} end {commit.short} cannot be judged: {why}",
            "choose an end that builds, boots and survives the workload",
        )

    def _repeat_ends(self) -> None:
        """The ends in turn, until each has as many sound readings as wished, or can have no more."""
        terms, wished = self.judging.terms, self.settings.bisect.calibrate
        for number in range(2, wished + 1):
            for commit, word in zip(self._ends, (terms.old, terms.new), strict=True):
                while len(self.judging.sound(commit.sha)) < number and self._can_be_measured(commit):
                    self._measure(commit, f"the {word} end, {number} of {wished}", Outlook(), whole=True)

    def _can_be_measured(self, commit: Commit) -> bool:
        return not isinstance(self.judging.since(commit.sha), Untestable)

    def _count_what_matters(self) -> None:
        """Say and record once which commits can matter, which the ends' builds tell."""
        relevance = self.store.relevance()
        if relevance is None:
            old, new = (self.judging.settlement(end.sha) for end in self._ends)
            if not (isinstance(old, Measured) and isinstance(new, Measured) and old.trial.kernel and new.trial.kernel):
                return
            mattering = self.kin.mattering(self.wanted, old.trial.kernel, new.trial.kernel)
            if mattering is None:
                return
            self.store.set_mattering(mattering)
            relevance = mattering.relevance
        self.tell(Note(relevance.sentence))

    def _tell_again(self, which: Callable[[Trial], bool]) -> None:
        """Tell what is known of some trials: a resumed run's, or an end's with the threshold."""
        for n, trial, judgement in self.judging.judged_trials():
            if which(trial):
                self.tell(TrialJudged(n, trial, judgement.verdict, judgement.why, self.judging.terms))

    def _measure_changed(self, step: MeasureChanged) -> None:
        """One trial of an end without a commit, or with it; where that cannot be had, this is the fact."""
        first_parent = self.wanted.first_parent
        made = changed_end(self.repository, step.kind, step.commit, step.end, first_parent=first_parent)
        how = "without" if step.kind is Kind.REVERTED else "with"
        what = f"{step.end.short} {how} {step.commit.short}"
        if isinstance(made, CannotBeHad):
            self.store.add_not_changed(NotChanged(step.kind, step.commit.sha, step.end.sha, made.reason))
            self.tell(Note(f"there is no {what}: {made.reason}"))
            return
        self._measure(made.commit, what, step.outlook, whole=True, kind=step.kind, changed_by=step.commit.sha)

    def _measure(
        self,
        commit: Commit,
        purpose: str,
        outlook: Outlook,
        *,
        whole: bool,
        kind: Kind = Kind.COMMIT,
        changed_by: str | None = None,
    ) -> None:
        """One trial into the store; ``whole``: its runs are not stopped early."""
        judging = self.judging
        whole = whole or commit in self._ends  # the threshold comes from their whole runs
        self._plan(judging, commit, purpose, outlook)
        # A kernel that has its figures and is asked for again is not to be told that it has them.
        known = isinstance(judging.settlement(commit.sha), Measured)
        again = self._was_tried(commit)
        others = judging.whole_kernels if whole else judging.measured_kernels
        stop = None if whole else stop_rule(judging, self.run_dir)
        n, compilers = self.store.next_n, self.store.compilers()
        # What is known of a build that is doubted is not believed either.
        anew = any(one.doubted and one.kernel is None for _, one in judging.trials if one.commit.sha == commit.sha)
        request = TrialRequest(n, commit, {} if known else others, compilers, stop, again=again, anew=anew)
        try:
            trial, control = self._tried(request)
        except (AttemptFailed, TrialRefused) as error:
            if kind is Kind.COMMIT and commit not in self._ends:
                error.skippable = commit.sha
            raise
        trial = replace(trial, kind=kind, changed_by=changed_by)
        n = self.store.add_trial(trial) if control is None else self.store.add_blamed(trial, control)
        judged = next(one for one in self.judging.judged_trials() if one[0] == n)
        self.tell(TrialJudged(n, judged[1], judged[2].verdict, judged[2].why, self.judging.terms))

    def _tried(self, request: TrialRequest) -> tuple[Trial, Control | None]:
        """The facts of a trial; what presents as ours can be a commit's doing once there are sound ends to tell."""
        attempt = partial(self.engine.measure, request)
        if request.commit in self._ends or self.judging.threshold() is None:
            return self._attempts.at(request.commit, attempt), None
        return self._controls.measured(request.commit, attempt)

    def _plan(self, judging: Judging, commit: Commit, purpose: str, outlook: Outlook) -> None:
        again = judging.since(commit.sha)
        why = ""
        if self._was_tried(commit):
            why = f"again: {again.why}" if isinstance(again, Again) else "once more"
        text = ", ".join(filter(None, (purpose, why)))
        planned = Planned(self.store.next_n, commit, text, outlook.candidates, outlook.trials_left, outlook.probability)
        self.tell(planned)

    def _was_tried(self, commit: Commit) -> bool:
        return any(trial.commit.sha == commit.sha for _, trial in self.judging.trials)

    def known(self) -> Known:
        """What is on record beside the trials."""
        return Known(self.skips, self.store.mattering(), self.store.not_changed(), self.bisect.bases)


def _by_bayes(loop: Bisection) -> Searcher:
    return ByBayes(
        wanted=loop.wanted,
        terms=loop.judging.terms,
        repository=loop.repository,
        bisect=loop.bisect,
        kin=loop.kin,
        ground=Ground.of(loop.repository, loop.wanted, loop.settings.bisect.suspects),
        now=lambda: loop.judging,
        known=loop.known,
        mirror=Mirror(loop.bisect, loop.skips),
    )


def _by_git(loop: Bisection) -> Searcher:
    terms = loop.judging.terms
    return ByGit(loop.wanted, loop.skips, terms, loop.bisect, loop.kin, lambda: loop.judging, loop.tell)


_SEARCHERS: dict[Strategy, Callable[[Bisection], Searcher]] = {Strategy.BAYES: _by_bayes, Strategy.GIT: _by_git}
