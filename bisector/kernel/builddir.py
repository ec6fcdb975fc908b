"""The build directory that is kept between commits: what may be left in it, and whether make may go on from it.

make compiles what is older than its sources, by the clock that dated both. That fails where a compiler was killed in
the middle of an object, where the clock was set back between two builds, and where the host lost its power before what
was written reached the disk. So a build directory says in which boot of the host, and by which clock, it was last fit.
After another boot, or by a clock that was set back, all of it is removed; ccache checks what it keeps by itself.

A stranger's make may also leave links and FIFOs there, which this process would follow, or wait for, with more rights
than make has in its sandbox.
"""

import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bisector.core.errors import InfraError, KernelFault, UserError
from bisector.core.trial import FaultKind, Stage
from bisector.host.files import files_below, remove_whole
from bisector.kernel import sources

BUILD_LOG = "build.log"
_BUILDING, _FINISHED = "building", "finished"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # random(4)
# Two readings of two clocks differ by this when nothing was set; dates of files are as coarse (a tick of 100 Hz).
_SAME_CLOCK_NS = 10_000_000
_READING_NS = 1_000_000
_MOST_READINGS = 100
_SKEW = re.compile(r"make(\[\d+\])?: warning: .*(Clock skew detected|in the future)")
_HINT = "see that one service alone sets the clock and that --run-dir is on a disk of this host, then resume"
# Kbuild's own are a fifth as long. Python goes down by one call a directory, of which it has a thousand.
_LONGEST_BYTES = 800
# How a file that this process wants is not as make makes it; all else (no room, a bad disk) is the host's.
_OF_MAKE = frozenset(
    (
        *(errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG),
        errno.EFBIG,
    )
)


@dataclass(frozen=True, slots=True)
class BuildPlaces:
    """Where a build happens.

    ``source`` is the checked-out tree, written to only by :mod:`bisector.kernel.quirks` and dated here; ``build`` is
    make's ``O=`` directory, kept between commits; ``logs`` is this trial's directory, which gets ``build.log``,
    ``kernel.config``, ``kernel.defconfig`` and ``unmet.txt``; ``run_dir`` marks the processes, and ccache takes paths
    relative to it.
    """

    source: Path
    build: Path
    logs: Path
    run_dir: Path

    @property
    def log(self) -> Path:
        """What make prints, and what is said of it here."""
        return self.logs / BUILD_LOG

    def log_bytes(self) -> int:
        """How much of the log has been written so far."""
        return self.log.stat().st_size if self.log.exists() else 0

    def logged_since(self, log_bytes: int) -> tuple[str, ...]:
        """The lines that were written to the log after it had this size."""
        if not self.log.exists():
            return ()
        with self.log.open("rb") as file:
            file.seek(log_bytes)
            return tuple(file.read().decode(errors="replace").splitlines())

    @property
    def state(self) -> Path:
        """What this process knows of the build directory, and goes with it; make in its sandbox can only read there."""
        return self.build / ".bisector"

    def prepared(self) -> "BuildPlaces":
        """The same with the paths that make's children will see, and the directories made.

        Raises ``OSError`` when one is not there or cannot be made.
        """
        for path in (self.build, self.state, self.logs):
            path.mkdir(parents=True, exist_ok=True)
        given = (self.source, self.build, self.logs, self.run_dir)
        places = BuildPlaces(*(path.resolve(strict=True) for path in given))
        for path in (places.source, places.build):
            if set(" :") & set(str(path)):  # the top Makefile: "main directory cannot contain spaces nor colons"
                raise UserError(f"{path}: kernels cannot be built under a path with a space or colon", "use --run-dir")
        return places


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
        since_ns = marker.stat().st_mtime_ns
        for path in [path for path, mtime_ns in _dates(places.build) if mtime_ns >= since_ns]:
            Path(path).unlink()


def begin_anew(places: BuildPlaces, why: str) -> None:
    """Empty the build directory; that and ``why`` are told in the build log. Raises ``OSError``."""
    left = list(places.build.iterdir())
    if left != [places.state]:
        with places.log.open("a", encoding="utf-8") as log:
            log.write(f"bisector: {why}: everything is built again\n")
    for path in left:
        remove_whole(path)
    places.state.mkdir()
    # Sources that were checked out by a clock that was ahead would be compiled in every build, with a warning.
    for source in _of_the_future(places.source):
        os.utime(source, follow_symlinks=False)


