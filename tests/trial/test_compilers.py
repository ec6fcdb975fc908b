"""One commit and several compilers, with real git, make and compiler on a stand-in tree."""

import hashlib
import os
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast
from unittest.mock import ANY

import pytest

from bisector.config import options
from bisector.core.errors import UserError
from bisector.core.subject import Commit, Compiler, Kernel
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.executor.base import BuildRequest, ControlRequest
from bisector.executor.local import LocalExecutor
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.host.files import remove_tree
from bisector.kernel import toolchain
from bisector.kernel.build import KernelBuilder, TreeChanges
from bisector.kernel.builddir import BuildPlaces
from bisector.kernel.cache import KernelCache
from bisector.trial.runner import Bench, TrialRequest, _RunningTrial
from bisector.vm.machine import VirtualMachines
from tests import examples, fakes
from tests.executor.bench import as_raised
from tests.kernel.fake_tree import FRAGMENT, copy_to

MAX_PAGE_SIZE = "arch/x86/Makefile"


@dataclass
class Shop:
    """A bench whose machines are never asked, and a commit of a tree that needs a quirk."""

    path: Path
    engine: LocalExecutor
    commit: Commit

    def compiler(self, name: str, says: str, fails_at: str = "") -> Compiler:
        """A compiler that fails at files of this name."""
        program = self.path / name
        fails = f'*{fails_at or "/nowhere/"}*) echo "x.c:1:1: error: {name} is too new" >&2; exit 1;;'
        answers = f'*--version*) echo "{says}"; exit;;'
        program.write_text(f'#!/bin/sh\ncase "$*" in\n{answers}\n{fails}\nesac\nexec gcc "$@"\n')
        program.chmod(0o755)
        return toolchain.named(str(program))

    def course(self, *compilers: Compiler) -> _RunningTrial:
        logs = self.path / "logs"
        logs.mkdir(exist_ok=True)
        return _RunningTrial(self.engine.bench, TrialRequest(1, examples.cell(self.commit), {}, compilers), logs)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    detect = toolchain.detect
    monkeypatch.setattr(toolchain, "detect", lambda command: replace(detect(command), cc=command))  # without ccache
    tmp_path.chmod(0o755)  # compilers are put here, and root's make is another user's
    top = copy_to(tmp_path / "linux")
    (top / MAX_PAGE_SIZE).write_text("# as before v4.16\n")
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for words in (("init", "-q", "-b", "main"), ("add", "-Af"), ("commit", "-qm", "a")):
        subprocess.run(["git", *words], cwd=top, env={**os.environ, **identity}, check=True)
    (tmp_path / "md.config").write_text(FRAGMENT)
    settings = options.load(directory=Path("/")).settings
    kernel = replace(settings.kernel, fragments=(str(tmp_path / "md.config"),), jobs=2)
    builder = KernelBuilder(kernel, KernelCache(tmp_path / "cache", 100_000_000))
    repository = Repository.open(top)
    source = SourceTree(repository, tmp_path / "run")
    machines = cast("VirtualMachines", None)
    bench = Bench(settings, tmp_path / "run", source, builder, machines, lambda event: None)
    return Shop(tmp_path, LocalExecutor(bench), repository.resolve("main"))


def test_the_first_that_builds_it_does(shop: Shop) -> None:
    new, old = shop.compiler("new-cc", "new 15", "dcache"), shop.compiler("old-cc", "old 9")
    kernel = shop.course(new, old).build()
    assert kernel.toolchain == old.identity
    assert kernel.quirks == ("max-page-size",)  # the second one, too, found the sources as they are
    assert shop.course(new, old).build().cached
    assert shop.engine.bench.builder.using(old).find(shop.commit.tree) == shop.course(old).build()
    assert shop.engine.bench.builder.using(new).find(shop.commit.tree) is None


