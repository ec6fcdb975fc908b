"""The displays of a running bisection: one interface, and an implementation for each kind of output.

A terminal gets a live picture, logs and pipes a line for each event, and a quiet run the answer alone. The live display
only folds an event into its state in the bisection's thread; a thread of rich paints that state twice a second. The
picture has left the screen without a trace when the report is printed.
"""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import datetime
from types import TracebackType
from typing import Self, TextIO, cast

from rich.live import Live
from rich.text import Text

from bisector.analysis.judgement import judged_run
from bisector.core import units
from bisector.core.events import (
    BuildStarted,
    Event,
    Note,
    OnHost,
    Planned,
    StageStarted,
    TrialJudged,
)
from bisector.core.printable import clean
from bisector.report.course import CourseSoFar, live_lines, plan_text
from bisector.report.figures import values_text
from bisector.report.streams import LastingStream, hangup_ignored
from bisector.report.summary import answer, footer
from bisector.report.table import run_blocks
from bisector.report.terminal import as_text, block_lines, console, lines_of, styled
from bisector.status.view import BisectionView

_PLAIN_WIDTH = 80
_REFRESHES_PER_SECOND = 2


class Display:
    """A listener to events while it is entered; it returns nothing and never fails, even if its reader is gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = LastingStream(stream)
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(hangup_ignored())
            stack.enter_context(self._screen())
            self._exits = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._exits.close()

    def _screen(self) -> AbstractContextManager[object]:
        return nullcontext()

    def __call__(self, event: Event, /) -> None:
        """Take one event."""

    def conclude(self, view: BisectionView) -> None:
        """Show the end: the table and the answer, or as much of them as this display shows."""
        self._stream.write(as_text([Text(), *report_lines(view, _width())]))


def display_for(stream: TextIO, *, quiet: bool = False) -> Display:
    """A live display on a terminal that can move its cursor, else plain lines; the answer alone if ``quiet``."""
    if quiet:
        return Quiet(stream)
    if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return LiveProgress(stream)
    return PlainLines(stream)


def report_lines(view: BisectionView, width: int, *, logs: bool = False, times: bool = False) -> list[Text]:
    """The table, the facts and the answer; before the facts the logs and times, if asked for."""
    return lines_of((*run_blocks(view, logs=logs, times=times), *footer(view)), width)


class LiveProgress(Display):
    """The live display on a terminal."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._console = console(cast(TextIO, self._stream))  # rich's type asks for all of IO[str]
        self._course = CourseSoFar()
        self._clock = clock
        self._live = Live(
            get_renderable=lambda: Text("\n").join(self._picture()),
            console=self._console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
            vertical_overflow="crop",
        )

    def _screen(self) -> AbstractContextManager[object]:
        return self._live

    def __call__(self, event: Event, /) -> None:
        """Fold one event into the state; a note is printed above the picture and stays."""
        self._course = self._course.after(event, self._clock())
        said = event.event if isinstance(event, OnHost) else event
        if isinstance(said, Note) and not self._stream.lost:
            self._console.print(styled(f"  {event_text(event)}"), soft_wrap=True)

    def conclude(self, view: BisectionView) -> None:
        """Remove the picture, then show the table and the facts in colours."""
        self._live.stop()
        lines = Text("\n").join(report_lines(view, self._console.width))
        self._console.print(Text("\n") + lines, soft_wrap=True)

    def _picture(self) -> list[Text]:
        width, height = self._console.size
        wall = datetime.now().astimezone()
        return [] if self._stream.lost else live_lines(self._course, self._clock(), wall, width, height)


class Quiet(Display):
    """A display that shows nothing but the answer at the end."""

    def conclude(self, view: BisectionView) -> None:
        """Show the answer."""
        self._stream.write(as_text(block_lines(answer(view), _width())))


class PlainLines(Display):
    """A line with the time of day for each event, flushed at once; live samples are left out."""

    def __init__(self, stream: TextIO, now: Callable[[], datetime] = lambda: datetime.now().astimezone()) -> None:
        super().__init__(stream)
        self._now = now

    def __call__(self, event: Event, /) -> None:
        """Write the line of one event."""
        if text := event_text(event):
            self._stream.write(f"{self._now():%H:%M:%S}  {clean(text)}\n")


def event_text(event: Event) -> str:
    """One event as a line; empty if a log does not need it."""
    text = ""
    match event:
        case Planned():
            why = plan_text(event)
            text = f"trial {event.n}: {event.commit.short} {event.commit.subject}" + (f" ({why})" if why else "")
        case BuildStarted():
            why = f" ({event.purpose})" if event.purpose else ""
            text = f"builds {event.commit.short} {event.commit.subject}{why}"
        case StageStarted():
            text = f"  {event.stage}" + (f": {event.detail}" if event.detail else "")
        case TrialJudged(trial=trial):
            measured = f" at {values_text(judged_run(trial), event.objective)}" if trial.runs else ""
            why = f": {event.why}" if event.why else ""
            took = units.duration(trial.timings.total_s)
            text = f"trial {event.n}: {trial.commit.short} {event.word}{measured} ({took}){why}"
        case Note():
            text = event.text
        case OnHost(host=host, event=one):
            text = event_text(one)
            text = f"{host}: {text}" if text else ""
    return text


def _width() -> int:
    """The width from ``COLUMNS``, as shells set it, else one that suits mails and logs."""
    columns = os.environ.get("COLUMNS", "")
    return max(40, int(columns)) if columns.isdecimal() else _PLAIN_WIDTH
