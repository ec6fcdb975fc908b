"""Sources as git has them, whatever a person's git is told to do to files and whatever was left."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from bisector.core.errors import InfraError, UserError
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.git.worktrees import Purpose, Worktree
from bisector.host import build_user
from tests.git.checks import footprint
from tests.git.conftest import Make
from tests.git.histories import Node, git, linear


def files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file() and file.name != ".git"}


def written(file: Path) -> tuple[int, int]:
    """What is another when git has written the file, even if its content is the same."""
    return file.stat().st_mtime_ns, file.stat().st_ino


def tree_on_disk(path: Path) -> set[str]:
    """Mode, hash and name of each file, as ``git ls-tree`` gives them, and no filter or attribute asked."""
    found = set()
    for file in path.rglob("*"):
        if file.is_dir() or file == path / ".git":
            continue
        content = bytes(file.readlink()) if file.is_symlink() else file.read_bytes()
        sha = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        mode = "120000" if file.is_symlink() else "100755" if file.stat().st_mode & 0o100 else "100644"
        found.add(f"{mode} blob {sha}\t{file.relative_to(path)}")
    return found


def tree_of(repository: Repository, rev: str) -> set[str]:
    """The same of a commit."""
    return set(git(repository.top, "ls-tree", "-r", rev).split("\n"))


def killed_after_checkout(repository: Repository, run_dir: Path, rev: str) -> Path:
    """What a run that ended badly leaves."""
    with suppress(InfraError), SourceTree(repository, run_dir) as tree:
        tree.checkout(repository.resolve(rev))
        raise InfraError("the host went away")
    return tree.path


def test_only_what_changed_is_touched(make: Make, tmp_path: Path) -> None:
    repository, names = make(linear(4), checkout=True)
    before = footprint(repository)
    with SourceTree(repository, tmp_path / "run") as tree:
        path = tree.checkout(repository.resolve(names["c3"]))
        assert files(path) == {file for file in files(repository.top) if not file.startswith(".git/")}
        kept = written(path / "Makefile"), written(path / "files/c/2")
        (path / "files/c/stray.o").write_text("left by a build")
        tree.checkout(repository.resolve(names["c1"]))
        assert kept == (written(path / "Makefile"), written(path / "files/c/2"))
        assert not files(path) & {"files/c/3", "files/c/4", "files/c/stray.o"}
    assert footprint(repository) == before
    assert not (tmp_path / "run/worktrees").exists()


def test_a_damaged_file_is_replaced(make: Make, tmp_path: Path) -> None:
    repository, names = make(linear(2))
    with SourceTree(repository, tmp_path / "run") as tree:
        path = tree.checkout(repository.resolve("main"))
        (path / "Makefile").write_text("half writ")
        (path / "Kbuild").unlink()
        tree.checkout(repository.resolve(names["c0"]))
        assert (path / "Makefile").read_text() == "\n"
        assert (path / "Kbuild").exists()


def test_kept_for_the_resumed_run_and_its_lock_removed(make: Make, tmp_path: Path) -> None:
    repository, names = make(linear(3), checkout=True)
    before = footprint(repository)
    path = killed_after_checkout(repository, tmp_path / "run", "main")
    (admin,) = (repository.common_dir / "worktrees").iterdir()
    (admin / "index.lock").touch()
    kept = written(path / "Makefile")
    with SourceTree(repository, tmp_path / "run") as tree:
        assert tree.checkout(repository.resolve(names["c1"])) == path
        assert written(path / "Makefile") == kept
    assert footprint(repository) == before


_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "zeros": lambda content: bytes(len(content)),
    "noise": lambda content: b"\xff\xfe" * (len(content) // 2),
}


@pytest.mark.parametrize("damage", _DAMAGES)
@pytest.mark.parametrize("name", ["index", "HEAD", "commondir", "gitdir", ".git"])
def test_a_worktree_damaged_by_a_power_cut_is_added_anew(make: Make, tmp_path: Path, name: str, damage: str) -> None:
    repository, names = make(linear(4), checkout=True)
    before = footprint(repository)
    path = killed_after_checkout(repository, tmp_path / "run", names["c3"])
    (admin,) = (repository.common_dir / "worktrees").iterdir()
    file = path / name if name == ".git" else admin / name
    file.write_bytes(_DAMAGES[damage](file.read_bytes()))
    with SourceTree(repository, tmp_path / "run") as tree:
        for tip in ("c1", "c2"):
            assert tree_on_disk(tree.checkout(repository.resolve(names[tip]))) == tree_of(repository, names[tip])
        assert len(list((repository.common_dir / "worktrees").iterdir())) == 1
    assert footprint(repository) == before


@pytest.mark.parametrize("damaged", [False, True])
def test_worktree_of_a_partial_clone(make: Make, tmp_path: Path, damaged: bool) -> None:
    """Without the network a new worktree would be worse off: it would need all files again."""
    origin, _ = make(linear(3))
    git(origin.top, "config", "uploadpack.allowFilter", "true")
    partial = tmp_path / "partial"
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{origin.top}", str(partial))
    with Repository.open(partial) as repository:
        path = killed_after_checkout(repository, tmp_path / "run", "origin/main~1")
        if damaged:
            (index,) = (repository.common_dir / "worktrees").glob("*/index")
            index.write_bytes(b"")
            with SourceTree(repository, tmp_path / "run") as tree:
                assert tree_on_disk(tree.checkout(repository.resolve("origin/main"))) == tree_of(origin, "main")
        else:
            kept = written(path / "Makefile")
            origin.top.rename(tmp_path / "offline")
            with pytest.raises(InfraError, match="partial clone"):
                SourceTree(repository, tmp_path / "run").checkout(repository.resolve("origin/main"))
            assert written(path / "Makefile") == kept


def test_an_object_that_is_gone_is_an_error_after_one_new_worktree(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, names = make(linear(4))
    killed_after_checkout(repository, tmp_path / "run", names["c1"])
    blob = git(repository.top, "rev-parse", f"{names['c3']}:files/c/4")
    (repository.common_dir / "objects" / blob[:2] / blob[2:]).unlink()
    added: list[str] = []
    add = Worktree.add

    def counted(repository: Repository, run_dir: Path, purpose: Purpose, at: str) -> Worktree:
        added.append(at)
        return add(repository, run_dir, purpose, at)

    monkeypatch.setattr(Worktree, "add", counted)
    with pytest.raises(InfraError, match=f"could not check out {names['c3'][:12]}"):
        SourceTree(repository, tmp_path / "run").checkout(repository.resolve(names["c3"]))
    assert added == [names["c3"]]


def test_configuration_of_the_user_does_not_reach_our_tree(make: Make, tmp_path: Path) -> None:
    repository, names = make(linear(3), checkout=True)
    top = repository.top
    git(top, "sparse-checkout", "set", "--no-cone", "drivers")  # sets extensions.worktreeConfig, too
    hook = top / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\n")
    hook.chmod(0o755)
    before = footprint(repository)
    with SourceTree(repository, tmp_path / "run") as tree:
        path = tree.checkout(repository.resolve(names["c1"]))
        assert (path / "init/Kconfig").exists()
    assert not (tmp_path / "hook-ran").exists()
    assert footprint(repository) == before


def with_all_kinds_of_files(make: Make) -> tuple[Repository, str]:
    """A repository whose tip has what a person's settings could change on its way into a file."""
    repository, _ = make(linear(2), checkout=True)
    top = repository.top
    (top / "text.c").write_text("/* $Id$ */\nint x;\n")
    (top / "xt_TCPMSS.h").write_text("upper\n")
    (top / "xt_tcpmss.h").write_text("lower\n")
    (top / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    (top / "link.h").symlink_to("text.c")
    (top / "script.sh").write_text("#!/bin/sh\n")
    (top / "script.sh").chmod(0o755)
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "all kinds")
    return repository, git(top, "rev-parse", "HEAD")


