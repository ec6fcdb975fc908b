"""The files of a record: fio's output in any of its formats, or an IOPS log."""

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bisector.core.errors import UserError
from bisector.workload.fio.logs import LogUnreadable, job_number, parse_log
from bisector.workload.fio.output import Output, OutputUnreadable, check_figures, parse_output
from bisector.workload.fio.text import parse_text

_TEXT = re.compile(r"^(?:fio[- ])?\d+\.\d", re.MULTILINE)
_MOST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Read:
    """A file with its content and, unless it is an IOPS log, what fio told."""

    path: Path
    data: bytes
    output: Output | None

    @property
    def sha256(self) -> str:
        """What tells it from other files."""
        return hashlib.sha256(self.data).hexdigest()


def content(path: Path, most_bytes: int = _MOST_BYTES) -> bytes:
    """What a regular file holds; raises :class:`UserError` when it cannot be read, or is larger than ``most_bytes``.

    Devices and FIFOs have no size, and may never end. They are not even waited for (O_NONBLOCK, fifo(7)).
    """
    try:
        with _opened(path) as file:
            data = file.read(most_bytes + 1)
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}") from error
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise UserError(f"cannot read {str(path)!r}: {error}") from error
    if len(data) > most_bytes:
        raise UserError(f"{path} has more than {most_bytes >> 20} MiB")
    return data


def _opened(path: Path) -> BinaryIO:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError(f"{path} is not a regular file")
    return os.fdopen(descriptor, "rb")


def text_of(data: bytes, path: Path) -> str:
    """The content as text; raises :class:`UserError` with the line that is none."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: not UTF-8 text") from error


def is_log(path: Path) -> bool:
    """Whether it is called as fio calls its logs."""
    return job_number(path.name) is not None


def read(path: Path) -> Read:
    """Read a file by what it looks like; raises :class:`UserError` with its line."""
    data = content(path)
    text = text_of(data, path)
    if is_log(path):
        _check_log(text, path)
        return Read(path, data, None)
    is_json = _TEXT.search(text) is None and "{" in text
    try:
        output = parse_output(text) if is_json else parse_text(text)
        check_figures(output)
    except OutputUnreadable as error:
        raise UserError(f"{path}:{error.line}: {error}") from error
    if not output.jobs:
        raise UserError(f"{path}: no job did anything")
    return Read(path, data, output)


def _check_log(text: str, path: Path) -> None:
    """A log that was cut in a line's last number still has lines of numbers."""
    lines = text.splitlines()
    try:
        parse_log(text)
    except LogUnreadable as error:
        raise UserError(f"{path}: {error}") from error
    widths = {line.count(",") for line in lines}
    if not lines or len(widths) > 1 or not text.endswith("\n"):
        raise UserError(f"{path}:{max(len(lines), 1)}: the IOPS log is cut off or empty")
