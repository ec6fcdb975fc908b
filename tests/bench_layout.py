"""How long stacks take to be laid out and checked in a guest; ``make bench`` runs it.

One trial of seconds for each, in emulation where the host has no KVM. The kernel with the drivers of all layers and the
guest's image are those that the tests keep.
"""

import re
import sys
import tempfile
from pathlib import Path

from bisector.core.resources import cache_home
from scenarios.demo import history
from scenarios.demo.run import newest_tarball
from tests.in_vms.conftest import SHORT_RUNS, Tool, furnish

STACKS = (
    "hdd+ext4",
    "hdd+xfs",
    "hdd+btrfs",
    "ram(size=128MiB)+ext4",
    "lvmcache(ssd,hdd)+ext4",
    "lvmcache(ssd,hdd,cache_volume=cachevol,cache_policy=mq,cache_mode=writethrough,cache_metadata_format=2)+ext4",
    "lvmcache(ram(size=64MiB),hdd)+ext4",
    "lvmwritecache(ssd,hdd)+ext4",
    "bcache(ssd,hdd)+ext4",
    "raid1(ssd,hdd)+ext4",
    "raid5(hdd,hdd2,hdd3)+xfs",
    "crypt(hdd)+ext4",
    "crypt(raid1(ssd,hdd))+xfs",
    "lvmcache(crypt(ssd),crypt(hdd))+xfs",
    "crypt(lvmcache(ssd,hdd))+btrfs",
)
# mkfs.xfs wants 300 MiB; most of it stays a hole.
SIZES = tuple(word for disk in ("ssd", "hdd") for word in ("--set", f"storage.{disk}.size=512MiB"))
SMALL = tuple(
    word
    for option in ("bcache.cache_size=16MiB", "bcache.bucket_size=16KiB", "lvmwritecache.cache_size=16MiB")
    for word in ("--set", f"storage.{option}")
)
GOAL_S, GOAL_OF_MD_OR_CRYPT_S = 8.0, 15.0


def goal_s(stack: str) -> float:
    return GOAL_OF_MD_OR_CRYPT_S if re.search("raid|crypt", stack) else GOAL_S


def layout_s(tool: Tool, rev: str, stack: str) -> float:
    """The seconds that the stack took in one trial."""
    further = (word for name in ("hdd2", "hdd3") if name in stack for word in ("--disk", f"{name}=512MiB"))
    words = (*SHORT_RUNS, *SIZES, *SMALL, *further, "--stack", stack)
    return float(tool.measured(rev, *words)["storage_s"])


def main() -> int:
    demo = history.make(newest_tarball(), cache_home() / "demo" / "linux")
    missed = 0
    with tempfile.TemporaryDirectory() as place:
        tool = Tool(Path(demo.repo), Path(place), furnish(Path(place)))
        for stack in STACKS:
            took_s = layout_s(tool, demo.new, stack)
            missed += took_s > goal_s(stack)
            sys.stdout.write(f"{took_s:6.1f} s (at most {goal_s(stack):.0f})  {stack}\n")
            sys.stdout.flush()
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
