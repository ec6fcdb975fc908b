"""Bundles with the files of one tree, for a guest that has no network; each is made once and kept in a cache.

A bundle of a commit from a real history would contain that history, and a bundle of a shallow clone is not complete
without it. So a commit without parents is made for the tree, in a separate repository that borrows the person's objects
(gitrepository-layout(5), "objects/info/alternates"): the person's repository is only read.
"""

import os
import re
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from bisector.config import Settings
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.core.units import size
from bisector.git.mirror import borrow
from bisector.git.repository import Repository
from bisector.host.files import our_files
from bisector.workload.base import Clone

_KEPT = 4
_BLOCK_BYTES = 4096
_NAME = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\.bundle")  # the hash of the tree
_REFERENCE = "refs/heads/tree"
# The same tree always gets the same commit hash (git-hash-object(1)).
_COMMIT = "tree {}\nauthor bisector <bisector@localhost> 0 +0000\ncommitter bisector <bisector@localhost> 0 +0000\n\n"
_KEY = "workload.gitgrep"


def bundled(settings: Settings, repository: Repository) -> Settings:
    """The settings with the workload's bundle, made if need be; :class:`UserError` for a missing or too large tree."""
    workload = settings.workload
    clone = workload.workload.clone()
    if clone is None:
        return settings
    source = nullcontext(repository) if clone.repository is None else Repository.open(clone.repository)
    with source as opened:
        made = _made(opened, clone, resources.cache_home() / "clones")
    return replace(settings, workload=workload.with_inputs({clone.field: made}))


def is_made(file: Path) -> bool:
    """Whether a bundle was made by bisector rather than given: known by its name, which the copy in a run keeps."""
    return _NAME.fullmatch(file.name) is not None


def _made(repository: Repository, clone: Clone, cache: Path) -> Path:
    tree = _tree(repository, clone)
    if repository.partial:  # git would fetch the missing files one by one (git-rev-list(1), "--missing")
        words = ("rev-list", "--objects", "--no-object-names", "--missing=print", tree)
        if any(line.startswith("?") for line in repository.ask(*words).lines):
            message = f"{repository.top} is a partial clone, and lacks files of the tree that is to be cloned"
            raise UserError(message, f"name a full clone with {_KEY}.repository")
    # The disk space of the checked out files.
    files = (line.split("\t")[0].split() for line in repository.ask("ls-tree", "-r", "-l", tree).lines)
    sizes = (int(found[3]) for found in files if found[3].isdecimal())  # a submodule has no size
    files_bytes = sum(-(-one // _BLOCK_BYTES) * _BLOCK_BYTES for one in sizes)
    bundle = cache / f"{tree}.bundle"
    with our_files(cache):
        cache.mkdir(parents=True, exist_ok=True)
        if bundle.exists():
            os.utime(bundle)
        else:
            with tempfile.TemporaryDirectory(dir=cache, prefix="making-") as place:
                _make(repository, tree, Path(place)).rename(bundle)
            # A run keeps a copy of the bundle that it was started with, so old bundles can go.
            for old in sorted(cache.glob("*.bundle"), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
                old.unlink(missing_ok=True)
        needed = files_bytes + 2 * bundle.stat().st_size  # beside the files: the pack, and a copy while it arrives
    if needed > clone.most_bytes:
        raise UserError(
            f"a clone of {clone.revision}:{clone.path} has {size(needed)}, and {_KEY}.size is {size(clone.most_bytes)}",
            f"choose a smaller {_KEY}.path, or a larger {_KEY}.size and disks with room for it",
        )
    return bundle


def _tree(repository: Repository, clone: Clone) -> str:
    commit = repository.resolve(clone.revision)
    if not clone.path:
        return commit.tree
    answer = repository.ask("rev-parse", "--verify", "--quiet", f"{commit.sha}:{clone.path}", ok=None)
    tree = answer.stdout.strip()
    if answer.status != 0 or repository.ask("cat-file", "-t", tree).stdout.strip() != "tree":
        raise UserError(
            f"{commit.short} has no directory {clone.path!r} to clone",
            f"{_KEY}.path is one of it, or empty for all of it",
        )
    return tree


def _make(repository: Repository, tree: str, place: Path) -> Path:
    git, made = repository.git, place / "repository"
    git("init", "--quiet", "--bare", "--template=", os.fspath(made), at=place)
    borrow(made, repository.common_dir / "objects")
    text = f"{_COMMIT.format(tree)}the files of one tree\n"
    commit = git("hash-object", "-t", "commit", "-w", "--stdin", at=made, stdin=text).stdout.strip()
    git("update-ref", _REFERENCE, commit, at=made)
    git("symbolic-ref", "HEAD", _REFERENCE, at=made)
    bundle = place / "bundle"
    git("bundle", "create", "--quiet", os.fspath(bundle), "HEAD", _REFERENCE, at=made)
    return bundle
