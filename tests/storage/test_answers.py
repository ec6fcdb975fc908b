"""What a guest answers that was not asked for, or that nobody expects, of each layer that reads something back."""

import pytest

from bisector.core.errors import InfraError
from bisector.core.trial import FaultKind, KernelFault, Stage
from tests.guestshell import Answer, FakeShell
from tests.storage.guests import GUESTS, RAM_SIZE, STACKS, WRITECACHE_TABLE, laid_out

TABLE, STATUS, DEPS, INFO = "dmsetup table", "dmsetup status", "dmsetup deps", "dmsetup info"
BCACHE, RAID = "grep -s -H", "/md && grep"
MOUNTED, EXT4_OPTIONS, EXT4, XFS, BTRFS = "mountinfo", "/proc/fs/ext4/", "dumpe2fs", "xfs_spaceman", "dump-super"


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, guest in GUESTS.items() for key in guest])
def test_answers_that_are_none_are_this_kernels_fault(name: str, key: str) -> None:
    laid_out(STACKS[name], FakeShell(GUESTS[name]))
    for said in ("", "nonsense", "\x1b[2J", "1 2 3 4 5", "x:y z:w", "9" * 10_000, "@step 0\n@step 9"):
        with pytest.raises(KernelFault) as caught:
            laid_out(STACKS[name], FakeShell({**GUESTS[name], key: Answer(said)}))
        assert caught.value.reason.isprintable()
        assert len(caught.value.reason) < 1000


def but(name: str, key: str, old: str, new: str) -> FakeShell:
    """A sound guest that answers otherwise in one place."""
    said = GUESTS[name][key].stdout
    assert old in said
    return FakeShell({**GUESTS[name], key: Answer(said.replace(old, new))})


@pytest.mark.parametrize(
    ("name", "key", "old", "new"),
    [
        ("lvmcache", STATUS, "cache 8", "linear 8"),
        ("lvmcache", STATUS, " 128 1024/1024", ""),
        ("lvmcache", STATUS, "1024/1024", "1024"),
        ("lvmcache", STATUS, "1 writeback", "x writeback"),
        ("lvmcache", STATUS, "1 writeback", f"{10**18} writeback"),
        ("lvmcache", STATUS, " smq 0 rw -", ""),
        ("lvmcache", STATUS, "103 75 146 8", "103 75 146"),
        ("lvmcache", STATUS, "103 75 146 8", f"{2**63} 75 146 8"),
        ("lvmcache", STATUS, "103 75 146 8", "-1 75 146 8"),
        ("lvmcache", STATUS, "103 75 146 8", f"{'9' * 5000} 75 146 8"),
        ("lvmcache", STATUS, "smq", "q" * 5000),
        ("lvmcache", TABLE, " 253:0 253:3 128 1 writeback smq 2 migration_threshold 2048", ""),
        ("lvmcache", TABLE, "1 writeback smq 2 migration_threshold 2048", "2 writeback"),
        ("lvmcache", TABLE, " 128 ", " x "),
        ("lvmcache", TABLE, " 128 ", " 0 "),
        ("lvmcache", DEPS, "b-cdata:", "nobody:"),
        ("lvmcache", INFO, "b-cdata 253 0", "b-cdata 253"),
        ("lvmcache", INFO, "b-cdata 253 0", "b-cdata x y"),
        ("lvmwritecache", STATUS, "writecache 0", "cache 0"),
        ("lvmwritecache", STATUS, "2286", "x"),
        ("lvmwritecache", STATUS, "2286", str(2**63)),
        ("lvmwritecache", STATUS, " 15 0", " 15 0 1"),
        ("lvmwritecache", STATUS, " 15 0", " 15"),
        ("lvmwritecache", TABLE, " 10 high", " ten high"),
        ("bcache", BCACHE, "cache_mode:", "x:"),
        ("bcache", BCACHE, "[writethrough]", "writethrough"),
        ("bcache", BCACHE, "dirty_data:0.0k", "dirty_data:lots"),
        ("bcache", BCACHE, "stats_total/cache_hits:", "stats_total/cache_hits:-"),
        ("bcache", BCACHE, "stats_total/cache_hits:", "stats_total/cache_hits:" + "9" * 30),
        ("bcache", BCACHE, "dev/stat:", "dev/stat:1 2\nx:"),
        ("bcache", BCACHE, "cache/congested_write_threshold_us:", "x:"),
        ("bcache", BCACHE, "cache_mode:", "fill_end:-1\ncache_mode:"),
        ("bcache", BCACHE, "cache_mode:", "x" * 100_000),
    ],
)
def test_answers_that_are_damaged_are_this_kernels_fault(name: str, key: str, old: str, new: str) -> None:
    with pytest.raises(KernelFault, match=r"printed|sysfs") as caught:
        laid_out(STACKS[name], but(name, key, old, new))
    assert (caught.value.stage, caught.value.kind) == (Stage.STORAGE, FaultKind.COMMAND_FAILED)
    assert len(caught.value.reason) < 400


