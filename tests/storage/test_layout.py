"""Stacks laid out on a guest that answers as a real one did."""

import shlex

import pytest

from bisector.core.errors import UserError
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.storage.disks import Brd, Bus, GuestDisk, NullBlk
from bisector.storage.layer import Files
from bisector.storage.stack import lay_out
from tests.guestshell import Answer, FakeShell
from tests.storage.guests import GUESTS, MIB, NO_FILES, guest, laid_out, settings

TABLE, STATUS = (GUESTS["lvmcache"][key].stdout for key in ("dmsetup table", "dmsetup status"))


def test_lvmcache_takes_one_round_trip_in_the_classic_order() -> None:
    shell = FakeShell(GUESTS["lvmcache"])
    stack = laid_out("lvmcache", shell)
    assert stack.mountpoint == "/mnt"
    made = " ".join(command.split()[0] for command in stack.description)
    volumes = "lvcreate lvcreate lvcreate lvconvert lvconvert"
    assert made == f"export pvcreate vgcreate {volumes} mkfs.ext4 mount stat"
    text = "\n".join(stack.description)
    assert "-L 67108864b" in text
    assert "--cachemode writeback" in text
    assert "--cachepolicy smq" in text
    # The two disks may have two block sizes, and a person's own image has an lvm.conf of its own.
    assert "vgcreate -y --config devices/allow_mixed_block_sizes=1 " in text
    before = stack.read(shell)
    assert before.cache is not None
    assert before.cache.used_blocks == 1024
    after = stack.read(FakeShell(guest("lvmcache", dmsetup_status=STATUS.replace(" 1024 269 ", " 1034 269 "))))
    assert dict(stack.counted(before, after))["cache.promotions"] == 10


def test_disks_in_the_guests_memory_are_made_first() -> None:
    shell, storage = FakeShell(GUESTS["ext4"]), settings("ssd").storage
    in_memory = {"ssd": NullBlk.of(64 * MIB, 1e-4, 0, 100 * MIB)}
    of_disks = {"ssd": GuestDisk(Bus.NULL_BLK)}
    stack = lay_out(shell, storage.stack, storage.layers, NO_FILES, 60, guest_disks=of_disks, in_memory=in_memory)
    made, *others = stack.description
    for value in ("64 >size", "1 >memory_backed", "2 >irqmode", "100000 >completion_nsec", "64 >hw_queue_depth"):
        assert f"echo {value} && " in made
    assert "echo 100 >mbps && echo 1 >power" in made
    assert "/dev/disk/by-id/null_blk-ssd" in made
    assert "/dev/disk/by-id/null_blk-ssd" in others[0]


def test_a_disk_on_brd_begins_behind_where_anything_is_found() -> None:
    """LVM would find its label on the RAM disk, too, and see two."""
    made = Brd(1, 64 * MIB, latency_ms=2, iops_limit=1000).make_step("hdd").command
    assert f"dmsetup create brd-hdd --table '0 {64 * MIB // 512} delay /dev/ram1 2048 2' && " in made
    assert all(f" 1000 >/sys/fs/cgroup/blkio.throttle.{way}_iops_device && " in made for way in ("read", "write"))
    assert made.endswith("ln -s $device /dev/disk/by-id/brd-hdd)")
    assert "cgroup" not in Brd(0, 64 * MIB, latency_ms=0).make_step("ssd").command


def test_a_cache_on_brd_lies_on_its_ram_disks() -> None:
    """Device-mapper does not stop at the disk, which is a device of its own."""
    of_ram, of_disks = GUESTS["lvmcache"]["stat -L"], Answer("fd:0\nfd:1\n")
    answers = guest("lvmcache", **{"stat -L -c '%t:%T' /dev/ram0 /dev/ram1": of_ram, "stat -L": of_disks})
    buses = {name: GuestDisk(Bus.BRD) for name in ("ssd", "hdd")}
    in_memory = {name: Brd(number, 512 * MIB, latency_ms=2) for number, name in enumerate(buses)}
    shell, storage = FakeShell(answers), settings("lvmcache").storage
    made = lay_out(shell, storage.stack, storage.layers, NO_FILES, 60, guest_disks=buses, in_memory=in_memory)
    assert {queue.bus for queue in made.queues} == {"brd"}


@pytest.mark.parametrize(
    ("latency_s", "iops", "completion_ns", "depth"),
    [(1e-4, 0, 100_000, 64), (0.0, 1000, 1_000_000, 1), (2e-3, 1000, 2_000_000, 2), (1e-3, 300, 3_333_333, 1)],
)
def test_the_latency_and_the_limit_of_a_disk_in_memory(
    latency_s: float, iops: int, completion_ns: int, depth: int
) -> None:
    """So many requests at a time, each as long, are that many a second."""
    assert NullBlk.of(MIB, latency_s, iops, 0) == NullBlk(MIB, completion_ns, depth)


