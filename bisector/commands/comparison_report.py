"""``report`` and ``plot`` of a run that compares."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bisector.commands.output import note, save, write
from bisector.core import json_document
from bisector.core.errors import UserError
from bisector.core.metric import is_short, named, short
from bisector.report import comparison_illustrations, comparison_record
from bisector.report.as_text import markdown, plain
from bisector.report.comparison import ComparisonReport, page
from bisector.report.comparison_illustrations import Drawn
from bisector.report.comparison_plots import rows_of
from bisector.report.drawing import Picture, draw
from bisector.status.blocks import Blocks
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store

_RENDERERS: Mapping[str, Callable[[ComparisonReport], str]] = {
    "text": lambda report: plain(page(report)),
    "markdown": lambda report: markdown(page(report)),
    "json": json_document.text,
}


def text(run: RunDirectory, store: Store, blocks: Blocks, form: str) -> str:
    """The report in one of the formats of ``bisector report``; a letter is :mod:`bisector.mail.outbox`'s."""
    report = comparison_record.report(run, store, blocks)
    if form == "html":
        return comparison_illustrations.html(report, _drawn(run, blocks, report))
    return _RENDERERS[form](report)


@dataclass(frozen=True, slots=True)
class Asked:
    """Which plots: their kinds, all of them where none is named; and of which metric, None of those that decide."""

    kinds: tuple[str, ...]
    metric: str | None
    output: Path
    picture: Picture | None


def plot(run: RunDirectory, store: Store, blocks: Blocks, asked: Asked) -> None:
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
    drawn, complaints = comparison_illustrations.plots(report, blocks, run.path, metric)
    for complaint in complaints:
        note(f"bisector: not drawn: {complaint}")
    return drawn
