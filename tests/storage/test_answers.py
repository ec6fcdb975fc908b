"""What a guest answers that nobody expects, of each layer that reads something back."""

from collections.abc import Mapping

import pytest

from bisector.config import options
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.storage.layer import Files, MountedStack
from bisector.storage.stack import lay_out, stack_of
from tests.guest_answers import STORAGE
from tests.guestshell import Answer, FakeShell
from tests.storage import test_bcache, test_crypt, test_lvmwritecache, test_raid

# The answers of a sound guest, by the stack.
GUESTS: Mapping[str, Mapping[str, Answer]] = {
    "lvmcache": STORAGE,
    "lvmwritecache(ssd,hdd,cache_size=16MiB)+ext4": test_lvmwritecache.GUEST,
    "bcache": test_bcache.GUEST,
    "crypt(hdd)+ext4": test_crypt.GUEST,
    "raid1(ssd,hdd)+ext4": test_raid.GUEST,
}


def laid_out(stack: str, answers: Mapping[str, Answer]) -> MountedStack:
    values = options.load({"storage.stack": stack}).settings.storage.layers
    return lay_out(FakeShell(dict(answers)), stack_of(stack), values, Files(0, "no files"), 60)


@pytest.mark.parametrize(("stack", "key"), [(stack, key) for stack, guest in GUESTS.items() for key in guest])
def test_answers_that_are_none_are_this_kernels_fault(stack: str, key: str) -> None:
    laid_out(stack, GUESTS[stack])
    for said in ("", "nonsense", "\x1b[2J", "1 2 3 4 5", "x:y z:w", "9" * 10_000, "@step 0\n@step 9"):
        with pytest.raises(KernelFault) as caught:
            laid_out(stack, {**GUESTS[stack], key: Answer(said)})
        assert caught.value.reason.isprintable()
        assert len(caught.value.reason) < 1000


@pytest.mark.parametrize(
    ("stack", "key", "said"),
    [
        ("lvmcache", "dmsetup status", "0 2088960 cache Fail\n"),
        ("lvmwritecache(ssd,hdd,cache_size=16MiB)+ext4", "dmsetup status", "0 253952 writecache -5 4080 2286 0\n"),
        ("bcache", "grep -s -H", test_bcache.V6_12.replace("state:clean", "state:inconsistent")),
    ],
)
def test_a_cache_that_fails_later_stops_the_workload(stack: str, key: str, said: str) -> None:
    mounted = laid_out(stack, GUESTS[stack])
    with pytest.raises(KernelFault) as caught:
        mounted.read(FakeShell({key: Answer(said)}))
    assert (caught.value.stage, caught.value.kind) == (Stage.WORKLOAD, FaultKind.IO_ERROR)
