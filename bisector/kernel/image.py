"""A kernel that somebody else built: the image that boots, and what its header says of it.

The layout is that of Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header".
"""

import os
import struct
from pathlib import Path

from bisector.core.errors import InfraError, UserError
from bisector.core.printable import clean
from bisector.core.subject import Commit, Kernel
from bisector.host.files import sha256_of

_HEAD_BYTES = 0x200 + (1 << 16) + 256  # the version begins at most so far from the start
_BOOT_FLAG, _MAGIC, _PROTOCOL, _VERSION_AT, _XLOADFLAGS = 0x1FE, 0x202, 0x206, 0x20E, 0x236
_SECTOR = 0x200
_HAS_XLOADFLAGS = 0x20C
_KERNEL_64 = 1  # XLF_KERNEL_64
_HINT = "give a bzImage for x86_64, such as a distribution's /boot/vmlinuz-*"


def commit_of(file: Path) -> Commit:
    """What stands for a commit: the file's SHA-256, and the version with which it presents itself.

    Raises :class:`UserError` for what is no bzImage for x86_64.
    """
    try:
        with file.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
        digest = sha256_of(file)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}", f"ls -l {file}") from error
    return Commit(digest, digest, _version(file, head), "")


def kernel_of(file: Path, commit: Commit) -> Kernel:
    """The kernel to boot; raises :class:`InfraError` where the file is not (any more) what :func:`commit_of` saw."""
    try:
        now = commit_of(file)
    except UserError as error:
        raise InfraError(error.message, error.hint) from error
    if now.sha != commit.sha:
        raise InfraError(f"{file} is not the image that was given: its SHA-256 is {now.sha[:12]}, not {commit.short}")
    return Kernel(
        image=file,
        config=Path(os.devnull),
        release=now.subject.split()[0],
        build_id="",
        content_sha256=now.sha,
        key=f"image{Kernel.KEY_SEPARATOR}{now.tree}",
        toolchain="",
        quirks=(),
        unmet=(),
        cached=True,
        build_s=0.0,
    )


def _version(file: Path, head: bytes) -> str:
    """The version string of the header, of which the first word is what `uname -r` prints."""
    if (
        len(head) < _XLOADFLAGS + 2
        or head[_BOOT_FLAG : _BOOT_FLAG + 2] != b"\x55\xaa"
        or head[_MAGIC:_PROTOCOL] != b"HdrS"
    ):
        raise UserError(f"{file} is no bzImage: it has no boot header", _HINT)
    protocol, version_at, flags = (
        struct.unpack_from("<H", head, at)[0] for at in (_PROTOCOL, _VERSION_AT, _XLOADFLAGS)
    )
    if protocol >= _HAS_XLOADFLAGS and not flags & _KERNEL_64:
        raise UserError(f"{file} is a kernel for 32 bits, and the guest's programs have 64", _HINT)
    text = head[_SECTOR + version_at :].partition(b"\0")[0] if version_at else b""
    version = clean(text[:256].decode(errors="replace")).strip()
    if not version:
        raise UserError(f"{file} does not say which version it is", _HINT)
    return version
