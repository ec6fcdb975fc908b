"""The life of a bisection from request to outcome, as ``start``, ``resume`` and the nightly job share it.

:class:`Bisection` runs on the loop: it connects the step to the record, git's bisection and fio's logs, and decides
nothing.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from bisector.analysis.verdicts import Judging
from bisector.bisect.ends import missing_baselines
from bisector.bisect.state import (
    Aim,
    BisectState,
    ChangedEnd,
    CommitsOf,
    GitState,
    Installed,
    KeptKernels,
    LeftInRange,
    ParentsOf,
    ParentWithSameKernel,
    Recorded,
    Scope,
    ShowGit,
    WhatMatters,
)
from bisector.bisect.step import step
from bisector.bisect.stop_rule import rule_alike, rule_clear_of, stop_rule
from bisector.campaign import life
from bisector.campaign.equipment import Equipment, KernelEquality, MeasurerFactory, here
from bisector.campaign.instructions import Crew, Done, Instruction, Question, Submit, Transient
from bisector.campaign.life import BUILD, clean_up, ends_recorded, new_run, remove_build
from bisector.campaign.loop import Loop
from bisector.config import ConfirmBy, Settings, checks, options
from bisector.core.errors import Finding, Grade, UserError
from bisector.core.events import Listener
from bisector.core.subject import Compiler
from bisector.core.trial import Taken, Trial
from bisector.core.verdict import SideWords, State, Strategy, Verdict
from bisector.doctor import checks as preflight
from bisector.doctor.checks import check_tree
from bisector.executor.base import Request
from bisector.git.bisect import Bisect, CommitToTry, Contradiction, check_terms
from bisector.git.ranges import Range, SearchRange, check_range, check_suspects, remarks, to_skip
from bisector.git.repository import Repository
from bisector.git.source_tree import check_attributes, hold
from bisector.git.transfer import bundled
from bisector.git.trees import changed_end
from bisector.host.files import write_atomically
from bisector.host.identity import host_id
from bisector.mail import outbox
from bisector.plan.experience import Experience, experience
from bisector.plan.forecast import effects_of, effects_text, noise_of, spread_of
from bisector.search.graph import SearchFacts
from bisector.store.facts import Budget, Compilers, Fact, RunHeader, Skip
from bisector.store.rundir import GIT_LOG, Index, IndexEntry, RunDirectory, adopt, keep_inputs
from bisector.store.store import Store, state_of
from bisector.trial.runner import TrialRequest

# A bisection on the loop


@dataclass(slots=True)
class GitSide:
    """The repository of a range, what is known of its kernels without a build, and git's own bisection."""

    repository: Repository
    wanted: Range
    bisect: Bisect
    kernels: KernelEquality
    _shown: ShowGit | None = field(default=None, init=False)

    def answer(self, question: Question[object]) -> object:
        """Return the answer to a question of the step."""
        return _ANSWERS[type(question)](self, question)

    def show(self, show: ShowGit) -> GitState:
        """Make git's bisection hold ``show``, by telling it new verdicts if that suffices, else from the start."""
        verdicts, says = dict(show.verdicts), None
        try:
            self._tell(show)
            if show.proposes:  # git may propose a commit that has a verdict already
                while isinstance(says := self.bisect.next(), CommitToTry) and says.commit.sha in verdicts:
                    self.bisect.tell(says.commit.sha, verdicts[says.commit.sha])
        except Contradiction as error:
            if not show.proposes:
                raise
            self._shown = None
            return GitState(show, error)
        self._shown = show
        return GitState(show, says)

    def log(self) -> str:
        """``git bisect log``."""
        return self.bisect.log()

    def _tell(self, show: ShowGit) -> None:
        before, now = self._shown, dict(show.verdicts)
        same = before is not None and (before.terms, before.skips) == (show.terms, show.skips)
        if before is None or not same or any(now.get(sha) is not one for sha, one in before.verdicts):
            self.bisect.terms = show.terms
            self.bisect.start(show.skips, show.verdicts)
            return
        told = dict(before.verdicts)
        for sha, verdict in show.verdicts:
            if sha not in told:
                self.bisect.tell(sha, verdict)


