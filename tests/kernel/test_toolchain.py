import os
import platform
import shutil
from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.core.kernel import Compiler
from bisector.host.packages import install
from bisector.kernel import toolchain

WRAPPER = Path(toolchain.__file__).with_name("behind-ccache.sh")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of links to the real programs, to take some away."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("make", "flex", "bison", "bc", "perl", "ld", "objcopy", "readelf", "gcc", "as", "sh"):
        found = shutil.which(name)
        assert found, f"{name} is not installed"
        (directory / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(directory))
    return directory


def test_a_compressor_is_needed_only_if_chosen() -> None:
    assert "lzop" not in toolchain.programs({"CONFIG_KERNEL_LZO": "n"})
    assert toolchain.programs({"CONFIG_KERNEL_LZO": "y"})["lzop"] == "lzop"


@pytest.mark.parametrize("compiler", ["gcc-0", "false"])
def test_a_compiler_that_is_none(compiler: str) -> None:
    with pytest.raises(UserError, match=f"compiler {compiler}"):
        toolchain.detect(compiler)


def test_without_ccache_the_compiler_is_called_itself(programs: Path) -> None:
    found = toolchain.detect("")
    assert (found.cc, found.cached) == ("gcc", False)


def test_a_ccache_that_cannot_write_is_not_used(programs: Path) -> None:
    (programs / "ccache").write_text("#!/bin/sh\nexit 1\n")
    (programs / "ccache").chmod(0o755)
    assert toolchain.detect("").cc == "gcc"
    (programs / "ccache").write_text('#!/bin/sh\nexec "$@"\n')
    found = toolchain.detect("")
    assert (found.cc, found.host_cc, found.cached) == (f"sh {WRAPPER} gcc", "ccache gcc", True)
    found = toolchain.detect("ccache gcc")
    assert (found.cc, found.cached) == ("ccache gcc", True)


def test_a_path_of_more_than_one_word(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (programs / "ccache").write_text('#!/bin/sh\nexec "$@"\n')
    (programs / "ccache").chmod(0o755)
    place = tmp_path / "with space" / WRAPPER.name
    place.parent.mkdir()
    shutil.copy(WRAPPER, place)
    monkeypatch.setattr(toolchain, "_BEHIND_CCACHE", str(place))
    assert toolchain.detect("").cc == "ccache gcc"


def test_another_architecture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(UserError, match="this host is aarch64"):
        toolchain.detect("")


def test_identity_names_compiler_and_linker() -> None:
    identity = toolchain.detect("").identity
    assert "gcc" in identity
    assert "ld" in identity
    assert os.linesep not in identity


def test_options_in_the_command_are_part_of_the_identity_and_ccache_is_not() -> None:
    """Another option makes another kernel: one that was kept without it is not taken for it."""
    plain = toolchain.detect("gcc").identity
    assert toolchain.detect("gcc -O1 -g").identity == plain.replace(", GNU ld", " -O1 -g, GNU ld")
    if shutil.which("ccache"):
        assert toolchain.detect("ccache gcc").identity == plain


def stand_in(directory: Path, name: str, says: str, compiles: bool = True) -> Path:
    """A program that answers --version, and compiles or not."""
    body = 'exec /usr/bin/gcc "$@"' if compiles else "echo cc1: cannot find the back end >&2; exit 1"
    path = directory / name
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{says}"; echo more; exit; fi\n{body}\n')
    path.chmod(0o755)
    return path


def test_the_default_compiler_comes_first_then_the_newest(programs: Path) -> None:
    (programs / "gcc").unlink()
    stand_in(programs, "gcc-12", "gcc-12 (Debian 12.2.0-14) 12.2.0")
    (programs / "gcc").symlink_to(programs / "gcc-12")
    for name, says in (("gcc-9", "9.5"), ("gcc-11", "11.3"), ("clang", "clang 14.0.6"), ("clang-15", "clang 15.0")):
        stand_in(programs, name, says)
    for name in ("gcc-ar-12", "gcc-nm", "clang-format-14", "gcc-11.old"):
        stand_in(programs, name, "no compiler")
    found = toolchain.installed()
    assert [one.command for one in found] == ["gcc", "gcc-11", "gcc-9", "clang", "clang-15"]
    assert found[0].identity.startswith("gcc-12 (Debian 12.2.0-14) 12.2.0, GNU ld")
    assert found[3].identity.startswith("clang 14.0.6, GNU ld")


def test_one_that_does_not_work_is_not_offered(programs: Path) -> None:
    stand_in(programs, "gcc-10", "gcc-10 10.2.1", compiles=False)
    assert [one.command for one in toolchain.installed()] == ["gcc"]
    with pytest.raises(UserError, match="gcc-10: does not compile"):
        toolchain.named("gcc-10")


def test_a_host_without_gcc_has_what_it_has(programs: Path) -> None:
    (programs / "gcc").unlink()
    stand_in(programs, "gcc-12", "gcc-12 12.2.0")
    (one,) = toolchain.installed()
    assert (one.command, one.identity.partition(",")[0]) == ("gcc-12", "gcc-12 12.2.0")


def test_what_a_compiler_calls_itself(programs: Path) -> None:
    family, numbers = toolchain.version("gcc")
    assert (family, len(numbers)) == ("gcc", 3)
    assert ".".join(map(str, numbers)) in toolchain.detect("gcc").identity
    said = "-D__clang__=1 -D__clang_major__=14 -D__clang_minor__=0 -D__clang_patchlevel__=6"
    (programs / "clang").write_text(f'#!/bin/sh\nexec /usr/bin/gcc {said} "$@"\n')
    (programs / "clang").chmod(0o755)
    assert toolchain.version("clang") == ("clang", (14, 0, 6))
    (programs / "other").write_text('#!/bin/sh\nexec /usr/bin/gcc -U__GNUC__ "$@"\n')
    (programs / "other").chmod(0o755)
    assert toolchain.version("other") == ("", ())
    with pytest.raises(UserError, match="compiler gcc-0"):
        toolchain.version("gcc-0")


def test_no_compiler_at_all(programs: Path) -> None:
    (programs / "gcc").unlink()
    with pytest.raises(UserError, match="no C compiler works") as caught:
        toolchain.installed()
    assert caught.value.hint == install("gcc")


def test_the_real_ones_of_this_host() -> None:
    found = toolchain.installed()
    assert found[0] == Compiler(found[0].command, toolchain.detect(found[0].command).identity)
    assert len({one.command for one in found}) == len(found)
