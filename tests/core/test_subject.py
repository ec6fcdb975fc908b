"""The build-id among the notes of a kernel."""

import pytest

from bisector.core.subject import build_id_in

# /sys/kernel/notes of a Linux 6.1 on x86-64.
_BUILD_ID = "3b7e3f6cf865e157fe7d364a75db7f5d6a94f3f3"
_GNU_BUILD_ID = bytes.fromhex("040000001400000003000000474e5500" + _BUILD_ID)
_LINUX = bytes.fromhex("060000000400000001010000" + "4c696e7578000000" + "00000000")
_GNU_ABI_TAG = bytes.fromhex("040000001000000001000000474e5500" + "00000000030000000200000000000000")


@pytest.mark.parametrize(
    "before", [b"", _LINUX, _GNU_ABI_TAG], ids=["first", "after another's", "after another of GNU's"]
)
def test_build_id_is_found_among_the_notes(before: bytes) -> None:
    assert build_id_in(before + _GNU_BUILD_ID + _LINUX) == _BUILD_ID


@pytest.mark.parametrize("data", [b"", _GNU_BUILD_ID[:11], _LINUX], ids=["none", "cut short", "others only"])
def test_no_build_id(data: bytes) -> None:
    assert build_id_in(data) == ""
