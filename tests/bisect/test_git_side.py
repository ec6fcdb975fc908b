"""Equal kernels found without a build: a stand-in tree, with real git, make and compiler."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bisector.campaign.equipment import KernelEquality
from bisector.config import KernelSettings, options
from bisector.core.events import Event
from bisector.core.subject import Commit, Kernel, Mattering, Relevance
from bisector.core.trial import Stage
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.git.trees import Trees
from bisector.kernel.build import KernelBuilder
from bisector.kernel.builddir import BuildPlaces
from bisector.kernel.cache import KernelCache
from bisector.trial.runner import Bench, TrialRequest, run_trial
from bisector.vm.machine import VirtualMachines
from tests import examples
from tests.git.histories import Node, build, git
from tests.kernel.fake_tree import FRAGMENT, TREE

WISHES = options.load(directory=Path("/")).settings
SETTINGS = KernelSettings(None, ("md",), ("gcc",), jobs=2, build_deadline_s=60.0, sandbox=True, recheck=True)
DCACHE = (TREE / "fs/dcache.c").read_text()

# On top of one another; which of them make another kernel than the commit before.
STEPS: tuple[tuple[str, Mapping[str, str], bool], ...] = (
    ("docs", {"Documentation/index.rst": "Nothing to see here.\n", "MAINTAINERS": "nobody\n"}, False),
    ("unread", {"drivers/md/dm-raid.c": "int raid;\n", "sound/core/pcm.c": "int pcm;\n"}, False),
    ("arm", {"arch/arm/kernel/head.S": "nop\n", "arch/arm/Makefile": "obj-y += head.o\n"}, False),
    ("read", {"fs/dcache.c": DCACHE + "int extra;\n"}, True),
    ("comment", {"fs/dcache.c": DCACHE + "int extra; /* more */\n"}, True),  # it has to be built to know
    ("makefile", {"sound/Makefile": "obj-y += core/\n"}, True),
    ("hidden", {"include/generated/compile.h": "#error\n"}, True),
)


@dataclass
class World:
    repository: Repository
    commits: Mapping[str, Commit]
    path: Path
    builds: int = field(default=0)

    @property
    def equality(self) -> KernelEquality:
        (self.path / "md.config").write_text(FRAGMENT)
        settings = replace(SETTINGS, fragments=(str(self.path / "md.config"),))
        cache = KernelCache(self.path / "cache", 100_000_000)
        return KernelEquality(Trees(self.repository), KernelBuilder(settings, cache))

    def build(self, name: str) -> Kernel:
        """Build a commit without asking for its equals."""
        self.builds += 1
        source = SourceTree(self.repository, self.path / "run").checkout(self.commits[name])
        places = BuildPlaces(source, self.path / "run/build", self.path / f"logs{self.builds}", self.path / "run")
        return self.equality.builder.build(self.commits[name].tree, places)

    def alike(self, name: str) -> Kernel | None:
        return self.equality.builder.find_alike(self.commits[name].tree, self.equality.trees)


@pytest.fixture
def world(tmp_path: Path, known_gcc: None) -> World:
    files = {str(path.relative_to(TREE)): path.read_text() for path in sorted(TREE.rglob("*")) if path.is_file()}
    files |= {"drivers/md/dm-raid.c": "int raid = 1;\n", "sound/core/pcm.c": "int pcm = 1;\n"}
    nodes = [Node("base", files=files)]
    for name, changed, _ in STEPS:
        nodes.append(Node(name, (nodes[-1].name,), files=changed))
    names = build(tmp_path / "linux", nodes)
    (tmp_path / "run").mkdir()
    repository = Repository.open(tmp_path / "linux")
    return World(repository, dict(zip(names, repository.commits(names.values()), strict=True)), tmp_path)


def test_a_commit_whose_files_take_no_part_has_a_kernel_already(world: World) -> None:
    base = world.build("base")
    before = "base"
    for name, _, counts in STEPS:
        found = world.alike(name)
        if name == "hidden":  # kbuild does not see it either: what it has compiled stays as it is
            assert found is None
            break
        if counts:
            assert found is None, name
            found = world.build(name)
            assert world.equality.parent_with_same_kernel(world.commits[name], found) is None
        else:
            assert found is not None, name
            assert world.equality.parent_with_same_kernel(world.commits[name], found) == world.commits[before]
            assert world.builds == 1, "no build was needed"
        assert found is not None
        before = name
    assert (base.tree, base.cached) == (world.commits["base"].tree, False)


def test_the_claim_is_true_of_what_is_built_all_the_same(world: World) -> None:
    contents = {"base": world.build("base").content_sha256}
    for name, _, counts in STEPS[:4]:
        contents[name] = world.build(name).content_sha256
        if not counts:
            assert contents[name] == contents["base"], name
    assert contents["read"] != contents["base"]


def test_going_back_is_as_good_as_going_on(world: World) -> None:
    world.build("arm")
    assert world.alike("base") is not None
    assert world.alike("read") is None


def test_the_kernel_found_says_whose_it_is_and_another_configuration_has_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, found = world.build("base"), world.alike("arm")
    assert found is not None
    assert (found.key, found.tree, found.content_sha256) == (base.key, base.tree, base.content_sha256)
    monkeypatch.setattr("tests.bisect.test_git_side.FRAGMENT", FRAGMENT + "CONFIG_SMP=y\n")
    assert world.alike("docs") is None


def test_a_kernel_of_another_repository_or_that_does_not_say_what_it_was_made_of_proves_nothing(world: World) -> None:
    kernel = world.build("base")
    entry = kernel.image.parent
    elsewhere = entry.with_name(re.sub("-.*", "-" + "1" * 40, kernel.key))
    entry.rename(elsewhere)
    assert world.alike("docs") is None
    elsewhere.rename(entry)
    assert world.alike("docs") is not None
    (entry / "sources.gz").unlink()
    assert world.alike("docs") is None
    assert world.equality.parent_with_same_kernel(world.commits["docs"], kernel) is None


def test_a_trial_of_such_a_commit_neither_builds_nor_measures(world: World) -> None:
    base = world.build("base")
    events: list[Event] = []
    nobody = cast(VirtualMachines, SimpleNamespace(era=lambda storage: examples.ERA))
    source = SourceTree(world.repository, world.path / "run")
    bench = Bench(WISHES, world.path / "run", source, world.equality.builder, nobody, events.append)
    logs = world.path / "logs of the trial"
    logs.mkdir()
    measured = {base.content_sha256: world.commits["base"].sha}
    trial = run_trial(bench, TrialRequest(2, examples.cell(world.commits["docs"]), measured), logs)
    assert (trial.stage, trial.fault, events) == (Stage.DONE, None, [])
    timings = trial.timings
    assert timings.build_s == timings.boot_s == timings.storage_s == timings.workload_s == 0.0
    assert trial.era == examples.ERA
    assert trial.same_kernel_as == world.commits["base"].sha
    assert trial.sameness == f"same sources as {world.commits['base'].short}"
    assert (logs / "kernel.config").read_text() == base.config.read_text()


def test_how_many_commits_can_matter_is_counted(world: World) -> None:
    old, new = world.build("base"), world.build("makefile")
    wanted = Range(world.commits["base"], world.commits["makefile"])
    mattering = Mattering(6, frozenset(world.commits[name].sha for name, _, other in STEPS[:6] if other))
    found = world.equality.mattering(wanted, old, new)
    assert found == mattering
    assert mattering.relevance == Relevance(commits=6, can_matter=3)
    for kernel in (old, new):
        (kernel.image.parent / "sources.gz").unlink()
    assert world.equality.mattering(wanted, old, new) is None


def test_commits_of_the_range_whose_kernels_are_kept_are_known(world: World) -> None:
    """Those that were built: of its equals without a build nobody knows beforehand."""
    for name in ("base", "read", "makefile"):
        world.build(name)
    (gcc,) = world.equality.builder.compilers()
    wanted = Range(world.commits["docs"], world.commits["comment"])
    assert world.equality.kept(wanted, (gcc,)) == {world.commits["read"].sha}
    assert world.equality.kept(wanted, (replace(gcc, identity="gcc 99"),)) == frozenset()
    assert world.equality.kept(wanted, ()) == frozenset()


def test_what_a_merge_brings_in_is_the_merges_where_only_first_parents_count(world: World) -> None:
    """A merge with the kernel of its second parent, seen with and without ``--first-parent``."""
    base, read = (world.commits[name] for name in ("base", "read"))
    words = ("-c", "user.name=Test", "-c", "user.email=test@example.org", "commit-tree", "-m", "merge")
    sha = git(world.repository.top, *words, "-p", base.sha, "-p", read.sha, read.tree)
    (merge,) = world.repository.commits([sha])
    kernel = world.build("read")
    trees, builder = world.equality.trees, world.equality.builder
    assert KernelEquality(trees, builder).parent_with_same_kernel(merge, kernel) == read
    assert KernelEquality(trees, builder, first_parent=True).parent_with_same_kernel(merge, kernel) is None
