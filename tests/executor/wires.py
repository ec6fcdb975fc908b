"""A connection to other hosts that a test speaks for, and an executor on it."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bisector.core.errors import BisectorError
from bisector.core.events import Listener
from bisector.executor.base import Failed, Finished, Job, News
from bisector.executor.hosts import (
    Came,
    Host,
    HostNews,
    Word,
)
from bisector.executor.remote import RemoteExecutor
from bisector.executor.spec import Key, Spec
from bisector.executor.spool import Standing
from bisector.executor.watch import Returned
from bisector.trial.runner import TrialRequest
from tests import examples, fakes
from tests.executor.bench import COMMIT, settings_of

RUN = "run"

VERSIONS = (("bisector", "1.0"), ("Python", "3.11"))


@dataclass
class Wires:
    """A connection that a test speaks for."""

    heard: deque[HostNews] = field(default_factory=deque)
    known: tuple[Host, ...] = ()
    submitted: list[tuple[str, Key, int, bool]] = field(default_factory=list)
    sent: list[tuple[str, Word, Key]] = field(default_factory=list)
    timeouts_s: list[float] = field(default_factory=list)
    kernels: list[tuple[str, ...]] = field(default_factory=list)
    specs: list[Spec] = field(default_factory=list)

    def hosts(self) -> tuple[Host, ...]:
        return self.known

    def submit(self, address: str, work: Spec | Key, attempt: int) -> None:
        key = work.key if isinstance(work, Spec) else work
        self.submitted.append((address, key, attempt, isinstance(work, Spec)))
        self.kernels += [work.kernels] if isinstance(work, Spec) else []
        self.specs += [work] if isinstance(work, Spec) else []

    def send(self, address: str, word: Word, key: Key) -> None:
        self.sent.append((address, word, key))

    def news(self, timeout_s: float) -> HostNews | None:
        self.timeouts_s.append(timeout_s)
        assert timeout_s < 1 or self.heard, f"this would wait for {timeout_s} s"
        return self.heard.popleft() if self.heard else None


def host(
    address: str = "tls://1", name: str = "bench1", held: tuple[tuple[int, Standing], ...] = (), run: str = RUN
) -> Host:
    return Host(address, name, f"{name} boot", VERSIONS, tuple((Key(run, id_), how) for id_, how in held))


def executor(
    wires: Wires,
    run_dir: Path,
    before: Mapping[int, str] | None = None,
    patience_s: float = 300.0,
    tell: Listener = lambda event: None,
    *,
    lost: tuple[int, ...] = (),
) -> RemoteExecutor:
    settings = settings_of("lvmcache")
    return RemoteExecutor(
        wires, RUN, run_dir, settings, VERSIONS, lambda: (fakes.GCC,), tell, before or {}, patience_s, lost
    )


def job(id_: int) -> Job:
    return Job(id_, TrialRequest(id_, examples.cell(COMMIT), {}))


def came(id_: int, figure: float = 1000.0, attempt: int = 1, run: str = RUN) -> Came:
    return Came(Returned(Key(run, id_), Finished(id_, "there", fakes.trial(COMMIT, figure), "now")), attempt)


def error_of(news: News) -> BisectorError:
    assert isinstance(news, Failed)
    return news.error


def nothing_more(remote: RemoteExecutor) -> None:
    with pytest.raises(ValueError, match="no job"):
        remote.next()