_UPPER = "tr a-z A-Z"
_OF_A_PERSON: dict[str, tuple[tuple[str, ...], ...]] = {
    "line ends": (("config", "core.autocrlf", "true"),),
    "other line ends": (("config", "core.eol", "crlf"), ("config", "core.attributesFile", "{attributes}")),
    "no symbolic links": (("config", "core.symlinks", "false"),),
    "no modes": (("config", "core.fileMode", "false"),),
    "a case of no account": (("config", "core.ignoreCase", "true"),),
    "submodules": (("config", "submodule.recurse", "true"),),
    "attributes of all repositories": (("config", "core.attributesFile", "{attributes}"),),
    "a filter": (
        *(("config", "core.attributesFile", "{attributes}"), ("config", "filter.up.smudge", _UPPER)),
        *(("config", "filter.up.clean", "cat"), ("config", "filter.up.required", "true")),
    ),
}


@pytest.mark.parametrize("what", _OF_A_PERSON)
def test_sources_are_those_of_the_tree(make: Make, tmp_path: Path, what: str) -> None:
    repository, tip = with_all_kinds_of_files(make)
    attributes = tmp_path / "attributes"
    attributes.write_text("*.c text ident filter=up\n*.txt text\n*.h working-tree-encoding=UTF-16\n")
    for words in _OF_A_PERSON[what]:
        git(repository.top, *(word.format(attributes=attributes) for word in words))
    with SourceTree(repository, tmp_path / "run") as tree:
        path = tree.checkout(repository.resolve("HEAD^"))
        tree.checkout(repository.resolve(tip))
        assert tree_on_disk(path) == tree_of(repository, tip)


