"""A person's clone and ``hosts.toml``, and hosts, which are directories of this machine behind a real sshd."""

import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bisector.analysis.verdicts import host_of
from bisector.config.options import CONFIG_FILE
from bisector.core import resources
from bisector.core.deadline import Deadline
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests.fleet import engines, on_host
from tests.fleet.engines import WAIT_S
from tests.fleet.sshd import DOMAIN, Sshd
from tests.git import histories

# The range has c1 and what follows; a commit that comes with its history brings c0, which nobody asks for.
OLD, CULPRIT, NEW = "c1", "c5", "c7"
# By so many times the figures of one host are as large as those of another.
HOSTS = {"bench1": 1.0, "bench2": 2.0, "bench3": 0.3}


@dataclass
class Place:
    """All of it below one directory."""

    home: Path
    server: Sshd
    stack: ExitStack
    engine: str = "searched"
    names: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes = histories.linear(8)
        self.shas = histories.build(self.home / "linux", nodes)
        above = histories.ancestors(nodes)
        self.new = [self.shas[name] for name, those in above.items() if CULPRIT in those]
        settings = self.home / "config/bisector" / CONFIG_FILE
        settings.parent.mkdir(parents=True)
        settings.write_text('[bisect]\npart = "whole"\n')  # the trials that its hosts make up have no logs
        self.run = RunDirectory(self.home / "run")
        self.log = self.home / "log"
        self.file = self.home / "hosts.toml"

    def host(self, name: str, more: str = "") -> Path:
        """List one more host, and make the bisector that it has."""
        there = self.home / name
        engines.truth(there, self.shas[CULPRIT], self.new, HOSTS.get(name, 1.0))
        program = there / "bisector"
        variables = " ".join(f"{name}={value}" for name, value in self.environment_of(there).items())
        program.write_text(f'#!/bin/sh\nexec env {variables} {sys.executable} -P -m {on_host.__name__} "$@"\n')
        program.chmod(0o755)
        with self.file.open("a") as file:
            file.write(f'[hosts.{name}]\nssh = "{name}.{DOMAIN}"\nbisector = "{program}"\n{more}\n')
        self.names.append(name)
        return there

    @staticmethod
    def environment_of(there: Path) -> dict[str, str]:
        homes = {f"XDG_{kind}_HOME": f"{there}/{kind}" for kind in ("DATA", "CONFIG", "STATE", "CACHE")}
        return {**homes, "PYTHONPATH": str(resources.ROOT), on_host.HOME: str(there), "PATH": os.environ["PATH"]}

    def bisector(self, *words: str) -> "subprocess.Popen[bytes]":
        env = {**os.environ, **self.environment, "PYTHONPATH": str(resources.ROOT)}
        env |= {f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("DATA", "STATE", "CACHE", "CONFIG")}
        env["PATH"] = f"{self.server.place}/bin{os.pathsep}{env['PATH']}"
        command = [sys.executable, "-P", "-m", "tests.fleet.coordinator", self.engine, *words]
        with self.log.open("ab") as file:
            child = subprocess.Popen(
                command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=env, start_new_session=True
            )
        self.stack.callback(child.wait, WAIT_S)
        self.stack.callback(child.terminate)
        return child

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        ends = (self.shas[OLD], self.shas[NEW])
        where = ("--repo", str(self.home / "linux"), "--hosts", str(self.file), "--run-dir", str(self.run.path))
        return self.bisector("start", *ends, *where, *words)

    def resume(self) -> "subprocess.Popen[bytes]":
        """It remembers its hosts."""
        return self.bisector("resume", "--run-dir", str(self.run.path))

    def reached(self, id_: int, point: str = engines.MEASURED) -> str:
        """Wait until a job has come to a point; the host on which it is."""

        def there() -> str | None:
            return next((name for name in self.names if engines.reached(self.home / name, id_, point)), None)

        try:
            return Deadline(f"job {id_}", WAIT_S).poll(there, 0.02)
        except Exception:
            sys.stderr.write(self.log.read_text())
            raise

    def worker(self, name: str) -> int:
        """The process of a host's worker."""
        return Deadline(f"the worker of {name}", WAIT_S).poll(lambda: next(iter(self.processes(name)), None))

    def processes(self, name: str) -> list[int]:
        """All that run for a host, the first that was started, its worker, first: numbers of processes wrap around."""
        mark = f"{on_host.HOME}={self.home / name}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    # proc_pid_stat(5): the 22nd field, starttime
                    found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[19])
            except OSError:
                continue
        return sorted(found, key=lambda pid: (found[pid], pid))

    def ended(self, child: "subprocess.Popen[bytes]", code: int = 0) -> str:
        assert child.wait(3 * WAIT_S) == code, self.log.read_text()
        return self.log.read_text()

    def check_found(self) -> None:
        """The answer is right, each trial is on record once, with its files, and nothing runs on any host."""
        said = self.log.read_text()
        assert f"{self.shas[CULPRIT][:12]} is the first fixed commit" in said, said
        assert "Traceback" not in said, said
        with Store.open(self.run.database, readonly=True) as store:
            assert not store.in_flight()
            trials = store.trials()
        assert len({n for n, _ in trials}) == len(trials)
        for _, trial in trials:
            for artifact in trial.artifacts:
                assert (self.run.path / artifact.path).stat().st_size == artifact.size_bytes
        self.hosts = {host_of(trial) for _, trial in trials}
        self.check_nothing_runs()

    def check_nothing_runs(self) -> None:
        Deadline("the end of all workers", WAIT_S).poll(lambda: None if any(map(self.processes, self.names)) else True)