_ANSWERS: Mapping[type[Question[object]], Callable[[GitSide, Any], object]] = {
    CommitsOf: lambda git, asked: git.repository.commits(asked.shas),
    ParentsOf: lambda git, asked: {sha: git.kernels.parents(sha) for sha in asked.shas},
    ParentWithSameKernel: lambda git, asked: git.kernels.parent_with_same_kernel(asked.commit, asked.kernel),
    WhatMatters: lambda git, asked: git.kernels.mattering(git.wanted, asked.old, asked.new),
    KeptKernels: lambda git, asked: git.kernels.kept(git.wanted, asked.compilers),
    ChangedEnd: lambda git, asked: changed_end(
        git.repository, asked.kind, asked.commit, asked.end, first_parent=git.wanted.first_parent
    ),
    LeftInRange: lambda git, asked: git.bisect.in_range(),
}


@dataclass(slots=True)
class Bisection:
    """The part of a bisection that one process does."""

    scope: Scope
    store: Store
    git: GitSide
    equipment: Equipment
    tell: Listener
    _shown: GitState | None = field(default=None, init=False)
    _chose_by: SearchFacts | None = field(default=None, init=False)

    def run(self) -> Done:
        """Go on until the aim is reached.

        Raises :class:`bisector.core.errors.EndsDoNotReproduce` if there is nothing to bisect, :class:`InfraError` if an
        infrastructure error persists. Everything measured is in the store either way.
        """
        recorded = partial(Recorded.of, self.scope, self.store)
        loop = Loop(self.store, self.equipment, self.tell, recorded, self._step, self._answer, self._complete)
        return loop.run()

    def _step(self, recorded: Recorded, transient: Transient) -> Instruction:
        return step(BisectState(self.scope, recorded, transient, self._shown, self._chose_by))

    def _answer(self, question: Question[object]) -> object:
        if isinstance(question, ShowGit):
            for event in question.tell:
                self.tell(event)
            self._shown = self.git.show(question)
            write_atomically(self.scope.run_dir / GIT_LOG, self.git.log().encode())
            return self._shown
        return self.equipment.executor.compilers() if isinstance(question, Installed) else self.git.answer(question)

    def _complete(self, recorded: Recorded, submit: Submit) -> Request:
        """The request of a submission, with the rule by which its last run may end early."""
        if submit.because is not None:
            self._chose_by = submit.because
        request, run_dir = submit.request, self.scope.run_dir
        if not isinstance(request, TrialRequest):
            return request
        judging, rule = recorded.on(submit.host).judging, None
        if submit.may_stop_early:
            rule = stop_rule(judging, run_dir, request.fill)
        elif submit.alike:
            rule = rule_alike(judging, run_dir, request.commit.sha)
        elif submit.clear_of:
            rule = rule_clear_of(judging, run_dir, submit.clear_of)
        return replace(request, stop=rule)


def scope_of(
    git: GitSide, store: Store, settings: Settings, skips: tuple[str, ...], crew: Crew, *, aim: Aim = Aim.ANSWER
) -> Scope:
    """The scope of a process that begins now; a person knows the commits of the hashes ``skips`` to be untestable."""
    trials = store.trials()
    weighs = aim is Aim.ANSWER and settings.bisect.strategy is Strategy.BAYES
    return Scope(
        wanted=git.wanted,
        settings=settings,
        run_dir=store.path.parent,
        skips=skips,
        bases=git.bisect.bases,
        search_range=SearchRange.of(git.repository, git.wanted, settings.bisect.suspects) if weighs else None,
        forgiven=trials[-1][0] if trials else 0,
        aim=aim,
        crew=crew,
    )


