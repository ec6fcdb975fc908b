"""Several hosts as an executor, each a bench of its own: what they do ends in any order."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bisector.core.subject import Compiler
from bisector.executor.base import Failed, Finished, Job, News, cancelled
from tests import fakes


@dataclass
class Executor:
    """What an executor over benches has beside them."""

    open: dict[Any, Job] = field(default_factory=dict, init=False)
    cancelled: set[int] = field(default_factory=set, init=False)
    most: int = field(default=0, init=False)

    def wait(self, within_s: float | None) -> bool:
        return bool(self.open)

    def cancel(self, id_: int) -> None:
        self.cancelled.add(id_)

    def compilers(self) -> tuple[Compiler, ...]:
        return (fakes.GCC,)

    def done(self, bench: fakes.FakeExecutor, key: Any) -> Finished | Failed:
        """The end of what is under way by its key."""
        job = self.open.pop(key)
        if job.id in self.cancelled:
            return cancelled(job, fakes.HOST)
        bench.submit(job)
        while not isinstance(news := bench.next(), Finished | Failed):
            pass
        return news


@dataclass
class Fleet(Executor):
    """Benches by name; what each is at ends in an order that ``order`` draws, or in that of submission."""

    benches: Mapping[str, fakes.FakeExecutor]
    order: random.Random | None = None
    gone: set[str] = field(default_factory=set)
    pairs: list[tuple[str, str]] = field(default_factory=list)

    @property
    def idle(self) -> tuple[str, ...]:
        return tuple(name for name in self.benches if name not in self.open and name not in self.gone)

    def submit(self, job: Job, host: str = "") -> None:
        assert host in self.idle
        self.open[host] = job
        self.most = max(self.most, len(self.open))
        self.pairs.append((host, job.request.commit.sha))

    def next(self) -> News:
        if not self.open:
            raise ValueError("no job was submitted")
        oldest = min(self.open, key=lambda name: self.open[name].id)
        host = self.order.choice(sorted(self.open)) if self.order is not None else oldest
        return replace(self.done(self.benches[host], host), host=host)


@dataclass
class Guests(Executor):
    """So many guests at a time of one host, whose trials end in an order that is drawn."""

    bench: fakes.FakeExecutor
    count: int
    order: random.Random

    @property
    def idle(self) -> tuple[str, ...]:
        return self.bench.idle if len(self.open) < self.count else ()

    def submit(self, job: Job, host: str = "") -> None:
        requests = (one.request for one in (*self.open.values(), job))
        matters = Counter((type(one), one.commit.sha, getattr(one, "seed", None)) for one in requests)
        assert max(matters.values()) == 1
        self.open[job.id] = job
        self.most = max(self.most, len(self.open))

    def next(self) -> News:
        if not self.open:
            raise ValueError("no job was submitted")
        return self.done(self.bench, self.order.choice(sorted(self.open)))
