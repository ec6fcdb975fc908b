"""Trees that mean harm, and the sandbox that their Makefiles run in."""

import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.core.trial import KernelFault
from bisector.host import process
from tests.hostile import EVERYTHING, Prey, prey
from tests.kernel.bench import SETTINGS, Bench, ccache_hits, ccache_in, compiler_that
from tests.kernel.fake_tree import edit, iops_of, set_iops
from tests.programs import program


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Prey]:
    with prey(tmp_path) as made:
        yield made


@pytest.mark.parametrize(("sandboxed", "harm"), [(True, set()), (False, EVERYTHING)], ids=["sandbox", "none"])
def test_a_hostile_makefile_gets_nothing_and_its_kernel_is_built(
    bench: Bench, victim: Prey, sandboxed: bool, harm: set[str]
) -> None:
    bench.settings = replace(SETTINGS, sandbox=sandboxed)
    (bench.source / "attack.sh").write_text(victim.script)
    loot = bench.path / "build/loot"
    attack = f"attack := $(shell [ -e {loot} ] || sh {bench.source}/attack.sh > {loot})\n"
    makefile = bench.source / "Makefile"
    makefile.write_text(attack + makefile.read_text())
    assert iops_of(bench.build().image) == 1002
    assert victim.harm(loot.read_text()) == harm


@pytest.mark.parametrize(
    ("attack", "name"),
    [
        ("ln -sf {other} {build}/.config.old", ".config.old"),
        ("ln -sf ../../../../../../..{other} {build}/.config.old", ".config.old"),
        ("mkdir -p {build}/a; ln -sfn {other} {build}/a/b", "a/b"),
        ("[ -e {build}/pipe ] || mkfifo {build}/pipe", "pipe"),
    ],
)
def test_what_make_leaves_for_us_to_fall_into_is_removed_and_the_commits_fault(
    bench: Bench, attack: str, name: str
) -> None:
    """A file that is behind a name that the build writes would be written the next time."""
    other = bench.path / "other"
    other.write_text("a person's")
    makefile, build = bench.source / "Makefile", bench.path / "build"
    plain = makefile.read_text()
    makefile.write_text(f"attack := $(shell {attack.format(other=other, build=build)})\n{plain}")
    with pytest.raises(KernelFault, match=f"what leads out of it: .*/{re.escape(name)}, "):
        bench.build()
    assert not os.path.lexists(build / name)
    makefile.write_text(plain)
    bench.build()
    assert other.read_text() == "a person's"


# Before all else, or after all else.
_LEFT = (
    ("first", "rm -rf .config .config.new; mkdir -p .config/a .config.new/a"),
    ("last", "rm -rf .config .config.new; mkdir -p .config/a .config.new/a"),
    ("last", "mkdir -p modules.ext4/a .bisector-modules/a"),
    ("last", "rm -rf vmlinux; mkdir -p vmlinux/a arch/x86/boot/bzImage/a"),
    ("last", "rm -f include/config/kernel.release; mkdir -p include/config/kernel.release/a"),
    ("first", "echo '[]' > .bisector/edits.json; rm -rf .bisector; mkdir -p .bisector/finished; mv .bisector other"),
    ("last", "mkdir -p locked/a; touch locked/a/b; chmod 0 locked/a locked .config ."),
    ("last", "for n in `seq 215`; do mkdir -p deep/deep/deep/deep; cd deep/deep/deep/deep; done"),
    ("last", r"for d in `find -type d`; do printf 'deps_x := \\\n  /a\0b/c \\\n' > $d/.x.o.cmd; done"),
)


@pytest.mark.parametrize("when", ["first", "last"])
def test_whatever_a_tree_leaves_no_other_commit_is_stopped_by_it(bench: Bench, when: str) -> None:
    """Nor is the run: this commit is built or skipped, and the next one is built."""
    makefile, build, script = bench.source / "Makefile", bench.path / "build", bench.source / "attack.sh"
    plain, goal = makefile.read_text(), "bzImage: arch/x86/boot/bzImage\n"
    bench.build()
    for iops, attack in enumerate((attack for at, attack in _LEFT if at == when), 4000):
        script.write_text(f"cd {build}\n{attack}\nexit 0\n")
        if when == "first":
            makefile.write_text(f"attack := $(shell sh {script} 2>/dev/null)\n{plain}")
        else:
            edit(bench.source, "Makefile", goal, f"{goal}\t@sh {script} 2>/dev/null\n")
        with suppress(KernelFault):
            bench.build()
        makefile.write_text(plain)
        set_iops(bench.source, iops)
        assert iops_of(bench.build().image) == iops, attack


