"""The compiler that is found, and what a person has told ccache does not change what is built."""

import os
import platform
import shutil
from pathlib import Path

import pytest

from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Compiler
from bisector.host import process
from bisector.kernel import toolchain
from tests.programs import program

GCC = Compiler("gcc", "gcc 12.2.0, GNU ld 2.40")
GCC_11 = Compiler("gcc-11", "gcc-11 11.3.0, GNU ld 2.40")
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


@pytest.mark.parametrize("compiler", ["gcc-0", "false"])
def test_a_compiler_that_is_none(compiler: str) -> None:
    with pytest.raises(UserError, match=f"compiler {compiler}"):
        toolchain.detect(compiler)


def test_a_ccache_that_cannot_write_is_not_used(programs: Path) -> None:
    program(programs / "ccache", "exit 1")
    assert toolchain.detect("").cc == "gcc"
    program(programs / "ccache", 'exec "$@"')
    found = toolchain.detect("")
    assert (found.cc, found.host_cc, found.cached) == (f"sh {WRAPPER} gcc", "ccache gcc", True)
    found = toolchain.detect("ccache gcc")
    assert (found.cc, found.cached) == ("ccache gcc", True)


def test_a_path_of_more_than_one_word(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(programs / "ccache", 'exec "$@"')
    place = tmp_path / "with space" / WRAPPER.name
    place.parent.mkdir()
    shutil.copy(WRAPPER, place)
    monkeypatch.setattr(toolchain, "_BEHIND_CCACHE", str(place))
    assert toolchain.detect("").cc == "ccache gcc"


def test_another_architecture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(UserError, match="this host is aarch64"):
        toolchain.detect("")


def stand_in(directory: Path, name: str, says: str, compiles: bool = True) -> None:
    """A program that answers --version, and compiles or not."""
    body = 'exec /usr/bin/gcc "$@"' if compiles else "echo cc1: cannot find the back end >&2; exit 1"
    program(directory / name, f'if [ "$1" = --version ]; then echo "{says}"; echo more; exit; fi\n{body}')


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


ODD = "compiler_check = none\nsloppiness = include_file_mtime\nignore_options = -D*\nprefix_command = env\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's, with settings for ccache of their own."""
    settings = tmp_path / "home/.config/ccache/ccache.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"{ODD}max_size = 7G\ncache_dir = {tmp_path / 'kept there'}\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "CCACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def compiled(directory: Path, compiler: Path, *options: str) -> str:
    """What is in the object that this compiler makes of an unchanged source, or that ccache has of it."""
    (directory / "a.c").write_text("const char made_by[] = MADE_BY; int a = A;\n")
    argv: list[str | Path] = ["ccache", compiler, *options, "-c", "-o", "a.o", "a.c"]
    process.run(argv, deadline_s=30, cwd=directory, env=toolchain.ccache_environment(directory))
    return (directory / "a.o").read_bytes().decode(errors="replace")


def gcc_that_says(directory: Path, text: str) -> Path:
    """Another version of a compiler in the place of the one before: as large and as old."""
    path = program(directory / "cc", f'exec gcc -DMADE_BY=\'"{text}"\' "$@"')
    os.utime(path, (1, 1))
    return path


def test_an_upgraded_compilers_objects_are_its_own(home: Path, tmp_path: Path) -> None:
    assert "cc 12.2" in compiled(tmp_path, gcc_that_says(tmp_path, "cc 12.2"), "-DA=1")
    assert "cc 12.3" in compiled(tmp_path, gcc_that_says(tmp_path, "cc 12.3"), "-DA=1")


def test_the_place_and_the_size_of_the_cache_are_the_persons(home: Path, tmp_path: Path) -> None:
    compiled(tmp_path, gcc_that_says(tmp_path, "cc"), "-DA=1")
    assert list((tmp_path / "kept there").rglob("*R"))  # ccache's name for a result
    found = process.run(["ccache", "--show-config"], deadline_s=10, env=toolchain.ccache_environment(tmp_path)).stdout
    assert "(environment) max_size = 7" in found
    assert not [line for line in found.splitlines() if str(home) in line]


@pytest.mark.parametrize("uid", [0, 1000])
def test_what_a_sandbox_can_write_to_is_no_persons_cache(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int
) -> None:
    """Else a tree could put settings there by which ccache runs a program of its, without a sandbox."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    given = toolchain.ccache_environment(tmp_path, sandboxed=True)
    assert given["CCACHE_DIR"] == str(home / ".cache/bisector/ccache")
    assert given["CCACHE_MAXSIZE"].startswith("7")


def test_a_trial_of_a_compiler_runs_nothing_that_settings_name(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    evil = program(tmp_path / "evil", f'touch {ran}\nexec "$@"')
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "kept"))
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/ccache.conf").write_text(f"prefix_command = {evil}\n")
    assert toolchain.detect("gcc").cached
    assert toolchain.detect("ccache gcc").cached
    assert not ran.exists()


def test_a_cache_that_cannot_be_written_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(os, "access", lambda place, how: False)
    assert toolchain.ccache_environment(tmp_path) == {"CCACHE_DISABLE": "1"}
    assert "CCACHE_DISABLE" not in toolchain.ccache_environment(tmp_path, sandboxed=True)


def test_a_ccache_that_is_gone_is_the_hosts_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfraError, match="ccache: command not found"):
        toolchain.ccache_environment(tmp_path)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        pytest.param((Compiler("gcc", "gcc 12.3.0, GNU ld 2.40"),), "and is gcc 12.3.0, GNU ld 2.40", id="compiler"),
        pytest.param((Compiler("gcc", "gcc 12.2.0, GNU ld 2.44"),), "and is gcc 12.2.0, GNU ld 2.44", id="linker"),
        pytest.param((GCC_11,), "and does not work any more", id="gone"),
    ],
)
def test_a_changed_compiler_is_refused(now: tuple[Compiler, ...], said: str) -> None:
    with pytest.raises(UserError, match="gcc has changed since this run began") as caught:
        toolchain.check_unchanged((GCC,), now)
    assert said in caught.value.message
    assert "gcc 12.2.0, GNU ld 2.40" in caught.value.message
    assert "install that version of gcc again" in caught.value.hint
