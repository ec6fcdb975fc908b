"""What killed runs of this user left running: it would make each measurement weak until those runs are resumed.

And what they left lying about in temporary directories.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from bisector.core import resources
from bisector.core.errors import InfraError
from bisector.host import process
from bisector.host.lock import Held, held, holder_of
from bisector.host.scratch import remove_abandoned
from bisector.store.index import Index
from bisector.store.rundir import LOCK, single_commit_home
from bisector.vm.embedded import end_abandoned, guests, runs_guest
from bisector.vm.machine import domain_prefix


def end_leftovers(own: Path, tell: Callable[[str], None]) -> None:
    """End the builds and guests of other runs whose process is gone: their lock is there, and nobody holds it.

    A process may bear any directory as its mark: a rule of a kernel tree can start one so. Only directories that this
    user's runs are known to be in are looked at.
    Guests of what is no run that is known (doctor's, say) are ended where nobody holds the directory of libvirt's
    driver that they are in. What cannot be ended stays, and shows in the load of the host. Temporary directories of
    killed processes are removed without a word.
    """
    with suppress(InfraError):  # a list of runs that is damaged: whoever adds to it says so
        for run_dir in sorted(_at_work() - {Path(os.path.realpath(own))}):
            _end_killed(run_dir, tell)
    with suppress(InfraError):
        for name in end_abandoned(tuple(domain_prefix(Path(entry.run_dir)) for entry in Index().entries())):
            tell(f"guest {name} was left by a process that was killed, and is ended")
    for place in (None, resources.cache_home()):
        remove_abandoned(place)


def _end_killed(run_dir: Path, tell: Callable[[str], None]) -> None:
    # Locked, so that nobody resumes it in this moment. A directory without that file is gone, say.
    with suppress(Held, OSError, InfraError):
        if holder_of(run_dir / LOCK) is None and (run_dir / LOCK).is_file():
            with held(run_dir / LOCK):
                ended = _end(run_dir)
            tell(f"{run_dir} was killed and had left something running, which is ended: {ended} processes")


def _end(run_dir: Path) -> int:
    found = list(guests(domain_prefix(run_dir)))
    return process.reap(run_dir) + sum(process.end(pid, partial(runs_guest, name=name)) for name, pid in found)


def _at_work() -> set[Path]:
    """The known directories that something runs for. A guest's name has a digest of its run's directory in it."""
    marked, names = process.marked(), [name for name, _ in guests("")]
    return {
        run_dir
        for run_dir in _known()
        if run_dir in marked or any(name.startswith(domain_prefix(run_dir)) for name in names)
    }


def _known() -> Iterator[Path]:
    """Where this user's bisections and tests are; raises :class:`InfraError` when the list of runs is damaged."""
    directories = (*(Path(entry.run_dir) for entry in Index().entries()), *single_commit_home().glob("*"))
    return (Path(os.path.realpath(directory)) for directory in directories)
