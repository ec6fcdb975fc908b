"""A stand-in tree, and the real code that builds it."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from bisector.config import KernelSettings
from bisector.core.subject import Kernel
from bisector.core.trial import KernelFault
from bisector.host import process
from bisector.kernel import toolchain
from bisector.kernel.build import KernelBuilder, TreeChanges
from bisector.kernel.builddir import BuildPlaces
from bisector.kernel.cache import KernelCache
from tests.kernel.fake_tree import FRAGMENT, copy_to
from tests.programs import program

SETTINGS = KernelSettings(None, ("md",), ("gcc",), jobs=2, build_deadline_s=60.0, sandbox=True, recheck=True)


class Bench:
    """A tree, a build directory kept between builds, and logs of each build of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.mkdir(exist_ok=True)
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
        files = (one if "/" in one else str(self.kconfigs / f"{one}.config") for one in self.settings.fragments)
        return KernelBuilder(replace(self.settings, fragments=tuple(files)), self.cache)

    @property
    def places(self) -> BuildPlaces:
        return BuildPlaces(self.source, self.path / "build", self.path / "logs" / str(self.builds), self.path)

    def build(self, tree: str | None = None, trees: TreeChanges | None = None) -> Kernel:
        self.builds += 1
        return self.builder.build(tree or f"tree{self.builds}", self.places, trees)

    def made(self, tool: str = "CC") -> list[str]:
        """What the last build compiled (or linked), from its log."""
        return sorted(re.findall(rf"^  {tool} +(\S+)$", (self.places.logs / "build.log").read_text(), re.MULTILINE))


def ccache_in(cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ccache keep everything there: the cache of the sandbox, and that of builds without one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    monkeypatch.setenv("CCACHE_DIR", str(toolchain.sandboxed_ccache()))


def ccache_hits(environment: Mapping[str, str] = MappingProxyType({})) -> int:
    statistics = process.run(["ccache", "--print-stats"], deadline_s=10, env=environment).stdout
    return sum(int(n) for n in re.findall(r"^(?:direct|preprocessed)_cache_hit\s+(\d+)", statistics, re.MULTILINE))


def recalled(bench: Bench, tree: str) -> KernelFault | None:
    """What another run of the same settings knows of a tree before it has its source."""
    logs = bench.path / "logs of another run"
    logs.mkdir(exist_ok=True)
    try:
        bench.builder.recall_failure(tree, logs)
    except KernelFault as fault:
        return fault
    return None


def compiler_that(path: Path, last: str) -> str:
    """gcc that, having compiled fs/dcache.c, does something else, too."""
    return str(program(path / "odd-cc", f'case "$*" in *dcache.c*) gcc "$@"; {last};; *) exec gcc "$@";; esac'))


def slow_compiler(path: Path, marker: Path) -> str:
    """A compiler that leaves half an object behind and hangs."""
    script = (
        'case "$*" in *dcache.c*) ;; *) exec gcc "$@";; esac\n'
        'for word; do [ "$previous" = -o ] && object=$word; previous=$word; done\n'
        f'trap "" TERM; printf half > "$object"; : > {marker}; while :; do sleep 0.1; done'
    )
    return str(program(path, script))
