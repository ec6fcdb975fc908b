"""How the range narrowed, from the record alone: after each trial, where in it the change was believed to be.

Values, not pictures: a test compares them, :mod:`bisector.report.drawing` draws them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from bisector.analysis.verdicts import Judging
from bisector.config import options
from bisector.core.errors import BisectorError
from bisector.core.printable import clean
from bisector.core.trial import Trial
from bisector.core.verdict import Verdict
from bisector.git.repository import Repository
from bisector.report.document import span
from bisector.search.graph import Floats
from bisector.search.posterior import Posterior
from bisector.status import from_record
from bisector.status.conclusion import Standing
from bisector.status.evidence import Case
from bisector.store.store import Store

# More columns cannot be told apart.
_MOST_PARTS = 200


@dataclass(frozen=True, slots=True)
class After:
    """What all readings up to trial ``n`` say.

    ``tested`` is the number of its commit in the range, None where it has none there; ``mass`` is the probability in
    each part of the range, ``likely`` how many commits have the target's probability together.
    """

    n: int
    tested: int | None
    verdict: Verdict
    mass: tuple[float, ...]
    likely: int
    best: int
    probability: float


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The trials since both ends were measured, over a range of ``commits``, oldest first, cut at ``edges``."""

    title: str
    commits: int
    edges: tuple[int, ...]
    target: float
    steps: tuple[After, ...]
    words: tuple[tuple[Verdict, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """The posterior after a trial."""

    n: int
    tested: int | None
    verdict: Verdict
    posterior: Posterior


def narrowing(
    title: str, beliefs: Iterable[Belief], target: float, words: tuple[tuple[Verdict, str], ...]
) -> Narrowing | None:
    """The beliefs in the order of measuring; None when there is none."""
    beliefs = tuple(beliefs)
    if not beliefs:
        return None
    commits = len(beliefs[0].posterior.p)
    parts = min(commits, _MOST_PARTS)
    edges = tuple(commits * part // parts for part in range(parts + 1))
    return Narrowing(title, commits, edges, target, tuple(_after(one, edges, target) for one in beliefs), words)


def _after(belief: Belief, edges: tuple[int, ...], target: float) -> After:
    p: Floats = belief.posterior.p
    mass = np.add.reduceat(p, edges[:-1])
    best = belief.posterior.best
    return After(
        n=belief.n,
        tested=belief.tested,
        verdict=belief.verdict,
        mass=tuple(np.round(mass, 9).tolist()),
        likely=len(belief.posterior.smallest_set(target)),
        best=best,
        probability=round(float(p[best]), 9),
    )


def narrowed(store: Store) -> Narrowing | None:
    """None where there was no such search: by git, of an imported run, before both ends, without the repository."""
    asked = store.bisection()
    settings = options.from_json(asked.settings)
    judging = Judging(settings, store.trials(), asked.old_sha, asked.new_sha)
    if store.by_others or asked.repository is None or not from_record.believes(asked, judging):
        return None
    terms = judging.terms
    title = f"{span(asked.old_rev, asked.new_rev)}: where the first {clean(terms.new)} commit is believed to be"
    words = tuple((verdict, clean(terms.word(verdict))) for verdict in Verdict)
    try:
        with Repository.open(asked.repository) as repository:
            case = from_record.case(repository, asked, judging, store)
            return narrowing(title, _beliefs(case), case.search.rules.target, words)
    except BisectorError:
        return None


def _beliefs(whole: Case) -> Iterator[Belief]:
    """With the trials up to each one, and all that is known beside them."""
    judging = whole.judging
    for count, (n, trial) in enumerate(judging.trials, 1):
        until = replace(judging, trials=judging.trials[:count])
        if until.sound(judging.old) and until.sound(judging.new):
            *_, (_, _, judged) = until.judged_trials()
            yield Belief(n, _number(whole, trial), judged.verdict, Standing(replace(whole, judging=until)).belief)


def _number(case: Case, trial: Trial) -> int | None:
    return case.ground.numbers.get(trial.subject.changed_by or trial.commit.sha)
