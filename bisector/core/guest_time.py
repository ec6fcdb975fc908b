"""What makes a guest's time pass, and what is said of it wherever it is chosen or its figures are shown."""

from dataclasses import dataclass
from typing import Annotated, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestTime:
    """What makes the guests' time pass."""

    kind: Annotated[Literal["host", "instructions"], "the host's clock, or the instructions that the guest executes"]
    instruction_ns: Annotated[int | None, "ns that each instruction takes; `null` by the host's clock"] = None

    @property
    def warning(self) -> str:
        """What figures do not show by this time (docs/counted.md); empty by the host's clock."""
        if self.instruction_ns is None:
            return ""
        return (
            f"the guests' clock counts instructions, {self.instruction_ns} ns each, one as long as the next; a commit"
            " that is slow because of caches, branch prediction or contention of CPUs is not seen"
        )

    @property
    def sentence(self) -> str:
        """The same as a sentence of a text."""
        return f"{self.warning[:1].upper()}{self.warning[1:]}." if self.warning else ""


BY_THE_HOST = GuestTime(kind="host")
