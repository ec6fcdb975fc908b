"""The files that fio leaves in the guest: what is listed of them, and fetched.

The guest says how they are called and how large they are, and is not trusted: no name leads out of a directory, and
all of it is bounded. Logs may be large without any fault (without log_avg_msec each I/O is a line, so that the fastest
kernel has the largest), so one that is too large is left out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bisector.core.errors import KernelFault
from bisector.core.shell import Shell
from bisector.core.trial import FaultKind, Stage

MOST_FILES = 256
# What :func:`listed_files` reads, of the current directory. Hidden files are ours.
LISTING = "stat -c '%s %n' -- *"
_LEFT_OUT = "left-out.txt"

# fio names its logs after the job, or as write_iops_log says. Nothing here is a path, or hidden.
_FILE_NAME = re.compile(r"[\w+(][\w.+ :,=@#%()\[\]-]*")
FILE_NAMES = "letters, digits, spaces and _.+:,=@#%()[]-, the first one of which is a letter, a digit or one of _+("
_LONGEST_NAME_BYTES = 200
_LISTED = re.compile(r"(\d{1,20}) (.*)", re.ASCII)
_MOST_BYTES = 256 << 20
_MOST_LOG_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class LeftFile:
    """A file by its name, with its size as the guest tells it."""

    name: str
    size_bytes: int


def may_be_called(name: str) -> bool:
    """Whether a file of this name is fetched."""
    return _FILE_NAME.fullmatch(name) is not None and len(name.encode()) <= _LONGEST_NAME_BYTES


def listed_files(text: str, ours: str) -> tuple[LeftFile, ...]:
    """What :data:`LISTING` printed, but for the file ``ours``; raises :class:`KernelFault`."""
    files = tuple(dict.fromkeys(one for one in _files(text) if one.name != ours))
    if len(files) > MOST_FILES:
        raise _left_too_much(f"{len(files):,} files, and at most {MOST_FILES} are fetched")
    return files


def fetch_files(shell: Shell, directory: str, files: Sequence[LeftFile], needed: str, logs: Path) -> None:
    """Copy them from the guest's directory into ``logs``, which has none of them yet, ``needed`` before all others.

    Of the others those that are too large, or too large together, are left out; :data:`_LEFT_OUT` beside names them.
    """
    room_bytes = _MOST_BYTES
    left_out = []
    for file in sorted(files, key=lambda one: one.name != needed):
        if file.name != needed and file.size_bytes > min(_MOST_LOG_BYTES, room_bytes):
            left_out.append(f"{file.name}: {file.size_bytes:,} bytes\n")
            continue
        shell.get(f"{directory}/{file.name}", logs / file.name)
        room_bytes -= (logs / file.name).stat().st_size
    if left_out:
        why = f"Not fetched: a log of more than {_MOST_LOG_BYTES >> 20} MiB, and all beyond {_MOST_BYTES >> 20} MiB."
        with (logs / _LEFT_OUT).open("a", encoding="utf-8") as note:
            note.writelines((f"{why} log_avg_msec=500 in the job makes logs small.\n", *left_out))


def _files(text: str) -> Iterator[LeftFile]:
    for line in filter(None, text.split("\n")):
        found = _LISTED.fullmatch(line)
        if found is None or not may_be_called(found[2]):
            called = found[2] if found else line
            raise _left_too_much(f"a file called {called[:_LONGEST_NAME_BYTES]!r}, which is no name of a log")
        yield LeftFile(found[2], int(found[1]))


def _left_too_much(what: str) -> KernelFault:
    return KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, f"fio left {what}")
