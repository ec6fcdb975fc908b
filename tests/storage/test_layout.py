"""Stacks laid out on a guest that answers as a real one did."""

import re
import shlex
from pathlib import Path

import pytest

from bisector.config import options
from bisector.core.errors import InfraError, UserError
from bisector.core.shell import Shell
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.storage.disks import Brd, Bus, GuestDisk, NullBlk
from bisector.storage.layer import Files, MountedStack
from bisector.storage.stack import lay_out, stack_of
from tests.guest_answers import STORAGE as GUEST
from tests.guestshell import Answer, FakeShell
from tests.loopdevice import command

MIB = 1 << 20
VALUES = options.load(directory=Path("/")).settings.storage.layers


def layout(shell: Shell, stack: str, file_bytes: int) -> MountedStack:
    files = Files(file_bytes, "one file", file_bytes, ("workload.file_size",))
    return lay_out(shell, stack_of(stack), VALUES, files, 60)


STATUS = GUEST["dmsetup status"].stdout


def plain_guest() -> FakeShell:
    """The good guest of a stack on one disk."""
    return guest(**{"stat -L": Answer("fe:10\n")})


def guest(**changed: Answer) -> FakeShell:
    """The good guest; ``dmsetup_table=`` changes its answer to commands with "dmsetup table"."""
    rows = {key.replace("_", " "): answer for key, answer in changed.items()}
    return FakeShell(rows | {key: answer for key, answer in GUEST.items() if key not in rows})


def test_lvmcache_takes_one_round_trip_in_the_classic_order() -> None:
    shell = guest()
    stack = layout(shell, "lvmcache", 32 * MIB)
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
    after = stack.read(guest(dmsetup_status=Answer(STATUS.replace(" 1024 269 ", " 1034 269 "))))
    assert dict(stack.counted(before, after))["cache.promotions"] == 10


def test_disks_in_the_guests_memory_are_made_first() -> None:
    shell = plain_guest()
    in_memory = {"ssd": NullBlk.of(64 * MIB, 1e-4, 0, 100 * MIB)}
    of_disks = {"ssd": GuestDisk(Bus.NULL_BLK)}
    files = Files(MIB, "one file", MIB, ("workload.file_size",))
    stack = lay_out(shell, stack_of("ssd"), VALUES, files, 60, guest_disks=of_disks, in_memory=in_memory)
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
    of_ram, of_disks = Answer(GUEST["stat -L"].stdout), Answer("fd:0\nfd:1\n")
    shell = guest(**{"stat -L -c '%t:%T' /dev/ram0 /dev/ram1": of_ram, "stat -L": of_disks})
    buses = {name: GuestDisk(Bus.BRD) for name in ("ssd", "hdd")}
    in_memory = {name: Brd(number, 512 * MIB, latency_ms=2) for number, name in enumerate(buses)}
    files = Files(MIB, "one file", MIB, ("workload.file_size",))
    made = lay_out(shell, stack_of("lvmcache"), VALUES, files, 60, guest_disks=buses, in_memory=in_memory)
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


@pytest.mark.parametrize("size_mib", [16, 126])
def test_no_file_system_has_blocks_below_4_kib(size_mib: int, tmp_path: Path) -> None:
    """By the real mkfs, which gives small ones 1 KiB: QEMU before 8.1 stops at such requests on many hosts."""
    (made,) = [step for step in layout(plain_guest(), "hdd", 1).description if "mkfs" in step]
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(size_mib * MIB)
    program, *options, _device = shlex.split(made)
    command(program, *options, disk)
    assert "\nBlock size:               4096\n" in command("dumpe2fs", "-h", disk)


def test_a_failing_command_is_this_kernels_fault() -> None:
    failed = Answer("", "  modprobe: FATAL\n  Required device-mapper target(s) not detected in your kernel.\n", 5)
    with pytest.raises(KernelFault) as caught:
        layout(guest(**{"lvconvert -y": failed}), "lvmcache", 1)
    assert (caught.value.stage, caught.value.kind) == (Stage.STORAGE, FaultKind.COMMAND_FAILED)
    assert caught.value.reason == "lvconvert: exit 5: Required device-mapper target(s) not detected in your kernel."
    assert len(caught.value.tail) == 2