def test_a_failing_command_is_this_kernels_fault() -> None:
    failed = Answer("", "  modprobe: FATAL\n  Required device-mapper target(s) not detected in your kernel.\n", 5)
    with pytest.raises(KernelFault) as caught:
        laid_out("lvmcache", FakeShell(guest("lvmcache", **{"lvconvert -y": failed})))
    assert (caught.value.stage, caught.value.kind) == (Stage.STORAGE, FaultKind.COMMAND_FAILED)
    assert caught.value.reason == "lvconvert: exit 5: Required device-mapper target(s) not detected in your kernel."
    assert len(caught.value.tail) == 2


MISSING = Answer("lvconvert cache_check\n", "", 1)
NO_ROOM = Answer("", "  Insufficient free space: 150 extents needed, but only 125 available\n", 5)


@pytest.mark.parametrize(
    ("stack", "changed", "file_bytes", "what", "hint"),
    [
        ("lvmcache", {"missing": MISSING}, 1, "^the guest image lacks: lvconvert cache_check$", "machine.image"),
        ("lvmcache", {"lvcreate -y": NO_ROOM}, 1, "^the cache does not fit on its disk: ", "storage.cache_size"),
        ("lvmcache", {}, 1024 * MIB, r"workload\.file_size is 1,024 MiB", "(storage.hdd.size)"),
        ("ssd", {}, 1024 * MIB, r"workload\.file_size is 1,024 MiB", "(storage.ssd.size)"),
    ],
)
def test_what_the_person_can_change_names_the_settings(
    stack: str, changed: dict[str, Answer], file_bytes: int, what: str, hint: str
) -> None:
    shell = FakeShell(guest("lvmcache" if stack == "lvmcache" else "ext4", **changed))
    with pytest.raises(UserError, match=what) as caught:
        laid_out(stack, shell, Files(file_bytes, "one file", file_bytes, ("workload.file_size",)))
    assert hint in caught.value.hint


def test_sizes_are_those_of_whole_extents_and_whole_blocks() -> None:
    """LVM rounds 65 MiB up to 68, of which dm-cache has 145 blocks of 480 KiB."""
    stack = "lvmcache(ssd,hdd,cache_size=65MiB,metadata_size=50MiB,cache_chunk_size=480KiB)+ext4"
    status = STATUS.replace("1024/1024", "145/145").replace("11/2048", "11/13312").replace("2048 smq", "7680 smq")
    lvconverted(stack, dmsetup_table=TABLE.replace(" 128 ", " 960 "), dmsetup_status=status)


def lvconverted(stack: str, **changed: str) -> list[list[str]]:
    """The words of each lvconvert, after its first ones."""
    made = laid_out(stack, FakeShell(guest("lvmcache", **changed)))
    return [shlex.split(one)[2:] for one in made.description if one.startswith("lvconvert")]


def test_every_default_of_lvmcache_is_named() -> None:
    pool, cache = lvconverted("lvmcache")
    assert pool[:6] == ["--type", "cache-pool", "--cachemode", "writeback", "--chunksize", "65536b"]
    assert cache == [
        *("--type", "cache", "--cachepool", "bisector/data", "--cachepolicy", "smq"),
        *("--cachemetadataformat", "1", "--cachesettings", "migration_threshold=2048", "bisector/origin"),
    ]


def test_what_an_older_record_left_to_lvm_is_left_to_it() -> None:
    """A bisection that was begun before these were settings goes on with the same commands."""
    old = "lvmcache(ssd,hdd,cache_chunk_size=auto,cache_metadata_format=auto)+ext4"
    pool, cache = lvconverted(old, dmsetup_table=TABLE.replace("1 writeback", "2 metadata2 writeback"))
    assert pool[:5] == ["--type", "cache-pool", "--cachemode", "writeback", "--poolmetadataspare"]
    assert cache == ["--type", "cache", "--cachepool", "bisector/data", "--cachepolicy", "smq", "bisector/origin"]


def test_a_cachevol_has_blocks_and_metadata_in_one_volume() -> None:
    stack = (
        "lvmcache(ssd,hdd,cache_volume=cachevol,cache_mode=writethrough,cache_metadata_format=2,cache_policy=mq)+ext4"
    )
    status = STATUS.replace("writeback", "writethrough").replace("smq", "mq")
    table = TABLE.replace("1 writeback", "2 metadata2 writethrough")
    (cache,) = lvconverted(stack, dmsetup_status=status, dmsetup_table=table)
    assert cache == [
        *("--type", "cache", "--cachevol", "bisector/data", "--cachemode", "writethrough", "--chunksize", "65536b"),
        *("--poolmetadatasize", "8388608b", "--cachepolicy", "mq", "--cachemetadataformat", "2"),
        *("--cachesettings", "migration_threshold=2048", "bisector/origin"),
    ]
    shell = FakeShell(guest("lvmcache", dmsetup_status=status, dmsetup_table=table))
    made = [one for one in laid_out(stack, shell).description if one.startswith("lvcreate")]
    assert f"-L {72 * MIB}b" in made[0]
