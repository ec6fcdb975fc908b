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
from bisector.executor.at_once import AtOnce, guests_at_once
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


Equip = Callable[[Settings, Path, Repository, Listener], AbstractContextManager[Equipment]]


@contextmanager
def here(settings: Settings, run_dir: Path, repository: Repository, tell: Listener) -> Iterator[Equipment]:
    """The equipment of this host, for as long as the bisection lasts."""
    with local_executor(settings, run_dir, repository, tell) as local:
        kin = Kinship(Trees(repository), local.bench.builder, settings.bisect.first_parent)
        guests = guests_at_once(settings)
        if guests == 1:
            yield Equipment(local, kin)
            return
        with AtOnce(local, guests) as executor:
            yield Equipment(executor, kin, crew=Crew(guests=guests))
