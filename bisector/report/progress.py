"""The live picture on a terminal, and the final report in colours: the owner of rich.

The bisection's thread only folds an event into the state; a thread of rich's own paints that state
twice a second. It is gone, without a trace on the screen, when the report is printed.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import Self, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from bisector.core.events import Event, Note
from bisector.core.printable import clean
from bisector.report.course import Course, live_lines
from bisector.report.stream import LastingStream, hangup_ignored
from bisector.report.summary import footer_lines
from bisector.report.table import report_lines
from bisector.report.text import Line, Role, Span
from bisector.status.view import BisectionView

REFRESHES_PER_SECOND = 2

STYLES: dict[Role, str] = {
    Role.PLAIN: "",
    Role.HEAD: "dim",
    Role.STRONG: "bold",
    Role.DIM: "dim",
    Role.OLD: "red",
    Role.NEW: "green",
    Role.SKIP: "yellow",
    Role.WEAK: "magenta",
    Role.ACTIVE: "cyan",
    Role.COMMAND: "bold cyan",
}


def painted(lines: Iterable[Line]) -> Text:
    """Lines as one rich text that is never wrapped: widths were decided before."""
    text = Text(no_wrap=True, overflow="ignore", end="")
    for index, line in enumerate(lines):
        if index:
            text.append("\n")
        for span in line:
            text.append(clean(span.text), style=STYLES[span.role])
    return text


def print_lines(console: Console, lines: Sequence[Line]) -> None:
    """Print lines as they are, whatever the width of the console."""
    console.print(painted(lines), soft_wrap=True, highlight=False)


def print_report(console: Console, view: BisectionView) -> None:
    """The table, the logs of the skipped, the times and the answer, for this console's width."""
    print_lines(console, [(), *report_lines(view, footer_lines(view, console.width), console.width)])


class LiveProgress:
    """The display on a terminal."""

    def __init__(
        self,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = LastingStream(stream)
        self._console = Console(file=cast(TextIO, self._stream), highlight=False)  # rich asks for the whole of IO[str]
        self._course = Course()
        self._clock = clock
        self._exits = ExitStack()
        self._live = Live(
            get_renderable=self._picture,
            console=self._console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
            vertical_overflow="crop",
        )

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(hangup_ignored())
            stack.enter_context(self._live)
            self._exits = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._exits.close()

    def __call__(self, event: Event, /) -> None:
        """Fold one event; a note stays on the screen above the picture."""
        self._course = self._course.after(event, self._clock())
        if isinstance(event, Note) and not self._stream.lost:
            print_lines(self._console, [(Span("  "), Span(event.text))])

    def conclude(self, view: BisectionView) -> None:
        """Take the picture away, then show the table and what stands below it, in colours."""
        self._live.stop()
        print_report(self._console, view)

    def _picture(self) -> Text:
        if self._stream.lost:
            return Text("")
        wall = datetime.now().astimezone()
        width, height = self._console.size
        return painted(live_lines(self._course, self._clock(), wall, width, height))
