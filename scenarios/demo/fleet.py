"""``make demo-fleet``: the demonstration on two hosts that take turns at this machine, through two ``kill -9``.

Each host is a real worker with a certificate, a spool and a cache of kernels of its own, and without a clone: sources
and kernels are sent to it. One worker is killed in the middle of a run, and begun again; later the coordinator is, and
``bisector resume`` goes on. What the machine itself has is lent to both: the image of the guest, what QEMU can do, and
the cache of compiled objects. It takes half an hour. The exit status is that of ``make demo``.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bisector.core.resources import cache_home
from bisector.fleet import authority
from bisector.fleet.home import FleetHome, Identity
from bisector.store.rundir import state_home
from scenarios.demo import history
from scenarios.demo.history import NEW_TAG, OLD_TAG
from scenarios.demo.run import history_of, newest_tarball, verdict
from scenarios.kept_runs import bisector, exit_status

NAMES = ("bench1", "bench2")
ADDRESS = "tls://127.0.0.1:8786"
LENT = ("images", "ccache", "accelerator.json")
_FULL_RUN = re.compile(r"(bench\d):\s+workload: full run")
_WORKER_DIES_IN, _COORDINATOR_DIES_IN = 4, 7  # of the full runs
_INTO_THE_RUN_S = 5.0
_GONE_S = 10.0


@dataclass(slots=True)
class Bench:
    """The files of a demonstration, and its workers by name."""

    home: Path
    workers: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def run_dir(self) -> Path:
        return self.home / "run"

    @property
    def certificates(self) -> Path:
        return self.home / "worker"

    @property
    def hosts(self) -> Path:
        return self.home / "hosts.toml"

    @property
    def environment(self) -> Mapping[str, str]:
        """That of the coordinator, whose fleet and whose runs nobody else sees."""
        return {**os.environ, "XDG_DATA_HOME": str(self.home / "data"), "XDG_STATE_HOME": str(self.home / "state")}

    def lay_out(self) -> None:
        """Begin with nothing but what hosts are lent."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        fleet = FleetHome(self.home / "data" / "bisector" / "fleet")
        made, *_ = authority.initialised(fleet)
        identity = Identity(self.certificates)
        request = authority.request_of(identity, NAMES[0])
        authority.install(identity, made.sign(request, NAMES[0]), made.certificate)
        self.hosts.write_text(f'coordinator = "{ADDRESS}"\n')
        for name in NAMES:
            cache = self.home / name / "cache" / "bisector"
            cache.mkdir(parents=True)
            for lent in LENT:
                if (cache_home() / lent).exists():
                    (cache / lent).symlink_to(cache_home() / lent)

    def begin(self, name: str) -> None:
        """Start a worker in a session of its own, as a unit or a queue would."""
        own = self.home / name
        words = bisector(
            "worker", ADDRESS, "--certificates", self.certificates, "--name", name, "--spool", own / "spool"
        )
        environment = {**os.environ, "XDG_CACHE_HOME": str(own / "cache"), "XDG_STATE_HOME": str(own / "state")}
        with (own / "worker.log").open("ab") as log:
            self.workers[name] = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                cwd=self.home,
            )

    def kill_worker(self, name: str) -> None:
        """As a machine that crashes would; its job is a process of its own, and goes on."""
        time.sleep(_INTO_THE_RUN_S)
        _say(f"kill -9 of the worker of {name}")
        self.workers[name].kill()
        self.workers[name].wait()
        time.sleep(_GONE_S)
        self.begin(name)
        _say(f"the worker of {name} is begun again")

    def end(self) -> None:
        """Let both workers leave once their jobs are over, or cut short by the second signal."""
        for _ in range(2):
            for worker in self.workers.values():
                worker.terminate()
                time.sleep(1.0)
        for worker in self.workers.values():
            worker.wait()


@contextmanager
def workers(bench: Bench) -> Iterator[None]:
    """Both workers, for as long as the demonstration lasts."""
    try:
        for name in NAMES:
            bench.begin(name)
        yield
    finally:
        bench.end()


def followed(words: Sequence[str], bench: Bench, at_full_run: Callable[["subprocess.Popen[str]", str], None]) -> int:
    """The exit status of a command whose lines are printed, and of which each full run is told."""
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=bench.environment
    ) as child:
        for line in child.stdout or ():
            sys.stdout.write(line)
            sys.stdout.flush()
            if found := _FULL_RUN.search(line):
                at_full_run(child, found[1])
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
        time.sleep(_GONE_S)
        status = followed(bisector("resume", "--run-dir", bench.run_dir), bench, at_full_run)
    if not status and runs < _COORDINATOR_DIES_IN:
        _say(f"the answer came after {runs} full runs, before the coordinator was killed")
    return status


def demonstrate() -> int:
    """Make the history, bisect it on both hosts, compare; the exit status."""
    began, tarball = time.monotonic(), newest_tarball()
    made = history.make(tarball, history_of(tarball, cache_home() / "demo"))
    bench = Bench(state_home() / "demo-fleet")
    bench.lay_out()
    with workers(bench):
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


if __name__ == "__main__":
    sys.exit(exit_status(demonstrate))
