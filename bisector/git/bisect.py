"""Bisection by git itself: a real ``git bisect`` in a worktree of its own, without a checkout.

Git's state mirrors the facts of a run and is never their store: ``refs/bisect/NEW`` remembers only the last new commit,
and git refuses a contradiction only after it has changed its refs. So verdicts that git could not hold are detected
beforehand, by ancestry, and after a kill all verdicts are told anew.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Commit
from bisector.core.verdict import SideWords, Verdict
from bisector.git.ranges import Range, expected_steps
from bisector.git.repository import Repository
from bisector.git.source_tree import Worktree, WorktreePurpose
from bisector.host.files import scratch

Told = tuple[str, Verdict]

# The exit statuses of git bisect (enum bisect_error in git's bisect.h).
_ONLY_SKIPPED_LEFT = 2
_NO_TESTABLE_COMMIT = 4
_STATUSES = (0, _ONLY_SKIPPED_LEFT, _NO_TESTABLE_COMMIT)
# The subcommands of git bisect, which it does not accept as terms.
_SUBCOMMANDS = frozenset(
    ("help", "start", "skip", "next", "reset", "visualize", "view", "replay", "log", "run", "terms")
)


@dataclass(frozen=True, slots=True)
class CommitToTry:
    """The commit to try next: ``candidates_left`` may be the first new one, and ``steps_left`` trials are expected."""

    commit: Commit
    candidates_left: int
    steps_left: int
    is_merge_base: bool


@dataclass(frozen=True, slots=True)
class FirstNewCommit:
    """The search is over: ``commit`` is the first new commit."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class OnlySkippedLeft:
    """Any of ``candidates`` may be the first new commit; the ``skipped`` among them prevent a decision."""

    candidates: tuple[Commit, ...]
    skipped: tuple[Commit, ...]


@dataclass(frozen=True, slots=True)
class MergeBaseIsNew:
    """A common ancestor of both ends is new already, so the change was undone on the way to ``old``."""

    merge_base: Commit
    old: Commit
    new: Commit


@dataclass(frozen=True, slots=True)
class OutsidePaths:
    """The change was made by one of ``candidates``, none of which touches the paths of the range."""

    candidates: tuple[Commit, ...]


Step = CommitToTry | FirstNewCommit | OnlySkippedLeft | MergeBaseIsNew | OutsidePaths


class Contradiction(Exception):
    """A verdict that contradicts an earlier one if the range has a single change."""

    def __init__(self, sha: str, verdict: Verdict, other: str) -> None:
        super().__init__(sha, verdict, other)
        self.sha = sha
        self.verdict = verdict
        self.other = other

    def __str__(self) -> str:
        relation = "an ancestor" if self.verdict is Verdict.NEW else "a descendant"
        return f"{self.sha[:12]} is {self.verdict} and {relation} of {self.other[:12]}, which is not"


def check_terms(terms: SideWords | None) -> None:
    """Raise :class:`UserError` for chosen terms that ``git bisect --term-old --term-new`` does not accept."""
    if terms is None:
        return
    for term, taken in ((terms.old, ("bad", "new")), (terms.new, ("good", "old"))):
        if not re.fullmatch(r"[^\W\d_][\w-]*", term):
            raise UserError(f"{term!r} cannot be a term", "use a word of letters, digits and hyphens")
        if term in _SUBCOMMANDS:
            raise UserError(f"{term!r} cannot be a term: it is a command of git bisect")
        if term in taken:
            raise UserError(f"{term!r} means the other end to git bisect", "swap the terms, or choose other words")
        if term == Verdict.WEAK:
            raise UserError(f"{term!r} cannot be a term: it is a verdict of its own")
    if terms.old == terms.new:
        raise UserError(f"both terms are {terms.old!r}")


