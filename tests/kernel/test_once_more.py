"""What is said of a kernel that is not the one that was measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.core.subject import Kernel
from bisector.kernel.signature import as_measured
from tests import examples

MEASURED = replace(examples.kernel(quirks=("gelf",)), config=Path("/gone/kernel.config"), key="a1-7777")


def refused(measured: Kernel, now: Kernel) -> str:
    with pytest.raises(UserError) as caught:
        as_measured(measured, replace(now, content_sha256="d" * 64))
    return caught.value.message.partition("a rebuild differs: ")[2]


def test_one_of_equal_content_is_the_same_however_it_was_made() -> None:
    built = replace(MEASURED, key="b2-7777", toolchain="gcc 13", release="6.1.1")
    assert as_measured(MEASURED, built) is as_measured(None, built) is built


def test_what_has_changed_is_named() -> None:
    assert refused(MEASURED, replace(MEASURED, key="b2-7777", toolchain="gcc 13", quirks=())) == (
        "its compiler and linker changed from gcc 12.2.0, GNU ld 2.40 to gcc 13; its quirks changed from gelf to none"
    )
    assert refused(MEASURED, replace(MEASURED, release="6.1.1")) == "its release changed from 5.0.0-test to 6.1.1"


def test_where_nothing_that_is_known_has_changed_that_is_said() -> None:
    assert refused(MEASURED, MEASURED) == (
        "though of the same sources, configuration, compiler and quirks, so another tool of the build has changed"
    )
    of_a_commit_with_the_same = replace(MEASURED, key="a1-8888")
    assert refused(MEASURED, of_a_commit_with_the_same).startswith("though of the same sources")
    assert (
        refused(MEASURED, replace(MEASURED, key="b2-7777"))
        == "this bisector builds kernels, or tells them apart, in another way"
    )


def test_options_are_named_as_long_as_the_run_has_them(tmp_path: Path) -> None:
    kept, new = tmp_path / "kernel.config", tmp_path / "new"
    kept.write_text("CONFIG_HZ=250\nCONFIG_MD=y\n")
    new.write_text("CONFIG_HZ=1000\nCONFIG_MD=y\n" + "".join(f"CONFIG_X{n}=y\n" for n in range(9)))
    said = refused(replace(MEASURED, config=kept), replace(MEASURED, config=new))
    assert said.startswith("CONFIG_HZ changed from 250 to 1000; CONFIG_X0 changed from n to y; ")
    assert said.endswith("; CONFIG_X4 changed from n to y; and more")
