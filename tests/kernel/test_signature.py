"""Equal digests for kernels that run the same code on the same data, and for no others."""

import errno
import os
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Kernel
from bisector.host import process
from bisector.kernel import product as signature
from bisector.kernel.product import as_measured
from tests import examples

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


def test_the_build_id_is_read_and_is_not_the_content(tmp_path: Path) -> None:
    one, other, none = (linked(tmp_path, f"v{id_}", build_id=id_) for id_ in ("0xabcdef01", "0x22222222", "none"))
    assert [signature.build_id_of(image) for image in (one, other, none)] == ["abcdef01", "22222222", ""]
    assert signature.content_sha256(one) == signature.content_sha256(other)


@pytest.mark.parametrize("make", [linked, compiled])
def test_the_version_is_not_the_content(tmp_path: Path, make: type) -> None:
    one = make(tmp_path, "one", BANNER + CODE, RC1)
    other = make(tmp_path, "other", BANNER + CODE, RC2)
    assert signature.content_sha256(one) != signature.content_sha256(other)
    assert signature.content_sha256(one, RC1) == signature.content_sha256(other, RC2)


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
    assert signature.content_sha256(one, RC1) != signature.content_sha256(other, RC1)


def test_what_an_object_asks_of_others_is_its_content(tmp_path: Path) -> None:
    text = "int {}(void);\nint f(void) {{ return {}(); }}\n"
    one, other = (compiled(tmp_path, name, text.format(name, name)) for name in ("kfree", "kmalloc"))
    assert signature.content_sha256(one) != signature.content_sha256(other)


def test_objects_of_32_bits_are_read(tmp_path: Path) -> None:
    flags = ("-m16", "-march=i386")  # as arch/x86/boot is compiled
    one, other, third = (
        compiled(tmp_path, name, BANNER + CODE.replace("1", value), release, flags)
        for name, release, value in (("one", RC1, "1"), ("other", RC2, "1"), ("third", RC2, "2"))
    )
    assert signature.content_sha256(one, RC1) == signature.content_sha256(other, RC2)
    assert signature.content_sha256(one, RC1) != signature.content_sha256(third, RC2)


def with_vdso(directory: Path, build_id: str, code: str = "1") -> Path:
    """An image with another one, padded to a page, in its read-only data."""
    inner = linked(directory, "vdso", f"int _start(void) {{ return {code}; }}\n", build_id=build_id)
    data = f'.section .rodata\\n.balign 4096\\n.incbin \\"{inner}\\"\\n.balign 4096\\n.text'
    outer = f'__asm__("{data}");\nvoid _start(void) {{}}\n'
    return linked(directory, f"vmlinux-{build_id}-{code}", outer)


def test_the_vdsos_notes_are_not_the_content_but_its_code_is(tmp_path: Path) -> None:
    one, other = with_vdso(tmp_path, "0xaaaaaaaa"), with_vdso(tmp_path, "0xbbbbbbbb")
    assert signature.content_sha256(one) == signature.content_sha256(other)
    assert signature.content_sha256(one) != signature.content_sha256(with_vdso(tmp_path, "0xaaaaaaaa", "2"))


def test_what_only_begins_like_an_image_is_data(tmp_path: Path) -> None:
    text = 'const char magic[] = "\\177ELF\\002\\001\\001 is how it begins %d";\nvoid _start(void) {{}}\n'
    one, other = (linked(tmp_path, f"v{n}", text % n) for n in (1, 2))
    assert signature.content_sha256(one) != signature.content_sha256(other)


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
    assert signature.content_sha256(one) == signature.content_sha256(other)


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
    signature.content_sha256(image)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("length", [0, 40, 2000])
def test_a_file_cut_short_is_no_kernel(tmp_path: Path, length: int) -> None:
    image = linked(tmp_path, "vmlinux")
    image.write_bytes(image.read_bytes()[:length])
    for read in (signature.build_id_of, signature.content_sha256):
        with pytest.raises(InfraError, match="not a whole ELF file"):
            read(image)


def test_parts_are_told_apart_by_name() -> None:
    both = signature.combined({"vmlinux": "a1", "boot": "b2"})
    assert both == signature.combined({"boot": "b2", "vmlinux": "a1"})
    assert both != signature.combined({"boot": "a1", "vmlinux": "b2"})
    assert both != signature.combined({"vmlinux": "a1"})
    assert signature.combined({"vmlinux": "a1"}) != signature.combined({"boot": "a1"})


