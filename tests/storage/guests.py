"""Guests that did as they were told, by the name of the layer, and the stacks that are laid out on them."""

from collections.abc import Mapping
from pathlib import Path

from bisector.config import Settings, options
from bisector.core.shell import Shell
from bisector.storage.layer import Files, MountedStack
from bisector.storage.stack import lay_out
from tests.guest_answers import STORAGE
from tests.guestshell import EXT4, Answer

MIB = 1 << 20
NO_FILES = Files(0, "no files")
_RECORDED = Path(__file__).parents[1] / "data" / "bcache"
_FORMATS = Path(__file__).parents[1] / "data" / "storage"
# Recorded from Linux 6.12.117 in guests with the default sizes, after two runs of 20 s that read.
BCACHE_V6_12 = (_RECORDED / "v6.12.txt").read_text(encoding="utf-8")
BCACHE_WRITEBACK = (_RECORDED / "v6.12-writeback.txt").read_text(encoding="utf-8")
# Not recorded, but laid out as v4.11 and v4.12 print it (drivers/md/bcache): the files of the device, the cache and the
# set by sysfs.c, lines 110, 735 and 518, stats_total by stats.c, line 52, sizes and lists of words by util.c, lines 77
# and 97, both stat by part_stat_show() in block/partition-generic.c, line 112. The figures are made up, but such that
# these functions can print them: sizes are of whole sectors, and what is dirty is 32 buckets.
BCACHE_V4_11 = (_RECORDED / "v4.11.txt").read_text(encoding="utf-8")
# Recorded: a cache of 16 MiB with LVM 2.03.16 and Linux 6.12.117, after two runs of fio that read. The table had no
# writeback_jobs, which are named since then; v4.18 and v6.12 print them in this place.
WRITECACHE_V6_12 = "0 253952 writecache 0 4080 2286 0 57925 28781 9352 3 33 2890 6426 0 15 0"
WRITECACHE_TABLE = (
    "0 253952 writecache s 251:2 251:1 4096 10 high_watermark 50 low_watermark 45 writeback_jobs 65536 "
    "autocommit_blocks 65536 autocommit_time 1000"
)
# Not recorded, but as `grep -H .` prints the files of an array of v4.11 in sysfs, and of v4.12. In drivers/md/md.c:
# level 3429, raid_disks 3699, metadata_version 4237, chunk_size 3754, layout 3653, degraded 4487, sync_action 4315,
# rdN/offset 2867, array_state 3893; in bitmap.c bitmap/location 2198; those of RAID 5 in raid5.c from line 6208 on.
RAID1_STATE = """\
level:raid1
raid_disks:2
metadata_version:1.2
chunk_size:0
layout:0
degraded:0
sync_action:idle
bitmap/location:none
rd0/offset:2048
rd1/offset:2048
array_state:clean
rd0/block/dev:254:16
rd1/block/dev:254:32
"""
CRYPT_TABLE = f"0 2097152 crypt aes-xts-plain64 {'0' * 128} 0 254:16 0"
RAM_SIZE = "blockdev --getsize64"
_TWO_DISKS = {"stat -L": Answer("fe:10\nfe:20\n"), "stat -f": Answer("235000 4096\n")}
_ONE_DISK = _TWO_DISKS | {"stat -L": Answer("fe:10\n")}

STACKS = {
    "lvmcache": "lvmcache",
    "lvmwritecache": "lvmwritecache(ssd,hdd,cache_size=16MiB)+ext4",
    "bcache": "bcache",
    "crypt": "crypt(hdd)+ext4",
    "raid1": "raid1(ssd,hdd)+ext4",
    "ram": "ram",
    "ext4": "hdd",
    "xfs": "hdd+xfs",
    "btrfs": "hdd+btrfs",
}


def mountinfo(kind: str, shown: str) -> str:
    """As the kernel writes it: the root file system comes first, and has options of its own."""
    return (
        "21 1 254:0 / / rw,relatime - ext4 /dev/root rw\n"
        f"40 21 254:16 / /mnt rw,relatime shared:1 - {kind} /dev/vdb {shown}\n"
    )


def recorded_format(name: str) -> str:
    return (_FORMATS / name).read_text(encoding="utf-8")


GUESTS: Mapping[str, Mapping[str, Answer]] = {
    "lvmcache": STORAGE,
    "lvmwritecache": _TWO_DISKS | {
        "stat -L": Answer("fd:10\nfd:20\n"),
        "dmsetup table": Answer(f"{WRITECACHE_TABLE}\n"),
        "dmsetup status": Answer(f"{WRITECACHE_V6_12}\n"),
        "dmsetup deps": Answer(
            "bisectorw-data_cvol: 1 dependencies\t: (253, 16)\nbisectorw-origin: 2 dependencies\t: (251, 1) (251, 2)\n"
            "bisectorw-origin_wcorig: 1 dependencies\t: (253, 32)\n"
        ),
        "dmsetup info": Answer("bisectorw-data_cvol 251 1\nbisectorw-origin 251 0\nbisectorw-origin_wcorig 251 2\n"),
    },
    "bcache": _TWO_DISKS | {"grep -s -H": Answer(BCACHE_V6_12)},
    "crypt": _ONE_DISK | {
        "dmsetup table": Answer(f"{CRYPT_TABLE}\n"),
        "dmsetup deps": Answer("crypt: 1 dependencies\t: (254, 16)\n"),
        "dmsetup info": Answer("crypt 253 0\n"),
    },
    "raid1": _TWO_DISKS | {"/md && grep": Answer(RAID1_STATE)},
    "ram": {"stat -f": _TWO_DISKS["stat -f"], RAM_SIZE: Answer(f"{256 * MIB}\n")},
    "ext4": _ONE_DISK | EXT4 | {"dumpe2fs": Answer(recorded_format("dumpe2fs-1.47.txt"))},
    "xfs": _ONE_DISK | {  # by the show_options of v6.18
        "mountinfo": Answer(mountinfo("xfs", "rw,inode64,logbufs=8,logbsize=32k,noquota")),
        "xfs_spaceman": Answer(recorded_format("xfs_info-6.1.txt")),
    },
    "btrfs": _ONE_DISK | {
        "mountinfo": Answer(mountinfo("btrfs", "rw,nossd,space_cache,subvolid=5,subvol=/")),
        "dump-super": Answer(recorded_format("btrfs-6.2.txt")),
    },
}  # fmt: skip


def guest(name: str, **changed: str | Answer) -> dict[str, Answer]:
    """The answers of a sound guest but for what is changed: ``dmsetup_table`` are those to "dmsetup table"."""
    rows = {key.replace("_", " "): one if isinstance(one, Answer) else Answer(one) for key, one in changed.items()}
    return rows | {key: one for key, one in GUESTS[name].items() if key not in rows}


def settings(stack: str, given: Mapping[str, str] | None = None) -> Settings:
    return options.load({"storage.stack": stack, **(given or {})}, directory=Path("/")).settings


def laid_out(stack: str, shell: Shell, files: Files = NO_FILES) -> MountedStack:
    storage = settings(stack).storage
    return lay_out(shell, storage.stack, storage.layers, files, 60)