def test_missing_tools_are_the_images() -> None:
    with pytest.raises(UserError, match=r"^the guest image lacks: lvconvert cache_check$") as caught:
        layout(guest(missing=Answer("lvconvert cache_check\n", "", 1)), "lvmcache", 1)
    assert "machine.image" in caught.value.hint


def test_no_room_on_the_ssd_names_the_settings() -> None:
    refused = Answer("", "  Insufficient free space: 150 extents needed, but only 125 available\n", 5)
    with pytest.raises(UserError) as caught:
        layout(guest(**{"lvcreate -y": refused}), "lvmcache", 1)
    assert "storage.cache_size" in caught.value.hint


def test_files_that_do_not_fit_name_the_settings() -> None:
    with pytest.raises(UserError, match=r"workload\.file_size is 1,024 MiB") as caught:
        layout(guest(), "lvmcache", 1024 * MIB)
    assert "(storage.hdd.size)" in caught.value.hint
    with pytest.raises(UserError) as caught:
        layout(plain_guest(), "ssd", 1024 * MIB)
    assert "(storage.ssd.size)" in caught.value.hint


TABLE = GUEST["dmsetup table"].stdout


@pytest.mark.parametrize(
    ("table", "status", "why"),
    [
        (TABLE.replace(" 128 ", " 256 "), STATUS, "blocks of 256 sectors; asked for smq, writeback, blocks of 128"),
        (TABLE.replace("1 writeback", "2 metadata2 writeback"), STATUS, "metadata 2; asked for smq, writeback, .* 1"),
        (TABLE, STATUS.replace("threshold 2048", "threshold 4096"), "migration_threshold 4096; asked for"),
        (TABLE, STATUS.replace("smq", "mq"), "asked for smq, writeback"),
        (TABLE, STATUS.replace("writeback", "writethrough"), "asked for smq, writeback"),
    ],
)
def test_another_cache_than_asked_for_is_this_kernels_fault(table: str, status: str, why: str) -> None:
    with pytest.raises(KernelFault, match=why):
        layout(guest(dmsetup_table=Answer(table), dmsetup_status=Answer(status)), "lvmcache", 1)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (STATUS.replace("1024/1024", "1024/960"), "62,914,560 bytes for the cache of dm-cache instead of 67,108,864"),
        (STATUS.replace("11/2048", "11/1024"), "4,194,304 bytes for the metadata of dm-cache instead of 8,388,608"),
    ],
)
def test_a_cache_of_another_size_is_lvms_doing(status: str, why: str) -> None:
    with pytest.raises(InfraError, match=why):
        layout(guest(dmsetup_status=Answer(status)), "lvmcache", 1)


def test_sizes_are_those_of_whole_extents_and_whole_blocks() -> None:
    """LVM rounds 65 MiB up to 68, of which dm-cache has 145 blocks of 480 KiB."""
    stack = "lvmcache(ssd,hdd,cache_size=65MiB,metadata_size=50MiB,cache_chunk_size=480KiB)+ext4"
    status = STATUS.replace("1024/1024", "145/145").replace("11/2048", "11/13312").replace("2048 smq", "7680 smq")
    lvconverted(stack, dmsetup_table=Answer(TABLE.replace(" 128 ", " 960 ")), dmsetup_status=Answer(status))


def lvconverted(stack: str, **changed: Answer) -> list[list[str]]:
    """The words of each lvconvert, after its first ones."""
    made = layout(guest(**changed), stack, 1)
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
    pool, cache = lvconverted(old, dmsetup_table=Answer(TABLE.replace("1 writeback", "2 metadata2 writeback")))
    assert pool[:5] == ["--type", "cache-pool", "--cachemode", "writeback", "--poolmetadataspare"]
    assert cache == ["--type", "cache", "--cachepool", "bisector/data", "--cachepolicy", "smq", "bisector/origin"]


