"""Lines of dm-cache and dm-writecache as kernels lay them out, and what is counted by them.

What a dm-cache uses are its promotions less its demotions, in every line (drivers/md/dm-cache-target.c).
"""

import shlex
from dataclasses import replace

import pytest

from bisector.core.errors import InfraError
from bisector.core.figures import CacheStatus
from bisector.core.metric import named
from bisector.storage.device_mapper import check_place, parse_dependencies
from bisector.storage.lvmcache import LvmCache, LvmWritecache, WritecacheStatus, counted, parse_status, parse_table
from tests.guestshell import FakeShell
from tests.storage.guests import GUESTS, STACKS, WRITECACHE_V6_12, laid_out, settings

WRITECACHE = settings(STACKS["lvmwritecache"]).storage.layers["lvmwritecache"]
assert isinstance(WRITECACHE, LvmWritecache)
# Not recorded: the first four figures, which are all that writecache_status() in drivers/md/dm-writecache.c prints from
# v4.18 to v5.14, "%ld %llu %llu %llu".
WRITECACHE_V4_18 = "0 253952 writecache 0 4080 2286 0"
# v6.1, lines 3214 to 3251 and emit_flags(), line 3130; made-up figures.
V6_1 = (
    "0 2088960 cache 8 11/2048 128 280/1024 103 75 146 8 3 283 269 2 metadata2 writeback "
    "2 migration_threshold 2048 smq 0 rw - "
)
# v4.11, lines 3544 to 3599, and v4.12, which prints the same. The figures are recorded: v4.11 had them in a guest after
# 90 s of random reads, with a cache of 64 MiB before an HDD of 1 GiB; but for the blocks of metadata.
V4_11 = (
    "0 2088960 cache 8 11/2048 128 1024/1024 782321 90131 32 420 14 1038 928 1 writeback "
    "2 migration_threshold 2048 smq 0 rw - "
)
# The same lines of v4.11 with the policy mq, which is smq by another name there: mq_emit_config_values() in
# dm-cache-policy-smq.c, line 1574; made-up figures.
V4_11_MQ = (
    "0 2088960 cache 8 11/2048 128 182/1024 41 63 99 311 0 182 0 2 metadata2 writethrough 2 migration_threshold 2048 "
    "mq 10 random_threshold 0 sequential_threshold 0 discard_promote_adjustment 0 read_promote_adjustment 0 "
    "write_promote_adjustment 0 rw - "
)
# v3.14 (version 1.3.0 of the target; Documentation/device-mapper/cache.txt, "Status"): nothing of the metadata's state,
# and the policy's arguments end the line, by mq_emit_config_values() in dm-cache-policy-mq.c, with the defaults of that
# file. dmsetup itself names the device, where it shows several. Made-up figures.
V3_14_MQ = (
    "bisector-origin: 0 2088960 cache 8 73/2048 128 10/1024 812 340 25 18 4 14 0 1 writethrough "
    "2 migration_threshold 2048 mq 10 random_threshold 4 sequential_threshold 512 discard_promote_adjustment 1 "
    "read_promote_adjustment 4 write_promote_adjustment 8"
)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (V6_1, CacheStatus("smq", "writeback", 280, 1024, 269, 103, 75, 146, 8, 3, 283)),
        (V4_11, CacheStatus("smq", "writeback", 1024, 1024, 928, 782321, 90131, 32, 420, 14, 1038)),
        (V4_11_MQ, CacheStatus("mq", "writethrough", 182, 1024, 0, 41, 63, 99, 311, 0, 182)),
        (V3_14_MQ, CacheStatus("mq", "writethrough", 10, 1024, 0, 812, 340, 25, 18, 4, 14)),
        # A mode that goes without saying is writeback.
        (
            V4_11.replace("1 writeback", "0"),
            CacheStatus("smq", "writeback", 1024, 1024, 928, 782321, 90131, 32, 420, 14, 1038),
        ),
    ],
)
def test_status_of_old_and_new_kernels(line: str, status: CacheStatus) -> None:
    assert parse_status(line) == (status, 2048 * 8 * 512, 2048)


def test_counters_are_of_the_run_and_not_of_the_caches_life() -> None:
    before = CacheStatus("smq", "writeback", 1024, 1024, 0, 100, 100, 0, 0, 5, 6)
    after = CacheStatus("smq", "writeback", 1024, 1024, 3, 190, 110, 0, 0, 9, 8)
    of_run = {"cache.hit_ratio": 90, "cache.promotions": 2, "cache.demotions": 4, "cache.dirty_blocks": 3}
    of_run["cache.filled"] = 100
    assert dict(counted(before, after)) == of_run
    assert set(of_run) == set(LvmCache.counts)
    assert all(named(name).unit for name in of_run)
    assert "cache.hit_ratio" not in dict(counted(after, after))


