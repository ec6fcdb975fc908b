"""Files of a source tree: links out of it, which of them a build read, and which change of it matters."""

import gzip
import os
import shutil
from pathlib import Path

import pytest

from bisector.core.subject import Change
from bisector.kernel import kconfig, sources
from bisector.kernel.quirks import Edit, Sign
from bisector.kernel.sources import Sources, content, text


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tmp_path / "source"
    (made / "below").mkdir(parents=True)
    (made / "below/file").write_bytes(b"\xe9 inside\n")
    (tmp_path / "outside").write_text("config OUTSIDE\n")
    return made


STRANGE = "../outside /etc/passwd /dev/zero /proc/self/environ below link none below/file/x pipe"


@pytest.mark.parametrize(
    "target",
    [*STRANGE.split(), "x" * 300],
)
def test_what_is_no_file_of_the_tree_is_not_there(source: Path, target: str) -> None:
    os.mkfifo(source / "pipe")
    (source / "link").symlink_to(target)
    assert content(source, "link") is None
    assert content(source, "link/deep") is None
    assert not Sign("link").shows(source)
    assert not Edit("link", "config", "x").fits(source)


def test_a_link_inside_the_tree_is_followed_by_every_name_of_the_tree(source: Path, tmp_path: Path) -> None:
    (source / "link").symlink_to("below/file")
    (tmp_path / "tree").symlink_to(source)
    for place in (source, tmp_path / "tree"):
        assert content(place, "link") == b"\xe9 inside\n"
        assert text(place, place / "link") == "\udce9 inside\n"
        assert Sign("link", has="inside", lacks="x").shows(place)


def test_options_are_those_of_the_trees_own_files(source: Path) -> None:
    (source / "Kconfig").write_text("config INSIDE\n")
    (source / "Kconfig.more").symlink_to("../outside")
    assert kconfig.symbols(source) == {"CONFIG_INSIDE"}


RECORDED = Path(__file__).parent / "recorded/linux-6.1"
FILES = """
    init/main.c arch/x86/kernel/head_64.S arch/arm/crypto/Kconfig drivers/md/dm.c drivers/md/dm-core.h
    include/linux/fs.h lib/../lib/crc32.c tools/objtool/check.c include/linux/gone.h ./include/generated/autoksyms.h
    ./arch/x86/entry/vdso/vdso-image-64.c /usr/lib/gcc/x86_64-linux-gnu/12/include/stdarg.h
"""
READ = Sources(frozenset(FILES.split()))
READ_OR_MAYBE = """
    init/main.c include/linux/fs.h tools/objtool/check.c include/linux/gone.h Makefile drivers/net/Kconfig.debug
    Documentation/Kconfig arch/arm/crypto/Kconfig include/uapi/Kbuild scripts/basic/anything.h arch/x86/tools/relocs.c
    tools/include/linux/list.h arch/x86/kernel/vmlinux.lds.S include/asm-generic/vmlinux.lds.h kernel/time/timeconst.bc
    kernel/gen_kheaders.sh certs/extract-cert.c usr/gen_init_cpio.c crypto/rsapubkey.asn1 localversion-rt .gitattributes
    kernel/configs/tiny.config rust/Makefile sound/pci/caf\ufffd.c
"""
NO_PART = """
    Documentation/admin-guide/device-mapper/cache.rst Documentation/devicetree/bindings/arm/cpus.yaml MAINTAINERS
    CREDITS .mailmap .gitignore tools/objtool/.gitignore LICENSES/preferred/GPL-2.0 arch/arm/boot/dts/am33xx.dtsi
    arch/arm/Kconfig arch/arm64/Makefile arch/arm64/kernel/vmlinux.lds.S tools/perf/builtin-stat.c
    tools/testing/selftests/Makefile
"""
OF_NO_COMPILER = """
    drivers/net/wireless/ath/ath9k/main.c include/linux/usb.h arch/x86/kernel/cpu/amd.c drivers/md/dm-raid.c
"""


@pytest.mark.parametrize(
    ("paths", "counts", "counts_if_new"),
    [(READ_OR_MAYBE, True, True), (NO_PART, False, False), (OF_NO_COMPILER, False, None)],
    ids=["read, or may be without saying so", "takes no part, not even when it is new", "no compiler read it"],
)
def test_which_changes_count(paths: str, counts: bool, counts_if_new: bool | None) -> None:
    for path in paths.split():
        assert READ.counts(Change(path)) is counts, path
        assert counts_if_new in (READ.counts(Change(path, added=True)), None), path


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("drivers/net/fs.h", "another directory of -I may have linux/fs.h"),
        ("net/sched/stdarg.h", "a header of the compiler's may be hidden"),
        ("sound/core/autoksyms.h", "a generated header may be hidden"),
        ("arch/x86/kernel/head_64.c", "kbuild takes x.c before x.S"),
        ("arch/x86/entry/vdso/vdso-image-64.S", "a generated source may be hidden"),
        ("include/linux/brand-new.h", "__has_include"),
        ("arch/x86/include/asm/brand-new.h", "__has_include, and generic headers that are wrapped when there is none"),
        ("drivers/md/errata/abi-1.h", "__has_include beside the file that asks"),
    ],
)
def test_a_new_file_counts_where_one_may_be_looked_for(path: str, why: str) -> None:
    assert READ.counts(Change(path, added=True)), why
    assert not READ.counts(Change(path))


