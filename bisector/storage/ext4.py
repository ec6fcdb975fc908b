"""An ext4 file system that is the same on every commit, whatever the image's mke2fs prefers."""

from collections.abc import Sequence

from bisector.core.shell import Step
from bisector.storage.disks import kernel_fault
from bisector.storage.layer import MOUNTPOINT, Extent, Layer, Made, Own, Site

# The defaults of e2fsprogs 1.43 to 1.46, written out: 1.47 adds features that kernels before
# v5.15 refuse to mount, and a file system that depends on the image would make runs incomparable.
_FEATURES = (
    "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,"
    "sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum"
)
# mke2fs gives a small file system blocks of 1 KiB (mke2fs.conf(5), "small"). Where the host takes O_DIRECT in units of
# 4 KiB only, QEMU pads such requests, and before 8.1 one of 1,024 segments then exceeds IOV_MAX: the guest is paused
# with EINVAL (fixed by QEMU's "block: Collapse padded I/O vecs exceeding IOV_MAX"). No layer goes below 4 KiB.
_BLOCK_BYTES = 4096
# Without lazy initialisation it writes an inode of 256 bytes for 16 KiB (mke2fs.conf(5)), and its journal.
_INODES_SHARE = 1 / 64
_JOURNAL_BYTES = 1 << 30


class Ext4(Layer):
    """Made without discards and without background work.

    No discard: dm-cache moves discarded blocks into the cache without reading them, so whether the disk below can
    discard would show in the figures. No background initialisation of inode tables either (ext4(5),
    ``noinit_itable``): it would run beside the first measurement.
    """

    name = "ext4"
    is_file_system = True
    # The root file system's driver is ext4, too, so every guest's configuration has it.
    suspects = ("block", "drivers/block", "fs/ext4")
    tools = ("mkfs.ext4", "mount")
    data_share = 0.9  # beside journal, inode tables and bitmaps

    def written(self, below: Sequence[Extent], own: Own, data_bytes: int) -> tuple[int, ...]:
        """The data, the journal and all inode tables."""
        return (data_bytes + _JOURNAL_BYTES + int((below[0].size_bytes or 0) * _INODES_SHARE),)

    def make(self, site: Site) -> Made:
        """Make the file system, mount it."""
        (device,) = site.below
        return Made(
            MOUNTPOINT,
            (
                Step(f"mkfs.ext4 -q -F -b {_BLOCK_BYTES} -E nodiscard -O {_FEATURES} {device.path}", kernel_fault),
                Step(f"mount -t ext4 -o noinit_itable {device.path} {MOUNTPOINT}", kernel_fault),
            ),
        )


EXT4 = Ext4()
