"""What commands write.

A reader that goes away (``bisector table | head``) changes neither what a command does nor its exit code. A disk that
takes no more of the output is an error, since the output is cut off.
"""

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from bisector.core.errors import Finding, InfraError, UserError
from bisector.core.guest_time import GuestTime
from bisector.core.printable import clean, clean_lines
from bisector.host import locks
from bisector.host.locks import TurnPurpose
from bisector.report.blocks import Block
from bisector.report.streams import silence

_WIDTH = 120
_DISTURBED = {
    TurnPurpose.BUILD: ("a build", "it slower"),
    TurnPurpose.MEASUREMENT: ("a measurement", "its runs weak"),
    TurnPurpose.UNKNOWN: ("a build or a measurement", "it slower, or its runs weak"),
}


def write_document(text: str) -> None:
    """A whole text in a format of its own (HTML, JSON, TOML, a .config): cleaned, with lines as long as they are."""
    _write(sys.stdout, clean_lines(text))


def write(text: str) -> None:
    """Lines for people."""
    _write(sys.stdout, _lines(text))


def write_rows(rows: Iterable[tuple[str, str]], width: int = 10) -> None:
    """A label and a text on each line."""
    write("".join(f"{label:{width}}{text}\n" for label, text in rows))


def show_blocks(blocks: Iterable[Block]) -> None:
    """Tables, facts and prose, as wide as the terminal, and in colours on one."""
    from bisector.report.terminal import lines_of, on_stream  # noqa: PLC0415 - rich is slow to load for every command

    width = shutil.get_terminal_size((_WIDTH, 24)).columns
    _write(sys.stdout, on_stream(lines_of(blocks, width), sys.stdout))


def note(text: str) -> None:
    """A line for the person beside what is written, on standard error."""
    _write(sys.stderr, f"{_lines(text)}\n")


def warn(finding: Finding) -> None:
    """What a person should know of this machine before the first trial, on standard error."""
    note(f"bisector: {finding.warning}")


def note_time(time: GuestTime) -> None:
    """Tell on standard error what figures do not show by the clock that was chosen."""
    if time.warning:
        note(f"bisector: {time.warning}")


def note_turn() -> None:
    """Tell on standard error who builds or measures on this host, if anybody does, and what other work does to that."""
    if (holder := locks.measurer()) is not None:
        what, harm = _DISTURBED[holder.purpose]
        note(f"bisector: {what} is under way on this host ({clean(str(holder))}): other work makes {harm}")


def save(path: Path, content: bytes) -> None:
    """Write a file that a person named, and the directories it is in. Raises :class:`UserError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", "name another place") from error


def _write(stream: IO[str], text: str) -> None:
    """Text on a stream at once, if somebody still reads it; raises :class:`InfraError` where it cannot be written."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        silence(stream)
    except OSError as error:
        silence(stream)
        if stream is not sys.stderr:  # where that would be told
            what = f"standard output cannot be written: {error.strerror}"
            raise InfraError(what, "name a place with room for the output") from error


def _lines(text: str) -> str:
    """Every line as it may be shown: subjects, and words of guests and servers, are in many of them."""
    return "\n".join(map(clean, text.split("\n")))
