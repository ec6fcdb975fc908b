"""``report`` and ``plot`` of a run that compares, and which plots it has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bisector.commands.output import note, save, write
from bisector.core import json_document
from bisector.core.errors import UserError
from bisector.core.metric import is_short, named, short
from bisector.core.objective import Objective
from bisector.core.printable import clean
from bisector.report import as_html, comparison_record, curves
from bisector.report.as_html import ShownPicture
from bisector.report.as_text import markdown, plain
from bisector.report.comparison import ComparisonReport, page
from bisector.report.comparison_plots import forest, rows_of, run_order
from bisector.report.curves import CurvePlot, TracedKernel, traced
from bisector.report.drawing import Picture, Plot, draw, following
from bisector.status.blocks import Blocks, names
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from bisector.workload.fio.logs import logged_metric

RATIOS, RUNS, CURVES = KINDS = ("ratios", "runs", "curves")
_ALT = "Plot: {}. The tables have its figures."


@dataclass(frozen=True, slots=True)
class Drawn:
    """A plot with the name of its file, and what it shows for those who do not see it."""

    name: str
    plot: Plot


def _plots(
    report: ComparisonReport, blocks: Blocks, run_dir: Path, metric: str | None = None
) -> tuple[tuple[Drawn, ...], tuple[str, ...]]:
    """Every plot there is something for, and a sentence for each log that could not be read.

    Of a ``metric`` its changes and its runs, whether it decides or not; curves are of what fio logs, whatever decides.
    """
    made = [Drawn(RATIOS, one) for one in (forest(report.result, metric),) if one is not None]
    made += [Drawn(RUNS, one) for one in (run_order(report.result, metric),) if one is not None]
    complaints: list[str] = []
    several = len(blocks.plan.setups) > 1
    for n, label in enumerate(names(blocks.plan) if metric is None else ()):
        found = _curves(blocks, n, label, run_dir, complaints)
        if found is not None:
            made.append(Drawn(f"{CURVES}-{n + 1}" if several else CURVES, found))
    return tuple(made), tuple(complaints)


def _curves(blocks: Blocks, setup: int, label: str, run_dir: Path, complaints: list[str]) -> CurvePlot | None:
    """The last block of a setup that counts: every kernel over time, as fio logged it."""
    if not (counted := blocks.counted(setup)):
        return None
    block = counted[-1]
    trials = {name: trial for name, (_, trial) in blocks.trials(block).items()}
    objective = blocks.plan.setups[setup].objective
    runs = (run for trial in trials.values() for run in trial.runs)
    io = objective.io_direction or next((run.direction for run in runs), Objective().io_direction)
    found = {name: traced(trial, run_dir, io) for name, trial in trials.items()}
    complaints += [text for one in found.values() for text in one.complaints]
    kernels = [TracedKernel(clean(name), one.runs) for name, one in found.items()]
    logged = Objective(logged_metric(io), objective.over)
    title = f"{logged.definition.unit} over time on {clean(label)}, block {block.n}"
    return curves.curves(title, kernels, logged)


_RENDERERS: Mapping[str, Callable[[ComparisonReport], str]] = {
    "text": lambda report: plain(page(report)),
    "markdown": lambda report: markdown(page(report)),
    "json": json_document.text,
}


def text(run: RunDirectory, store: Store, blocks: Blocks, form: str) -> str:
    """The report in one of the formats of ``bisector report``; a letter is :mod:`bisector.mail.outbox`'s."""
    report = comparison_record.report(run, store, blocks)
    if form == "html":
        drawn = (one.plot for one in _drawn(run, blocks, report))
        return as_html.render_page(
            page(report), [ShownPicture(following(one), _ALT.format(one.title)) for one in drawn]
        )
    return _RENDERERS[form](report)


@dataclass(frozen=True, slots=True)
class PlotRequest:
    """Which plots: their kinds, all of them where none is named; and of which metric, None of those that decide."""

    kinds: tuple[str, ...]
    metric: str | None
    output: Path
    picture: Picture | None


def plot(run: RunDirectory, store: Store, blocks: Blocks, asked: PlotRequest) -> None:
    """Draw into a directory, or one plot into a file, and print where; raises :class:`UserError`."""
    output, report = asked.output, comparison_record.report(run, store, blocks)
    drawn = _drawn(run, blocks, report, None if asked.metric is None else _measured(report, asked.metric))
    drawn = tuple(one for one in drawn if not asked.kinds or one.name.partition("-")[0] in asked.kinds)
    if not drawn:
        raise UserError("there is nothing of that to plot", "bisector status")
    ending = output.suffix.removeprefix(".").lower()
    single = ending in tuple(Picture) and not output.is_dir()
    if single and len(drawn) > 1:
        raise UserError(f"{output} is one file, and there are {len(drawn)} plots", "name a directory")
    picture = Picture(ending) if single else asked.picture or Picture.PNG
    for one in drawn:
        path = output if single else output / f"{one.name}.{picture}"
        save(path, draw(one.plot, picture))
        write(f"{path}\n")


def _measured(report: ComparisonReport, typed: str) -> str:
    """The name of a metric that some row has; raises :class:`UserError` for one that none has."""
    metric = typed if is_short(typed) else named(typed).name
    if not rows_of(report.result, metric):
        found = (row.objective.metric for row in (*report.result.rows, *report.result.exploratory))
        listed = ", ".join(dict.fromkeys(map(short, found))) or "none yet"
        raise UserError(f"no run of this comparison has {metric}", f"its metrics are: {listed}")
    return metric


def _drawn(run: RunDirectory, blocks: Blocks, report: ComparisonReport, metric: str | None = None) -> tuple[Drawn, ...]:
    drawn, complaints = _plots(report, blocks, run.path, metric)
    for complaint in complaints:
        note(f"bisector: not drawn: {complaint}")
    return drawn
