"""The real code on a stand-in tree, with real make, compiler and linker."""

import os
import re
import shutil
import signal
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.config import KernelSettings
from bisector.core import resources
from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError, KernelFault, UserError
from bisector.core.subject import Compiler, Kernel
from bisector.core.trial import FaultKind, Stage
from bisector.host import build_user, process
from bisector.kernel import kconfig, make, toolchain
from bisector.kernel.build import KernelBuilder
from bisector.kernel.builddir import BuildPlaces, Moment
from bisector.kernel.cache import KernelCache
from bisector.kernel.quirk_table import QUIRKS
from bisector.kernel.quirks import Edit, Evidence, Quirk
from tests.hostile import EVERYTHING, Prey, prey
from tests.kernel.fake_tree import FRAGMENT, copy_to, edit, iops_of, set_iops, spoil

SETTINGS = KernelSettings(base_config=None, fragments=("md",), compilers=("gcc",), jobs=2, build_deadline_s=60.0)


class Bench:
    """A tree, a build directory kept between builds, and logs of each build of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.chmod(0o755)  # compilers are put here, and root's make is another user's
        self.settings = SETTINGS
        self.builds = 0
        self.source = copy_to(self.path / "source")
        self.kconfigs = self.path / "kconfigs"
        self.kconfigs.mkdir()
        self.fragment("md", FRAGMENT)
        self.cache = KernelCache(self.path / "cache", 100_000_000)

    def fragment(self, name: str, text: str) -> None:
        (self.kconfigs / f"{name}.config").write_text(text)

    @property
    def builder(self) -> KernelBuilder:
        return KernelBuilder(self.settings, self.cache, self.kconfigs)

    @property
    def places(self) -> BuildPlaces:
        return BuildPlaces(self.source, self.path / "build", self.path / "logs" / str(self.builds), self.path)

    def build(self, tree: str | None = None) -> Kernel:
        self.builds += 1
        return self.builder.build(tree or f"tree{self.builds}", self.places)

    def made(self, tool: str = "CC") -> list[str]:
        """What the last build compiled (or linked), from its log."""
        return sorted(re.findall(rf"^  {tool} +(\S+)$", (self.places.logs / "build.log").read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def gcc() -> toolchain.Toolchain:
    return replace(toolchain.detect(""), cc="gcc", host_cc="gcc")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gcc: toolchain.Toolchain) -> Bench:
    """The compiler is looked for once, not by each of some fifty builders, and never behind ccache."""
    monkeypatch.setattr(toolchain, "detect", lambda compiler: replace(gcc, cc=compiler or "gcc"))
    return Bench(tmp_path)


def test_a_tree_becomes_a_kernel(bench: Bench) -> None:
    kernel = bench.build()
    assert iops_of(kernel.image) == 1002
    assert kernel.image.is_relative_to(bench.cache.root)
    assert kernel.release == "6.1.0"
    assert re.fullmatch("[0-9a-f]{40}", kernel.build_id)
    assert re.fullmatch("[0-9a-f]{64}", kernel.content_sha256)
    assert "gcc" in kernel.toolchain
    assert "GNU ld" in kernel.toolchain
    assert (kernel.quirks, kernel.unmet, kernel.cached) == ((), (), False)
    assert kernel.build_s > 0
    assert b"bisector@bisector" in kernel.image.read_bytes()
    assert kconfig.parse(kernel.config.read_text())["CONFIG_DM_CACHE_SMQ"] == "y"
    assert (bench.places.logs / "kernel.config").read_text() == kernel.config.read_text()


_CONF = "@python3 -IS $(srctree)/scripts/kconfig/conf.py $@ $(srctree)/Kconfig\n"


def test_a_configuration_in_another_encoding(bench: Bench) -> None:
    edit(
        bench.source,
        "Makefile",
        _CONF,
        _CONF + "\t@test $@ = allnoconfig || printf '# \\351t\\351\\n' >> $(KCONFIG_CONFIG)\n",
    )
    kernel = bench.build()
    assert b"# \xe9t\xe9\n" in kernel.config.read_bytes()
    assert kconfig.read_effective(kernel.config)["CONFIG_DM_CACHE_SMQ"] == "y"


@pytest.mark.parametrize("release", ["6.1.0\351", "../../etc", "", "6.1.0 and more", "6" * 65])
def test_a_release_that_names_no_directory(bench: Bench, release: str) -> None:
    old = 'include/config/kernel.release: include/config/auto.conf FORCE\n\t@echo "$(release)" >'
    edit(bench.source, "Makefile", old, old.replace('echo "$(release)"', f"printf '{release}\\n'"))
    with pytest.raises(KernelFault, match="the tree calls its release"):
        bench.build()


def test_the_source_tree_is_not_written_to(bench: Bench) -> None:
    before = sorted(bench.source.rglob("*"))
    bench.build()
    assert sorted(bench.source.rglob("*")) == before


def test_an_unchanged_tree_compiles_nothing(bench: Bench) -> None:
    first = bench.build()
    second = bench.build()
    assert len(bench.made("CC")) == 0
    assert bench.made("LD") == bench.made("SYNC") == []
    assert first.content_sha256 == second.content_sha256


def test_a_changed_file_is_the_only_one_compiled(bench: Bench) -> None:
    first = bench.build()
    assert len(bench.made()) == 6
    set_iops(bench.source, 4000)
    second = bench.build()
    assert bench.made() == ["drivers/md/dm-cache-policy-smq.o"]
    assert iops_of(second.image) == 4000
    assert first.content_sha256 != second.content_sha256
    assert iops_of(first.image) == 1002  # the kept image of the first is not the build directory's


def test_a_comment_or_documentation_makes_no_other_kernel(bench: Bench) -> None:
    first = bench.build()
    edit(bench.source, "Documentation/index.rst", "Nothing", "Still nothing")
    second = bench.build()
    assert bench.made() == []
    edit(bench.source, "fs/dcache.c", "Nothing is cached yet.", "Still nothing cached.")
    third = bench.build()
    assert bench.made() == ["fs/dcache.o"]
    assert first.content_sha256 == second.content_sha256 == third.content_sha256


def test_a_version_alone_makes_no_other_kernel(bench: Bench) -> None:
    first = bench.build()
    edit(bench.source, "Makefile", "PATCHLEVEL = 1", "PATCHLEVEL = 2")
    second = bench.build()
    assert (first.release, second.release) == ("6.1.0", "6.2.0")
    assert first.build_id != second.build_id
    assert first.content_sha256 == second.content_sha256


def test_what_boots_the_kernel_is_part_of_it(bench: Bench) -> None:
    first = bench.build()
    edit(bench.source, "arch/x86/boot/main.c", "boot_heap_pages = 4", "boot_heap_pages = 5")
    second = bench.build()
    assert first.build_id == second.build_id
    assert first.content_sha256 != second.content_sha256


def test_another_build_directory_makes_the_same_kernel(bench: Bench) -> None:
    first = bench.build()
    (bench.path / "build").rename(bench.path / "build before")
    second = bench.build()
    assert len(bench.made()) == 6
    assert first.content_sha256 == second.content_sha256
    assert first.build_id == second.build_id


def ccache_in(cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ccache keep everything there: the cache of the sandbox, and that of builds without one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    monkeypatch.setenv("CCACHE_DIR", str(toolchain.sandboxed_ccache()))


def test_another_run_directory_compiles_nothing_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ccache_in(tmp_path, monkeypatch)
    kernels = []
    for run in ("run1", "run2"):
        (tmp_path / run).mkdir()
        kernels.append(Bench(tmp_path / run).build())
    statistics = process.run(["ccache", "--print-stats"], deadline_s=10).stdout
    hits = sum(int(n) for n in re.findall(r"^(?:direct|preprocessed)_cache_hit\s+(\d+)", statistics, re.MULTILINE))
    assert hits >= 5
    assert kernels[0].content_sha256 == kernels[1].content_sha256


def test_a_kept_kernel_is_found_without_a_tree(bench: Bench) -> None:
    kernel = bench.build("some tree")
    again = bench.builder.find("some tree")
    assert again == replace(kernel, cached=True, build_s=0.0)
    assert bench.builder.find("another tree") is None


def test_the_key_is_what_a_kernel_is_made_from(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    key = bench.builder.key("tree")
    assert bench.builder.key("tree") == key
    keys = {key, bench.builder.key("other tree")}
    bench.fragment("md", FRAGMENT + "# only a comment\n")
    assert bench.builder.key("tree") == key
    bench.fragment("md", FRAGMENT + "CONFIG_SMP=y\n")
    keys.add(bench.builder.key("tree"))
    base = bench.path / "base"
    base.write_text("CONFIG_SMP=y\n")
    bench.settings = replace(SETTINGS, base_config=base)
    keys.add(bench.builder.key("tree"))
    monkeypatch.setattr("bisector.kernel.quirks.digest", lambda table: "another table")
    keys.add(bench.builder.key("tree"))
    monkeypatch.setattr(toolchain, "detect", lambda compiler: toolchain.Toolchain("gcc", "gcc", "another gcc"))
    keys.add(bench.builder.key("tree"))
    assert len(keys) == 6


def test_another_compiler_makes_another_key(bench: Bench) -> None:
    builder = bench.builder
    key = builder.key("tree")
    assert builder.using(Compiler("gcc-11", "another gcc")).key("tree") != key
    assert builder.key("tree") == key


def test_ccache_changes_no_key(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = toolchain.detect("").identity
    keys = set()
    for chosen in (toolchain.Toolchain("gcc", "gcc", identity), toolchain.Toolchain("ccache gcc", "gcc", identity)):
        monkeypatch.setattr(toolchain, "detect", lambda compiler, chosen=chosen: chosen)
        keys.add(bench.builder.key("tree"))
    assert len(keys) == 1


@pytest.mark.parametrize("recorded", [False, True])
def test_what_is_asked_for_and_not_obtained_is_reported(bench: Bench, recorded: bool) -> None:
    """But not what is optional in a tree that does not know it; also by the copy of a fragment that a run keeps."""
    bench.fragment("md", "CONFIG_DM_CACHE=y\nCONFIG_MD=y\n#: optional\nCONFIG_BASE_FULL=y\n")
    if recorded:
        copy = shutil.copyfile(bench.kconfigs / "md.config", bench.path / "1-md.config")
        bench.settings = replace(SETTINGS, fragments=(str(copy),))
    kernel = bench.build()
    assert kernel.unmet == ("CONFIG_DM_CACHE=y",)
    assert (bench.places.logs / "unmet.txt").read_text() == "CONFIG_DM_CACHE=y\n"


@pytest.mark.parametrize("earlier", [False, True])
def test_what_a_kept_kernel_lacks_is_what_is_asked_for_now(bench: Bench, earlier: bool) -> None:
    """Not what was asked for when it was built: its fragments may call other options optional now.

    An earlier version kept with it no word of what its tree does not know; then its .config says so.
    """
    required, optional = FRAGMENT + "CONFIG_BASE_FULL=y\n", FRAGMENT + "#: optional\nCONFIG_BASE_FULL=y\n"
    bench.fragment("md", required)
    assert bench.build("tree").unmet == ("CONFIG_BASE_FULL=y",)
    if earlier:
        next(bench.cache.root.glob("*/unknown-options.json")).unlink()
    for asked, unmet in ((optional, ()), (required, ("CONFIG_BASE_FULL=y",))):
        bench.fragment("md", asked)
        kept = bench.builder.find("tree")
        assert kept is not None
        assert kept.unmet == unmet


def test_what_is_optional_and_known_is_missed_in_a_kept_kernel_too(bench: Bench) -> None:
    """NR_CPUS depends on SMP, so that without it nothing of it is in the .config."""
    bench.fragment("md", FRAGMENT + "# CONFIG_SMP is not set\n#: optional\nCONFIG_NR_CPUS=4\n")
    built = bench.build("tree")
    assert "NR_CPUS" not in built.config.read_text()
    kept = bench.builder.find("tree")
    assert kept is not None
    assert kept.unmet == built.unmet == ("CONFIG_NR_CPUS=4",)


def test_what_a_person_asks_for_is_missed_in_a_tree_that_does_not_know_it(bench: Bench) -> None:
    mine = bench.path / "mine.config"
    mine.write_text("CONFIG_VIRTIO_MENU=y\n")
    bench.fragment("md", FRAGMENT + "#: optional\nCONFIG_BASE_FULL=y\nCONFIG_VIRTIO_MENU=y\n")
    bench.settings = replace(SETTINGS, fragments=("md", str(mine)))
    assert bench.build().unmet == ("CONFIG_VIRTIO_MENU=y",)


def test_what_a_stack_stands_on_is_missed_in_a_tree_that_calls_it_otherwise(bench: Bench) -> None:
    edit(bench.source, "drivers/md/Kconfig", "config DM_CACHE_SMQ", "config DM_CACHE_STOCHASTIC")
    bench.fragment("storage-lvmcache", FRAGMENT)
    bench.settings = replace(SETTINGS, fragments=("storage-lvmcache",))
    assert bench.build().unmet == ("CONFIG_DM_CACHE_SMQ=y",)


def test_without_a_base_only_what_is_asked_for_is_on(bench: Bench) -> None:
    options = kconfig.parse(bench.build().config.read_text())
    assert options["CONFIG_EXT4_FS"] == "n"


def test_fragments_win_over_the_base_and_defaults_fill_the_rest(bench: Bench) -> None:
    base = bench.path / "base"
    base.write_text(
        'CONFIG_SMP=y\nCONFIG_NR_CPUS=8\nCONFIG_MD=y\nCONFIG_LOCALVERSION_AUTO=y\nCONFIG_LOCALVERSION="-a"\n'
    )
    bench.fragment("md", "# CONFIG_MD is not set\nCONFIG_NR_CPUS=16\n")
    bench.fragment("distribution", resources.fragment("distribution").read_text())
    bench.settings = replace(SETTINGS, base_config=base, fragments=("distribution", "md"))
    kernel = bench.build()
    options = kconfig.parse(kernel.config.read_text())
    assert (options["CONFIG_SMP"], options["CONFIG_NR_CPUS"], options["CONFIG_MD"]) == ("y", "16", "n")
    assert options["CONFIG_EXT4_FS"] == "y"
    assert kernel.unmet == ()
    assert kernel.release == "6.1.0-a"  # and not the commit's hash, which the base asks for


def test_a_build_error_is_the_kernels_fault_and_names_the_line(bench: Bench) -> None:
    bench.build()
    spoil(bench.source)
    with pytest.raises(KernelFault) as caught:
        bench.build("spoilt")
    fault = caught.value
    assert (fault.stage, fault.kind) == (Stage.BUILD, FaultKind.BUILD_ERROR)
    assert re.match(r"fs/dcache\.c:8:9: error: .nr_dentries. undeclared", fault.reason)
    assert fault.tail[0] == fault.reason
    assert bench.builder.find("spoilt") is None


def recalled(bench: Bench, tree: str) -> KernelFault | None:
    """What another run of the same settings knows of a tree before it has its source."""
    logs = bench.path / "logs of another run"
    logs.mkdir(exist_ok=True)
    try:
        bench.builder.recall_failure(tree, logs)
    except KernelFault as fault:
        return fault
    return None


def test_a_build_error_is_known_in_the_next_run(bench: Bench) -> None:
    spoil(bench.source)
    with pytest.raises(KernelFault) as caught:
        bench.build("spoilt")
    known = recalled(bench, "spoilt")
    assert known is not None
    assert not caught.value.cached
    assert known.fault == replace(caught.value.fault, cached=True)
    assert known.fault.sentence.startswith("build error, known from an earlier build: fs/dcache.c:8:9: error: ")
    log = bench.path / "logs of another run/build.log"
    assert log.read_text() == (bench.places.logs / "build.log").read_text()
    assert recalled(bench, "another tree") is None
    bench.fragment("md", FRAGMENT + "CONFIG_SMP=y\n")
    assert recalled(bench, "spoilt") is None


def test_a_failure_that_a_build_disproves_is_forgotten(bench: Bench) -> None:
    spoil(bench.source)
    with pytest.raises(KernelFault):
        bench.build("tree")
    edit(bench.source, "fs/dcache.c", "nr_dentries = 0;", "nr_dentry = 0;")
    bench.build("tree")
    assert recalled(bench, "tree") is None
    assert bench.builder.find("tree") is not None


def test_a_failure_that_the_host_may_have_made_is_not_known_in_the_next_run(bench: Bench) -> None:
    """A compiler that finds an error, and has no room besides."""
    bench.settings = replace(
        SETTINGS, compilers=(compiler_that(bench.path, "echo cc1: No space left on device; exit 1"),)
    )
    spoil(bench.source)
    with pytest.raises(KernelFault, match="nr_dentries"):
        bench.build("tree")
    assert recalled(bench, "tree") is None


@pytest.mark.parametrize("signal_name", ["KILL", "TERM"])
def test_a_compiler_that_somebody_ended_is_never_the_kernels_fault(bench: Bench, signal_name: str) -> None:
    bench.settings = replace(SETTINGS, compilers=(compiler_that(bench.path, f"kill -{signal_name} $$"),))
    with pytest.raises(InfraError, match="ended by a signal"):
        bench.build("tree")
    assert recalled(bench, "tree") is None


def test_a_ccache_that_cannot_write_is_never_the_kernels_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ccache_in(tmp_path / "home", monkeypatch)
    toolchain.sandboxed_ccache().mkdir(parents=True)
    (toolchain.sandboxed_ccache() / "tmp").write_text("no directory")
    (tmp_path / "run").mkdir()
    bench = Bench(tmp_path / "run")
    with pytest.raises(InfraError, match=r"^ccache: error: ") as caught:
        bench.build("tree")
    assert str(toolchain.sandboxed_ccache()) in caught.value.hint
    assert recalled(bench, "tree") is None


def crashes(bench: Bench, times: int) -> Path:
    """Have the compiler of fs/dcache.c crash in the first so many calls; where each of them leaves a line."""
    calls = bench.path / "calls"
    says = "echo fs/dcache.c:8:1: internal compiler error: Segmentation fault >&2"
    counts = (
        f"echo CCACHE_RECACHE=$CCACHE_RECACHE >> {calls}; [ $(wc -l < {calls}) -gt {times} ] || {{ {says}; exit 1; }}"
    )
    # Without a sandbox, in which it could not count: what it writes has to outlive the build directory.
    bench.settings = replace(SETTINGS, compilers=(compiler_that(bench.path, counts),), sandbox=False)
    return calls


def test_a_compiler_that_crashes_once_is_not_the_kernels_fault(bench: Bench) -> None:
    calls = crashes(bench, 1)
    kernel = bench.build("tree")
    assert iops_of(kernel.image) == 1002
    assert bench.builder.find("tree") == replace(kernel, cached=True, build_s=0.0)
    assert len(calls.read_text().splitlines()) == 2
    assert len(bench.made()) > 6  # all of it once more
    log = (bench.places.logs / "build.log").read_text()
    assert "bisector: this may be the host's fault (fs/dcache.c:8:1: internal compiler error" in log


def test_a_compiler_that_always_crashes_is_believed_the_second_time(bench: Bench) -> None:
    calls = crashes(bench, 1000)
    with pytest.raises(KernelFault, match="internal compiler error") as caught:
        bench.build("tree")
    assert caught.value.kind is FaultKind.BUILD_ERROR
    assert len(calls.read_text().splitlines()) == 2
    assert recalled(bench, "tree") is None


def test_an_error_that_is_surely_the_sources_is_seen_once(bench: Bench) -> None:
    calls = bench.path / "calls"
    compiler = compiler_that(bench.path, f"status=$?; echo called >> {calls}; exit $status")
    bench.settings = replace(SETTINGS, compilers=(compiler,), sandbox=False)
    spoil(bench.source)
    with pytest.raises(KernelFault, match="nr_dentries"):
        bench.build("tree")
    assert calls.read_text().splitlines() == ["called"]


def test_what_ccache_has_is_not_believed_the_second_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, gcc: toolchain.Toolchain
) -> None:
    calls = crashes(bench, 1)
    monkeypatch.setenv("CCACHE_DIR", str(bench.path / "ccache"))
    (compiler,) = bench.settings.compilers
    monkeypatch.setattr(toolchain, "detect", lambda name: replace(gcc, cc=f"env WITH=ccache {compiler}"))
    bench.build("tree")
    assert calls.read_text().splitlines() == ["CCACHE_RECACHE=", "CCACHE_RECACHE=1"]


def test_a_header_that_the_host_has_lost_is_the_hosts_fault(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(bench.source, "fs/dcache.c", "#include <linux/kernel.h>", "#include <linux/kernel.h>\n#include <gone.h>")
    monkeypatch.setattr(toolchain, "headers", lambda options: {"gone.h": "libgone-dev"})
    with pytest.raises(InfraError, match=r"this host lacks what it needs: gone\.h: not installed") as caught:
        bench.build("tree")
    assert "libgone-dev" in caught.value.hint
    assert recalled(bench, "tree") is None


def test_a_damaged_object_of_an_earlier_build_is_not_the_kernels_fault(bench: Bench) -> None:
    first = bench.build()
    (bench.path / "build/fs/dcache.o").write_bytes(b"")
    set_iops(bench.source, 4000)
    second = bench.build("second")
    assert iops_of(second.image) == 4000
    set_iops(bench.source, 1002)
    assert bench.build("first again").content_sha256 == first.content_sha256


def change_moment(bench: Bench, **of_moment: str | int) -> None:
    """Have the last build end at another moment."""
    stamp = bench.path / "build/.bisector/finished"
    moment = Moment.read(stamp)
    assert moment is not None
    replace(moment, **of_moment).write(stamp)  # type: ignore[arg-type]  # its fields


def test_what_was_built_before_the_clock_was_set_back_is_built_again(bench: Bench) -> None:
    """The clock was an hour ahead, and was put right before the next checkout."""
    first = bench.build()
    hour_ns = 3600 * 10**9
    for path in (path for path in (bench.path / "build").rglob("*") if path.is_file()):
        at_ns = path.stat().st_mtime_ns + hour_ns
        os.utime(path, ns=(at_ns, at_ns))
    change_moment(bench, ahead_ns=Moment.now().ahead_ns + hour_ns)
    set_iops(bench.source, 4000)
    edit(bench.source, "include/linux/kernel.h", "#define _LINUX_KERNEL_H", "#define _LINUX_KERNEL_H\n#define NEW")
    second = bench.build()
    assert iops_of(second.image) == 4000
    assert second.content_sha256 != first.content_sha256
    shutil.rmtree(bench.path / "build")
    assert bench.build().content_sha256 == second.content_sha256


def test_what_a_power_cut_left_empty_is_built_again(bench: Bench) -> None:
    first = bench.build()
    for name in ("fs/dcache.o", "init/main.o", "include/generated/autoconf.h", "vmlinux"):
        (bench.path / "build" / name).write_bytes(b"")
    change_moment(bench, boot="the one before")
    assert bench.build().content_sha256 == first.content_sha256
    assert len(bench.made()) == 6


def test_a_build_by_a_wrong_clock_is_never_kept(bench: Bench) -> None:
    first = bench.build()
    os.utime(bench.source / "fs/dcache.c", (time.time() + 3600,) * 2)
    with pytest.raises(InfraError, match=r"the clock was wrong \(make.* Clock skew detected"):
        bench.build("wrong")
    assert bench.builder.find("wrong") is None
    assert bench.build("right").content_sha256 == first.content_sha256


def compiler_that(path: Path, last: str) -> str:
    """gcc that, having compiled fs/dcache.c, does something else, too."""
    wrapper = path / "odd-cc"
    wrapper.write_text(f'#!/bin/sh\ncase "$*" in *dcache.c*) gcc "$@"; {last};; *) exec gcc "$@";; esac\n')
    wrapper.chmod(0o755)
    return str(wrapper)


def test_a_build_that_ends_without_an_image_is_tried_again(bench: Bench) -> None:
    edit(bench.source, "Makefile", "bzImage: arch/x86/boot/bzImage", "bzImage: vmlinux")
    with pytest.raises(KernelFault, match="made no"):
        bench.build("tree")
    assert recalled(bench, "tree") is None


def test_a_link_error_names_the_symbol(bench: Bench) -> None:
    edit(bench.source, "init/main.c", "dcache_init();", "dcache_init(); dcache_exit();")
    edit(bench.source, "include/linux/kernel.h", "void dm_init", "void dcache_exit(void);\nvoid dm_init")
    with pytest.raises(KernelFault, match="undefined reference to `dcache_exit'"):
        bench.build("unlinked")
    assert recalled(bench, "unlinked") is None


def test_a_kconfig_error_is_the_kernels_fault(bench: Bench) -> None:
    edit(bench.source, "drivers/md/Kconfig", "config MD", "konfig MD")
    with pytest.raises(KernelFault) as caught:
        bench.build("misspelt")
    assert (caught.value.stage, caught.value.kind) == (Stage.CONFIG, FaultKind.CONFIG_ERROR)
    assert caught.value.reason == "drivers/md/Kconfig:1: syntax error"
    known = recalled(bench, "misspelt")
    assert known is not None
    assert known.fault == replace(caught.value.fault, cached=True)


@pytest.mark.parametrize(
    ("include", "compiled"),
    [
        pytest.param(".DELETE_ON_ERROR:", ["fs/dcache.o"], id="make deletes what failed"),
        pytest.param("# as before v4.19", ["fs/dcache.o", "init/main.o"], id="half a target may be left"),
    ],
)
def test_what_a_bad_commit_built_counts_if_make_tidies_up(bench: Bench, include: str, compiled: list[str]) -> None:
    bench.settings = replace(SETTINGS, jobs=1)  # main.o is before dcache.o
    edit(bench.source, "scripts/Kbuild.include", ".DELETE_ON_ERROR:", include)
    bench.build()
    edit(bench.source, "init/main.c", "for (;;)", "while (1)")
    spoil(bench.source)
    with pytest.raises(KernelFault):
        bench.build()
    edit(bench.source, "fs/dcache.c", "nr_dentries = 0;", "nr_dentry = 0;")
    bench.build()
    assert bench.made() == compiled


def slow_compiler(path: Path, marker: Path) -> str:
    """A compiler that leaves half an object behind and hangs."""
    path.write_text(
        "#!/bin/sh\n"
        'case "$*" in *dcache.c*) ;; *) exec gcc "$@";; esac\n'
        'for word; do [ "$previous" = -o ] && object=$word; previous=$word; done\n'
        f'trap "" TERM; printf half > "$object"; : > {marker}; while :; do sleep 0.1; done\n'
    )
    path.chmod(0o755)
    return str(path)


def test_half_an_object_of_a_killed_build_is_compiled_again(bench: Bench) -> None:
    first = bench.build()
    edit(bench.source, "fs/dcache.c", "nr_dentry = 0;", "nr_dentry = 1;")
    hung = bench.path / "build/hung"
    bench.settings = replace(SETTINGS, compilers=(slow_compiler(bench.path / "slow-cc", hung),))

    def kill_make() -> None:
        Deadline("hung compiler", 30).poll(lambda: hung.exists() or None, every_s=0.01)
        others = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and int(entry.name) != os.getpid()]
        victims = [int(entry.name) for entry in others if marked(entry, bench.path)]
        # What kill -9 of everything at once leaves. One after the other, make could see its compiler end, and tidy up.
        for signum in (signal.SIGSTOP, signal.SIGKILL):
            for victim in victims:
                with suppress(ProcessLookupError):  # a sandbox ends with its first process
                    os.kill(victim, signum)

    killer = threading.Thread(target=kill_make)
    killer.start()
    with pytest.raises(InfraError, match="signal 9"):
        bench.build("killed")
    killer.join()
    half = bench.path / "build/fs/dcache.o"
    assert half.read_text() == "half"
    bench.settings = SETTINGS
    second = bench.build()
    assert "fs/dcache.o" in bench.made()
    assert second.content_sha256 != first.content_sha256
    assert bench.builder.find("killed") is None


def marked(entry: Path, run_dir: Path) -> bool:
    try:
        return f"{process.RUN_MARKER}={run_dir}".encode() in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def test_a_build_over_its_deadline_is_told_as_such(bench: Bench) -> None:
    compiler = slow_compiler(bench.path / "slow-cc", bench.path / "build/hung")
    bench.settings = replace(SETTINGS, compilers=(compiler,), build_deadline_s=1.0)
    with pytest.raises(KernelFault, match="kernel build not done after 1 s") as caught:
        bench.build()
    assert caught.value.kind is FaultKind.BUILD_TIMEOUT
    assert recalled(bench, "tree1") is None
    bench.settings = SETTINGS
    bench.build()


def test_no_room_is_never_the_kernels_fault(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(bench.source)
    monkeypatch.setattr(make, "_NO_ROOM_BYTES", 1 << 60)
    with pytest.raises(InfraError, match="no room left"):
        bench.build()


def test_no_memory_is_never_the_kernels_fault(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(bench.source)
    kills = iter(range(100))
    monkeypatch.setattr(make, "_oom_kills", lambda: next(kills))
    with pytest.raises(InfraError, match="out of memory"):
        bench.build()


def test_a_build_directory_that_cannot_be_made_is_the_hosts_fault(bench: Bench) -> None:
    (bench.path / "build").write_text("")
    with pytest.raises(InfraError, match="File exists"):
        bench.build()


def test_a_source_tree_that_is_gone_is_the_hosts_fault(bench: Bench) -> None:
    bench.source.rename(bench.path / "elsewhere")
    with pytest.raises(InfraError, match="No such file"):
        bench.build()


def test_a_path_that_kbuild_cannot_take_is_said_before_make(tmp_path: Path) -> None:
    (tmp_path / "with space").mkdir()
    with pytest.raises(UserError, match="space or colon"):
        Bench(tmp_path / "with space").build()


def test_an_old_tree_is_linked_with_its_quirk(bench: Bench) -> None:
    (bench.source / "arch/x86/Makefile").write_text("# as before v4.16\n")
    kernel = bench.build()
    assert kernel.quirks == ("max-page-size",)
    segments = process.run(["readelf", "-lW", bench.path / "build/vmlinux"], deadline_s=10).stdout
    alignments = re.findall(r"^ +LOAD .* (0x\w+)$", segments, re.MULTILINE)
    assert alignments
    assert set(alignments) == {"0x200000"}


def test_an_edited_header_is_compiled_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    header = bench.source / "include/linux/kernel.h"
    plain = header.read_text()
    edit = Edit("include/linux/kernel.h", "#define _LINUX_KERNEL_H", "#define _LINUX_KERNEL_H\n#define EDITED")
    quirk = Quirk("some", (), QUIRKS[0].cure, "", Evidence.TRIED, edits=(edit,))
    assert quirk.applies(bench.source)
    monkeypatch.setattr("bisector.kernel.build.QUIRKS", (quirk,))
    assert bench.build().quirks == ("some",)
    assert "EDITED" in header.read_text()
    assert bench.made()
    header.write_text(plain)  # what the checkout of the next commit does
    assert bench.build().quirks == ("some",)
    assert bench.made() == []
    header.write_text(plain)
    monkeypatch.setattr("bisector.kernel.build.QUIRKS", ())
    bench.build()
    assert bench.made()


def test_base_for_another_architecture(bench: Bench) -> None:
    base = bench.path / "base"
    base.write_text("CONFIG_ARM64=y\n")
    bench.settings = replace(SETTINGS, base_config=base)
    with pytest.raises(UserError, match="arm64"):
        bench.build()


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


def test_make_writes_nowhere_but_into_the_build_directory(bench: Bench) -> None:
    (bench.path / "trials").mkdir()
    makefile = bench.source / "Makefile"
    attack = f"attack := $(shell touch {bench.source}/x {bench.path}/x {bench.path}/trials/x)\n"
    makefile.write_text(attack + makefile.read_text())
    before = sorted(bench.source.rglob("*"))
    bench.build()
    assert sorted(bench.source.rglob("*")) == before
    assert list(bench.path.rglob("x")) == []


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
    ("last", "for n in `seq 300`; do mkdir -p deep/deep/deep/deep; cd deep/deep/deep/deep; done"),
    ("last", r"for d in `find -type d`; do printf 'deps_x := \\\n  /a\0b/c \\\n' > $d/.x.o.cmd; done"),
)


@pytest.mark.parametrize(("when", "attack"), _LEFT)
def test_whatever_a_tree_leaves_no_other_commit_is_stopped_by_it(bench: Bench, when: str, attack: str) -> None:
    """Nor is the run: this commit is built or skipped, and the next one is built."""
    makefile, build = bench.source / "Makefile", bench.path / "build"
    plain = makefile.read_text()
    bench.build()
    script = bench.source / "attack.sh"
    script.write_text(f"cd {build}\n{attack}\nexit 0\n")
    if when == "first":
        makefile.write_text(f"attack := $(shell sh {script} 2>/dev/null)\n{plain}")
    else:
        goal = "bzImage: arch/x86/boot/bzImage\n"
        edit(bench.source, "Makefile", goal, f"{goal}\t@sh {script} 2>/dev/null\n")
    with suppress(KernelFault):
        bench.build()
    makefile.write_text(plain)
    set_iops(bench.source, 4000)
    assert iops_of(bench.build().image) == 4000


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
        (tmp_path / name).mkdir()
        bench = Bench(tmp_path / name)
        bench.settings = replace(SETTINGS, sandbox=sandboxed)
        kernels.append(bench.build("tree"))
    assert kernels[0].content_sha256 == kernels[1].content_sha256
    assert kernels[0].key == kernels[1].key
    statistics = process.run(["ccache", "--print-stats"], deadline_s=10).stdout
    assert sum(int(n) for n in re.findall(r"^(?:direct|preprocessed)_cache_hit\s+(\d+)", statistics, re.MULTILINE)) >= 5


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="make runs as whoever starts it")


@as_root
def test_roots_build_directory_goes_on_whoever_ran_the_make_before(bench: Bench) -> None:
    """A directory of a version that ran make as root, of one without a sandbox, and of one for another user."""
    user, build = build_user.build_user(), bench.path / "build"
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


def test_what_a_killed_make_left_for_us_to_fall_into_is_gone_before_the_next(bench: Bench) -> None:
    """The directory may have any name in it that this process writes to, whoever ended this process."""
    bench.build()
    other = bench.path / "other"
    other.write_text("a person's")
    for name in (".bisector-edits.json.bisector-new", ".config.wanted", ".config.new"):
        (bench.path / "build" / name).unlink(missing_ok=True)
        (bench.path / "build" / name).symlink_to(other)
    bench.build()
    assert other.read_text() == "a person's"


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
        (tools / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
        (tools / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(InfraError, match=words):
        bench.build()