@contextmanager
def building(places: BuildPlaces) -> Iterator[None]:
    """Have the build directory known as unfinished until make has ended by itself.

    Raises :class:`InfraError`, and empties the build directory, when the clock was set back meanwhile: make
    may have left out what it had to compile, or what fails may be of other sources.
    """
    begun = Moment.now()
    begun.write(places.state / _BUILDING)
    log_bytes = places.log_bytes()
    try:
        yield
    except KernelFault as fault:
        # Before 9c2af1c7377a ("kbuild: add .DELETE_ON_ERROR special target") (in v4.19) a make that fails by itself
        # leaves half-made targets behind.
        rules = sources.text(places.source, "scripts/Kbuild.include") or ""
        tidy = fault.kind is not FaultKind.BUILD_TIMEOUT and ".DELETE_ON_ERROR:" in rules
        _check_clock(places, begun, log_bytes)
        if tidy:
            _finish(places.state)
        raise
    _check_clock(places, begun, log_bytes)
    _finish(places.state)


def _finish(state: Path) -> None:
    Moment.now().write(state / _FINISHED)
    (state / _BUILDING).unlink()


def remove_strays(build: Path, source: Path) -> tuple[str, ...]:
    """Remove links that lead out of the build and the source, and what is not a file at all; what each of them was.

    Kbuild's own links lead within the two (``source``, and in modules_install ``build``). Directories in such a depth
    that their names are too long go, too; what is left can be read and written by its owner. Raises ``OSError``.
    """
    removed = []
    for entry in _odd(build):
        path = Path(entry.path)
        if entry.is_symlink():
            if any(Path(os.path.realpath(path)).is_relative_to(place) for place in (build, source)):
                continue
            what = f"a link to {path.readlink()}"
        else:
            what = "a directory in too many others" if entry.is_dir() else "neither a file nor a directory"
        remove_whole(path)
        removed.append(f"{path}, {what}")
    return tuple(removed)


@contextmanager
def blamed_on_make(build: Path) -> Iterator[None]:
    """Raise :class:`KernelFault` where a file of the build is not there, not a file, or in nobody's reach."""
    try:
        yield
    except OSError as error:
        path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else build
        if error.errno not in _OF_MAKE or build not in path.parents:
            raise
        reason = f"make leaves no file {path.relative_to(build)} that can be read: {error.strerror}"
        raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, reason) from error


def _check_clock(places: BuildPlaces, begun: Moment, log_bytes: int) -> None:
    """Raise :class:`InfraError` where times of files may have misled make, by its own warnings and by what it wrote.

    A clock that was set forward and back again leaves files that are newer than what a later commit changes. A file
    server may have a clock of its own.
    """
    why = begun.why_unfit(Moment.now())
    if why is None:
        wrong = [line for line in places.logged_since(log_bytes) if _SKEW.match(line)]
        wrong += [f"{path} is of the future" for path in _of_the_future(places.build)]
        why = f"the clock was wrong ({wrong[0]})" if wrong else None
    if why is not None:
        begin_anew(places, why)
        raise InfraError(f"{why} during the kernel build", _HINT)


def _of_the_future(directory: Path) -> list[str]:
    latest_ns = time.time_ns() + _SAME_CLOCK_NS
    return [path for path, mtime_ns in _dates(directory) if mtime_ns > latest_ns]


def _dates(directory: Path) -> Iterator[tuple[str, int]]:
    """Every file at and below a directory with its modification time in ns; thousands in a build, 80,000 in a tree."""
    return ((one.path, one.stat(follow_symlinks=False).st_mtime_ns) for one in files_below(directory))


def _odd(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below that is no plain file, and no directory that can be gone through."""
    longest = len(os.fsencode(directory)) + _LONGEST_BYTES
    _let_us(directory, directory.stat().st_mode, stat.S_IRWXU)
    below = [os.fspath(directory)]
    while below:
        with os.scandir(below.pop()) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    _let_us(entry, entry.stat(follow_symlinks=False).st_mode, stat.S_IRUSR | stat.S_IWUSR)
                elif entry.is_dir(follow_symlinks=False) and len(os.fsencode(entry.path)) <= longest:
                    _let_us(entry, entry.stat(follow_symlinks=False).st_mode, stat.S_IRWXU)
                    below.append(entry.path)
                else:
                    yield entry


def _let_us(path: os.PathLike[str], mode: int, rights: int) -> None:
    """Let the owner do that: a rule may take it from a directory. Nothing else is at work there meanwhile."""
    if mode & rights != rights:
        Path(path).chmod(stat.S_IMODE(mode) | rights)
