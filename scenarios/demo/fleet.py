"""``make demo-fleet``: the demonstration on two hosts that take turns at this machine, through two ``kill -9``.

Each host has a home of its own behind a sshd(8) of this user's on the loopback device, and no clone: it is sent sources
and kernels. One worker is killed in the middle of a run, and is started again by the coordinator; later the
coordinator is, and ``bisector resume`` goes on. What the machine itself has is lent to both: the image of the guest,
what QEMU can do, and the cache of compiled objects. It takes half an hour. The exit status is that of ``make demo``.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bisector.core.resources import cache_home
from bisector.store.rundir import state_home
from scenarios.demo import history
from scenarios.demo.history import NEW_TAG, OLD_TAG
from scenarios.demo.run import history_of, newest_tarball, verdict
from scenarios.kept_runs import INTERRUPTED, bisector, exit_status

NAMES = ("bench1", "bench2")
LENT = ("images", "ccache", "accelerator.json")
_FULL_RUN = re.compile(r"(bench\d):\s+workload: full run")
_WORKER_DIES_IN, _COORDINATOR_DIES_IN = 4, 7  # of the full runs
_INTO_THE_RUN_S = 5.0


@dataclass(frozen=True, slots=True)
class Bench:
    """The files of a demonstration."""

    home: Path

    @property
    def run_dir(self) -> Path:
        return self.home / "run"

    @property
    def hosts(self) -> Path:
        return self.home / "hosts.toml"

    @property
    def environment(self) -> Mapping[str, str]:
        """That of the coordinator, whose runs nobody else sees, and whose ssh knows the way to the hosts."""
        path = f"{self.home}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "XDG_STATE_HOME": str(self.home / "state")}

    @contextmanager
    def served(self) -> Iterator[None]:
        """Lay out two hosts with nothing but what they are lent, and serve their SSH."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        for key in ("host_key", "login"):
            words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.home / key))
            subprocess.run(words, check=True)
        server, client, known = (self.home / name for name in ("sshd_config", "ssh_config", "known_hosts"))
        known.write_text(f"[127.0.0.1]:{port} {(self.home / 'host_key.pub').read_text()}")
        server.write_text(
            f"ListenAddress 127.0.0.1:{port}\nHostKey {self.home}/host_key\nPidFile none\nUsePAM no\nStrictModes no\n"
            f"AuthorizedKeysFile {self.home}/login.pub\nPasswordAuthentication no\nPermitRootLogin yes\n"
        )
        client.write_text(
            f"Host {' '.join(NAMES)}\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {self.home}/login\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {known}\n"
        )
        self._write_program(self.home / "ssh", shutil.which("ssh") or "ssh", "-F", str(client))
        self.hosts.write_text("".join(map(self._host, NAMES)))
        if os.geteuid() == 0:  # its child that has no rights works in there
            Path("/run/sshd").mkdir(exist_ok=True)
        program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin") or "sshd"
        serve = (program, "-D", "-f", str(server))
        with subprocess.Popen(serve, stdin=subprocess.DEVNULL, start_new_session=True) as sshd:
            try:
                yield
            finally:
                sshd.terminate()

    def _host(self, name: str) -> str:
        cache, program = self.home / name / "cache" / "bisector", self.home / name / "bisector"
        cache.mkdir(parents=True)
        for lent in LENT:
            if (cache_home() / lent).exists():
                (cache / lent).symlink_to(cache_home() / lent)
        own = {"XDG_CACHE_HOME": cache.parent, "XDG_STATE_HOME": self.home / name / "state", "PATH": os.environ["PATH"]}
        self._write_program(program, "env", *(f"{key}={value}" for key, value in own.items()), *bisector())
        return f'[hosts.{name}]\nssh = "{name}"\nbisector = "{program}"\n'

    @staticmethod
    def _write_program(path: Path, *words: str) -> None:
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        path.chmod(0o755)

    def kill_worker(self, name: str) -> None:
        """As a machine that crashes would; the coordinator starts it again."""
        time.sleep(_INTO_THE_RUN_S)
        mark = os.fsencode(f"XDG_STATE_HOME={self.home / name / 'state'}")
        for entry in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
            words = (entry / "cmdline").read_bytes() if entry.is_dir() else b""
            if b"on-host\0worker" in words and mark in (entry / "environ").read_bytes():
                _say(f"kill -9 of the worker of {name}")
                os.kill(int(entry.name), signal.SIGKILL)
                return


def followed(words: Sequence[str], bench: Bench, at_full_run: Callable[["subprocess.Popen[str]", str], None]) -> int:
    """The exit status of a command whose lines are printed, and of which each full run is told.

    Its session is its own: whatever interrupts this process, the command is told once, and has ended when it returns.
    """
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=bench.environment,
        start_new_session=True,
    ) as child:
        try:
            for line in child.stdout or ():
                sys.stdout.write(line)
                sys.stdout.flush()
                if found := _FULL_RUN.search(line):
                    at_full_run(child, found[1])
        except KeyboardInterrupt:
            child.terminate()
            sys.stdout.write(child.communicate()[0])
            raise
    return child.returncode


def bisected(bench: Bench, repository: str) -> int:
    """The exit status of a bisection through both kills."""
    runs = 0

    def at_full_run(child: "subprocess.Popen[str]", name: str) -> None:
        nonlocal runs
        runs += 1
        if runs == _WORKER_DIES_IN:
            bench.kill_worker(name)
        elif runs == _COORDINATOR_DIES_IN:
            time.sleep(_INTO_THE_RUN_S)
            _say("kill -9 of the coordinator")
            child.kill()

    start = bisector("start", OLD_TAG, NEW_TAG, "--repo", repository, "--hosts", bench.hosts, "--run-dir")
    status = followed([*start, str(bench.run_dir)], bench, at_full_run)
    if status < 0:
        status = followed(bisector("resume", "--run-dir", bench.run_dir), bench, at_full_run)
    if not status and runs < _COORDINATOR_DIES_IN:
        _say(f"the answer came after {runs} full runs, before the coordinator was killed")
    return status


def demonstrate() -> int:
    """Make the history, bisect it on both hosts, compare; the exit status."""
    began, tarball = time.monotonic(), newest_tarball()
    made = history.make(tarball, history_of(tarball, cache_home() / "demo"))
    bench = Bench(state_home() / "demo-fleet")
    with bench.served():
        status = bisected(bench, made.repo)
    if status:
        return status
    words = bisector("status", "--json", "--run-dir", bench.run_dir)
    report = subprocess.run(words, stdout=subprocess.PIPE, env=bench.environment, check=True)
    right, sentence = verdict(made, json.loads(report.stdout))
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    _say(f"{sentence}; {minutes} min {seconds} s in all")
    return 0 if right else 1


def _say(text: str) -> None:
    sys.stdout.write(f"demo-fleet: {text}\n")
    sys.stdout.flush()


def main() -> int:
    """The exit status, also if Ctrl-C, a supervisor or a closed terminal ends it: the hosts end with it."""
    for one in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.default_int_handler)
    try:
        return exit_status(demonstrate)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
