"""Output of commands.

If the reader goes away (``bisector table | head``), a command does the same work and ends with the same exit code. If
the output cannot be written, for example to a full disk, that is an error, since the output is incomplete.
"""

import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bisector.core.deadline import GuestTime
from bisector.core.errors import Finding, InfraError, UserError
from bisector.core.printable import clean, clean_lines, silence
from bisector.host import locks
from bisector.host.locks import TurnPurpose
from bisector.report.blocks import Block

_WIDTH = 120
_DISTURBED = {
    TurnPurpose.BUILD: ("a build", "it slower"),
    TurnPurpose.MEASUREMENT: ("a measurement", "its runs weak"),
    TurnPurpose.UNKNOWN: ("a build or a measurement", "it slower, or its runs weak"),
}


def write_document(text: str) -> None:
    """Write a text in its own format (HTML, JSON, TOML, .config): control characters cleaned, lines not wrapped."""
    _write(sys.stdout, clean_lines(text))


def write(text: str) -> None:
    """Write lines for people to standard output."""
    _write(sys.stdout, _lines(text))


def write_rows(rows: Iterable[tuple[str, str]], width: int = 10) -> None:
    """Write a line for each row: its label, padded to ``width`` characters, and its text."""
    write("".join(f"{label:{width}}{text}\n" for label, text in rows))


def show_blocks(blocks: Iterable[Block]) -> None:
    """Show tables, facts and prose as wide as the terminal, and in colours if standard output is one."""
    from bisector.report.terminal import lines_of, on_stream  # noqa: PLC0415 - rich is slow to load for every command

    width = shutil.get_terminal_size((_WIDTH, 24)).columns
    _write(sys.stdout, on_stream(lines_of(blocks, width), sys.stdout))


def note(text: str) -> None:
    """Write a line for a person to standard error."""
    _write(sys.stderr, f"{_lines(text)}\n")


def warn(finding: Finding) -> None:
    """Warn on standard error of something about this machine that a person should know before the first trial."""
    note(f"bisector: {finding.warning}")


def note_time(time: GuestTime) -> None:
    """Warn on standard error of what the figures do not show with the chosen guest clock."""
    if time.warning:
        note(f"bisector: {time.warning}")


def note_turn() -> None:
    """Tell on standard error who builds or measures on this host, if anyone, and how other work harms that."""
    if (holder := locks.measurer()) is not None:
        what, harm = _DISTURBED[holder.purpose]
        note(f"bisector: {what} is under way on this host ({clean(str(holder))}): other work makes {harm}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Write to a place that a person named; raises :class:`UserError` if that fails."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {error.filename or path}: {error.strerror}", "name another place") from error


def save(path: Path, content: bytes) -> None:
    """Write a file that a person named, and create its directories; raises :class:`UserError`."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _write(stream: IO[str], text: str) -> None:
    """Write and flush text, if anyone still reads it; raises :class:`InfraError` if standard output is not writable."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        silence(stream)
    except OSError as error:
        silence(stream)
        if stream is not sys.stderr:  # a failure of standard error cannot be told anywhere
            what = f"standard output cannot be written: {error.strerror}"
            raise InfraError(what, "name a place with room for the output") from error


def _lines(text: str) -> str:
    """Clean every line, since many contain subjects of commits, or words of guests and servers."""
    return "\n".join(map(clean, text.split("\n")))