HEADER, VERSION = "arch/x86/boot/header.S", 'const char kernel_version[] = UTS_RELEASE " (bisector)";\n'


class Build:
    """A source tree and a build directory as make leaves them; the commands name both by their paths."""

    def __init__(self, path: Path) -> None:
        self.source, self.build = path / "source", path / "build"
        self.release = RC1
        self.write(HEADER, ".long ZO_INIT_SIZE\n")
        self.write("include/linux/kconfig.h", "/* */\n")
        self.write("arch/x86/boot/setup.ld", "ENTRY(_start)\n")
        (self.build / "arch/x86/boot/compressed").mkdir(parents=True)
        linked(self.build, "vmlinux")
        self.object("version", VERSION)
        self.object("compressed/piggy", "char input_data[100];\n")
        self.target("header.o", f"gcc -I{self.source}/include -c", HEADER, "include/linux/kconfig.h")
        self.generated("zoffset.h", "#define ZO_z_input_len 0x1000\n")
        self.target("setup.elf", f"ld -T {self.source}/arch/x86/boot/setup.ld")

    def write(self, file: str, text: str) -> None:
        (self.source / file).parent.mkdir(parents=True, exist_ok=True)
        (self.source / file).write_text(text)

    def object(self, name: str, text: str) -> None:
        place = self.build / "arch/x86/boot" / name
        compiled(place.parent, place.name, text, self.release)
        self.target(f"{name}.o", "gcc -c")

    def generated(self, name: str, text: str) -> None:
        (self.build / "arch/x86/boot" / name).write_text(text)

    def target(self, name: str, command: str, *files: str) -> None:
        path = self.build / "arch/x86/boot" / name
        read = [f"../source/{file}" for file in files]  # as ccache has it, relative to the build directory
        lines = [f"cmd_{name} := {command}", "", f"deps_{name} := \\", "    $(wildcard include/config/SMP) \\"]
        lines += [f"  {file} \\" for file in (*read, "arch/x86/boot/zoffset.h", "/usr/include/stdio.h")]
        path.with_name(f".{path.name}.cmd").write_text("\n".join(lines) + "\n")

    def parts(self) -> dict[str, str]:
        return signature.image_parts(self.build, self.source, self.release)


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return Build(tmp_path)


def changed(build: Build, before: dict[str, str]) -> set[str]:
    after = build.parts()
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def with_another_version(build: Build) -> None:
    build.release = RC2
    linked(build.build, "vmlinux", release=build.release)
    build.object("version", VERSION)


def with_another_payload(build: Build) -> None:
    build.generated("zoffset.h", "#define ZO_z_input_len 0x1001\n")
    build.object("compressed/piggy", "char input_data[101];\n")


def made_through(prefix: str) -> Callable[[Build], None]:
    command = f"{prefix}gcc -I{{0.source}}/include -c"
    return lambda build: build.target("header.o", command.format(build), HEADER, "include/linux/kconfig.h")


def with_a_text_in(file: str) -> Callable[[Build], None]:
    return lambda build: build.write(file, "another text\n")


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        pytest.param(made_through("ccache "), (), id="ccache"),
        pytest.param(made_through("sh /opt/bisector/kernel/behind-ccache.sh "), (), id="behind ccache"),
        pytest.param(with_another_payload, (), id="the payload and its place"),
        pytest.param(with_another_version, (), id="the version"),
        pytest.param(with_a_text_in(HEADER), ("header.o",), id="a source"),
        pytest.param(with_a_text_in("include/linux/kconfig.h"), ("header.o",), id="a header"),
        pytest.param(with_a_text_in("arch/x86/boot/setup.ld"), ("setup.elf",), id="a script of the linker"),
        pytest.param(
            lambda build: build.target("setup.elf", f"ld -z noexecstack -T {build.source}/arch/x86/boot/setup.ld"),
            ("setup.elf",),
            id="a command",
        ),
        pytest.param(
            lambda build: build.object("version", VERSION.replace("bisector", "somebody")), ("version.o",), id="code"
        ),
    ],
)
def test_what_boots_is_the_content_and_how_it_is_packed_is_not(
    build: Build, change: Callable[[Build], None], parts: tuple[str, ...]
) -> None:
    before = build.parts()
    change(build)
    assert changed(build, before) == {f"arch/x86/boot/{part}" for part in parts}


