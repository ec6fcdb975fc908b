"""What a comparison records beside trials: what is compared on which setups, and the blocks in which it is measured.

An arm is a subject under a name; a setup is a storage stack and a workload. A block measures every arm once on one
setup, in a random order and with one seed of the workload. :mod:`bisector.status.blocks` draws the conclusions.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from bisector.config import Settings, options
from bisector.core.subject import Commit, Subject
from bisector.core.trial import Trial
from bisector.store.run_files import found_input, recorded_input, with_inputs


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
