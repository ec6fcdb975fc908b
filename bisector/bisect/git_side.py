"""What the step asks of the repository, of the kernels of its commits, and of git's bisection; nothing is decided here.

Kernels are known without building them from what builds have read, and what git says differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bisector.bisect.facts import GitState
from bisector.bisect.instructions import (
    ChangedEnd,
    CommitsOf,
    KeptKernels,
    LeftInRange,
    ParentsOf,
    Question,
    ShowGit,
    TwinOf,
    WhatMatters,
)
from bisector.core.subject import Commit, Compiler, Kernel, Mattering
from bisector.core.verdict import Verdict
from bisector.git.bisect import Bisect, CommitToTry, Contradiction, Step
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.git.trees import Trees, changed_end
from bisector.kernel.build import KernelBuilder
from bisector.kernel.sources import mattering


class Kin(Protocol):
    """What is known of kernels without building them."""

    def parents(self, sha: str) -> tuple[str, ...]:
        """The hashes of a commit's parents."""
        ...

    def twin(self, commit: Commit, kernel: Kernel) -> Commit | None:
        """A parent of a commit with this kernel that surely has it, too."""
        ...

    def mattering(self, wanted: Range, old: Kernel, new: Kernel) -> Mattering | None:
        """Which commits of the range can matter, given the kernels of its ends."""
        ...

    def kept(self, wanted: Range, compilers: Sequence[Compiler]) -> frozenset[str]:
        """The hashes of the commits of the range of which a kernel is kept that one of these compilers made."""
        ...


@dataclass(frozen=True, slots=True)
class Kinship:
    """The kernels of one repository, as one builder makes them, and the commits around them.

    With ``first_parent`` what a merge brings in is the merge's, and its other parents do not count.
    """

    trees: Trees
    builder: KernelBuilder
    first_parent: bool = False

    def twin(self, commit: Commit, kernel: Kernel) -> Commit | None:
        """A parent of a commit with this kernel that surely has it, too; None when nobody can say so."""
        read = self.builder.read_by(kernel.key)
        if read is None:
            return None
        parents = self.trees.repository.commits(self.parents(commit.sha))
        return next((one for one in parents if read.same(self.trees.changes(kernel.tree, one.tree))), None)

    def parents(self, sha: str) -> tuple[str, ...]:
        """The hashes of a commit's parents, as far as the bisection follows them."""
        return self.trees.repository.parents(sha, first_only=self.first_parent)

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


@dataclass(slots=True)
class GitSide:
    """The repository of a range, its kernels as far as they are known without a build, and git's own bisection."""

    repository: Repository
    wanted: Range
    bisect: Bisect
    kin: Kin
    _shown: ShowGit | None = field(default=None, init=False)

    def answer(self, question: Question[object]) -> object:
        """The answer to a question."""
        match question:
            case CommitsOf(shas=shas):
                return self.repository.commits(shas)
            case ChangedEnd(kind=kind, commit=commit, end=end):
                return changed_end(self.repository, kind, commit, end, first_parent=self.wanted.first_parent)
            case LeftInRange():
                return self.bisect.in_range()
            case _:
                return self._of_kin(question)

    def _of_kin(self, question: Question[object]) -> object:
        """What is known of kernels without building them."""
        match question:
            case ParentsOf(shas=shas):
                return {sha: self.kin.parents(sha) for sha in shas}
            case TwinOf(commit=commit, kernel=kernel):
                return self.kin.twin(commit, kernel)
            case WhatMatters(old=old, new=new):
                return self.kin.mattering(self.wanted, old, new)
            case KeptKernels(compilers=compilers):
                return self.kin.kept(self.wanted, compilers)
        raise RuntimeError(f"git is asked something that it cannot answer: {question}")

    def show(self, show: ShowGit) -> GitState:
        """Make git hold what it is to be shown: told what is new of it, or all from the start."""
        try:
            self._tell(show)
            says = self._proposed(dict(show.verdicts)) if show.proposes else None
        except Contradiction as error:
            if not show.proposes:
                raise
            self._shown = None
            return GitState(show, error)
        self._shown = show
        return GitState(show, says)

    def log(self) -> str:
        """``git bisect log``."""
        return self.bisect.log()

    def _tell(self, show: ShowGit) -> None:
        before, now = self._shown, dict(show.verdicts)
        same = before is not None and (before.terms, before.skips) == (show.terms, show.skips)
        if before is None or not same or any(now.get(sha) is not one for sha, one in before.verdicts):
            self.bisect.terms = show.terms
            self.bisect.start(show.skips, show.verdicts)
            return
        told = dict(before.verdicts)
        for sha, verdict in show.verdicts:
            if sha not in told:
                self.bisect.tell(sha, verdict)

    def _proposed(self, verdicts: dict[str, Verdict]) -> Step:
        """What git makes of it; a commit that it proposes and that has a verdict already is told of."""
        while isinstance(says := self.bisect.next(), CommitToTry) and says.commit.sha in verdicts:
            self.bisect.tell(says.commit.sha, verdicts[says.commit.sha])
        return says
