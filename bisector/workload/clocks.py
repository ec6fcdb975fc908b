"""The guest's clock and the host's around a command, and what the guest's kernel counts.

A guest whose clock stands still must not pass for a fast one.
"""

import re
import time
from dataclasses import dataclass, field

from bisector.core.errors import KernelFault
from bisector.core.trial import FaultKind, Stage
from bisector.workload.counts import MOST_LINES, READ_COUNTS, Counts, is_count

_UPTIME = "@uptime "
# Shell text that prints the guest's counts and then its clock (/proc/uptime, proc_uptime(5)), each on a line of its own
# of standard error.
READ_CLOCK = f'{READ_COUNTS}; read -r up rest < /proc/uptime; printf "\\n{_UPTIME}%s\\n" "$up" >&2'
_SECONDS = re.compile(r"\d{1,12}(\.\d{1,9})?")
_READINGS = 2


@dataclass(slots=True)
class Clocks:
    """The guest's clock and the host's, read before and after what is measured; see :data:`READ_CLOCK`."""

    read: list[tuple[float, float]] = field(default_factory=list)
    _counts: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    def hear(self, line: str) -> bool:
        """Whether a line of standard error is of a reading."""
        if is_count(line):
            if len(self.read) < _READINGS and len(lines := self._counts[len(self.read)]) < MOST_LINES:
                lines.append(line)
            return True
        if not line.startswith(_UPTIME):
            return False
        seconds = line.removeprefix(_UPTIME)
        if _SECONDS.fullmatch(seconds) and len(self.read) <= _READINGS:
            self.read.append((time.monotonic(), float(seconds)))
        return True

    @property
    def counts(self) -> tuple[Counts, Counts]:
        """What the guest's kernel had counted before, and afterwards."""
        before, after = map(Counts.of, self._counts)
        return before, after

    def host_and_guest_s(self, tail: tuple[str, ...]) -> tuple[float, float]:
        """Elapsed time by either clock; raises :class:`KernelFault`, with the last lines of the workload."""
        if len(self.read) != _READINGS:
            reason = f"the guest's clock was read {len(self.read)} times around the workload, and not {_READINGS}"
            raise KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, reason, tail)
        (host_start, guest_start), (host_end, guest_end) = self.read
        return host_end - host_start, guest_end - guest_start
