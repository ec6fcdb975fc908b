"""XFS with a format that every kernel since v4.9 mounts, whatever the defaults of the image's mkfs.xfs are."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from bisector.core.setting import Problem
from bisector.core.units import size_text
from bisector.storage import file_system
from bisector.storage.layer import MOUNTPOINT, Capacity, Files, Since

# The options of xfsprogs' own mkfs/lts_4.19.conf. A kernel refuses to mount features that it does not know: reflink and
# rmapbt are experimental in v4.9, bigtime and inobtcount came with v5.10, nrext64 with v5.19. Sectors have 4 KiB, since
# the I/O of the file system would otherwise differ between a disk and the layers on it. The size and the version of the
# log are given, since their defaults follow the size of the device and the version of mkfs.
_MKFS = (
    "-m crc=1,finobt=1,rmapbt=0,reflink=0,bigtime=0,inobtcount=0 -i size=512,sparse=1,nrext64=0 "
    "-b size=4096 -s size=4096 -n size=4096,ftype=1 -l size=64m,version=2,lazy-count=1"
)
_QUOTAS = (
    *("quota", "uquota", "usrquota", "gquota", "grpquota", "pquota", "prjquota"),
    *("qnoenforce", "uqnoenforce", "gqnoenforce", "pqnoenforce"),
)
_LEAST_BYTES = 300 << 20  # xfsprogs since 5.19 refuses less, and a log of less than 64 MiB (mkfs.xfs(8))
_LEAST_LOG_BYTES = 64 << 20
_SECTION = re.compile(r"([a-z-]+) *=")
_WORD = re.compile(r"([a-z0-9-]+)=([0-9]+)\b")
# For each letter of mkfs.xfs's options, the section in which xfs_spaceman prints its values, and names that differ.
_PRINTED: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "m": ("meta-data", {}),
    "i": ("meta-data", {"size": "isize"}),
    "s": ("meta-data", {"size": "sectsz"}),
    "b": ("data", {"size": "bsize"}),
    "n": ("naming", {"size": "bsize"}),
    "l": ("log", {}),
}
_IN_EVERY_FORMAT = frozenset({"projid32bit", "crc", "finobt", "sparse", "ftype"})


# The kernel does not show nolargeio and nodiscard, but would show the options that they turn off.
_MOUNT = "rw,relatime,inode64,logbufs=8,logbsize=32k,noquota,nodiscard,nolargeio"


@dataclass(frozen=True, slots=True)
class Xfs(file_system.FileSystem):
    """An XFS that is made without discards, with the features that kernels since v4.9 know."""

    name = "xfs"
    mkfs_options: Annotated[file_system.MkfsOptions, file_system.mkfs_row("xfs", _MKFS)]
    mount_options: Annotated[file_system.MountOptions, file_system.mount_row("xfs", _MOUNT)]
    mkfs = "mkfs.xfs -q -f -K"
    letters = "b:c:d:i:l:L:m:n:KNp:qr:s:CfV"  # mkfs.xfs(8)
    unfit: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("-N", "-V"), file_system.NO_FILE_SYSTEM),
        **dict.fromkeys(("-c", "-p", "-r", "-l logdev=", "-d name=", "-d file"), file_system.A_FILE),
    }
    # The words of xfs_fs_show_options() in fs/xfs/xfs_super.c; without discard, which the kernel drops if the device
    # cannot discard, and without options that newer kernels take and no longer show (attr2, ikeep).
    shown_always = frozenset(
        {"wsync", "noalign", "swalloc", "nouuid", "filestreams", "grpid", "largeio", "inode32", "inode64"}
        | {"allocsize", "logbufs", "logbsize", "noquota", "usrquota", "grpquota", "prjquota"}
        | {"uqnoenforce", "gqnoenforce", "pqnoenforce"}
    )
    shown_as: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **dict.fromkeys(("quota", "uquota"), ("usrquota",)),
        "gquota": ("grpquota",),
        "pquota": ("prjquota",),
        "qnoenforce": ("uqnoenforce",),
        "bsdgroups": ("grpid",),
        "sysvgroups": ("nogrpid",),
        "logbufs=0": ("logbufs=8",),
        "logbsize=0": ("logbsize=32k",),
        "barrier": (),
    }
    exclusive = (("inode32", "inode64"), file_system.GROUP_OF_FILES)
    # Features that came later (mkfs.xfs(8)); reflink and rmapbt were experimental until v4.16.
    later: ClassVar[Mapping[str, Since]] = {
        "rmapbt": Since("v4.8", "fs/xfs", "XFS_SB_FEAT_RO_COMPAT_RMAPBT"),
        "reflink": Since("v4.9", "fs/xfs", "XFS_SB_FEAT_RO_COMPAT_REFLINK"),
        "bigtime": Since("v5.10", "fs/xfs", "XFS_SB_FEAT_INCOMPAT_BIGTIME"),
        "inobtcount": Since("v5.10", "fs/xfs", "XFS_SB_FEAT_RO_COMPAT_INOBTCNT"),
        "nrext64": Since("v5.19", "fs/xfs", "XFS_SB_FEAT_INCOMPAT_NREXT64"),
    }
    fragments = ("storage-xfs",)
    fragments_of_options = dict.fromkeys(_QUOTAS, "storage-xfs-quota")
    suspects = ("block", "drivers/block", "fs/xfs", "fs/iomap", "fs/iomap.c")
    tools = ("mkfs.xfs", "mount", "xfs_spaceman")
    least_bytes = _LEAST_BYTES
    data_share = 0.7  # besides a log of 64 MiB on a device of 300 MiB

    format_command = f"xfs_spaceman -c info {MOUNTPOINT}"

    def problems(self, below: Sequence[Capacity], files: Files) -> Iterator[Problem]:
        """Yield also a log that is too small for mkfs, or whose size cannot be read back."""
        yield from file_system.FileSystem.problems(self, below, files)
        log_bytes = _log_bytes(self.mkfs_options)
        if log_bytes is not None and log_bytes < _LEAST_LOG_BYTES:
            sentence = f"mkfs.xfs refuses a log of less than {size_text(_LEAST_LOG_BYTES)}"
            yield Problem(("storage.xfs.mkfs_options",), sentence)
        if log_bytes is None and "size=" in file_system.words_of(self.mkfs_options).get("l", ""):
            sentence = "the size of the log is given in bytes, not in blocks or sectors: it is read back so"
            yield Problem(("storage.xfs.mkfs_options",), sentence, "-l size=64m")

    def written(self, below: Sequence[Capacity], data_bytes: int) -> tuple[int, ...]:
        """The data, the log, and inodes and extents, which are below a tenth of the data unless files are tiny."""
        return (data_bytes + data_bytes // 10 + (_log_bytes(self.mkfs_options) or 2 << 30) + (32 << 20),)

    def other_format(self, asked: Mapping[str, str], printed: str) -> Iterator[str]:
        """Yield how the mounted file system (xfs_spaceman(8), "info") differs from the options of mkfs."""
        # The figures of each section; the first one counts if a name occurs twice.
        found: dict[str, dict[str, str]] = {}
        section = ""
        for line in printed.splitlines():
            if begins := _SECTION.match(line):
                section = begins[1]
            for name, value in _WORD.findall(line.partition("=")[2]):
                found.setdefault(section, {}).setdefault(name, value)
        if not {"meta-data", "data", "naming", "log"} <= found.keys():
            raise ValueError(printed)
        named: set[str] = set()
        for letter, (section, names) in _PRINTED.items():
            wanted = dict(word.split("=") for word in asked.get(letter, "").split(",") if "=" in word)
            if letter == "l" and "size" in wanted:
                wanted["blocks"] = str(int(file_system.in_bytes(wanted.pop("size"))) // int(found["data"]["bsize"]))
            wanted = {names.get(name, name): value for name, value in wanted.items()}
            named |= wanted.keys()
            # Limits and identifiers are no features, and are not compared if nothing is printed about them.
            wanted = {name: value for name, value in wanted.items() if name in found[section] or value in ("0", "1")}
            # A feature that xfs_spaceman does not know is off.
            yield from file_system.differing(
                wanted, {name: "0" for name, value in wanted.items() if value == "0"} | found[section]
            )
        features = {name for name, value in found["meta-data"].items() if value == "1"}
        yield from (f"{name}=1, which was not asked for" for name in sorted(features - named - _IN_EVERY_FORMAT))


def _log_bytes(options: str) -> int | None:
    """The size of the log in the options; None if mkfs.xfs chooses it, or if it is in blocks or sectors."""
    found = re.search(r"-l +(?:\S*,)?size=([0-9]{1,15}[kmg]?)(?![0-9a-z])", options)
    return int(file_system.in_bytes(found[1])) if found else None
