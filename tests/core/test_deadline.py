"""How often something is tried, how long is waited in between, and what is raised in the end."""

import pytest

from bisector.core.deadline import retried
from bisector.core.errors import InfraError, UserError

ONE, TWO, THREE, FOUR = map(InfraError, ("one", "two", "three", "four"))
REFUSED = UserError("no such branch")


@pytest.mark.parametrize(
    ("errors", "waited_s", "ending"),
    [
        pytest.param([ONE, TWO], [5.0, 10.0], "answer", id="comes back in time"),
        pytest.param([ONE, TWO, THREE, FOUR], [5.0, 10.0], THREE, id="the last failure is raised"),
        pytest.param([REFUSED], [], REFUSED, id="no waiting helps"),
    ],
)
def test_what_fails_for_now_is_tried_again(
    errors: list[Exception], waited_s: list[float], ending: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    told: list[int] = []
    left = iter(errors)
    monkeypatch.setattr("time.sleep", slept.append)

    def ask() -> str:
        if (error := next(left, None)) is not None:
            raise error
        return "answer"

    try:
        found: object = retried(ask, InfraError, (5.0, 10.0), told.append)
    except (InfraError, UserError) as error:
        found = error
    assert (found, slept, told) == (ending, waited_s, list(range(1, len(waited_s) + 1)))
