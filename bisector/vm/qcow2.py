"""The header of a qcow2 image, as far as it names other files (QEMU's docs/interop/qcow2.txt)."""

import struct
from pathlib import Path

from bisector.core.errors import UserError

_MAGIC = b"QFI\xfb"
_HEADER = struct.Struct(">4sIQ56xQ")  # magic, version, offset of the backing file's name, incompatible features
_DATA_FILE = 1 << 2  # of the incompatible features


def check_alone(path: Path) -> None:
    """Raise :class:`UserError` for an image that QEMU would read together with another file.

    The name of that file is in the image. QEMU follows it with the rights of whoever starts it, and the guest reads
    what is there. The header is read here, because qemu-img(1) itself follows some names (CVE-2024-4467).
    """
    with path.open("rb") as file:
        header = file.read(_HEADER.size).ljust(_HEADER.size, b"\0")
    magic, version, backing, features = _HEADER.unpack(header)
    if magic != _MAGIC:
        return
    has_features = version > 2  # noqa: PLR2004 - "version 3" or higher
    other = "backing" if backing else "data" if has_features and features & _DATA_FILE else ""
    if other:
        raise UserError(
            f"machine.image: {path} names a {other} file, which QEMU would read with your rights",
            f"if you trust that file, make one of both: qemu-img convert -O qcow2 {path} NEW.qcow2",
        )
