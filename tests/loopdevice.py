"""Real block devices for tests: loop devices over sparse files (losetup(8)), and partitions of them."""

import os
import struct
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SECTOR_BYTES = 512
_FIRST_SECTOR = 2048
_ENVIRONMENT = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}


def command(*words: str | Path) -> str:
    """Run a program of this machine, also one of the superuser's; its output."""
    return subprocess.run(words, check=True, capture_output=True, text=True, env=_ENVIRONMENT).stdout


@contextmanager
def loop_device(file: Path, *options: str) -> Iterator[Path]:
    """A loop device on a file; the test is skipped where there are none to be had."""
    if os.getuid() != 0 or not Path("/dev/loop-control").exists():
        pytest.skip("loop devices need root and a kernel with them")
    path = Path(command("losetup", "--find", "--show", *options, file).strip())
    try:
        yield path
    finally:
        command("losetup", "--detach", path)


def partition_table(*sizes_bytes: int) -> bytes:
    """A DOS partition table; sfdisk(8), which makes them, is not installed everywhere."""
    entries = b"".join(bytes(4) + b"\x83" + bytes(3) + struct.pack("<II", *one) for one in _extents(sizes_bytes))
    return bytes(446) + entries.ljust(64, b"\0") + b"\x55\xaa"


@contextmanager
def partitions(device: Path, *sizes_bytes: int) -> Iterator[tuple[Path, ...]]:
    """Partitions of a device, told to the kernel by hand (addpart(8)): not every kernel reads such tables."""
    with device.open("r+b") as disk:
        disk.write(partition_table(*sizes_bytes))
    numbered = dict(enumerate(_extents(sizes_bytes), start=1))
    for number, extent in numbered.items():
        command("addpart", device, str(number), *map(str, extent))
    try:
        yield tuple(Path(f"{device}p{number}") for number in numbered)
    finally:
        for number in numbered:
            command("delpart", device, str(number))


def _extents(sizes_bytes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First sector and number of sectors of each, one behind the other."""
    start = _FIRST_SECTOR
    for size in sizes_bytes:
        yield start, size // _SECTOR_BYTES
        start += size // _SECTOR_BYTES
