"""The guest's clock: what makes its time pass, and what is told about that where figures are shown."""

from dataclasses import dataclass
from typing import Annotated, Literal

_INSTRUCTIONS_PER_S = 120e6  # executed by an emulated guest, measured on a core of an Intel Xeon
_NS_PER_S = 1e9
_COUNTED_INSTEAD = (
    "guests are emulated here, as fast as this host is at the time; --clock instructions gives the same figures each"
    " time, and sees nothing of caches, branch prediction or contention of CPUs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestTime:
    """The guests' clock."""

    kind: Annotated[Literal["host", "instructions"], "the host's clock, or the instructions that the guest executes"]
    instruction_ns: Annotated[int | None, "ns that each instruction takes; `null` by the host's clock"] = None

    @property
    def warning(self) -> str:
        """What figures do not show with this clock (docs/counted.md); empty for the host's clock."""
        if self.instruction_ns is None:
            return ""
        return (
            f"the guests' clock counts instructions, {self.instruction_ns} ns each, one as long as the next; a commit"
            " that is slow because of caches, branch prediction or contention of CPUs is not seen"
        )

    def note(self, *, could_count: bool) -> str:
        """The note before a clock is chosen; ``could_count``: emulated guests use the host's clock, and could count."""
        return self.warning or (_COUNTED_INSTEAD if could_count else "")

    @property
    def sentence(self) -> str:
        """The warning as a sentence of a text."""
        return f"{self.warning[:1].upper()}{self.warning[1:]}." if self.warning else ""

    def most_host_s(self, guest_s: float) -> float:
        """The most host seconds that a guest's ``guest_s`` seconds take: those of a guest that is never idle.

        Idling takes no time on the host.
        """
        if self.instruction_ns is None:
            return guest_s
        return guest_s * _NS_PER_S / self.instruction_ns / _INSTRUCTIONS_PER_S


BY_THE_HOST = GuestTime(kind="host")
