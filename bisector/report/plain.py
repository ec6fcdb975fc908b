"""Plain lines for logs, pipes and mails; and the quiet face, which tells only the end."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import Self, TextIO

from bisector.analysis.classify import judged_run
from bisector.core import units
from bisector.core.events import Event, LiveSample, Note, Planned, StageStarted, TrialJudged
from bisector.core.printable import clean
from bisector.report.course import plan_text
from bisector.report.figures import values_text
from bisector.report.stream import LastingStream, hangup_ignored
from bisector.report.summary import answer_lines, footer_lines
from bisector.report.table import report_lines
from bisector.report.text import Line, as_text
from bisector.status.view import BisectionView

PLAIN_WIDTH = 80


def _now() -> datetime:
    return datetime.now().astimezone()


class _Plain:
    """What both plain faces share: a stream that may go away, and signals that go with it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = LastingStream(stream)
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        self._exits.enter_context(hangup_ignored())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._exits.close()

    def _show(self, lines: Sequence[Line]) -> None:
        self._stream.write(as_text(lines))


class Quiet(_Plain):
    """Says nothing until the end, and then only the answer."""

    def __call__(self, event: Event, /) -> None:
        """Nothing."""

    def conclude(self, view: BisectionView) -> None:
        """Show the answer."""
        self._show(answer_lines(view, _width()))


class PlainLines(_Plain):
    """One line with the time of day for each event, flushed; the samples between are left out."""

    def __init__(self, stream: TextIO, now: Callable[[], datetime] = _now) -> None:
        super().__init__(stream)
        self._now = now

    def __call__(self, event: Event, /) -> None:
        """Write the line of one event."""
        text = event_text(event)
        if text:
            self._stream.write(f"{self._now():%H:%M:%S}  {clean(text)}\n")

    def conclude(self, view: BisectionView) -> None:
        """Show the table and what stands below it."""
        width = _width()
        self._show([(), *report_lines(view, footer_lines(view, width), width)])


def event_text(event: Event) -> str:
    """One event as one line, or nothing for what a log does not want."""
    match event:
        case Planned():
            aim = plan_text(event)
            return f"trial {event.n}: {event.commit.short} {event.commit.subject}" + (f" ({aim})" if aim else "")
        case StageStarted():
            return f"  {event.stage}" + (f": {event.detail}" if event.detail else "")
        case TrialJudged():
            return _judged_text(event)
        case Note():
            return event.text
        case LiveSample():
            return ""


def _judged_text(event: TrialJudged) -> str:
    trial = event.trial
    measured = f" at {values_text(judged_run(trial), event.objective)}" if trial.runs else ""
    took = units.duration(trial.timings.total_s)
    why = f": {event.why}" if event.why else ""
    return f"trial {event.n}: {trial.commit.short} {event.word}{measured} ({took}){why}"


def _width() -> int:
    """What a mail or a log takes, unless the person says otherwise as shells do."""
    columns = os.environ.get("COLUMNS", "")
    return max(40, int(columns)) if columns.isdecimal() else PLAIN_WIDTH
