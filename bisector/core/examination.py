"""The document of ``bisector doctor``: printed here, and read from the hosts of a fleet."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from bisector.core.errors import Finding, Grade
from bisector.core.json_document import SCHEMA, JsonObject


class Examination(JsonObject, frozen=True, kw_only=True):
    """The document that ``bisector doctor --json`` prints."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    ready: Annotated[bool, "whether `bisector start` can begin (exit code 0)"]
    findings: Annotated[tuple[Finding, ...], "in the order in which they are shown"]

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> Self:
        """Return the document of these findings."""
        return cls(ready=ready(findings), findings=tuple(findings))


def ready(findings: Sequence[Finding]) -> bool:
    """Whether `start` would begin with these findings."""
    return all(finding.state is not Grade.MISSING for finding in findings)
