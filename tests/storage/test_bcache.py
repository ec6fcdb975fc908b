"""sysfs of a bcache as kernels write it, and how one is made and filled."""

import shlex
from dataclasses import replace

import pytest

from bisector.core.errors import UserError
from bisector.core.metric import Unit, named
from bisector.storage.bcache import FIXED, counted, parse_status
from tests.guestshell import Answer, FakeShell
from tests.storage.guests import (
    BCACHE_V4_11,
    BCACHE_V6_12,
    BCACHE_WRITEBACK,
    GUESTS,
    MIB,
    laid_out,
    settings,
)

# What v4.11 does not have, and was not asked for yet in those guests.
NOT_RECORDED = {
    *("writeback_rate_minimum", "writeback_consider_fragment"),
    *("cache/internal/idle_max_writeback_rate", "cache/internal/gc_after_writeback"),
}


def test_sysfs_of_old_and_new_kernels() -> None:
    new, old, dirty = map(parse_status, (BCACHE_V6_12, BCACHE_V4_11, BCACHE_WRITEBACK))
    fixed = {name: value for name, value in FIXED.items() if name not in NOT_RECORDED}
    of_cache = {"cache_replacement_policy": "lru", "bucket_size": 64 << 10, "block_size": 512, "nbuckets": 1024}
    asked = {"cache_mode": "writethrough", "sequential_cutoff": 4 * MIB, "writeback_percent": 10}
    asked |= {f"cache/cache0/{name}": value for name, value in of_cache.items()}
    assert new.has == asked | {name: value for name, value in fixed.items() if name != "readahead"}
    assert old.has.keys() == (asked | fixed).keys() - {"readahead_cache_policy"}
    assert (old.has["cache_mode"], old.has["sequential_cutoff"]) == ("writeback", 4 * MIB)
    assert (new.state, new.unused_percent, new.hits, new.misses, new.bypassed_bytes) == (
        *("clean", 2, 55_002, 12_317, 42 * MIB),
    )
    assert (old.state, old.unused_percent, old.hits, old.misses, old.bypassed_bytes) == ("dirty", 93, 4_031, 5_120, 512)
    assert old.dirty_bytes == int(1.9 * 1024 * 1024)
    assert (new.read_sectors, new.read_sectors_below) == (754_874, 218_520)
    assert (dirty.has["cache_mode"], dirty.state, dirty.has["sequential_cutoff"]) == ("writeback", "dirty", 0)


@pytest.mark.parametrize(
    ("shown", "size"),
    [("0", 0), ("0.0k", 0), ("512", 512), ("4.0M", 4 * MIB), ("1.10M", int(1.9 * MIB)), ("999.9k", 1_023_897)],
)
def test_sizes_as_old_and_new_kernels_write_them(shown: str, size: int) -> None:
    assert (
        parse_status(BCACHE_V6_12.replace("sequential_cutoff:4.0M", f"sequential_cutoff:{shown}")).has[
            "sequential_cutoff"
        ]
        == size
    )


def test_the_hit_ratio_is_of_what_was_read_from_either_device() -> None:
    """The kernel's own counts are cut to 16 bits each 13.6 s, so a fast cache has next to no hits by them."""
    before = parse_status(BCACHE_V6_12)
    after = replace(before, read_sectors=before.read_sectors + 8000, read_sectors_below=before.read_sectors_below + 800)
    values = dict(counted(before, replace(after, hits=before.hits + 3, dirty_bytes=4096, unused_percent=2)))
    assert values["cache.hit_ratio"] == 90
    assert values["cache.hits"] == 3
    assert values["cache.dirty"] == 4096
    assert (values["cache.filled_before"], values["cache.filled"]) == (100 - before.unused_percent, 98)
    assert "cache.hit_ratio" not in dict(counted(before, before))
    # More can be read below than above, and a bcache that caches nothing does not fill.
    more = replace(before, read_sectors=before.read_sectors + 8, read_sectors_below=before.read_sectors_below + 80)
    assert dict(counted(before, more))["cache.hit_ratio"] == 0
    nothing = parse_status(BCACHE_V6_12.replace("[writethrough]", "writethrough").replace(" none", " [none]"))
    assert "cache.filled" not in dict(counted(nothing, nothing))
    assert named("cache.bypassed").unit is Unit.BYTES
    assert all(named(name) for name in values)


