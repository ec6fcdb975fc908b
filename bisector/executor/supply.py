"""What a host lacks for a job is sent to it before the job: the kernel, or what that is built from, and nothing else.

A host needs no way to the person's repository, nor a clone of its own. What it has it tells itself, each time: what
was sent before, by whichever run, and what it can borrow. So a host that was installed anew, or whose disk was full,
is sent everything again, and nothing is kept here that could be wrong.

A kernel is known by what it is made from, its compiler among that, so all hosts of a run need the same compilers: a
host with another one would build other code under the same commit's name. What one host has built is fetched after the
job, and is not built again by any other.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Compiler
from bisector.core.trial import Trial
from bisector.executor.base import Finished
from bisector.executor.freight import HostRefused, Receiver, receive, send
from bisector.executor.kernels import compilers_of
from bisector.executor.spec import Spec
from bisector.git import packs
from bisector.git.repository import Repository
from bisector.host.files import our_files, scratch
from bisector.kernel.cache import KernelCache

# Files: at the beginning all hosts are sent the same two commits, and a host whose connection was cut goes on with the
# one that it has a part of. More than there are hosts, so that none is removed that is being sent.
_MOST_KEPT = 64


@dataclass(slots=True)
class Supplies:
    """The commits of a repository and the kernels of a cache, for any number of hosts; files are made in ``place``."""

    repository: Repository
    kernels: KernelCache
    place: Path
    _made: dict[tuple[str, ...], Path] = field(default_factory=dict, init=False)
    _count: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def give(self, host: Receiver, spec: Spec) -> None:
        """See to it that a host has what a job needs: the kernel that it would look for first, else the sources.

        Raises as :class:`Receiver`, :class:`InfraError`, and :class:`HostRefused` for a host with another compiler.
        """
        _check_compilers(host, compilers_of(spec.request))
        self.give_sources(host, spec.key.run, spec.request.commit.sha, kernel=self._give_kernels(host, spec.kernels))

    def give_sources(self, host: Receiver, run: str, sha: str, *, kernel: bool = False) -> None:
        """See to it that a host has a commit whole, unless it has the ``kernel``.

        What is sent may be deltas against what the host has. Should it turn out that it cannot use them, since a clone
        that it borrowed from is gone, say, or since a power failure has damaged what had arrived, it is sent all.
        Raises as :class:`Receiver`, and :class:`InfraError`.
        """
        holding = host.holding(run, sha)
        if holding.whole or kernel:
            return
        why = ""
        for at_other_end in (self._known(host, holding.known, sha, borrows=holding.borrows), ()):
            file = self._file((sha, *at_other_end), partial(packs.pack, self.repository, sha, at_other_end))
            why = host.unpack(run, sha, send(file, host))
            if not why:
                return
        raise InfraError(f"the sources of {sha[:12]} were sent and cannot be used there: {why}")

    def take(self, host: Receiver, ended: Finished, keys: tuple[str, ...]) -> None:
        """Fetch the kernel that a job has built, unless it is here; ``keys`` are those that it may have.

        Raises as :class:`Receiver`, and :class:`InfraError`.
        """
        trial = ended.result
        if isinstance(trial, Trial):
            keys = (trial.kernel.key,) if trial.kernel is not None else ()
        for key in keys:
            if not self.kernels.content(key) and (sealed := host.seal(key)) is not None:
                with scratch("kernel", self.place) as place:
                    receive(sealed, host, place / "kernel")
                    self.kernels.unpack(key, place / "kernel")
                return

    def _give_kernels(self, host: Receiver, keys: tuple[str, ...]) -> bool:
        """Send the kernel that a job would look for first, if it is here; whether the host has it now.

        One of a later compiler is no use: the job would try to build with an earlier one first. Where both have one
        and they are not equal, that of the coordinator is measured on all hosts.
        """
        if not keys:
            return False
        first, there = keys[0], host.kept(keys[0])
        if (here := self.kernels.content(first)) in ("", there):
            return bool(there)
        file = self._file((first, here), partial(self.kernels.pack, first))
        return not host.keep(first, send(file, host))

    def _known(self, host: Receiver, known: tuple[str, ...], sha: str, *, borrows: bool) -> tuple[str, ...]:
        found = packs.nearest(self.repository, sha, known)
        borrowed = host.first(packs.ancestors(self.repository, sha)) if borrows else ""
        return tuple(dict.fromkeys((*found, *filter(None, [borrowed]))))

    def _file(self, what: tuple[str, ...], make: Callable[[Path], object]) -> Path:
        """The file of this name, made now if need be."""
        with self._lock, our_files(self.place):
            if what not in self._made:
                self._count += 1
                file = self.place / str(self._count)
                make(file)
                self._made[what] = file
                for old in tuple(self._made)[:-_MOST_KEPT]:
                    self._made.pop(old).unlink()
            return self._made[what]


def _check_compilers(host: Receiver, wanted: tuple[Compiler, ...]) -> None:
    if not wanted:
        return
    try:
        found = host.compilers([one.command for one in wanted])
    except UserError as error:
        raise HostRefused(f"{error.message} there", error.hint) from error
    for ours, theirs in zip(wanted, found, strict=True):
        if ours.identity != theirs.identity:
            raise HostRefused(
                f"its compiler {ours.command} is {theirs.identity}, and that of this run is {ours.identity};"
                " kernels of two compilers cannot be compared",
                f"install that version of {ours.command} there",
            )
