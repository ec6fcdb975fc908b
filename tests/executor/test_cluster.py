"""The connection between hosts: real workers and coordinators, killed, cut, turned away, and asked to leave."""

import asyncio
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from distributed.comm.core import connect

from bisector.core.deadline import Deadline
from bisector.core.errors import AttemptCancelled, AttemptFailed, AttemptLost, UserError
from bisector.core.trial import Trial
from bisector.executor.base import Failed, Finished, Job, Progress
from bisector.executor.cluster.coordinator import Coordinator
from bisector.executor.cluster.security import door
from bisector.executor.remote import RemoteExecutor
from bisector.executor.spec import Key
from bisector.executor.spool import Spool, Standing
from bisector.host.load import host_id
from bisector.trial.runner import TrialRequest
from tests import examples
from tests.executor import engines, fleet
from tests.executor.bench import settings_of
from tests.executor.engines import WAIT_S, let_go, plan, reached
from tests.executor.fleet import Authority, WorkerProcess

COMMIT = examples.commit(7)


@dataclass
class Fleet:
    """A coordinator and hosts, which are directories."""

    place: Path
    stack: ExitStack
    authority: Authority = field(default_factory=Authority.new)
    at: str = "127.0.0.1"

    def __post_init__(self) -> None:
        self.own = self.authority.certify(self.place / "of-coordinator")
        self.other = self.authority.certify(self.place / "of-hosts")
        self.coordinator = self.coordinate(f"tls://{self.at}:0")

    def coordinate(self, address: str) -> Coordinator:
        self.running = ExitStack()
        self.stack.push(self.running)
        return self.running.enter_context(Coordinator(door(address, self.own)))

    def restart_coordinator(self) -> None:
        """At the same address, as a process that is started again does."""
        address = self.coordinator.address
        self.running.close()
        self.coordinator = self.coordinate(address)

    def spool(self, name: str) -> Path:
        return self.place / name / "spool"

    def worker(self, name: str = "bench1", port: int = 0) -> WorkerProcess:
        started = fleet.worker(self.coordinator.address, self.other, self.spool(name), name, port=port)
        return self.stack.enter_context(started)

    def executor(
        self, hosts: int = 1, patience_s: float = 30.0, before: tuple[int, ...] = (), lost: tuple[int, ...] = ()
    ) -> RemoteExecutor:
        made = fleet.executor(self.coordinator, self.place / "run", patience_s=patience_s, before=before, lost=lost)
        made.wait_for_hosts(hosts, WAIT_S)
        return made


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(tmp_path, stack)


def job(id_: int) -> Job:
    return Job(id_, TrialRequest(id_, examples.cell(COMMIT), {}))


def last_news(executor: RemoteExecutor) -> Finished | Failed:
    while isinstance(news := executor.next(), Progress):
        pass
    return news


def emptied(spool: Path) -> None:
    Deadline("an empty spool", WAIT_S).poll(lambda: True if not Spool(spool).held() else None)


def test_a_trial_comes_back_with_its_files_and_is_forgotten_when_it_is_on_record(hosts: Fleet) -> None:
    hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    seen = []
    while isinstance(news := executor.next(), Progress):
        seen.append(news)
    assert isinstance(news, Finished)
    assert seen
    assert {one.id for one in seen} == {3}
    assert (news.id, news.host) == (3, "bench1")
    assert isinstance(news.result, Trial)
    for one in news.result.artifacts:
        assert (hosts.place / "run" / one.path).stat().st_size == one.size_bytes
    assert Spool(hosts.spool("bench1")).held() == {"run": {3: Standing.DONE}}
    executor.acknowledge(3)
    emptied(hosts.spool("bench1"))
    assert list(executor.idle) == ["bench1"]


@pytest.mark.fleet
def test_two_hosts_measure_at_once_each_what_it_was_given(hosts: Fleet) -> None:
    for name in ("bench1", "bench2"):
        plan(hosts.spool(name), job_1=engines.MEASURED, job_2=engines.MEASURED)
        hosts.worker(name)
    executor = hosts.executor(2)
    executor.submit(job(1), "bench2")
    executor.submit(job(2), "bench1")
    reached(hosts.spool("bench2"), 1, engines.MEASURED)
    reached(hosts.spool("bench1"), 2, engines.MEASURED)
    assert list(executor.idle) == []
    let_go(hosts.spool("bench1"), 2, engines.MEASURED)
    assert last_news(executor).id == 2
    let_go(hosts.spool("bench2"), 1, engines.MEASURED)
    news = last_news(executor)
    assert (news.id, news.host) == (1, "bench2")


