"""What differs between trees, as git tells it: paths, without looking for renames, which read whole files."""

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from bisector.core.commit import Change
from bisector.git.ranges import Range
from bisector.git.repository import Repository

_DIFF = ("diff-tree", "-r", "-z", "--name-status", "--no-renames", "--no-ext-diff")
_ADDED = "A"
_LEAST_SHARE = 1000  # commits for each git: fewer take less time than its start
_LONGEST_STATUS = 4  # a letter and a score; what is longer in its place is a commit's hash


@dataclass(frozen=True)
class Trees:
    """The trees of a repository, by their ids or by commits'.

    What is asked of them is worth knowing and never needed, so a clone that lacks trees says that it does not know.
    """

    repository: Repository

    @cached_property
    def at_hand(self) -> bool:
        """Whether no tree has to be fetched first, one by one (git-clone(1), ``--filter=tree:0``)."""
        filters = self.repository.ask("config", "--get-regexp", r"^remote\..*\.partialclonefilter$", ok=(0, 1)).lines
        return not any("tree:" in line or "combine:" in line for line in filters)

    def changes(self, old: str, new: str) -> tuple[Change, ...] | None:
        """The files that differ; None when a tree is not there."""
        if not self.at_hand:
            return None
        answer = self.repository.ask(*_DIFF, old, new, ok=None)
        return tuple(change for _, change in _read(answer.stdout)) if answer.status == 0 else None

    def alike_at(self, tree: str, others: Sequence[str], paths: Sequence[str]) -> tuple[str, ...]:
        """Those of the other trees that are in this repository and the same as ``tree`` at some paths."""
        if not self.at_hand:
            return ()
        asked = "".join(f"{one}:{path}\n" for one in (tree, *others) for path in paths)
        answer = self.repository.ask("cat-file", "--batch-check=%(objectname)", stdin=asked)
        # Of what is not there git repeats the name, so a path that both trees lack is told by its end.
        found = [line.partition(":")[2] if line.endswith(" missing") else line for line in answer.lines]
        rows = [found[start : start + len(paths)] for start in range(0, len(found), len(paths))]
        return tuple(other for other, row in zip(others, rows[1:], strict=True) if row == rows[0])

    def along(self, wanted: Range) -> tuple[int, Iterator[tuple[str, Change]]] | None:
        """How many commits a range has, and their changes against their first parents, with the commit's hash each.

        None when trees are not there. Several gits do it at a time: one alone takes as long as all other planning of
        a range of a kernel's size. A merge that differs from its first parent in nothing that matters is that parent
        again; one that does may still be its other parent again, which would take a walk of its own.
        """
        if not self.at_hand:
            return None
        words = ("log", "--no-show-signature", "--format=%H %P", *wanted.limits(wanted.new.sha, (wanted.old.sha,)))
        pairs = [line.split()[:2] for line in self.repository.ask(*words).lines]
        return len(pairs), self._changes_of(pairs)

    def _changes_of(self, pairs: Sequence[Sequence[str]]) -> Iterator[tuple[str, Change]]:
        """The changes of commits against their first parents, each pair given by hash, in that order."""
        share = max(_LEAST_SHARE, math.ceil(len(pairs) / (os.cpu_count() or 1)))
        parts = (pairs[start : start + share] for start in range(0, len(pairs), share))
        with ThreadPoolExecutor() as gits:
            yield from chain.from_iterable(map(_read, gits.map(self._diff, parts)))

    def _diff(self, pairs: Sequence[Sequence[str]]) -> str:
        asked = "".join(f"{' '.join(pair)}\n" for pair in pairs)
        return self.repository.ask(*_DIFF, "--stdin", stdin=asked).stdout


def _read(output: str) -> Iterator[tuple[str, Change]]:
    """Git's words, each ended by a zero byte: hashes where it was asked for commits, then status and path in turn."""
    commit = ""
    words = iter(output.split("\0")[:-1])
    for word in words:
        if len(word) > _LONGEST_STATUS:
            commit = word
        else:
            yield commit, Change(next(words), word == _ADDED)
