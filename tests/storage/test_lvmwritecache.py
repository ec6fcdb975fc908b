"""Lines of dm-writecache as kernels write them, and a guest that has one."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.config import options
from bisector.core.errors import InfraError, UserError
from bisector.core.metric import named
from bisector.core.trial import KernelFault
from bisector.storage.layer import Files, MountedStack
from bisector.storage.lvmcache import LvmWritecache, WritecacheStatus
from bisector.storage.stack import lay_out, stack_of
from tests.guestshell import Answer, FakeShell

MIB = 1 << 20
VALUES = options.load({"storage.lvmwritecache.cache_size": "16MiB"}, directory=Path("/")).settings.storage.layers
WRITECACHE = VALUES["lvmwritecache"]
assert isinstance(WRITECACHE, LvmWritecache)
# Recorded: a cache of 16 MiB with LVM 2.03.16 and Linux 6.12.117, after two runs of fio that read. The table had no
# writeback_jobs, which are named since then; v4.18 and v6.12 print them in this place.
V6_12 = "0 253952 writecache 0 4080 2286 0 57925 28781 9352 3 33 2890 6426 0 15 0"
TABLE = (
    "0 253952 writecache s 251:2 251:1 4096 10 high_watermark 50 low_watermark 45 writeback_jobs 65536 "
    "autocommit_blocks 65536 autocommit_time 1000"
)
# Not recorded: its first four figures, which are all that writecache_status() in drivers/md/dm-writecache.c prints from
# v4.18 to v5.14, "%ld %llu %llu %llu".
V4_18 = "0 253952 writecache 0 4080 2286 0"
GUEST = {
    "stat -L": Answer("fd:10\nfd:20\n"),
    "stat -f": Answer("235000 4096\n"),
    "dmsetup table": Answer(f"{TABLE}\n"),
    "dmsetup status": Answer(f"{V6_12}\n"),
    "dmsetup deps": Answer(
        "bisectorw-data_cvol: 1 dependencies\t: (253, 16)\nbisectorw-origin: 2 dependencies\t: (251, 1) (251, 2)\n"
        "bisectorw-origin_wcorig: 1 dependencies\t: (253, 32)\n"
    ),
    "dmsetup info": Answer("bisectorw-data_cvol 251 1\nbisectorw-origin 251 0\nbisectorw-origin_wcorig 251 2\n"),
}


def layout(stack: str = "lvmwritecache", changed: Mapping[str, Answer] | None = None) -> tuple[MountedStack, FakeShell]:
    shell = FakeShell({**(changed or {}), **{key: one for key, one in GUEST.items() if key not in (changed or {})}})
    return lay_out(shell, stack_of(stack), VALUES, Files(0, "no files"), 60), shell


def test_status_of_old_and_new_kernels() -> None:
    assert WRITECACHE.read_status(V4_18) == WritecacheStatus(4080, 2286, 0)
    assert WRITECACHE.read_status(f"bisectorw-origin: {V6_12}") == WritecacheStatus(
        4080, 2286, 0, (57925, 28781, 9352, 2890)
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("0 1 writecache Fail", "dmsetup status printed"),
        ("0 1 cache 8 1/2", "asked about a writecache, printed"),
        ("", "asked about a writecache, printed"),
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
    before = WRITECACHE.read_status(V6_12)
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
    stack, shell = layout()
    (made,) = [shlex.split(one) for one in stack.description if one.startswith("lvconvert")]
    assert made[made.index("--cachesettings") + 1] == (
        "block_size=4096 high_watermark=50 low_watermark=45 writeback_jobs=65536 autocommit_blocks=65536 "
        "autocommit_time=1000"
    )
    assert made[-1] == "bisectorw/origin"
    assert stack.read(shell).cache is None  # that is dm-cache's alone
    assert dict(stack.counted(stack.read(shell), stack.read(shell)))["cache.free_blocks"] == 2286
    assert [phase.name for phase in stack_of("lvmwritecache").phases] == ["empty", "full"]


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (TABLE.replace("50", "60"), "high_watermark 60, .*; asked for block_size 4096, high_watermark 50"),
        (TABLE.replace("1000", "2000"), "autocommit_time 2000; asked for"),
        (TABLE.partition(" 10 ")[0] + " 0", "high_watermark None"),
        (TABLE.replace(" 10 high", " 11 cleaner high"), "autocommit_time 1000, cleaner; asked for"),
        (TABLE.replace(" 10 high", " 12 max_age 9 high"), "autocommit_time 1000, max_age; asked for"),
        (TABLE.replace(" 10 high", " 11 high") + " cleaner", "autocommit_time 1000, cleaner; asked for"),
        (TABLE.replace("4096", "512"), "block_size 512"),
    ],
)
def test_another_writecache_than_asked_for_is_this_kernels_fault(table: str, why: str) -> None:
    with pytest.raises(KernelFault, match=why):
        layout(changed={"dmsetup table": Answer(table)})


def test_a_cache_of_another_size_is_lvms_doing() -> None:
    with pytest.raises(InfraError, match="8,355,840 bytes of blocks in a volume that should have 16,777,216"):
        layout(changed={"dmsetup status": Answer(V6_12.replace(" 4080 ", " 2040 "))})


def test_a_watermark_that_was_reckoned_back_may_be_off_by_one() -> None:
    layout(changed={"dmsetup table": Answer(TABLE.replace("45", "44"))})


def test_a_part_on_the_wrong_disk_is_ours() -> None:
    with pytest.raises(InfraError, match="data is on 253:32 instead of 253:16"):
        layout(changed={"dmsetup table": Answer(TABLE.replace("251:2 251:1", "251:2 251:2"))})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"storage.lvmwritecache.low_watermark": "60"}, "the low one is at most the high one"),
        ({"storage.lvmwritecache.high_watermark": "101"}, "a whole number from 1 to 100"),
        ({"storage.lvmwritecache.block_size": "1024"}, "512 or 4096 bytes"),
        ({"storage.lvmwritecache.cache_size": "512MiB"}, "the cache needs 516MiB on the SSD"),
        ({"workload.file_size": "4MiB"}, "never fills the cache up to its low watermark"),
    ],
)
def test_what_cannot_work_is_refused_beforehand(given: dict[str, str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        options.load({"storage.stack": "lvmwritecache", **given}, directory=Path("/"))
