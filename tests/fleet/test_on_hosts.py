"""``bisector start --hosts``: a coordinator and workers as processes, over SSH and TLS, killed at any moment."""

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.store.facts import Ended, Ending
from bisector.store.store import Store
from tests.fleet import engines
from tests.fleet.engines import DIES, IS_A_BUG, IS_ANOTHER, LEAVES, MEASURED, WAIT_S
from tests.fleet.place import HOSTS, Place
from tests.git import histories

pytestmark = pytest.mark.fleet


def test_three_hosts_with_levels_of_their_own_find_it(place: Place) -> None:
    for name in HOSTS:
        place.host(name)
    assert "is not there any more" not in place.ended(place.start())
    place.check_found()
    assert place.hosts == set(HOSTS)
    (mirror,) = (place.home / "bench1" / "STATE/bisector/jobs").glob("*/sources.git")
    kept = histories.git(mirror, "rev-list", "--all").split()
    refs = histories.git(mirror, "for-each-ref", "--format=%(objectname)").split()
    assert sorted(kept) == sorted(refs)  # no commit has come with its history


def test_what_a_killed_worker_did_is_lost_with_all_that_it_left_and_measured_again(place: Place) -> None:
    for name in ("bench1", "bench2"):
        engines.plan(place.host(name), trial_3=LEAVES)
    child = place.start()
    where = place.reached(3, LEAVES)
    job, left = (int((place.home / where / file).read_text()) for file in (f"3-{LEAVES}", "left"))
    os.kill(place.worker(where), signal.SIGKILL)
    gone = Deadline("the end of the job and of what it has started", WAIT_S)
    gone.poll(lambda: None if any(Path(f"/proc/{pid}").exists() for pid in (job, left)) else True)
    for name in place.names:
        engines.let_go(place.home / name, 3, LEAVES)
    said = place.ended(child)
    assert f"the worker of {where}, or the connection to it, has ended" in said
    assert f"{where}: the command or its connection was killed" in said
    place.check_found()


def test_a_killed_coordinator_leaves_nothing_on_its_hosts_and_is_gone_on_with(place: Place) -> None:
    for name in ("bench1", "bench2"):
        engines.plan(place.host(name), trial_3=MEASURED)
    child = place.start()
    place.reached(3)
    child.kill()
    child.wait(WAIT_S)
    place.check_nothing_runs()
    for name in place.names:
        engines.let_go(place.home / name, 3, MEASURED)
    place.ended(place.resume())
    place.check_found()


def test_nobody_without_this_runs_credentials_gets_in_and_ctrl_c_ends_the_workers(place: Place) -> None:
    engines.plan(place.host("bench1"), trial_3=MEASURED)
    child = place.start()
    place.reached(3)
    for pid in (child.pid, place.worker("bench1")):
        closed = [is_closed(port) for port in listening(pid)]
        assert any(closed)
    child.send_signal(signal.SIGINT)
    assert child.wait(WAIT_S) == 130
    assert not place.processes("bench1")  # when the command returns
    assert "Traceback" not in place.log.read_text()


def test_a_cut_connection_costs_a_trial_and_the_host_comes_back(place: Place) -> None:
    engines.plan(place.host("bench1"), trial_3=MEASURED)
    child = place.start()
    place.reached(3)
    (client,) = ssh_clients(child.pid)
    os.kill(client, signal.SIGKILL)
    said = place.ended(child)
    assert "bench1 is not there any more" in said
    assert said.count("bench1 is there\n") == 2
    place.check_found()


def ssh_clients(parent: int) -> list[int]:
    words = subprocess.run(
        ["ps", "-ww", "--ppid", str(parent), "-o", "pid=", "-o", "args="], capture_output=True, text=True, check=True
    )
    found = [line.split(None, 1) for line in words.stdout.splitlines()]
    return [int(pid) for pid, args in found if "on-host worker" in args]


def test_what_goes_wrong_on_a_host_is_no_verdict_and_a_host_that_cannot_be_used_is_named(place: Place) -> None:
    engines.plan(place.host("bench1"), trial_3=DIES, trial_4=IS_ANOTHER)
    place.host("other")
    (place.home / "other" / "bisector").write_text("#!/bin/sh\nexit 127\n")
    with place.file.open("a") as file:
        file.write('[hosts.away]\nssh = "127.0.0.1"\nport = 9\n')
    said = place.ended(place.start())
    assert "away cannot be reached" in said
    assert f"other: {place.home}/other/bisector cannot be run there" in said
    assert re.search(r"the process of job \S+ ended with SIGKILL and no result", said), said
    assert re.search(r"trial \d+ was to measure [0-9a-f]+ on .*, and bench1 answered with", said), said
    place.check_found()
    assert place.hosts == {"bench1"}


