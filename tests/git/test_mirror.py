"""Commits on their way to a host that has none, some, or a clone of its own; and what a kill leaves there."""

import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Kind
from bisector.git import mirror as mirrors
from bisector.git import packs
from bisector.git.mirror import Mirror, objects_of
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.git.trees import ChangedCommit, changed_end
from bisector.host import process
from tests.git.conftest import Make
from tests.git.histories import KERNEL_TREE, Node, build, git, linear

RUN = "20260301-v1..v2-0a1b2c"
BIG = random.Random(7).randbytes(60_000).hex()
NODES = (
    Node("c0", files={**KERNEL_TREE, "big.c": f"{BIG}\n"}),
    Node("c1", ("c0",), files={"big.c": f"{BIG}\n/* one */\n", "one.c": "one\n"}),
    Node("c2", ("c1",), files={"two.c": "two\n"}),
    Node("c3", ("c2",), files={"one.c": "three\n"}),
)
Send = Callable[[Repository, str], int]


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    made = Mirror(tmp_path / "spool" / "sources.git")
    made.prepare()
    return made


@pytest.fixture
def send(mirror: Mirror, tmp_path: Path) -> Send:
    """Sends a commit, given what the mirror has; the size of the pack."""

    def send_(repository: Repository, sha: str) -> int:
        pack = tmp_path / "pack"
        packs.pack(repository, sha, packs.nearest(repository, sha, mirror.known()), pack)
        mirror.take(pack)
        assert mirror.has(sha)
        mirror.keep(RUN, sha)
        return pack.stat().st_size

    return send_


def checked_out(mirror: Mirror, sha: str, place: Path) -> dict[str, str]:
    """The files of a commit as a job of the host has them, by the hash that the record has."""
    with Repository.open(mirror.path) as repository, SourceTree(repository, place) as tree:
        top = tree.checkout(repository.resolve(sha))
        return {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file()}


def files(path: Path) -> set[Path]:
    return {one for one in path.rglob("*") if one.is_file()}


def test_a_commit_is_sent_without_its_history_and_checked_out_by_its_hash(
    make: Make, mirror: Mirror, send: Send, tmp_path: Path
) -> None:
    repository, names = make(NODES)
    assert not mirror.has(names["c3"])
    send(repository, names["c3"])
    found = checked_out(mirror, names["c3"], tmp_path / "run")
    assert (found["one.c"], found["two.c"], found[".git"][:8]) == ("three\n", "two\n", "gitdir: ")
    assert git(mirror.path, "rev-list", names["c3"]) == names["c3"]
    assert not mirror.has(names["c2"])
    git(mirror.path, "fsck", "--strict", "--no-progress")


def test_only_what_differs_is_sent_and_as_deltas(make: Make, mirror: Mirror, send: Send) -> None:
    repository, names = make(NODES)
    first, second = send(repository, names["c0"]), send(repository, names["c1"])
    assert first > 50_000
    assert second < 1_000
    assert send(repository, names["c3"]) < 1_000
    assert sorted(mirror.known()) == sorted(names[name] for name in ("c0", "c1", "c3"))
    git(mirror.path, "fsck", "--strict", "--no-progress")


def test_an_older_commit_is_sent_against_a_newer_one(make: Make, mirror: Mirror, send: Send, tmp_path: Path) -> None:
    """git itself would take it for granted that whoever has a commit has its ancestors."""
    repository, names = make(NODES)
    send(repository, names["c3"])
    assert send(repository, names["c0"]) < 1_000
    assert checked_out(mirror, names["c0"], tmp_path / "run")["big.c"] == f"{BIG}\n"


def test_a_made_commit_is_sent_as_any_other(make: Make, mirror: Mirror, send: Send, tmp_path: Path) -> None:
    repository, names = make(NODES)
    one, end = (repository.resolve(names[name]) for name in ("c2", "c3"))
    made = changed_end(repository, Kind.REVERTED, one, end)
    assert isinstance(made, ChangedCommit)
    send(repository, made.commit.sha)
    assert "two.c" not in checked_out(mirror, made.commit.sha, tmp_path / "run")


def test_a_commit_of_a_shallow_clone_is_sent(make: Make, mirror: Mirror, send: Send, tmp_path: Path) -> None:
    _, names = make(NODES)
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{tmp_path}/linux", "shallow")
    with Repository.open(tmp_path / "shallow") as repository:
        send(repository, names["c3"])


