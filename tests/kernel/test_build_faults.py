"""Builds that fail: what is the kernel's fault, what is the host's, and what is seen twice before it is believed."""

import os
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Kernel, RebuildCheck
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.host.files import discard
from bisector.kernel import builddir, toolchain
from bisector.kernel.build import KernelBuilder, TreeChanges
from bisector.kernel.builddir import Make
from bisector.kernel.product import Product
from tests.kernel.bench import SETTINGS, Bench, ccache_hits, ccache_in, compiler_that, recalled, slow_compiler
from tests.kernel.fake_tree import FRAGMENT, edit, iops_of, set_iops, spoil
from tests.programs import program


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
    monkeypatch.setitem(toolchain._HEADERS, "gone.h", ("libgone-dev", "headers", None))
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


def test_a_kconfig_error_is_the_kernels_fault(bench: Bench) -> None:
    edit(bench.source, "drivers/md/Kconfig", "config MD", "konfig MD")
    with pytest.raises(KernelFault) as caught:
        bench.build("misspelt")
    assert (caught.value.stage, caught.value.kind) == (Stage.CONFIG, FaultKind.CONFIG_ERROR)
    assert caught.value.reason == "drivers/md/Kconfig:1: syntax error"
    known = recalled(bench, "misspelt")
    assert known is not None
    assert known.fault == replace(caught.value.fault, cached=True)


def test_a_build_over_its_deadline_is_told_as_such(bench: Bench) -> None:
    compiler = slow_compiler(bench.path / "slow-cc", bench.path / "build/hung")
    bench.settings = replace(SETTINGS, compilers=(compiler,), build_deadline_s=1.0)
    with pytest.raises(KernelFault, match="kernel build not done after 1 s") as caught:
        bench.build()
    assert caught.value.kind is FaultKind.BUILD_TIMEOUT
    assert recalled(bench, "tree1") is None
    bench.settings = SETTINGS
    bench.build()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("_NO_ROOM_BYTES", 1 << 60, "no room left"), ("_oom_kills", count().__next__, "out of memory")],
)
def test_no_room_or_memory_is_never_the_kernels_fault(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, value: object, said: str
) -> None:
    spoil(bench.source)
    monkeypatch.setattr(builddir, name, value)
    with pytest.raises(InfraError, match=said):
        bench.build()


def test_a_build_directory_that_cannot_be_made_is_the_hosts_fault(bench: Bench) -> None:
    (bench.path / "build").write_text("")
    with pytest.raises(InfraError, match="File exists"):
        bench.build()


def test_a_path_that_kbuild_cannot_take_is_said_before_make(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="space or colon"):
        Bench(tmp_path / "with space").build()


def test_what_was_forged_where_objects_are_kept_does_not_come_of_its_sources_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """make believes an object that is newer than its source, whoever put it there."""
    ccache_in(tmp_path, monkeypatch)
    bench = Bench(tmp_path / "run")
    own = bench.source / "fs/dcache.c"
    text, honest = own.read_text(), bench.build()
    own.write_text(f"{text}\nint forged(void) {{ return 1; }}\n")
    bench.build()
    own.write_text(text)
    os.utime(own, (0, 0))
    forged = bench.build()
    assert forged.content_sha256 != honest.content_sha256
    # One that is not as measured is built from an empty directory before that is believed.
    for kernel, builds in ((honest, 1), (forged, 2)):
        bench.builds += 1
        before = ccache_hits()
        assert bench.builder.check_by_rebuild(kernel, bench.places) == RebuildCheck((honest.content_sha256,) * builds)
        assert len(bench.made()) == 6
        assert ccache_hits() == before
    # That is kept for a kernel that came of it, as long as this is kept itself.
    assert bench.builder.recorded_rebuild_check(honest) == RebuildCheck((honest.content_sha256,), earlier=True)
    assert bench.builder.recorded_rebuild_check(forged) is None
    (honest.image.parent / "checked").write_text("damaged")
    assert bench.builder.recorded_rebuild_check(honest) is None
    bench.builder._cache.mark_checked(honest)
    bench.builder._cache.clear(spare_used=False)
    assert bench.builder.recorded_rebuild_check(honest) is None
    bench.builder._cache.mark_checked(honest)  # nothing, since it is gone
    assert bench.builder.recorded_rebuild_check(honest) is None
    set_iops(bench.source, 1234)
    changed = bench.build()
    for made in (6, 0):  # that was no such build, after which the directory is emptied again
        bench.builds += 1
        assert bench.builder.check_by_rebuild(changed, bench.places) == RebuildCheck((changed.content_sha256,))
        assert len(bench.made()) == made
    other = replace(honest, key=f"{'0' * 32}-{honest.tree}")
    assert "builds kernels in another way" in bench.builder.check_by_rebuild(other, bench.places).why_not


def test_what_a_check_compiled_is_believed_by_the_next_run_s_check_until_it_is_not_as_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that makes other code once: of that ccache knows nothing."""
    ccache_in(tmp_path, monkeypatch)
    once = tmp_path / "once"
    script = f'case $* in *dcache.c*) [ ! -e {once} ] || exec gcc -DODD "$@";; esac\nexec gcc "$@"'
    odd = program(tmp_path / "odd-cc", script)
    tmp_path.chmod(0o755)
    of_checks = {"CCACHE_DIR": str(toolchain.ccache_of_checks())}

    def run(name: str) -> tuple[Kernel, RebuildCheck]:
        bench = Bench(tmp_path / name)
        bench.settings = replace(bench.settings, compilers=(str(odd),))
        source = bench.source / "fs/dcache.c"
        source.write_text(f"{source.read_text()}\n#ifdef ODD\nint odd(void) {{ return 1; }}\n#endif\n")
        kernel = bench.build()
        bench.builds += 1
        return kernel, bench.builder.check_by_rebuild(kernel, bench.places)

    first, check = run("first")
    assert check == RebuildCheck((first.content_sha256,))
    assert (ccache_hits(), ccache_hits(of_checks)) == (0, 0)
    second, again = run("second")
    assert (second.content_sha256, again) == (first.content_sha256, check)
    hits = ccache_hits()
    assert ccache_hits(of_checks) == hits > 0
    once.touch()
    discard(toolchain.sandboxed_ccache())
    odd_one, check = run("third")
    assert check == RebuildCheck((first.content_sha256, odd_one.content_sha256))
    assert odd_one.content_sha256 != first.content_sha256
    assert not toolchain.ccache_of_checks().exists()


def test_a_check_that_does_not_build_compiles_everything_before_that_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what is wrong with the objects of earlier checks would stop each search from now on."""
    ccache_in(tmp_path, monkeypatch)
    bench = Bench(tmp_path / "run")
    kernel, once, made = bench.build(), KernelBuilder._made_once, list[str]()

    def fails_first(self: KernelBuilder, make: Make, tree: str = "", trees: TreeChanges | None = None) -> Product:
        made.append(make.environment.get("CCACHE_RECACHE", ""))
        if len(made) == 1:
            raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, "ld: dcache.o: file not recognized")
        return once(self, make, tree, trees)

    monkeypatch.setattr(KernelBuilder, "_made_once", fails_first)
    assert bench.builder.check_by_rebuild(kernel, bench.places) == RebuildCheck((kernel.content_sha256,))
    assert made == ["", "1"]
