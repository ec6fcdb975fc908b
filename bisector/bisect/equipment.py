"""What a run measures with: this host, unless somebody says otherwise (:mod:`bisector.bisect.on_hosts`)."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bisector.bisect.facts import Crew
from bisector.bisect.git_side import Kin, Kinship
from bisector.config import Settings
from bisector.core.events import Listener
from bisector.executor.at_once import AtOnce, guests_at_once, has_cpu_left
from bisector.executor.base import Executor
from bisector.executor.local import local_executor
from bisector.git.repository import Repository
from bisector.git.trees import Trees


@dataclass(frozen=True, slots=True)
class Equipment:
    """What measures commits, what knows of kernels without building them, and what waits between two attempts.

    ``adopted`` are an earlier process's submissions of which the executor still hears, and ``crew`` the hosts that a
    person has named, where there are several, or the guests that measure at a time.
    """

    executor: Executor
    kin: Kin
    pause: Callable[[float], None] = time.sleep
    adopted: tuple[int, ...] = ()
    crew: Crew = field(default_factory=Crew)


@dataclass(slots=True)
class Places:
    """What people are told the guests of a host are called, of which so many measure at a time.

    One alone has no name, unless it is ``named`` since something else is told of, too.
    """

    count: int = 1
    named: bool = False
    _taken: dict[int, str] = field(default_factory=dict, init=False)

    @property
    def free(self) -> str:
        """The name of the next guest."""
        names = (f"guest {number}" for number in range(1, self.count + 1))
        is_named = self.named or self.count > 1
        return next((name for name in names if is_named and name not in self._taken.values()), "")

    def take(self, id_: int) -> None:
        """Give the next guest to what was submitted under a number."""
        self._taken[id_] = self.free

    def leave(self, id_: int) -> None:
        """What was submitted under a number has ended."""
        self._taken.pop(id_, None)

    def of(self, id_: int) -> str:
        """The name of the guest of what was submitted under a number; empty without one."""
        return self._taken.get(id_, "")


# What people are told the CPU that builds ahead is called, where no guest needs it.
_BUILDER = "builder"

Equip = Callable[[Settings, Path, Repository, Listener], AbstractContextManager[Equipment]]


@contextmanager
def here(settings: Settings, run_dir: Path, repository: Repository, tell: Listener) -> Iterator[Equipment]:
    """The equipment of this host, for as long as the bisection lasts."""
    with local_executor(settings, run_dir, repository, tell) as local:
        kin = Kinship(Trees(repository), local.bench.builder, settings.bisect.first_parent)
        guests = guests_at_once(settings)
        builders = (_BUILDER,) if has_cpu_left(settings, guests) else ()
        if guests == 1 and not builders:
            yield Equipment(local, kin)
            return
        with AtOnce(local, guests, *builders) as executor:
            yield Equipment(executor, kin, crew=Crew(builders=frozenset(builders), guests=guests))
