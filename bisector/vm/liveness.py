"""Whether a guest whose command prints nothing is still there.

fio may print nothing until it ends, hours later. A guest that has lost its network meanwhile is not noticed by TCP:
with user-mode networking the other end of the connection is QEMU, which goes on.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from bisector.vm.guest_errors import GuestLost


@dataclass(slots=True)
class Life:
    """Asks a guest for a sign of life, by ``ask``, after ``silence_s``, and gives it up ``answer_s`` later.

    By ``now``, which counts no time in which this process was stopped.
    """

    ask: Callable[[], Future[object]]
    silence_s: float
    answer_s: float
    command: str
    now: Callable[[], float]
    _heard_bytes: int = 0
    _waited_s: float = 0.0
    _asked: Future[object] | None = None
    _last: float = field(init=False)

    def __post_init__(self) -> None:
        self._last = self.now()

    def check(self, heard_bytes: int) -> None:
        """To be called again and again; raises :class:`GuestLost` when a sign of life does not come."""
        now = self.now()
        self._waited_s += now - self._last
        self._last = now
        if heard_bytes != self._heard_bytes or (self._asked is not None and self._asked.done()):
            self._heard_bytes, self._waited_s, self._asked = heard_bytes, 0.0, None
        elif self._asked is None and self._waited_s > self.silence_s:
            self._waited_s, self._asked = 0.0, self.ask()
        elif self._asked is not None and self._waited_s > self.answer_s:
            waited_s = self.silence_s + self.answer_s
            raise GuestLost(f"nothing was heard of the guest for {waited_s:g} s during `{self.command}`")
