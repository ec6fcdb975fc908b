from dataclasses import replace
from pathlib import Path

import pytest

from bisector.kernel import quirks

MAX_PAGE_SIZE = quirks.QUIRKS[0]


@pytest.mark.parametrize(
    ("makefile", "applies"),
    [
        pytest.param("LDFLAGS := -m elf_x86_64\n", True, id="v4.12"),
        pytest.param("LDFLAGS_vmlinux += -z max-page-size=0x200000\n", False, id="v4.16"),
        pytest.param(None, False, id="no such file"),
    ],
)
def test_max_page_size_is_decided_by_the_source(tmp_path: Path, makefile: str | None, applies: bool) -> None:
    path = tmp_path / MAX_PAGE_SIZE.file
    path.parent.mkdir(parents=True)
    if makefile is not None:
        path.write_text(makefile)
    assert quirks.applying(tmp_path) == ((MAX_PAGE_SIZE,) if applies else ())


def test_any_change_to_the_table_changes_its_digest() -> None:
    other = replace(MAX_PAGE_SIZE, variables=(("LD", "ld.bfd -z max-page-size=0x200000"),))
    assert quirks.digest((other,)) != quirks.digest()
    assert quirks.digest(()) != quirks.digest()


def test_no_two_quirks_set_one_variable() -> None:
    names = [name for quirk in quirks.QUIRKS for name, _ in quirk.variables]
    assert len(names) == len(set(names))
