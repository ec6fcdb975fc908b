"""``bisector reset`` of a run that measured on a fleet: hosts by a real sshd, and hosts that are away."""

import os
import shutil
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.bisect import reset_hosts
from bisector.cli import main
from bisector.commands import equip
from bisector.core import resources
from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError
from bisector.executor.spec import Key, run_key
from bisector.executor.spool import Spool
from bisector.executor.untold import Untold
from bisector.executor.watch import Desk
from bisector.fleet import edit_hosts, ssh
from bisector.fleet.home import FleetHome
from bisector.fleet.hosts import Host
from bisector.host import process
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests.bisect.conftest import site as site  # noqa: PLC0414 - a fixture of this room, too
from tests.bisect.site import Site, interrupted_at
from tests.executor import engines, fleet
from tests.executor.engines import WAIT_S, Does, plan
from tests.executor.test_forget import ended
from tests.executor.test_watch import silent, spec
from tests.git.conftest import unconfigured as unconfigured  # noqa: PLC0414 - the same

Reset = Callable[..., str]


@pytest.fixture
def run(site: Site, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run that was killed, whose list of hosts is hosts.toml here."""
    interrupted_at(monkeypatch, site, "c5")
    monkeypatch.setenv("XDG_DATA_HOME", str(site.home / "data"))
    monkeypatch.setenv("PYTHONPATH", str(resources.ROOT))
    monkeypatch.chdir(site.home)
    made = RunDirectory(site.home / "run")
    equip.remember(made, Path("hosts.toml"))
    monkeypatch.setattr(reset_hosts, "LISTEN_S", 0.1)
    return made


@pytest.fixture
def reset(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> Reset:
    """What it prints, on both streams."""

    def reset(*words: str) -> str:
        capsys.readouterr()
        assert main(["reset", "--run-dir", str(run.path), *words]) == 0
        seen = capsys.readouterr()
        return seen.err + seen.out

    return reset


@pytest.fixture
def spool(there: Path) -> Iterator[Spool]:
    """The usual one of the host, which keeps nothing of the test before."""
    made = Spool(there / "STATE" / "bisector" / "spool")
    shutil.rmtree(made.home, ignore_errors=True)
    made.home.mkdir(parents=True)
    yield made
    for entry in made.entries():
        if (runner := entry.runner()) is not None and runner.lives:
            os.kill(runner.pid, signal.SIGKILL)
        process.reap(entry.place)


def measured_on(run: RunDirectory, *names: str) -> str:
    """Have the record say that work was submitted to these hosts; the key of the run."""
    with closing(sqlite3.connect(run.database)) as database, database:
        body = "json_set(body, '$.host', ?)"
        database.execute(f"UPDATE facts SET body = {body} WHERE kind = 'Submitted'", names[:1])
        for name in names[1:]:
            columns = f"SELECT at, kind, {body} FROM facts WHERE kind = 'Submitted' LIMIT 1"
            database.execute(f"INSERT INTO facts (at, kind, body) {columns}", (name,))
    with Store.open(run.database, readonly=True) as store:
        assert store.hosts() == {*names}
        return run_key(run.path, store.bisection().created_at)


def listed(*hosts: Host, address: str = "tcp://127.0.0.1:1") -> None:
    for host in hosts:
        edit_hosts.put(Path("hosts.toml"), host, address)


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"tcp://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def pinned(bench: Host, run: RunDirectory) -> Host:
    ssh.pin(FleetHome.of_person(), bench.name, ssh.shown_key(bench))
    return bench


def begun(spool: Spool, key: str) -> int:
    """The process of a job of the run that hangs on the host, and that nobody watches any more."""
    desk = Desk(spool, engines.FAKE, spool.sources)
    plan(spool.home, job_7=Does.LEAVES)
    with ThreadPoolExecutor(1) as pool:
        watcher = pool.submit(desk.watch, replace(spec(), key=Key(key, 7)), silent)
        Deadline("a job that hangs", WAIT_S).poll(lambda: (spool.home / "hanging").exists() or None, 0.01)
        desk.detach()
        watcher.result(WAIT_S)
    runner = spool.entry(Key(key, 7)).runner()
    assert runner is not None
    assert runner.lives
    return runner.pid


@pytest.mark.parametrize("has_worker", [True, False], ids=["beside its worker", "without a worker"])
@pytest.mark.rare
def test_a_trial_on_a_host_is_ended_by_ssh(
    run: RunDirectory, reset: Reset, pinned: Host, spool: Spool, has_worker: bool
) -> None:
    key = measured_on(run, "bench1")
    listed(pinned, address=free_address())
    worker = fleet.start_worker(free_address(), None, spool.home, "bench1") if has_worker else None
    try:
        if worker is not None:
            worker.said("waiting")
        pid = begun(spool, key)
        assert process.marked()[spool.place(key)]
        assert "bench1: 1 job ended, nothing of the run is left\n" in reset("--delete")
        assert ended(pid)
        assert spool.place(key) not in process.marked()
        assert not (spool.home / key).exists()
        assert not run.path.exists()
        assert Untold().of("bench1") == ()
        assert worker is None or worker.child.poll() is None
    finally:
        if worker is not None:
            worker.end()


def test_a_host_that_has_nothing_of_it_is_no_trouble(
    run: RunDirectory, reset: Reset, pinned: Host, spool: Spool
) -> None:
    """Its worker may keep its jobs elsewhere, and is told when it connects."""
    key = measured_on(run, "bench1")
    listed(pinned)
    assert "bench1: there was nothing of the run\n" in reset()
    assert Untold().of("bench1") == (key,)


def test_no_host_that_is_away_is_in_the_way_of_a_reset(run: RunDirectory, reset: Reset) -> None:
    key = measured_on(run, "away", "dials", "unlisted")
    address = free_address()
    listed(Host("away", "127.0.0.1", 1), Host("dials"), Host("idle", "127.0.0.1", 2), address=address)
    said = reset("--delete")
    late = f"it did not connect to {address} within 0.1 s; it is told when it is connected to any run of this machine"
    assert f"bisector: 0.1 s for away, dials, unlisted to connect to {address}\n" in said
    assert f"away: not told yet: its SSH key is not pinned; {late}\n  bisector fleet add " in said
    assert f"dials: not told yet: there is no way to it by SSH: hosts.toml has no ssh for it; {late}\n" in said.replace(
        f"{Path.cwd()}/", ""
    )
    assert "unlisted: not told yet: there is no way to it by SSH: " in said
    assert "hosts.toml does not list it" in said
    assert "idle" not in said
    assert not run.path.exists()
    assert [Untold().of(name) for name in ("away", "dials", "unlisted", "idle")] == [(key,)] * 3 + [()]


def test_where_the_record_names_no_host_all_of_the_list_are_told(run: RunDirectory, reset: Reset) -> None:
    key = measured_on(run, "")
    listed(Host("one"), Host("other"), address=free_address())
    reset()
    assert [Untold().of(name) for name in ("one", "other", "")] == [(key,), (key,), ()]


@pytest.mark.parametrize("text", [None, "hosts = 3\n"], ids=["gone", "spoilt"])
def test_a_list_of_hosts_that_nobody_can_read_is_not_in_the_way_either(
    run: RunDirectory, reset: Reset, text: str | None
) -> None:
    key = measured_on(run, "bench1")
    if text is not None:
        Path("hosts.toml").write_text(text)
    assert "; it is not known where it would dial in; it is told when" in reset()
    assert Untold().of("bench1") == (key,)


def test_nor_is_somebody_who_listens_already(run: RunDirectory, reset: Reset) -> None:
    measured_on(run, "bench1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        listed(Host("bench1"), address=address)
        assert f"; cannot listen at {address}: Address already in use" in reset()


def test_nor_are_packages_that_are_not_installed(
    run: RunDirectory, reset: Reset, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured_on(run, "bench1")
    listed(Host("bench1"), address=free_address())
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setattr("bisector.fleet.extra.importlib.util.find_spec", lambda name: None)
    assert "; to be heard by hosts that dial in needs what is not installed: distributed, tomlkit" in reset()


def test_where_it_cannot_be_kept_who_is_to_be_told_the_record_stays(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise InfraError("untold.json: No space left on device")

    measured_on(run, "bench1")
    listed(Host("bench1"))
    monkeypatch.setattr(Untold, "add", full)
    assert main(["reset", "--run-dir", str(run.path), "--delete"]) == 4
    assert run.database.exists()


def test_a_run_that_measured_here_needs_nothing_of_a_fleet(
    run: RunDirectory, reset: Reset, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.path / "hosts").unlink()
    monkeypatch.setitem(sys.modules, "bisector.bisect.reset_hosts", None)
    assert reset() == f"{run.path} reset; its record stays\n"
