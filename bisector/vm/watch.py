"""A guest's console, read while anything waits for the guest."""

from collections.abc import Callable

from bisector.core.deadline import awake_s
from bisector.core.errors import KernelFault
from bisector.core.trial import Fault, Stage
from bisector.vm.base import Domain
from bisector.vm.console import ALIVE_LINE, Console
from bisector.vm.console_file import CHUNK_BYTES


class Watch:
    """Reads a guest's console while anything waits for the guest, and says who is to blame for its end.

    With ``pulse`` the guest gives signs of life on its console; else it may be silent until it has given one.
    """

    def __init__(
        self, domain: Domain, silence_deadline_s: float, now: Callable[[], float] = awake_s, *, pulse: bool = False
    ) -> None:
        self.console = Console()
        self.stage = Stage.BOOT
        self._domain = domain
        self._silence_deadline_s = silence_deadline_s
        self._pulse = pulse
        self._now = now
        self._heard_at = now()

    @property
    def silence_s(self) -> float:
        """Seconds since the console said anything."""
        return self._now() - self._heard_at

    def __call__(self) -> None:
        """Read on; raises :class:`KernelFault` when the kernel has died, :class:`InfraError` when QEMU has."""
        running = self._domain.is_running()  # before reading, so that the last words are among what is read
        text = self._domain.read_console()
        self._hear(text)
        while len(text) >= CHUNK_BYTES or (text and not running):  # of a guest that is gone, everything
            text = self._domain.read_console()
            self._hear(text)
        if not running:
            raise _raised(self.console.fault_when_gone(self.stage))
        silence_s = self.silence_s  # asked each time: the clock counts only the time in which somebody looks at it
        # Our init gives a sign of life every ten seconds; a person's own image may be silent and well.
        if self._pulse and silence_s > self._silence_deadline_s:
            raise self.silent()

    def _hear(self, text: str) -> None:
        """Raises :class:`KernelFault` as soon as the console shows one, or has no end."""
        if text:
            self.console.feed(text)
            self._heard_at = self._now()
            self._pulse = self._pulse or ALIVE_LINE in text
        if (fault := self.console.fault(self.stage)) is not None:
            raise _raised(fault)

    def silent(self) -> KernelFault:
        """The fault of a guest that should have spoken by now."""
        return _raised(self.console.fault_when_silent(self.stage, round(self.silence_s)))


def _raised(fault: Fault) -> KernelFault:
    return KernelFault(fault.stage, fault.kind, fault.reason, fault.tail)
