"""The report of a bisection as one document of facts, made from the record by :mod:`bisector.report.reporting`.

:mod:`bisector.report.sections` turns it into sections.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from bisector.core import units
from bisector.core.figures import Contention
from bisector.core.json_keys import PAIRS, SCHEMA, Key
from bisector.core.printable import clean
from bisector.core.subject import Commit
from bisector.core.verdict import State, Verdict
from bisector.git.shown import ShownCommit
from bisector.report.before_after import Basis, BeforeAfter, CommitSide
from bisector.status.view import BisectionView, TrialView

_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")  # SHA-1 or SHA-256


@dataclass(frozen=True, slots=True)
class PlacedTrial:
    """A trial at its place in history: ``place`` counts commits from the old end (0); None if git was not asked."""

    place: Annotated[int | None, "number of commits from the old end; `null` where git is not asked"]
    shown: TrialView

    @property
    def n(self) -> Annotated[int, "number of the trial, as in `status.trials`"]:
        """The number of the trial."""
        return self.shown.n

    @property
    def sha(self) -> Annotated[str, "commit"]:
        """The hash of the commit."""
        return self.shown.trial.commit.sha

    @property
    def verdict(self) -> Annotated[Verdict, "as in `status.trials`"]:
        """The verdict."""
        return self.shown.verdict

    @property
    def why(self) -> Annotated[str, "one sentence"]:
        """The reason of the verdict."""
        return self.shown.why


def span(old_rev: str, new_rev: str) -> str:
    """A range as people write it; whole hashes, which nights ask for, are shortened."""
    return "..".join(clean(rev[:12] if _HASH.fullmatch(rev) else rev) for rev in (old_rev, new_rev))


@dataclass(frozen=True, slots=True)
class Request:
    """What a person typed: revisions, limits, and the command that asks for the same again."""

    old_rev: Annotated[str, "the old end, as it was typed"]
    new_rev: Annotated[str, "the new end, as it was typed"]
    paths: Annotated[tuple[str, ...], "only commits that touch these; empty for all"]
    skips: Annotated[tuple[str, ...], "commits that were not to be tried"]
    first_parent: Annotated[bool, "whether only first parents were followed"]
    command: Annotated[str, "command that asks for the same again"]

    @property
    def span(self) -> str:
        """``v4.11..v4.13-rc1``."""
        return span(self.old_rev, self.new_rev)


@dataclass(frozen=True, slots=True)
class TreeOrigin:
    """Where the commits come from: the tree's name as kernel robots give it, a branch, an address; any may be empty."""

    tree: Annotated[str, "name of the tree, as kernel robots give it; empty where it is not known, as the others"]
    branch: Annotated[str, "branch"] = ""
    url: Annotated[str, "address"] = ""

    @property
    def name(self) -> str:
        """``linus:master``."""
        return ":".join(filter(None, (self.tree, self.branch)))


@dataclass(frozen=True, slots=True)
class MeasuringHost:
    """A host of trials: its recorded facts, and the other load during its runs."""

    name: Annotated[str, "name of the host"]
    trials: Annotated[int, "number of its trials"]
    facts: Annotated[tuple[tuple[str, str], ...], PAIRS, "what is on record of it; may be empty"]
    contention: Annotated[tuple[Contention, ...], "what else it was doing during each run"]


@dataclass(frozen=True, slots=True)
class JobFile:
    """The job file as it was used, with the variables that it was given.

    If the file is ``missing``, the text says so as a comment of a job file.
    """

    name: Annotated[str, "name of the file"]
    text: Annotated[str, "its contents"]
    variables: Annotated[tuple[tuple[str, str], ...], PAIRS, "the variables that it was given"]
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Envelope:
    """The letter that carries a report: addresses as ``Name <user@host>``, Message-IDs with their brackets.

    ``date`` is in the format of RFC 5322. ``references`` are the earlier letters of the thread, the first one first;
    ``subject`` is the thread's; ``follows`` says what this letter means for theirs. ``config`` is the .config of the
    named kernel, ``defconfig`` the same as ``make savedefconfig`` writes it; both are empty if none was kept.
    """

    sender: str
    message_id: str
    date: str
    to: tuple[str, ...] = ()
    cc: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    subject: str = ""
    follows: str = ""
    regzbot: bool = False
    config: str = ""
    defconfig: str = ""


