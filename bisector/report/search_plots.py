"""The plot of a search: the value of each commit in the order of history, with levels, the threshold and the step.

Values, not pictures: a test compares them, :mod:`bisector.report.drawing` draws them.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bisector.analysis.threshold import levels
from bisector.core.objective import SUM, Objective
from bisector.core.printable import clean
from bisector.core.subject import Kind
from bisector.core.verdict import Direction, Verdict
from bisector.report.curves import Band, bands
from bisector.report.document import PlacedTrial, Report
from bisector.status.view import LevelView

_SIDES = (Verdict.OLD, Verdict.NEW)
# Without a repository the dates are all there is (bisector.report.reporting).
_ORDERS = {True: "in the order of history", False: "by date"}
_CHANGED = {Kind.REVERTED: "NEW, {} reverted", Kind.PICKED: "OLD, {} added"}


class How(StrEnum):
    """How a commit came to its figure."""

    WHOLE = "measured"
    EARLY = "stopped early"
    SAME = "same kernel as another commit"
    NONE = "not measured"


@dataclass(frozen=True, slots=True)
class CommitMark:
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
    marks: tuple[CommitMark, ...]
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


def _name(row: PlacedTrial) -> str:
    trial = row.shown.trial
    if trial.subject.changed_by is not None:
        return _CHANGED[trial.subject.kind].format(clean(trial.subject.changed_by[:12]))
    place = "" if row.place is None else f"{row.place:,}: "
    return f"{place}{clean(trial.commit.short)}"


def _figures(rows: Sequence[PlacedTrial]) -> dict[str, float]:
    return {row.shown.trial.commit.sha: row.shown.value for row in rows if row.shown.value is not None}


def _whole(rows: Sequence[PlacedTrial], objective: Objective) -> dict[str, list[float]]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        value = row.shown.value
        if value is not None and row.shown.verdict in _SIDES and row.shown.trial.stopped_early is None:
            found[row.shown.trial.commit.sha].append(objective.score(value))
    return dict(found)


def _mark(row: PlacedTrial, shas: Sequence[str], figures: dict[str, float]) -> CommitMark:
    trial = row.shown.trial
    how, value = How.NONE, row.shown.value
    if trial.same_kernel_as is not None:
        value = figures.get(trial.same_kernel_as)
        how = How.SAME if value is not None else How.NONE
    elif value is not None:
        how = How.WHOLE if trial.stopped_early is None else How.EARLY
    return CommitMark(shas.index(trial.commit.sha), row.shown.n, row.shown.verdict, how, value)


def _step(report: Report, shas: Sequence[str]) -> int | None:
    """That of the answer, if there is an old side before it."""
    first = report.bisection.first_fixed
    if first is None or first.sha not in shas:
        return None
    new = shas.index(first.sha)
    old_before = any(verdict is Verdict.OLD and place < new for place, verdict in _sides(report.rows, shas))
    return new if old_before else None


def _sides(rows: Sequence[PlacedTrial], shas: Sequence[str]) -> Iterator[tuple[int, Verdict]]:
    for row in rows:
        yield shas.index(row.shown.trial.commit.sha), row.shown.verdict
