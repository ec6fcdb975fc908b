"""The output of another program or machine, read until there is too much of it, or no time left."""

import os
import selectors
from collections.abc import Callable, Sequence
from typing import IO

from bisector.core.deadline import Deadline

_LOOK_EVERY_S = 0.2
_CHUNK_BYTES = 65536


class TooMuchOutput(Exception):
    """More than anybody would write in good faith."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(most_bytes)
        self.most_bytes = most_bytes

    def __str__(self) -> str:
        return f"more than {self.most_bytes >> 10:,} KiB of output"


def read_all(
    streams: Sequence[IO[bytes]], most_bytes: int, deadline: Deadline, stopped: Callable[[], bool]
) -> tuple[str, ...]:
    """What each stream has, to its end; what is no UTF-8 is replaced.

    Raises :class:`TooMuchOutput` when they have more than ``most_bytes`` together, ``DeadlineExpired``, and
    ``InterruptedError`` once it is ``stopped``.
    """
    found = {stream.fileno(): bytearray() for stream in streams}
    with selectors.DefaultSelector() as selector:
        for descriptor in found:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            deadline.check()
            if stopped():
                raise InterruptedError
            for key, _ in selector.select(min(_LOOK_EVERY_S, deadline.remaining_s)):
                data = os.read(key.fd, _CHUNK_BYTES)
                if not data:
                    selector.unregister(key.fd)
                found[key.fd] += data
                if sum(map(len, found.values())) > most_bytes:
                    raise TooMuchOutput(most_bytes)
    return tuple(data.decode("utf-8", "replace") for data in found.values())
