"""What a guest says of its kernel, and answers that are none."""

import pytest

from bisector.vm import machine
from bisector.vm.base import GuestError, GuestNonsense
from tests.guestshell import Answer, FakeShell


def test_the_build_id_is_among_the_notes() -> None:
    notes = " 04 00 00 00 02 00 00 00 03 00 00 00 47 4e 55 00\n ab cd\n"
    assert machine.running_build_id(FakeShell({"/sys/kernel/notes": Answer(notes)})) == "abcd"
    assert machine.running_build_id(FakeShell()) == ""  # of a kernel that has none


def test_a_build_id_that_is_none() -> None:
    with pytest.raises(GuestNonsense, match="no bytes in hex: 'no hex'"):
        machine.running_build_id(FakeShell({"/sys/kernel/notes": Answer("no hex\n")}))


def test_a_question_that_fails_says_so() -> None:
    with pytest.raises(GuestError, match="`uname -r` in the guest: exit status 3: no such question"):
        machine.running_release(FakeShell({"uname": Answer(stderr="no such question\n", exit_status=3)}))
