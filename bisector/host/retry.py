"""What may work in a moment is tried again: a mirror, a remote, a mail server that is busy; the owner of tenacity."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

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

    def told(state: RetryCallState) -> None:
        tell(state.attempt_number)

    again = Retrying(
        retry=retry_if_exception_type(on),
        stop=stop_after_attempt(len(waits_s) + 1),
        wait=lambda state: (*waits_s, 0.0)[state.attempt_number - 1],  # it asks after the last attempt, too
        sleep=time.sleep,
        before_sleep=told,
        reraise=True,
    )
    return again(attempt)