@pytest.mark.parametrize("point", [engines.BEGUN, engines.MEASURED])
def test_a_trial_outlives_its_worker_and_is_heard_once(hosts: Fleet, point: str) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=point)
    worker = hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    reached(spool, 3, point)
    worker.kill()
    hosts.worker()
    let_go(spool, 3, point)
    news = last_news(executor)
    assert isinstance(news, Finished)
    assert isinstance(news.result, Trial)
    assert news.result.runs[-1].jobs[0].iops_mean == engines.figure(COMMIT.sha, host_id(), 3)
    assert engines.runs(spool, 3) == 1
    executor.acknowledge(3)
    emptied(spool)


@pytest.mark.fleet
def test_a_trial_whose_process_and_worker_are_killed_is_an_attempt_that_failed(hosts: Fleet) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=engines.MEASURED)
    worker = hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    reached(spool, 3, engines.MEASURED)
    runner = Spool(spool).entry(Key("run", 3)).runner()
    assert runner is not None
    worker.kill()
    os.kill(runner.pid, signal.SIGKILL)
    hosts.worker()
    news = last_news(executor)
    assert isinstance(news, Failed)
    assert type(news.error) is AttemptFailed
    assert list(executor.idle) == ["bench1"]
    executor.submit(job(4))
    assert isinstance(last_news(executor), Finished)


def test_a_trial_outlives_its_connection_and_is_heard_once(hosts: Fleet) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=engines.MEASURED)
    proxy = hosts.stack.enter_context(fleet.Proxy(hosts.coordinator.address))
    worker = hosts.stack.enter_context(fleet.worker(proxy.address, hosts.other, spool))
    executor = hosts.executor()
    executor.submit(job(3))
    reached(spool, 3, engines.MEASURED)
    proxy.cut()
    worker.said("is lost; what runs goes on")
    worker.said("connected", 2)
    let_go(spool, 3, engines.MEASURED)
    assert isinstance(last_news(executor), Finished)
    assert engines.runs(spool, 3) == 1
    executor.acknowledge(3)
    emptied(spool)
    assert list(executor.idle) == ["bench1"]


@pytest.mark.fleet
@pytest.mark.parametrize("over", [False, True], ids=["it runs", "it is over"])
def test_a_coordinator_that_is_started_again_hears_what_it_had_submitted(hosts: Fleet, over: bool) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=engines.MEASURED)
    worker = hosts.worker()
    hosts.executor().submit(job(3))
    reached(spool, 3, engines.MEASURED)
    if over:
        hosts.running.close()
        let_go(spool, 3, engines.MEASURED)
        Deadline("a result", WAIT_S).poll(
            lambda: Spool(spool).entry(Key("run", 3)).standing is Standing.DONE or None, 0.02
        )
    hosts.restart_coordinator()
    executor = hosts.executor(before=(3,))
    let_go(spool, 3, engines.MEASURED)
    assert isinstance(last_news(executor), Finished)
    assert engines.runs(spool, 3) == 1
    worker.said("connected", 2)
    executor.acknowledge(3)
    emptied(spool)


@pytest.mark.fleet
@pytest.mark.parametrize("anew", [False, True], ids=["same coordinator", "started again"])
def test_what_was_given_up_is_heard_when_its_host_is_back(hosts: Fleet, anew: bool) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=engines.BEGUN)
    worker = hosts.worker()
    executor = hosts.executor(patience_s=0.2)
    executor.submit(job(3))
    reached(spool, 3, engines.BEGUN)
    worker.kill()
    news = last_news(executor)
    assert isinstance(news, Failed)
    assert type(news.error) is AttemptLost
    executor.acknowledge(3)
    if anew:
        hosts.restart_coordinator()
    hosts.worker()
    if anew:
        executor = hosts.executor(lost=(3,))
    executor.wait_for_hosts(1, WAIT_S)
    assert list(executor.idle) == []
    let_go(spool, 3, engines.BEGUN)
    assert isinstance(last_news(executor), Finished)
    assert engines.runs(spool, 3) == 1
    assert Spool(spool).held() == {"run": {3: Standing.DONE}}
    executor.acknowledge(3)
    emptied(spool)


