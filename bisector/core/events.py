"""Events that tell listeners what is happening; no listener answers."""

from collections.abc import Callable
from dataclasses import dataclass, field

from bisector.core.metric import Unit
from bisector.core.objective import Objective
from bisector.core.subject import Commit
from bisector.core.trial import Stage, Trial
from bisector.core.verdict import Direction, SideWords, Verdict


@dataclass(frozen=True, slots=True)
class Planned:
    """The next trial: its commit and purpose, and how many candidates and steps are left (0: unknown).

    This trial is one of the steps that are left. If commits have probabilities, ``probability`` is that of the
    likeliest commit, and the candidates have 99 % of it together.
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
    """The present rate of the workload over all its jobs, whatever metric decides in the end."""

    run: str
    rate: float
    unit: Unit
    done_share: float


@dataclass(frozen=True, slots=True)
class TrialJudged:
    """A trial ended and was judged; ``why`` is the sentence for the table, ``terms`` are the present words."""

    n: int
    trial: Trial
    verdict: Verdict
    why: str
    terms: SideWords
    objective: Objective = field(default_factory=Objective)
    direction: Direction | None = None

    @property
    def word(self) -> str:
        """The verdict in the user's words."""
        return self.terms.word(self.verdict)


@dataclass(frozen=True, slots=True)
class BuildStarted:
    """The build of a kernel began that is not measured yet; ``purpose`` is for people."""

    commit: Commit
    purpose: str


@dataclass(frozen=True, slots=True)
class BuildEnded:
    """The build has ended, in whatever way."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class Note:
    """A message that a person wants to see once."""

    text: str


@dataclass(frozen=True, slots=True)
class OnHost:
    """An event on one of several hosts."""

    host: str
    event: "Event"


Event = Planned | StageStarted | LiveSample | TrialJudged | BuildStarted | BuildEnded | Note | OnHost
Listener = Callable[[Event], None]
