"""Sources on their way from a coordinator to its hosts: each object once, whatever is cut or killed on the way."""

import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bisector.core.deadline import Deadline
from bisector.core.errors import AttemptCancelled, AttemptFailed, BisectorError, InfraError
from bisector.core.subject import Commit, Kind
from bisector.executor import freight
from bisector.executor.base import Failed, Finished, Job, Progress
from bisector.executor.cluster.coordinator import Coordinator
from bisector.executor.cluster.security import door
from bisector.executor.cluster.wire import RemoteReceiver, answered
from bisector.executor.freight import Part
from bisector.executor.remote import RemoteExecutor
from bisector.executor.spec import Spec
from bisector.executor.spool import Spool
from bisector.executor.stock import Stock
from bisector.executor.supply import Supplies
from bisector.git import packs
from bisector.git.mirror import Mirror
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.git.trees import ChangedCommit, changed_end
from bisector.host import locks
from bisector.host.process import run
from bisector.kernel.cache import KernelCache
from bisector.trial.runner import TrialRequest
from tests import examples
from tests.executor import engines, fleet, giving
from tests.executor.bench import settings_of
from tests.executor.engines import WAIT_S, let_go, plan, reached
from tests.git.histories import KERNEL_TREE, Node, build

RUN = "run"
NODES = (
    Node("c0", files={**KERNEL_TREE, "big.c": f"{random.Random(7).randbytes(40_000).hex()}\n", "one.c": "zero\n"}),
    Node("c1", ("c0",), files={"one.c": "one\n"}),
    Node("c2", ("c1",), files={"two.c": "two\n"}),
)
PART_BYTES = 10_000  # the big file makes five of them


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freight, "PART_BYTES", PART_BYTES)


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    build(tmp_path / "linux", NODES)
    with Repository.open(tmp_path / "linux") as opened:
        yield opened


@pytest.fixture
def supplies(repository: Repository, tmp_path: Path) -> Supplies:
    (tmp_path / "packs").mkdir()
    return Supplies(repository, KernelCache(tmp_path / "kernels", 1 << 30), tmp_path / "packs")


def commit(repository: Repository, back: int = 0) -> Commit:
    return repository.resolve(f"main~{back}")


@dataclass
class Counted(Stock):
    """Counts what arrives, and is gone when so many parts have."""

    gone_after: int = 1000
    parts: list[int] = field(default_factory=list)

    def add(self, part: Part) -> int:
        if part.content:
            if len(self.parts) >= self.gone_after:
                raise ConnectionError("cut")
            self.parts.append(part.offset)
        return super().add(part)


def host(tmp_path: Path, name: str = "bench1", borrowed: Path | None = None, gone_after: int = 1000) -> Counted:
    return Counted(
        Spool(tmp_path / name / "spool"), borrowed, engines.kernels(tmp_path / name), lambda text: None, gone_after
    )


def test_each_object_is_sent_once(supplies: Supplies, tmp_path: Path) -> None:
    bench, newest, older = host(tmp_path), commit(supplies.repository), commit(supplies.repository, 2)
    supplies.give_sources(bench, RUN, older.sha)
    assert len(bench.parts) == 5
    supplies.give_sources(bench, RUN, newest.sha)
    assert len(bench.parts) == 6
    supplies.give_sources(bench, "another run", newest.sha)
    supplies.give_sources(host(tmp_path), RUN, older.sha)
    assert len(bench.parts) == 6
    bench.release(RUN)
    assert Mirror(bench.spool.sources).known() == (newest.sha,)
    with Repository.open(bench.spool.sources) as mirror, SourceTree(mirror, tmp_path / "place") as tree:
        assert (tree.checkout(newest) / "two.c").read_text() == "two\n"
        assert (tree.checkout(older) / "one.c").read_text() == "zero\n"