def test_a_trial_is_cancelled_where_it_runs(hosts: Fleet) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=engines.BEGUN)
    hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    reached(spool, 3, engines.BEGUN)
    runner = Spool(spool).entry(Key("run", 3)).runner()
    executor.cancel(3)
    news = last_news(executor)
    assert isinstance(news, Failed)
    assert type(news.error) is AttemptCancelled
    assert runner is not None
    assert not runner.lives


@pytest.mark.fleet
def test_other_settings_under_the_same_number_are_refused(hosts: Fleet) -> None:
    hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    assert isinstance(last_news(executor), Finished)
    other = fleet.executor(hosts.coordinator, hosts.place / "run", before=(3,))
    other.settings = settings_of("hdd")
    other.before = {}
    other.submit(job(3))
    news = last_news(other)
    assert isinstance(news, Failed)
    assert isinstance(news.error, UserError)
    assert "other settings" in str(news.error)


def test_a_worker_that_is_asked_to_leave_finishes_first(hosts: Fleet) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=engines.MEASURED)
    worker = hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    reached(spool, 3, engines.MEASURED)
    worker.kill(signal.SIGTERM)
    worker.said("leaving")
    let_go(spool, 3, engines.MEASURED)
    assert isinstance(last_news(executor), Finished)
    assert list(executor.idle) == []
    executor.acknowledge(3)
    assert worker.child.wait(WAIT_S) == 0
    assert Spool(spool).held() == {}


@pytest.mark.fleet
def test_a_worker_that_is_asked_twice_ends_its_trial(hosts: Fleet) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=engines.BEGUN)
    worker = hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    reached(spool, 3, engines.BEGUN)
    worker.kill(signal.SIGTERM)
    worker.said("leaving")
    worker.kill(signal.SIGTERM)
    news = last_news(executor)
    assert isinstance(news, Failed)
    assert isinstance(news.error, AttemptCancelled)
    executor.acknowledge(3)
    assert worker.child.wait(WAIT_S) == 0


@pytest.mark.fleet
def test_a_worker_waits_for_its_coordinator_and_leaves_when_asked(tmp_path: Path) -> None:
    with fleet.worker("tcp://127.0.0.1:9", None, tmp_path / "spool") as worker:
        worker.said("nobody listens")
        worker.kill(signal.SIGTERM)
        assert worker.child.wait(WAIT_S) == 0


# Who may connect


@pytest.mark.parametrize("bad", ["foreign", "expired", "none"])
def test_a_worker_without_a_good_certificate_is_turned_away(hosts: Fleet, bad: str) -> None:
    authority = Authority.new() if bad == "foreign" else hosts.authority
    certificates = authority.certify(hosts.place / "bad", days=-1 if bad == "expired" else 1)
    address = hosts.coordinator.address
    if bad == "none":
        (certificates / "cert.pem").unlink()
    with fleet.worker(address, certificates, hosts.spool("bench1")) as worker:
        assert worker.child.wait(WAIT_S) == UserError.exit_code
        said = worker.log.read_text()
    told = {"foreign": "do not trust each other", "expired": "expired", "none": "cert.pem: No such file"}
    assert told[bad] in said
    assert "Traceback" not in said
    assert hosts.coordinator.hosts() == ()


@pytest.mark.parametrize("bad", ["foreign", "expired", "none", "good"])
def test_the_coordinator_itself_turns_away_who_has_no_good_certificate(hosts: Fleet, bad: str) -> None:
    """Whatever the other end looks at beforehand."""
    authority = Authority.new() if bad == "foreign" else hosts.authority
    directory = authority.certify(hosts.place / "bad", days=-1 if bad == "expired" else 1)
    context = ssl.create_default_context(cafile=str(hosts.own / "ca.pem"))
    context.check_hostname = False
    if bad != "none":
        context.load_cert_chain(directory / "cert.pem", directory / "key.pem")

    async def connected() -> None:
        comm = await connect(hosts.coordinator.address, timeout=5, ssl_context=context, require_encryption=True)
        await comm.close()

    if bad == "good":
        asyncio.run(connected())
    else:
        with pytest.raises(OSError, match=r"in <TLS|Timed out"):
            asyncio.run(connected())


@pytest.mark.fleet
def test_a_coordinator_with_a_bad_certificate_is_turned_away(hosts: Fleet) -> None:
    certificates = Authority.new().certify(hosts.place / "other")
    with (
        Coordinator(door("tls://127.0.0.1:0", certificates)) as coordinator,
        fleet.worker(coordinator.address, hosts.other, hosts.spool("bench1")) as worker,
    ):
        assert worker.child.wait(WAIT_S) == UserError.exit_code
        assert "do not trust each other" in worker.log.read_text()


