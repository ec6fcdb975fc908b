"""What a person has told ccache does not change what is built."""

import os
from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.host import process
from bisector.kernel import ccache, toolchain

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
    process.run(argv, deadline_s=30, cwd=directory, env=ccache.environment(directory))
    return (directory / "a.o").read_bytes().decode(errors="replace")


def gcc_that_says(directory: Path, text: str) -> Path:
    """Another version of a compiler in the place of the one before: as large and as old."""
    path = directory / "cc"
    path.write_text(f'#!/bin/sh\nexec gcc -DMADE_BY=\'"{text}"\' "$@"\n')
    path.chmod(0o755)
    os.utime(path, (1, 1))
    return path


def test_an_upgraded_compilers_objects_are_its_own(home: Path, tmp_path: Path) -> None:
    assert "cc 12.2" in compiled(tmp_path, gcc_that_says(tmp_path, "cc 12.2"), "-DA=1")
    assert "cc 12.3" in compiled(tmp_path, gcc_that_says(tmp_path, "cc 12.3"), "-DA=1")


def test_a_changed_option_is_another_compilation(home: Path, tmp_path: Path) -> None:
    compiler = gcc_that_says(tmp_path, "cc")
    assert compiled(tmp_path, compiler, "-DA=1") != compiled(tmp_path, compiler, "-DA=2")


def test_the_place_and_the_size_of_the_cache_are_the_persons(home: Path, tmp_path: Path) -> None:
    compiled(tmp_path, gcc_that_says(tmp_path, "cc"), "-DA=1")
    assert list((tmp_path / "kept there").rglob("*R"))  # ccache's name for a result
    found = process.run(["ccache", "--show-config"], deadline_s=10, env=ccache.environment(tmp_path)).stdout
    assert "(environment) max_size = 7" in found
    assert not [line for line in found.splitlines() if str(home) in line]


def test_what_is_compiled_anew_is_no_hit_and_one_from_then_on(home: Path, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int a;\n")
    for anew in (False, True, False):
        argv = ["ccache", "gcc", "-c", "-o", "a.o", "a.c"]
        process.run(argv, deadline_s=30, cwd=tmp_path, env=ccache.environment(tmp_path, anew=anew))
    log = process.run(["ccache", "--print-stats"], deadline_s=10, env=ccache.environment(tmp_path)).stdout
    counted = dict(line.split() for line in log.splitlines())
    assert [counted[name] for name in ("cache_miss", "recache", "direct_cache_hit")] == ["1", "1", "1"]


@pytest.mark.parametrize("uid", [0, 1000])
def test_what_a_sandbox_can_write_to_is_no_persons_cache(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int
) -> None:
    """Else a tree could put settings there by which ccache runs a program of its, without a sandbox."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    given = ccache.environment(tmp_path, sandboxed=True)
    assert given["CCACHE_DIR"] == str(home / ".cache/bisector/ccache")
    assert given["CCACHE_MAXSIZE"].startswith("7")


def test_a_trial_of_a_compiler_runs_nothing_that_settings_name(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil, ran = tmp_path / "evil", tmp_path / "ran"
    evil.write_text(f'#!/bin/sh\ntouch {ran}\nexec "$@"\n')
    evil.chmod(0o755)
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "kept"))
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/ccache.conf").write_text(f"prefix_command = {evil}\n")
    assert toolchain.detect("gcc").cached
    assert toolchain.detect("ccache gcc").cached
    assert toolchain.version("ccache gcc")[0] == "gcc"
    assert not ran.exists()


def test_a_cache_that_cannot_be_written_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(os, "access", lambda place, how: False)
    assert ccache.environment(tmp_path) == {"CCACHE_DISABLE": "1"}
    assert "CCACHE_DISABLE" not in ccache.environment(tmp_path, sandboxed=True)


def test_a_ccache_that_is_gone_is_the_hosts_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfraError, match="ccache: command not found"):
        ccache.environment(tmp_path)
