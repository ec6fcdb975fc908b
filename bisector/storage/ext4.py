"""An ext4 file system with the same format on every commit, whatever the defaults of the image's mke2fs are."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from bisector.core.setting import Problem
from bisector.storage import file_system
from bisector.storage.layer import MOUNTPOINT, Capacity, Files, Since

# The defaults of e2fsprogs 1.43 to 1.46, written out: 1.47 adds features that kernels before v5.15 refuse to mount, and
# runs on formats that depend on the image could not be compared.
_FEATURES = (
    "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,"
    "sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum"
)
# mke2fs gives a small file system blocks of 1 KiB and an inode for each 4 KiB (mke2fs.conf(5), "small"). If the host
# takes O_DIRECT in units of 4 KiB only, QEMU pads smaller requests. Before QEMU 8.1 a request of 1,024 segments then
# exceeds IOV_MAX, and the guest is paused with EINVAL (fixed by QEMU's "block: Collapse padded I/O vecs exceeding
# IOV_MAX"). So no layer uses blocks below 4 KiB.
_LAZY = "-E nodiscard,lazy_itable_init=1,lazy_journal_init=0"
_MKFS = f"-b 4096 -I 256 -i 16384 -m 5 {_LAZY} -O {_FEATURES}"
# Without lazy initialisation mke2fs writes an inode of 256 bytes for each 16 KiB, and the journal.
_INODES_SHARE = 1 / 64
_JOURNAL_BYTES = 1 << 30
# Features that the kernel adds and removes while the file system is mounted (fs/ext4/ext4.h).
_OF_A_MOUNT = frozenset({"needs_recovery", "orphan_present"})
_NEEDED = {
    *("Filesystem features", "Block size", "Inode size"),
    *("Block count", "Inode count", "Reserved block count"),
}
_ORDERED, _COMMIT = "data=ordered", "commit=5"
_OF_A_JOURNAL = ("data=", "commit=", "journal_checksum", "journal_async_commit")
_LINE = re.compile(r"([^:]{1,40}):\s*(.*)")


_MOUNT = f"rw,relatime,{_ORDERED},barrier,delalloc,nodiscard,noinit_itable,{_COMMIT},errors=continue"


@dataclass(frozen=True, slots=True)
class Ext4(file_system.FileSystem):
    """An ext4 file system that is made without discards and does no work in the background.

    The kernel does not initialise inode tables in the background (ext4(5), ``noinit_itable``), which would run during
    the first measurement. The tables are left as they are, since the disk is empty.
    """

    name = "ext4"
    mkfs_options: Annotated[file_system.MkfsOptions, file_system.mkfs_row("ext4", _MKFS)]
    mount_options: Annotated[file_system.MountOptions, file_system.mount_row("ext4", _MOUNT)]
    mkfs = "mkfs.ext4 -q -F"
    # mke2fs(8): -S writes superblocks only; a journal device and a file system at an offset cannot be mounted.
    letters = "b:cd:e:g:i:jl:m:no:qr:s:t:vC:DE:FG:I:J:KL:M:N:O:R:ST:U:Vz:"
    unfit: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("-n", "-S", "-V", "-O journal_dev", "-E offset="), file_system.NO_FILE_SYSTEM),
        **dict.fromkeys(("-d", "-l", "-z", "-J device="), file_system.A_FILE),
    }
    # The words of _ext4_show_options() in fs/ext4/super.c. Older kernels (v4.11, v4.12) do not show that an option is
    # off, such as nodiscard: there the absence of discard says so.
    shown_always = frozenset(
        {"minixdf", "grpid", "block_validity", "dioread_nolock", "discard", "delalloc", "barrier", "auto_da_alloc"}
        | {"init_itable", "errors", "commit", "data"}
        | {"min_batch_time", "max_batch_time", "inode_readahead_blks", "max_dir_size_kb", "resuid", "resgid"}
    )
    shown_as: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "barrier=1": ("barrier",),
        "barrier=0": ("nobarrier",),
        "auto_da_alloc=1": ("auto_da_alloc",),
        "auto_da_alloc=0": ("noauto_da_alloc",),
        "bsddf": ("bsddf",),
        "bsdgroups": ("grpid",),
        "sysvgroups": ("nogrpid",),
        **dict.fromkeys(("dioread_lock", "nodioread_nolock"), ("dioread_lock", "nodioread_nolock")),
        "init_itable": ("init_itable=10",),
        "commit=0": ("commit=5",),
        "max_batch_time=0": ("max_batch_time=0", "max_batch_time=15000"),
        "data_err=ignore": (),
    }
    exclusive = (
        ("minixdf", "bsddf"),
        ("dioread_nolock", "dioread_lock", "nodioread_nolock"),
        file_system.GROUP_OF_FILES,
    )
    # Features and options that came later (ext4(5), "Kernel support", and the kernel's own history).
    later: ClassVar[Mapping[str, Since]] = {
        "ea_inode": Since("v4.13", "fs/ext4", "ext4_has_feature_ea_inode"),
        "large_dir": Since("v4.13", "fs/ext4", "ext4_has_feature_largedir"),
        "casefold": Since("v5.2", "fs/ext4", "EXT4_FEATURE_INCOMPAT_CASEFOLD"),
        "verity": Since("v5.4", "fs/ext4", "EXT4_FEATURE_RO_COMPAT_VERITY"),
        "stable_inodes": Since("v5.5", "fs/ext4", "EXT4_FEATURE_COMPAT_STABLE_INODES"),
        "fast_commit": Since("v5.10", "fs/ext4", "EXT4_FEATURE_COMPAT_FAST_COMMIT"),
        "orphan_file": Since("v5.15", "fs/ext4", "EXT4_FEATURE_COMPAT_ORPHAN_FILE"),
        **dict.fromkeys(("mb_optimize_scan", "mb_optimize_scan=0"), Since("v5.12", "fs/ext4", "mb_optimize_scan")),
    }
    # No fragments: the root file system is ext4, too, so every guest's configuration has the driver.
    suspects = ("block", "drivers/block", "fs/ext4")
    tools = ("mkfs.ext4", "mount", "dumpe2fs")
    data_share = 0.9  # besides journal, inode tables and bitmaps

    # Prints all options in force, including the default ones (Documentation/admin-guide/ext4.rst, since v3.4).
    shown_command = (
        f'cat "/proc/fs/ext4/$(basename "$(realpath "/sys/dev/block/$(mountpoint -d {MOUNTPOINT})")")/options"'
    )
    format_command = "dumpe2fs -h {device}"

    def problems(self, below: Sequence[Capacity], files: Files) -> Iterator[Problem]:
        """Yield also options that exclude each other (__ext4_fill_super() in fs/ext4/super.c)."""
        yield from file_system.FileSystem.problems(self, below, files)
        options = self.mounted()
        if {"data=journal", "delalloc"} <= set(options):
            sentence = "no kernel mounts ext4 with data=journal and delalloc, which is a default"
            yield Problem(("storage.ext4.mount_options",), sentence, "data=journal,nodelalloc")
        of_a_journal = [one for one in options if one.startswith(_OF_A_JOURNAL) and one != _COMMIT]
        if of_a_journal and not _has_journal(self.mkfs_options):
            sentence = f"no kernel mounts ext4 without a journal with {','.join(of_a_journal)}"
            yield Problem(("storage.ext4.mount_options", "storage.ext4.mkfs_options"), sentence)

    def mounted(self) -> tuple[str, ...]:
        """The mount options, without ``data=ordered`` if there is no journal: no kernel takes it then."""
        options = file_system.FileSystem.mounted(self)
        return options if _has_journal(self.mkfs_options) else tuple(one for one in options if one != _ORDERED)

    def written(self, below: Sequence[Capacity], data_bytes: int) -> tuple[int, ...]:
        """The data, the journal and all inode tables."""
        return (data_bytes + _JOURNAL_BYTES + int((below[0].size_bytes or 0) * _INODES_SHARE),)

    def other_format(self, asked: Mapping[str, str], printed: str) -> Iterator[str]:
        """Yield how the superblock (dumpe2fs(8)) differs from the options of mkfs."""
        lines = (_LINE.fullmatch(line.strip()) for line in printed.splitlines())
        found = {line[1]: line[2] for line in lines if line is not None}
        if not found.keys() >= _NEEDED:
            raise ValueError(printed)
        # A list of features that begins with "none" is complete; any other list says nothing of unnamed features.
        features = set(found["Filesystem features"].split()) - _OF_A_MOUNT
        named = [word for word in asked.get("O", "").split(",") if word]
        wanted = {word for word in named if not word.startswith("^")} - {"none"}
        refused = features - wanted if named[:1] == ["none"] else {one for one in features if f"^{one}" in named}
        yield from (f"no {word}" for word in sorted(wanted - features))
        yield from sorted(refused)
        sizes = {"b": found["Block size"], "I": found["Inode size"]}
        yield from file_system.differing({letter: asked[letter] for letter in sizes if letter in asked}, sizes)
        blocks, inodes = int(found["Block count"]), int(found["Inode count"])
        each, reserved = blocks * int(found["Block size"]) / inodes, 100 * int(found["Reserved block count"]) / blocks
        # The number of inodes is rounded up to whole groups, reserved blocks are rounded down to whole blocks.
        if "i" in asked and not (per_inode := int(file_system.in_bytes(asked["i"]))) / 2 <= each <= per_inode:
            yield f"an inode for {each:.0f} bytes instead of {asked['i']}"
        if "m" in asked and not float(asked["m"]) - 1 <= reserved <= float(asked["m"]):
            yield f"{reserved:.1f} % of reserved blocks instead of {asked['m']}"


def _has_journal(mkfs_options: str) -> bool:
    """A list of features that begins with "none" is complete; otherwise has_journal is one of mke2fs' defaults."""
    words = file_system.words_of(mkfs_options)
    named = words.get("O", "").split(",")
    return "j" in words or "has_journal" in named or ("none" not in named[:1] and "^has_journal" not in named)
