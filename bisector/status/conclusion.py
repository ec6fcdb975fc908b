"""Conclusions from a case as it stands: the likeliest commit, its probability, and whether the search is over.

An answer comes with the differences of the effective configurations on both sides of it. A changed default in a Kconfig
file is a frequent reason for a changed figure, and then the diff of the first new commit does not show what the
compiler was given.

Results that others measured are not searched: their outcome follows from verdicts and history alone.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from bisector.analysis.judgement import Numbered
from bisector.analysis.verdicts import Judging
from bisector.core.errors import BisectorError
from bisector.core.subject import Commit
from bisector.core.trial import Artifact, Trial
from bisector.core.verdict import State, Verdict
from bisector.git.repository import Repository
from bisector.host.files import inside
from bisector.kernel import kconfig
from bisector.search.choice import missing_whole_runs, possible_changed_ends, prospects
from bisector.search.effect import Fit, SuspectEffect, effect_of, fit
from bisector.search.graph import Kernel
from bisector.search.posterior import Posterior
from bisector.search.step import (
    ChangedEndToRead,
    CommitToRead,
    Decision,
    SearchAnswer,
    SearchEnding,
    believe,
    decide_from,
)
from bisector.status.evidence import Case
from bisector.status.view import ConfigChanges, OptionChange
from bisector.store.facts import RunHeader

CONFIG_ARTIFACT = "kernel.config"
DEFCONFIG_ARTIFACT = "kernel.defconfig"
# The least probability of a side from which a kernel is shown to git as on that side.
_SHOWN = 0.9
# A trial tells at most one bit. The estimate assumes that trials tell at least this much, since better ones follow a
# poor one.
_LEAST_BITS_A_TRIAL = 0.4
_NO_HISTORY = "no repository says which of these commits came first (bisector import --repo DIRECTORY)"


@dataclass(frozen=True)
class SearchState:
    """A case with its posterior."""

    case: Case

    @cached_property
    def belief(self) -> Posterior:
        """The posterior."""
        return believe(self.case.problem, self.case.facts, self.case.search)

    @cached_property
    def decision(self) -> Decision:
        """The next step; an answer that lies between equal kernels ends as :attr:`SearchEnding.NOT_ONE_CHANGE`."""
        decision = decide_from(self.case.problem, self.case.facts, self.case.search, self.belief)
        if isinstance(decision, SearchAnswer) and self.case.impossible[decision.commit]:
            return replace(decision, ending=SearchEnding.NOT_ONE_CHANGE)
        return decision

    def choices(self, count: int) -> tuple[str, ...]:
        """The hashes of the commits among the next ``count`` choices, each made as if all before it were in flight."""
        if count not in self._choices:
            self._choices[count] = tuple(self._chosen(count))
        return self._choices[count]

    @cached_property
    def _choices(self) -> dict[int, tuple[str, ...]]:
        return {}

    def _chosen(self, count: int) -> Iterator[str]:
        case, known = self.case, self.case.facts
        for _ in range(count):
            match decide_from(case.problem, known, case.search, self.belief):
                case CommitToRead(commit=number):
                    yield case.commit_for(number)
                    chosen = number, Kernel.COMMIT
                case ChangedEndToRead(commit=number, kernel=kernel):
                    chosen = number, kernel
                case _:
                    return
            known = replace(known, in_flight=(*known.in_flight, chosen))

    @property
    def best(self) -> str:
        """The hash of the likeliest commit."""
        return self.case.search_range.shas[self.belief.best]

    @property
    def probability(self) -> float:
        """The probability that the likeliest commit is the first new one, if there is one change."""
        return float(self.belief.p[self.belief.best])

    @cached_property
    def candidates(self) -> tuple[tuple[str, float], ...]:
        """The smallest set of commits with the target probability: hashes and probabilities, likeliest first."""
        numbers = self.belief.smallest_set(self.case.search.rules.target)
        return tuple((self.case.search_range.shas[number], float(self.belief.p[number])) for number in numbers)

    @property
    def without_suspects(self) -> tuple[str, float]:
        """The likeliest commit and its probability if no paths were suspected."""
        belief = believe(self.case.unsuspecting, self.case.facts, self.case.search)
        return self.case.search_range.shas[belief.best], float(belief.p[belief.best])

    @cached_property
    def fit(self) -> Fit:
        """How well one change at the likeliest commit explains the readings."""
        return fit(self.belief, self.belief.best)

    @property
    def one_change(self) -> bool:
        """Whether one change at the likeliest commit can explain the readings and the equal kernels."""
        return self.fit.one_change and not self.case.impossible[self.belief.best]

    @property
    def no_change(self) -> bool:
        """Whether it is known that nothing in the range made the ends differ."""
        return isinstance(self.decision, SearchAnswer) and self.decision.ending is SearchEnding.NO_CHANGE

    @property
    def confirmed(self) -> tuple[Kernel, ...]:
        """The kinds of changed ends that confirm the likeliest commit."""
        best = self.belief.best
        for_it = {Kernel.REVERTED: -1, Kernel.PICKED: 1}
        found = {kernel: self.belief.undone.get((best, kernel)) for kernel in for_it}
        return tuple(k for k, evidence in found.items() if evidence and for_it[k] * (evidence.new - evidence.old) > 0)

    @property
    def effect(self) -> SuspectEffect | None:
        """The size of the change, if the likeliest commit made it; None if no figures count."""
        return effect_of(self.case.problem, self.case.facts, self.belief.best, self.belief.levels)

    @cached_property
    def probability_new(self) -> dict[str, float]:
        """The probability of each commit of the range that its kernel is on the new side."""
        mass = np.clip(self.case.search_range.graph.mass(self.belief.p), 0.0, 1.0)
        return dict(zip(self.case.search_range.shas, map(float, mass), strict=True))

    @property
    def shown(self) -> dict[str, Verdict]:
        """The verdicts that git is told: the sides of kernels that are beyond doubt, and the untestable commits.

        Newest first, so that, where possible, each new commit is an ancestor of the one before it.
        """
        case, new = self.case, self.probability_new
        sides = {
            sha: new[sha] for sha in map(case.search_range.shas.__getitem__, sorted(case.facts.measured, reverse=True))
        }
        skips = {case.search_range.shas[number]: Verdict.SKIP for number in case.facts.untestable}
        return {
            sha: Verdict.NEW if p > _SHOWN else Verdict.OLD for sha, p in sides.items() if p > _SHOWN or p < 1 - _SHOWN
        } | skips

    @property
    def final(self) -> dict[str, Verdict]:
        """The verdicts that git is told at the end, with the answer new and its parents old, so that git names it."""
        search_range, best = self.case.search_range, self.belief.best
        parents = {search_range.shas[parent]: Verdict.OLD for parent in search_range.graph.parents[best]}
        return {**self.shown, **parents, self.best: Verdict.NEW}

    @property
    def trials_left(self) -> int:
        """The expected number of further trials: first for the missing bits, then for what an answer requires."""
        case, belief = self.case, self.belief
        if isinstance(self.decision, SearchAnswer):
            return 0
        outlook = prospects(case.search_range.graph, belief, case.facts, case.search.costs)
        searching = math.ceil(belief.unknown_bits / max(_LEAST_BITS_A_TRIAL, outlook.most(outlook.gain_bits)))
        if self.probability >= case.search.rules.suspect:
            searching = 0
        stand_ins = case.problem.relevant is not None
        whole = missing_whole_runs(case.problem, case.facts, belief.best, stand_ins=stand_ins)
        undoing = not self.confirmed and possible_changed_ends(case.problem, case.facts, belief.best)
        return max(1, searching + (1 if undoing else 0) + (len(whole) if not searching else 0))


def outside_paths(paths: Iterable[str]) -> str:
    """The sentence for a change that no commit touching these paths made."""
    return f"no commit that touches {' '.join(paths)} made the change"


def config_changes(
    repository: Path, paths: Iterable[str], run_dir: Path, trials: Iterable[Trial], first: Commit
) -> tuple[ConfigChanges, ...]:
    """The .config changes of ``first`` against each parent whose .config was kept, measured or not.

    With ``paths`` the parents are those in git's history of these paths. Empty if the repository or the files are gone:
    the changes are told beside the answer and do not decide it.
    """
    files = {trial.commit.sha: file for trial in trials if (file := trial.artifact(CONFIG_ARTIFACT)) is not None}
    child, parents = effective_config(run_dir, files.get(first.sha)), tuple[Commit, ...]()
    if child is None:
        return ()
    with suppress(BisectorError):
        opened = Repository.open(repository)
        answer = opened.ask("rev-list", "--parents", "--max-count=1", first.sha, "--", *paths)
        parents = opened.commits(sha for line in answer.lines for sha in line.split()[1:])
    found = ((parent, effective_config(run_dir, files.get(parent.sha))) for parent in parents)
    return tuple(
        ConfigChanges(parent, tuple(OptionChange(*one) for one in kconfig.differences(options, child)))
        for parent, options in found
        if options is not None
    )


def effective_config(run_dir: Path, file: Artifact | None) -> kconfig.Options | None:
    """The configuration that was kept of a kernel; None if the file never existed or is gone."""
    with suppress(OSError):
        return kconfig.read_effective(inside(run_dir, file.path)) if file is not None else None
    return None


def ends_by_others(asked: RunHeader, trials: tuple[Numbered, ...]) -> tuple[str, str]:
    """The hashes of the old and the new end: as given, else the first commit that people put on that side.

    Commits that the repository knows come first. A hash is empty if nobody named a commit of its side.
    """
    found = []
    for given, side in ((asked.old_sha, Verdict.OLD), (asked.new_sha, Verdict.NEW)):
        said = [trial.commit for _, trial in trials if trial.origin is not None and trial.origin.verdict is side]
        first = sorted(said, key=lambda commit: not commit.tree)[:1] if asked.repository else said[:1]
        found.append(given or next((commit.sha for commit in first), ""))
    return found[0], found[1]


def outcome_by_others(asked: RunHeader, judging: Judging) -> tuple[State, str, tuple[Commit, ...]]:
    """The state, a sentence, and the commits that can be the first new one by the verdicts that bisector derived."""
    terms = judging.terms
    if asked.repository is None:
        return State.IMPORTED, _NO_HISTORY, ()
    sides: dict[Verdict, list[str]] = {Verdict.OLD: [], Verdict.NEW: []}
    for commit in dict.fromkeys(trial.commit for _, trial in judging.trials if trial.commit.tree):
        judgement = judging.judge(commit.sha)
        if judgement is not None and judgement.verdict in sides:
            sides[judgement.verdict].append(commit.sha)
    missing = [terms.word(side) for side, shas in sides.items() if not shas]
    if missing:
        return State.IMPORTED, f"no commit of the repository is {' or '.join(missing)}", ()
    try:
        left = Repository.open(asked.repository).between(sides[Verdict.OLD], sides[Verdict.NEW])
    except BisectorError as error:
        return State.IMPORTED, f"the repository does not answer: {error}", ()
    if not left:
        return State.IMPORTED, f"the verdicts contradict each other: no commit can be the first {terms.new} one", ()
    if len(left) == 1:
        return State.FOUND, f"{left[0].short} is the first {terms.new} commit: {left[0].subject}", left
    return State.NARROWED, f"one of {len(left)} commits, which nobody measured but for one", left
