"""Sources are those of the tree, whatever a person's git is told to do to files."""

import os
from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree, remove_leftovers
from tests.git.checks import footprint, tree_of, tree_on_disk
from tests.git.conftest import Make
from tests.git.histories import Node, git, linear
from tests.programs import program


def test_configuration_of_the_user_does_not_reach_our_tree(make: Make, tmp_path: Path) -> None:
    repository, names = make(linear(3), checkout=True)
    top = repository.top
    git(top, "sparse-checkout", "set", "--no-cone", "drivers")  # sets extensions.worktreeConfig, too
    (top / ".git/hooks").mkdir(exist_ok=True)
    program(top / ".git/hooks/post-checkout", f"touch {tmp_path}/hook-ran")
    before = footprint(repository)
    tree = SourceTree(repository, tmp_path / "run")
    path = tree.checkout(repository.resolve(names["c1"]))
    assert (path / "init/Kconfig").exists()
    remove_leftovers(repository, tmp_path / "run")
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
    program(top / "script.sh", "true")
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
    tree = SourceTree(repository, tmp_path / "run")
    path = tree.checkout(repository.resolve("HEAD^"))
    tree.checkout(repository.resolve(tip))
    assert tree_on_disk(path) == tree_of(repository, tip)


def test_a_filter_that_the_tree_names_is_not_run(make: Make, tmp_path: Path) -> None:
    """git-lfs is configured for all of a person's repositories, and where its program is gone no checkout works."""
    repository, _ = make((*linear(2), Node("c2", ("c1",), files={".gitattributes": "Makefile filter=l.f-s\n"})))
    for name, value in (("smudge", _UPPER), ("process", "no-such-program"), ("required", "true")):
        git(repository.top, "config", f"filter.l.f-s.{name}", value)
    tree = SourceTree(repository, tmp_path / "run")
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
    with pytest.raises(UserError, match=f"sets {names}"):
        SourceTree(repository, tmp_path / "run").checkout(repository.resolve("main"))
    assert not ran.exists()


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
    tree = SourceTree(repository, tmp_path / "run")
    assert tree_on_disk(tree.checkout(repository.resolve(names["c2"]))) == expected


def test_attributes_in_the_tree_are_part_of_it(make: Make, tmp_path: Path) -> None:
    files = {".gitattributes": "*.txt text eol=crlf\n", "note.txt": "one\n"}
    repository, _ = make((*linear(2), Node("c2", ("c1",), files=files)))
    tree = SourceTree(repository, tmp_path / "run")
    assert (tree.checkout(repository.resolve("main")) / "note.txt").read_bytes() == b"one\r\n"


def test_a_file_of_the_same_size_and_second_is_written_again(make: Make, tmp_path: Path) -> None:
    repository, _ = make(linear(2))
    for key, value in (("core.checkStat", "minimal"), ("core.trustctime", "false")):
        git(repository.top, "config", key, value)
    tree = SourceTree(repository, tmp_path / "run")
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
    tree = SourceTree(repository, tmp_path / "run")
    assert tree.checkout(repository.resolve("main"))
    with path.open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(UserError, match=r"info/attributes:5 sets "):
        SourceTree(repository, tmp_path / "run")


def test_attributes_of_another_tree_are_refused(make: Make, tmp_path: Path) -> None:
    repository, _ = make(linear(2))
    git(repository.top, "config", "attr.tree", "main~1")
    with pytest.raises(UserError, match=r"attr\.tree"):
        SourceTree(repository, tmp_path / "run")