def test_a_bug_on_a_host_stops_the_run_and_names_its_line(place: Place) -> None:
    engines.plan(place.host("bench1"), trial_3=IS_A_BUG)
    said = place.ended(place.start(), code=70)
    assert "a bug in bisector on" in said
    assert "ZeroDivisionError: of nothing" in said
    place.check_nothing_runs()


def test_results_that_cannot_be_kept_stop_the_run_and_are_measured_again(place: Place) -> None:
    """As on a full disk: the record has room for one more fact, and the files of a trial have none."""
    engines.plan(place.host("bench1"), trial_4=MEASURED)
    child = place.start()
    place.reached(4)
    trials, moved = place.run.path / "trials", place.run.path / "moved"
    trials.rename(moved)
    trials.write_text("this is no directory\n")
    with Store.open(place.run.database, readonly=True) as store:
        before = len(store.trials())
    engines.let_go(place.home / "bench1", 4, MEASURED)
    said = place.ended(child, code=4)
    assert "trying again" not in said
    trials.unlink()
    moved.rename(trials)
    with Store.open(place.run.database, readonly=True) as store:
        assert len(store.trials()) == before
    place.ended(place.resume())
    place.check_found()


def is_closed(port: int) -> bool:
    """Whether nobody gets in without a certificate; else it is Dask's page about itself, with no door to anything."""
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as plain:
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with suppress(ConnectionResetError):
            said = plain.recv(16)
            if said.startswith(b"HTTP/1."):
                return False
            assert not said[:1].isalnum()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), WAIT_S) as raw,
        pytest.raises(OSError, match=r"alert|closed|reset|EOF"),
    ):
        greet(context, raw)
    return True


def greet(context: ssl.SSLContext, raw: socket.socket) -> None:
    """Say something without a certificate; raises for the answer that nobody is let in so."""
    with context.wrap_socket(raw) as wrapped:
        wrapped.sendall(b"\0" * 64)
        if not wrapped.recv(1):
            raise ConnectionResetError("closed")


def listening(pid: int) -> set[int]:
    """The ports of a process at which anybody may connect."""
    lines = subprocess.run(["ss", "-Htlnp"], capture_output=True, text=True, check=True).stdout.splitlines()
    return {int(line.split()[3].rpartition(":")[2]) for line in lines if f"pid={pid}," in line}


# A host that only builds


def test_a_build_host_builds_ahead_and_each_kernel_is_built_once(place: Place) -> None:
    place.engine = "sharing"
    for name in ("bench1", "bench2"):
        place.host(name)
    place.host("builder", 'role = "build"')
    place.ended(place.start())
    place.check_found()
    assert place.hosts == {"bench1", "bench2"}
    with Store.open(place.run.database, readonly=True) as store:
        broken_off = {one.submission for one in store.facts(Ended) if one.ending is Ending.CANCELLED}
    built = [engines.builds(place.home / name) for name in place.names]
    shas = Counter(sha for one in built for id_, sha in one.items() if id_ not in broken_off)
    assert set(shas.values()) == {1}, built
    assert engines.builds(place.home / "builder")


def test_a_cluster_that_is_there_already_works_too(place: Place) -> None:
    """By the certificates of the person's own configuration of Dask, and the clone where it is here."""
    there = place.host("bench1")
    made = place.home / "certificates"
    made.mkdir()
    code = (
        "from distributed import Security; import pathlib, sys; made = Security.temporary();"
        "pathlib.Path(sys.argv[1], 'cert.pem').write_text(made.tls_ca_file);"
        "pathlib.Path(sys.argv[1], 'key.pem').write_text(made.tls_worker_key)"
    )
    subprocess.run([sys.executable, "-P", "-c", code, str(made)], check=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tls://127.0.0.1:{server.getsockname()[1]}"
    keys = {
        "CA_FILE": "cert.pem",
        **{
            f"{one}__{kind}": f"{kind.lower()}.pem"
            for one in ("SCHEDULER", "WORKER", "CLIENT")
            for kind in ("CERT", "KEY")
        },
    }
    env = {f"DASK_DISTRIBUTED__COMM__TLS__{key}": str(made / file) for key, file in keys.items()}
    place.environment |= env
    on_host = {**os.environ, **env, **place.environment_of(there)}
    dask = (sys.executable, "-P", "-m", "distributed.cli")
    words = ("--nthreads", "1", "--resources", "trial=1", "--name", "slurm7", "--no-nanny", "--no-dashboard")
    for command in (
        (*dask[:-1], "distributed.cli.dask_scheduler", "--host", address, "--no-dashboard"),
        (*dask[:-1], "tests.fleet.dask_worker", address, *words),
    ):
        child = subprocess.Popen(command, env=on_host, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        place.stack.callback(child.wait, WAIT_S)
        place.stack.callback(child.terminate)
    place.file = Path(address)
    place.ended(place.start())
    place.names.clear()
    place.check_found()
    assert place.hosts == {"slurm7"}
