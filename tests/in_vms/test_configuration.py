"""Fragments and distributions' configurations, merged by the Kconfig of the real tree; nothing boots here."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.config import BARE_FRAGMENT, BASE_FRAGMENT, GUEST_FRAGMENT, KernelSettings
from bisector.kernel import kconfig
from bisector.kernel.build import KernelBuilder
from bisector.kernel.builddir import BuildPlaces
from bisector.kernel.cache import KernelCache
from bisector.storage.crypt import CIPHERS
from bisector.storage.layer import LAYERS
from bisector.storage.lvmcache import LvmCache
from scenarios.demo.history import History

pytestmark = pytest.mark.vm

DATA = Path(__file__).parents[1] / "data/kconfig"
STACK = (GUEST_FRAGMENT, *LvmCache.fragments)
# What olddefconfig reads of a tree: two thousand small files of eighty thousand.
_READ = re.compile(r"(^|/)(Kconfig|Kbuild)|^(Makefile$|scripts/|arch/x86/(Makefile|[^/]*\.sh$|um/))")


@dataclass
class Tree:
    """The part of the real tree that Kconfig reads, and what became of a configuration in it."""

    path: Path

    def configured(
        self, base: Path | None, *fragments: str, at: str = "build"
    ) -> tuple[kconfig.Options, tuple[str, ...]]:
        """The effective options, and those asked for and not obtained."""
        settings = KernelSettings(base, fragments, ("gcc",), 2, 300.0, sandbox=True, recheck=True)
        builder = KernelBuilder(settings, KernelCache(self.path / "cache", 1))
        places = BuildPlaces(self.path / "source", self.path / at, self.path / f"{at}.logs", self.path)
        unmet = builder.configure(places)
        options = kconfig.parse((places.logs / "kernel.config").read_text())
        return options, unmet


@pytest.fixture(scope="module")
def tree(demo: History, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    path = tmp_path_factory.mktemp("tree")

    def git(*words: str) -> bytes:
        return subprocess.run(["git", "-C", demo.repo, *words], capture_output=True, check=True).stdout

    names = [name for name in git("ls-tree", "-r", "--name-only", demo.old).decode().splitlines() if _READ.search(name)]
    (path / "source").mkdir()
    subprocess.run(["tar", "-x", "-C", path / "source"], input=git("archive", demo.old, *names), check=True)
    return Tree(path)


_DISTRIBUTIONS = sorted(DATA.glob("*.gz"))


@pytest.mark.parametrize(
    "base",
    [*_DISTRIBUTIONS[:1], *(pytest.param(base, marks=pytest.mark.rare) for base in _DISTRIBUTIONS[1:])],
    ids=lambda path: path.stem,
)
def test_a_distributions_configuration_gets_built_in_what_the_guest_needs(tree: Tree, base: Path) -> None:
    asked = kconfig.parse(kconfig.read_base(base))
    options, unmet = tree.configured(base, BASE_FRAGMENT, *STACK)
    assert unmet == ()
    assert asked["CONFIG_VIRTIO_BLK"] == asked["CONFIG_EXT4_FS"] == asked["CONFIG_DM_CACHE_SMQ"] == "m"
    assert options["CONFIG_VIRTIO_BLK"] == options["CONFIG_EXT4_FS"] == options["CONFIG_DM_CACHE_SMQ"] == "y"
    # What was a module and is not needed stays one, and the distribution's own choices stay.
    assert kconfig.has_modules(options)
    assert sum(value == "m" for value in options.values()) > 3500
    assert options["CONFIG_UNWINDER_ORC"] == "y"
    assert options["CONFIG_NR_CPUS"] == asked["CONFIG_NR_CPUS"]
    # Nothing that needs the distribution's own files, a random key, or more than the compiler.
    assert options.get("CONFIG_SYSTEM_TRUSTED_KEYS", '""') == '""'
    for option in ("MODULE_SIG", "MODULE_SIG_KEY", "DEBUG_INFO", "DEBUG_INFO_BTF", "GCC_PLUGINS", "RUST"):
        assert options.get(f"CONFIG_{option}", "n") == "n", option


@pytest.mark.rare
def test_new_options_are_answered_the_same_each_time(tree: Tree) -> None:
    """Debian 13's .config on an older tree, and the reverse, have hundreds of questions."""
    base = DATA / "debian-13-6.12.107-1-amd64.gz"
    first, _ = tree.configured(base, BASE_FRAGMENT, *STACK, at="one")
    second, _ = tree.configured(base, BASE_FRAGMENT, *STACK, at="two")
    assert first == second


def test_the_smallest_kernel(tree: Tree) -> None:
    options, unmet = tree.configured(None, BARE_FRAGMENT, *STACK)
    assert unmet == ()
    assert not kconfig.has_modules(options)
    short = tree.path / "build.logs/kernel.defconfig"
    assert len(kconfig.parse(short.read_text())) < len(options) / 4
    assert tree.configured(short, at="short") == (options, ())
    for option in ("VT", "INPUT", "SLUB_DEBUG", "MODULES", "UNWINDER_ORC", "CPU_MITIGATIONS"):
        assert options.get(f"CONFIG_{option}", "n") == "n", option
    assert sum(value == "y" for value in options.values()) < 650


def test_what_is_added_on_purpose(tree: Tree) -> None:
    options, unmet = tree.configured(None, BARE_FRAGMENT, *STACK, "storage-bcache", "debug")
    assert unmet == ()
    assert {options[f"CONFIG_{name}"] for name in ("BCACHE", "LOCKDEP", "KASAN")} == {"y"}


def test_all_layers_in_one_kernel(tree: Tree) -> None:
    names = [name for layer in LAYERS.values() for name in layer.fragments]
    names += [name for cipher in CIPHERS.values() for name in cipher.fragments]
    names += ["storage-xfs-quota", "storage-btrfs-acl"]
    options, unmet = tree.configured(None, BARE_FRAGMENT, GUEST_FRAGMENT, *names)
    assert unmet == ()
    wanted = (
        "MD_RAID1",
        "MD_RAID456",
        "DM_CRYPT",
        "CRYPTO_XTS",
        "CRYPTO_ESSIV",
        "CRYPTO_ADIANTUM",
        "XFS_FS",
        "XFS_QUOTA",
        "BTRFS_FS",
    )
    assert {options[f"CONFIG_{name}"] for name in wanted} == {"y"}
