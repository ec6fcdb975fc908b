"""A clone for the guest: of one tree, whole, of a size that was asked for, and made once."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bisector.config import Settings, options
from bisector.core.errors import UserError
from bisector.git.repository import Repository
from bisector.git.transfer import bundled, is_made
from tests.git.conftest import Make
from tests.git.histories import Node, git, linear

FILES = {"fs/a.c": "EXPORT_SYMBOL_GPL(a);\n", "fs/sub/b.c": "b\n", "lib/c.c": "c\n"}
NODES = (
    *linear(3),
    Node("with", ("c2",), files=FILES, tags=("v1",)),
    Node("later", ("with",), files={"fs/a.c": "x\n"}),
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "bisector" / "clones"


def settings(**own: Any) -> Settings:
    found = options.load({"workload.kind": "gitgrep"}, directory=Path("/")).settings
    workload = found.workload
    values = replace(workload.workload, **{"commit": "v1", **own})
    return replace(found, workload=replace(workload, own={**workload.own, "gitgrep": values}))


def cloned(settings: Settings, place: Path) -> dict[str, str]:
    """The files of the clone, as a guest without the repository has them."""
    bundle = settings.workload.inputs["bundle"]
    git(place, "clone", "-q", str(bundle), "clone")
    git(place / "clone", "fsck", "--strict", "--no-progress")
    assert git(place / "clone", "rev-list", "--count", "HEAD") == "1"
    found = [path for path in (place / "clone").rglob("*") if path.is_file() and ".git" not in path.parts]
    return {str(path.relative_to(place / "clone")): path.read_text() for path in found}


def test_the_clone_has_the_files_of_a_directory_of_one_commit(make: Make, tmp_path: Path) -> None:
    repository, _ = make(NODES)
    before = sorted(path for path in repository.common_dir.rglob("*"))
    assert cloned(bundled(settings(), repository), tmp_path) == {"a.c": FILES["fs/a.c"], "sub/b.c": "b\n"}
    assert sorted(path for path in repository.common_dir.rglob("*")) == before


@pytest.mark.parametrize("bare", [False, True])
def test_the_clone_of_a_whole_tree(make: Make, tmp_path: Path, bare: bool) -> None:
    repository, _ = make(NODES, bare=bare)
    found = cloned(bundled(settings(path=""), repository), tmp_path)
    assert {"fs/a.c", "lib/c.c", "Makefile"} <= set(found)


def test_another_repository_than_that_under_test(make: Make, tmp_path: Path) -> None:
    repository, _ = make(NODES)
    git(tmp_path, "init", "-q", "other")
    (tmp_path / "other" / "only.c").write_text("here\n")
    git(tmp_path / "other", "add", ".")
    git(tmp_path / "other", "commit", "-q", "-m", "x")
    other = settings(repository=tmp_path / "other", commit="HEAD", path="")
    assert cloned(bundled(other, repository), tmp_path) == {"only.c": "here\n"}
    with pytest.raises(UserError, match="is not a directory"):
        bundled(settings(repository=tmp_path / "nowhere"), repository)


def test_it_is_made_once_and_few_are_kept(make: Make, cache: Path) -> None:
    repository, _ = make(NODES)
    first = bundled(settings(), repository).workload.inputs["bundle"]
    assert is_made(first)
    os.utime(first, (1, 1))
    content, was = first.read_bytes(), first.stat().st_ino
    again = bundled(settings(), repository).workload.inputs["bundle"]
    assert (again, again.stat().st_ino, again.read_bytes()) == (first, was, content)
    assert again.stat().st_mtime > 1
    for rev in ("c0", "c1", "c2", "v1", "later"):
        sha = git(repository.top, "log", "-1", "--format=%H", f":/^{rev}$" if rev != "v1" else rev)
        bundled(settings(commit=sha, path=""), repository)
    assert len([path for path in cache.iterdir() if path.suffix == ".bundle"]) == 4
    assert not [path for path in cache.iterdir() if path.suffix != ".bundle"]


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"commit": "v2"}, "unknown revision 'v2'"),
        ({"path": "drivers/nothing"}, "has no directory 'drivers/nothing'"),
        ({"path": "fs/a.c"}, r"has no directory 'fs/a\.c'"),
        ({"path": "../.."}, "has no directory"),
        ({"size_bytes": 4096}, r"a clone of v1:fs has .* KiB, and workload\.gitgrep\.size is 4 KiB"),
    ],
)
def test_clones_that_cannot_be_made(make: Make, own: dict[str, Any], message: str) -> None:
    repository, _ = make(NODES)
    with pytest.raises(UserError, match=message) as caught:
        bundled(settings(**own), repository)
    assert caught.value.exit_code == 2


def test_partial_clone_that_lacks_files(make: Make, tmp_path: Path) -> None:
    repository, _ = make(NODES)
    git(repository.top, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{repository.top}", "partial")
    partial = Repository.open(tmp_path / "partial")
    with pytest.raises(UserError, match="is a partial clone"):
        bundled(settings(), partial)
