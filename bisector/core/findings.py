"""What was found out about this machine: rows for people, and the reason not to begin.

Adapters measure, each what belongs to its tool; :mod:`bisector.doctor.checks` has the table of what is
asked, and both ``bisector start`` and ``bisector doctor`` go by it.
"""

from dataclasses import dataclass
from enum import StrEnum

from bisector.core.errors import BisectorError


class Grade(StrEnum):
    """What a finding means for a bisection here: MISSING stops it, WARN makes it worse, INFO changes nothing."""

    OK = "ok"
    WARN = "warn"
    MISSING = "missing"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One row: ``what`` is so, and ``remedy`` is the one command (or the hint) that fixes it."""

    name: str
    state: Grade
    what: str
    remedy: str = ""

    @property
    def warning(self) -> str:
        """The line that is printed when a run begins in spite of it."""
        return f"warning: {self.name}: {self.what}"


def refusal(name: str, error: BisectorError) -> Finding:
    """The finding that an adapter's refusal is."""
    return Finding(name, Grade.MISSING, error.message, error.hint)
