"""A RAM disk in the guest's memory, by the kernel's brd driver: a device without latency, below any layer.

All time that a request takes on it is spent in kernel code (Documentation/admin-guide/blockdev/ramdisk.rst).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from bisector.core.setting import Meta, Option, Size
from bisector.storage.disks import fault, steps
from bisector.storage.layer import Capacity, Device, Layer, LayerPlan

_SIZE = "storage.ram.size"
_MOST = 4
_PAGE_BYTES = 4096
# brd keeps its pages in a tree, whose size is this share of theirs: a node of 576 bytes has 64 pages of 4 KiB.
_TREE_SHARE = 1 / 64


@dataclass(frozen=True, slots=True)
class Ram(Layer):
    """A RAM disk, each page of which is written before anything is measured.

    brd allocates a page when one of its sectors is written for the first time (``brd_insert_page()`` in
    drivers/block/brd.c), which would show in the first run only.
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
        """A disk of the size in the settings, in whole pages."""
        return Capacity("the RAM disk", self.whole_bytes, (_SIZE,))

    def memory(self, devices: int) -> Capacity:
        """All its pages, and the tree that brd keeps them in."""
        size = self.whole_bytes
        return Capacity("the RAM disk", size + int(size * _TREE_SHARE), (_SIZE,))

    def written(self, below: Sequence[Capacity], data_bytes: int) -> tuple[int, ...]:
        """Nothing: it lies on no device."""
        return ()

    def parameters(self) -> tuple[str, ...]:
        """Parameters of brd. All its RAM disks have one size, in KiB; one that is never written takes no memory."""
        return (f"brd.rd_nr={_MOST}", f"brd.rd_size={self.whole_bytes >> 10}")

    def make(self, below: Sequence[Device], suffix: str) -> LayerPlan:
        """Write the disk once from end to end; it has existed since boot."""
        number = int(suffix or 1) - 1
        path, size = f"/dev/ram{number}", self.whole_bytes

        def verify(answers: Sequence[str], numbers: Mapping[str, str]) -> None:
            (found,) = answers
            if found.strip() != str(size):
                raise fault(f"blockdev: the RAM disk has {found.strip()[:40]!r} bytes; asked for {size}")

        # Without the test dd would create a regular file if there is no such device.
        written = f"dd if=/dev/zero of={path} bs=1M iflag=count_bytes count={size} oflag=direct"
        return LayerPlan(path, steps(f"test -b {path}", written), steps(f"blockdev --getsize64 {path}"), verify)
