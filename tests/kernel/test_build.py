"""The real code on a stand-in tree, with real make, compiler and linker: what a kernel is, and what is an equal one."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core import resources
from bisector.core.trial import KernelFault
from bisector.host import process
from bisector.kernel import kconfig, toolchain
from bisector.kernel.quirks import Edit, Quirk
from tests.kernel.bench import SETTINGS, Bench, ccache_hits, ccache_in
from tests.kernel.fake_tree import FRAGMENT, edit, iops_of, set_iops


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
    short = kernel.config.with_name("kernel.defconfig").read_text()
    assert (bench.places.logs / "kernel.defconfig").read_text() == short
    assert "CONFIG_DM_CACHE=y\n" in short
    assert len(short.splitlines()) < len(kernel.config.read_text().splitlines()) / 2


@pytest.mark.parametrize("made", ["false", "true", f"truncate -s {65 << 20} defconfig", "ln -s /etc/passwd defconfig"])
def test_a_tree_that_makes_no_short_configuration(bench: Bench, made: str) -> None:
    edit(bench.source, "Makefile", _CONF, f"@test $@ != savedefconfig || {{ {made}; exit; }}; {_CONF[1:]}")
    kernel = bench.build()
    assert not kernel.config.with_name("kernel.defconfig").exists()


_CONF = "@python3 -IS $(srctree)/scripts/kconfig/conf.py $@ $(srctree)/Kconfig\n"


@pytest.mark.parametrize("release", ["6.1.0\351", "../../etc", "", "6.1.0 and more", "6" * 65])
def test_a_release_that_names_no_directory(bench: Bench, release: str) -> None:
    old = 'include/config/kernel.release: include/config/auto.conf FORCE\n\t@echo "$(release)" >'
    edit(bench.source, "Makefile", old, old.replace('echo "$(release)"', f"printf '{release}\\n'"))
    with pytest.raises(KernelFault, match="the tree calls its release"):
        bench.build()


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


def test_another_run_directory_compiles_nothing_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ccache_in(tmp_path, monkeypatch)
    kernels = []
    for run in ("run1", "run2"):
        kernels.append(Bench(tmp_path / run).build())
    assert ccache_hits() >= 5
    assert kernels[0].content_sha256 == kernels[1].content_sha256


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


def test_what_is_asked_for_and_not_obtained_is_reported(bench: Bench) -> None:
    """But not what is optional in a tree that does not know it, unless a person asks for it."""
    bench.fragment("md", "CONFIG_DM_CACHE=y\nCONFIG_MD=y\n#: optional\nCONFIG_BASE_FULL=y\nCONFIG_VIRTIO_MENU=y\n")
    bench.fragment("mine", "CONFIG_VIRTIO_MENU=y\n")
    bench.settings = replace(SETTINGS, fragments=("md", "mine"))
    kernel = bench.build()
    assert kernel.unmet == ("CONFIG_DM_CACHE=y", "CONFIG_VIRTIO_MENU=y")
    assert (bench.places.logs / "unmet.txt").read_text() == "CONFIG_DM_CACHE=y\nCONFIG_VIRTIO_MENU=y\n"


def test_what_a_kept_kernel_lacks_is_what_is_asked_for_now(bench: Bench) -> None:
    """Not what was asked for when it was built: its fragments may call other options optional now."""
    required, optional = FRAGMENT + "CONFIG_BASE_FULL=y\n", FRAGMENT + "#: optional\nCONFIG_BASE_FULL=y\n"
    bench.fragment("md", required)
    assert bench.build("tree").unmet == ("CONFIG_BASE_FULL=y",)
    for asked, unmet in ((optional, ()), (required, ("CONFIG_BASE_FULL=y",))):
        bench.fragment("md", asked)
        kept = bench.builder.find("tree")
        assert kept is not None
        assert kept.unmet == unmet


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
    quirk = Quirk("some", edits=(edit,))
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