def test_a_cachevol_has_blocks_and_metadata_in_one_volume() -> None:
    stack = (
        "lvmcache(ssd,hdd,cache_volume=cachevol,cache_mode=writethrough,cache_metadata_format=2,cache_policy=mq)+ext4"
    )
    status = Answer(STATUS.replace("writeback", "writethrough").replace("smq", "mq"))
    table = Answer(TABLE.replace("1 writeback", "2 metadata2 writethrough"))
    (cache,) = lvconverted(stack, dmsetup_status=status, dmsetup_table=table)
    assert cache == [
        *("--type", "cache", "--cachevol", "bisector/data", "--cachemode", "writethrough", "--chunksize", "65536b"),
        *("--poolmetadatasize", "8388608b", "--cachepolicy", "mq", "--cachemetadataformat", "2"),
        *("--cachesettings", "migration_threshold=2048", "bisector/origin"),
    ]
    shell = guest(dmsetup_status=status, dmsetup_table=table)
    made = [one for one in layout(shell, stack, 1).description if one.startswith("lvcreate")]
    assert f"-L {72 * MIB}b" in made[0]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"storage.cache_chunk_size": "48KiB"}, "multiples of 32KiB"),
        ({"storage.cache_chunk_size": "2GiB"}, "up to 1GiB"),
        ({"storage.cache_metadata_format": "3"}, "one of 1, 2; or"),
        ({"storage.cache_volume": "cachevol"}, "gives a cachevol the policy mq, whatever it is told"),
        (
            {"storage.cache_volume": "cachevol", "storage.cache_policy": "mq"},
            "cachevol with format 2 alone",
        ),
        ({"storage.cache_policy": "cleaner"}, "gives the cleaner format 2"),
        (
            {"storage.cache_policy": "cleaner", "storage.cache_metadata_format": "2"},
            "LVM makes a cleaner's cache writethrough",
        ),
        ({"storage.cache_migration_threshold": "256KiB"}, "LVM makes it 512KiB, 8 blocks, or more"),
        ({"storage.cache_size": "40GiB", "storage.cache_chunk_size": "32KiB"}, "no cache of more than 1,000,000"),
        ({"storage.cache_size": "16GiB"}, "LVM needs 16MiB or more for it"),
    ],
)
def test_what_lvm_does_not_make_is_refused_beforehand(given: dict[str, str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        options.load(given, directory=Path("/"))


def test_who_asks_for_the_cleaner_is_told_of_a_stack_that_has_it() -> None:
    with pytest.raises(UserError) as caught:
        options.load({"storage.stack": "lvmcache(ssd,hdd,cache_policy=cleaner)+ext4"}, directory=Path("/"))
    found = re.search(r"such as (\S+)", caught.value.hint)
    assert found is not None
    options.load({"storage.stack": found[1]}, directory=Path("/"))


@pytest.mark.parametrize(
    "options_of_it",
    ["cache_mode=passthrough", "cache_policy=cleaner,cache_mode=writethrough,cache_metadata_format=2"],
)
def test_a_cache_that_takes_nothing_in_need_not_be_filled(options_of_it: str) -> None:
    stack = f"lvmcache(ssd,hdd,{options_of_it})+ext4"
    options.load({"storage.stack": stack, "workload.file_size": "1MiB"}, directory=Path("/"))


@pytest.mark.parametrize(
    "changed", ["0 1 cache Fail\n", STATUS.replace("rw -", "ro -"), STATUS.replace("rw -", "rw needs_check")]
)
def test_a_cache_that_the_kernel_gave_up(changed: str) -> None:
    with pytest.raises(KernelFault) as caught:
        layout(guest(dmsetup_status=Answer(changed)), "lvmcache", 1)
    assert caught.value.kind is FaultKind.IO_ERROR


@pytest.mark.parametrize(
    ("table", "part"),
    [
        ("0 2088960 cache 253:3 253:0 253:3 128 1 writeback smq 0", "metadata is on 254:32 instead of 254:16"),
        ("0 2088960 cache 253:1 253:3 253:3 128 1 writeback smq 0", "data is on 254:32 instead of 254:16"),
        ("0 2088960 cache 253:1 253:0 253:0 128 1 writeback smq 0", "origin is on 254:16 instead of 254:32"),
    ],
)
def test_a_part_on_the_wrong_disk_is_ours(table: str, part: str) -> None:
    with pytest.raises(InfraError, match=part):
        layout(guest(dmsetup_table=Answer(table)), "lvmcache", 1)
