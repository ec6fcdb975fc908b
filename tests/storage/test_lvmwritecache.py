"""Lines of dm-writecache as kernels write them, and how one is made."""

import shlex
from dataclasses import replace

import pytest

from bisector.core.metric import named
from bisector.core.trial import KernelFault
from bisector.storage.lvmcache import LvmWritecache, WritecacheStatus
from tests.guestshell import FakeShell
from tests.storage.guests import GUESTS, STACKS, WRITECACHE_V6_12, laid_out, settings

STACK = STACKS["lvmwritecache"]
WRITECACHE = settings(STACK).storage.layers["lvmwritecache"]
assert isinstance(WRITECACHE, LvmWritecache)
# Not recorded: the first four figures, which are all that writecache_status() in drivers/md/dm-writecache.c prints from
# v4.18 to v5.14, "%ld %llu %llu %llu".
V4_18 = "0 253952 writecache 0 4080 2286 0"


def test_status_of_old_and_new_kernels() -> None:
    assert WRITECACHE.read_status(V4_18) == WritecacheStatus(4080, 2286, 0)
    assert WRITECACHE.read_status(f"bisectorw-origin: {WRITECACHE_V6_12}") == WritecacheStatus(
        4080, 2286, 0, (57925, 28781, 9352, 2890)
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("0 1 cache 8 1/2", "asked about a writecache, printed"),
        (V4_18.replace("2286", "x"), "dmsetup status printed"),
        (V4_18.replace("2286", str(2**63)), "dmsetup status printed"),
        (f"{V4_18} 1", "dmsetup status printed"),
        (V4_18.replace("writecache 0", "writecache -5"), "dm-writecache met error -5"),
        ("x" * 5000, "asked about a writecache, printed"),
    ],
)
def test_what_is_no_sound_status_is_refused(line: str, why: str) -> None:
    with pytest.raises(KernelFault, match=why) as caught:
        WRITECACHE.read_status(line)
    assert len(str(caught.value)) < 400


def counted(before: WritecacheStatus, after: WritecacheStatus) -> dict[str, float]:
    return dict(WRITECACHE.counted(before, after))


def test_counters_of_a_new_kernel_are_of_the_run() -> None:
    before = WRITECACHE.read_status(WRITECACHE_V6_12)
    reads, hits, writes, around = before.counts
    after = replace(before, free=0, counts=(reads + 100, hits + 25, writes + 100, around + 50))
    values = counted(before, after)
    assert values["cache.hit_ratio"] == 100 * (25 + 100 - 50) / 200
    assert (values["cache.blocks"], values["cache.free_blocks"], values["cache.writeback_blocks"]) == (4080, 0, 0)
    assert values["cache.dirty_blocks"] == 4080
    assert values["cache.filled"] == 100
    assert all(named(name).unit for name in values)


def test_counters_of_an_old_kernel_have_no_hits() -> None:
    half = WRITECACHE.read_status(V4_18)
    values = counted(replace(half, free=half.blocks), half)
    assert "cache.hit_ratio" not in values
    assert (values["cache.filled_before"], values["cache.filled"]) == (0, 100)


def test_a_cache_is_full_near_its_low_watermark() -> None:
    for used, filled in ((1000, 100), (405, 100), (243, 60), (0, 0)):
        status = WritecacheStatus(1000, 1000 - used, 0)
        assert counted(status, status)["cache.filled"] == pytest.approx(filled)


def test_it_is_made_with_every_default_named() -> None:
    shell = FakeShell(GUESTS["lvmwritecache"])
    stack = laid_out(STACK, shell)
    (made,) = [shlex.split(one) for one in stack.description if one.startswith("lvconvert")]
    assert made[made.index("--cachesettings") + 1] == (
        "block_size=4096 high_watermark=50 low_watermark=45 writeback_jobs=65536 autocommit_blocks=65536 "
        "autocommit_time=1000"
    )
    assert made[-1] == "bisectorw/origin"
    assert stack.read(shell).cache is None  # that is dm-cache's alone
    assert dict(stack.counted(stack.read(shell), stack.read(shell)))["cache.free_blocks"] == 2286
    assert [phase.name for phase in settings(STACK).storage.stack.phases] == ["empty", "full"]
