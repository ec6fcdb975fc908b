"""A checked-out tree may have a symbolic link to anywhere in the place of any file."""

import os
from pathlib import Path

import pytest

from bisector.kernel import kconfig
from bisector.kernel.quirks import Edit, Sign
from bisector.kernel.source_files import content, text


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tmp_path / "source"
    (made / "below").mkdir(parents=True)
    (made / "below/file").write_bytes(b"\xe9 inside\n")
    (tmp_path / "outside").write_text("config OUTSIDE\n")
    return made


@pytest.mark.parametrize(
    "target",
    [
        "../outside",
        "/etc/passwd",
        "/dev/zero",
        "/proc/self/environ",
        "below",
        "link",
        "none",
        "below/file/x",
        "pipe",
        "x" * 300,
    ],
)
def test_what_is_no_file_of_the_tree_is_not_there(source: Path, target: str) -> None:
    os.mkfifo(source / "pipe")
    (source / "link").symlink_to(target)
    assert content(source, "link") is None
    assert content(source, "link/deep") is None
    assert not Sign("link").shows(source)
    assert not Edit("link", "config", "x").fits(source)


def test_a_link_inside_the_tree_is_followed_by_every_name_of_the_tree(source: Path, tmp_path: Path) -> None:
    (source / "link").symlink_to("below/file")
    (tmp_path / "tree").symlink_to(source)
    for place in (source, tmp_path / "tree"):
        assert content(place, "link") == b"\xe9 inside\n"
        assert text(place, place / "link") == "\udce9 inside\n"


def test_options_are_those_of_the_trees_own_files(source: Path) -> None:
    (source / "Kconfig").write_text("config INSIDE\n")
    (source / "Kconfig.more").symlink_to("../outside")
    assert kconfig.symbols(source) == {"CONFIG_INSIDE"}
