"""What makes a guest's time pass, and what is said of it wherever it is chosen or its figures are shown."""

from dataclasses import dataclass
from typing import Annotated, Literal

_INSTRUCTIONS_PER_S = 120e6  # of an emulated guest, measured on a core of an Intel Xeon
_NS_PER_S = 1e9
_COUNTED_INSTEAD = (
    "guests are emulated here, as fast as this host is at the time; --clock instructions gives the same figures each"
    " time, and sees nothing of caches, branch prediction or contention of CPUs"
)


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

    def note(self, *, could_count: bool) -> str:
        """What is to be known before it is chosen; ``could_count`` is of guests that are emulated by the host's."""
        return self.warning or (_COUNTED_INSTEAD if could_count else "")

    @property
    def sentence(self) -> str:
        """The same as a sentence of a text."""
        return f"{self.warning[:1].upper()}{self.warning[1:]}." if self.warning else ""

    def most_host_s(self, guest_s: float) -> float:
        """What so much of the guests' time takes of the host's, if they are never idle: that takes no time there."""
        if self.instruction_ns is None:
            return guest_s
        return guest_s * _NS_PER_S / self.instruction_ns / _INSTRUCTIONS_PER_S


BY_THE_HOST = GuestTime(kind="host")
