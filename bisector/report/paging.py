"""From the record and the files beside it to a page: the report, what is behind each of its rows, and the plots."""

import os
from collections.abc import Iterator
from pathlib import Path

from bisector.core.commit import Commit
from bisector.core.trial import Trial
from bisector.host.inside import inside
from bisector.kernel import kconfig
from bisector.report import as_html
from bisector.report.as_html import Detail
from bisector.report.drawing import Picture, draw
from bisector.report.plotting import Kind, Source, curves_of, plotted
from bisector.status.configurations import ARTIFACT
from bisector.status.view import OptionChange

_ALT = "Plot: {}. The table has its figures."
_CONSOLE = "console.log"
_CONSOLE_LINES = 40
_CONSOLE_BYTES = 16_384  # they hold forty lines of a console


def page(source: Source) -> str:
    """The report as HTML."""
    plots = [plotted(kind, source).plot for kind in Kind]
    pictures = [as_html.Shown(draw(plot, Picture.SVG), _ALT.format(plot.title)) for plot in plots if plot is not None]
    return as_html.render(source.report, details(source), pictures)


def details(source: Source) -> tuple[Detail, ...]:
    """One for each row of the report, in their order; a .config is compared with the one before it in history."""
    configs = _Configs(source.run_dir)
    return tuple(_details(source, configs))


def _details(source: Source, configs: "_Configs") -> Iterator[Detail]:
    before: tuple[Commit, kconfig.Options] | None = None
    for row in source.report.rows:
        trial = row.shown.trial
        curves, complaints = curves_of([row.shown], source)
        # What is in no history has nothing before it there.
        options = configs.of(trial) if trial.is_of_commit else None
        compared = before if options is not None else None
        yield Detail(
            n=row.shown.n,
            curves=curves,
            complaints=complaints,
            fault=trial.fault.tail if trial.fault is not None else (),
            console=_console(source.run_dir, trial),
            against=compared[0] if compared else None,
            options=_changes(compared[1], options) if compared and options is not None else (),
        )
        before = (trial.commit, options) if options is not None else before


def _changes(before: kconfig.Options, after: kconfig.Options) -> tuple[OptionChange, ...]:
    if before is after:
        return ()
    return tuple(OptionChange(*one) for one in kconfig.differences(before, after))


class _Configs:
    """The effective configurations of trials; equal files, which most are, are read once and give one object."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._known: dict[str, kconfig.Options | None] = {}

    def of(self, trial: Trial) -> kconfig.Options | None:
        """None when it was not kept, or is gone."""
        for artifact in trial.artifacts:
            if artifact.name == ARTIFACT:
                if artifact.sha256 not in self._known:
                    self._known[artifact.sha256] = self._read(artifact.path)
                return self._known[artifact.sha256]
        return None

    def _read(self, path: str) -> kconfig.Options | None:
        try:
            return kconfig.parse(inside(self.run_dir, path).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return None


def _console(run_dir: Path, trial: Trial) -> tuple[str, ...]:
    """The last lines; nothing where no guest was started."""
    for artifact in trial.artifacts:
        if artifact.name == _CONSOLE:
            return _tail(run_dir, artifact.path)
    return ()


def _tail(run_dir: Path, path: str) -> tuple[str, ...]:
    try:
        with inside(run_dir, path).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _CONSOLE_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ()
    return tuple(line.rstrip() for line in text.split("\n") if line.strip())[-_CONSOLE_LINES:]
