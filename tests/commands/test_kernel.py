"""``kernel config`` and ``kernel build`` from the command line, on a stand-in tree in a real repository."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.core.subject import Kernel
from bisector.host import locks
from bisector.kernel import kconfig
from bisector.kernel.build import KernelBuilder
from bisector.kernel.builddir import BuildPlaces
from bisector.store.rundir import state_home
from tests.docs.json_schema import valid
from tests.git.histories import KERNEL_TREE, git
from tests.kernel.fake_tree import FRAGMENT, copy_to, edit, iops_of, spoil


@dataclass
class World:
    """A repository whose ``good`` builds and whose ``bad`` does not, and directories of the test's own."""

    repo: Path
    output: pytest.CaptureFixture[str]

    def run(self, *words: str | Path) -> tuple[int, str, str]:
        self.output.readouterr()
        settings = ("--fragments-only", "--fragment", "./md.config", "--repo", str(self.repo))
        code = main(["kernel", *map(str, words), *settings])
        seen = self.output.readouterr()
        return code, seen.out, seen.err

    def commit(self, name: str) -> None:
        git(self.repo, "add", "--all", "--force")
        git(self.repo, "commit", "--quiet", "--message", name)
        git(self.repo, "tag", name)


@pytest.fixture
def world(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], known_gcc: None) -> World:
    monkeypatch.setenv("CCACHE_DIR", str(home / "ccache"))
    monkeypatch.setattr("bisector.doctor.checks.disk_room_bytes", lambda path: 1 << 40)
    Path("md.config").write_text(FRAGMENT + "CONFIG_VIRTIO_MENU=y\n# CONFIG_64BIT is not set\n")
    repo = copy_to(home / "linux")
    for name, text in KERNEL_TREE.items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        if not (repo / name).exists():
            (repo / name).write_text(text)
    git(repo, "init", "--quiet", "--initial-branch=main")
    world = World(repo, capsys)
    world.commit("good")
    spoil(repo)
    world.commit("bad")
    edit(repo, "drivers/md/Kconfig", "config MD", "konfig MD")
    world.commit("ugly")
    return world


def nothing_left(world: World) -> None:
    (run,) = (state_home() / "tests").iterdir()
    assert not (run / "build").exists()
    assert not (run / "worktrees").exists()
    assert len(git(world.repo, "worktree", "list").splitlines()) == 1


def test_config_is_written_to_standard_output_alone_or_to_a_file(world: World) -> None:
    code, out, _ = world.run("config", "good", "-o", "effective")
    assert (code, out) == (0, "")
    assert kconfig.parse(Path("effective").read_text())["CONFIG_MD"] == "y"
    code, out, err = world.run("config", "good")
    assert code == 0
    assert kconfig.parse(out)["CONFIG_DM_CACHE_SMQ"] == "y"
    assert out.startswith("#\n")
    assert "not obtained: CONFIG_VIRTIO_MENU=y (there is no such option in this tree)\n" in err
    assert "not obtained: CONFIG_64BIT=n (it is y: " in err
    assert "CONFIG_DM_CACHE_SMQ" not in err
    nothing_left(world)


def test_build_is_kept_for_the_next_one_and_for_runs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for it is told that it is a build, and no measurement, which other work would spoil."""
    compiled, held_for = KernelBuilder.build, []

    def build(builder: KernelBuilder, tree: str, places: BuildPlaces) -> Kernel:
        holder = locks.measurer()
        held_for.append(holder and holder.purpose)
        return compiled(builder, tree, places)

    monkeypatch.setattr(KernelBuilder, "build", build)
    code, out, err = world.run("build", "good")
    shown = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert (code, shown["release"], shown["quirks"]) == (0, "6.1.0", "none")
    assert iops_of(Path(shown["image"])) == 1002
    assert "gcc" in shown["compiler"]
    assert "building; the log is" in err
    nothing_left(world)
    git(world.repo, "checkout", "--quiet", "--detach", "good")
    edit(world.repo, "Documentation/index.rst", "Nothing", "Still nothing")
    world.commit("docs")
    for name in ("good", "docs"):  # docs has the same sources
        code, out, err = world.run("build", name)
        assert (code, err) == (0, "")
        assert out.endswith("built in      kept from before\n")
    assert held_for == [locks.TurnPurpose.BUILD]


def test_build_into_a_directory_and_for_scripts(world: World) -> None:
    """A place that cannot be written is told before the build."""
    Path("file").write_text("precious")
    code, _, err = world.run("build", "good", "-o", "file")
    assert (code, "cannot write file" in err, "building" in err) == (2, True, False)
    code, out, _ = world.run("build", "good", "-o", "out", "--json")
    document = valid("kernel build", out)
    assert code == 0
    assert document["sha"] == git(world.repo, "rev-parse", "good").strip()
    assert document["files"] == {"image": "out/bzImage", "config": "out/.config"}
    assert document["kernel"]["unmet"] == ["CONFIG_VIRTIO_MENU=y", "CONFIG_64BIT=n"]
    assert iops_of(Path("out/bzImage")) == 1002
    assert "CONFIG_MD=y\n" in Path("out/.config").read_text()


@pytest.mark.parametrize("verb", ["build", "config"])
def test_a_commit_that_fails_is_told_in_the_tools_own_words(world: World, verb: str) -> None:
    code, out, err = world.run(verb, "ugly")
    assert (code, out) == (3, "")
    assert "does not build: drivers/md/Kconfig:1: syntax error" in err
    nothing_left(world)


def test_what_is_known_to_fail_is_not_compiled_again(world: World) -> None:
    for compiles in (True, False):
        code, out, err = world.run("build", "bad")
        assert (code, out) == (3, "")
        assert "does not build: fs/dcache.c:8:9: error:" in err
        assert ("building; the log is" in err) is compiles
        nothing_left(world)
        (log,) = (state_home() / "tests").glob("*/kernel/build.log")
        assert "fs/dcache.c:8:9: error:" in log.read_text()
