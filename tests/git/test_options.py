"""The options of a commit's tree, by git's own grep, and what a stack lacks there."""

from pathlib import Path

import pytest

from bisector.config import options
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.doctor.checks import check_tree, needs, trees_have, undefined, unsupported
from bisector.storage.layer import LAYERS, Since
from bisector.storage.stack import Values, stack_of
from tests.git.conftest import Make
from tests.git.histories import KERNEL_TREE, Node, git

MD = """\
menuconfig MD
\tbool "Multiple devices driver support (RAID and LVM)"
if MD
  config BLK_DEV_DM
\ttristate "Device mapper support"
config DM_CACHE # of 3.9
\ttristate
config DM_CACHE_SMQ_NEXT
\tbool
# config DM_CACHE_SMQ
\t  This help tells of config DM_CACHE_SMQ
endif
"""
ALL = ("CONFIG_MD", "CONFIG_BLK_DEV_DM", "CONFIG_DM_CACHE", "CONFIG_DM_CACHE_SMQ", "CONFIG_X86_64")


TREES = (
    Node("without", files={**KERNEL_TREE, "drivers/Kconfig": "config BLK_DEV_LOOP\n", "drivers/md/Kconfig": MD}),
    Node("told", ("without",), files={"Documentation/md.rst": "config DM_CACHE_SMQ\n"}),
    Node("with", ("told",), files={"drivers/md/Kconfig.cache": "\tconfig DM_CACHE_SMQ\n\t\ttristate\n"}),
)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("without", {"CONFIG_DM_CACHE_SMQ", "CONFIG_X86_64"}),
        ("told", {"CONFIG_DM_CACHE_SMQ", "CONFIG_X86_64"}),
        ("with", {"CONFIG_X86_64"}),
    ],
)
def test_options_are_read_from_the_tree_of_any_commit(make: Make, name: str, missing: set[str]) -> None:
    repository, names = make(TREES)
    git(repository.top, "config", "grep.lineNumber", "true")
    git(repository.top, "config", "grep.patternType", "fixed")
    assert undefined(repository, names[name], ALL) == missing
    assert undefined(repository, names[name], ()) == frozenset()
    git(repository.top, "config", "remote.origin.promisor", "true")  # git would fetch each of its Kconfig files alone
    assert undefined(repository, names[name], ALL) == frozenset()


def values(stack: str) -> Values:
    return options.load({"storage.stack": stack}, directory=Path("/")).settings.storage.layers


def needed(stack: str) -> dict[str, str]:
    return needs(stack_of(stack), values(stack))


