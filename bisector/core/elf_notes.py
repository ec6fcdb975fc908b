"""ELF notes as the kernel shows them in /sys/kernel/notes."""

_NT_GNU_BUILD_ID = 3  # elf(5)
_HEADER_BYTES = 12


def build_id(notes: bytes) -> str:
    """The GNU build-id in notes of a little-endian machine (elf(5), "Notes (Nhdr)"), in hex, or nothing."""
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
