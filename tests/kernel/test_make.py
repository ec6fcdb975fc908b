import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from bisector.errors import InfraError, KernelFault
from bisector.kernel.make import BuildPlaces, unfinished
from bisector.model import FaultKind, Stage

MARKER = ".bisector-building"


@pytest.fixture
def places(tmp_path: Path) -> BuildPlaces:
    (tmp_path / "source/scripts").mkdir(parents=True)
    (tmp_path / "source/scripts/Kbuild.include").write_text(".DELETE_ON_ERROR:\n")
    (tmp_path / "build/fs").mkdir(parents=True)
    return BuildPlaces(tmp_path / "source", tmp_path / "build", tmp_path / "logs", tmp_path)


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        pytest.param(None, False, id="built"),
        pytest.param(KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, "x.c:1:1: error: no"), False, id="make ended"),
        pytest.param(KernelFault(Stage.BUILD, FaultKind.BUILD_TIMEOUT, "late"), True, id="make was ended"),
        pytest.param(InfraError("no room"), True, id="no room"),
        pytest.param(KeyboardInterrupt(), True, id="Ctrl-C"),
    ],
)
def test_marker_stays_when_make_could_not_tidy_up(places: BuildPlaces, error: BaseException | None, kept: bool) -> None:
    marker = places.build / MARKER
    with pytest.raises(type(error)) if error else nullcontext(), unfinished(places):
        assert marker.exists()
        if error:
            raise error
    assert marker.exists() is kept


def test_an_unfinished_build_is_undone(places: BuildPlaces) -> None:
    marker = places.build / MARKER
    files = {"before.o": -1, "fs/at.o": 0, "fs/after.o": 1, "fs/.after.o.cmd": 1}
    marker.touch()
    for name, seconds in files.items():
        (places.build / name).write_text("")
        at_ns = marker.stat().st_mtime_ns + seconds * 10**9
        os.utime(places.build / name, ns=(at_ns, at_ns))
    (places.build / "source").symlink_to(places.source)
    with unfinished(places):
        left = sorted(str(path.relative_to(places.build)) for path in places.build.rglob("*") if path.is_file())
    assert left == [MARKER, "before.o"]
    assert (places.source / "scripts/Kbuild.include").exists()
