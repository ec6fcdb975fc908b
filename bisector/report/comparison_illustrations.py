"""The illustrations of a comparison: which plots it has, and its report as a page with them.

Made from the report and the files beside the record.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bisector.core.objective import Objective
from bisector.core.printable import clean
from bisector.report import as_html, curves
from bisector.report.as_html import Shown
from bisector.report.comparison import ComparisonReport, page
from bisector.report.comparison_plots import forest, run_order
from bisector.report.curves import Curves, Measured, traced
from bisector.report.drawing import Plot, following
from bisector.status.blocks import Blocks, names
from bisector.workload.fio.logs import logged_metric

RATIOS, RUNS, CURVES = KINDS = ("ratios", "runs", "curves")
_ALT = "Plot: {}. The tables have its figures."


@dataclass(frozen=True, slots=True)
class Drawn:
    """A plot with the name of its file, and what it shows for those who do not see it."""

    name: str
    plot: Plot


def plots(
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


def _curves(blocks: Blocks, setup: int, label: str, run_dir: Path, complaints: list[str]) -> Curves | None:
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
    kernels = [Measured(clean(name), one.runs) for name, one in found.items()]
    logged = Objective(logged_metric(io), objective.over)
    title = f"{logged.definition.unit} over time on {clean(label)}, block {block.n}"
    return curves.curves(title, kernels, logged)


def html(report: ComparisonReport, drawn: Iterable[Drawn]) -> str:
    """The report as one file, with its plots."""
    pictures = [Shown(following(one.plot), _ALT.format(one.plot.title)) for one in drawn]
    return as_html.render_page(page(report), pictures)