def test_a_new_file_far_from_all_that_was_read_does_not_count() -> None:
    assert not READ.counts(Change("sound/pci/hda/brand-new.c", added=True))


@pytest.mark.parametrize(
    ("option", "path"),
    [("CONFIG_IKHEADERS", "include/linux/usb.h"), ("CONFIG_UAPI_HEADER_TEST", "include/uapi/linux/usb.h"),
     ("CONFIG_RUST", "rust/kernel/lib.rs")],
)  # fmt: skip
def test_an_option_may_read_all_of_a_kind(tmp_path: Path, option: str, path: str) -> None:
    build, source = built(tmp_path)
    for value, counts in (("y", True), ("m", True), ("n", False)):
        found = sources.collected(build, source, {option: value})
        assert found is not None
        assert found.counts(Change(path)) is counts


def built(tmp_path: Path) -> tuple[Path, Path]:
    """A build directory with what 6.1's build really wrote, and init/main.c in the words of v4.11's."""
    build, source = tmp_path / "build", tmp_path / "source"
    source.mkdir()
    shutil.copytree(RECORDED, build)
    for path in build.rglob(".*.cmd"):
        path.write_text(path.read_text().replace("/src/linux/", f"{source}/"))
    (build / "init").mkdir()
    (build / "init/.main.o.cmd").write_text(
        "cmd_init/main.o := gcc -Wp,-MD,init/.main.o.d  -nostdinc -c -o init/.tmp_main.o ../source/init/main.c\n\n"
        "source_init/main.o := ../source/init/main.c\n\n"
        "deps_init/main.o := \\\n"
        "    $(wildcard include/config/init/env/arg/limit.h) \\\n"
        "  ../source/include/linux/types.h \\\n"
        "  include/generated/bounds.h \\\n\n"
        "init/main.o: $(deps_init/main.o)\n\n$(deps_init/main.o):\n"
    )
    (build / "include/config").mkdir(parents=True)
    (build / "include/config/auto.conf.cmd").write_text(
        "deps_config := \\\n\tlib/Kconfig.debug \\\n\tKconfig \\\n\n"
        'ifneq "$(ARCH)" "x86"\ninclude/config/auto.conf: FORCE\nendif\n'
    )
    return build, source


def test_a_real_builds_files_are_found(tmp_path: Path) -> None:
    build, source = built(tmp_path)
    found = sources.collected(build, source, {}, ["arch/x86/Makefile"])
    assert found is not None
    assert found.files >= {
        "arch/x86/Makefile",  # to decide by
        "Kconfig",
        "lib/Kconfig.debug",
        "init/main.c",
        "include/linux/types.h",
        "./include/generated/bounds.h",
        "arch/x86/boot/copy.S",
        "arch/x86/include/asm/ibt.h",
        "./arch/x86/include/generated/uapi/asm/types.h",
        "scripts/mod/empty.c",
        "./subcmd-config.h",  # objtool's make has another working directory, and all of its sources count anyway
        "/usr/include/stdc-predef.h",
    }
    assert not any(word in file for file in found.files for word in ("wildcard", "\\", " ", "//"))


def test_a_file_read_by_a_symbolic_link_is_known_by_both_names(tmp_path: Path) -> None:
    build, source = built(tmp_path)
    (source / "include/real").mkdir(parents=True)
    (source / "include/real/types.h").write_text("")
    (source / "include/linux").symlink_to("real")
    found = sources.collected(build, source, {})
    assert found is not None
    assert {"include/linux/types.h", "include/real/types.h"} <= found.files
    (source / "include/linux").unlink()
    (source / "include/linux").mkdir()
    (source / "include/linux/types.h").symlink_to("../real/types.h")
    found = sources.collected(build, source, {})
    assert found is not None
    assert {"include/linux/types.h", "include/real/types.h"} <= found.files


def test_a_build_that_does_not_say_what_it_read_proves_nothing(tmp_path: Path) -> None:
    build, source = built(tmp_path)
    (build / "init/.main.o.cmd").unlink()
    assert sources.collected(build, source, {}) is None


def test_unknown_changes_prove_nothing() -> None:
    assert READ.same([])
    assert not READ.same(None)
    assert not READ.same([Change("MAINTAINERS"), Change("Makefile")])


def test_packed_and_unpacked_it_is_the_same() -> None:
    whole = Sources(READ.files | {"net/b\udce9.c"}, frozenset((".h", ".rs")))
    assert Sources.unpacked(whole.packed()) == whole
    assert Sources.unpacked(READ.packed()) == READ
    as_before = gzip.compress(b"\ninit/main.c\ninclude/linux/fs.h\n")
    assert Sources.unpacked(as_before) == Sources(frozenset(("init/main.c", "include/linux/fs.h")))
    assert READ.packed()[4:8] == bytes(4)  # no time of day (RFC 1952, MTIME)


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"x" + data, lambda data: b""])
def test_a_damaged_list_proves_nothing(damage: "type[bytes]") -> None:
    assert Sources.unpacked(damage(READ.packed())) is None
