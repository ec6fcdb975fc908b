"""What may work in a moment is tried again: a mirror, a remote, a mail server that is busy."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def retried(
    attempt: Callable[[], T],
    on: type[Exception] | tuple[type[Exception], ...],
    waits_s: Sequence[float],
    tell: Callable[[int], object] = lambda failed: None,
) -> T:
    """What ``attempt`` answers; before each further one ``tell`` is told how many have failed.

    There is one attempt more than there are ``waits_s``, the seconds between them. Raises what the last one raises,
    and at once whatever is not ``on``.
    """
    for failed, wait_s in enumerate(waits_s, start=1):
        try:
            return attempt()
        except on:
            tell(failed)
            time.sleep(wait_s)
    return attempt()