def test_a_filter_that_the_tree_names_is_not_run(make: Make, tmp_path: Path) -> None:
    """git-lfs is configured for all of a person's repositories, and where its program is gone no checkout works."""
    repository, _ = make((*linear(2), Node("c2", ("c1",), files={".gitattributes": "Makefile filter=l.f-s\n"})))
    for name, value in (("smudge", _UPPER), ("process", "no-such-program"), ("required", "true")):
        git(repository.top, "config", f"filter.l.f-s.{name}", value)
    with SourceTree(repository, tmp_path / "run") as tree:
        path = tree.checkout(repository.resolve("main"))
        assert tree_on_disk(path) == tree_of(repository, "main")


@pytest.mark.parametrize(
    ("section", "names"),
    [('[filter "a=b"]\n\tsmudge', "filter.a=b.smudge"), ("[attr]\n\ttree = HEAD~1\n[filter]\n\tx", "attr.tree")],
)
def test_a_setting_that_no_option_undoes_is_refused(make: Make, tmp_path: Path, section: str, names: str) -> None:
    """That of the worktree alone, too."""
    repository, _ = make((*linear(2), Node("c2", ("c1",), files={".gitattributes": "* filter=a=b\n"})))
    ran = tmp_path / "ran"
    (tmp_path / "settings").write_text(f"{section} = touch {ran}; cat\n")
    git(repository.top, "config", "includeIf.gitdir:**/worktrees/**.path", str(tmp_path / "settings"))
    with pytest.raises(UserError, match=f"sets {names}"), SourceTree(repository, tmp_path / "run") as tree:
        tree.checkout(repository.resolve("main"))
    assert not ran.exists()


def test_a_filter_that_only_worktrees_have_is_not_run(make: Make, tmp_path: Path) -> None:
    repository, _ = make(
        (*linear(2), Node("c2", ("c1",), files={".gitattributes": "* filter=up\n", "x.c": "int x;\n"}))
    )
    (tmp_path / "settings").write_text(f'[filter "up"]\n\tsmudge = {_UPPER}\n')
    git(repository.top, "config", "includeIf.gitdir:**/worktrees/**.path", str(tmp_path / "settings"))
    with SourceTree(repository, tmp_path / "run") as tree:
        path = tree.checkout(repository.resolve("main"))
        assert tree_on_disk(path) == tree_of(repository, "main")


@pytest.mark.parametrize("kind", ["blob", "tree", "commit"])
def test_what_a_person_put_in_the_place_of_an_object_is_not_built(make: Make, tmp_path: Path, kind: str) -> None:
    repository, names = make((*linear(3), Node("c3", ("c2",), files={"Makefile": "other\n"})))
    one, other = {
        "blob": (f"{names['c2']}:Makefile", f"{names['c3']}:Makefile"),
        "tree": (f"{names['c2']}^{{tree}}", f"{names['c3']}^{{tree}}"),
        "commit": (names["c2"], names["c3"]),
    }[kind]
    expected = tree_of(repository, names["c2"])
    git(repository.top, "replace", "-f", one, other)
    with SourceTree(repository, tmp_path / "run") as tree:
        assert tree_on_disk(tree.checkout(repository.resolve(names["c2"]))) == expected


def test_attributes_in_the_tree_are_part_of_it(make: Make, tmp_path: Path) -> None:
    files = {".gitattributes": "*.txt text eol=crlf\n", "note.txt": "one\n"}
    repository, _ = make((*linear(2), Node("c2", ("c1",), files=files)))
    with SourceTree(repository, tmp_path / "run") as tree:
        assert (tree.checkout(repository.resolve("main")) / "note.txt").read_bytes() == b"one\r\n"