@pytest.mark.parametrize(
    ("name", "key", "old", "new", "why"),
    [
        ("lvmcache", TABLE, " 128 ", " 256 ", "blocks of 256 sectors; asked for smq, writeback, blocks of 128"),
        ("lvmcache", TABLE, "1 writeback", "2 metadata2 writeback", "metadata 2; asked for smq, writeback, .* 1"),
        ("lvmcache", STATUS, "threshold 2048", "threshold 4096", "migration_threshold 4096; asked for"),
        ("lvmcache", STATUS, "smq", "mq", "asked for smq, writeback"),
        ("lvmcache", STATUS, "writeback", "writethrough", "asked for smq, writeback"),
        ("lvmwritecache", TABLE, "50", "60", "high_watermark 60, .*; asked for block_size 4096, high_watermark 50"),
        ("lvmwritecache", TABLE, "1000", "2000", "autocommit_time 2000; asked for"),
        ("lvmwritecache", TABLE, " 10 high_watermark 50", " 0 x 1", "high_watermark None"),
        ("lvmwritecache", TABLE, " 10 high", " 11 cleaner high", "autocommit_time 1000, cleaner; asked for"),
        ("lvmwritecache", TABLE, " 10 high", " 12 max_age 9 high", "autocommit_time 1000, max_age; asked for"),
        ("lvmwritecache", TABLE, WRITECACHE_TABLE, WRITECACHE_TABLE.replace(" 10 ", " 11 ") + " cleaner",
         "autocommit_time 1000, cleaner; asked for"),
        ("lvmwritecache", TABLE, "4096", "512", "block_size 512"),
        ("bcache", BCACHE, "[writethrough] writeback", "writethrough [writeback]", "writeback; asked for writethrough"),
        ("bcache", BCACHE, "sequential_cutoff:4.0M", "sequential_cutoff:0.0k", "cutoff 0; asked for 4194304"),
        ("bcache", BCACHE, "[lru] fifo", "lru [fifo]", "replacement_policy fifo"),
        ("bcache", BCACHE, "writeback_percent:10", "writeback_percent:40", "writeback_percent 40"),
        ("bcache", BCACHE, "read_threshold_us:0", "read_threshold_us:2000", "read_threshold_us 2000; asked for 0"),
        ("bcache", BCACHE, "[all] meta-only", "all [meta-only]", "readahead_cache_policy meta-only; asked for all"),
        ("bcache", BCACHE, "bucket_size:64.0k", "bucket_size:128.0k", "bucket_size 131072; asked for 65536"),
        ("bcache", BCACHE, "block_size:0.5k", "block_size:4.0k", "block_size 4096; asked for 512"),
        ("bcache", BCACHE, "nbuckets:1024", "nbuckets:8192", "nbuckets 8192; asked for 1024"),
        ("bcache", BCACHE, "state:clean", "state:clean\nwriteback_rate_minimum:16", "minimum 16; asked for 8"),
        ("bcache", BCACHE, "state:clean", "state:clean\ncache/internal/gc_after_writeback:1", "writeback 1; asked for"),
        ("crypt", TABLE, "aes-xts-plain64", "aes-xts-plain", "plain, .*; asked for aes-xts-plain64, 512 bits, 512 by"),
        ("crypt", TABLE, "0" * 128, "0" * 64, "a key of 256 bits, .*; asked for aes-xts-plain64, 512 bits"),
        ("crypt", TABLE, " 0 254:16 0", " 8 254:16 0", "offsets 8 and 0; asked for .*, 0 and 0$"),
        ("crypt", TABLE, " 0 254:16 0", " 0 254:16 4096", "offsets 0 and 4096; asked for .*, 0 and 0$"),
        ("raid1", RAID, "level:raid1", "level:raid0", "^md1: level raid0; asked for level raid1"),
        ("raid1", RAID, "degraded:0", "degraded:1", "^md1: degraded 1; asked for degraded 0"),
        ("raid1", RAID, "sync_action:idle", "sync_action:resync", "^md1: sync_action resync; asked for"),
        ("raid1", RAID, "sync_action:idle\n", "", "^md1: sync_action missing; asked for"),
        ("raid1", RAID, "bitmap/location:none", "bitmap/location:+8", r"^md1: bitmap/location \+8; asked for"),
        ("raid1", RAID, "rd1/offset:2048", "rd1/offset:264192", "^md1: rd1/offset 264192; asked for"),
        ("raid1", RAID, "metadata_version:1.2", "metadata_version:1.0", "^md1: metadata_version 1.0; asked for"),
        ("raid1", RAID, "array_state:clean", "array_state:read-auto", "^md1: array_state read-auto; asked for one th"),
        ("ram", RAM_SIZE, "268435456", "268435456000", "asked for 268435456"),
        ("ram", RAM_SIZE, "268435456", "0", "asked for 268435456"),
        ("xfs", MOUNTED, "inode64", "inode32", "^mount: xfs is mounted without inode64$"),
        ("xfs", MOUNTED, "logbufs=8", "logbufs=4", "^mount: xfs is mounted without logbufs=8$"),
        ("xfs", MOUNTED, "noquota", "noquota,discard", "^mount: xfs is mounted without nodiscard$"),
        ("xfs", MOUNTED, "rw", "ro", "^mount: xfs is mounted without rw$"),
        ("xfs", MOUNTED, "- xfs", "- ext4", "'ext4' is mounted instead of xfs"),
        ("btrfs", MOUNTED, "nossd", "ssd", "^mount: btrfs is mounted without nossd$"),
        ("btrfs", MOUNTED, "space_cache", "discard=async,space_cache=v2", "without nodiscard,space_cache$"),
        ("ext4", EXT4_OPTIONS, "\ndata=ordered\n", "\n", "without data=ordered$"),
        ("ext4", EXT4_OPTIONS, "\nbarrier\n", "\n", "without barrier$"),
        ("ext4", EXT4_OPTIONS, "\ndelalloc\n", "\n", "without delalloc$"),
        ("ext4", EXT4_OPTIONS, "\ncommit=5\n", "\n", "without commit=5$"),
        ("ext4", EXT4_OPTIONS, "noinit_itable", "init_itable=10", "without noinit_itable$"),
    ],
)  # fmt: skip
def test_what_the_kernel_made_otherwise_is_its_fault(name: str, key: str, old: str, new: str, why: str) -> None:
    with pytest.raises(KernelFault, match=why) as caught:
        laid_out(STACKS[name], but(name, key, old, new))
    assert (caught.value.stage, caught.value.kind) == (Stage.STORAGE, FaultKind.COMMAND_FAILED)


