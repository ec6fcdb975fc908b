r"""What each target of a kbuild build was made with: the ``.TARGET.cmd`` files in the build directory.

Kbuild writes one after each recipe that goes by its command (``if_changed``, scripts/Kbuild.include), and
``fixdep`` puts into it every file that the compiler says it has read (scripts/basic/fixdep.c)::

    cmd_kernel/fork.o := gcc -Wp,-MMD,kernel/.fork.o.d …      (savedcmd_… since v6.2)
    source_kernel/fork.o := /src/kernel/fork.c
    deps_kernel/fork.o := \
        $(wildcard include/config/SMP) \
      /src/include/linux/kconfig.h \
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMMANDS = (b"cmd_", b"savedcmd_")
_SOURCE = b"source_"
_IS = b" := "


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a target was made: its command, and the files that were read, as the compiler named them."""

    command: str
    files: tuple[str, ...]


def command_files(directory: Path) -> Iterator[Path]:
    """Every ``.TARGET.cmd`` at and below a directory of a build, in no order; raises ``OSError``."""
    for place, directories, names in os.walk(directory):
        # In a build directory inside the sources nothing is left out; the sources themselves are elsewhere.
        directories[:] = [name for name in directories if not name.startswith(".tmp_")]
        yield from (Path(place, name) for name in names if name.startswith(".") and name.endswith(".cmd"))


def target_of(command_file: Path) -> Path:
    """The target that a ``.cmd`` file is about."""
    return command_file.with_name(command_file.name[1 : -len(".cmd")])


def recipe(command_file: Path) -> Recipe:
    """One ``.cmd`` file; raises ``OSError``."""
    lines = command_file.read_bytes().split(b"\n")
    commands = (line.partition(_IS)[2] for line in lines if line.startswith(_COMMANDS))
    return Recipe(os.fsdecode(next(commands, b"")), tuple(_files(lines)))


def files_read(build: Path) -> frozenset[str]:
    """The files that all targets of a build were made of, as the compiler named them; raises ``OSError``.

    Of the two thousand files of a small kernel's build nearly all lines are the same ones, so they
    are told apart before they are looked at.
    """
    lines: set[bytes] = set()
    for path in command_files(build):
        lines.update(path.read_bytes().split(b"\n"))
    return frozenset(_files(lines))


def _files(lines: "set[bytes] | list[bytes]") -> Iterator[str]:
    for line in lines:
        if b"\0" in line:  # names no file
            continue
        if line.startswith(_SOURCE):
            yield os.fsdecode(line.partition(_IS)[2].strip())
        elif line.startswith(b"  ") and not line.startswith(b"    $("):
            yield os.fsdecode(line.strip(b" \\"))
