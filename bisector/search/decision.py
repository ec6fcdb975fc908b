"""What a search may decide, and the rules that it goes by: values."""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from bisector.search.choice import Costs
from bisector.search.fit import Fit
from bisector.search.likelihood import Key, Weighing
from bisector.search.readings import Kernel
from bisector.search.verified import SuspectEffect


@dataclass(frozen=True, slots=True)
class Rules:
    """When to confirm, and when to stop.

    Once it has the probability ``doubt`` that nothing in the range changed, both ends are read again. A commit with
    the probability ``suspect`` is confirmed, which is due anyway before it is named, and tells more than another
    trial would; it is named at ``target``. Then the new end without it is read again, ``max_reverts`` times in all,
    until it has ``surely`` however noisy the host may be by what is known of it. The suspect or a parent of it
    whose runs speak against it is read until these do so with the odds ``sure``. Less than ``least_bits`` is not
    worth a trial (as a share of what noise lets any tell), unless it is ``least_share`` of all that is unknown: at
    98.9 % a tenth of a bit is lacking, and one noisy reading settles it. From the probability ``whole_from`` on
    that a commit or a child of it is the answer, a run is not stopped early, since it would have to be repeated;
    nor while more than the share ``most_overlap`` of the figures is expected on the wrong side of the line, where a
    figure tells more than its side. ``max_runs`` counts completed runs; a search that noise makes longer has up to
    twice as many, ``patience`` times what one takes on average. ``max_undone`` counts kernels built without a
    commit or with it to find the suspect (all of a run of 30 commits that do not build), of which ``max_in_vain``
    more may give no reading than give one; ``max_confirming`` more may be built to confirm one. The suspect and its
    parent are read ``max_pairs`` times in turn, at most, to show its effect. Below the probability ``undo_from`` a
    commit is not undone while a trial tells anything. Among ``few`` candidates each is tried that would tell
    something if it worked.
    """

    doubt: float = 0.50
    suspect: float = 0.80
    target: float = 0.99
    whole_from: float = 0.20
    most_overlap: float = 0.03
    least_bits: float = 0.03
    least_share: float = 0.05
    sure: float = 10.0
    surely: float = 0.85
    max_reverts: int = 5
    max_runs: int = 60
    patience: float = 3.0
    undo_from: float = 0.10
    max_undone: int = 48
    max_in_vain: int = 4
    max_confirming: int = 2
    max_pairs: int = 40
    few: int = 16


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """All that the search is told beforehand, but for the range; and for how many minutes it may go on."""

    weighing: Weighing = field(default_factory=Weighing)
    costs: Costs = field(default_factory=Costs)
    rules: Rules = field(default_factory=Rules)
    left_min: float = math.inf

    @property
    def whole_from(self) -> float:
        """How likely it has to be that the answer will rest on a run, for a whole one to be the cheaper one."""
        return max(self.rules.whole_from, self.costs.whole_from)


@dataclass(frozen=True, slots=True)
class Try:
    """Measure a commit, in a run that an answer can rest on if ``whole``; ``gain_bits`` is what to expect of it.

    Such a run goes its whole length, or ends once it is clear of the whole run of the first one of ``beside`` on the
    other side. There is none for the likeliest commit: the others are held against its run, a report shows its
    figures, and they tell a level between those of the ends.
    """

    commit: int
    whole: bool
    gain_bits: float
    confirms: bool = False
    beside: tuple[int, ...] = ()

    @property
    def of(self) -> Key:
        """What is measured."""
        return self.commit, Kernel.COMMIT


@dataclass(frozen=True, slots=True)
class Undo:
    """Measure the new end without a commit, or the old end with it, in a run that an answer can rest on if ``whole``.

    Such a run goes its whole length, or, if ``beside_end``, ends once it is clear of the end's own whole run.
    """

    commit: int
    kernel: Kernel
    whole: bool = True
    beside_end: bool = True

    @property
    def of(self) -> Key:
        """What is measured."""
        return self.commit, self.kernel


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing is worth its time beside what is in flight: wait for that."""


class Ending(StrEnum):
    """How a search ends."""

    FOUND = "found"
    NARROWED = "narrowed"
    NOT_ONE_CHANGE = "not one change"
    NO_CHANGE = "no change"


@dataclass(frozen=True, slots=True)
class Answer:
    """The end: the likeliest commit, its probability, the smallest set that has the target, and the fit of the model.

    ``confirmed`` tells whether an end without the commit, or with it, was measured, ``effect`` what readings of it
    and its parent show, where figures count, ``of_all`` what those of both ends do since the search began, and
    ``nothing`` is the probability that no commit of the range changed the figures. ``out_of_time`` tells that the
    search would go on, and no step that it could begin would end in time.
    """

    ending: Ending
    commit: int
    probability: float
    candidates: tuple[int, ...]
    fit: Fit
    confirmed: bool
    effect: SuspectEffect | None = None
    of_all: SuspectEffect | None = None
    nothing: float = 0.0
    out_of_time: bool = False


Decision: TypeAlias = Try | Undo | Hold | Answer
