"""The facts that are appended to the record of a run, and what they are made of: frozen values.

The name of a fact's class is its kind in the log. :meth:`bisector.store.store.Store.add` writes facts. A submission is
recorded before an executor gets it, and its end together with its result. So a killed process leaves the submissions
that it had in flight, and nothing half done.

A comparison also records what is compared on which setups, and the blocks in which it is measured. An arm is a subject
under a name; a setup is a storage stack and a workload. A block measures every arm once on one setup, in a random order
and with one seed of the workload. :mod:`bisector.status.blocks` draws the conclusions.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Self

from bisector.config import Settings, options
from bisector.core.subject import Commit, Compiler, Mattering, NotChanged, Subject
from bisector.core.trial import Control, Stage, Taken, Trial
from bisector.core.verdict import State
from bisector.search.noise import EarlierSearches
from bisector.store.rundir import found_input, recorded_input, with_inputs

# What is compared, and budgets


@dataclass(frozen=True, slots=True)
class Arm:
    """A subject under the name that a person typed; ``file`` is its configuration fragment, or its kernel image."""

    name: str
    subject: Subject
    file: Path | None = None

    @property
    def commit(self) -> Commit:
        """The commit that is built."""
        return self.subject.commit


def on_top(arm: str, text: str) -> str:
    """The name of an arm that is the arm ``arm`` with something on top."""
    return f"{arm} + {text}"


@dataclass(frozen=True, slots=True)
class Absent:
    """A pair of setup and arm, by their places in the plan, for which nothing is measured, and the reason."""

    setup: int
    arm: int
    reason: str


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget: no block or trial begins that would end after ``spent_s`` + ``budget_s`` seconds of work."""

    budget_s: float
    spent_s: float = 0.0

    @property
    def end_s(self) -> float:
        """The seconds of work, in all, at which the budget is spent."""
        return self.spent_s + self.budget_s


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    ``runs`` blocks are measured on each setup; with ``until``, as many as make every interval that narrow (a share of
    the first arm's value). ``budget_s`` is the budget at the start. Values that differ by less than the share
    ``delta``, the setting bisect.least_effect, are the same. ``seed`` determines everything random.
    """

    seed: int
    runs: int
    until: float | None = None
    budget_s: float | None = None
    delta: float = 0.05

    @property
    def budget(self) -> Budget | None:
        """The budget that holds until another one is given."""
        return None if self.budget_s is None else Budget(self.budget_s)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a trial belongs: the number of its block, and its arm."""

    block: int
    arm: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A trial of a comparison, with its number."""

    n: int
    place: Place
    trial: Trial


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared; the first arm is the one that the others are compared with.

    ``setups`` are the whole settings of each setup's trials; their metric decides on that setup.
    """

    arms: tuple[Arm, ...]
    setups: tuple[Settings, ...]
    extent: Extent
    absent: tuple[Absent, ...] = ()

    def settings(self, setup: int, arm: int) -> Settings:
        """The settings of an arm on a setup; the arm's own kernel parameters and fragment come last."""
        settings, one = self.setups[setup], self.arms[arm]
        append = f"{settings.machine.append} {one.subject.parameters}".strip()
        own = (str(one.file),) if one.subject.fragment else ()
        kernel = replace(settings.kernel, fragments=(*settings.kernel.fragments, *own))
        return replace(settings, machine=replace(settings.machine, append=append), kernel=kernel)

    @property
    def with_fragment(self) -> tuple[int, ...]:
        """The arms whose kernels have a configuration of their own, by their places."""
        return tuple(n for n, arm in enumerate(self.arms) if arm.subject.fragment)

    def placed(self, n: int, place: Place, trial: Trial) -> Placed:
        """Add to a recorded trial what is known of its arm's subject besides the kernel."""
        return Placed(n, place, replace(trial, cell=replace(trial.cell, subject=self.arms[place.arm].subject)))


@dataclass(frozen=True, slots=True)
class Block:
    """The arms of a block, in the order of measuring; ``round`` counts the useful blocks of its setup."""

    n: int
    setup: int
    round: int
    seed: int
    arms: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlannedComparison:
    """A plan in a record: settings are JSON, and files of the run directory have paths relative to it."""

    arms: tuple[Arm, ...]
    settings: tuple[str, ...]
    extent: Extent
    absent: tuple[Absent, ...]

    @classmethod
    def of(cls, plan: Plan, run_dir: Path) -> Self:
        """The record of a plan in a run directory."""
        arms = (replace(arm, file=arm.file and Path(recorded_input(str(arm.file), run_dir))) for arm in plan.arms)
        settings = (with_inputs(options.to_json(one), recorded_input, run_dir) for one in plan.setups)
        return cls(tuple(arms), tuple(settings), plan.extent, plan.absent)

    def plan(self, run_dir: Path) -> Plan:
        """The plan in this directory, which may have been moved since it was recorded."""
        arms = (replace(arm, file=arm.file and Path(found_input(str(arm.file), run_dir))) for arm in self.arms)
        texts = (with_inputs(text, found_input, run_dir) for text in self.settings)
        return Plan(tuple(arms), tuple(map(options.from_json, texts)), self.extent, self.absent)


# What every run records


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What a run was begun for: the range as typed and resolved, if there is one, and the settings as JSON."""

    repository: Path | None
    old_rev: str
    old_sha: str
    new_rev: str
    new_sha: str
    paths: tuple[str, ...]
    first_parent: bool
    skips: tuple[str, ...]
    settings: str
    tool_version: str
    created_at: str

    @classmethod
    def of(
        cls,
        settings: Settings,
        repository: Path | None,
        *,
        old: tuple[str, str] = ("", ""),
        new: tuple[str, str] = ("", ""),
        paths: tuple[str, ...] = (),
        first_parent: bool = False,
        skips: tuple[str, ...] = (),
    ) -> Self:
        """The header of a new run; each end is a pair: the revision as typed, and its hash."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        asked = (*old, *new, paths, first_parent, skips)
        return cls(repository, *asked, options.to_json(settings), version("bisector"), at)

    @property
    def has_ends(self) -> bool:
        """Whether the run searches between two ends."""
        return bool(self.old_sha and self.new_sha)


@dataclass(frozen=True, slots=True)
class StateChange:
    """A state that the run entered, and the process that recorded it; ``out_of_time`` if the budget was spent."""

    at: str
    state: State
    message: str
    pid: int
    out_of_time: bool = False


@dataclass(frozen=True, slots=True)
class InfraFault:
    """An attempt at a trial that failed through the tool, its host or the network."""

    at: Annotated[str, "time"]
    sha: Annotated[str, "what was tried"]
    stage: Stage
    host: Annotated[str, "name of the host"]
    message: Annotated[str, "one sentence"]


class Work(StrEnum):
    """The kind of work that an executor was asked to do."""

    TRIAL = "trial"
    CONTROL = "control"
    BUILD = "build"
    RECHECK = "recheck"


class Ending(StrEnum):
    """How a submission ended: LOST if its process was killed, CANCELLED if its result was no longer needed."""

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Submitted:
    """Work about to be given to an executor; ``host``, trial ``n`` and the place in a comparison may be unset."""

    work: Work
    sha: str
    n: int | None = None
    host: str = ""
    block: int | None = None
    arm: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of the submission with this number."""

    submission: int
    ending: Ending


@dataclass(frozen=True, slots=True)
class NumberedTrial:
    """A trial with its number.

    ``vouched_by`` is the number, from 1, of the control that showed the trial's fault to be the kernel's own; ``place``
    is its place in a comparison, and ``taken`` the run that it was taken over from. The trial's own control is not
    recorded here, since it follows from the controls.
    """

    n: int
    trial: Trial
    vouched_by: int | None = None
    place: Place | None = None
    taken: Taken | None = None


@dataclass(frozen=True, slots=True)
class BuildTry:
    """Whether a compiler builds a commit, with a subject's ``fragment`` if any; ``reason`` is empty if it does."""

    compiler: Compiler
    sha: str
    reason: str
    fragment: str = ""


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """A measured kernel was built again with the same digest, or ``why_not`` says why that cannot be determined."""

    sha: str
    content_sha256: str
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Compilers:
    """The compilers of every kernel of a bisection; they do not change."""

    compilers: tuple[Compiler, ...]


@dataclass(frozen=True, slots=True)
class Skip:
    """A commit that a person asked not to measure, or not to measure again."""

    sha: str


Fact = (
    RunHeader
    | PlannedComparison
    | StateChange
    | Submitted
    | Ended
    | NumberedTrial
    | Control
    | Block
    | Budget
    | BuildTry
    | KernelCheck
    | Compilers
    | InfraFault
    | EarlierSearches
    | Mattering
    | NotChanged
    | Skip
)