def test_when_none_does_the_first_ones_error_is_told(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit in no range is built by the default compiler alone."""
    new, newer = shop.compiler("new-cc", "new 15", "dcache"), shop.compiler("newer-cc", "newer 16", "main.c")
    monkeypatch.setattr(toolchain, "installed", lambda: (new, shop.compiler("old-cc", "old 9")))
    for asked in ((new, newer), ()):
        with pytest.raises(KernelFault, match="new-cc is too new"):
            shop.course(*asked).build()


def test_a_try_tells_whether_and_keeps_the_kernel(shop: Shop) -> None:
    new, old = shop.compiler("new-cc", "new 15", "dcache"), shop.compiler("old-cc", "old 9")
    fault = fakes.faulted(shop.engine, BuildRequest(shop.commit, new))
    assert fault is not None
    assert (fault.kind, "new-cc is too new" in fault.reason) == (FaultKind.BUILD_ERROR, True)
    assert fakes.faulted(shop.engine, BuildRequest(shop.commit, old)) is None
    assert shop.course(old).build().cached
    logs = shop.path / "run/compilers"
    assert len(list(logs.glob("*/build.log"))) == 2


@pytest.mark.parametrize(("late", "kind"), [(1, None), (2, FaultKind.BUILD_TIMEOUT)])
def test_a_try_that_is_not_done_in_time_is_made_twice(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, late: int, kind: FaultKind | None
) -> None:
    build, faults = KernelBuilder.build, [as_raised(fakes.BUILD_TIMEOUT)] * late

    def slow(builder: KernelBuilder, tree: str, places: BuildPlaces, trees: TreeChanges) -> Kernel:
        if faults:
            raise faults.pop()
        return build(builder, tree, places, trees)

    monkeypatch.setattr(KernelBuilder, "build", slow)
    fault = fakes.faulted(shop.engine, BuildRequest(shop.commit, shop.compiler("cc", "cc 12.2")))
    assert (fault.kind if fault else None) is kind
    assert faults == []


def test_a_compiler_that_changes_under_way_builds_nothing(shop: Shop) -> None:
    compiler = shop.compiler("cc", "cc 12.2")
    shop.compiler("cc", "cc 12.3")
    with pytest.raises(UserError, match=r"it was cc 12\.2, .*, and is cc 12\.3, "):
        shop.course(compiler).build()


def test_an_end_is_built_anew_and_a_host_that_builds_no_more_is_told_and_begins_with_nothing(shop: Shop) -> None:
    compiler = shop.compiler("cc", "cc 12.2")
    shop.course(compiler).build()
    logs = shop.path / "run/controls" / f"build-{shop.commit.short}"
    assert fakes.faulted(shop.engine, ControlRequest(shop.commit, (compiler,), Stage.BUILD)) is None
    assert "Entering directory" in (logs / "build.log").read_text()  # a kernel of the cache has no log
    shop.compiler("cc", "cc 12.2", "dcache")  # the same by its version, and it fails
    for built in shop.engine.bench.build_dir.rglob("dcache.o"):  # as after a commit that changed it
        built.unlink()
    fault = fakes.faulted(shop.engine, ControlRequest(shop.commit, (compiler,), Stage.BUILD))
    assert fault is not None
    assert (fault.kind, "cc is too new" in fault.reason) == (FaultKind.BUILD_ERROR, True)
    assert list(shop.engine.bench.build_dir.iterdir()) == []


def test_a_known_failure_is_not_believed_where_it_is_doubted(shop: Shop) -> None:
    compiler = shop.compiler("cc", "cc 12.2", "dcache")
    with pytest.raises(KernelFault) as caught:
        shop.course(compiler).build()
    shop.compiler("cc", "cc 12.2")
    course = shop.course(compiler)
    if not caught.value.cached:
        with pytest.raises(KernelFault) as known:
            course.build()
        assert known.value.cached
    course.request = replace(course.request, anew=True)
    assert not course.build().cached
    assert shop.course(compiler).build().cached


# A kernel that was measured before


def again(shop: Shop, kernel: Kernel, compiler: Compiler) -> Kernel:
    """The kernel of a further trial of the commit."""
    course = shop.course(compiler)
    course.request = replace(course.request, kernel=kernel)
    return course.build()


def makes_other_code(shop: Shop) -> None:
    """From now on, by the same version; nothing that was built is left."""
    program = shop.path / "cc"
    program.write_text(program.read_text().replace('"$@"', '"$@" -O0'))
    shop.engine.bench.builder._cache.clear(spare_used=False)
    remove_tree(shop.engine.bench.build_dir)


def test_the_kernel_that_was_measured_is_taken_whatever_would_be_built_by_now(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the compiler was upgraded."""
    compiler = shop.compiler("cc", "cc 12.2")
    first = shop.course(compiler).build()
    monkeypatch.setattr("bisector.kernel.build.quirks.digest", lambda _: "those of another version")
    monkeypatch.setattr(KernelBuilder, "build", None)
    shop.compiler("cc", "cc 12.3")
    found = again(shop, first, compiler)
    assert (found.key, found.content_sha256, found.cached) == (first.key, first.content_sha256, True)
    assert (shop.path / "logs/kernel.config").read_text() == first.config.read_text()


def test_a_kernel_that_is_built_once_more_is_the_same_one_or_refused(shop: Shop) -> None:
    """Here a tool of the build changes that no version tells of."""
    compiler = shop.compiler("cc", "cc 12.2")
    first = shop.course(compiler).build()
    shop.engine.bench.builder._cache.clear(spare_used=False)
    assert again(shop, first, compiler) == replace(shop.course(compiler).build(), cached=False, build_s=ANY)
    makes_other_code(shop)
    for _ in range(2):  # the second time it is kept
        with pytest.raises(UserError, match="no longer cached, and a rebuild differs: though of the same"):
            again(shop, first, compiler)


def test_a_kernel_of_another_version_of_bisector_is_refused_where_it_is_another_one(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = shop.compiler("cc", "cc 12.2")
    first = shop.course(compiler).build()
    shop.engine.bench.builder._cache.clear(spare_used=False)
    monkeypatch.setattr("bisector.kernel.build.QUIRKS", ())
    found = again(shop, first, compiler)  # no quirk that it had did anything to its code
    assert (found.content_sha256, found.key == first.key) == (first.content_sha256, False)
    makes_other_code(shop)
    with pytest.raises(UserError, match="a rebuild differs: its quirks changed from max-page-size to none") as caught:
        again(shop, first, compiler)
    assert caught.value.hint.endswith("begin anew: `bisector report` ends with the command")


# A configuration fragment of a subject's own


def on_top(shop: Shop, text: str = "") -> BuildRequest:
    """The build of the commit with a fragment, if there is a text for it, on top of what every kernel has."""
    settings, file = shop.engine.bench.settings, shop.path / "more.config"
    file.write_text(text)
    kernel = replace(settings.kernel, fragments=(str(shop.path / "md.config"), *([str(file)] if text else [])), jobs=2)
    fragment = hashlib.sha256(b"").hexdigest() if text else ""
    return BuildRequest(shop.commit, shop.compiler("cc", "cc 12.2"), replace(settings, kernel=kernel), fragment)


@pytest.mark.parametrize("kept", [False, True])
def test_a_commit_with_a_fragment_on_top_is_another_kernel(shop: Shop, kept: bool) -> None:
    assert fakes.faulted(shop.engine, on_top(shop)) is None
    request = on_top(shop, "# CONFIG_DM_CACHE_SMQ is not set\n")
    assert fakes.faulted(shop.engine, request) is None
    if kept:
        assert fakes.faulted(shop.engine, request) is None
    logs = [path for path in (shop.path / "run/compilers").iterdir() if (path / "kernel.config").is_file()]
    configs = {(path / "kernel.config").read_text().count("CONFIG_DM_CACHE_SMQ=y") for path in logs}
    assert (len(logs), configs) == (2, {0, 1})
    assert len(shop.engine.bench.builder._cache.keys("")) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CONFIG_DM_CACHE=y\n", "more.config changes nothing: without it CONFIG_DM_CACHE=y is so, too"),
        ("CONFIG_NEVER=y\n", "more.config asks for CONFIG_NEVER=y, which Kconfig does not set"),
        ("#: optional\nCONFIG_NEVER=y\n", "more.config changes nothing"),
    ],
)
@pytest.mark.parametrize("tried_before", [False, True])
def test_a_fragment_without_effect_is_refused_and_nothing_is_compiled(
    shop: Shop, text: str, said: str, tried_before: bool
) -> None:
    assert fakes.faulted(shop.engine, on_top(shop)) is None
    request = on_top(shop, text)
    if tried_before:  # by another run, which did not ask for it as an arm's own
        assert fakes.faulted(shop.engine, replace(request, fragment="")) is None
    with pytest.raises(UserError, match=re.escape(said)):
        fakes.faulted(shop.engine, request)
    own = request.fragment[:12]
    (logs,) = (path for path in (shop.path / "run/compilers").iterdir() if path.name.endswith(own))
    assert "  CC " not in (logs / "build.log").read_text() if (logs / "build.log").exists() else tried_before


def test_a_fragment_on_a_commit_that_does_not_build_is_a_failure_of_the_build(shop: Shop) -> None:
    request = on_top(shop, "# CONFIG_DM_CACHE_SMQ is not set\n")
    fault = fakes.faulted(shop.engine, replace(request, compiler=shop.compiler("bad", "bad 1", "dcache")))
    assert fault is not None
    assert fault.kind is FaultKind.BUILD_ERROR