@pytest.mark.parametrize(
    ("replacement", "unused", "fill_end", "filled", "up_to"),
    [
        ("fifo", 27, 73, 100, 73),  # v6.1, buckets of 64 KiB
        ("fifo", 34, 67, 100 * 66 / 67, 67),  # and of 16 KiB
        ("random", 24, 75, 100, 75),
        ("fifo", 50, 50, 100, 50),
        ("fifo", 51, 49, 49, None),
        ("fifo", 27, None, 73, None),  # it was not filled, or not to the end
        ("lru", 27, 73, 73, None),
        ("fifo", 2, None, 98, None),
    ],
)
def test_how_full_a_cache_is_goes_by_where_its_filling_ended(
    *, replacement: str, unused: int, fill_end: int | None, filled: float, up_to: int | None
) -> None:
    text = (
        BCACHE_V6_12.replace("[lru]", "lru")
        .replace(replacement, f"[{replacement}]")
        .replace("Unused:\t\t2%", f"Unused:{unused}%")
    )
    status = parse_status(text if fill_end is None else f"{text}fill_end:{fill_end}\n")
    values = dict(counted(status, status))
    assert values["cache.filled_before"] == values["cache.filled"] == pytest.approx(filled)
    assert values.get("cache.fills_up_to") == up_to


def test_a_cache_that_is_read_amid_a_collection_of_garbage_is_looked_at_again() -> None:
    status = parse_status(
        BCACHE_V6_12.replace("Unused:\t\t2%", "Unused:\t\t37%") + "cache/cache0/priority_stats:Unused:\t\t2%\n"
    )
    assert status.unused_percent == 2


def test_what_a_workload_left_free_is_filled_past_the_cutoff() -> None:
    stack, shell = laid_out("bcache", FakeShell(GUESTS["bcache"])), FakeShell()
    assert stack.fills_itself
    stack.fill(shell, 100.0)
    first, *_, loop, _, _, last = shell.commands
    assert "echo 0 > /dev/bisector-bcache-sysfs/sequential_cutoff" in first
    assert "echo 4194304 > /dev/bisector-bcache-sysfs/sequential_cutoff" in last
    assert "dd if=/dev/bisector-bcache of=/dev/null iflag=direct bs=16384 count=256" in loop


def test_it_is_made_on_a_partition_of_the_size_and_set_by_sysfs() -> None:
    shell = FakeShell({**GUESTS["bcache"], "grep -s -H": Answer(BCACHE_V6_12.replace("4.0M", "0.0k"))})
    stack = laid_out("bcache(ssd,hdd,sequential_cutoff=0)+ext4", shell)
    text = "\n".join(stack.description)
    assert f'addpart "$fast" 1 2048 {64 * MIB // 512}' in text
    assert "wipefs -a -q /dev/bisector-bcache-cache /dev/disk/by-id/virtio-hdd" in text
    (made,) = [shlex.split(one) for one in stack.description if one.startswith("make-bcache")]
    assert made[1:] == [
        *("--block", "512", "--bucket", "65536", "--cache_replacement_policy=lru"),
        *("-C", "/dev/bisector-bcache-cache", "-B", "/dev/disk/by-id/virtio-hdd"),
    ]
    assert "echo writethrough > /dev/bisector-bcache-sysfs/cache_mode" in text
    assert "echo 0 > /dev/bisector-bcache-sysfs/sequential_cutoff" in text
    name = "/dev/bisector-bcache-sysfs/cache/congested_read_threshold_us"
    assert f"[ ! -e {name} ] || echo 0 > {name}" in text
    assert any(one.startswith("mkfs.ext4") and one.endswith(" /dev/bisector-bcache") for one in stack.description)
    assert dict(stack.counted(stack.read(shell), stack.read(shell)))["cache.misses"] == 0


@pytest.mark.parametrize("stack", ["bcache(crypt(ssd),hdd,cache_size=auto)+ext4", "bcache(ssd,crypt(hdd))+ext4"])
def test_a_whole_device_of_device_mapper_may_have_the_cache(stack: str) -> None:
    given = {"workload.file_size": "256MiB", "storage.hdd.size": "2GiB"}
    settings(stack, given)
    made = laid_out("bcache(ssd,hdd,cache_size=auto)+ext4", FakeShell(GUESTS["bcache"]))
    assert not any("addpart" in one for one in made.description)


def test_a_device_without_partitions_is_the_persons_to_change() -> None:
    refused = Answer("", "addpart: failed to add partition: Invalid argument\n", 1)
    with pytest.raises(UserError, match=r"takes no partition: .*Invalid argument") as caught:
        laid_out("bcache", FakeShell({'addpart "$fast"': refused, **GUESTS["bcache"]}))
    assert 'storage.bcache.cache_size = "auto"' in caught.value.hint


def test_a_bisection_on_it_by_a_latency_is_accepted() -> None:
    given = {"bisect.metric": "write.clat.p99", "workload.file_size": "64MiB", "workload.job": "rand-write-latency"}
    found = settings("bcache", given)
    found.workload.workload.check(found.bisect.objective, lambda argv, environment: None)
    assert found.kernel.fragments == ("tiny", "vm", "storage-bcache")
    assert "include/linux/min_heap.h" in found.bisect.suspects
    assert [phase.name for phase in found.storage.stack.phases] == ["empty", "full"]
