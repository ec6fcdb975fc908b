"""What is happening, told one way to whoever listens; nobody answers."""

from collections.abc import Callable
from dataclasses import dataclass, field

from bisector.core.metric import Unit
from bisector.core.objective import Objective
from bisector.core.subject import Commit
from bisector.core.trial import Stage, Trial
from bisector.core.verdict import Direction, Terms, Verdict


@dataclass(frozen=True, slots=True)
class Planned:
    """The next trial: which commit, why, how many candidates and steps are left (0: unknown).

    This trial is one of the steps that are left. Where commits have probabilities, ``probability`` is that of the
    likeliest one, and the candidates have 99 % of it together.
    """

    n: int
    commit: Commit
    purpose: str
    candidates_left: int
    steps_left: int
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class StageStarted:
    """A stage of the running trial began; ``detail`` is for people."""

    commit: Commit
    stage: Stage
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LiveSample:
    """The workload's own rate of the moment, over all its jobs, whatever metric decides in the end."""

    run: str
    rate: float
    unit: Unit
    done_share: float


@dataclass(frozen=True, slots=True)
class TrialJudged:
    """A trial ended and was classified; ``why`` is the sentence for the table, ``terms`` are the words as of now."""

    n: int
    trial: Trial
    verdict: Verdict
    why: str
    terms: Terms
    objective: Objective = field(default_factory=Objective)
    direction: Direction | None = None

    @property
    def word(self) -> str:
        """The verdict in the person's words."""
        return self.terms.word(self.verdict)


@dataclass(frozen=True, slots=True)
class BuildStarted:
    """A kernel is built that nobody measures yet; ``purpose`` is for people."""

    commit: Commit
    purpose: str


@dataclass(frozen=True, slots=True)
class BuildEnded:
    """That build has ended, in whatever way."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class Note:
    """Something a person wants to know once."""

    text: str


@dataclass(frozen=True, slots=True)
class OnHost:
    """What happens on one of several hosts."""

    host: str
    event: "Event"


Event = Planned | StageStarted | LiveSample | TrialJudged | BuildStarted | BuildEnded | Note | OnHost
Listener = Callable[[Event], None]