@pytest.mark.fleet
def test_a_worker_in_plain_text_does_not_get_in(hosts: Fleet) -> None:
    address = hosts.coordinator.address.replace("tls:", "tcp:")
    with fleet.worker(address, None, hosts.spool("bench1")) as worker:
        worker.said("nobody listens")
        assert hosts.coordinator.hosts() == ()


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("tcp://bench0:8786", "not encrypted"),
        ("tcp://0.0.0.0:8786", "not encrypted"),
        ("tcp://192.0.2.7:8786", "not encrypted"),
        ("tcp://[::]:8786", "not encrypted"),
        ("tcp://localhost:8786", "not encrypted"),
        ("tls://bench0:8786", "needs a certificate"),
        ("ucx://127.0.0.1:8786", "no address"),
        ("inproc://127.0.0.1:8786", "no address"),
        ("bench0:8786", "no address"),
        ("tls://bench0", "no address"),
        ("tls://bench0:port", "no address"),
        ("tls://bench0:99999", "no address"),
        ("tls://user@bench0:8786", "no address"),
        ("tls://bench0:8786/path", "no address"),
        ("", "no address"),
    ],
)
def test_what_is_not_encrypted_or_no_address_is_refused(address: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        door(address, None)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "tcp://[::1]:8786", "tcp://127.8.8.8:1"])
def test_plain_text_stays_on_this_host(address: str) -> None:
    assert door(address, None).address == address


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    one, other = (Authority.new().certify(tmp_path / name) for name in ("one", "other"))
    (one / "key.pem").write_bytes((other / "key.pem").read_bytes())
    with pytest.raises(UserError, match="cannot be used"):
        door("tls://bench0:8786", one)
    (other / "ca.pem").write_text("none\n")
    with pytest.raises(UserError, match="cannot be used"):
        door("tls://bench0:8786", other)


def test_an_address_in_use_is_told(hosts: Fleet) -> None:
    address = hosts.coordinator.address
    with pytest.raises(UserError, match="cannot listen"), Coordinator(door(address, hosts.own)):
        pass


def listeners(pid: int) -> list[str]:
    """The local addresses at which a process listens (proc_pid_net(5), proc_pid_fd(5))."""
    files = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            files.add(str(path.readlink()))
    tables = [Path(f"/proc/{pid}/net/{kind}").read_text() for kind in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()]
    return [row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in files]


def test_nothing_listens_but_the_two_ends_and_health_on_this_host(hosts: Fleet) -> None:
    worker = hosts.worker()
    hosts.executor()
    for pid in (os.getpid(), worker.child.pid):
        assert listeners(pid) == ["0100007F", "0100007F"]  # 127.0.0.1, as the kernel writes it on a little-endian CPU


# What Dask is told, and when it is not even imported


def python(script: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "PYTHONPATH": str(fleet.ROOT), **variables},
    )
    return done.stdout


def test_a_persons_own_configuration_of_dask_does_not_win(tmp_path: Path) -> None:
    (tmp_path / "dask.yaml").write_text(
        "distributed:\n  scheduler:\n    allowed-failures: 7\n  worker:\n    preload: [antigravity]\n"
    )
    script = (
        "from bisector.executor.cluster import coordinator, dask_settings\n"
        "import dask\ndask_settings.settle()\n"
        "print([dask.config.get(f'distributed.{key}') for key in\n"
        "  ('scheduler.allowed-failures', 'scheduler.work-stealing', 'worker.preload', 'comm.timeouts.tcp')])\n"
    )
    said = python(script, DASK_CONFIG=str(tmp_path), DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING="True")
    assert said == "[0, False, [], '5 minutes']\n"


@pytest.mark.parametrize(
    "script",
    [
        "import bisector.cli\ntry: bisector.cli.main(['--help'])\nexcept SystemExit: pass",
        "import bisector.executor.local, bisector.executor.remote, bisector.executor.watch, bisector.bisect.session",
        "import bisector.cli\nfor name in ('start', 'worker'):\n"
        "  try: bisector.cli.main([name, '--help'])\n  except SystemExit: pass",
    ],
)
def test_dask_is_imported_only_for_hosts(script: str) -> None:
    said = python(f"{script}\nimport sys\nprint('dask' in sys.modules, 'distributed' in sys.modules)")
    assert said.splitlines()[-1] == "False False"
