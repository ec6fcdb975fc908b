"""What the header of a bzImage says (Documentation/arch/x86/boot.rst)."""

import hashlib
import os
import struct
from pathlib import Path

import pytest

from bisector.core.errors import InfraError, UserError
from bisector.kernel.product import commit_of, kernel_of

VERSION = "6.1.0-13-amd64 (debian-kernel@lists.debian.org) #1 SMP PREEMPT_DYNAMIC Debian 6.1.55-1 (2023-09-29)"


def bzimage(path: Path, version: str = VERSION, *, protocol: int = 0x20F, flags: int = 1, at: int = 0x3000) -> Path:
    """An image with nothing but a header."""
    data = bytearray(0x8000)
    data[0x1FE:0x206] = b"\x55\xaa\xeb\x66HdrS"
    struct.pack_into("<H", data, 0x206, protocol)
    struct.pack_into("<H", data, 0x20E, at)
    struct.pack_into("<H", data, 0x236, flags)
    data[0x200 + at : 0x200 + at + len(version)] = version.encode()
    path.write_bytes(data)
    return path


def test_an_image_is_known_by_its_bytes_and_its_header(tmp_path: Path) -> None:
    file = bzimage(tmp_path / "vmlinuz")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    commit = commit_of(file)
    assert (commit.sha, commit.tree, commit.subject) == (digest, digest, VERSION)
    kernel = kernel_of(file, commit)
    assert (kernel.image, kernel.release, kernel.content_sha256) == (file, "6.1.0-13-amd64", digest)
    assert (kernel.tree, kernel.build_id, str(kernel.config)) == (digest, "", os.devnull)


def test_before_protocol_2_12_an_image_does_not_say_how_many_bits_it_has(tmp_path: Path) -> None:
    assert commit_of(bzimage(tmp_path / "old", "4.11.0 (a@b) #1", protocol=0x20A, flags=0)).subject == "4.11.0 (a@b) #1"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not a bzImage"),
        (b"\x7fELF" + bytes(0x8000), "is not a bzImage"),
        (bytes(0x1FE) + b"\x55\xaa\xeb\x66HdrX" + bytes(0x8000), "is not a bzImage"),
        (bytes(0x1FE) + b"\x55\xaa\xeb\x66HdrS\x0f\x02" + bytes(0x8000), "is a kernel for 32 bits"),
        (bytes(0x1FE) + b"\x55\xaa\xeb\x66HdrS\x0a\x02" + bytes(0x8000), "does not say which version it is"),
        (bytes(0x1FE) + b"\x55\xaa\xeb\x66HdrS\x0a\x02" + bytes(6) + b"\xff\xff" + bytes(0x100), "does not say which"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "vmlinuz"
    file.write_bytes(content)
    with pytest.raises(UserError, match=said):
        commit_of(file)


def test_a_file_that_is_gone_or_another_one_is_no_fault_of_a_kernel(tmp_path: Path) -> None:
    file = bzimage(tmp_path / "vmlinuz")
    commit = commit_of(file)
    bzimage(file, "6.2.0")
    with pytest.raises(InfraError, match="is not the image that was given"):
        kernel_of(file, commit)
    file.unlink()
    with pytest.raises(InfraError, match="cannot be read: No such file"):
        kernel_of(file, commit)