class Bisect:
    """A bisection in progress; a context manager that leaves nothing behind in the repository.

    Call ``start`` first; then ``next`` says what to try, and ``tell`` takes verdicts. ``terms`` are the words that git
    is started with. The change can only be in the range if all ``bases``, the hashes of the merge bases, are old.
    """

    def __init__(self, repository: Repository, run_dir: Path, wanted: Range, terms: SideWords) -> None:
        self._repository = repository
        self._run_dir = run_dir
        self._range = wanted
        self.terms = terms
        self._worktree: Worktree | None = None
        bases = repository.merge_bases(wanted.new.sha, wanted.old.sha)
        self.bases = tuple(sha for sha in bases if sha != wanted.old.sha)
        self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._worktree is not None:
            self._worktree.remove()

    def start(self, skips: Iterable[str] = (), told: Iterable[Told] = ()) -> tuple[Told, ...]:
        """Start anew: skip hashes in the range, tell verdicts; return what git was told. Raises as :meth:`tell`."""
        self._forget()
        if wanted := tuple(dict.fromkeys(skips)):  # one walk over the range instead of a question about each hash
            inside = {*self.in_range(), *self._untried_bases()} - {self._new}
            for sha in (sha for sha in wanted if sha in inside):
                self._note(sha, Verdict.SKIP)
        for sha, verdict in told:
            if self._is_useful(sha, verdict):
                self._note(sha, verdict)
        self._build()
        return tuple(self._told)

    def tell(self, sha: str, verdict: Verdict) -> bool:
        """Tell git a verdict, if useful, and return whether it was; :class:`Contradiction` leaves git as it was."""
        if not verdict.settled:
            raise ValueError(f"{verdict} is not for git")
        useful = sha == self._proposed or self._is_useful(sha, verdict)
        if useful:
            self._note(sha, verdict)
            self._status = self._home.git("bisect", self.terms.word(verdict), sha).status
            if not self._holds():  # somebody used git bisect there by hand, or the worktree is gone
                self._build()
        return useful

    def next(self) -> Step:
        """The next step, from all verdicts so far."""
        commits = self._repository.commits
        if self._over:
            return MergeBaseIsNew(commits([self._new])[0], self._range.old, self._range.new)
        if self._status == _NO_TESTABLE_COMMIT:
            return OutsidePaths(commits(self.in_range()))
        left = self.candidates()
        if self._status == _ONLY_SKIPPED_LEFT:
            return OnlySkippedLeft(commits(left), commits(sha for sha in left if sha in self._skips))
        bases = self._untried_bases()
        if left == (self._new,) and not bases:
            return FirstNewCommit(commits(left)[0])
        if not self._proposed:
            # git around 2.31 did not continue after a skip if its terms had been chosen by the user.
            raise InfraError(f"git {self._repository.git.version_text} proposes no commit that is still to be tried")
        steps = expected_steps(left, self._new) + len(bases)
        return CommitToTry(commits([self._proposed])[0], len(left), steps, self._proposed in bases)

    def in_range(self) -> tuple[str, ...]:
        """The hashes of the commits that are left, whatever paths they touch."""
        return self._repository.ask("rev-list", self._new, "--not", *self._olds).lines

    def candidates(self) -> tuple[str, ...]:
        """The hashes of the commits that may be the first new one, newest first."""
        return self._repository.ask("rev-list", *self._range.limits(self._new, self._olds)).lines

    def log(self) -> str:
        """The output of ``git bisect log``, which can be replayed; empty if somebody ended the bisection by hand."""
        # The command copies this file; up to git 2.39 by a shell script, which takes longer than a step of the search.
        log = self._home.admin / "BISECT_LOG"
        return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""

    # The verdicts that git should know.

    def _forget(self) -> None:
        self._told: list[Told] = []
        self._new = self._range.new.sha
        self._olds = [self._range.old.sha]
        self._skips: set[str] = set()
        self._proposed = ""
        self._status = 0

    @property
    def _over(self) -> bool:
        return self._new in self.bases

    def _note(self, sha: str, verdict: Verdict) -> None:
        self._told.append((sha, verdict))
        if verdict is Verdict.NEW:
            self._new = sha
        elif verdict is Verdict.OLD:
            self._olds.append(sha)
        else:
            self._skips.add(sha)

    def _untried_bases(self) -> tuple[str, ...]:
        return tuple(sha for sha in self.bases if sha not in self._olds and sha not in self._skips)

    def _is_useful(self, sha: str, verdict: Verdict) -> bool:
        if self._over:
            return False
        if sha in self._untried_bases():
            return True
        repository = self._repository
        above_old = bool(repository.ask("rev-list", "--max-count=1", sha, "--not", *self._olds).lines)
        if verdict is Verdict.NEW and not above_old:
            raise Contradiction(sha, verdict, next(old for old in self._olds if repository.is_ancestor(sha, old)))
        below_new = sha != self._new and repository.is_ancestor(sha, self._new)
        if verdict is Verdict.OLD and not below_new and repository.is_ancestor(self._new, sha):
            raise Contradiction(sha, verdict, self._new)
        return above_old and below_new and sha not in self._skips

    # What git is told, and its resulting state.

    def _build(self) -> None:
        """Tell git all noted verdicts, in the existing worktree or else in a new one."""
        if self._worktree is not None and self._is_replayed():
            return
        self._worktree = Worktree.add(self._repository, self._run_dir, WorktreePurpose.BISECT, self._range.old.sha)
        if not self._is_replayed():
            version = self._repository.git.version_text
            raise InfraError(f"git {version} does not hold what it was told of the bisection")

    @property
    def _home(self) -> Worktree:
        if self._worktree is None:
            raise RuntimeError("start() comes first")
        return self._worktree

    def _is_replayed(self) -> bool:
        """Run ``git bisect start`` and tell all verdicts in one command; return whether git then holds them.

        With one command git searches once instead of after each verdict. The ends are told after the start: git 2.39
        stops replaying if ``start`` with both ends asks for a merge base, so its own log could not be replayed either.
        """
        words = ("--no-checkout", "--term-old", self.terms.old, "--term-new", self.terms.new)
        first_parent = ("--first-parent",) if self._range.first_parent else ()
        # Quoted as git quotes the words in its log and reads them back.
        quoted = (word.replace("'", "'\\''") for word in (*words, *first_parent, "--", *self._range.paths))
        start = " ".join(f"'{word}'" for word in quoted)
        ends = ((self._range.new.sha, Verdict.NEW), (self._range.old.sha, Verdict.OLD))
        verdicts = [f"git bisect {self.terms.word(verdict)} {sha}" for sha, verdict in (*ends, *self._told)]
        with scratch("bisect") as directory:
            log = directory / "log"
            lines = (f"git bisect start {start}", *verdicts)
            log.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            self._status = self._home.git("bisect", "replay", str(log)).status
        return self._holds()

    def _holds(self) -> bool:
        """Whether git's state is what was noted, under the chosen terms; also note the commit that git proposes."""
        # One command prints the hashes of git's references, the hash of BISECT_HEAD (which every state made here has),
        # and the names of the references in the same order.
        every = "--glob=refs/bisect/"
        lines = self._home.git("rev-parse", every, "BISECT_HEAD", "--symbolic-full-name", every).lines
        middle = len(lines) // 2
        refs = dict(zip(lines[middle + 1 :], lines[:middle], strict=False))
        head = "".join(lines[middle : middle + 1])
        expected = {f"refs/bisect/{self.terms.new}": self._new}
        expected |= {f"refs/bisect/{self.terms.old}-{sha}": sha for sha in self._olds}
        expected |= {f"refs/bisect/skip-{sha}": sha for sha in self._skips}
        self._proposed = head if self._status == 0 and head not in expected.values() else ""
        # If the bisection is over, git exits with 3, or with 1 if it had not asked for just this merge base.
        return (self._status in _STATUSES or self._over) and refs == expected
