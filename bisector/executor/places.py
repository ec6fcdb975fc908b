"""What runs leave on a host, ``SPOOL/RUN/place`` with sources and a build directory of gigabytes: what goes, and when.

The coordinator says when a run is over; but it may be killed, or the host be away, so a place goes as well when no job
has used it for long, or when those of other runs take too much room. The one that was used last has its next job
coming, most likely, and stays. Nothing is removed while a job of any run is under way: that would disturb it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from bisector.core.errors import BisectorError
from bisector.executor.spool import PLACE, Spool
from bisector.git.repository import Repository
from bisector.git.worktrees import remove_leftovers
from bisector.host.files import files_below, our_files, remove_whole
from bisector.store.rundir import LOCK

KEPT_S = 14 * 24 * 3600.0  # longer than most runs are left alone, to be gone on with
KEPT_BYTES = 20 << 30  # about six kernel trees with what was built in them
_OVER = "over"
_GONE = ".gone-"
_BLOCK_BYTES = 512  # of st_blocks (stat(2))


@dataclass(frozen=True, slots=True)
class Place:
    """What a run has left; last used in seconds since 1970."""

    run: Path
    used_at: float
    size_bytes: int = 0


def to_remove(
    places: Sequence[Place], now: float, kept_s: float = KEPT_S, kept_bytes: int = KEPT_BYTES
) -> tuple[Path, ...]:
    """The runs whose places go, without a word that they are over; the one used last goes by its age alone."""
    newest_first = sorted(places, key=lambda place: place.used_at, reverse=True)
    # The size of the newest is none of the sum.
    sums = (0, *accumulate(place.size_bytes for place in newest_first[1:]))
    return tuple(
        place.run
        for place, sum_bytes in zip(newest_first, sums[: len(newest_first)], strict=True)
        if sum_bytes > kept_bytes or now - place.used_at > kept_s
    )


@dataclass(slots=True)
class Places:
    """The places of a spool; the caller sees to it that no job of it is under way, or begun, meanwhile."""

    spool: Spool
    repository: Path
    _sizes: dict[tuple[Path, float], int] = field(default_factory=dict, init=False)

    def mark_over(self, run: str) -> None:
        """Note that a run is over, for :meth:`clear`."""
        with suppress(FileNotFoundError):  # nothing of it is here
            (self.spool.home / run / _OVER).touch()

    def mark_begun(self, run: str) -> None:
        """Note that a run goes on."""
        (self.spool.home / run / _OVER).unlink(missing_ok=True)

    def is_over(self, run: str) -> bool:
        """Whether a run is over, and something of it still here."""
        return (self.spool.home / run / _OVER).exists()

    def clear(self, now: float, sweep: Callable[[Path], object]) -> tuple[str, ...]:
        """Remove what goes; ``sweep`` ends what still works in a place. A sentence for each run.

        Raises :class:`bisector.core.errors.InfraError`.
        """
        told = []
        with our_files(self.spool.home):
            for gone in self.spool.home.glob(f"*/{_GONE}*"):  # of a worker that was killed meanwhile
                remove_whole(gone)
            for run in [path.parent for path in self.spool.home.glob(f"*/{_OVER}")]:
                for entry in self.spool.entries():
                    if entry.key.run == run.name:
                        entry.remove()
                self._remove(run, sweep)
                told.append(f"run {run.name} is over: what it had left is removed")
            for run in to_remove(tuple(self._found()), now):
                self._remove(run, sweep)
                told.append(f"sources and build of run {run.name} are removed: unused, or too much")
        return tuple(told)

    def _found(self) -> Iterator[Place]:
        times = {place.parent: _used_at(place) for place in self.spool.home.glob(f"*/{PLACE}")}
        newest = max(times.values(), default=0.0)
        for run, used_at in times.items():
            # Of the newest the size does not matter, and changes.
            yield Place(run, used_at, 0 if used_at == newest else self._size(run / PLACE, used_at))

    def _size(self, place: Path, used_at: float) -> int:
        """Its size; gone through once as long as nobody uses it."""
        key = (place, used_at)
        if key not in self._sizes:
            self._sizes[key] = sum(
                entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES for entry in files_below(place)
            )
        return self._sizes[key]

    def _remove(self, run: Path, sweep: Callable[[Path], object]) -> None:
        """Remove the place of a run, and its directory if there are no results in it."""
        place = run / PLACE
        if place.is_dir():
            sweep(place)
            # The clone may be gone; then so is what was registered in it.
            with suppress(BisectorError), Repository.open(self.repository) as opened:
                remove_leftovers(opened, place)
            gone = run / f"{_GONE}{PLACE}"
            place.rename(gone)
            remove_whole(gone)
        (run / _OVER).unlink(missing_ok=True)
        with suppress(OSError):  # results are in it
            run.rmdir()


def _used_at(place: Path) -> float:
    """When a job used it last: each writes its lock anew."""
    lock = place / LOCK
    return (lock if lock.exists() else place).stat().st_mtime
