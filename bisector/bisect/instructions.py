"""What the step tells the loop to do, and what it may ask; values, which decide nothing.

Each is carried out whole before the next step. What comes of it is a fact, on record or heard by this process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from bisector.core.errors import BisectorError
from bisector.core.events import Event
from bisector.core.subject import Commit, Compiler, Kernel, Kind, Mattering
from bisector.core.verdict import State, Terms, Verdict
from bisector.executor.base import Failed, Finished, Request
from bisector.git.trees import CannotBeHad, ChangedCommit
from bisector.search.readings import Facts as Readings
from bisector.store.facts import Fact

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Outlook:
    """How much is left: commits that may be the answer, trials to expect, and the likeliest commit's probability."""

    candidates: int = 0
    trials_left: int = 0
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Submit:
    """Wait, tell, put a submission on record, and give it to the executor, for ``host`` if one is named.

    ``matter`` names what it is for: attempts that fail and controls that are asked because of them are of one matter.
    ``about`` are the trials because of whose faults a control is due. With ``may_stop_early`` the loop adds the rule by
    which a trial may; with ``clear_of`` that by which one may on which an answer rests: clear of the whole run of one
    of these commits, too; with ``alike`` that by which one of an end with another fill may. ``because`` is what the
    search knew when it chose, and ``expected_min`` the minutes that it expected.
    """

    request: Request
    matter: str
    tell: tuple[Event, ...] = ()
    wait_s: float = 0.0
    may_stop_early: bool = False
    clear_of: tuple[str, ...] = ()
    alike: bool = False
    about: tuple[int, ...] = ()
    because: Readings | None = None
    expected_min: float = 0.0
    host: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A submission and how it ended."""

    submit: Submit
    id: int
    news: Finished | Failed


@dataclass(frozen=True, slots=True)
class Record:
    """Put facts on record, all or none, then tell; of what has ended, and ``comes_late``, the host may forget all.

    ``settles`` is the attempt whose end is among them. With ``over`` its matter is, and what was heard of it counts no
    more.
    """

    facts: tuple[Fact, ...]
    settles: Attempt | None = None
    over: bool = False
    tell: tuple[Event, ...] = ()
    comes_late: int | None = None


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell people, once: ``keys`` say what they have been told."""

    events: tuple[Event, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShowGit:
    """Make git's bisection hold these skips and verdicts under these terms, and no others.

    With ``proposes``, ask what it makes of it.
    """

    terms: Terms
    skips: tuple[str, ...]
    verdicts: tuple[tuple[str, Verdict], ...]
    proposes: bool = False
    tell: tuple[Event, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a submission that nobody needs any more."""

    id: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """Use a host no more, for what was raised there; other hosts go on."""

    host: str
    error: BisectorError


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for news of what is in flight, or for a host where nothing is."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a bisection ended: ``candidates`` holds one commit when it was found.

    ``out_of_time`` when it would go on, and its budget allows no more.
    """

    state: State
    candidates: tuple[Commit, ...]
    skipped: tuple[Commit, ...]
    message: str
    out_of_time: bool = False


# Questions


class Question(Generic[T_co]):
    """Something that only the repository, a build or the host can tell; its answer does not change meanwhile."""


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
class TwinOf(Question[Commit | None]):
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
class LeftInRange(Question[tuple[str, ...]]):
    """The hashes of the commits that git has left, whatever paths they touch, by what it was shown."""

    shown: ShowGit


@dataclass(frozen=True, slots=True)
class Ask:
    """Find the answer to a question."""

    question: Question[object]


Instruction: TypeAlias = Submit | Record | Tell | ShowGit | Ask | Cancel | SetAside | Wait | Done