def test_links_of_kbuild_are_kept(bench: Bench) -> None:
    makefile = bench.source / "Makefile"
    build = bench.path / "build"
    links = f"$(shell ln -sfn {bench.source} {build}/source; ln -sfn ../build/source {build}/inside)"
    makefile.write_text(f"links := {links}\n{makefile.read_text()}")
    bench.build()
    assert (build / "source").is_symlink()
    assert (build / "inside").is_symlink()


def test_a_kernel_is_the_same_with_and_without_the_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is compiled in one is a hit in the other."""
    ccache_in(tmp_path, monkeypatch)
    kernels = []
    for name, sandboxed in (("with", True), ("without", False)):
        bench = Bench(tmp_path / name)
        bench.settings = replace(SETTINGS, sandbox=sandboxed)
        kernels.append(bench.build("tree"))
    assert kernels[0].content_sha256 == kernels[1].content_sha256
    assert kernels[0].key == kernels[1].key
    assert ccache_hits() >= 5


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="make runs as whoever starts it")


@as_root
def test_roots_build_directory_goes_on_whoever_ran_the_make_before(bench: Bench) -> None:
    """A directory of a version that ran make as root, of one without a sandbox, and of one for another user."""
    user, build = process.build_user(), bench.path / "build"
    assert user is not None
    owners = []
    for number, sandboxed in enumerate((False, True, True, False, True)):
        bench.settings = replace(SETTINGS, sandbox=sandboxed)
        set_iops(bench.source, 2000 + number)
        if not sandboxed:  # an object that root makes, and the next build takes as it is
            (build / "fs/dcache.o").unlink(missing_ok=True)
        assert iops_of(bench.build().image) == 2000 + number
        owners.append({path.lstat().st_uid for path in (build, *build.rglob("*.o"), build / ".config")})
        assert (len(bench.made()) == 6) is (number == 0)  # all, or what a commit changed
    assert owners == [{0}, {user.uid}, {user.uid}, {0, user.uid}, {user.uid}]
    assert build.stat().st_mode & 0o777 == 0o700


@as_root
def test_a_compiler_that_only_root_may_run_is_no_commits_fault(bench: Bench) -> None:
    bench.settings = replace(SETTINGS, compilers=(compiler_that(bench.path, "exit 0"),))
    bench.path.chmod(0o700)
    with pytest.raises(InfraError, match="odd-cc cannot be run in the sandbox"):
        bench.build()


@as_root
def test_roots_umask_keeps_no_source_from_make(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        bench = Bench(tmp_path)
        for path in (bench.source, *bench.source.rglob("*")):
            path.chmod(stat.S_IMODE(path.stat().st_mode) & 0o700)
        assert iops_of(bench.build().image) == 1002
        assert bench.source.stat().st_mode & 0o777 == 0o705
        set_iops(bench.source, 2000)
        assert iops_of(bench.build().image) == 2000
    finally:
        os.umask(before)


def test_a_rule_may_open_its_standard_error_again(bench: Bench) -> None:
    makefile = bench.source / "Makefile"
    makefile.write_text("said := $(shell echo heard > /dev/stderr)\n" + makefile.read_text())
    bench.build()
    log = bench.places.logs / "build.log"
    assert "heard" in log.read_text().splitlines()
    assert log.stat().st_uid == os.geteuid()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "bwrap is not installed"),
        ("echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1", "no sandbox for make: bwrap: setting up"),
    ],
)
def test_without_a_sandbox_nothing_is_built_and_no_commit_is_to_blame(
    bench: Bench, script: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = bench.path / "bin"
    tools.mkdir()
    for name in ("make", "gcc", "ld", "ccache", "sh"):
        (tools / name).symlink_to(shutil.which(name) or name)
    if script is not None:
        program(tools / "bwrap", script)
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(InfraError, match=words):
        bench.build()
