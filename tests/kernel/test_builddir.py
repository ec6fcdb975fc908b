"""What is left in a build directory, and what of it the next build finds."""

import errno
import os
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.kernel import builddir
from bisector.kernel.builddir import BuildPlaces, Moment, blamed_on_make, building, remove_stale_outputs, remove_strays
from tests.nested import nest

MARKER, FINISHED = ".bisector/building", ".bisector/finished"
HOUR_NS = 3600 * 10**9


@pytest.fixture
def places(tmp_path: Path) -> BuildPlaces:
    for directory in ("source/scripts", "build/.bisector", "logs"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "source/scripts/Kbuild.include").write_text(".DELETE_ON_ERROR:\n")
    return BuildPlaces(tmp_path / "source", tmp_path / "build", tmp_path / "logs", tmp_path)


def left(places: BuildPlaces) -> list[str]:
    return sorted(str(path.relative_to(places.build)) for path in places.build.rglob("*") if path.is_file())


def date(path: Path, at_ns: int) -> None:
    os.utime(path, ns=(at_ns, at_ns), follow_symlinks=False)


def built(places: BuildPlaces) -> None:
    """A build that ends well and leaves an object."""
    remove_stale_outputs(places)
    with building(places):
        (places.build / "fs").mkdir(exist_ok=True)
        (places.build / "fs/dcache.o").write_text("")


def mistake(places: BuildPlaces, **of_moment: str | int) -> None:
    """Have the last build be of another moment."""
    moment = Moment.read(places.build / FINISHED)
    assert moment is not None
    replace(moment, **of_moment).write(places.build / FINISHED)  # type: ignore[arg-type]  # its fields


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
    with pytest.raises(type(error)) if error else nullcontext(), building(places):
        assert marker.exists()
        if error:
            raise error
    assert marker.exists() is kept


def test_an_unfinished_build_is_undone(places: BuildPlaces) -> None:
    built(places)
    marker = places.build / MARKER
    Moment.now().write(marker)
    for name, seconds in {"before.o": -1, "fs/at.o": 0, "fs/after.o": 1, "fs/.after.o.cmd": 1}.items():
        (places.build / name).write_text("")
        date(places.build / name, marker.stat().st_mtime_ns + seconds * 10**9)
    (places.build / "source").symlink_to(places.source)
    date(places.build / FINISHED, marker.stat().st_mtime_ns - 1)
    date(places.build / "fs/dcache.o", marker.stat().st_mtime_ns - 1)
    remove_stale_outputs(places)
    assert left(places) == [FINISHED, "before.o", "fs/dcache.o"]
    assert (places.source / "scripts/Kbuild.include").exists()


def test_after_the_clock_was_set_forward_all_is_left(places: BuildPlaces) -> None:
    built(places)
    mistake(places, ahead_ns=Moment.now().ahead_ns - HOUR_NS)
    remove_stale_outputs(places)
    assert left(places) == [FINISHED, "fs/dcache.o"]


@pytest.mark.parametrize("text", [None, "", "half of a", "boot soon"])
def test_what_nobody_knows_of_is_not_left(places: BuildPlaces, text: str | None) -> None:
    built(places)
    (places.build / FINISHED).unlink()
    if text is not None:
        (places.build / FINISHED).write_text(text)
    (places.build / "source").symlink_to(places.source)
    remove_stale_outputs(places)
    assert list(places.build.rglob("*")) == [places.state]
    assert (places.source / "scripts/Kbuild.include").exists()


@pytest.mark.parametrize("fault", [None, KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, "x.c:1:1: error: no")])
def test_a_clock_that_is_set_back_during_a_build_spoils_it(
    places: BuildPlaces, monkeypatch: pytest.MonkeyPatch, fault: KernelFault | None
) -> None:
    built(places)
    earlier = replace(Moment.now(), ahead_ns=Moment.now().ahead_ns - HOUR_NS)

    def build() -> None:
        with building(places):
            monkeypatch.setattr(builddir.Moment, "now", lambda: earlier)
            if fault is not None:
                raise fault

    with pytest.raises(InfraError, match="the clock was set back during the kernel build"):
        build()
    assert left(places) == []


def test_a_clock_that_is_set_forward_and_back_leaves_files_of_the_future(places: BuildPlaces) -> None:
    built(places)
    date(places.build / "fs/dcache.o", time.time_ns() + HOUR_NS)
    with pytest.raises(InfraError, match=r"fs/dcache\.o is of the future"), building(places):
        pass
    assert left(places) == []


def test_sources_of_the_future_are_dated_now_where_all_is_built_again(places: BuildPlaces) -> None:
    ahead, behind = places.source / "ahead.c", places.source / "behind.c"
    for path, offset_ns in ((ahead, HOUR_NS), (behind, -HOUR_NS)):
        path.write_text("")
        date(path, time.time_ns() + offset_ns)
    remove_stale_outputs(places)
    assert abs(ahead.stat().st_mtime_ns - time.time_ns()) < HOUR_NS // 2
    assert behind.stat().st_mtime_ns < time.time_ns() - HOUR_NS // 2


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
    nest(build, 1100)
    (stray,) = removed(build)
    assert stray.endswith("/deep/deep, a directory in too many others")
    assert removed(build) == ()
    assert max(len(str(path)) for path in build.rglob("*")) < len(str(build)) + 1000
    assert (build / "fs/dcache.o").read_text() == "object"


def test_a_link_to_itself_stops_nothing(build: Path) -> None:
    (build / "loop").symlink_to("loop")
    assert removed(build) == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root needs no rights")
def test_rights_that_a_rule_took_away_are_given_back(build: Path) -> None:
    (build / "fs/link").symlink_to("/etc/passwd")
    for path in (build / "fs/dcache.o", build / "fs", build):
        path.chmod(0)
    assert len(removed(build)) == 1
    assert (build / "fs/dcache.o").read_text() == "object"


@pytest.mark.parametrize(("number", "blamed"), [(errno.EISDIR, True), (errno.ENOSPC, False), (errno.EIO, False)])
def test_a_full_or_bad_disk_is_not_makes_fault(build: Path, number: int, blamed: bool) -> None:
    error = OSError(number, os.strerror(number), str(build / "vmlinux"))
    with pytest.raises(KernelFault if blamed else OSError), blamed_on_make(build):
        raise error
    with pytest.raises(OSError, match=os.strerror(number)), blamed_on_make(build):
        raise OSError(number, os.strerror(number), str(build.parent / "logs"))