# From request to outcome


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a new run inherits from the run in ``run_dir``; baselines are the last of ``trials``.

    ``measured_in`` are the directories of all runs in which these trials were measured.
    """

    run_dir: Path
    trials: tuple[tuple[int, Trial], ...]
    compilers: tuple[Compiler, ...]
    measured_in: frozenset[Path] = frozenset()


@dataclass(frozen=True, slots=True)
class BisectRequest:
    """A bisection that a person or the nightly job asks for; revisions and skips are as typed.

    ``paths`` limit the range. No trial is begun that would exceed ``budget_s`` seconds of measuring.
    """

    repository: Path
    old: str
    new: str
    settings: Settings
    paths: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()
    inherited: Inherited | None = None
    budget_s: float | None = None


@contextmanager
def begun(
    asked: BisectRequest, run_dir: Path | None, warn: Callable[[Finding], None], *, measures_here: bool = True
) -> Iterator[tuple[RunDirectory, Store]]:
    """Check a request without building anything, record it as a new run, and lock that run until the context exits.

    ``warn`` receives problems of this machine that spoil figures or the record but do not prevent the run; if other
    hosts measure (``measures_here`` is false), their own doctors check them instead. Raises :class:`UserError` if the
    request cannot work; the run directory is removed in that case.
    """
    repository = Repository.open(asked.repository)
    wanted, settings, commits = checked(repository, asked)
    for sentence in range_remarks(repository, wanted, settings):
        warn(Finding("range", Grade.WARN, sentence))
    skips = tuple(sha for expression in asked.skips for sha in repository.expand(expression))
    inherited = asked.inherited
    with new_run(run_dir, asked.old, asked.new) as run:
        if measures_here:
            preflight.check(settings, run.path, warn)
        settings = keep_inputs(settings, run.path)
        header = RunHeader.of(
            settings,
            repository.top,
            old=(asked.old, wanted.old.sha),
            new=(asked.new, wanted.new.sha),
            paths=wanted.paths,
            first_parent=wanted.first_parent,
            skips=skips,
        )
        # Inherited trials are evidence of this run; as earlier experience, too, they would count twice.
        own = inherited.measured_in if inherited is not None else frozenset()
        earlier = [path for entry in Index().entries() if (path := Path(entry.run_dir)).resolve() not in own]
        known = experience(settings, host_id(), earlier)
        warn(Finding("noise", Grade.INFO, effort_sentence(settings, known, commits)))
        # In one transaction with the header: else a resumed run might never know them.
        facts: list[Fact] = [known.earlier] if asked.budget_s is None else [Budget(asked.budget_s), known.earlier]
        trials, taken = list[Trial](), list[Taken]()
        if inherited is not None:
            trials = [adopt(inherited.run_dir, one, run.path, n) for n, (_, one) in enumerate(inherited.trials, 1)]
            taken = [Taken(str(inherited.run_dir), n) for n, _ in inherited.trials]
            facts += [Compilers(inherited.compilers)] if inherited.compilers else []
        with Store.create(run.database, header, trials, taken, facts=facts) as store:
            Index().add(IndexEntry(str(run.path), str(repository.top), asked.old, asked.new, header.created_at))
            yield run, store


def effort_sentence(settings: Settings, known: Experience, commits: int) -> str:
    """The sentence that says what finding changes of usual sizes takes among ``commits``, given the noise on record."""
    counted = settings.machine.is_counted
    spread, noise = spread_of(known, counted=counted), noise_of(known.earlier, counted=counted)
    taken = effects_text(effects_of(max(2, commits), spread.value, noise, counted=counted))
    return f"{math.expm1(spread.value):.1%} ({spread.source}); a change {taken}"


def checked(repository: Repository, asked: BisectRequest) -> tuple[Range, Settings, int]:
    """Return the range, the settings with their input files bundled, and the number of commits in the range.

    The bundled files decide which earlier trials were measured alike. Raises :class:`UserError` if the repository lacks
    the range, a feature that the stack needs, or a clone for the workload; and if git bisect does not allow the terms.
    """
    check_terms(asked.settings.bisect.terms)
    old, new = repository.resolve(asked.old), repository.resolve(asked.new)
    for end in (old, new):
        repository.check_kernel_tree(end)
    wanted = Range(old, new, asked.settings.bisect.first_parent, repository.from_top(asked.paths))
    commits = check_range(repository, wanted)
    storage = asked.settings.storage
    check_tree(repository, (old, new), storage.stack, storage.layers, asked.settings.further_features)
    check_attributes(repository)
    check_suspects(repository, asked.settings.bisect.suspects, new)
    return wanted, bundled(asked.settings, repository), commits


def range_remarks(repository: Repository, wanted: Range, settings: Settings) -> Iterator[str]:
    """Remarks on the range that a person may not expect; suspected paths are checked only if they were set."""
    suspects = settings.bisect.suspects
    usual = options.usual(settings)["bisect.suspect"]
    return remarks(repository, wanted, () if list(suspects) == usual else suspects)


def searched(run: RunDirectory, store: Store) -> tuple[RunHeader, Path]:
    """Return the header and the repository of a run that is a bisection; raises :class:`UserError` for other runs."""
    asked = store.bisection()
    if store.by_others or asked.repository is None:
        raise UserError(f"{run.path} was imported; nothing can be measured in it", "bisector table")
    if store.plan is not None:
        raise UserError(f"{run.path} holds a comparison, and no range to search", "bisector table; bisector resume")
    if not asked.has_ends:
        raise UserError(
            f"{run.path} holds the trials of single commits, and no range to search",
            "bisector start OLD NEW; or one more commit: bisector test COMMIT --run-dir DIRECTORY",
        )
    return asked, asked.repository


def measure_baselines(run: RunDirectory, store: Store, tell: Listener, equip: MeasurerFactory = here) -> None:
    """Measure the baselines that are not on record yet, in a run that has ended or will go on; its state is unchanged.

    The new end is built if its kernel is not kept. Raises :class:`UserError` for an import and for files that do not
    fit on the SSD, :class:`InfraError` if a disk cannot be measured.
    """
    _, place = searched(run, store)
    settings = store.settings
    checked = replace(settings, bisect=replace(settings.bisect, baselines=True))
    if (problem := checks.first_size_problem(checked)) is not None:
        raise UserError(f"{', '.join(problem.keys)}: {problem.sentence}", problem.hint)
    if not missing_baselines(settings, store.baselines()):
        return
    clean_up(run, store)
    of_a_search = (run.path / BUILD).exists()
    repository = Repository.open(place, run_marker=run.path)
    with _process(settings, store, repository, tell, equip=equip, aim=Aim.BASELINES) as bisection:
        bisection.run()
    if not of_a_search:
        remove_build(run.path, place)


def skip(store: Store, expressions: Iterable[str]) -> None:
    """Record that commits of the range must not be measured from now on; either all are recorded or none.

    Raises :class:`UserError` for a revision that is unknown, an end, or outside the range.
    """
    asked = store.bisection()
    if asked.repository is None:
        raise RuntimeError("a bisection without a repository")
    repository = Repository.open(asked.repository)
    wanted = _range(repository, asked)
    store.add(*(Skip(sha) for one in expressions for sha in to_skip(repository, wanted, one)))


def _range(repository: Repository, asked: RunHeader) -> Range:
    old, new = repository.resolve(asked.old_sha), repository.resolve(asked.new_sha)
    return Range(old, new, asked.first_parent, asked.paths)


@contextmanager
def _process(
    settings: Settings, store: Store, repository: Repository, tell: Listener, *, equip: MeasurerFactory, aim: Aim
) -> Iterator[Bisection]:
    asked = store.bisection()
    run_dir, wanted = store.path.parent, _range(repository, asked)
    with (
        equip(settings, run_dir, repository, tell) as equipment,
        Bisect(repository, run_dir, wanted, settings.bisect.terms or SideWords.usual(None)) as bisect,
    ):
        git = GitSide(repository, wanted, bisect, equipment.kernels)
        scope = scope_of(git, store, settings, asked.skips, equipment.crew, aim=aim)
        yield Bisection(scope, store, git, equipment, tell)


def go_on(
    run: RunDirectory, store: Store, tell: Listener, equip: MeasurerFactory = here, aim: Aim = Aim.ANSWER
) -> Done:
    """Clean up after a killed process of this run, continue the run to an outcome, and record the outcome.

    The caller tells it, then calls :func:`let_go`. Raises the error that ended the run otherwise; a
    :class:`KeyboardInterrupt` becomes :class:`Interrupted`.
    """
    asked, place = searched(run, store)
    clean_up(run, store)
    repository = Repository.open(place, run_marker=run.path)
    wanted = _range(repository, asked)  # raises before the state changes: an answer outlives its git history
    store.set_state(State.RUNNING)
    with ends_recorded(run, store):
        hold(repository, run.path, {"old": wanted.old.sha, "new": wanted.new.sha})
        settings = store.settings
        with _process(settings, store, repository, tell, equip=equip, aim=aim) as bisection:
            outcome = bisection.run()
    store.set_state(outcome.state, outcome.message, out_of_time=outcome.out_of_time)
    # If the answer is to be confirmed by another clock, the draft is written after that, since it tells the result.
    confirms = outcome.state is State.FOUND and settings.bisect.confirm_by is not ConfirmBy.NONE
    if not (outcome.out_of_time or outcome.state is State.STOPPED or confirms):
        outbox.leave_draft(run, store, tell)
    return outcome


def let_go(run: RunDirectory, store: Store, tell: Listener) -> None:
    """Remove what a search does not need after :func:`go_on`, once its outcome is told.

    If it is out of time, everything stays for the process that goes on, as after an interruption.
    """
    last = store.state()
    if last is not None and not last.out_of_time:
        life.let_go(run, store, tell, ended=last.state is not State.STOPPED and not goes_on(store))


def goes_on(store: Store) -> bool:
    """Whether resuming a narrowed run can narrow it further; git references keep its ends until then.

    It can if the run was out of time, or if it gave up a commit without a sound trial and no person skips that commit.
    """
    asked, last = store.bisection(), store.state()
    if last is None or last.state is not State.NARROWED:
        return False
    if last.out_of_time:
        return True
    judging = Judging(store.settings, store.trials(), asked.old_sha, asked.new_sha)
    return not set(judging.given_up) <= set(asked.skips)


# A second step in the readings of a run: where to bisect for it


def next_step(run: RunDirectory, store: Store) -> BisectRequest:
    """Return a request to bisect the widest other step in a run's readings, between the measured commits around it.

    It inherits all trials. Raises :class:`UserError` if there is only one step, or if the run is still running, was
    imported, or has no ends.
    """
    asked = store.bisection()
    if state_of(run, store)[0] is State.RUNNING:
        raise UserError(f"{run.path} is still running", "wait for it, or interrupt it: bisector status")
    if asked.repository is None:
        raise UserError(f"{run.path} was imported, and has no repository to build from", "bisector start OLD NEW")
    if not asked.has_ends:
        raise UserError(f"{run.path} has no ends between which there could be a step", "bisector start OLD NEW")
    # An end with a commit reverted or picked belongs to the ends of this run; so does the reason to doubt a fault.
    trials = tuple((n, trial) for n, trial in store.trials() if trial.subject.is_commit and not trial.doubted)
    judging = Judging(store.settings, trials, asked.old_sha, asked.new_sha)
    lines, objective = judging.other_lines, judging.objective
    if not lines:
        shown = ", ".join(judging.objective.range_text(level.worst, level.best) for level in judging.levels)
        where = f"they lie at {shown}" if shown else "nothing was measured soundly"
        raise UserError(f"the readings of {run.path} have no other step: {where}", "bisector table shows all of them")
    settings = judging.settings
    threshold = objective.definition.unit.typed(objective.value_of(lines[0]))
    settings = replace(settings, bisect=replace(settings.bisect, threshold=threshold))
    repository = Repository.open(asked.repository)
    old, new = _ends(repository, asked, replace(judging, settings=settings))
    own = (*judging.trials, *store.baselines())
    directories = {run.path, *(Path(one.run_dir) for one in store.taken().values())}
    measured_in = frozenset(directory.resolve() for directory in directories)
    inherited = Inherited(run.path, own, store.compilers(), measured_in)
    return BisectRequest(asked.repository, old, new, settings, asked.paths, asked.skips, inherited)


def _ends(repository: Repository, asked: RunHeader, judging: Judging) -> tuple[str, str]:
    """The hashes of the measured commits between which the other step is, by their verdicts with its threshold.

    The new one has the fewest commits between it and all of the old side; the old one is its nearest ancestor there.
    The ends of the run are the fallback: the threshold lies between their figures.
    """
    shas = dict.fromkeys(trial.commit.sha for _, trial in judging.trials)
    judged = {sha: judgement.verdict for sha in shas if (judgement := judging.judge(sha)) is not None}
    olds = [sha for sha, verdict in judged.items() if verdict is Verdict.OLD]
    news = [sha for sha, verdict in judged.items() if verdict is Verdict.NEW]
    whole = _range(repository, asked)

    def between(new: str, *before: str) -> int:
        return len(repository.ask("rev-list", *whole.limits(new, before)).lines)

    sizes = {new: between(new, *olds) for new in news}
    new = min((one for one in news if sizes[one]), key=sizes.__getitem__, default=asked.new_sha)
    above = [old for old in olds if repository.is_ancestor(old, new)]
    old = min(above, key=lambda one: between(new, one), default=asked.old_sha)
    return old, new
