"""Runs that are over and of which some hosts have not heard yet: they were away when the run was reset.

They are told when they are connected to any run of this machine (:mod:`bisector.executor.telling`). The list is a file
of the state directory that is replaced as a whole, under a lock: readers need none. One that is damaged counts as
empty: what it named goes on the hosts as what nobody has used for long (:mod:`bisector.executor.places`).
"""

import fcntl
import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from bisector.host.files import our_files, write_whole
from bisector.store.rundir import state_home

_MOST_RUNS = 1000  # of hosts that never come back; the oldest go
_Known = Mapping[str, tuple[str, ...]]


class Untold:
    """The list: keys of runs, and the names of the hosts that are still to be told of each.

    What changes it raises :class:`bisector.core.errors.InfraError` where it cannot be written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_home() / "untold.json"

    def add(self, run: str, hosts: Collection[str]) -> None:
        """Have these hosts be told that a run is over."""
        if hosts:
            self._change(lambda known: {**known, run: tuple(sorted({*known.get(run, ()), *hosts}))})

    def of(self, host: str) -> tuple[str, ...]:
        """The runs that a host is still to be told of, the oldest first."""
        return tuple(run for run, hosts in self._known().items() if host in hosts)

    def strike(self, run: str, host: str) -> None:
        """A host has been told of a run."""
        if run in self.of(host):
            self._change(lambda known: {**known, run: tuple(name for name in known.get(run, ()) if name != host)})

    def strike_run(self, run: str) -> None:
        """A run goes on: no host is to be told that it is over."""
        if run in self._known():
            self._change(lambda known: {one: hosts for one, hosts in known.items() if one != run})

    def _known(self) -> _Known:
        with our_files(self.path):
            try:
                match json.loads(self.path.read_text(encoding="utf-8")):
                    case {**known}:
                        return {str(run): _names(hosts) for run, hosts in known.items()}
            except (FileNotFoundError, ValueError, RecursionError):
                pass
        return {}

    def _change(self, change: Callable[[_Known], _Known]) -> None:
        with our_files(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.with_suffix(".lock").open("a", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                left = [(run, hosts) for run, hosts in change(self._known()).items() if hosts]
                write_whole(self.path, json.dumps(dict(left[-_MOST_RUNS:]), indent=1).encode())


def _names(hosts: object) -> tuple[str, ...]:
    return tuple(map(str, hosts)) if isinstance(hosts, list) else ()
