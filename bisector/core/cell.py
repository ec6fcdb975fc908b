"""What is measured, and on what: a subject on a setup is a cell, and one measurement of it on one host a trial.

Plain data that pickles, like all facts.
"""

from dataclasses import dataclass
from typing import Annotated

from bisector.core.commit import Commit, Kind


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: a commit; or an end of a range without a commit, or with it.

    ``commit`` is what is built. Of an end without a commit, or with it, ``kind`` says which, ``changed_by`` is that
    commit's hash, and ``commit`` is one that bisector made and no branch has. Of a kernel that somebody else measured
    the ``sha`` of ``commit`` is as much of it as was written down, or the kernel's name.
    """

    commit: Commit
    kind: Kind = Kind.COMMIT
    changed_by: str | None = None

    @property
    def is_commit(self) -> bool:
        """Whether it is a commit as the history has it."""
        return self.kind is Kind.COMMIT


@dataclass(frozen=True, slots=True)
class Setup:
    """What a subject is measured on: the stack in its full form (``ssd+ext4``), the workload (``fio(partial.fio)``).

    Equal setups are written alike, so that a setup on record is known again by its text. What nobody told of a
    measurement by others is empty: it is taken to be on the setup that is searched. All that they tell of a baseline is
    the disk's name.
    """

    stack: Annotated[str, "storage stack, in its full form; empty where others measured and did not tell"] = ""
    workload: Annotated[str, "name of the workload; empty where others measured and did not tell"] = ""

    @property
    def is_told(self) -> bool:
        """Whether it is known what was measured on."""
        return bool(self.stack)

    def __str__(self) -> str:
        return f"{self.workload} on {self.stack}"


@dataclass(frozen=True, slots=True)
class Cell:
    """A subject on a setup: trials of one cell measure the same, and their figures can be compared on one host."""

    subject: Subject
    setup: Setup

    @property
    def commit(self) -> Commit:
        """What is built."""
        return self.subject.commit