def test_what_a_clone_of_the_host_has_is_not_sent(make: Make, tmp_path: Path) -> None:
    repository, names = make(NODES)
    build(tmp_path / "clone", NODES[:2], checkout=True)
    before = files(tmp_path / "clone")
    mirror = Mirror(tmp_path / "spool" / "sources.git", tmp_path / "clone" / "arch")
    mirror.prepare()
    assert mirror.has(names["c1"])
    mirror.keep(RUN, names["c1"])
    assert checked_out(mirror, names["c1"], tmp_path / "run")["one.c"] == "one\n"
    assert not mirror.has(names["c3"])
    base = mirror.first(packs.ancestors(repository, names["c3"]))
    assert base == names["c1"]
    pack = tmp_path / "pack"
    packs.pack(repository, names["c3"], (base,), pack)
    assert pack.stat().st_size < 1_000
    mirror.take(pack)
    assert mirror.has(names["c3"])
    assert files(tmp_path / "clone") == before


def test_what_was_borrowed_of_a_clone_that_is_gone_is_sent_anew(make: Make, tmp_path: Path) -> None:
    repository, names = make(NODES)
    build(tmp_path / "clone", NODES)
    borrowing = Mirror(tmp_path / "spool" / "sources.git", tmp_path / "clone")
    borrowing.prepare()
    borrowing.keep(RUN, names["c3"])
    own = Mirror(borrowing.path)
    own.prepare()
    assert not own.has(names["c3"])
    pack = tmp_path / "pack"
    packs.pack(repository, names["c2"], packs.nearest(repository, names["c2"], own.known()), pack)
    with pytest.raises(InfraError, match="index-pack"):
        own.take(pack)
    packs.pack(repository, names["c2"], (), pack)
    own.take(pack)
    assert own.has(names["c2"])


def test_objects_of_any_kind_of_repository_are_borrowed(make: Make, tmp_path: Path) -> None:
    make(NODES, checkout=True)
    git(tmp_path / "linux", "worktree", "add", "-q", str(tmp_path / "linked"))
    git(tmp_path, "clone", "-q", "--bare", "linux", "bare")
    assert objects_of(tmp_path / "linked") == tmp_path / "linux" / ".git" / "objects"
    assert objects_of(tmp_path / "bare") == tmp_path / "bare" / "objects"
    for path in (tmp_path / "none", Path("/proc")):
        with pytest.raises(UserError, match="no git repository"):
            objects_of(path)


@pytest.mark.parametrize("lost", ["blob", "tree", "commit"])
def test_a_commit_that_lacks_anything_is_not_whole(make: Make, mirror: Mirror, send: Send, lost: str) -> None:
    repository, names = make(NODES)
    send(repository, names["c1"])
    object_ = {"blob": f"{names['c1']}:arch/x86/Kconfig", "tree": f"{names['c1']}:arch", "commit": names["c1"]}[lost]
    sha = git(mirror.path, "rev-parse", object_)
    pack = next((mirror.path / "objects/pack").glob("*.pack"))
    loose = mirror.path.with_name("all.pack")
    pack.rename(loose)
    pack.with_suffix(".idx").unlink()
    mirror.git("unpack-objects", "-q", at=mirror.path, where=(f"--git-dir={mirror.path}",), stdin=loose)
    assert mirror.has(names["c1"])
    (mirror.path / "objects" / sha[:2] / sha[2:]).unlink()
    assert not mirror.has(names["c1"])


@pytest.mark.parametrize("file", ["HEAD", "config"])
@pytest.mark.parametrize("content", [None, "", "\0\0\0\0"])
def test_a_damaged_repository_is_made_anew(
    make: Make, mirror: Mirror, send: Send, file: str, content: str | None
) -> None:
    repository, names = make(NODES)
    send(repository, names["c1"])
    if content is None:
        (mirror.path / file).unlink()
    else:
        (mirror.path / file).write_text(content)
    mirror.prepare()
    if not mirror.has(names["c1"]):
        send(repository, names["c1"])
    assert git(mirror.path, "rev-parse", "--is-bare-repository") == "true"


