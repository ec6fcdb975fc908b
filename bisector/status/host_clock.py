"""The answer of a run in counted time, measured once more by the host's clock: the size of the change by either.

Counted time has no caches, no branch prediction and no second CPU, so a change that has some size in instructions may
have another size, or none, by the host's clock. That is measured as a comparison of the answer with its parent
(:mod:`bisector.compare`), whose record lies below the run's. It stands beside the answer and never changes it.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from bisector.analysis.comparison import Scale, factor_between
from bisector.analysis.verdicts import Judging
from bisector.core.errors import BisectorError
from bisector.core.objective import Factor
from bisector.core.subject import Commit
from bisector.core.verdict import State, Verdict
from bisector.git.repository import Repository
from bisector.status.blocks import Blocks, result_of
from bisector.status.view import HostClock
from bisector.store.rundir import RunDirectory, state_of
from bisector.store.store import Store

CONFIRMED = "confirmed"  # the directory of the comparison, in that of the run


def host_clock(run_dir: Path, repository: Path | None, judging: Judging, first: Commit) -> HostClock:
    """Return the change at the answer by both clocks, from the records of the run and of the comparison below it."""
    made = _measured(HostClock(first, judging.objective.label, str(run_dir / CONFIRMED)))
    parent = made.parent
    if parent is None and repository is not None:
        with suppress(BisectorError), Repository.open(repository) as opened:
            parent = next(iter(opened.commits(opened.parents(first.sha, first_only=True))), None)
    if parent is None:
        return made
    # The readings of both kernels; if one has none of its own, all readings of its side.
    sides = []
    for commit, side in ((parent, Verdict.OLD), (first, Verdict.NEW)):
        of_side = [sha for sha, verdict in judging.verdicts() if verdict is side]
        scores = judging.scores_of((commit.sha,)) or judging.scores_of(of_side)
        sides.append([judging.objective.value_of(score) for score in scores])
    return replace(made, parent=parent, counted=factor_between(*sides))


def _measured(clock: HostClock) -> HostClock:
    """Add what the comparison has on record, if it has begun."""
    try:
        if not RunDirectory.is_at(Path(clock.run_dir)):
            return clock
        run = RunDirectory.open(Path(clock.run_dir))
        with Store.open(run.database, readonly=True) as store:
            if (plan := store.plan) is None:
                return clock
            state, message = state_of(run, store)
            known = replace(clock, parent=plan.arms[0].commit, state=state, message=message)
            ((change, *_), *_) = (row.changes for row in result_of(Blocks.of(plan, store)).rows)
    except BisectorError as error:
        return replace(clock, state=State.STOPPED, message=str(error))
    found = change.effect
    if found is None or found.scale is not Scale.RATIO:
        return known
    known = replace(known, measured=Factor.of_logs(found.mean, found.half_width), pairs=found.blocks)
    said = change.decision
    return known if said is None else replace(known, outcome=said.outcome, fragile=said.fragile)
