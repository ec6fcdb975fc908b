"""The loop over commits: both ends, then what git proposes, until git names the first new one.

One thread owns the state, and the state is the store's facts: after every trial everything is
derived again from them. Killed at any moment, the next process does the same with the same facts.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential
from tenacity.wait import wait_base

from bisector.analysis.settle import Again, Measured
from bisector.compilers import BuildTry, Chosen, NoneBuilds, TryBuild, check_unchanged, next_step
from bisector.errors import AttemptFailed, EndsDoNotReproduce, InfraError
from bisector.events import Listener, Note, Planned, TrialJudged
from bisector.fleet.engine import Engine
from bisector.history.bisect import Bisect
from bisector.history.ranges import Range
from bisector.history.steps import Contradiction, Found, MergeBaseIsNew, OnlySkippedLeft, OutsidePaths, Try
from bisector.judging import Judging
from bisector.model import Commit, Compiler, Kernel, Relevance, State, Terms, Trial, Verdict
from bisector.record.rows import InfraFaultRow
from bisector.record.store import Store
from bisector.settings import Settings
from bisector.stopping import stop_rule
from bisector.trial import TrialRequest

T = TypeVar("T")

GIT_LOG = "bisect.log"
_INFRA_ATTEMPTS = 3
_BETWEEN_ATTEMPTS: wait_base = wait_exponential(multiplier=2, max=30)


class Kin(Protocol):
    """What is known of kernels without building them."""

    def parents(self, sha: str) -> tuple[str, ...]:
        """The hashes of a commit's parents."""
        ...

    def twin(self, commit: Commit, kernel: Kernel) -> Commit | None:
        """A parent of a commit with this kernel that surely has it, too."""
        ...

    def relevance(self, wanted: Range, old: Kernel, new: Kernel) -> Relevance | None:
        """How many commits of the range can matter, given the kernels of its ends."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a bisection ended: ``candidates`` holds one commit when it was found."""

    state: State
    candidates: tuple[Commit, ...]
    skipped: tuple[Commit, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Bisection:
    """A bisection in progress; ``skips`` are the hashes a person knows to be untestable."""

    wanted: Range
    skips: tuple[str, ...]
    settings: Settings
    run_dir: Path
    store: Store
    bisect: Bisect
    engine: Engine
    tell: Listener
    kin: Kin

    @property
    def judging(self) -> Judging:
        """All verdicts, from all facts so far."""
        return Judging(self.settings, self.store.trials(), self.wanted.old.sha, self.wanted.new.sha)

    def run(self) -> Outcome:
        """Go on until there is an answer.

        Raises :class:`EndsDoNotReproduce` when there is nothing to bisect, :class:`InfraError`
        when our own side keeps failing. Everything measured is in the store either way.
        """
        self._tell_again(lambda trial: True)
        self._settle_compilers()
        self._measure_ends()
        self._count_what_matters()
        self._start_git()
        while True:
            match self.bisect.next():
                case Try() as step:
                    purpose = "merge base" if step.is_merge_base else ""
                    verdict = self._settle(step.commit, purpose, step.candidates_left, step.steps_left)
                    self._tell_git(step.commit, verdict)
                case Found(commit=commit):
                    if self._stands_on_whole_runs(commit):
                        return self._found(commit)
                    self._start_git()
                case OnlySkippedLeft(candidates=left, skipped=skipped):
                    candidates = self.judging.possible(left, self.kin.parents)
                    return Outcome(State.NARROWED, candidates, skipped, _narrowed(candidates, skipped))
                case OutsidePaths(candidates=candidates):
                    message = f"no commit that touches {' '.join(self.wanted.paths)} made the change"
                    return Outcome(State.NARROWED, candidates, (), message)
                case MergeBaseIsNew() as step:
                    raise _merge_base_is_new(step, self.settings.bisect.terms)

    def _settle_compilers(self) -> None:
        """What every kernel of this bisection is built with: as wished, or the first that builds both ends.

        Recorded, so that a resumed run goes on with the same, or says that it has changed.
        """
        found = self.engine.compilers()
        if recorded := self.store.compilers():
            check_unchanged(recorded, found)
            return
        if self.settings.kernel.compilers:
            self.store.set_compilers(found)
            return
        ends = {self.wanted.old.sha: self.wanted.old, self.wanted.new.sha: self.wanted.new}
        while True:
            match next_step(found, tuple(ends), self.store.build_tries()):
                case TryBuild(compiler=compiler, sha=sha):
                    self._try_build(compiler, ends[sha])
                case Chosen(compilers=compilers):
                    self.store.set_compilers(compilers)
                    return
                case NoneBuilds(failures=failures):
                    raise _none_builds(failures)

    def _try_build(self, compiler: Compiler, commit: Commit) -> None:
        self.tell(Note(f"does {compiler.command} build {commit.short}? ({compiler.identity})"))
        fault = self._retried(partial(self.engine.try_build, commit, compiler), commit)
        self.store.add_build_try(BuildTry(compiler, commit.sha, fault.reason if fault else ""))
        if fault:
            self.tell(Note(f"{compiler.command} does not build {commit.short}: {fault.reason}"))

    def _measure_ends(self) -> None:
        terms = self.settings.bisect.terms
        for commit, word in ((self.wanted.old, terms.old), (self.wanted.new, terms.new)):
            verdict = self._settle(commit, f"the {word} end", 0, 0)
            if verdict is Verdict.SKIP:
                judgement = self.judging.judge(commit.sha)
                raise EndsDoNotReproduce(
                    f"the {word} end {commit.short} cannot be judged: {judgement.why if judgement else ''}",
                    "choose an end that builds, boots and survives the workload",
                )
        line = self.judging.threshold()
        if line is None:
            raise RuntimeError("both ends are measured and there is no threshold")
        origin = "given" if line.given else "geometric mean of the ends"
        self.tell(Note(f"threshold {line.iops:,.0f} IOPS ({origin}: {line.old_iops:,.0f} and {line.new_iops:,.0f})"))
        # When the old end was measured there was no threshold yet.
        self._tell_again(lambda trial: trial.commit.sha == self.wanted.old.sha)

    def _count_what_matters(self) -> None:
        """Say and record once how many commits can matter, which the ends' builds tell."""
        relevance = self.store.relevance()
        if relevance is None:
            old, new = (self.judging.settlement(end.sha) for end in (self.wanted.old, self.wanted.new))
            if not (isinstance(old, Measured) and isinstance(new, Measured) and old.trial.kernel and new.trial.kernel):
                return
            relevance = self.kin.relevance(self.wanted, old.trial.kernel, new.trial.kernel)
            if relevance is None:
                return
            self.store.set_relevance(relevance)
        self.tell(Note(relevance.sentence))

    def _tell_again(self, which: Callable[[Trial], bool]) -> None:
        """Tell what is known of some trials: a resumed run's, or an end's with the threshold."""
        for n, trial, judgement in self.judging.judged_trials():
            if which(trial):
                self.tell(TrialJudged(n, trial, judgement.verdict, judgement.why))

    def _start_git(self) -> None:
        """Git's mirror of all verdicts there are; those it can make no use of are no contradiction."""
        judging = self.judging
        ends = {self.wanted.old.sha, self.wanted.new.sha}
        known = dict.fromkeys(trial.commit.sha for _, trial in judging.trials if trial.commit.sha not in ends)
        verdicts = [(sha, judgement.verdict) for sha in known if (judgement := judging.judge(sha)) is not None]
        try:
            self.bisect.start(self.skips, verdicts)
        except Contradiction as error:
            raise _contradiction(error) from error
        self._write_git_log()

    def _tell_git(self, commit: Commit, verdict: Verdict) -> None:
        try:
            self.bisect.tell(commit.sha, verdict)
        except Contradiction as error:
            raise _contradiction(error) from error
        self._write_git_log()

    def _write_git_log(self) -> None:
        new = self.run_dir / f"{GIT_LOG}.new"
        new.write_text(self.bisect.log(), encoding="utf-8")
        new.replace(self.run_dir / GIT_LOG)

    def _settle(self, commit: Commit, purpose: str, candidates: int, steps: int) -> Verdict:
        """Measure a commit until its verdict is settled, at least not at all: a fact is used again."""
        while (judgement := self.judging.judge(commit.sha)) is None:
            again = self.judging.settlement(commit.sha)
            tried = any(trial.commit.sha == commit.sha for _, trial in self.store.trials())
            why = f"again: {again.why}" if tried and isinstance(again, Again) else ""
            text = ", ".join(filter(None, (purpose, why)))
            self.tell(Planned(self.store.next_n, commit, text, candidates, steps))
            self._measure(commit)
        return judgement.verdict

    def _stands_on_whole_runs(self, culprit: Commit) -> bool:
        """Whether whole runs of the culprit and its parents say what those did that were stopped early.

        What has not had one is measured; where that says otherwise, the search has to go on from the facts.
        """
        for sha in (culprit.sha, *self.kin.parents(culprit.sha)):
            before = self.judging.judge(sha)
            while (commit := self.judging.to_measure_whole(sha)) is not None:
                self.tell(Planned(self.store.next_n, commit, "a whole run before the answer is given", 1, 1))
                self._measure(commit, whole=True)
            after = self.judging.judge(sha)
            if before is not None and after is not None and before.verdict is not after.verdict:
                word = self.settings.bisect.terms.word
                text = f"a whole run says that {sha[:12]} is {word(after.verdict)}, not {word(before.verdict)}"
                self.tell(Note(f"{text}, as one that was stopped early had said; the search goes on"))
                return False
        return True

    def _measure(self, commit: Commit, *, whole: bool = False) -> None:
        """One trial into the store; ``whole``: by runs of full length, as the ends are, before there is a threshold."""
        judging = self.judging
        request = TrialRequest(
            self.store.next_n,
            commit,
            judging.whole_kernels if whole else judging.measured_kernels,
            self.store.compilers(),
            None if whole else stop_rule(judging, self.run_dir),
        )
        trial = self._retried(partial(self.engine.measure, request), commit)
        n = self.store.add_trial(trial)
        judgement = next(judgement for number, _, judgement in self.judging.judged_trials() if number == n)
        self.tell(TrialJudged(n, trial, judgement.verdict, judgement.why))

    def _retried(self, attempt: Callable[[], T], commit: Commit) -> T:
        """What an attempt answers; our own faults are tried again, recorded, and then given up on."""

        def before_sleep(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            self.tell(Note(f"not the kernel's fault, trying again: {error}"))

        attempts = Retrying(
            retry=retry_if_exception_type(AttemptFailed),
            stop=stop_after_attempt(_INFRA_ATTEMPTS),
            wait=_BETWEEN_ATTEMPTS,
            before_sleep=before_sleep,
            reraise=True,
        )
        answer: T = attempts(self._recorded, attempt, commit)
        return answer

    def _recorded(self, attempt: Callable[[], T], commit: Commit) -> T:
        try:
            return attempt()
        except AttemptFailed as error:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self.store.add_infra_fault(InfraFaultRow(now, commit.sha, error.stage, error.host, str(error)))
            raise

    def _found(self, commit: Commit) -> Outcome:
        """The answer; a commit that has its parent's kernel cannot be it, whatever was concluded of the parent."""
        term = self.settings.bisect.terms.new
        kernels = (trial.kernel for _, trial in self.store.trials() if trial.commit.sha == commit.sha)
        kernel = next(filter(None, kernels), None)
        twin = self.kin.twin(commit, kernel) if kernel is not None else None
        if twin is not None:
            raise InfraError(
                f"{commit.short} is {term} and has the kernel of its parent {twin.short}, which counts as not {term}",
                "there is more than one change, or a verdict is wrong, or the change was made outside the paths given;"
                f" measure the parent: bisector test {twin.short}",
            )
        return Outcome(State.FOUND, (commit,), (), f"{commit.short} is the first {term} commit: {commit.subject}")


def _narrowed(candidates: tuple[Commit, ...], skipped: tuple[Commit, ...]) -> str:
    names = ", ".join(commit.short for commit in skipped)
    return f"one of {len(candidates)} commits; {names} cannot be tested and stand in the way"


def _none_builds(failures: Iterable[BuildTry]) -> EndsDoNotReproduce:
    said = "; ".join(f"{one.compiler.command} fails at {one.sha[:12]}: {one.reason}" for one in failures)
    return EndsDoNotReproduce(
        f"no compiler of this host builds both ends: {said}",
        "install another compiler (apt-cache search '^gcc-[0-9]'), choose other ends,"
        " or let several share the range: --compiler gcc --compiler gcc-11",
    )


def _merge_base_is_new(step: MergeBaseIsNew, terms: Terms) -> EndsDoNotReproduce:
    return EndsDoNotReproduce(
        f"the merge base {step.merge_base.short} of both ends is {terms.new} already: "
        f"the change was made before it and undone on the way to {step.old.short}",
        f"what undid it: bisector start {step.merge_base.short} {step.old.short} --regression, or the reverse of it",
    )


def _contradiction(error: Contradiction) -> InfraError:
    return InfraError(
        f"the verdicts contradict each other: {error}; there is more than one change, or one verdict is wrong",
        "bisector table shows the figures; measure one of the two again: bisector test COMMIT",
    )
