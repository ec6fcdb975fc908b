import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.host import process
from bisector.kernel import elf

# Stands for init/version.c, a driver that quotes the release without a name of its own, and what follows them.
BANNER = """
const char linux_banner[] = "Linux version " UTS_RELEASE " (bisector@bisector) #1 SMP";
int zeros[9];
char utsname[65] = UTS_RELEASE;
__attribute__((noinline)) static int look_up(const char *path) { return path[3]; }
"""
CODE = 'int value = 1;\nvoid _start(void) { value += look_up("/lib/firmware/" UTS_RELEASE); }\n'
FLAGS = ("-O1", "-ffreestanding", "-fno-pic", "-fno-asynchronous-unwind-tables")
RC1, RC2 = "4.11.0-rc1", "4.11.0-rc2"


def compiled(directory: Path, name: str, text: str, release: str = RC1, flags: Sequence[str] = ("-g",)) -> Path:
    """An object file; the source has the same name in all of them, as in a tree that is built twice."""
    source, image = directory / "version.c", directory / f"{name}.o"
    source.write_text(text)
    argv: list[str | Path] = ["gcc", *FLAGS, *flags, f'-DUTS_RELEASE="{release}"', "-c", "-o", image, source.name]
    process.run(argv, deadline_s=30, cwd=directory)
    return image


def linked(directory: Path, name: str, text: str = BANNER + CODE, release: str = RC1, build_id: str = "sha1") -> Path:
    image = directory / name
    item = compiled(directory, name, text, release)
    process.run(["ld", f"--build-id={build_id}", "-o", image, item], deadline_s=30)
    return image


def test_build_id_is_read(tmp_path: Path) -> None:
    assert elf.build_id(linked(tmp_path, "one", build_id="0xabcdef01")) == "abcdef01"
    assert elf.build_id(linked(tmp_path, "other", build_id="none")) == ""


def test_the_build_id_is_not_the_content(tmp_path: Path) -> None:
    one, other = (linked(tmp_path, f"v{n}", build_id=f"0x{n}{n}") for n in (11, 22))
    assert elf.content_sha256(one) == elf.content_sha256(other)


def test_what_only_debuggers_see_is_not_the_content(tmp_path: Path) -> None:
    one, moved = linked(tmp_path, "one"), linked(tmp_path, "moved", "/* a comment */\n\n" + BANNER + CODE)
    assert one.read_bytes() != moved.read_bytes()
    assert elf.content_sha256(one) == elf.content_sha256(moved)


@pytest.mark.parametrize("make", [linked, compiled])
def test_the_version_is_not_the_content(tmp_path: Path, make: type) -> None:
    one = make(tmp_path, "one", BANNER + CODE, RC1)
    other = make(tmp_path, "other", BANNER + CODE, RC2)
    assert elf.content_sha256(one) != elf.content_sha256(other)
    assert elf.content_sha256(one, RC1) == elf.content_sha256(other, RC2)


@pytest.mark.parametrize("make", [linked, compiled])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("value +=", "value -=", id="instruction"),
        pytest.param("value = 1", "value = 2", id="data"),
        pytest.param("/lib/firmware/", "/lib/firmwarf/", id="text"),
        pytest.param("SMP", "UP ", id="banner-beside-the-version"),
        pytest.param("int zeros[9];", "int zeros[90];", id="zeros"),
    ],
)
def test_one_difference_makes_another_kernel(tmp_path: Path, make: type, old: str, new: str) -> None:
    text = BANNER + CODE
    assert old in text
    one, other = make(tmp_path, "one", text), make(tmp_path, "other", text.replace(old, new))
    assert elf.content_sha256(one, RC1) != elf.content_sha256(other, RC1)


def test_a_longer_version_makes_another_kernel(tmp_path: Path) -> None:
    one, other = linked(tmp_path, "one"), linked(tmp_path, "other", release="4.11.0")
    assert elf.content_sha256(one, RC1) != elf.content_sha256(other, "4.11.0")


def test_a_version_in_code_is_code(tmp_path: Path) -> None:
    text = 'int f(void) { return 7; }\n__asm__(".text\\n.ascii \\"" UTS_RELEASE "\\"");\n'
    one, other = (compiled(tmp_path, release, text, release) for release in (RC1, RC2))
    assert elf.content_sha256(one, RC1) != elf.content_sha256(other, RC2)


def test_what_an_object_asks_of_others_is_its_content(tmp_path: Path) -> None:
    text = "int {}(void);\nint f(void) {{ return {}(); }}\n"
    one, other = (compiled(tmp_path, name, text.format(name, name)) for name in ("kfree", "kmalloc"))
    assert elf.content_sha256(one) != elf.content_sha256(other)