STANDING = {
    State.RUNNING: "still running",
    State.STOPPED: "stopped",
    State.FAILED: "without an answer",
    State.FOUND: "finished",
    State.NARROWED: "finished",
    State.IMPORTED: "imported",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The document of a bisection, whether finished, stopped or running; ``rows`` are in the order of history.

    ``testcase`` says what ran on which stack, the program first; ``disks`` says what each disk of the stack is.
    """

    schema: Annotated[Literal[2], SCHEMA] = 2
    bisection: Annotated[BisectionView, Key("status"), "its own `schema` included"]
    rows: Annotated[tuple[PlacedTrial, ...], "the trials in the order of history"]
    asked: Annotated[Request, "what was asked for"]
    origin: Annotated[TreeOrigin, "where the tree comes from"]
    workload: Annotated[JobFile, "the job file"]
    storage: Annotated[tuple[str, ...], "the commands that made the stack"]
    kernel: Annotated[tuple[tuple[str, str], ...], PAIRS, "sentences about the kernel"]
    hosts: Annotated[tuple[MeasuringHost, ...], "the hosts that measured"]
    bisect_log: Annotated[str | None, "git's bisect log; `null` until git is asked"]
    tool_version: Annotated[str, "version of bisector"]
    parents: tuple[Commit, ...] = ()
    envelope: Envelope | None = None
    answer: ShownCommit | None = None
    testcase: str = "fio"
    disks: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> Annotated[str, "one line"]:
        """The request and its outcome in one line."""
        view = self.bisection
        if not self.asked.old_rev:
            what = "Results of others" if self.imported else "Single commits"
            return f"{what}: {units.plural(len(self.rows), 'trial')}"
        outcome = STANDING[view.state]
        if view.first_fixed is not None:
            by = f", {compared.change.with_article}" if (compared := self.before_after) is not None else ""
            outcome = f"{view.first_fixed.short} is the first {view.terms.new} commit{by}"
        elif view.is_no_change:
            outcome = f"nothing in the range changed {view.objective.label}"
        elif view.state is State.NARROWED:
            outcome = f"narrowed to {units.plural(len(view.candidates), 'commit')}"
        return f"Bisection of {self.asked.span}: {outcome}"

    @property
    def imported(self) -> bool:
        """Whether others measured this."""
        return any(row.shown.trial.origin is not None for row in self.rows)

    @property
    def before_after(
        self,
    ) -> Annotated[
        BeforeAfter | None, Key("comparison"), "the answer against its parent; `null` where figures are missing"
    ]:
        """The answer against what came before it, or the ends of a narrowed range; None if values are missing."""
        view = self.bisection
        if view.state is State.NARROWED:
            after, befores = self._side(view.new), [(Basis.ENDS, view.old)]
        elif view.first_fixed is not None:
            # The nearest is the last measured commit on the old side before the answer, in the order of history.
            place = next((index for index, row in enumerate(self.rows) if row.sha == view.first_fixed.sha), 0)
            earlier = [row.shown for row in reversed(self.rows[:place]) if row.verdict is Verdict.OLD]
            nearest = [one.trial.commit for one in earlier if one.trial.subject.is_commit]
            after, befores = self._side(view.first_fixed), [(Basis.PARENT, parent) for parent in self.parents]
            befores += [(Basis.NEAREST, commit) for commit in nearest]
        else:
            return None
        sides = ((basis, self._side(commit)) for basis, commit in befores)
        found = ((basis, before) for basis, before in sides if before is not None)
        return next((BeforeAfter(before, after, basis, view.objective) for basis, before in found if after), None)

    def _side(self, commit: Commit) -> CommitSide | None:
        """The whole trials that count for a commit: its own, or those of the commit with the same kernel."""
        shas = {commit.sha, *(row.shown.trial.same_kernel_as for row in self.rows if row.sha == commit.sha)}
        trials = tuple(
            row.shown.trial
            for row in sorted(self.rows, key=lambda row: row.n)
            if row.sha in shas
            and row.shown.trial.runs
            and row.shown.trial.stopped_early is None
            and row.verdict in (Verdict.OLD, Verdict.NEW)
            and row.shown.value is not None
        )
        return CommitSide(commit, trials) if trials else None
