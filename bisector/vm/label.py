"""The label on a disk that trials overwrite, in the margin that no guest gets: what is ours is known by it again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self
from uuid import UUID, uuid4

from bisector.config import DISK_MARGIN_BYTES

# Behind all that file systems, volume managers and RAID write at the beginning of a disk, as far as wipefs(8) knows
# them (the second label of ZFS ends at 512 KiB), and before the guest's part.
LABEL_AT = 768 << 10
LABEL_BYTES = 4096
_TITLE = "bisector test disk"
_PURPOSE = "purpose: each trial of bisector overwrites this disk; there is nothing on it that anybody needs"

Read = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class Label:
    """Which disk it was written to: its own UUID, and the size of the disk."""

    uuid: UUID
    size_bytes: int

    @classmethod
    def new(cls, size_bytes: int) -> Self:
        """Of a disk that was never used."""
        return cls(uuid4(), size_bytes)

    @classmethod
    def parse(cls, block: bytes) -> Self | None:
        """None of anything else."""
        lines = block.rstrip(b"\0").decode("ascii", "replace").splitlines()
        try:
            title, uuid, size, _purpose = lines
            found = cls(UUID(uuid.removeprefix("uuid: ")), int(size.removeprefix("size: ")))
        except ValueError:
            return None
        return found if title == _TITLE and found.block == block else None

    @property
    def block(self) -> bytes:
        """What is written: text, for whoever looks at it with hexdump(1)."""
        lines = (_TITLE, f"uuid: {self.uuid}", f"size: {self.size_bytes}", _PURPOSE, "")
        return "\n".join(lines).encode("ascii").ljust(LABEL_BYTES, b"\0")


def is_labelled(read: Read, size_bytes: int) -> bool:
    """Whether the label of just this disk is there and nothing else in the margins.

    No guest writes there. What somebody else puts on the disk, and be it an encrypted file system without a
    signature, begins there; and on a partition that was moved or made larger the label does not fit.
    """
    head, tail = bytearray(read(0, DISK_MARGIN_BYTES)), read(size_bytes - DISK_MARGIN_BYTES, DISK_MARGIN_BYTES)
    label = Label.parse(bytes(head[LABEL_AT : LABEL_AT + LABEL_BYTES]))
    del head[LABEL_AT : LABEL_AT + LABEL_BYTES]
    return label is not None and label.size_bytes == size_bytes and not any(head) and not any(tail)


_SAMPLES = 64
_SAMPLE_BYTES = 4096


def is_blank(read: Read, size_bytes: int) -> bool:
    """Whether both margins and 64 samples between them are zeros, as on a disk that nobody has written to."""
    last = size_bytes - DISK_MARGIN_BYTES
    margins = (read(offset, DISK_MARGIN_BYTES) for offset in (0, last))
    places = (last * n // _SAMPLES // _SAMPLE_BYTES * _SAMPLE_BYTES for n in range(_SAMPLES))
    samples = (read(place, _SAMPLE_BYTES) for place in places)
    return not any(map(any, margins)) and not any(map(any, samples))
