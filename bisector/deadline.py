"""A moment by which something must have happened, with a name for what was waited for."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


class DeadlineExpired(Exception):
    """A deadline passed; the caller translates it, since only the caller knows who is to blame."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(what, seconds)
        self.what = what
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{self.what} not seen within {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Deadline:
    """``seconds`` from its making, on the monotonic clock; passed down instead of time-outs."""

    what: str
    seconds: float
    start: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        """Seconds since this deadline was set."""
        return time.monotonic() - self.start

    @property
    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.seconds - self.elapsed_s)

    @property
    def expired(self) -> bool:
        """Whether the moment has passed."""
        return self.remaining_s <= 0.0

    def check(self) -> None:
        """Raise :class:`DeadlineExpired` when the moment has passed."""
        if self.expired:
            raise DeadlineExpired(self.what, self.seconds)

    def poll(self, probe: Callable[[], T | None], every_s: float = 0.05) -> T:
        """Call ``probe`` until it answers something; raise :class:`DeadlineExpired` at the end."""
        while (answer := probe()) is None:
            self.check()
            time.sleep(min(every_s, max(self.remaining_s, 0.001)))
        return answer
