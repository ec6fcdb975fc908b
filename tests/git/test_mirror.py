"""Commits on their way to a host that has none, some, or a clone of its own; and what a kill leaves there."""

import os
import random
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bisector.core import resources
from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Commit, Kind
from bisector.git import transfer as mirrors
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.git.transfer import Address, Mirror, objects_of
from bisector.git.trees import changed_end
from bisector.host import process
from tests.git.conftest import Make
from tests.git.histories import KERNEL_TREE, Node, build, git

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


def pushed(mirror: Mirror, repository: Repository, sha: str, run: str = RUN) -> int:
    """Send a commit as to another machine; how many bytes went there."""
    code = (
        "import sys; from pathlib import Path; from bisector.git.transfer import Mirror;"
        f"sys.exit(Mirror(Path({str(mirror.path)!r})).receive({run!r}))"
    )
    receive = shlex.join(("env", f"PYTHONPATH={resources.ROOT}", sys.executable, "-P", "-c", code))
    sent = mirror.path.with_name("sent")
    counted = f"exec sh -c {shlex.quote(f'tee {sent} | {receive}')}"
    to = Address(str(mirror.path), "ssh", counted, mirrors.references(run))
    mirrors.push(repository, mirror.path.with_name("sender.git"), sha, mirror.known(run), to)
    return sent.stat().st_size


@pytest.fixture
def send(mirror: Mirror) -> Send:
    """Sends a commit, given what the mirror has; how many bytes that takes."""

    def send_(repository: Repository, sha: str) -> int:
        size = pushed(mirror, repository, sha)
        assert mirror.has(sha)
        mirror.use(RUN)
        return size

    return send_


def checked_out(mirror: Mirror, sha: str, place: Path) -> dict[str, str]:
    """The files of a commit as a job of the host has them, by the hash that the record has."""
    repository = Repository.open(mirror.path)
    top = SourceTree(repository, place).checkout(repository.resolve(sha))
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


def test_only_what_differs_is_sent(make: Make, mirror: Mirror, send: Send, tmp_path: Path) -> None:
    """Also of an older commit: git itself would take it that whoever has a commit has its ancestors."""
    _, names = make(NODES)
    git(tmp_path, "clone", "-q", "--depth", "4", f"file://{tmp_path}/linux", "shallow")
    repository = Repository.open(tmp_path / "shallow")
    sizes = [send(repository, names[name]) for name in ("c1", "c3", "c0")]
    assert sizes[0] > 50_000
    assert max(sizes[1:]) < 1_500
    assert sorted(mirror.known(RUN)) == sorted(names[name] for name in ("c0", "c1", "c3"))
    assert not mirror.has(names["c2"])
    git(mirror.path, "fsck", "--strict", "--no-progress")
    assert checked_out(mirror, names["c0"], tmp_path / "run")["big.c"] == f"{BIG}\n"
    mirror.keep("another", names["c1"])
    assert pushed(mirror, repository, names["c2"], "another") < 1_500


def test_a_made_commit_is_sent_as_any_other(make: Make, mirror: Mirror, send: Send, tmp_path: Path) -> None:
    repository, names = make(NODES)
    one, end = (repository.resolve(names[name]) for name in ("c2", "c3"))
    made = changed_end(repository, Kind.REVERTED, one, end)
    assert isinstance(made, Commit)
    send(repository, made.sha)
    assert "two.c" not in checked_out(mirror, made.sha, tmp_path / "run")


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
    assert names["c1"] in mirrors.ancestors(repository, names["c3"])
    assert pushed(mirror, repository, names["c3"]) < 1_500
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
    own.release(RUN)
    pushed(own, repository, names["c2"])
    assert own.has(names["c2"])


def test_objects_of_any_kind_of_repository_are_borrowed(make: Make, tmp_path: Path) -> None:
    make(NODES, checkout=True)
    git(tmp_path / "linux", "worktree", "add", "-q", str(tmp_path / "linked"))
    git(tmp_path, "clone", "-q", "--bare", "linux", "bare")
    assert objects_of(tmp_path / "linked") == tmp_path / "linux" / ".git" / "objects"
    assert objects_of(tmp_path / "bare") == tmp_path / "bare" / "objects"
    for path in (tmp_path / "none", Path("/proc")):
        with pytest.raises(UserError, match="not a git repository"):
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
    mirror.git("unpack-objects", "-q", at=mirror.path, where=(f"--git-dir={mirror.path}",), stdin=loose.read_bytes())
    assert mirror.has(names["c1"])
    (mirror.path / "objects" / sha[:2] / sha[2:]).unlink()
    assert not mirror.has(names["c1"])


@pytest.mark.parametrize(("file", "content"), [("HEAD", None), ("config", ""), ("HEAD", "\0\0\0\0")])
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


def test_a_git_that_was_killed_in_the_middle_leaves_nothing(make: Make, mirror: Mirror, send: Send) -> None:
    repository, names = make(NODES)
    for left in ("objects/pack/tmp_pack_1", "packed-refs.lock", "shallow.lock"):
        (mirror.path / left).touch()
    mirror.keep(RUN, _empty(mirror))
    reference = next((mirror.path / "refs").rglob(_empty(mirror)))
    reference.with_name(f"{reference.name}.lock").touch()
    mirror.prepare()
    assert not list((mirror.path / "objects/pack").glob("*"))
    send(repository, names["c1"])
    mirror.release(RUN)
    assert mirror.known(RUN) == ()


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


def test_what_a_run_keeps_outlives_a_collection_and_goes_when_nobody_goes_on_with_it(
    make: Make, mirror: Mirror, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, names = make(NODES)
    send(repository, names["c1"])
    monkeypatch.setattr(mirrors, "_MOST_PACKS", 0)
    mirror.use("later")
    mirror.keep("later", _empty(mirror))
    mirror.release_unused(60.0)
    assert mirror.known(RUN) == (names["c1"],)
    assert mirror.has(names["c1"])
    for used in (mirror.path / "bisector").iterdir():
        if mirrors.references(RUN).endswith(used.name):
            os.utime(used, (0, 0))
    mirror.release_unused(60.0)
    assert (mirror.known(RUN), mirror.known("later")) == ((), (_empty(mirror),))
    git(mirror.path, "fsck", "--strict", "--no-progress")


def test_what_no_mirror_takes_is_an_error_of_this_machine(make: Make, mirror: Mirror, tmp_path: Path) -> None:
    repository, names = make(NODES)
    to = Address(str(tmp_path / "none"), "ssh", "git receive-pack", mirrors.references(RUN))
    with pytest.raises(InfraError, match="git push failed"):
        mirrors.push(repository, tmp_path / "sender.git", names["c1"], (), to)