def test_relocations_for_another_address_are_the_content(build: Build) -> None:
    before = build.parts()
    relocations = build.build / "arch/x86/boot/compressed/vmlinux.relocs"
    relocations.write_bytes(b"\0\1")
    added = build.parts()
    assert set(added) - set(before) == {"arch/x86/boot/compressed/vmlinux.relocs"}
    relocations.write_bytes(b"\0\2")
    assert changed(build, added) == {"arch/x86/boot/compressed/vmlinux.relocs"}


def test_what_a_huge_sparse_file_has_beside_its_sections_is_not_read(tmp_path: Path) -> None:
    image = linked(tmp_path, "image")
    before = signature.build_id_of(image), signature.content_sha256(image)
    os.truncate(image, 1 << 40)
    assert (signature.build_id_of(image), signature.content_sha256(image)) == before


@pytest.mark.parametrize("read", [signature.build_id_of, signature.content_sha256])
def test_a_section_that_is_larger_than_a_kernel_is_not_read(tmp_path: Path, read: Callable[[Path], str]) -> None:
    image = linked(tmp_path, "image")
    data = bytearray(image.read_bytes())
    table, rows = int.from_bytes(data[40:48], "little"), int.from_bytes(data[60:62], "little")
    for row in range(1, rows):
        at = table + 64 * row
        kind, flags = int.from_bytes(data[at + 4 : at + 8], "little"), int.from_bytes(data[at + 8 : at + 16], "little")
        if kind != 8 and flags & 2:  # SHT_NOBITS, SHF_ALLOC
            data[at + 32 : at + 40] = (1 << 39).to_bytes(8, "little")
    image.write_bytes(data)
    os.truncate(image, 1 << 40)
    with pytest.raises(OSError, match="larger than a kernel") as caught:
        read(image)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(image))


MEASURED = replace(examples.kernel(quirks=("gelf",)), config=Path("/gone/kernel.config"), key="a1-7777")


def refused(measured: Kernel, now: Kernel) -> str:
    with pytest.raises(UserError) as caught:
        as_measured(measured, replace(now, content_sha256="d" * 64))
    return caught.value.message.partition("a rebuild differs: ")[2]


def test_one_of_equal_content_is_the_same_however_it_was_made() -> None:
    built = replace(MEASURED, key="b2-7777", toolchain="gcc 13", release="6.1.1")
    assert as_measured(MEASURED, built) is as_measured(None, built) is built


def test_what_has_changed_is_named() -> None:
    assert refused(MEASURED, replace(MEASURED, key="b2-7777", toolchain="gcc 13", quirks=())) == (
        "its compiler and linker changed from gcc 12.2.0, GNU ld 2.40 to gcc 13; its quirks changed from gelf to none"
    )
    assert refused(MEASURED, replace(MEASURED, release="6.1.1")) == "its release changed from 5.0.0-test to 6.1.1"


def test_where_nothing_that_is_known_has_changed_that_is_said() -> None:
    assert refused(MEASURED, MEASURED) == (
        "though of the same sources, configuration, compiler and quirks, so another tool of the build has changed"
    )
    of_a_commit_with_the_same = replace(MEASURED, key="a1-8888")
    assert refused(MEASURED, of_a_commit_with_the_same).startswith("though of the same sources")
    assert (
        refused(MEASURED, replace(MEASURED, key="b2-7777"))
        == "this bisector builds kernels, or tells them apart, in another way"
    )


def test_options_are_named_as_long_as_the_run_has_them(tmp_path: Path) -> None:
    kept, new = tmp_path / "kernel.config", tmp_path / "new"
    kept.write_text("CONFIG_HZ=250\nCONFIG_MD=y\n")
    new.write_text("CONFIG_HZ=1000\nCONFIG_MD=y\n" + "".join(f"CONFIG_X{n}=y\n" for n in range(9)))
    said = refused(replace(MEASURED, config=kept), replace(MEASURED, config=new))
    assert said.startswith("CONFIG_HZ changed from 250 to 1000; CONFIG_X0 changed from n to y; ")
    assert said.endswith("; CONFIG_X4 changed from n to y; and more")
