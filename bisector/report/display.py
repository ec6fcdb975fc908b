"""The faces of a running bisection: one interface, chosen by where the output goes."""

import os
from types import TracebackType
from typing import Protocol, Self, TextIO

from bisector.core.events import Event
from bisector.report.plain import PlainLines, Quiet
from bisector.report.progress import LiveProgress
from bisector.status.view import BisectionView


class Display(Protocol):
    """A listener to events while it is entered; it answers nothing and fails at nothing."""

    def __enter__(self) -> Self:
        """Begin to show."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Stop showing; the terminal is as it was."""
        ...

    def __call__(self, event: Event, /) -> None:
        """Take one event."""
        ...

    def conclude(self, view: BisectionView) -> None:
        """Show the end: the table and the answer, as much of it as this face tells."""
        ...


def display_for(stream: TextIO, *, quiet: bool = False) -> Display:
    """Live on a terminal that can move its cursor, plain lines elsewhere, the answer alone if quiet."""
    if quiet:
        return Quiet(stream)
    if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return LiveProgress(stream)
    return PlainLines(stream)
