"""The demonstration's history on a tiny tree: its shape, its hashes, and what git's bisection makes of it."""

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.core.errors import UserError
from scenarios.demo import history
from scenarios.demo.commits import EDITS, load_entries, plan, touched_paths
from scenarios.demo.history import History, make

TOP = "linux-source-0.1"
POLICY = "drivers/md/dm-cache-policy-smq.c"
# What the edits hold on to, in the place and the order in which the real file has it.
POLICY_TEXT = b"""\
static bool free_target_met(struct smq_policy *mq)
{
\tunsigned int nr_free;

\treturn nr_free;
}

static void queue_promotion(struct smq_policy *mq)
{
\tif (allocator_empty(&mq->cache_alloc)) {
\t\t/*
\t\t * We always claim to be 'idle' to ensure some demotions happen
\t\t * with continuous loads.
\t\t */
\t\tif (!free_target_met(mq))
\t\t\tqueue_demotion(mq);
\t\treturn;
\t}
}
"""
IGNORE_EVERYTHING = b"*.o\n/*\n!/debian/\n"
ENTRIES = load_entries(EDITS.read_text(encoding="utf-8"))


def stand_ins() -> dict[str, bytes]:
    """For each edited file one with the texts that the edits want to find in the original."""
    files = dict.fromkeys(touched_paths(ENTRIES), b"a stand-in\n")
    for number, entry in enumerate(ENTRIES):
        for edit in entry.edits:
            made_here = any(
                edit.old in other.new for e in ENTRIES[:number] for other in e.edits if other.path == edit.path
            )
            if edit.old and not made_here:
                files[edit.path] += edit.old + b"\n"
    return files | {POLICY: POLICY_TEXT}


def pack(path: Path, files: Mapping[str, bytes]) -> Path:
    """A tarball like linux-source's: one top directory, an executable, a symbolic link."""
    with tarfile.open(path, "w:xz") as archive:
        directory = tarfile.TarInfo(TOP)
        directory.type = tarfile.DIRTYPE
        archive.addfile(directory)
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(f"{TOP}/{name}")
            member.size = len(content)
            member.mode = 0o755 if name.endswith(".sh") else 0o644
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo(f"{TOP}/scripts/link")
        link.type, link.linkname = tarfile.SYMTYPE, "run.sh"
        archive.addfile(link)
    return path


def tree(**more: bytes) -> dict[str, bytes]:
    return {**stand_ins(), "scripts/run.sh": b"#!/bin/sh\n", ".gitignore": IGNORE_EVERYTHING, **more}


def git(repo: Path | str, *arguments: str, check: bool = True) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    done = subprocess.run(
        ["git", "-C", str(repo), *arguments], capture_output=True, text=True, env=environment, check=check
    )
    return done.stdout


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("tarball") / f"{TOP}.tar.xz", tree())


