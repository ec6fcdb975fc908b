"""Modules of a stand-in tree, with the real make, depmod and mke2fs, read back by e2fsprogs' own debugfs."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.core.subject import Kernel
from bisector.core.trial import KernelFault
from bisector.host import process
from bisector.kernel import product, toolchain
from tests.kernel.bench import Bench
from tests.kernel.fake_tree import FRAGMENT, edit, set_iops

SMQ = "kernel/drivers/md/dm-cache-policy-smq.ko"
RELEASE = "6.1.0"


@pytest.fixture
def bench(bench: Bench) -> Bench:
    bench.fragment("md", FRAGMENT.replace("SMQ=y", "SMQ=m") + "CONFIG_MODULES=y\n")
    return bench


def image_of(kernel: Kernel) -> Path:
    assert kernel.modules is not None
    return kernel.modules


def debugfs(image: Path, request: str) -> str:
    program = toolchain.find_program("debugfs")
    assert program is not None, "debugfs comes with mke2fs"
    return process.run([program, "-R", request, image], deadline_s=20).stdout


def extracted(image: Path, directory: Path) -> Path:
    debugfs(image, f"rdump / {directory}")
    return directory / RELEASE


def test_modules_are_kept_beside_their_kernel(bench: Bench, tmp_path: Path) -> None:
    kernel = bench.build("tree")
    assert image_of(kernel).is_relative_to(bench.cache.root)
    assert image_of(kernel).parent == kernel.image.parent
    (tmp_path / "out").mkdir()
    tree = extracted(image_of(kernel), tmp_path / "out")
    assert {SMQ, "modules.dep", "modules.alias"} <= {str(path.relative_to(tree)) for path in tree.rglob("*")}
    assert not (tree / "build").is_symlink()
    assert not (tree / "source").is_symlink()
    assert (tree / "modules.dep").read_text() == f"{SMQ}:\n"
    assert b"fakelinux iops_mean=1002" in (tree / SMQ).read_bytes()
    found = bench.builder.find("tree")
    assert found == replace(kernel, cached=True, build_s=0.0)


@pytest.mark.parametrize("names", [(), ("6.1.0", "6.1.0-other")])
def test_modules_of_no_release_or_of_two_are_the_trees_fault(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    with pytest.raises(KernelFault, match=f"made {len(names)} directories in lib/modules"):
        product.modules_parts(tmp_path, RELEASE)


def test_a_changed_module_is_another_kernel_and_a_comment_is_none(bench: Bench) -> None:
    first = bench.build()
    edit(bench.source, "drivers/md/dm-cache-policy-smq.c", "What a stand-in", "Whatever a stand-in")
    second = bench.build()
    assert second.content_sha256 == first.content_sha256
    set_iops(bench.source, 4000)
    third = bench.build()
    assert third.build_id == first.build_id, "vmlinux is the same"
    assert third.content_sha256 != first.content_sha256


def test_compressed_modules_count_too(tmp_path: Path) -> None:
    module = tmp_path / RELEASE / "kernel/dm.ko.xz"
    module.parent.mkdir(parents=True)
    module.write_bytes(b"one")
    one = product.modules_parts(tmp_path, RELEASE)
    module.write_bytes(b"two")
    assert one.keys() == product.modules_parts(tmp_path, RELEASE).keys() == {"kernel/dm.ko.xz"}
    assert one != product.modules_parts(tmp_path, RELEASE)


def test_without_depmod_it_is_the_hosts_fault(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_program", lambda name: None)
    with pytest.raises(InfraError, match="depmod: command not found") as caught:
        bench.build()
    assert caught.value.hint == "apt install kmod"


def test_a_depmod_that_does_nothing_is_the_hosts_fault(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    real = toolchain.find_program
    monkeypatch.setattr(toolchain, "find_program", lambda name: "/bin/true" if name == "depmod" else real(name))
    with pytest.raises(InfraError, match=r"makes no modules\.dep"):
        bench.build()


def test_a_tree_that_removes_what_depmod_made_is_to_blame(bench: Bench) -> None:
    bench.build()
    made = '\t@if [ -x "$(DEPMOD)" ]'
    edit(bench.source, "Makefile", made, "\t@sleep 0\n" + made)
    edit(bench.source, "Makefile", 'Please install it."; fi', 'Please install it."; fi; rm $(MODLIB)/modules.dep')
    with pytest.raises(KernelFault, match=r"leaves no modules\.dep, which depmod makes"):
        bench.build()


HUGE = "1T"  # sparse: it takes no room, and no host has so much memory


@pytest.mark.parametrize("name", ["include/config/kernel.release", ".config", "init/.main.o.cmd"])
def test_a_huge_sparse_file_is_not_read_and_the_tree_is_to_blame(bench: Bench, name: str) -> None:
    bench.settings = replace(bench.settings, fragments=())
    edit(bench.source, "Makefile", "cat $(boot-y) >> $@", f"cat $(boot-y) >> $@ && truncate -s {HUGE} {name}")
    with pytest.raises(KernelFault, match=f"(made|leaves no file) {name}"):
        bench.build()


@pytest.mark.parametrize("name", ["arch/x86/boot/bzImage", ".config", "include/config/kernel.release"])
def test_what_no_kernel_has_is_not_copied(tmp_path: Path, name: str) -> None:
    for made in ("arch/x86/boot/bzImage", ".config", "include/config/kernel.release", "vmlinux"):
        (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / made).touch()
    product.require_image(tmp_path)
    os.truncate(tmp_path / name, 1 << 40)
    with pytest.raises(KernelFault, match=f"made {name} of {1 << 40} bytes"):
        product.require_image(tmp_path)


def test_modules_that_no_kernel_has_are_not_packed(bench: Bench) -> None:
    edit(bench.source, "Makefile", "cp $$ko $(MODLIB)/kernel/$$ko", f"truncate -s {HUGE} $(MODLIB)/kernel/$$ko")
    edit(bench.source, "Makefile", "strip --strip-debug", "test -s")
    with pytest.raises(KernelFault, match=r"installed modules of \d{13} bytes"):
        bench.build()


def test_any_number_of_files_fits(tmp_path: Path) -> None:
    tree = tmp_path / "modules"
    for number in range(1500):
        path = tree / RELEASE / f"kernel/{number % 40}/{number}.ko"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (number * 7))
    (tree / RELEASE / "large.ko").write_bytes(b"x" * (20 << 20))
    image = product.pack_modules(tree, tmp_path / "image")
    (tmp_path / "out").mkdir()
    back = extracted(image, tmp_path / "out")
    for path in (tree / RELEASE).rglob("*.ko"):
        assert (back / path.relative_to(tree / RELEASE)).read_bytes() == path.read_bytes()
    assert image.stat().st_size < 50 << 20
    assert image.stat().st_size % (2 << 20) == 0
    features = debugfs(image, "features")
    assert "has_journal" not in features
    assert "metadata_csum" not in features
    assert "orphan_file" not in features


def test_old_modules_do_not_stay(bench: Bench, tmp_path: Path) -> None:
    bench.build()
    bench.fragment("md", FRAGMENT.replace("SMQ=y", "SMQ=m") + 'CONFIG_MODULES=y\nCONFIG_LOCALVERSION="-two"\n')
    kernel = bench.build()
    (tmp_path / "out").mkdir()
    extracted(image_of(kernel), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name != "lost+found"] == [f"{RELEASE}-two"]