def test_a_table_of_an_old_kernel() -> None:
    old = parse_table("0 2088960 cache 253:1 253:0 253:3 64 1 writethrough smq 2 migration_threshold 4096")
    assert old == ({"metadata": "253:1", "data": "253:0", "origin": "253:3"}, 64, 1)


@pytest.mark.parametrize(("mode", "policy"), [("passthrough", "smq"), ("writeback", "cleaner")])
def test_a_cache_that_takes_nothing_in_does_not_fill(mode: str, policy: str) -> None:
    status = CacheStatus(policy, mode, 0, 1024, 0, 1, 1, 1, 1, 0, 0)
    assert "cache.filled" not in dict(counted(status, status))


def test_disks_are_found_below_stacked_devices() -> None:
    deps = (
        "bisector-data_cpool_cdata: 1 dependencies\t: (254, 16)\n"
        "bisector-origin: 3 dependencies\t: (253, 3) (253, 0) (253, 1)\n"
        "bisector-data_cpool_cmeta: 1 dependencies\t: (254, 16)\n"
        "bisector-origin_corig: 1 dependencies\t: (254, 32)\n"
    )
    names = (
        "bisector-data_cpool_cdata 253 0\nbisector-data_cpool_cmeta 253 1\n"
        "bisector-origin 253 2\nbisector-origin_corig 253 3\n"
    )
    below = parse_dependencies(deps, names)
    check_place("metadata", "253:1", below, {"254:16"})
    check_place("cache", "253:2", below, {"254:16", "254:32"})


def test_devices_that_lie_on_each_other_have_no_disk() -> None:
    ring = {"253:0": ("253:1",), "253:1": ("253:0",), "253:2": ("253:2", "254:16")}
    with pytest.raises(InfraError, match="it is on no disk instead of 254:16"):
        check_place("it", "253:0", ring, {"254:16"})
    check_place("it", "253:2", ring, {"254:16"})
    tower = {f"253:{n}": (f"253:{n + 1}", f"253:{n + 1}") for n in range(5000)}
    check_place("it", "253:0", tower, {"253:5000"})


def test_status_of_a_writecache() -> None:
    assert WRITECACHE.read_status(WRITECACHE_V4_18) == WritecacheStatus(4080, 2286, 0)
    assert WRITECACHE.read_status(f"bisectorw-origin: {WRITECACHE_V6_12}") == WritecacheStatus(
        4080, 2286, 0, (57925, 28781, 9352, 2890)
    )


def of_writecache(before: WritecacheStatus, after: WritecacheStatus) -> dict[str, float]:
    return dict(WRITECACHE.counted(before, after))


def test_counters_of_a_writecache_are_of_the_run() -> None:
    before = WRITECACHE.read_status(WRITECACHE_V6_12)
    reads, hits, writes, around = before.counts
    after = replace(before, free=0, counts=(reads + 100, hits + 25, writes + 100, around + 50))
    values = of_writecache(before, after)
    assert values["cache.hit_ratio"] == 100 * (25 + 100 - 50) / 200
    assert (values["cache.blocks"], values["cache.free_blocks"], values["cache.writeback_blocks"]) == (4080, 0, 0)
    assert values["cache.dirty_blocks"] == 4080
    assert values["cache.filled"] == 100
    assert all(named(name).unit for name in values)


def test_counters_of_a_writecache_of_an_old_kernel_have_no_hits() -> None:
    half = WRITECACHE.read_status(WRITECACHE_V4_18)
    values = of_writecache(replace(half, free=half.blocks), half)
    assert "cache.hit_ratio" not in values
    assert (values["cache.filled_before"], values["cache.filled"]) == (0, 100)


def test_a_writecache_is_full_near_its_low_watermark() -> None:
    for used, filled in ((1000, 100), (405, 100), (243, 60), (0, 0)):
        status = WritecacheStatus(1000, 1000 - used, 0)
        assert of_writecache(status, status)["cache.filled"] == pytest.approx(filled)


def test_a_writecache_is_made_with_every_default_named() -> None:
    shell = FakeShell(GUESTS["lvmwritecache"])
    stack = laid_out(STACKS["lvmwritecache"], shell)
    (made,) = [shlex.split(one) for one in stack.description if one.startswith("lvconvert")]
    assert made[made.index("--cachesettings") + 1] == (
        "block_size=4096 high_watermark=50 low_watermark=45 writeback_jobs=65536 autocommit_blocks=65536 "
        "autocommit_time=1000"
    )
    assert made[-1] == "bisectorw/origin"
    assert stack.read(shell).cache is None  # that is dm-cache's alone
    assert dict(stack.counted(stack.read(shell), stack.read(shell)))["cache.free_blocks"] == 2286
    assert [phase.name for phase in settings("lvmwritecache").storage.stack.phases] == ["empty", "full"]