def test_a_file_of_the_same_size_and_second_is_written_again(make: Make, tmp_path: Path) -> None:
    repository, _ = make(linear(2))
    for key, value in (("core.checkStat", "minimal"), ("core.trustctime", "false")):
        git(repository.top, "config", key, value)
    with SourceTree(repository, tmp_path / "run") as tree:
        path = tree.checkout(repository.resolve("main"))
        file = path / "drivers/md/dm.c"
        before = file.stat()
        other = path / "other"
        other.write_text("x" * before.st_size)
        os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
        other.replace(file)
        (index,) = (repository.common_dir / "worktrees").glob("*/index")
        os.utime(index, (before.st_mtime + 10, before.st_mtime + 10))  # else git compares contents: "racy"
        tree.checkout(repository.resolve("main"))
        assert file.read_text() == "c0\n"


@pytest.mark.parametrize(
    "line",
    ["*.c ident", "* -text", '"a b.c" diff filter=up', "[attr]mine diff eol=crlf", "a !merge", "* binary\r", " * crlf"],
)
def test_attributes_of_the_clone_are_refused(make: Make, tmp_path: Path, line: str) -> None:
    repository, _ = make(linear(2))
    path = repository.common_dir / "info" / "attributes"
    path.parent.mkdir(exist_ok=True)
    path.write_text("# *.c ident\n*.c diff=cpp whitespace=tab-in-indent\n\ntext linguist-vendored\n")
    with SourceTree(repository, tmp_path / "run") as tree:
        assert tree.checkout(repository.resolve("main"))
    with path.open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(UserError, match=r"info/attributes:5 sets "), SourceTree(repository, tmp_path / "run"):
        pass


def test_attributes_of_another_tree_are_refused(make: Make, tmp_path: Path) -> None:
    repository, _ = make(linear(2))
    git(repository.top, "config", "attr.tree", "main~1")
    with pytest.raises(UserError, match=r"attr\.tree"), SourceTree(repository, tmp_path / "run"):
        pass


def test_bare_repository(make: Make, tmp_path: Path) -> None:
    repository, _ = make(linear(2), bare=True)
    with SourceTree(repository, tmp_path / "run") as tree:
        assert (tree.checkout(repository.resolve("main")) / "Makefile").exists()
    assert not (repository.common_dir / "worktrees").exists()


def test_submodule_is_left_alone(make: Make, tmp_path: Path) -> None:
    modules = '[submodule "sub"]\n\tpath = sub\n\turl = /nowhere\n'
    repository, _ = make((*linear(2), Node("c2", ("c1",), files={".gitmodules": modules})))
    git(repository.top, "config", "submodule.recurse", "true")
    with SourceTree(repository, tmp_path / "run") as tree:
        assert (tree.checkout(repository.resolve("main")) / ".gitmodules").exists()


def test_file_missing_from_a_partial_clone(make: Make, tmp_path: Path) -> None:
    origin, _ = make(linear(3))
    git(origin.top, "config", "uploadpack.allowFilter", "true")
    partial = tmp_path / "partial"
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{origin.top}", str(partial))
    origin.top.rename(tmp_path / "offline")
    with Repository.open(partial) as repository:
        tree = SourceTree(repository, tmp_path / "run")
        with pytest.raises(InfraError, match="partial clone"), tree:
            tree.checkout(repository.resolve("main"))
        tree.remove()


@pytest.mark.skipif(os.geteuid() != 0, reason="make runs as whoever checks out")
def test_roots_umask_is_not_that_of_the_sources(make: Make, tmp_path: Path) -> None:
    """Another user compiles what root checks out."""
    repository, names = make(linear(2), checkout=True)
    before = os.umask(0o077)
    try:
        with SourceTree(repository, tmp_path / "run") as tree:
            path = tree.checkout(repository.resolve(names["c1"]))
            closed = [file for file in path.rglob("*") if file.name != ".git" and file.stat().st_mode & 0o004 == 0]
            assert (closed, (path / "Makefile").is_file()) == ([], True)
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's umask is its own affair")
def test_roots_sources_can_be_read_from_the_beginning_and_are_written_once(make: Make, tmp_path: Path) -> None:
    repository, names = make((*linear(2), Node("c2", ("c1",), files={"x.c": "int x;\n"})))
    before = os.umask(0o077)
    try:
        with SourceTree(repository, tmp_path / "run") as tree:
            path = tree.checkout(repository.resolve(names["c1"]))
            assert path.stat().st_mode & 0o777 == 0o755
            build_user.show(path)
            inode = (path / "Makefile").stat().st_ino
            tree.checkout(repository.resolve(names["c2"]))
            assert (path / "Makefile").stat().st_ino == inode
    finally:
        os.umask(before)