@pytest.mark.parametrize(
    ("name", "key", "old", "new", "why"),
    [
        ("lvmcache", STATUS, "1024/1024", "1024/960", "62,914,560 bytes for the cache of dm-cache instead of 67,108,"),
        ("lvmcache", STATUS, "11/2048", "11/1024", "4,194,304 bytes for the metadata of dm-cache instead of 8,388,608"),
        ("lvmcache", TABLE, "253:1 253:0 253:3", "253:3 253:0 253:3", "metadata is on 254:32 instead of 254:16"),
        ("lvmcache", TABLE, "253:1 253:0 253:3", "253:1 253:3 253:3", "data is on 254:32 instead of 254:16"),
        ("lvmcache", TABLE, "253:1 253:0 253:3", "253:1 253:0 253:0", "origin is on 254:16 instead of 254:32"),
        ("lvmwritecache", STATUS, " 4080 ", " 2040 ", "8,355,840 bytes of blocks in a volume that should have 16,777,"),
        ("lvmwritecache", TABLE, "251:2 251:1", "251:2 251:2", "data is on 253:32 instead of 253:16"),
        ("crypt", DEPS, "(254, 16)", "(254, 32)", "crypt is on 254:32 instead of 254:16"),
        ("crypt", TABLE, "254:16 0", "254:16 0 2 no_read_workqueue allow_discards",
         "cryptsetup made no_read_workqueue, allow_discards, which nobody asked for"),
        ("raid1", RAID, "rd0/block/dev:254:16\nrd1/block/dev:254:32", "rd0/block/dev:254:32\nrd1/block/dev:254:16",
         "md1 is on 254:32, 254:16 instead of 254:16, 254:32"),
        ("raid1", RAID, "rd1/block/dev:254:32\n", "", "md1 is on 254:16, nothing instead of"),
        ("xfs", XFS, "reflink=0", "reflink=1", "^mkfs.xfs made reflink=1 instead of reflink=0"),
        ("xfs", XFS, "isize=512", "isize=256", "isize=256 instead of isize=512"),
        ("xfs", XFS, "blocks=16384", "blocks=2560", "blocks=2560 instead of blocks=16384"),
        ("xfs", XFS, "lazy-count=1", "lazy-count=0", "lazy-count=0 instead of lazy-count=1"),
        ("xfs", XFS, "nrext64=0", "nrext64=0 exchange=1", "exchange=1, which was not asked for"),
        ("btrfs", BTRFS, "nodesize\t\t16384", "nodesize\t\t4096", "^mkfs.btrfs made n=4096 instead of n=16384"),
        ("btrfs", BTRFS, "0 (crc32c)", "1 (xxhash64)", "csum=xxhash64 instead of csum=crc32c"),
        ("btrfs", BTRFS, "Metadata, DUP", "Metadata, single", "m=single instead of m=dup"),
        ("btrfs", BTRFS, "SKINNY_METADATA )", "SKINNY_METADATA |\n\t\t\t  NO_HOLES )", "NO_HOLES, which was not"),
        ("btrfs", BTRFS, "EXTENDED_IREF |", "", "no EXTENDED_IREF"),
        ("ext4", EXT4, "metadata_csum", "metadata_csum orphan_file", "^mkfs.ext4 made orphan_file"),
        ("ext4", EXT4, "flex_bg ", "", "no flex_bg"),
        ("ext4", EXT4, "Block size:               4096", "Block size:               1024", "b=1024 instead of b=4096"),
        ("ext4", EXT4, "Inode count:              65536", "Inode count: 262144", "an inode for 4096 bytes"),
        ("ext4", EXT4, "count:     13107", "count:     0", "0.0 % of reserved blocks instead of 5"),
    ],
)  # fmt: skip
def test_what_the_tools_made_otherwise_is_ours(name: str, key: str, old: str, new: str, why: str) -> None:
    with pytest.raises(InfraError, match=why):
        laid_out(STACKS[name], but(name, key, old, new))


