"""The clock of the rounds that fill a cache, where it is the guest's own."""

import pytest

from bisector.core.errors import KernelFault
from bisector.trial.runner import uptime_s
from tests.guestshell import Answer, FakeShell


def test_seconds_since_the_guest_was_booted() -> None:
    assert uptime_s(FakeShell({"/proc/uptime": Answer("12.34\n")})) == 12.34


@pytest.mark.parametrize("told", ["soon\n", "\n"])
def test_a_guest_that_does_not_know(told: str) -> None:
    with pytest.raises(KernelFault, match="/proc/uptime says"):
        uptime_s(FakeShell({"/proc/uptime": Answer(told)}))