def test_objects_of_32_bits_are_read(tmp_path: Path) -> None:
    flags = ("-m16", "-march=i386")  # as arch/x86/boot is compiled
    one, other, third = (
        compiled(tmp_path, name, BANNER + CODE.replace("1", value), release, flags)
        for name, release, value in (("one", RC1, "1"), ("other", RC2, "1"), ("third", RC2, "2"))
    )
    assert elf.content_sha256(one, RC1) == elf.content_sha256(other, RC2)
    assert elf.content_sha256(one, RC1) != elf.content_sha256(third, RC2)


def with_vdso(directory: Path, build_id: str, code: str = "1") -> Path:
    """An image with another one, padded to a page, in its read-only data."""
    inner = linked(directory, "vdso", f"int _start(void) {{ return {code}; }}\n", build_id=build_id)
    data = f'.section .rodata\\n.balign 4096\\n.incbin \\"{inner}\\"\\n.balign 4096\\n.text'
    outer = f'__asm__("{data}");\nvoid _start(void) {{}}\n'
    return linked(directory, f"vmlinux-{build_id}-{code}", outer)


def test_the_vdsos_notes_are_not_the_content_but_its_code_is(tmp_path: Path) -> None:
    one, other = with_vdso(tmp_path, "0xaaaaaaaa"), with_vdso(tmp_path, "0xbbbbbbbb")
    assert elf.content_sha256(one) == elf.content_sha256(other)
    assert elf.content_sha256(one) != elf.content_sha256(with_vdso(tmp_path, "0xaaaaaaaa", "2"))


def test_what_only_begins_like_an_image_is_data(tmp_path: Path) -> None:
    text = 'const char magic[] = "\\177ELF\\002\\001\\001 is how it begins %d";\nvoid _start(void) {{}}\n'
    one, other = (linked(tmp_path, f"v{n}", text % n) for n in (1, 2))
    assert elf.content_sha256(one) != elf.content_sha256(other)


def beginnings(images: int, sections: int) -> bytes:
    """The headers of so many ELF images, which share one table of sections; each section is a note over half of it."""
    header, row = struct.Struct("<4s2B10xHH4x8x8xQ4xHHHHHH"), struct.Struct("<2I4Q2I2Q")
    table, size = images * header.size, images * header.size + sections * row.size
    starts = range(0, table, header.size)
    headers = (header.pack(b"\x7fELF", 2, 1, 2, 62, table - at, 64, 0, 0, row.size, sections, 0) for at in starts)
    return b"".join(headers) + row.pack(0, 7, 2, 0, 0, size // 2, 0, 0, 1, 0) * sections


def with_data(directory: Path, name: str, data: bytes) -> Path:
    (directory / "data").write_bytes(data)
    text = f'__asm__(".data\\n.incbin \\"{directory / "data"}\\"\\n.text");\nvoid _start(void) {{}}\n'
    return linked(directory, name, text)


def test_images_that_share_their_sections_are_images(tmp_path: Path) -> None:
    """Else the test below would be about plain data."""
    data = beginnings(100, 90)
    changed = 64 + 10  # padding in the second header, which is a note of the first one
    one = with_data(tmp_path, "one", data)
    other = with_data(tmp_path, "other", data[:changed] + b"\1" + data[changed + 1 :])
    assert elf.content_sha256(one) == elf.content_sha256(other)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x7fELF" * (1 << 18), id="nothing but beginnings"),
        pytest.param(beginnings(3000, 1000), id="large images"),
        pytest.param(beginnings(50_000, 90), id="images"),
    ],
)
def test_the_time_is_linear_whatever_a_tree_has_in_its_data(tmp_path: Path, data: bytes) -> None:
    image = with_data(tmp_path, "vmlinux", data)
    began = time.process_time()
    elf.content_sha256(image)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("length", [0, 3, 40, 64, 2000])
def test_a_file_cut_short_is_no_kernel(tmp_path: Path, length: int) -> None:
    image = linked(tmp_path, "vmlinux")
    image.write_bytes(image.read_bytes()[:length])
    for read in (elf.build_id, elf.content_sha256):
        with pytest.raises(InfraError, match="no whole ELF file"):
            read(image)


@pytest.mark.parametrize("read", [elf.build_id, elf.content_sha256])
def test_an_image_that_is_not_there_is_the_hosts_fault(tmp_path: Path, read: Callable[[Path], str]) -> None:
    with pytest.raises(InfraError, match="none: No such file"):
        read(tmp_path / "none")


def test_parts_are_told_apart_by_name() -> None:
    both = elf.combined({"vmlinux": "a1", "boot": "b2"})
    assert both == elf.combined({"boot": "b2", "vmlinux": "a1"})
    assert both != elf.combined({"boot": "a1", "vmlinux": "b2"})
    assert both != elf.combined({"vmlinux": "a1"})
    assert elf.combined({"vmlinux": "a1"}) != elf.combined({"boot": "a1"})