def test_a_pack_is_made_once_for_all_hosts(supplies: Supplies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sha = commit(supplies.repository).sha
    supplies.give_sources(host(tmp_path), RUN, sha)
    monkeypatch.setattr("bisector.git.packs.pack", lambda *words: pytest.fail("it is made again"))
    other = host(tmp_path, "bench2")
    supplies.give_sources(other, RUN, sha)
    assert len(other.parts) == 5


def test_what_a_clone_there_has_is_not_sent(supplies: Supplies, tmp_path: Path) -> None:
    build(tmp_path / "clone", NODES[:2])
    bench = host(tmp_path, borrowed=tmp_path / "clone")
    supplies.give_sources(bench, RUN, commit(supplies.repository).sha)
    assert len(bench.parts) == 1
    supplies.give_sources(bench, RUN, commit(supplies.repository, 1).sha)
    assert len(bench.parts) == 1


def test_an_attempt_that_was_cut_goes_on_where_it_was(supplies: Supplies, tmp_path: Path) -> None:
    sha = commit(supplies.repository).sha
    with pytest.raises(ConnectionError):
        supplies.give_sources(host(tmp_path, gone_after=3), RUN, sha)
    again = host(tmp_path)
    supplies.give_sources(again, RUN, sha)
    assert again.parts == [3 * PART_BYTES, 4 * PART_BYTES]
    assert not list((again.spool.transfers / "arriving").iterdir())


@pytest.mark.parametrize("damage", ["zeros", "longer"])
def test_what_a_power_failure_has_damaged_is_sent_anew(supplies: Supplies, tmp_path: Path, damage: str) -> None:
    sha = commit(supplies.repository).sha
    with pytest.raises(ConnectionError):
        supplies.give_sources(host(tmp_path, gone_after=3), RUN, sha)
    (half,) = (tmp_path / "bench1/spool/transfers/arriving").iterdir()
    half.write_bytes(bytes(3 * PART_BYTES if damage == "zeros" else 10 * PART_BYTES))
    again = host(tmp_path)
    supplies.give_sources(again, RUN, sha)
    assert again.parts[-5:] == [n * PART_BYTES for n in range(5)]


def test_a_half_of_another_file_goes(supplies: Supplies, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        supplies.give_sources(host(tmp_path, gone_after=3), RUN, commit(supplies.repository).sha)
    bench = host(tmp_path)
    supplies.give_sources(bench, RUN, commit(supplies.repository, 2).sha)
    assert not list((bench.spool.transfers / "arriving").iterdir())


def test_deltas_that_a_host_cannot_use_are_followed_by_all(supplies: Supplies, tmp_path: Path) -> None:
    build(tmp_path / "clone", NODES)
    borrowing, sha = host(tmp_path, borrowed=tmp_path / "clone"), commit(supplies.repository, 1).sha
    supplies.give_sources(borrowing, RUN, sha)
    bench = host(tmp_path)  # without the clone that the other one had
    supplies.give_sources(bench, RUN, sha)
    assert len(bench.parts) == 1 + 5
    supplies.give_sources(bench, RUN, commit(supplies.repository).sha)
    assert len(bench.parts) == 7


def test_a_commit_that_the_coordinator_lacks_is_its_own_trouble(supplies: Supplies, tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="git"):
        supplies.give_sources(host(tmp_path), RUN, "1" * 40)


def test_a_name_that_is_no_digest_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="no digest"):
        host(tmp_path).add(Part("../../x", 1, 0, b"x"))


def test_what_is_not_what_was_sent_is_not_given_to_git(supplies: Supplies, tmp_path: Path) -> None:
    bench, sha = host(tmp_path), commit(supplies.repository).sha
    bench.holding(RUN, sha)
    digest = "0" * 64
    assert "did not arrive" in bench.unpack(RUN, sha, digest)
    bench.add(Part(digest, 1, 0, b"x"))
    assert "its digest differs" in bench.unpack(RUN, sha, digest)
    assert not list((bench.spool.transfers / "arriving").iterdir())


def test_nothing_is_taken_in_while_something_is_measured(supplies: Supplies, tmp_path: Path) -> None:
    bench, waits, sha = host(tmp_path), threading.Event(), commit(supplies.repository).sha
    bench.tell = lambda text: waits.set()
    with locks.measuring(tmp_path, lambda text: None):
        thread = threading.Thread(target=supplies.give_sources, args=(bench, RUN, sha))
        thread.start()
        assert waits.wait(WAIT_S)
        assert not bench.spool.sources.exists()
    thread.join(WAIT_S)
    assert len(bench.parts) == 5


def test_a_run_that_is_over_leaves_nothing(supplies: Supplies, tmp_path: Path) -> None:
    bench, found = host(tmp_path), commit(supplies.repository)
    supplies.give_sources(bench, RUN, found.sha)
    place = bench.spool.place(RUN)
    with Repository.open(bench.spool.sources) as mirror, SourceTree(mirror, place, keep=True) as tree:
        tree.checkout(found)
    request = TrialRequest(3, examples.cell(found), {})
    entry = bench.spool.entry(spec := Spec.of(RUN, Job(3, request), settings_of("lvmcache")).key)
    entry.path.mkdir()
    entry.take(Spec.of(RUN, Job(3, request), settings_of("lvmcache")))
    bench.release(spec.run)
    assert place.exists()  # for the job that is still there
    entry.remove()
    bench.release(spec.run)
    assert not place.parent.exists()
    assert not list((bench.spool.sources / "refs").rglob(found.sha))
    assert not (bench.spool.sources / "worktrees").exists()


def test_trouble_of_the_host_is_raised_at_the_other_end(tmp_path: Path) -> None:
    bench = host(tmp_path)
    remote = RemoteReceiver(lambda message: answered(bench, message))
    with pytest.raises(InfraError, match="no digest"):
        remote.add(Part("x", 1, 0, b"x"))
    assert not remote.holding(RUN, "1" * 40).whole
    with pytest.raises(InfraError, match="takes nothing in"):
        RemoteReceiver(lambda message: answered(None, message)).first(())
    bench.first = None  # type: ignore[method-assign, assignment]
    with pytest.raises(BisectorError, match="a bug in bisector on"):
        remote.first(())


@pytest.mark.fleet
def test_whenever_it_is_killed_a_host_is_left_with_sources_that_are_whole(supplies: Supplies, tmp_path: Path) -> None:
    """With a seed, so that a failure comes again."""
    shas = [one.sha for one in (commit(supplies.repository, back) for back in (2, 0, 1))]
    place, drawn = tmp_path / "bench1", random.Random(7)
    for _ in range(20):
        words = [sys.executable, "-m", giving.__name__, str(tmp_path / "linux"), str(place), *shas]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"begins\n"
            with suppress(subprocess.TimeoutExpired):
                child.wait(drawn.uniform(0.0, 0.25))
            child.kill()
        mirror = Mirror(place / "spool" / "sources.git")
        assert not mirror.path.exists() or all(map(mirror.has, mirror.known()))
        drawn.shuffle(shas)
        if drawn.random() < 0.2:
            shutil.rmtree(place / "spool")
    bench = host(tmp_path)
    for sha in shas:
        supplies.give_sources(bench, RUN, sha)
    run(["git", f"--git-dir={bench.spool.sources}", "fsck", "--strict", "--no-progress"], deadline_s=WAIT_S)
    left = [path for kind in ("*.lock", "tmp_*") for path in bench.spool.sources.rglob(kind)]
    assert [path for path in (*left, *bench.spool.transfers.rglob("*")) if path.is_file()] == []


# With processes, and connections between them


@dataclass
class Fleet:
    """A coordinator that has sources, and hosts that have none."""

    place: Path
    stack: ExitStack
    supplies: Supplies
    authority: fleet.Authority = field(default_factory=fleet.Authority.new)

    def __post_init__(self) -> None:
        own = self.authority.certify(self.place / "of-coordinator")
        self.other = self.authority.certify(self.place / "of-hosts")
        self.coordinator = self.stack.enter_context(Coordinator(door("tls://127.0.0.1:0", own), self.supplies))

    def spool(self, name: str = "bench1") -> Path:
        return self.place / name / "spool"

    def worker(self, name: str = "bench1", address: str = "") -> fleet.WorkerProcess:
        address = address or self.coordinator.address
        return self.stack.enter_context(fleet.worker(address, self.other, self.spool(name), name, engines.SOURCES))

    def executor(self) -> RemoteExecutor:
        made = fleet.executor(self.coordinator, self.place / "run", patience_s=WAIT_S)
        made.wait_for_hosts(1, WAIT_S)
        return made

    def parts(self, name: str = "bench1") -> int:
        path = self.spool(name) / "parts"
        return len(path.read_text().split()) if path.exists() else 0


@pytest.fixture
def hosts(supplies: Supplies, tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(tmp_path, stack, supplies)


def job(id_: int, wanted: Commit) -> Job:
    return Job(id_, TrialRequest(id_, examples.cell(wanted), {}))


def last_news(executor: RemoteExecutor) -> Finished | Failed:
    while isinstance(news := executor.next(), Progress):
        pass
    return news


def test_a_host_without_a_clone_builds_any_commit_a_made_one_too(hosts: Fleet) -> None:
    repository = hosts.supplies.repository
    hosts.worker()
    executor = hosts.executor()
    made = changed_end(repository, Kind.REVERTED, commit(repository, 1), commit(repository))
    assert isinstance(made, ChangedCommit)
    for id_, (wanted, text) in enumerate(((commit(repository), "one\n"), (made.commit, "zero\n")), 1):
        executor.submit(job(id_, wanted))
        assert isinstance(last_news(executor), Finished)
        assert (hosts.spool() / f"{id_}-one.c").read_text() == text
        executor.acknowledge(id_)
    assert hosts.parts() == 6
    executor.over()
    Deadline("the end of a run", WAIT_S).poll(lambda: True if not (hosts.spool() / RUN).exists() else None)


@pytest.mark.fleet
@pytest.mark.parametrize("how", ["killed", "cut off"])
@pytest.mark.rare
def test_a_host_that_is_gone_while_it_is_sent_something_gets_the_rest(hosts: Fleet, how: str) -> None:
    plan(hosts.spool(), job_0="part3")
    proxy = hosts.stack.enter_context(fleet.Proxy(hosts.coordinator.address))
    worker = hosts.worker(address=proxy.address)
    executor = hosts.executor()
    executor.submit(job(7, commit(hosts.supplies.repository)))
    reached(hosts.spool(), 0, "part3")
    if how == "killed":
        worker.kill()
        hosts.worker()
    else:
        proxy.cut()
        worker.said("is lost; what runs goes on")
        worker.said("connected", 2)
        let_go(hosts.spool(), 0, "part3")
    assert isinstance(last_news(executor), Finished)
    assert (hosts.spool() / "7-one.c").read_text() == "one\n"
    # The third part was begun by who was killed, and was once more the first of the rest; the other one had it.
    assert hosts.parts() == {"killed": 6, "cut off": 5}[how]
    with suppress(ValueError):
        pytest.fail(f"{executor.next()} came twice")


@pytest.mark.fleet
@pytest.mark.rare
def test_a_host_that_is_gone_while_its_pack_is_made_gets_the_job_when_it_is_back(
    hosts: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    making, go_on, pack = threading.Event(), threading.Event(), packs.pack

    def waiting(*words: Any) -> None:
        making.set()
        assert go_on.wait(WAIT_S)
        pack(*words)

    monkeypatch.setattr(packs, "pack", waiting)
    worker = hosts.worker()
    executor = hosts.executor()
    executor.submit(job(7, commit(hosts.supplies.repository)))
    assert making.wait(WAIT_S)
    worker.kill()
    hosts.worker().said("connected", 2)
    go_on.set()
    assert isinstance(last_news(executor), Finished)


@pytest.mark.fleet
@pytest.mark.rare
def test_a_job_that_is_cancelled_while_its_sources_go_out_does_not_begin(hosts: Fleet) -> None:
    plan(hosts.spool(), job_0="part3")
    hosts.worker()
    executor = hosts.executor()
    executor.submit(job(7, commit(hosts.supplies.repository)))
    reached(hosts.spool(), 0, "part3")
    executor.cancel(7)
    let_go(hosts.spool(), 0, "part3")
    news = last_news(executor)
    assert isinstance(news, Failed)
    assert type(news.error) is AttemptCancelled
    assert Spool(hosts.spool()).held() == {}
    assert list(executor.idle) == ["bench1"]


@pytest.mark.fleet
@pytest.mark.rare
def test_a_coordinator_that_leaves_while_it_sends_something_ends(hosts: Fleet, tmp_path: Path) -> None:
    plan(hosts.spool(), job_0="part3")
    own = hosts.authority.certify(tmp_path / "other")
    with Coordinator(door("tls://127.0.0.1:0", own), hosts.supplies) as coordinator:
        worker = hosts.worker(address=coordinator.address)
        executor = fleet.executor(coordinator, tmp_path / "run")
        executor.wait_for_hosts(1, WAIT_S)
        executor.submit(job(7, commit(hosts.supplies.repository)))
        reached(hosts.spool(), 0, "part3")
    assert len([one for one in threading.enumerate() if one.name == "connection to hosts"]) == 1  # the other one's
    worker.kill(signal.SIGTERM)
    assert worker.child.wait(WAIT_S) == 0


@pytest.mark.fleet
@pytest.mark.parametrize("bug", [False, True])
@pytest.mark.rare
def test_sources_that_cannot_be_sent_end_the_job_on_that_host(
    hosts: Fleet, monkeypatch: pytest.MonkeyPatch, bug: bool
) -> None:
    hosts.worker()
    executor = hosts.executor()
    if bug:
        monkeypatch.setattr(packs, "nearest", None)
    executor.submit(job(7, examples.commit(7)))
    news = last_news(executor)
    assert isinstance(news, Failed)
    assert (type(news.error), news.host) == (BisectorError if bug else AttemptFailed, "bench1")
    assert ("a bug in bisector: TypeError" in str(news.error)) == bug
    assert list(executor.idle) == ["bench1"]