def test_what_layers_need_is_what_their_fragments_require(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert needed("lvmcache")["CONFIG_DM_CACHE_SMQ"] == "lvmcache"
    assert needed("hdd") == {}
    fragment = tmp_path / "own.config"
    fragment.write_text("CONFIG_A=y\n#: optional\nCONFIG_B=y\n#: required\n# CONFIG_C is not set\nCONFIG_D=m\n")
    monkeypatch.setattr(LAYERS["ext4"], "fragments", (str(fragment),))
    assert needed("hdd") == {"CONFIG_A": "ext4", "CONFIG_D": "ext4"}


def test_a_commit_without_an_option_is_refused_by_name(make: Make) -> None:
    repository, names = make(TREES)
    old, new = repository.commits([names["without"], names["with"]])
    assert undefined(repository, old.sha, needed("lvmcache")) == {"CONFIG_DM_CACHE_SMQ"}
    assert undefined(repository, new.sha, needed("lvmcache")) == set()
    check_tree(repository, [new, old], stack_of("hdd"), values("hdd"))
    with pytest.raises(UserError) as caught:
        check_tree(repository, [new, old], stack_of("lvmcache"), values("lvmcache"))
    assert caught.value.message == (
        f"{old.short} (without) has no CONFIG_DM_CACHE_SMQ in its Kconfig files: the layer lvmcache of the stack "
        "lvmcache does not work without"
    )
    assert "git log --reverse -S'config DM_CACHE_SMQ'" in (caught.value.hint or "")


def test_every_layer_names_fragments_that_are_there() -> None:
    for layer in LAYERS.values():
        for name in layer.fragments:
            assert resources.fragment(name).is_file()


CRYPT = "crypt(hdd,sector_size=4096)+ext4"
OPTIONS = "".join(f"config {name}\n" for name in ("MD", "BLK_DEV_DM", "DM_CRYPT"))
OPTIONS += "".join(f"config CRYPTO_{name}\n" for name in ("AES", "XTS", "CBC", "SHA256"))
PARSER = 'else if (sscanf(opt_string, "sector_size:%hu%c", &cc->sector_size, &dummy) == 1)\n'
# The version is that of the older release until the next one's first candidate, whatever was merged in the meantime.
VERSIONS = (
    Node("v4.11", files={**KERNEL_TREE, "Makefile": "VERSION = 4\nPATCHLEVEL = 11\n", "drivers/Kconfig": OPTIONS}),
    Node("named elsewhere", ("v4.11",), files={"drivers/md/dm-integrity.c": PARSER, "drivers/md/dm-crypt.c": "\n"}),
    Node("merged", ("named elsewhere",), files={"drivers/md/dm-crypt.c": PARSER}),
)


def test_the_oldest_tree_decides_what_all_have(make: Make) -> None:
    repository, names = make(VERSIONS)
    since = Since("v4.12", "drivers/md/dm-crypt.c", "sector_size:%")
    assert trees_have(repository.top, [names["merged"]], since)
    assert not trees_have(repository.top, [names["v4.11"], names["merged"]], since)
    git(repository.top, "config", "remote.origin.promisor", "true")
    assert trees_have(repository.top, [names["v4.11"]], since)


def test_a_system_call_of_the_workload_is_looked_for_where_the_version_may_lack_it(make: Make) -> None:
    def tree(version: str, **further: str) -> dict[str, str]:
        return {**KERNEL_TREE, "Makefile": f"VERSION = {version[0]}\nPATCHLEVEL = {version[2:]}\n", **further}

    header = {"include/uapi/linux/io_uring.h": "struct io_uring_params {};\n"}
    nodes = (
        Node("v4.20", files=tree("4.20")),
        Node("v6.1", ("v4.20",), files=tree("6.1")),
        Node("taken back", ("v4.20",), files=tree("4.20", **header)),
    )
    repository, names = make(nodes)
    old, new, backport = repository.commits([names[node.name] for node in nodes])
    job = Path(__file__).parent.parent / "data" / "jobs" / "engines-uring.fio"
    settings = options.load({"storage.stack": "hdd", "workload.job": str(job)}, directory=Path("/")).settings
    stack = settings.storage.stack, settings.storage.layers
    check_tree(repository, [new, backport], *stack, settings.further_features)
    with pytest.raises(UserError, match=r"has no io_uring .line 2 .*which kernels have since v5\.1"):
        check_tree(repository, [old, new], *stack, settings.further_features)


def test_what_a_setting_asks_of_a_driver_is_looked_for_in_its_sources(make: Make) -> None:
    repository, names = make(VERSIONS)
    asked = stack_of(CRYPT).features(values(CRYPT))
    (found,) = {one for _, one in asked}
    before, elsewhere, merged = repository.commits([names[node.name] for node in VERSIONS])
    assert unsupported(repository, before, asked) == unsupported(repository, elsewhere, asked) == (("crypt", found),)
    assert unsupported(repository, merged, asked) == ()
    check_tree(repository, [merged], stack_of(CRYPT), values(CRYPT))
    check_tree(repository, [before], stack_of("crypt(hdd)+ext4"), values(CRYPT))
    with pytest.raises(UserError) as caught:
        check_tree(repository, [merged, before], stack_of(CRYPT), values(CRYPT))
    assert caught.value.message == (
        f"{before.short} (v4.11) has no sectors of 4096 bytes, which kernels have since v4.12: the layer crypt of the "
        f"stack {stack_of(CRYPT)} asks for it"
    )
    assert caught.value.hint.startswith("change storage.stack, or choose commits that have it: git log --reverse")
    git(repository.top, "config", "remote.origin.promisor", "true")
    assert unsupported(repository, before, asked) == ()


@pytest.mark.parametrize(
    "stack",
    [
        *("lvmcache", "lvmwritecache", "bcache", "ram", "raid1(ssd,hdd)+ext4", "raid5(ssd,hdd,ram)+ext4"),
        *("crypt(hdd)+ext4", "hdd+xfs", "hdd+btrfs"),
    ],
)
def test_defaults_ask_for_nothing_that_came_after_the_driver(stack: str) -> None:
    assert stack_of(stack).features(values(stack)) == ()
