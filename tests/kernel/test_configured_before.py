"""A build directory is configured again where what configures it has changed, and only there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from bisector.core.subject import Change
from bisector.core.trial import KernelFault
from bisector.kernel import sources
from tests.kernel.bench import SETTINGS, Bench
from tests.kernel.fake_tree import FRAGMENT, SMQ, edit, iops_of, set_iops, spoil

_GOALS = ["allnoconfig", "olddefconfig", "savedefconfig"]


@dataclass
class Told:
    """Trees of which these paths differ; None where nobody can say."""

    paths: Sequence[str] | None = ()
    asked: tuple[str, str] = ("", "")

    def changes(self, old: str, new: str) -> Sequence[Change] | None:
        self.asked = (old, new)
        return None if self.paths is None else [Change(path) for path in self.paths]

    def alike_at(self, tree: str, others: Sequence[str], paths: Sequence[str]) -> Sequence[str]:
        return ()


@pytest.fixture
def bench(bench: Bench) -> Bench:
    """Built once; its make tells which goals configure."""
    conf = "\t@python3 -IS $(srctree)/scripts/kconfig/conf.py $@"
    edit(bench.source, "Makefile", conf, f"\t@echo '  CONF    $@'\n{conf}")
    bench.build("first", Told())
    assert bench.made("CONF") == _GOALS
    return bench


def test_a_change_that_only_compilers_read_configures_nothing(bench: Bench) -> None:
    set_iops(bench.source, 4000)
    told = Told([SMQ, "Documentation/index.rst", "MAINTAINERS"])
    kernel = bench.build("second", told)
    assert told.asked == ("first", "second")
    assert bench.made("CONF") == []
    assert bench.made() == ["drivers/md/dm-cache-policy-smq.o"]
    assert iops_of(kernel.image) == 4000
    for name in ("kernel.config", "kernel.defconfig"):
        assert (bench.places.logs / name).read_text() == kernel.config.with_name(name).read_text()
    alone = Bench(bench.path / "alone")
    alone.source = bench.source
    made_from_nothing = alone.build()
    assert kernel.content_sha256 == made_from_nothing.content_sha256
    assert kernel.config.read_text() == made_from_nothing.config.read_text()
    assert kernel.unmet == made_from_nothing.unmet


@pytest.mark.parametrize("paths", [[SMQ, "Makefile"], ["init/main.c"], None])
def test_any_other_change_configures_again(bench: Bench, paths: Sequence[str] | None) -> None:
    bench.build("second", Told(paths))
    assert bench.made("CONF") == _GOALS
    bench.build("third", told := Told())
    assert told.asked == ("second", "third")
    assert bench.made("CONF") == []


def test_another_configuration_configures_again(bench: Bench) -> None:
    bench.fragment("other", FRAGMENT + "CONFIG_SMP=y\n")
    bench.settings = replace(SETTINGS, fragments=("other",))
    bench.build("second", Told())
    assert bench.made("CONF") == _GOALS


def test_a_configuration_that_make_has_altered_is_made_again(bench: Bench) -> None:
    with (bench.places.build / ".config").open("a") as config:
        config.write("CONFIG_ODD=y\n")
    kernel = bench.build("second", Told())
    assert bench.made("CONF") == _GOALS
    assert "CONFIG_ODD" not in kernel.config.read_text()


def test_a_build_that_fails_leaves_the_configuration(bench: Bench) -> None:
    right = (bench.source / "fs/dcache.c").read_text()
    spoil(bench.source)
    with pytest.raises(KernelFault):
        bench.build("second", Told(["fs/dcache.c"]))
    assert bench.made("CONF") == []
    (bench.source / "fs/dcache.c").write_text(right)
    bench.build("third", told := Told(["fs/dcache.c"]))
    assert told.asked == ("second", "third")
    assert bench.made("CONF") == []


@pytest.mark.parametrize(
    ("path", "may"),
    [
        ("fs/ext4/inode.c", False),
        ("Documentation/filesystems/ext4.rst", False),
        ("tools/perf/Makefile", False),
        ("fs/Kconfig.binfmt", True),
        ("scripts/kconfig/conf.c", True),
        ("arch/x86/configs/x86_64_defconfig", True),
    ],
)
def test_what_may_configure(path: str, *, may: bool) -> None:
    assert sources.may_configure(Change(path)) is may
