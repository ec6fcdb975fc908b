"""A RAM disk in the guest's memory by the kernel's brd driver: a device of no latency, below any layer.

What is slow on it is the kernel's own code (Documentation/admin-guide/blockdev/ramdisk.rst).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from bisector.core.setting import Meta, Option, Size
from bisector.storage.disks import fault, steps
from bisector.storage.layer import Capacity, Layer, Made, Site

_SIZE = "storage.ram.size"
_MOST = 4
_PAGE_BYTES = 4096
_TREE_SHARE = 1 / 64  # of the pages' size, for the tree that brd keeps them in: a node of 576 bytes has 64 of 4 KiB


@dataclass(frozen=True, slots=True)
class Ram(Layer):
    """Every page of it is written before anything is measured.

    brd takes a page of memory when a sector of it is written for the first time (``brd_insert_page()`` in
    drivers/block/brd.c), which would show in the first run alone.
    """

    name = "ram"
    needs = ()
    at_most = _MOST
    alias = "ram+ext4"
    fragments = ("storage-ram",)
    suspects = ("drivers/block/brd.c",)
    tools = ("dd", "blockdev")

    size_bytes: Annotated[
        Size, Meta(ge=1 << 20), Option(_SIZE, "256MiB", "RAM disk in the guest's memory, bytes", "5GiB")
    ]

    @property
    def whole_bytes(self) -> int:
        """The size in whole pages."""
        return self.size_bytes // _PAGE_BYTES * _PAGE_BYTES

    def extent(self, below: Sequence[Capacity]) -> Capacity:
        """As large as its setting, in whole pages."""
        return Capacity("the RAM disk", self.whole_bytes, (_SIZE,))

    def memory(self, devices: int) -> Capacity:
        """All its pages, and what brd finds them by."""
        size = self.whole_bytes
        return Capacity("the RAM disk", size + int(size * _TREE_SHARE), (_SIZE,))

    def written(self, below: Sequence[Capacity], data_bytes: int) -> tuple[int, ...]:
        """Nothing on a disk."""
        return ()

    def parameters(self) -> tuple[str, ...]:
        """All RAM disks are of one size, in KiB; one that is not written takes no memory."""
        return (f"brd.rd_nr={_MOST}", f"brd.rd_size={self.whole_bytes >> 10}")

    def make(self, site: Site) -> Made:
        """It is there since the boot: written once from end to end."""
        number = int(site.suffix or 1) - 1
        path, size = f"/dev/ram{number}", self.whole_bytes

        def verify(answers: Sequence[str], numbers: Mapping[str, str]) -> None:
            (found,) = answers
            if found.strip() != str(size):
                raise fault(f"blockdev: the RAM disk has {found.strip()[:40]!r} bytes; asked for {size}")

        # dd makes a file where there is no device.
        written = f"dd if=/dev/zero of={path} bs=1M iflag=count_bytes count={size} oflag=direct"
        return Made(path, steps(f"test -b {path}", written), steps(f"blockdev --getsize64 {path}"), verify)
