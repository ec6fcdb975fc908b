"""A fragment that is compared has to have its way, and to change something."""

from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.kernel.kconfig import check_fragment


def files(directory: Path, fragment: str, without: str, config: str) -> tuple[Path, Path, Path]:
    paths = tuple(directory / name for name in ("hz.config", "without", "with"))
    for path, text in zip(paths, (fragment, without, config), strict=True):
        path.write_text(text)
    return paths  # type: ignore[return-value] # three, as there are texts


def test_one_that_changes_an_option_passes(tmp_path: Path) -> None:
    fragment, without, config = files(tmp_path, "CONFIG_HZ_250=y\n", "CONFIG_HZ_100=y\n", "CONFIG_HZ_250=y\n")
    check_fragment(fragment, (), config, without)
    check_fragment(fragment, ("CONFIG_OTHER=y",), config, without)  # the settings' own asked for that


def test_what_kconfig_dropped_is_named(tmp_path: Path) -> None:
    fragment, without, config = files(tmp_path, "CONFIG_B=y\nCONFIG_A=7\n", "", "CONFIG_C=y\n")
    with pytest.raises(UserError, match=r"hz.config asks for CONFIG_A=7, which Kconfig does not set") as caught:
        check_fragment(fragment, ("CONFIG_OTHER=y", "CONFIG_A=7"), config, without)
    assert "what CONFIG_A depends on" in caught.value.hint


def test_one_that_changes_nothing_is_refused(tmp_path: Path) -> None:
    asked = "".join(f"CONFIG_{name}=y\n" for name in "ABCDEFGH")
    fragment, without, config = files(tmp_path, asked, f"# a comment\n{asked}", asked)
    with pytest.raises(UserError) as caught:
        check_fragment(fragment, (), config, without)
    first_six = ", ".join(f"CONFIG_{name}=y" for name in "ABCDEF")
    assert caught.value.message == f"hz.config changes nothing: without it {first_six} … is so, too"


def test_what_it_is_without_may_not_be_known(tmp_path: Path) -> None:
    fragment, _, config = files(tmp_path, "CONFIG_A=y\n", "", "CONFIG_A=y\n")
    check_fragment(fragment, (), config, None)
