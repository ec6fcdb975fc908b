"""A bootable stand-in for a kernel: some words on the serial port, then one of four ends.

The smallest thing that QEMU's direct boot takes (Documentation/arch/x86/boot.rst): real-mode setup
code behind a 2.02 header. It boots in a fraction of a second and needs no compiler.
"""

import struct
from enum import Enum
from pathlib import Path

_SETUP_SECTORS = 4
_CODE = 0x80  # offset in the setup segment, past the header


class End(Enum):
    """What the stand-in does after it has spoken, in machine code."""

    SPIN = b"\xeb\xfe"  # jmp $
    SLEEP = b"\xfa\xf4\xeb\xfd"  # cli; hlt; jmp back
    WRITE = (  # a sector to the first disk, by the BIOS: es:bx = 0:0x7c00, ah = write, one, from the first on
        b"\x31\xc0\x8e\xc0\xbb\x00\x7c\xb8\x01\x03\xb9\x01\x00\xba\x80\x00\xcd\x13\xeb\xfe"
    )
    RESET = b"\xb0\xfe\xe6\x64\xeb\xfe"  # out 0x64, 0xfe: pulse the reset line


def tiny_kernel(path: Path, text: str, end: End) -> Path:
    """Write it to ``path``."""
    code = (
        b"\xfc"  # cld
        b"\x0e\x1f"  # push cs; pop ds
        b"\xba\xf8\x03"  # mov dx, 0x3f8
        b"\xbe" + struct.pack("<H", 0) +  # mov si, text
        b"\xac"  # lodsb
        b"\x84\xc0"  # test al, al
        b"\x74\x03"  # jz end
        b"\xee"  # out dx, al
        b"\xeb\xf8"  # jmp lodsb
    )  # fmt: skip
    body = code + end.value
    text_at = _CODE + len(body)
    body = body.replace(b"\xbe\0\0", b"\xbe" + struct.pack("<H", text_at)) + text.encode("ascii") + b"\0"
    setup = bytearray(_SETUP_SECTORS * 512)
    setup[0:2] = b"\xeb" + bytes([_CODE - 2])  # jmp over the header
    setup[2:6] = b"HdrS"
    setup[6:8] = struct.pack("<H", 0x0202)
    setup[0x11] = 1  # loaded high
    setup[_CODE : _CODE + len(body)] = body
    sector = bytearray(512)
    sector[0x1F1] = _SETUP_SECTORS
    sector[0x1FE:0x200] = b"\x55\xaa"
    path.write_bytes(bytes(sector) + bytes(setup) + bytes(4096))
    return path
