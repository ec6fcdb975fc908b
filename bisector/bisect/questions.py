"""What the step of a bisection may ask of the repository, a build or the host; values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bisector.campaign.instructions import Question
from bisector.core.events import Event
from bisector.core.subject import Commit, Compiler, Kernel, Kind, Mattering
from bisector.core.verdict import Terms, Verdict
from bisector.git.bisect import Contradiction
from bisector.git.bisect import Step as Proposal
from bisector.git.trees import CannotBeHad, ChangedCommit


@dataclass(frozen=True)
class CommitsOf(Question[tuple[Commit, ...]]):
    """The commits of these hashes."""

    shas: tuple[str, ...]


@dataclass(frozen=True)
class ParentsOf(Question[Mapping[str, tuple[str, ...]]]):
    """The hashes of the parents of each of these commits, as far as the bisection follows them."""

    shas: tuple[str, ...]


@dataclass(frozen=True)
class Installed(Question[tuple[Compiler, ...]]):
    """What kernels can be built with here, as the settings ask for, the preferred one first."""


@dataclass(frozen=True)
class ParentWithSameKernel(Question[Commit | None]):
    """A parent of a commit with this kernel that surely has it, too."""

    commit: Commit
    kernel: Kernel


@dataclass(frozen=True)
class WhatMatters(Question[Mattering | None]):
    """Which commits of the range can matter, given the kernels of its ends."""

    old: Kernel
    new: Kernel


@dataclass(frozen=True)
class KeptKernels(Question[frozenset[str]]):
    """The hashes of the commits of the range of which a kernel is kept, made by one of these compilers."""

    compilers: tuple[Compiler, ...]


@dataclass(frozen=True)
class ChangedEnd(Question[ChangedCommit | CannotBeHad]):
    """An end without a commit, or with it."""

    kind: Kind
    commit: Commit
    end: Commit


@dataclass(frozen=True)
class ShowGit(Question["GitState"]):
    """Make git's bisection hold these skips and verdicts under these terms, and no others.

    With ``proposes``, ask what it makes of it. Unlike other answers this one holds only until git is shown something
    else.
    """

    terms: Terms
    skips: tuple[str, ...]
    verdicts: tuple[tuple[str, Verdict], ...]
    proposes: bool = False
    tell: tuple[Event, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class GitState:
    """What git's bisection was made to hold, and what it made of that, if it was asked."""

    shown: ShowGit
    says: Proposal | Contradiction | None


@dataclass(frozen=True)
class LeftInRange(Question[tuple[str, ...]]):
    """The hashes of the commits that git has left, whatever paths they touch, by what it was shown."""

    shown: ShowGit
