"""Objects that several documents have."""

from typing import Annotated, Self

from bisector.core.commit import Commit
from bisector.core.json_document import Record
from bisector.core.metric import Better, Unit
from bisector.core.objective import Objective


class NamedCommit(Record, frozen=True, kw_only=True):
    """A commit."""

    sha: Annotated[str, "hash; of an import as short as it was recorded, or the kernel's name"]
    subject: Annotated[str, "subject line"]
    committed_at: Annotated[str, "time of the commit"]

    @classmethod
    def of(cls, commit: Commit) -> Self:
        """Without its tree, which no script asks for."""
        return cls(sha=commit.sha, subject=commit.subject, committed_at=commit.committed_at)


class DecidingMetric(Record, frozen=True, kw_only=True):
    """What decides."""

    metric: Annotated[str, "the [metric](metrics.md)"]
    over: Annotated[str, "what several jobs amount to: `worst`, `sum`, `mean`, or the name of the job that counts"]
    unit: Annotated[Unit, "of its values"]
    better: Annotated[Better, "which of its values are better"]

    @classmethod
    def of(cls, objective: Objective) -> Self:
        """With what the metric's definition says."""
        unit = objective.definition.unit
        return cls(metric=objective.metric, over=objective.over, unit=unit, better=objective.better)
