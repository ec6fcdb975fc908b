from dataclasses import replace
from pathlib import Path

import pytest

from bisector.kernel import quirks
from bisector.kernel.quirks import QUIRKS, Edit, Quirk, Sign
from tests.kernel.quirk_examples import CURED, TROUBLED, Tree

BY_NAME = {quirk.name: quirk for quirk in QUIRKS}
TROUBLES = [
    pytest.param(name, tree, id=f"{name}-{of}") for name, trees in TROUBLED.items() for of, tree in trees.items()
]
SOME = Quirk("some", (Sign("a"),), (("LD", "ld.bfd"),))


def written(path: Path, tree: Tree) -> Path:
    for file, text in tree.items():
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).write_text(text)
    return path


def test_every_quirk_has_its_examples() -> None:
    assert set(TROUBLED) == set(CURED) == set(BY_NAME)
    assert len(BY_NAME) == len(QUIRKS)


@pytest.mark.parametrize(("name", "tree"), TROUBLES)
def test_a_tree_with_the_trouble_shows_it_until_it_is_edited(tmp_path: Path, name: str, tree: Tree) -> None:
    source, build, quirk = written(tmp_path / "source", tree), tmp_path / "build", BY_NAME[name]
    assert quirk.applies(source)
    build.mkdir()
    quirks.apply_edits(quirk.edits, source, build)
    assert quirk.applies(source) is not bool(quirk.edits)
    changed = {file for file, text in tree.items() if (source / file).read_text() != text}
    assert changed == {edit.file for edit in quirk.edits}


@pytest.mark.parametrize("name", CURED)
def test_a_cured_tree_and_one_without_the_files_need_nothing(tmp_path: Path, name: str) -> None:
    assert not BY_NAME[name].applies(tmp_path)
    assert not BY_NAME[name].applies(written(tmp_path, CURED[name]))


@pytest.mark.parametrize("quirk", QUIRKS, ids=lambda quirk: quirk.name)
def test_a_row_is_complete(quirk: Quirk) -> None:
    assert quirk.variables or quirk.edits
    for edit in quirk.edits:
        assert len(edit.old) != len(edit.new), "git sees an edit by the file's size, whatever the clock"


def test_a_text_that_is_there_twice_is_not_edited(tmp_path: Path) -> None:
    quirk = replace(SOME, variables=(), edits=(Edit("a", "x", "yy"),))
    assert quirk.applies(written(tmp_path, {"a": "x\n"}))
    assert not quirk.applies(written(tmp_path, {"a": "x\nx\n"}))


def test_what_a_table_does_is_in_its_digest() -> None:
    other = (
        replace(SOME, variables=(("LD", "ld.gold"),)),
        replace(SOME, edits=(Edit("a", "x", "yy"),)),
        replace(SOME, edits=(Edit("a", "x", "yyy"),)),
        replace(SOME, signs=(Sign("a", has="x"),)),
        replace(SOME, name="another"),
    )
    digests = {quirks.digest((quirk,)) for quirk in (SOME, *other)} | {quirks.digest(())}
    assert len(digests) == len(other) + 2


def test_every_file_that_decides_or_is_edited_is_named() -> None:
    edited = replace(SOME, signs=(Sign("a"), Sign("b", lacks="x")), edits=(Edit("c", "old", "newer"),))
    assert quirks.files([SOME, edited]) == {"a", "b", "c"}
    assert quirks.files([]) == frozenset()
