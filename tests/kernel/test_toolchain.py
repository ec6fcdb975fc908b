import os
import platform
import shutil
from pathlib import Path

import pytest

from bisector.errors import UserError
from bisector.kernel import toolchain
from bisector.packages import install


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


def test_everything_is_there(programs: Path) -> None:
    toolchain.require({}, "")


def test_what_is_missing_is_named_with_its_packages(programs: Path) -> None:
    for name in ("flex", "bc", "ld"):
        (programs / name).unlink()
    with pytest.raises(UserError, match="needs flex, bc, ld: not installed") as caught:
        toolchain.require({}, "")
    assert caught.value.hint == install("bc", "binutils", "flex")


def test_no_compiler(programs: Path) -> None:
    (programs / "gcc").unlink()
    with pytest.raises(UserError, match="needs gcc") as caught:
        toolchain.require({}, "")
    assert caught.value.hint == install("gcc")


def test_a_compressor_is_needed_only_if_chosen(programs: Path) -> None:
    toolchain.require({"CONFIG_KERNEL_LZO": "n"}, "")
    with pytest.raises(UserError, match="lzop"):
        toolchain.require({"CONFIG_KERNEL_LZO": "y"}, "")


@pytest.mark.parametrize("compiler", ["gcc-0", "false"])
def test_a_compiler_that_is_none(compiler: str) -> None:
    with pytest.raises(UserError, match=f"compiler {compiler}"):
        toolchain.detect(compiler)


def test_without_ccache_the_compiler_is_called_itself(programs: Path) -> None:
    assert toolchain.detect("").cc == "gcc"


def test_a_ccache_that_cannot_write_is_not_used(programs: Path) -> None:
    (programs / "ccache").write_text("#!/bin/sh\nexit 1\n")
    (programs / "ccache").chmod(0o755)
    assert toolchain.detect("").cc == "gcc"
    (programs / "ccache").write_text('#!/bin/sh\nexec "$@"\n')
    assert toolchain.detect("").cc == "ccache gcc"
    assert toolchain.detect("ccache gcc").cc == "ccache gcc"


def test_another_architecture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(UserError, match="this host is aarch64"):
        toolchain.detect("")


def test_identity_names_compiler_and_linker() -> None:
    identity = toolchain.detect("").identity
    assert "gcc" in identity
    assert "ld" in identity
    assert os.linesep not in identity
