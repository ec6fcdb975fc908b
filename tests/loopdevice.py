"""Real block devices for tests: loop devices over sparse files (losetup(8)), and partitions of them."""

import ctypes
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SECTOR_BYTES = 512
_FIRST_SECTOR = 2048
_BLKPG, _ADD, _REMOVE = 0x1269, 1, 2  # linux/blkpg.h
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
    """Partitions of a device, told to the kernel by hand: not every kernel reads such tables."""
    with device.open("r+b") as disk:
        disk.write(partition_table(*sizes_bytes))
    numbered = dict(enumerate(_extents(sizes_bytes), start=1))
    for number, extent in numbered.items():
        _tell_of_partition(device, _ADD, number, *extent)
    try:
        yield tuple(Path(f"{device}p{number}") for number in numbered)
    finally:
        for number in numbered:
            _tell_of_partition(device, _REMOVE, number)


class _Partition(ctypes.Structure):
    """``struct blkpg_partition`` of linux/blkpg.h; Debian 13 has no addpart(8) that knows it."""

    _fields_ = (
        ("start_bytes", ctypes.c_longlong),
        ("length_bytes", ctypes.c_longlong),
        ("number", ctypes.c_int),
        ("names", ctypes.c_char * 128),
    )


class _Request(ctypes.Structure):
    """``struct blkpg_ioctl_arg``."""

    _fields_ = (
        ("what", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("length", ctypes.c_int),
        ("partition", ctypes.POINTER(_Partition)),
    )


def _tell_of_partition(device: Path, what: int, number: int, start: int = 0, sectors: int = 0) -> None:
    partition = _Partition(start * _SECTOR_BYTES, sectors * _SECTOR_BYTES, number)
    request = _Request(what, 0, ctypes.sizeof(partition), ctypes.pointer(partition))
    with device.open("rb") as disk:
        fcntl.ioctl(disk, _BLKPG, request)


def _extents(sizes_bytes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First sector and number of sectors of each, one behind the other."""
    start = _FIRST_SECTOR
    for size in sizes_bytes:
        yield start, size // _SECTOR_BYTES
        start += size // _SECTOR_BYTES