@pytest.mark.parametrize(
    ("name", "key", "old", "new", "kind"),
    [
        ("lvmcache", STATUS, "cache 8", "cache Fail", FaultKind.IO_ERROR),
        ("lvmcache", STATUS, "cache 8", "cache Error", FaultKind.IO_ERROR),
        ("lvmcache", STATUS, "rw -", "ro -", FaultKind.IO_ERROR),
        ("lvmcache", STATUS, "rw -", "rw needs_check", FaultKind.IO_ERROR),
        ("lvmwritecache", STATUS, "writecache 0", "writecache -5", FaultKind.IO_ERROR),
        ("bcache", BCACHE, "state:clean", "state:inconsistent", FaultKind.IO_ERROR),
        ("bcache", BCACHE, "state:clean", "state:no cache", FaultKind.IO_ERROR),
        ("raid1", RAID, "degraded:0", "degraded:1", FaultKind.COMMAND_FAILED),
        ("raid1", RAID, "array_state:clean", "array_state:inactive", FaultKind.COMMAND_FAILED),
    ],
)
def test_a_device_that_fails_ends_its_making_or_the_workload(
    name: str, key: str, old: str, new: str, kind: FaultKind
) -> None:
    mounted, failed = laid_out(STACKS[name], FakeShell(GUESTS[name])), but(name, key, old, new)
    before = mounted.read(FakeShell(GUESTS[name]))
    assert bool(mounted.counted(before, before)) is (name != "raid1")
    for stage, look in (
        (Stage.STORAGE, lambda: laid_out(STACKS[name], failed)),
        (Stage.WORKLOAD, lambda: mounted.read(failed)),
    ):
        with pytest.raises(KernelFault) as caught:
            look()
        assert (caught.value.stage, caught.value.kind) == (stage, kind)


@pytest.mark.parametrize(
    ("name", "key", "old", "new"),
    [
        ("raid1", RAID, "bitmap/location:none\n", ""),  # it was built without bitmaps
        ("lvmwritecache", TABLE, "45", "44"),  # it reckons watermarks back from blocks
        ("xfs", MOUNTED, "rw,inode64", "rw,attr2,inode64"),  # v4.9
    ],
)
def test_what_other_kernels_answer_is_what_was_asked(name: str, key: str, old: str, new: str) -> None:
    laid_out(STACKS[name], but(name, key, old, new))
