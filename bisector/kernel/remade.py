"""How much of a build make does again for a commit, as an earlier build tells it.

make compiles a target again when a file that it read has changed, or an option that it asked for. An earlier build says
how many targets that are (:class:`bisector.kernel.sources.Sources`): one has read ``fork.c``, nearly all ``fs.h``.

Whether a change of a Kconfig file sets an option anew nobody can tell without make. But the configurations of both ends
of a range say in which options they differ, and each of these was set by one of the commits that touch Kconfig files:
all of them alike have their part of it. A file that counts and that no compiler has read (a Makefile, one that is new)
is taken for one target.

Shares are added as logarithms: of two commits that each make half of everything again, and know nothing of each other,
three quarters come.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import expm1, log1p
from pathlib import Path, PurePosixPath

from bisector.core.subject import Change, Mattering
from bisector.kernel import kconfig
from bisector.kernel.sources import Sources

_MOST = 0.99  # of all targets; of all the logarithm is infinite


def set_anew(old: Path, new: Path) -> frozenset[str]:
    """The options in which two .config files differ; none where one of them is not there any more."""
    with suppress(OSError):
        before, after = kconfig.read_effective(old), kconfig.read_effective(new)
        both = before.keys() | after.keys()
        return frozenset(name for name in both if before.get(name, kconfig.NOT_SET) != after.get(name, kconfig.NOT_SET))
    return frozenset()


@dataclass(frozen=True, slots=True)
class Ends:
    """What the builds of both ends read, as far as that is known, and the options in which their kernels differ."""

    reads: tuple[Sources, ...]
    options: frozenset[str] = frozenset()

    def mattering(self, commits: int, changes: Iterable[tuple[str, Change]]) -> Mattering:
        """Which of so many commits change what counts for one of the builds, and what is made again for each."""

        @cache  # most commits change files that others change, too
        def work(change: Change) -> tuple[float, bool] | None:
            counting = [read for read in self.reads if read.counts(change)]
            if not counting:
                return None
            configures = PurePosixPath(change.path).name.startswith("Kconfig")
            return max(_work(read, change.path, 1) for read in counting), configures

        works: dict[str, float] = {}
        configuring: set[str] = set()
        for sha, change in changes:
            if (found := work(change)) is not None:
                works[sha] = works.get(sha, 0.0) + found[0]
                if found[1]:
                    configuring.add(sha)
        for sha in configuring:
            works[sha] += self._configured / len(configuring)
        return Mattering(commits, frozenset(works), self._shares(works))

    @property
    def _configured(self) -> float:
        """What is made again for all options together."""
        return sum(max(_work(read, option, 0) for read in self.reads) for option in self.options)

    def _shares(self, works: Mapping[str, float]) -> dict[str, float]:
        """None where a build did not count: an earlier version kept it."""
        known = all(read.targets for read in self.reads)
        return {sha: -expm1(-work) for sha, work in works.items()} if known else {}


def _work(read: Sources, name: str, otherwise: int) -> float:
    """Of a file, or an option, by the number of targets that asked for it."""
    share = read.readers.get(name, otherwise) / read.targets if read.targets else 0.0
    return -log1p(-min(share, _MOST))
