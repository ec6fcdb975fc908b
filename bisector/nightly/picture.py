"""What the history of nights looks like: a panel for each job, of its trend."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby, pairwise

from bisector.core.printable import clean
from bisector.core.verdict import State
from bisector.nightly.history import Point, Trend
from bisector.nightly.replay import Class, JobNight
from bisector.report.nights import Change, Mark, Nights, Panel, Seen, Stretch
from bisector.store.nights import Concluded, Measurement, Night

_SEEN = {
    Class.FIRST: Seen.FIRST,
    Class.SAME: Seen.SAME,
    Class.FASTER: Seen.FASTER,
    Class.SLOWER: Seen.SLOWER,
}
_TIP = "tip"  # the step of a trouble that says that the tip cannot be judged
_WITHOUT_COMMIT = {State.NARROWED: "narrowed to several", State.FAILED: "no answer"}
_HALF_A_NIGHT = timedelta(hours=12)


def nights_plot(shown: Sequence[Trend], nights: Sequence[Night]) -> Nights:
    """All of it; there is a job at least, and so a night."""
    began = {night.n: datetime.fromisoformat(night.started_at) for night in nights}
    around = _around(sorted({began[point.night.night] for trend in shown for point in trend.points}))
    panels = tuple(_panel(trend, began, around) for trend in shown)
    labels = dict.fromkeys(panel.objective.label for panel in panels)
    return Nights(f"{' and '.join(labels)}, night by night", panels)


def _around(times: Sequence[datetime]) -> timedelta:
    """How far what holds in a night reaches to both sides of it; nights may follow each other by hand."""
    return min([_HALF_A_NIGHT, *((later - earlier) / 2 for earlier, later in pairwise(times))])


def _panel(trend: Trend, began: Mapping[int, datetime], around: timedelta) -> Panel:
    tips = [point.night.tip for point in trend.points if point.night.tip]
    where = f": {tips[-1].rev} of {tips[-1].repository}" if tips else ""
    objective = trend.objective
    measured = [(began[one.night], one, one.measured) for one in _nights(trend) if one.measured and _value(one, trend)]
    alike = [list(group) for _, group in groupby(measured, key=lambda one: (one[2].conditions, one[2].host))]
    return Panel(
        title=clean(f"{trend.job}{where}"),
        objective=objective,
        marks=tuple(_marks(trend, began)),
        lines=tuple(tuple((at, _value(night, trend)) for at, night, _ in group) for group in alike),
        thresholds=_stretches(((at, _threshold(one)) for at, _, one in measured), around),
        usual=_stretches(((at, _usual(night, one)) for at, night, one in measured), around),
        levels=tuple(level for group in alike for level in _levels([at for at, _, _ in group], trend, began, around)),
        changes=tuple(_changes(trend, began)),
        breaks=tuple(group[0][0] - around for group in alike[1:]),
    )


def _nights(trend: Trend) -> Iterator[JobNight]:
    return (point.night for point in trend.points)


def _value(night: JobNight, trend: Trend) -> float:
    """The value of a night that stands on the panel's axis; 0 is none."""
    measured = night.measured
    return measured.value or 0.0 if measured and measured.objective == trend.objective else 0.0


def _marks(trend: Trend, began: Mapping[int, datetime]) -> Iterator[Mark]:
    last: float | None = None
    for night in _nights(trend):
        at, value = began[night.night], _value(night, trend)
        if night.klass in _SEEN:
            yield Mark(at, _SEEN[night.klass], value or None)
        if night.trouble is not None:
            yield Mark(at, Seen.UNTESTABLE if night.trouble.step == _TIP else Seen.FAILED, None)
        elif not night.done:
            yield Mark(at, Seen.OPEN, None)
        elif night.measured is None and last is not None:
            yield Mark(at, Seen.AGAIN, last)
        last = value or last


def _threshold(measured: Measurement) -> tuple[float, float] | None:
    line = measured.threshold
    return None if line is None else (line, line)


def _usual(night: JobNight, measured: Measurement) -> tuple[float, float] | None:
    """Where the class is "same" (:func:`bisector.nightly.replay.classify`); a threshold is drawn as itself."""
    if night.reference is None or measured.threshold is not None:
        return None
    return night.reference.value / measured.min_ratio, night.reference.value * measured.min_ratio


def _stretches(limits: Iterable[tuple[datetime, tuple[float, float] | None]], around: timedelta) -> tuple[Stretch, ...]:
    """Equal limits of nights in a row are one."""
    found = []
    for limit, group in groupby(limits, key=lambda one: one[1]):
        if limit is not None:
            times = [at for at, _ in group]
            found.append(Stretch(times[0] - around, times[-1] + around, *limit))
    return tuple(found)


def _levels(
    times: Sequence[datetime], trend: Trend, began: Mapping[int, datetime], around: timedelta
) -> Iterator[Stretch]:
    """The medians before and after each change of level among figures that can be compared."""
    found = [(began[point.night.night], point.change) for point in trend.points if point.change]
    found = [(at, change) for at, change in found if at in times]
    if not found:
        return
    edges = [*(at - around for at in (times[0], *(at for at, _ in found))), times[-1] + around]
    medians = [found[0][1].before, *(change.after for _, change in found)]
    for (start, end), median in zip(pairwise(edges), medians, strict=True):
        yield Stretch(start, end, median, median)


def _changes(trend: Trend, began: Mapping[int, datetime]) -> Iterator[Change]:
    """What was bisected stands at the night that saw it first, whenever it was answered."""
    answers = {one.run_dir: one for night in _nights(trend) for one in night.concluded}
    for point in trend.points:
        begun = point.night.begun
        bisection = "" if begun is None else _bisection(answers.get(begun.run_dir))
        level = _level(point)
        if bisection or level:
            yield Change(began[point.night.night], bisection, level)


def _bisection(answer: Concluded | None) -> str:
    if answer is None:
        return "bisection not ended"
    return _WITHOUT_COMMIT.get(answer.state, f"from {answer.first_sha[:12]} on")


def _level(point: Point) -> str:
    change, measured = point.change, point.night.measured
    if change is None or measured is None:
        return ""
    return f"{measured.objective.change_text(change.before, change.after)}, p = {change.p:.3f}"
