"""The repository of the kernels that are compared, made of tiny trees."""

import subprocess
from pathlib import Path

import pytest

from scenarios.articles import kernels, sets
from scenarios.articles.kernels import OWN_EDITS, Kernels
from scenarios.demo.commits import load_entries
from tests.scenarios.demo.test_history import POLICY, git, pack, tree

ENTRIES = load_entries(OWN_EDITS.read_text(encoding="utf-8"))


def sources(path: Path, *versions: str) -> Path:
    """A tarball of each version, with the texts that are edited."""
    texts: dict[str, bytes] = {}
    for edit in (edit for entry in ENTRIES for edit in entry.edits):
        texts[edit.path] = texts.get(edit.path, b"") + edit.old + b"\n"
    path.mkdir()
    for number in versions:
        pack(path / f"linux-source-{number}.tar.xz", tree(**texts, VERSION=number.encode()))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def made(home: Path) -> Kernels:
    return kernels.make(home / "demo", home / "work", sources(home / "src", "6.1", "6.12"))


def shown(made: Kernels, what: str) -> str:
    return git(made.repo, "show", what)


def test_the_distributions_kernels_are_as_they_are(made: Kernels) -> None:
    assert (made.newest, made.older) == ("v6.12", "v6.1")
    assert [shown(made, f"{tag}:VERSION") for tag in (made.newest, made.older)] == ["6.12", "6.1"]
    for tag in (made.newest, made.older):
        assert not git(made.repo, "log", "-1", "--format=%P", tag).strip()


@pytest.mark.parametrize(("tag", "paths"), [("slow_cache", [POLICY]), ("slow_submit", ["fs/ext4/file.c"])])
def test_a_slow_kernel_differs_in_its_edit_alone(made: Kernels, tag: str, paths: list[str]) -> None:
    assert git(made.repo, "diff", "--name-only", made.newest, getattr(made, tag)).split() == paths


def test_the_patch_makes_the_patched_kernel(made: Kernels) -> None:
    patch = made.patch.read_text(encoding="utf-8")
    assert "+++ b/fs/aio.c" in patch
    assert "aio_queue(req, &iter, false)" in patch
    subprocess.run(["git", "clone", "-q", str(made.repo), str(made.patch.parent / "clone")], check=True)
    clone = made.patch.parent / "clone"
    git(clone, "checkout", "-q", made.slow_submit)
    git(clone, "apply", "--index", str(made.patch))
    assert git(clone, "write-tree").strip() == git(made.repo, "rev-parse", f"{made.patched}^{{tree}}").strip()


def test_made_again_it_is_left_as_it_is(home: Path, made: Kernels) -> None:
    """A run that was killed has worktrees and references in it."""
    git(made.repo, "update-ref", "refs/bisector/kept", made.newest)
    assert kernels.make(home / "demo", home / "work", home / "src") == made
    assert git(made.repo, "rev-parse", "refs/bisector/kept")


def test_one_tarball_is_enough(tmp_path: Path) -> None:
    made = kernels.make(tmp_path / "demo", tmp_path / "work", sources(tmp_path / "src", "6.12"))
    assert (made.newest, made.older) == ("v6.12", "")
    assert made.built == ("v6.12", made.slow_cache, made.slow_submit, made.patched)
    assert not made.no_patch


def test_sources_on_which_the_patch_has_no_effect_say_so(tmp_path: Path) -> None:
    made = kernels.make(tmp_path / "demo", tmp_path / "work", sources(tmp_path / "src", "6.1"))
    assert made.no_patch.endswith("the newest source is v6.1")
    assert sets.SUBMIT not in {run.name for run in sets.runs(made)}
    assert made.built == ("v6.1", made.slow_cache)
