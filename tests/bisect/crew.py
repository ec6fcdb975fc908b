"""Several hosts as an executor, each a bench of its own: what they do ends in any order."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bisector.core.subject import Compiler
from bisector.executor.base import Failed, Finished, Job, News, cancelled
from tests import fakes


@dataclass
class Fleet:
    """Benches by name; what each is at ends in an order that ``order`` draws, or in that of submission."""

    benches: Mapping[str, fakes.FakeExecutor]
    order: random.Random | None = None
    open: dict[str, Job] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    cancelled: set[int] = field(default_factory=set)
    acknowledged: list[int] = field(default_factory=list)
    most: int = 0
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
        job = self.open.pop(host)
        if job.id in self.cancelled:
            return cancelled(job, host)
        bench = self.benches[host]
        bench.submit(job)
        while not isinstance(news := bench.next(), Finished | Failed):
            pass
        return replace(news, host=host)

    def wait(self, within_s: float | None) -> bool:
        return bool(self.open)

    def acknowledge(self, id_: int) -> None:
        self.acknowledged.append(id_)

    def cancel(self, id_: int) -> None:
        self.cancelled.add(id_)

    def over(self) -> None:
        assert not self.open

    def compilers(self) -> tuple[Compiler, ...]:
        return (fakes.GCC,)


@dataclass
class Guests:
    """So many guests at a time of one host, whose trials end in an order that is drawn."""

    bench: fakes.FakeExecutor
    count: int
    order: random.Random
    open: dict[int, Job] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    most: int = 0

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
        job = self.open.pop(self.order.choice(sorted(self.open)))
        if job.id in self.cancelled:
            return cancelled(job, fakes.HOST)
        self.bench.submit(job)
        while not isinstance(news := self.bench.next(), Finished | Failed):
            pass
        return news

    def wait(self, within_s: float | None) -> bool:
        return bool(self.open)

    def acknowledge(self, id_: int) -> None:
        pass

    def cancel(self, id_: int) -> None:
        self.cancelled.add(id_)

    def over(self) -> None:
        assert not self.open

    def compilers(self) -> tuple[Compiler, ...]:
        return (fakes.GCC,)
