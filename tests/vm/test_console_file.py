"""A console that is written while it is read: rotated as virtlogd does, and without an end."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bisector.core.errors import InfraError
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.vm.base import CONSOLE_CHUNK_BYTES
from bisector.vm.console import ConsoleFile, Watch

MIB = 1 << 20


@dataclass
class Virtlogd:
    """Renames as virRotatingFileWriterRollover does (libvirt's src/util/virrotatingfile.c), with three backups."""

    path: Path
    backups: int = 3

    def __post_init__(self) -> None:
        self.path.touch()

    def write(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def rotate(self) -> None:
        names = [self.path, *(self.path.with_name(f"{self.path.name}.{n}") for n in range(self.backups))]
        for newer, older in reversed([*pairwise(names)]):
            if newer.exists():
                newer.rename(older)
        self.path.touch()


@pytest.fixture
def log(tmp_path: Path) -> Virtlogd:
    return Virtlogd(tmp_path / "console.log")


@pytest.fixture
def file(log: Virtlogd) -> Iterator[ConsoleFile]:
    opened = ConsoleFile(log.path)
    yield opened
    opened.close()


def all_of(file: ConsoleFile) -> str:
    text = ""
    while data := file.read():
        text += data.decode()
    return text


def test_what_was_written_before_a_rotation_is_read(log: Virtlogd, file: ConsoleFile) -> None:
    log.write("one\n")
    assert file.read() == b"one\n"
    log.write("Kernel panic\n")
    log.rotate()
    assert all_of(file) == "Kernel panic\n"
    log.write("after\n")
    assert all_of(file) == "after\n"


def test_more_rotations_than_there_are_backups(log: Virtlogd, file: ConsoleFile) -> None:
    log.write("0")
    assert file.read() == b"0"
    for n in "1234567":
        log.write(n)
        log.rotate()
    log.write("8")
    # The first file is still open here; of the others the last three are kept.
    assert all_of(file) == "15678"
    assert all_of(file) == ""


def test_a_last_word_just_before_the_rotation_is_read(log: Virtlogd) -> None:
    class Late(ConsoleFile):
        """Rotated after everything was read, and before it is seen that it was."""

        def _newer(self, mine: os.stat_result) -> Path | None:
            if not log.path.with_name("console.log.0").exists():
                log.write("Kernel panic\n")
                log.rotate()
            return super()._newer(mine)

    file = Late(log.path)
    assert all_of(file) == "Kernel panic\n"
    file.close()


def test_a_file_that_cannot_be_read_is_no_silence_of_the_guest(log: Virtlogd, file: ConsoleFile) -> None:
    file.read()
    log.rotate()
    log.path.unlink()
    log.path.mkdir()
    with pytest.raises(InfraError, match="cannot be read"):
        file.read()


def test_it_is_read_in_pieces_and_kept_in_short(log: Virtlogd, file: ConsoleFile) -> None:
    with log.path.open("w") as written:
        written.write("Linux version\n")
        written.truncate(40 * MIB)
        written.seek(40 * MIB)
        written.write("last words\n")
    sizes = []
    while data := file.read():
        sizes.append(len(data))
    assert max(sizes) == CONSOLE_CHUNK_BYTES
    assert sum(sizes) == 40 * MIB + len("last words\n")
    file.close()
    file.close()
    assert file.read() == b""
    assert log.path.stat().st_size < 16 * MIB + 100
    text = log.path.read_bytes()
    assert text.startswith(b"Linux version\n")
    assert text.endswith(b"last words\n")
    assert b"\n[bisector left out 25165835 bytes here]\n" in text


# -- a console without an end ------------------------------------------------------------------------------------------


def watch_of(file: ConsoleFile, text: str = "", *, running: bool = True) -> Watch:
    """Of a guest that writes this whenever it is looked at."""

    def is_running() -> bool:
        with file.path.open("a") as console:
            console.write(text)
        return running

    domain = SimpleNamespace(is_running=is_running, read_console=lambda: file.read().decode("latin-1"))
    return Watch(cast("Any", domain), 60.0)


def test_a_kernel_that_floods_its_console_is_at_fault(log: Virtlogd, file: ConsoleFile) -> None:
    line = "[   12.345678] WARNINGS are not what this is about, only its length" + "." * 500 + "\r\n"
    watch = watch_of(file, line * (8 * MIB // len(line)))
    for _ in range(8):
        watch()
    with pytest.raises(KernelFault, match="more than 64 MiB, and no end") as caught:
        watch()
    assert (caught.value.kind, caught.value.stage) == (FaultKind.COMMAND_FAILED, Stage.BOOT)
    # What is kept of it: the last lines in memory, the beginning and the end on disk.
    assert sum(map(len, watch.console.tail(1_000_000))) < MIB
    assert log.path.stat().st_size > 64 * MIB
    file.close()
    assert log.path.stat().st_size < 16 * MIB + 100


def test_the_last_words_of_a_talkative_guest_are_read(log: Virtlogd, file: ConsoleFile) -> None:
    log.write("Linux version 6.1\n" + "x" * 80 * 1000 + f"{'x' * 99}\n" * 30_000 + "Kernel panic - not syncing: bang\n")
    with pytest.raises(KernelFault) as caught:
        watch_of(file, running=False)()
    assert caught.value.kind is FaultKind.PANIC
