"""What is left in a build directory that is kept between commits, and whether make may go on from it.

make compiles what is older than its sources, by the clock that dated both. That fails in three ways, each
of which gives a kernel of other sources without a word:

- A compiler killed by SIGKILL leaves half an object file, newer than its source and beside the ``.cmd``
  file of the build before.
- The clock is set back between two builds: the sources that the next commit changed are dated before the
  objects that were made of them.
- The host loses its power: what was written in the last half minute is there by name and empty, for
  file systems put off what nobody asked them to sync (delayed allocation in ext4, XFS and btrfs).

So a build directory says when it was last fit: in which boot of the host, and by which clock. After another
boot, or by a clock that was set back, all of it is removed; ccache checks what it keeps by itself. A power cut
always ends a boot, so nothing has to be synced. syncfs(2) would have to be asked after each build, waits for what
anybody wrote to that file system (0.2 s after a clean build, on an SSD that was otherwise idle), and saves one clean
build in each boot.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bisector.core.errors import InfraError, KernelFault
from bisector.core.trial import FaultKind
from bisector.kernel import sources
from bisector.kernel.buildlog import lines_since, size_bytes
from bisector.kernel.make import BUILD_LOG, BuildPlaces
from bisector.kernel.strays import remove_whole

_BUILDING, _FINISHED = "building", "finished"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # random(4)
# Two readings of two clocks differ by this when nothing was set; dates of files are as coarse (a tick of 100 Hz).
_SAME_CLOCK_NS = 10_000_000
_READING_NS = 1_000_000
_MOST_READINGS = 100
_SKEW = re.compile(r"make(\[\d+\])?: warning: .*(Clock skew detected|in the future)")
_HINT = "see that one service alone sets the clock and that --run-dir is on a disk of this host, then resume"


@dataclass(frozen=True, slots=True)
class Moment:
    """The host's boot, and how far its wall clock is ahead of the time since then, in ns.

    The difference is the same as long as nobody sets the clock: slewing (adjtimex(2)) and suspending change both
    sides alike (clock_gettime(2), CLOCK_BOOTTIME).
    """

    boot: str
    ahead_ns: int

    @classmethod
    def now(cls) -> Self:
        """As it is now; raises ``OSError``."""
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
        for _ in range(_MOST_READINGS):
            before_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            wall_ns = time.time_ns()
            took_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - before_ns
            if took_ns < _READING_NS:
                break
        return cls(boot, wall_ns - before_ns - took_ns // 2)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """What :meth:`write` wrote; None for anything else."""
        with suppress(FileNotFoundError, ValueError):
            boot, ahead_ns = path.read_text(encoding="ascii").split()
            return cls(boot, int(ahead_ns))
        return None

    def write(self, path: Path) -> None:
        """Keep it; the file's date is of this moment, too."""
        path.write_text(f"{self.boot} {self.ahead_ns}\n", encoding="ascii")

    def why_unfit(self, now: Self) -> str | None:
        """Why files dated until this moment say nothing now; None if they do."""
        if self.boot != now.boot:
            return "the host was restarted"
        if now.ahead_ns < self.ahead_ns - _SAME_CLOCK_NS:
            return "the clock was set back"
        return None


def make_fit(places: BuildPlaces) -> None:
    """Remove from the build directory what make could take for finished and is not; raises ``OSError``."""
    marker = places.state / _BUILDING
    unfinished = marker.exists()
    known = Moment.read(marker if unfinished else places.state / _FINISHED)
    why = known.why_unfit(Moment.now()) if known is not None else "nobody knows how it was left"
    if why is not None:
        begin_anew(places, why)
    elif unfinished:
        _remove_newer(places.build, marker.stat().st_mtime_ns)


def begin_anew(places: BuildPlaces, why: str) -> None:
    """Empty the build directory; that and ``why`` are told in the build log. Raises ``OSError``."""
    left = list(places.build.iterdir())
    if left != [places.state]:
        with (places.logs / BUILD_LOG).open("a", encoding="utf-8") as log:
            log.write(f"bisector: {why}: everything is built again\n")
    for path in left:
        remove_whole(path)
    places.state.mkdir()
    _date_now(places.source)


@contextmanager
def building(places: BuildPlaces) -> Iterator[None]:
    """Have the build directory known as unfinished until make has ended by itself.

    Raises :class:`InfraError`, and empties the build directory, when the clock was set back meanwhile: make
    may have left out what it had to compile, or what fails may be of other sources.
    """
    begun = Moment.now()
    begun.write(places.state / _BUILDING)
    log_bytes = size_bytes(places.logs / BUILD_LOG)
    try:
        yield
    except KernelFault as fault:
        _check_clock(places, begun, log_bytes)
        if fault.kind is not FaultKind.BUILD_TIMEOUT and _deletes_on_error(places.source):
            _finish(places.state)
        raise
    _check_clock(places, begun, log_bytes)
    _finish(places.state)


def _finish(state: Path) -> None:
    Moment.now().write(state / _FINISHED)
    (state / _BUILDING).unlink()


def _check_clock(places: BuildPlaces, begun: Moment, log_bytes: int) -> None:
    why = begun.why_unfit(Moment.now()) or _skewed(places, log_bytes)
    if why is not None:
        begin_anew(places, why)
        raise InfraError(f"{why} during the kernel build", _HINT)


def _skewed(places: BuildPlaces, log_bytes: int) -> str | None:
    """Why times of files may have misled make, by its own warnings and by what it has written.

    A clock that was set forward and back again leaves files that are newer than what a later commit changes. A file
    server may have a clock of its own.
    """
    said = lines_since(places.logs / BUILD_LOG, log_bytes)
    warning = next((line for line in said if _SKEW.match(line)), None)
    if warning is not None:
        return f"the clock was wrong ({warning})"
    file = next(_from_the_future(places.build), None)
    return f"the clock was wrong ({file} is of the future)" if file is not None else None


def _from_the_future(directory: Path) -> Iterator[str]:
    latest_ns = time.time_ns() + _SAME_CLOCK_NS
    return (path for path, mtime_ns in _dates(directory) if mtime_ns > latest_ns)


def _date_now(source: Path) -> None:
    """Sources that were checked out by a clock that was ahead would be compiled in every build, with a warning."""
    for path in list(_from_the_future(source)):
        os.utime(path, follow_symlinks=False)


def _remove_newer(build: Path, since_ns: int) -> None:
    for path in [path for path, mtime_ns in _dates(build) if mtime_ns >= since_ns]:
        Path(path).unlink()


def _dates(directory: str | Path) -> Iterator[tuple[str, int]]:
    """Every file at and below a directory with its modification time in ns; thousands in a build, 80,000 in a tree."""
    with os.scandir(directory) as found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                yield from _dates(entry.path)
            else:
                yield entry.path, entry.stat(follow_symlinks=False).st_mtime_ns


def _deletes_on_error(source: Path) -> bool:
    """Whether a make that fails by itself leaves no half-made target behind in this tree.

    9c2af1c7377a ("kbuild: add .DELETE_ON_ERROR special target") (in v4.19).
    """
    return ".DELETE_ON_ERROR:" in (sources.text(source, "scripts/Kbuild.include") or "")