def test_a_git_that_was_killed_in_the_middle_leaves_nothing(
    make: Make, mirror: Mirror, send: Send, tmp_path: Path
) -> None:
    repository, names = make(NODES)
    pack = tmp_path / "pack"
    packs.pack(repository, names["c1"], (), pack)
    words = ["git", f"--git-dir={mirror.path}", "index-pack", "--stdin", "--fix-thin"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        child.stdin.write(pack.read_bytes()[:-1])
        child.stdin.flush()
        while not list((mirror.path / "objects/pack").glob("tmp_*")):
            assert child.poll() is None
        os.kill(child.pid, signal.SIGKILL)
    for lock in ("packed-refs.lock", "shallow.lock"):
        (mirror.path / lock).touch()
    mirror.keep(RUN, _empty(mirror))
    reference = next((mirror.path / "refs").rglob(_empty(mirror)))
    reference.with_name(f"{reference.name}.lock").touch()
    mirror.prepare()
    assert not list((mirror.path / "objects/pack").glob("*"))
    assert not mirror.has(names["c1"])
    send(repository, names["c1"])
    mirror.release(RUN)
    assert mirror.known() == ()


def test_a_git_that_outlives_who_started_it_is_ended(mirror: Mirror) -> None:
    words = ["git", f"--git-dir={mirror.path}", "cat-file", "--batch"]
    marked = mirror.git("as-it-is-run", at=mirror.path, where=("-c", "alias.as-it-is-run=!env")).lines
    env = dict(line.split("=", 1) for line in marked if line.startswith(("PATH=", process.RUN_MARKER)))
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=env) as child:
        try:
            mirror.prepare()
            assert child.wait(10) < 0
        finally:
            child.kill()


def _empty(mirror: Mirror) -> str:
    """A commit of no files."""
    who = "a <a@b> 0 +0000"
    text = f"tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor {who}\ncommitter {who}\n\n\n"
    where = (f"--git-dir={mirror.path}",)
    for kind, content in (("tree", ""), ("commit", text)):
        made = mirror.git("hash-object", "-t", kind, "-w", "--stdin", at=mirror.path, where=where, stdin=content)
    return made.stdout.strip()


@pytest.mark.parametrize("bad", ["cut off", "changed", "empty"])
def test_a_pack_that_is_not_what_was_sent_adds_nothing(make: Make, mirror: Mirror, tmp_path: Path, bad: str) -> None:
    repository, names = make(NODES)
    pack = tmp_path / "pack"
    packs.pack(repository, names["c1"], (), pack)
    content = pack.read_bytes()
    middle = len(content) // 2
    changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    pack.write_bytes({"cut off": content[:-1], "changed": changed, "empty": b""}[bad])
    with pytest.raises(InfraError, match="index-pack"):
        mirror.take(pack)
    mirror.prepare()
    assert not list((mirror.path / "objects/pack").glob("*"))


def test_what_a_run_keeps_outlives_a_collection_and_nothing_else_does(
    make: Make, mirror: Mirror, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, names = make(NODES)
    send(repository, names["c0"])
    send(repository, names["c1"])
    mirror.release(RUN)
    send(repository, names["c3"])
    mirror.collect()
    assert mirror.has(names["c1"])  # there are few packs
    monkeypatch.setattr(mirrors, "_MOST_PACKS", 1)
    mirror.collect()
    assert mirror.known() == (names["c3"],)
    assert mirror.has(names["c3"])
    assert not mirror.has(names["c1"])
    git(mirror.path, "fsck", "--strict", "--no-progress")


def test_runs_are_let_go_of_one_by_one_and_when_nobody_goes_on_with_them(
    make: Make, mirror: Mirror, send: Send
) -> None:
    repository, names = make(NODES)
    send(repository, names["c0"])
    mirror.keep("other..run", names["c0"])
    mirror.release(RUN)
    assert mirror.known() == (names["c0"],)
    mirror.release_unused(60.0)
    assert mirror.known() == (names["c0"],)
    for used in (mirror.path / "bisector").iterdir():
        os.utime(used, (0, 0))
    mirror.keep("later", names["c0"])
    mirror.release_unused(60.0)
    assert [name.split("/")[-1] for name in git(mirror.path, "for-each-ref", "--format=%(refname)").split()] == [
        names["c0"]
    ]
    assert len(list((mirror.path / "bisector").iterdir())) == 1
    mirror.release("later")
    assert mirror.known() == ()


def test_ancestors_are_named_ever_farther_apart(make: Make) -> None:
    repository, names = make(linear(12))
    assert packs.ancestors(repository, names["c11"]) == tuple(names[f"c{n}"] for n in (10, 9, 7, 3))
    assert packs.ancestors(repository, names["c0"]) == ()


def test_the_nearest_in_time_are_taken_of_what_both_ends_have(make: Make) -> None:
    repository, names = make(linear(30))
    known = ("0" * 40, *(names[f"c{n}"] for n in range(30)))
    assert packs.nearest(repository, names["c20"], known)[0] == names["c20"]
    assert {*packs.nearest(repository, names["c20"], known)} <= {names[f"c{n}"] for n in range(15, 26)}
    assert packs.nearest(repository, names["c20"], ()) == ()