@pytest.fixture(scope="module")
def made(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> History:
    return make(tarball, tmp_path_factory.mktemp("made") / "linux")


def in_range(made: History, *flags: str) -> list[str]:
    return git(made.repo, "rev-list", *flags, f"{made.old}..{made.new}").split()


# Shape.


def test_the_range_has_what_was_promised(made: History) -> None:
    effects = {commit.sha: commit.effect for commit in made.commits}
    shas = in_range(made)
    assert len(shas) >= 24
    assert len(in_range(made, "--merges")) == 2
    assert {"code", "none", "no-build", "panic", "merge"} == {effects[sha] for sha in shas}
    assert sum(effects[sha] == "none" for sha in shas) >= 6
    assert made.culprit.sha in shas
    assert made.old == git(made.repo, "rev-parse", history.OLD_TAG).strip()
    assert made.new == git(made.repo, "rev-parse", history.NEW_TAG).strip()
    assert git(made.repo, "rev-parse", "HEAD").strip() == made.new


def test_topic_branches_start_before_the_old_end_and_after_the_spoiling(made: History) -> None:
    spoil = made.commits[0]
    for merge in in_range(made, "--merges"):
        base = git(made.repo, "merge-base", made.old, f"{merge}^2").strip()
        assert base != made.old
        assert git(made.repo, "merge-base", spoil.sha, base).strip() == spoil.sha


def test_the_fix_restores_the_text_that_was_spoilt(made: History) -> None:
    def policy(revision: str) -> bytes:
        return git(made.repo, "show", f"{revision}:{POLICY}").encode()

    assert policy(made.old) != POLICY_TEXT
    assert policy(f"{made.culprit.sha}^") == policy(made.old)
    assert policy(made.culprit.sha) == policy(made.new) == POLICY_TEXT


def test_what_is_broken_on_the_way_is_whole_at_the_new_end(made: History) -> None:
    originals = stand_ins()
    target = "drivers/md/dm-cache-target.c"
    assert git(made.repo, "show", f"{made.new}:{target}").encode() == originals[target]
    assert "static unsigned long blk_latest_expiry" in git(made.repo, "show", f"{made.new}:block/blk-timeout.c")


def test_equal_kernels_are_known_by_what_they_are_built_from(made: History) -> None:
    kernels = {commit.sha: commit.kernel for commit in made.commits}
    for commit in made.commits:
        parent = git(made.repo, "rev-parse", f"{commit.sha}^").strip()
        if parent in kernels:
            assert (kernels[parent] == commit.kernel) is (commit.effect == "none"), commit.subject


def test_the_same_tarball_gives_the_same_hashes(
    made: History, tarball: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2001-01-01T00:00:00")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text("[init\n")  # whatever git reads it fails
    assert make(tarball, tmp_path / "again").commits == made.commits


# What git's bisection makes of it.


@dataclass(frozen=True)
class Bisected:
    answer: str
    tried: tuple[str, ...]
    measured: int


def bisect(made: History, worktree: Path) -> Bisected:
    """A real git bisect; the table answers for the machine. Measured is what no equal kernel stands in for."""
    commits = {commit.sha: commit for commit in made.commits}
    known, measured, tried = {commits[made.old].kernel, commits[made.new].kernel}, 0, []
    git(made.repo, "worktree", "add", "-q", "--detach", "--no-checkout", str(worktree), made.new)
    git(worktree, "bisect", "start", "--no-checkout", "--term-old=broken", "--term-new=fixed")
    git(worktree, "bisect", "fixed", made.new)
    said = git(worktree, "bisect", "broken", made.old)
    while "is the first fixed commit" not in said:
        assert "Bisecting:" in said, said
        commit = commits[git(worktree, "rev-parse", "BISECT_HEAD").strip()]
        tried.append(commit.sha)
        if commit.effect in ("no-build", "panic"):
            said = git(worktree, "bisect", "skip", check=False)
            continue
        measured += commit.kernel not in known
        known.add(commit.kernel)
        fixed = git(made.repo, "merge-base", made.culprit.sha, commit.sha).strip() == made.culprit.sha
        said = git(worktree, "bisect", "fixed" if fixed else "broken")
    return Bisected(said.split()[0], tuple(tried), measured)


# Once a commit was skipped git decides by hash between equally good ones, so several sets of hashes are tried.
@pytest.mark.parametrize("seed", range(3))
def test_git_finds_the_culprit_past_all_that_is_in_its_way(seed: int, tmp_path: Path) -> None:
    made = make(pack(tmp_path / "linux-source-0.2.tar.xz", tree(seed=str(seed).encode())), tmp_path / "linux")
    bisected = bisect(made, tmp_path / "worktree")
    effects = [commit.effect for sha in bisected.tried for commit in made.commits if commit.sha == sha]
    assert bisected.answer == made.culprit.sha
    assert effects[:2] == ["no-build", "merge"]
    assert "panic" in effects
    assert "none" in effects
    assert bisected.measured <= 3
    assert len(bisected.tried) <= 9


# The repository.


def test_a_worktree_has_every_file_and_cleaning_leaves_it_so(made: History, tmp_path: Path) -> None:
    worktree = tmp_path / "worktree"
    git(made.repo, "worktree", "add", "-q", "--detach", str(worktree), made.old)
    (worktree / "drivers/md/leftover.o").write_text("not of this commit")
    git(worktree, "clean", "-ffdxq")
    git(worktree, "checkout", "-q", "--detach", made.new)
    tracked = set(git(worktree, "ls-files").split())
    on_disk = {str(path.relative_to(worktree)) for path in worktree.rglob("*") if path.is_symlink() or path.is_file()}
    assert on_disk - {".git"} == tracked == {*tree(), "scripts/link"}
    assert git(worktree, "status", "--porcelain") == ""
    assert (worktree / "scripts/link").readlink() == Path("run.sh")
    assert os.access(worktree / "scripts/run.sh", os.X_OK)


def test_what_is_there_already_is_left_alone(made: History, tarball: Path) -> None:
    before = Path(made.repo).stat()
    assert make(tarball, Path(made.repo)) == made
    assert Path(made.repo).stat().st_ino == before.st_ino


@pytest.mark.parametrize("damage", ["tag", "stamp", "objects"])
def test_a_damaged_one_is_made_again(damage: str, tarball: Path, tmp_path: Path) -> None:
    first = make(tarball, tmp_path / "linux")
    if damage == "tag":
        git(first.repo, "tag", "-f", history.OLD_TAG, history.NEW_TAG)
    elif damage == "stamp":
        stamp = tmp_path / "linux/.git" / history.STAMP
        rows = json.loads(stamp.read_text())
        stamp.write_text(json.dumps(rows | {"origin": {**rows["origin"], "generator": "another"}}))
    else:
        for pack_file in (tmp_path / "linux/.git/objects/pack").iterdir():
            pack_file.unlink()
    assert make(tarball, tmp_path / "linux") == first
    assert len(in_range(first)) >= 24


def test_a_making_that_was_killed_is_no_hindrance(made: History, tarball: Path, tmp_path: Path) -> None:
    (tmp_path / "linux.making/.git").mkdir(parents=True)
    assert make(tarball, tmp_path / "linux").commits == made.commits
    assert not (tmp_path / "linux.making").exists()


def test_somebodys_own_directory_is_not_touched(tarball: Path, tmp_path: Path) -> None:
    (tmp_path / "linux").mkdir()
    (tmp_path / "linux/thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="something else"):
        make(tarball, tmp_path / "linux")
    assert (tmp_path / "linux/thesis.tex").read_text() == "years of work"
    assert not (tmp_path / "linux.making").exists()


# Sources it does not know.


@pytest.mark.parametrize(
    ("content", "times"), [pytest.param(b"rewritten since", 0, id="gone"), pytest.param(POLICY_TEXT * 2, 2, id="twice")]
)
def test_an_anchor_that_is_not_there_once_is_named(content: bytes, times: int, tmp_path: Path) -> None:
    tarball = pack(tmp_path / "linux-source-9.tar.xz", tree(**{POLICY: content}))
    with pytest.raises(UserError, match=rf"smq\.c: .*free_target_met.* {times} times") as caught:
        make(tarball, tmp_path / "linux")
    assert "--tarball" in caught.value.hint
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_file_that_is_not_in_the_tree_is_named(tmp_path: Path) -> None:
    files = tree()
    del files[POLICY]
    with pytest.raises(UserError, match=f"no {POLICY}"):
        make(pack(tmp_path / "linux-source-9.tar.xz", files), tmp_path / "linux")


@pytest.mark.parametrize("content", [b"", b"not a tarball", b"\xfd7zXZ\x00 cut off"])
def test_what_is_no_tarball_is_said_so(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "linux-source-9.tar.xz").write_bytes(content)
    with pytest.raises(UserError, match=r"linux-source-9\.tar\.xz"):
        make(tmp_path / "linux-source-9.tar.xz", tmp_path / "linux")


# The table.


def test_a_merge_brings_only_what_is_not_there_yet() -> None:
    steps = list(plan(ENTRIES, stand_ins()))
    merges = {step.entry.merge: step for step in steps if step.entry.merge}
    assert set(merges) == {"loop", "dm"}
    for line, merge in merges.items():
        taken = [entry for entry in ENTRIES if entry.line == line] + [merge.entry]
        theirs = {edit.path for entry in taken for edit in entry.edits}
        assert set(merge.files) <= theirs
        assert len(merge.parents) == 2
