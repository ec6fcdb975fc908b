"""What a tree's make may leave where this process reads and writes."""

import errno
import os
from pathlib import Path

import pytest

from bisector.core.errors import KernelFault
from bisector.host.files import remove_whole
from bisector.kernel.builddir import blamed_on_make, remove_strays
from tests.nested import nest

as_ordinary_user = pytest.mark.skipif(os.geteuid() == 0, reason="root needs no rights")


@pytest.fixture
def build(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    made = tmp_path / "build"
    (made / "fs").mkdir(parents=True)
    (made / "fs/dcache.o").write_text("object")
    return made


def removed(build: Path) -> tuple[str, ...]:
    return remove_strays(build, build.parent / "source")


def test_directories_in_too_many_others_are_removed(build: Path) -> None:
    nest(build, 2000)
    (stray,) = removed(build)
    assert stray.endswith("/deep/deep, a directory in too many others")
    assert removed(build) == ()
    assert max(len(str(path)) for path in build.rglob("*")) < len(str(build)) + 1000
    assert (build / "fs/dcache.o").read_text() == "object"


@as_ordinary_user
def test_rights_that_a_rule_took_away_are_given_back(build: Path) -> None:
    (build / "fs/link").symlink_to("/etc/passwd")
    for path in (build / "fs/dcache.o", build / "fs", build):
        path.chmod(0)
    assert len(removed(build)) == 1
    assert (build / "fs/dcache.o").read_text() == "object"


@as_ordinary_user
def test_what_lacks_rights_is_removed_whole(build: Path) -> None:
    (build / "fs/below").mkdir()
    (build / "fs/below").chmod(0)
    (build / "fs").chmod(0)
    remove_whole(build / "fs")
    assert not (build / "fs").exists()


@pytest.mark.parametrize(("number", "blamed"), [(errno.EISDIR, True), (errno.ENOSPC, False), (errno.EIO, False)])
def test_a_full_or_bad_disk_is_not_makes_fault(build: Path, number: int, blamed: bool) -> None:
    error = OSError(number, os.strerror(number), str(build / "vmlinux"))
    with pytest.raises(KernelFault if blamed else OSError), blamed_on_make(build):
        raise error
    with pytest.raises(OSError, match=os.strerror(number)), blamed_on_make(build):
        raise OSError(number, os.strerror(number), str(build.parent / "logs"))
