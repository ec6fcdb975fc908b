"""What a run measures with: this host, unless somebody says otherwise (:mod:`bisector.campaign.on_hosts`)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bisector.campaign.instructions import Crew
from bisector.config import Settings
from bisector.core.events import Listener
from bisector.core.subject import Commit, Compiler, Kernel, Mattering
from bisector.executor.at_once import AtOnce, guests_at_once, has_cpu_left
from bisector.executor.base import Executor
from bisector.executor.local import local_executor
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.git.trees import Trees
from bisector.host import process
from bisector.host.files import our_files
from bisector.kernel.build import KernelBuilder
from bisector.kernel.sources import mattering
from bisector.store.run_files import remove_unfinished
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store

# What people are told the CPU that builds ahead is called, where no guest needs it.
_BUILDER = "builder"


@dataclass(frozen=True)
class KernelEquality:
    """Which commits of a repository have equal kernels, as far as that is known without building them.

    With ``first_parent`` what a merge brings in is the merge's, and its other parents do not count.
    """

    trees: Trees
    builder: KernelBuilder
    first_parent: bool = False

    def parents(self, sha: str) -> tuple[str, ...]:
        """The hashes of a commit's parents, as far as the bisection follows them."""
        return self.trees.repository.parents(sha, first_only=self.first_parent)

    def parent_with_same_kernel(self, commit: Commit, kernel: Kernel) -> Commit | None:
        """A parent of a commit with this kernel that surely has it, too; None when nobody can say so."""
        read = self.builder.read_by(kernel.key)
        if read is None:
            return None
        parents = self.trees.repository.commits(self.parents(commit.sha))
        return next((one for one in parents if read.same(self.trees.changes(kernel.tree, one.tree))), None)

    def mattering(self, wanted: Range, old: Kernel, new: Kernel) -> Mattering | None:
        """Which commits of a range can matter, as far as the builds of its ends say; None when they do not.

        A commit counts when it touches what one of the two builds read or what always counts. It is a
        forecast: a file that only kernels in between read is in neither list.
        """
        reads = tuple(read for kernel in (old, new) if (read := self.builder.read_by(kernel.key)) is not None)
        walk = self.trees.along(wanted) if reads else None
        return mattering(reads, *walk) if walk is not None else None

    def kept(self, wanted: Range, compilers: Sequence[Compiler]) -> frozenset[str]:
        """The hashes of the commits of the range of which a kernel is kept that one of these compilers made."""
        trees = {tree for compiler in compilers for tree in self.builder.using(compiler).kept_trees()}
        return frozenset(sha for sha, tree in self.trees.of_range(wanted).items() if tree in trees)


@dataclass(frozen=True, slots=True)
class Equipment:
    """What measures commits, and what knows of kernels without building them.

    ``crew`` are the hosts that a person has named, where there are several, or the guests that measure at a time.
    """

    executor: Executor
    kernels: KernelEquality
    crew: Crew = field(default_factory=Crew)


Equip = Callable[[Settings, Path, Repository, Listener], AbstractContextManager[Equipment]]


@contextmanager
def here(settings: Settings, run_dir: Path, repository: Repository, tell: Listener) -> Iterator[Equipment]:
    """The equipment of this host, for as long as the run lasts."""
    with local_executor(settings, run_dir, repository, tell) as local:
        kernels = KernelEquality(Trees(repository), local.bench.builder, settings.bisect.first_parent)
        guests = guests_at_once(settings)
        builders = (_BUILDER,) if has_cpu_left(settings, guests) else ()
        if guests == 1 and not builders:
            yield Equipment(local, kernels)
            return
        with AtOnce(local, guests, *builders) as executor:
            yield Equipment(executor, kernels, crew=Crew(builders=frozenset(builders), guests=guests))


def clean_up(run: RunDirectory, store: Store) -> None:
    """After a killed process of this run: what it left running, and what it had not recorded."""
    process.reap(run.path)
    with our_files(run.path):
        remove_unfinished(run.path, store.artifacts())
