"""What the two plots of a search show: the value of each commit in the order of history, and how the range narrowed.

The first has levels, the line between the sides and the step. The second is told from the record alone: after each
trial, where in the range the change was believed to be.
Values, not pictures: a test compares them, :mod:`bisector.report.drawing` draws them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from bisector.analysis.levels import levels
from bisector.analysis.verdicts import Judging
from bisector.config import options
from bisector.core.errors import BisectorError
from bisector.core.objective import SUM, Objective
from bisector.core.printable import clean
from bisector.core.subject import Kind
from bisector.core.trial import Trial
from bisector.core.verdict import Direction, Verdict
from bisector.git.repository import Repository
from bisector.report.curves import Band, bands
from bisector.report.document import Report, Row, span
from bisector.search.graph import Floats
from bisector.search.posterior import Posterior
from bisector.status import from_record
from bisector.status.conclusion import Standing
from bisector.status.evidence import Case
from bisector.status.view import LevelView
from bisector.store.store import Store

_SIDES = (Verdict.OLD, Verdict.NEW)
# Without a repository the dates are all there is (bisector.report.reporting).
_ORDERS = {True: "in the order of history", False: "by date"}
_CHANGED = {Kind.REVERTED: "NEW, {} reverted", Kind.PICKED: "OLD, {} added"}
# More columns cannot be told apart.
_MOST_PARTS = 200


class How(StrEnum):
    """How a commit came to its figure."""

    WHOLE = "measured"
    EARLY = "stopped early"
    SAME = "same kernel as another commit"
    NONE = "not measured"


@dataclass(frozen=True, slots=True)
class Mark:
    """A trial: ``place`` is that of its commit among those drawn, ``value`` that of its last run by the objective."""

    place: int
    n: int
    verdict: Verdict
    how: How
    value: float | None


@dataclass(frozen=True, slots=True)
class Commits:
    """Marks over ``names`` (one for each place), with the words for verdicts.

    ``levels`` are those of whole runs, ``bands`` what the disks do without a cache. ``step`` is the place of the
    answer, which the step is directly before; None while there is no answer.
    """

    title: str
    axis: str
    names: tuple[str, ...]
    marks: tuple[Mark, ...]
    objective: Objective
    levels: tuple[LevelView, ...]
    threshold: float | None
    step: int | None
    words: tuple[tuple[Verdict, str], ...]
    bands: tuple[Band, ...] = ()
    direction: Direction | None = None


def commits(report: Report) -> Commits | None:
    """All trials of a report, in its rows' order, changed ends last; None before there is a figure."""
    ordered = sorted(report.rows, key=lambda row: not row.shown.trial.subject.is_commit)
    shas = list(dict.fromkeys(row.shown.trial.commit.sha for row in ordered))
    figures = _figures(report.rows)
    if not figures:
        return None
    terms, objective = report.bisection.terms, report.bisection.objective
    placed = all(row.place is not None for row in ordered if row.shown.trial.subject.is_commit)
    names = {row.shown.trial.commit.sha: _name(row) for row in report.rows}
    return Commits(
        title=f"{report.asked.span}, commits {_ORDERS[placed]}",
        axis="commit (place counted from the old end: hash)" if placed else "commit",
        names=tuple(names[sha] for sha in shas),
        marks=tuple(_mark(row, shas, figures) for row in report.rows),
        objective=objective,
        levels=tuple(LevelView.of(level, objective) for level in levels(_whole(report.rows, objective))),
        threshold=report.bisection.threshold,
        step=_step(report, shas),
        words=tuple((verdict, terms.word(verdict)) for verdict in Verdict),
        bands=tuple(bands(report.bisection.baselines, objective, together=objective.over == SUM)),
        direction=report.bisection.direction,
    )


def _name(row: Row) -> str:
    trial = row.shown.trial
    if trial.subject.changed_by is not None:
        return _CHANGED[trial.subject.kind].format(clean(trial.subject.changed_by[:12]))
    place = "" if row.place is None else f"{row.place:,}: "
    return f"{place}{clean(trial.commit.short)}"


def _figures(rows: Sequence[Row]) -> dict[str, float]:
    """The last value of each commit that has one."""
    return {row.shown.trial.commit.sha: row.shown.value for row in rows if row.shown.value is not None}


def _whole(rows: Sequence[Row], objective: Objective) -> dict[str, list[float]]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        value = row.shown.value
        if value is not None and row.shown.verdict in _SIDES and row.shown.trial.stopped_early is None:
            found[row.shown.trial.commit.sha].append(objective.score(value))
    return dict(found)


def _mark(row: Row, shas: Sequence[str], figures: dict[str, float]) -> Mark:
    trial = row.shown.trial
    how, value = How.NONE, row.shown.value
    if trial.same_kernel_as is not None:
        value = figures.get(trial.same_kernel_as)
        how = How.SAME if value is not None else How.NONE
    elif value is not None:
        how = How.WHOLE if trial.stopped_early is None else How.EARLY
    return Mark(shas.index(trial.commit.sha), row.shown.n, row.shown.verdict, how, value)


def _step(report: Report, shas: Sequence[str]) -> int | None:
    """That of the answer, if there is an old side before it."""
    first = report.bisection.first_fixed
    if first is None or first.sha not in shas:
        return None
    new = shas.index(first.sha)
    old_before = any(verdict is Verdict.OLD and place < new for place, verdict in _sides(report.rows, shas))
    return new if old_before else None


def _sides(rows: Sequence[Row], shas: Sequence[str]) -> Iterator[tuple[int, Verdict]]:
    for row in rows:
        yield shas.index(row.shown.trial.commit.sha), row.shown.verdict


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
    direction: Direction | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """The posterior after a trial."""

    n: int
    tested: int | None
    verdict: Verdict
    posterior: Posterior


def narrowing(
    title: str,
    beliefs: Iterable[Belief],
    target: float,
    words: tuple[tuple[Verdict, str], ...],
    direction: Direction | None = None,
) -> Narrowing | None:
    """The beliefs in the order of measuring, of which one at a time is held; None when there is none."""
    edges: tuple[int, ...] = (0,)
    found = list[After]()
    for one in beliefs:
        edges = _edges(len(one.posterior.p))
        found.append(_after(one, edges, target))
    return Narrowing(title, edges[-1], edges, target, tuple(found), words, direction) if found else None


def _edges(length: int) -> tuple[int, ...]:
    parts = min(length, _MOST_PARTS)
    return tuple(length * part // parts for part in range(parts + 1))


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
            return narrowing(title, _beliefs(case), case.search.rules.target, words, judging.direction)
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
