"""What is told apart, and what is not, on the targets of a real build of arch/x86/boot in small."""

from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.host import process
from bisector.kernel import signature
from tests.kernel.test_elf import RC1, compiled, linked

HEADER = "arch/x86/boot/header.S"


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
        self.object("version", 'const char kernel_version[] = UTS_RELEASE " (bisector)";\n')
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
        return signature.parts(self.build, self.source, self.release)


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return Build(tmp_path)


def changed(build: Build, before: dict[str, str]) -> set[str]:
    after = build.parts()
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def test_every_part_has_a_name(build: Build) -> None:
    boot = ("version.o", "compressed/piggy.o", "header.o", "setup.elf")
    assert set(build.parts()) == {"vmlinux", *(f"arch/x86/boot/{name}" for name in boot)}


def test_where_it_was_built_is_not_the_content(tmp_path: Path) -> None:
    one, other = (Build(tmp_path / name) for name in ("one", "other"))
    assert one.parts() == other.parts()


def test_the_payload_and_its_place_are_not_the_content(build: Build) -> None:
    before = build.parts()
    build.generated("zoffset.h", "#define ZO_z_input_len 0x1001\n")
    build.object("compressed/piggy", "char input_data[101];\n")
    assert changed(build, before) == set()


def test_the_version_is_not_the_content(build: Build) -> None:
    before = build.parts()
    build.release = "4.11.0-rc2"
    linked(build.build, "vmlinux", release=build.release)
    build.object("version", 'const char kernel_version[] = UTS_RELEASE " (bisector)";\n')
    assert changed(build, before) == set()


@pytest.mark.parametrize(
    ("file", "part"),
    [(HEADER, "header.o"), ("include/linux/kconfig.h", "header.o"), ("arch/x86/boot/setup.ld", "setup.elf")],
)
def test_what_a_target_is_made_of_is_the_content(build: Build, file: str, part: str) -> None:
    before = build.parts()
    build.write(file, "another text\n")
    assert changed(build, before) == {f"arch/x86/boot/{part}"}


def test_how_a_target_is_made_is_the_content(build: Build) -> None:
    before = build.parts()
    build.target("setup.elf", f"ld -z noexecstack -T {build.source}/arch/x86/boot/setup.ld")
    assert changed(build, before) == {"arch/x86/boot/setup.elf"}


def test_code_that_boots_is_the_content(build: Build) -> None:
    before = build.parts()
    build.object("version", 'const char kernel_version[] = UTS_RELEASE " (somebody)";\n')
    assert changed(build, before) == {"arch/x86/boot/version.o"}


def test_relocations_for_another_address_are_the_content(build: Build) -> None:
    before = build.parts()
    relocations = build.build / "arch/x86/boot/compressed/vmlinux.relocs"
    relocations.write_bytes(b"\0\1")
    added = build.parts()
    assert set(added) - set(before) == {"arch/x86/boot/compressed/vmlinux.relocs"}
    relocations.write_bytes(b"\0\2")
    assert changed(build, added) == {"arch/x86/boot/compressed/vmlinux.relocs"}


def test_what_is_no_longer_there_is_no_part(build: Build) -> None:
    (build.build / "arch/x86/boot/version.o").unlink()
    assert "arch/x86/boot/version.o" not in build.parts()


def test_a_strange_object_is_the_hosts_fault(build: Build) -> None:
    process.run(["truncate", "-s", "10", build.build / "arch/x86/boot/version.o"], deadline_s=10)
    with pytest.raises(InfraError, match=r"version\.o is no whole ELF file"):
        build.parts()
