"""An ext4 file system that is the same on every commit, whatever the image's mke2fs prefers."""

import re

from bisector.core.errors import UserError
from bisector.core.guest_steps import Step
from bisector.storage.disks import kernel_fault, not_an_answer

MOUNTPOINT = "/mnt"
TOOLS = ("mkfs.ext4", "mount")

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
_MIB = 1 << 20
_FREE = re.compile(r"(\d{1,20}) (\d{1,20})")


def ext4_steps(device: str) -> tuple[Step, ...]:
    """Make the file system, mount it; the last step's output is for :func:`check_room`.

    No discard: dm-cache moves discarded blocks into the cache without reading them, so whether
    the disk below can discard would show in the figures. No background initialisation of inode
    tables either (ext4(5), ``noinit_itable``): it would run beside the first measurement.
    """
    return (
        Step(f"mkfs.ext4 -q -F -b {_BLOCK_BYTES} -E nodiscard -O {_FEATURES} {device}", kernel_fault),
        Step(f"mount -t ext4 -o noinit_itable {device} {MOUNTPOINT}", kernel_fault),
        Step(f"stat -f -c '%a %S' {MOUNTPOINT}", kernel_fault),
    )


def check_room(stat_output: str, file_bytes: int) -> None:
    """One file of the workload fits; raises :class:`UserError` with both sizes."""
    if (found := _FREE.fullmatch(stat_output.strip())) is None:
        raise not_an_answer("stat -f", stat_output)
    blocks, block_bytes = int(found[1]), int(found[2])
    if blocks * block_bytes < file_bytes:
        raise UserError(
            f"workload.file_size is {file_bytes / _MIB:,.0f} MiB, and the file system in the guest has only "
            f"{blocks * block_bytes / _MIB:,.0f} MiB",
            "make the disk of the storage stack larger (storage.hdd.size), or workload.file_size smaller",
        )
