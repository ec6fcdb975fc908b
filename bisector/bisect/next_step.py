"""Where to look for the step that a run did not look for, with the readings it has already."""

from dataclasses import replace
from pathlib import Path

from bisector.analysis.verdicts import Judging
from bisector.bisect.session import BisectRequest, Inherited
from bisector.core.errors import UserError
from bisector.core.verdict import State, Verdict
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.store.facts import RunHeader
from bisector.store.rundir import RunDirectory, state_of
from bisector.store.store import Store

_RUNNING = "wait for it, or interrupt it: bisector status"


def next_step(run: RunDirectory, store: Store) -> BisectRequest:
    """What to bisect next: the narrowest range of measured commits around the widest other gap, and all trials.

    Raises :class:`UserError` when the readings have one step, or it cannot be looked for.
    """
    asked = store.bisection()
    if state_of(run, store)[0] is State.RUNNING:
        raise UserError(f"{run.path} is still running", _RUNNING)
    if asked.repository is None:
        raise UserError(f"{run.path} was imported, and has no repository to build from", "bisector start OLD NEW")
    if not asked.has_ends:
        raise UserError(f"{run.path} has no ends between which there could be a step", "bisector start OLD NEW")
    # An end without a commit, or with it, is that of this run alone; so is what makes a fault doubted.
    trials = tuple((n, trial) for n, trial in store.trials() if trial.subject.is_commit and not trial.doubted)
    judging = Judging(store.settings, trials, asked.old_sha, asked.new_sha)
    lines, objective = judging.other_lines, judging.objective
    if not lines:
        raise UserError(
            f"the readings of {run.path} have no other step: {_where(judging)}", "bisector table shows all of them"
        )
    settings = judging.settings
    threshold = objective.definition.unit.typed(objective.value_of(lines[0]))
    settings = replace(settings, bisect=replace(settings.bisect, threshold=threshold))
    with Repository.open(asked.repository) as repository:
        old, new = _ends(repository, asked, replace(judging, settings=settings))
    own = (*judging.trials, *store.baselines())
    directories = {run.path, *(Path(one.run_dir) for one in store.taken().values())}
    measured_in = frozenset(directory.resolve() for directory in directories)
    inherited = Inherited(run.path, own, store.compilers(), measured_in)
    return BisectRequest(asked.repository, old, new, settings, asked.paths, asked.skips, inherited)


def _where(judging: Judging) -> str:
    shown = ", ".join(judging.objective.range_text(level.worst, level.best) for level in judging.levels)
    return f"they lie at {shown}" if shown else "nothing was measured soundly"


def _ends(repository: Repository, asked: RunHeader, judging: Judging) -> tuple[str, str]:
    """The hashes of the commits between which the other step is, of those that have a verdict by its line.

    Of the new ones that leaves the fewest commits between it and all old ones, then of its old ancestors the nearest.
    Both ends of the run will do, since the line is between their figures.
    """
    shas = dict.fromkeys(trial.commit.sha for _, trial in judging.trials)
    judged = {sha: judgement.verdict for sha in shas if (judgement := judging.judge(sha)) is not None}
    olds = [sha for sha, verdict in judged.items() if verdict is Verdict.OLD]
    news = [sha for sha, verdict in judged.items() if verdict is Verdict.NEW]
    old_end, new_end = repository.commits((asked.old_sha, asked.new_sha))
    whole = Range(old_end, new_end, asked.first_parent, asked.paths)

    def between(new: str, *before: str) -> int:
        return len(repository.ask("rev-list", *whole.limits(new, before)).lines)

    sizes = {new: between(new, *olds) for new in news}
    new = min((one for one in news if sizes[one]), key=sizes.__getitem__, default=asked.new_sha)
    above = [old for old in olds if repository.is_ancestor(old, new)]
    old = min(above, key=lambda one: between(new, one), default=asked.old_sha)
    return old, new
