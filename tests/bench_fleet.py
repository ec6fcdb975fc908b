"""What hosts cost beside their trials: ``python -m tests.bench_fleet [TRIALS]``; ``make bench`` runs a short one.

Three real workers with TLS and trials of about 2 s that measure nothing; 32 simulated hosts; and what 32 idle workers
take. The three share the CPUs of one machine, which hosts do not: where their trials end in the same moment each waits
for the others, so no two trials take the same time.
"""

import heapq
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bisector.executor.base import Failed, Finished, Job
from bisector.executor.cluster.coordinator import Coordinator
from bisector.executor.cluster.security import door
from bisector.executor.hosts import Came, Host, HostNews, Word
from bisector.executor.remote import RemoteExecutor
from bisector.executor.spec import Key, Spec
from bisector.executor.watch import Returned
from bisector.fleet.versions import compared
from bisector.store.log import now
from bisector.trial.runner import TrialRequest
from tests import examples, fakes
from tests.executor import engines, fleet
from tests.executor.bench import settings_of
from tests.executor.fleet import Authority

WORKERS, SIMULATED = 3, 32
TRIALS = 150
FIRST = 3 * WORKERS
COMMIT = examples.commit(7)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def job(id_: int) -> Job:
    return Job(id_, TrialRequest(id_, examples.cell(COMMIT), {}))


@dataclass
class Done:
    """Trials, and the seconds that they took: all together, and each by its number until it was heard of."""

    took_s: float = 0.0
    each_s: dict[int, float] = field(default_factory=dict)


def done(executor: RemoteExecutor, trials: int, before: int = 0) -> Done:
    """So many trials, each host given the next one as soon as it is idle; ``before`` have been made."""
    made, began, submitted = Done(), time.monotonic(), dict[int, float]()
    while len(made.each_s) < trials:
        for host in executor.idle[: trials - len(submitted)]:
            number = before + len(submitted) + 1
            submitted[number] = time.monotonic()
            executor.submit(job(number), host)
        news = executor.next()
        if isinstance(news, Failed):
            raise news.error
        if isinstance(news, Finished):
            made.each_s[news.id] = time.monotonic() - submitted[news.id]
            executor.acknowledge(news.id)
    made.took_s = time.monotonic() - began
    return made


def beside_ms(made: Done) -> list[float]:
    """What each trial took longer than it measured, the shortest first."""
    return sorted((each_s - engines.timed_s(id_)) * 1000 for id_, each_s in made.each_s.items())


@dataclass
class Simulated:
    """Hosts whose trials end after their time, and take nothing."""

    names: tuple[str, ...]
    ends: list[tuple[float, int, Key]] = field(default_factory=list)

    def hosts(self) -> tuple[Host, ...]:
        return tuple(Host(name, name, name, compared()) for name in self.names)

    def submit(self, address: str, work: Spec | Key, attempt: int) -> None:
        key = work.key if isinstance(work, Spec) else work
        heapq.heappush(self.ends, (time.monotonic() + engines.TIMED_S, attempt, key))

    def send(self, address: str, word: Word, key: Key) -> None:
        pass

    def news(self, timeout_s: float) -> HostNews | None:
        if not self.ends or (wait_s := self.ends[0][0] - time.monotonic()) > timeout_s:
            return None
        time.sleep(max(0.0, wait_s))
        _, attempt, key = heapq.heappop(self.ends)
        return Came(Returned(key, Finished(key.id, "", fakes.trial(COMMIT), now())), attempt)


def resident_mib(pid: int) -> float:
    (line,) = (one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def real(where: Path, trials: int) -> None:
    authority = Authority.new()
    own, other = authority.certify(where / "own"), authority.certify(where / "other")
    with ExitStack() as stack:
        coordinator = stack.enter_context(Coordinator(door("tls://127.0.0.1:0", own)))
        for number in range(WORKERS):
            spool = where / f"bench{number}" / "spool"
            stack.enter_context(fleet.worker(coordinator.address, other, spool, f"bench{number}", engines.TIMED))
        executor = fleet.executor(coordinator, where / "run")
        executor.wait_for_hosts(WORKERS, engines.WAIT_S)
        first = beside_ms(done(executor, FIRST))  # while interpreters load what jobs need
        made = done(executor, trials, FIRST)
    each = beside_ms(made)
    overhead = f"{sum(each) / trials:.0f} ms beside each in the mean, {each[trials // 2]:.0f} in the median"
    say(f"{trials} trials of about {engines.TIMED_S:g} s on {WORKERS} workers: {made.took_s:.1f} s, {overhead}")
    say(f"the first {FIRST}: {sum(first) / FIRST:.0f} ms in the mean, {first[-1]:.0f} at most")


def simulated(where: Path, trials: int) -> None:
    executor = RemoteExecutor(
        Simulated(tuple(f"host{number}" for number in range(SIMULATED))),
        "run",
        where,
        settings_of("lvmcache"),
        compared(),
        lambda: (fakes.GCC,),
        lambda event: None,
    )
    took_s = done(executor, trials).took_s
    busy = trials * engines.TIMED_S / (SIMULATED * took_s)
    say(f"{trials} trials on {SIMULATED} simulated hosts: {took_s:.1f} s, {busy:.1%} busy")


def memory(where: Path) -> None:
    authority = Authority.new()
    own, other = authority.certify(where / "own"), authority.certify(where / "other")
    with ExitStack() as stack:
        coordinator = stack.enter_context(Coordinator(door("tls://127.0.0.1:0", own)))
        workers = [
            stack.enter_context(
                fleet.worker(coordinator.address, other, where / f"bench{number}" / "spool", f"bench{number}")
            )
            for number in range(SIMULATED)
        ]
        executor = fleet.executor(coordinator, where / "run")
        executor.wait_for_hosts(SIMULATED, 10 * engines.WAIT_S)
        idle = [resident_mib(one.child.pid) for one in workers]
        say(f"coordinator with {SIMULATED} workers: {resident_mib(os.getpid()):.0f} MiB resident")
        say(f"an idle worker: {max(idle):.0f} MiB resident at most, {sum(idle) / len(idle):.0f} MiB in the mean")


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS
    for what in (lambda where: real(where, trials), lambda where: simulated(where, 20 * SIMULATED), memory):
        with tempfile.TemporaryDirectory() as scratch:
            what(Path(scratch))


if __name__ == "__main__":
    main()
