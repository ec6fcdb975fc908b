"""The equipment that a run measures with on this host; for other hosts see :mod:`bisector.campaign.on_hosts`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bisector.campaign.instructions import Crew
from bisector.config import Settings
from bisector.core.events import Listener
from bisector.core.subject import Commit, Compiler, Kernel, Mattering
from bisector.executor.base import Executor
from bisector.executor.local import AtOnce, guests_at_once, has_cpu_left, local_executor
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.git.trees import Trees
from bisector.kernel.build import KernelBuilder
from bisector.kernel.sources import mattering

# The name, in messages, of the CPU that no guest needs and that builds ahead.
_BUILDER = "builder"


@dataclass(frozen=True)
class KernelEquality:
    """What is known without a build of which commits of a repository have equal kernels.

    With ``first_parent``, all changes that a merge brings in count as the merge's, and its other parents are ignored.
    """

    trees: Trees
    builder: KernelBuilder
    first_parent: bool = False

    def parents(self, sha: str) -> tuple[str, ...]:
        """The hashes of a commit's parents; the first parent's alone if the bisection follows no other."""
        return self.trees.repository.parents(sha, first_only=self.first_parent)

    def parent_with_same_kernel(self, commit: Commit, kernel: Kernel) -> Commit | None:
        """Return a parent of ``commit`` that surely has the same ``kernel``; None if none is known to."""
        read = self.builder.read_by(kernel.key)
        if read is None:
            return None
        parents = self.trees.repository.commits(self.parents(commit.sha))
        return next((one for one in parents if read.same(self.trees.changes(kernel.tree, one.tree))), None)

    def mattering(self, wanted: Range, old: Kernel, new: Kernel) -> Mattering | None:
        """Forecast which commits of a range can matter, by the builds of its ends; None if those do not tell.

        A commit can matter if it touches a file that one of the two builds read, or one that always counts. This is a
        forecast only: a file that is read by kernels between the ends alone is in neither list.
        """
        reads = tuple(read for kernel in (old, new) if (read := self.builder.read_by(kernel.key)) is not None)
        walk = self.trees.along(wanted) if reads else None
        return mattering(reads, *walk) if walk is not None else None

    def kept(self, wanted: Range, compilers: Sequence[Compiler]) -> frozenset[str]:
        """The hashes of the commits of the range whose kernel, made by one of these compilers, is in the cache."""
        trees = {tree for compiler in compilers for tree in self.builder.using(compiler).kept_trees()}
        return frozenset(sha for sha, tree in self.trees.of_range(wanted).items() if tree in trees)


@dataclass(frozen=True, slots=True)
class Equipment:
    """The executor of a run and what is known of its kernels; ``crew`` says how many hosts or guests measure."""

    executor: Executor
    kernels: KernelEquality
    crew: Crew = field(default_factory=Crew)


MeasurerFactory = Callable[[Settings, Path, Repository, Listener], AbstractContextManager[Equipment]]


@contextmanager
def here(settings: Settings, run_dir: Path, repository: Repository, tell: Listener) -> Iterator[Equipment]:
    """Yield the equipment of this host, which is usable until the context exits."""
    with local_executor(settings, run_dir, repository, tell) as local:
        kernels = KernelEquality(Trees(repository), local.bench.builder, settings.bisect.first_parent)
        guests = guests_at_once(settings)
        builders = (_BUILDER,) if has_cpu_left(settings, guests) else ()
        if guests == 1 and not builders:
            yield Equipment(local, kernels)
            return
        with AtOnce(local, guests, *builders) as executor:
            yield Equipment(executor, kernels, crew=Crew(builders=frozenset(builders), guests=guests))
