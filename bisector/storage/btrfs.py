"""Btrfs with a format that every kernel since v4.9 mounts, whatever the defaults of the image's mkfs.btrfs are."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from bisector.storage import file_system
from bisector.storage.layer import MOUNTPOINT, Capacity, Since

# The defaults of btrfs-progs 5.14 and earlier: 5.15 turned on no-holes and the free space tree, and duplicates metadata
# on every disk and not only on rotational ones (btrfs-progs CHANGES, mkfs.btrfs(8)).
_MKFS = (
    "-d single -m dup -n 16384 -s 4096 --csum crc32c -O extref,skinny-metadata,^no-holes,^mixed-bg -R ^free-space-tree"
)
_LEAST_BYTES = 109 << 20  # for metadata kept twice, as mkfs.btrfs itself prints
# The flags of the superblock (btrfs(5)), by the names that mkfs.btrfs has for them.
_FLAGS: Mapping[str, str] = {
    "extref": "EXTENDED_IREF",
    "skinny-metadata": "SKINNY_METADATA",
    "no-holes": "NO_HOLES",
    "mixed-bg": "MIXED_GROUPS",
    "free-space-tree": "FREE_SPACE_TREE",
    "block-group-tree": "BLOCK_GROUP_TREE",
    "raid-stripe-tree": "RAID_STRIPE_TREE",
    "squota": "SIMPLE_QUOTA",
    "raid1c34": "RAID1C34",
    "raid56": "RAID56",
    "zoned": "ZONED",
}
# Flags of every format, or set by the kernel: for metadata blocks larger than a page, and for algorithms once used.
_OF_THE_KERNEL = frozenset(
    {"MIXED_BACKREF", "BIG_METADATA", "DEFAULT_SUBVOL", "COMPRESS_LZO", "COMPRESS_ZSTD", "METADATA_UUID"}
    | {"FREE_SPACE_TREE_VALID", "VERITY"}
)
_FLAG = re.compile(r"^\s*\(?\s*([A-Z][A-Z0-9_]+)\s*[|)]", re.MULTILINE)
_FIELD = re.compile(r"^(csum_type|sectorsize|nodesize)\s+(?:\d+ \()?([\w-]+)\)?$", re.MULTILINE)
_PROFILE = re.compile(r"^(Data|Metadata)(?:\+Metadata)?, (\w+):", re.MULTILINE)
_UAPI = "include/uapi/linux"
# nossd, since the kernel would choose ssd for a disk that is not rotational; nodiscard, since kernels from v6.2 on
# discard by default.
_MOUNT = "rw,relatime,nossd,nodiscard,space_cache"


@dataclass(frozen=True, slots=True)
class Btrfs(file_system.FileSystem):
    """A Btrfs that is made without discards, with the features that kernels since v4.9 know."""

    name = "btrfs"
    mkfs_options: Annotated[file_system.MkfsOptions, file_system.mkfs_row("btrfs", _MKFS)]
    mount_options: Annotated[file_system.MountOptions, file_system.mount_row("btrfs", _MOUNT)]
    mkfs = "mkfs.btrfs -q -f -K"
    letters = "A:b:d:fl:L:m:n:r:s:vKMO:R:U:Vq"  # mkfs.btrfs(8)
    long_options = (
        *("alloc-start=", "byte-count=", "csum=", "checksum=", "data=", "features=", "force", "help", "label="),
        *("leafsize=", "metadata=", "mixed", "nodesize=", "nodiscard", "quiet", "rootdir=", "runtime-features="),
        *("sectorsize=", "shrink", "uuid=", "verbose", "version"),
    )
    unfit: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("-V", "--version", "--help"), file_system.NO_FILE_SYSTEM),
        "-r": file_system.A_FILE,
        "--rootdir": file_system.A_FILE,
    }
    # The words of btrfs_show_options() in fs/btrfs/super.c.
    shown_always = frozenset(
        {"nodatasum", "nodatacow", "nobarrier", "notreelog", "noacl", "compress", "compress-force", "ssd", "nossd"}
        | {"ssd_spread", "flushoncommit", "autodefrag", "skip_balance", "user_subvol_rm_allowed", "enospc_debug"}
        | {"commit", "max_inline", "metadata_ratio", "space_cache", "nospace_cache"}
    )
    shown_as: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "compress": ("compress=zlib",),
        "compress-force": ("compress-force=zlib",),
        "discard=sync": ("discard",),
        "space_cache=v1": ("space_cache",),
        # Defaults are not shown, even if they are given.
        **dict.fromkeys(("compress=no", "compress=none", "commit=0", "commit=30", "max_inline=2048"), ()),
        **dict.fromkeys(("metadata_ratio=0", "fatal_errors=bug"), ()),
        **dict.fromkeys(("datacow", "datasum", "barrier", "treelog", "acl", "max_inline=2k"), ()),
    }
    exclusive = (("ssd", "nossd", "ssd_spread"),)
    # Features, checksums and mount options that came later (btrfs(5), mkfs.btrfs(8)).
    later: ClassVar[Mapping[str, Since]] = {
        **dict.fromkeys(("compress=zstd", "compress-force=zstd"), Since("v4.14", "fs/btrfs", "BTRFS_COMPRESS_ZSTD")),
        "xxhash": Since("v5.5", _UAPI, "BTRFS_CSUM_TYPE_XXHASH"),
        "sha256": Since("v5.5", _UAPI, "BTRFS_CSUM_TYPE_SHA256"),
        "blake2": Since("v5.5", _UAPI, "BTRFS_CSUM_TYPE_BLAKE2"),
        "discard=async": Since("v5.6", "fs/btrfs", "BTRFS_MOUNT_DISCARD_ASYNC"),
        "block-group-tree": Since("v6.1", _UAPI, "BTRFS_FEATURE_COMPAT_RO_BLOCK_GROUP_TREE"),
        "squota": Since("v6.7", _UAPI, "BTRFS_FEATURE_INCOMPAT_SIMPLE_QUOTA"),
    }
    fragments = ("storage-btrfs",)
    fragments_of_options: ClassVar[Mapping[str, str]] = {"acl": "storage-btrfs-acl"}
    suspects = ("block", "drivers/block", "fs/btrfs")
    tools = ("mkfs.btrfs", "mount", "btrfs")
    least_bytes = _LEAST_BYTES
    # Metadata are kept twice, and overwritten data keep their space until no part of their extent is used any longer.
    data_share = 0.4

    format_command = f"btrfs inspect-internal dump-super {{device}} && btrfs filesystem df {MOUNTPOINT}"

    def written(self, below: Sequence[Capacity], data_bytes: int) -> tuple[int, ...]:
        """The whole device: Btrfs never overwrites in place, so in time it uses all of it."""
        whole = below[0].size_bytes
        return (max(data_bytes, whole) if whole is not None else 3 * data_bytes,)

    def other_format(self, asked: Mapping[str, str], printed: str) -> Iterator[str]:
        """Yield how the superblock, and the profiles of data and metadata, differ from the options of mkfs."""
        fields = dict(_FIELD.findall(printed))
        profiles = {kind: profile.lower() for kind, profile in _PROFILE.findall(printed)}
        if len(fields) < len(("csum_type", "sectorsize", "nodesize")) or not profiles:
            raise ValueError(printed)
        got = {
            "csum": fields["csum_type"],
            "s": fields["sectorsize"],
            "n": fields["nodesize"],
            "d": profiles.get("Data", "nothing"),
            "m": profiles.get("Metadata", "nothing"),
        }
        yield from file_system.differing({letter: asked[letter] for letter in got if letter in asked}, got)
        features = [word for letter in "OR" for word in asked.get(letter, "").split(",") if word]
        wanted = {_FLAGS.get(word, word) for word in features if not word.startswith("^")}
        flags = set(_FLAG.findall(printed.partition("compat_ro_flags")[2])) - _OF_THE_KERNEL
        yield from (f"no {flag}" for flag in sorted(wanted - flags))
        yield from (f"{flag}, which was not asked for" for flag in sorted(flags - wanted))
