"""A built kernel, what built it, and the build-id by which a running kernel is known."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

_NT_GNU_BUILD_ID = 3  # elf(5)
_HEADER_BYTES = 12


@dataclass(frozen=True, slots=True)
class Compiler:
    """What is typed, and the versions of what shapes the code: the compiler's and the linker's."""

    command: str
    identity: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """A built kernel image and what identifies it."""

    image: Annotated[Path, "path of the image that boots"]
    config: Annotated[Path, "path of the effective .config"]
    release: Annotated[str, "release, as `uname -r` prints it"]
    build_id: Annotated[str, "build-id in the ELF notes of vmlinux"]
    content_sha256: Annotated[
        str,
        "hash of what is loaded: sections of vmlinux and of the code that boots it, without notes and the text of the "
        "version, and the modules; kernels of equal content are equal",
    ]
    key: Annotated[str, "names what it was made from: configuration, toolchain, quirks, and last the tree"]
    toolchain: Annotated[str, "compiler and linker"]
    quirks: Annotated[tuple[str, ...], "quirks that were needed"]
    unmet: Annotated[tuple[str, ...], "options that were asked for and not obtained, as `CONFIG_X=y`"]
    cached: Annotated[bool, "whether it was kept from an earlier build"]
    build_s: Annotated[float, "seconds of the build"]
    modules: Annotated[Path | None, "path of a file system for /lib/modules; `null` for a kernel without modules"] = (
        None
    )

    KEY_SEPARATOR: ClassVar[str] = "-"

    @property
    def tree(self) -> str:
        """The git tree that it was built from: another commit's, where that has the same sources."""
        return self.key.partition(self.KEY_SEPARATOR)[2]


def build_id(notes: bytes) -> str:
    """The GNU build-id in ELF notes, in hex, or nothing; a kernel that runs shows its own in /sys/kernel/notes.

    ``notes`` are those of a little-endian machine (elf(5), "Notes (Nhdr)").
    """
    position = 0
    while position + _HEADER_BYTES <= len(notes):
        name_size, desc_size, kind = (_word(notes, position + offset) for offset in (0, 4, 8))
        name_at = position + _HEADER_BYTES
        desc_at = name_at + _aligned(name_size)
        if kind == _NT_GNU_BUILD_ID and notes[name_at : name_at + name_size] == b"GNU\0":
            return notes[desc_at : desc_at + desc_size].hex()
        position = desc_at + _aligned(desc_size)
    return ""


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _aligned(size: int) -> int:
    return (size + 3) & ~3
