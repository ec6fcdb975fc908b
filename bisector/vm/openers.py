"""Who else has a disk open.

The kernel refuses a second exclusive opener only (open(2), O_EXCL), and few ask for that: a virtual machine on a
logical volume, a database on a raw device and dd(1) do not.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from bisector.core.deadline import Deadline, DeadlineExpired

_PROC = Path("/proc")
_SYS = Path("/sys/dev/block")
# udev looks into a device for a moment after each writer has closed it (udev(7), OPTIONS="watch").
_MOMENT_S = 5.0


def openers_of_device(number: int) -> tuple[str, ...]:
    """Processes that have the block device or a partition of it open, or write to the disk that it is a part of.

    As ``NAME (PID)``, as far as this user may look; who closes it within some seconds is not among them.
    """
    parts, whole = _partitions(number), _whole(number)

    def matches(status: os.stat_result, info: Path) -> bool:
        if not stat.S_ISBLK(status.st_mode):
            return False
        return status.st_rdev in parts or (status.st_rdev == whole and _writes(info))

    return _staying(matches)


def openers_of_file(path: Path) -> tuple[str, ...]:
    """The same of a regular file."""
    mine = path.stat()

    def matches(status: os.stat_result, _info: Path) -> bool:
        return (status.st_dev, status.st_ino) == (mine.st_dev, mine.st_ino)

    return _staying(matches)


def _staying(matches: Callable[[os.stat_result, Path], bool]) -> tuple[str, ...]:
    found: tuple[str, ...] = ()

    def gone() -> bool | None:
        nonlocal found
        found = tuple(_openers(matches))
        return None if found else True

    with suppress(DeadlineExpired):
        Deadline("other openers of a disk", _MOMENT_S).poll(gone, 0.2)
    return found


def _openers(matches: Callable[[os.stat_result, Path], bool]) -> Iterator[str]:
    for process in _PROC.glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with suppress(OSError):  # it has ended, or is somebody else's
            if any(_has(link, matches) for link in (process / "fd").iterdir()):
                yield f"{(process / 'comm').read_text(encoding='utf-8', errors='replace').strip()} ({process.name})"


def _has(link: Path, matches: Callable[[os.stat_result, Path], bool]) -> bool:
    with suppress(OSError):
        return str(link.readlink()).startswith("/") and matches(link.stat(), link.parent.parent / "fdinfo" / link.name)
    return False


def _writes(info: Path) -> bool:
    """By the flags in /proc/PID/fdinfo/FD, which are octal (proc(5))."""
    for line in info.read_text(encoding="ascii").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _partitions(number: int) -> frozenset[int]:
    """The device itself and its partitions."""
    entry = (_SYS / f"{os.major(number)}:{os.minor(number)}").resolve()
    return frozenset({number, *(_number(part.parent) for part in entry.glob("*/partition"))})


def _whole(number: int) -> int | None:
    entry = (_SYS / f"{os.major(number)}:{os.minor(number)}").resolve()
    return _number(entry.parent) if (entry / "partition").exists() else None


def _number(entry: Path) -> int:
    major, minor = (entry / "dev").read_text(encoding="ascii").split(":")
    return os.makedev(int(major), int(minor))
