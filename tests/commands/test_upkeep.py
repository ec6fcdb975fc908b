"""``bisector cache`` on a cache of the test's own."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.core import resources
from bisector.executor.local import KEPT_KERNELS_BYTES, kept_kernels
from bisector.host import locks
from bisector.kernel.cache import BuildFailure
from tests import fakes
from tests.docs.json_schema import valid
from tests.kernel.test_cache import LONG_AGO_S, age, kernel

TREE = "1234567890abcdef" * 2 + "12345678"


@dataclass
class World:
    """A kept kernel, a failure from long ago, a guest image and what is left of one half-built."""

    home: Path
    output: pytest.CaptureFixture[str]

    def run(self, *words: str) -> str:
        self.output.readouterr()
        assert main(["cache", *words]) == 0
        return self.output.readouterr().out

    @property
    def names(self) -> set[str]:
        return {path.name for room in ("kernels", "images") for path in (self.home / room).iterdir()}


@pytest.fixture
def world(home: Path, capsys: pytest.CaptureFixture[str]) -> World:
    caches = resources.cache_home()
    kept_kernels().store(kernel(home, f"f00-{TREE}", 100_000))
    Path("build.log").write_text("x.c:1: error: no\n")
    kept_kernels().store_failure(BuildFailure("f00-bad", fakes.BUILD_ERROR, Path("build.log")))
    age(caches / "kernels/f00-bad", LONG_AGO_S)
    for name in ("86070231413b0000", "86070231413b0000.new-x"):
        (caches / "images" / name).mkdir(parents=True)
        (caches / "images" / name / "root.ext4").write_bytes(b"x" * 200_000)
    return World(caches, capsys)


def test_it_says_what_is_kept(world: World) -> None:
    first, *lines = world.run().splitlines()
    assert first.startswith(f"{world.home}/kernels: 1 kernel, 1 source known not to build, 9")
    assert first.endswith(" KiB of at most 10 GiB")
    assert lines[0].split("  ")[-2:] == ["5.0.0-test", "tree 1234567890ab"]
    assert "does not build  tree bad" in lines[1]
    assert lines[2].startswith(f"{world.home}/images: 1 guest image, ")
    assert lines[3].endswith("  86070231413b")
    assert len(lines) == 4


def test_it_says_so_to_scripts(world: World) -> None:
    document = valid("cache", world.run("--json"))
    assert document["schema"] == 1
    kernels, images = document["kernels"], document["images"]
    assert [(entry["key"], entry["release"]) for entry in kernels["entries"]] == [
        (f"f00-{TREE}", "5.0.0-test"),
        ("f00-bad", None),
    ]
    assert (kernels["path"], kernels["limit_bytes"]) == (str(world.home / "kernels"), KEPT_KERNELS_BYTES)
    assert kernels["size_bytes"] == sum(entry["size_bytes"] for entry in kernels["entries"]) > 100_000
    assert [entry["key"] for entry in images["entries"]] == ["86070231413b0000"]
    assert images["size_bytes"] == images["entries"][0]["size_bytes"] >= 200_000
    assert all(entry["last_used"].endswith("+00:00") for entry in kernels["entries"] + images["entries"])


def test_nothing_kept_is_no_trouble(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    assert "0 kernels, 0 B of at most 10 GiB" in world.run()
    assert world.run("clear") == "0 B removed\n"


def test_clear_leaves_a_running_run_what_it_uses_and_then_nothing_of_either(world: World) -> None:
    with locks.using_caches(world.home):
        assert "a run is in progress" in world.run("clear")
    assert world.names == {f"f00-{TREE}", "86070231413b0000", "86070231413b0000.new-x"}
    assert world.run("clear").endswith(" KiB removed\n")
    assert world.names == {"86070231413b0000.new-x"}  # whoever builds it next removes that
    assert valid("cache", world.run("clear", "--json"))["kernels"]["entries"] == []
