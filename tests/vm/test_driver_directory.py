"""Which hypervisors there are, and the directory of the one that runs in this process."""

import fcntl
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from bisector.config import EMBEDDED
from bisector.core.errors import UserError
from bisector.vm import embedded as driver
from bisector.vm.driver import open_hypervisor
from bisector.vm.embedded import embedded_root, remove_if_idle


@pytest.mark.parametrize("uri", ["qemu+ssh://elsewhere/system", "qemu://elsewhere/system", "xen:///system", "nonsense"])
def test_only_hypervisors_of_this_host(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="loopback") as caught:
        open_hypervisor(uri, tmp_path)
    assert EMBEDDED in caught.value.hint


def test_daemon_out_of_reach(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError) as caught:
        open_hypervisor(f"qemu+unix:///system?socket={tmp_path}/no-socket", tmp_path)
    assert "virsh -c" in caught.value.hint
    assert capfd.readouterr() == ("", "")


def private(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def place_of_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "var-tmp"
    made.mkdir()
    monkeypatch.setattr(driver, "PARENT", made)
    return made


def test_embedded_directory_is_short_private_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where a logout removes it."""
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    run_dir = tmp_path / ("a-long-name-" * 12)
    directory = embedded_root(run_dir)
    try:
        assert len(str(directory)) <= 50
        assert directory.stat().st_mode & 0o777 == 0o700
        assert not directory.is_relative_to(runtime)
        assert embedded_root(run_dir) == directory
    finally:
        remove_if_idle(directory)
    assert not directory.exists()


@pytest.mark.usefixtures("place_of_drivers")
def test_one_process_has_one_embedded_directory(tmp_path: Path) -> None:
    first = embedded_root(tmp_path / "one")
    assert embedded_root(tmp_path / "two", first) == first
    assert embedded_root(tmp_path / "two") == first
    assert first in driver.directories()
    remove_if_idle(first)
    assert not first.exists()


@pytest.mark.usefixtures("place_of_drivers")
def test_a_directory_that_another_process_holds_is_not_removed(tmp_path: Path) -> None:
    """A copied run directory has the same link; its process may be building, with no guest yet."""
    directory = embedded_root(tmp_path / "one")
    script = f"from pathlib import Path; from bisector.vm.embedded import hold; hold(Path({str(directory)!r}));"
    words = [sys.executable, "-c", f"{script} print(1, flush=True); input()"]
    let_go = driver.hold(directory)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        let_go()
        remove_if_idle(directory)
        assert directory.exists()
        other.kill()
    remove_if_idle(directory)
    assert not directory.exists()


@pytest.mark.usefixtures("place_of_drivers")
def test_a_directory_is_held_though_somebody_looks_at_it_in_that_moment(tmp_path: Path) -> None:
    """Who looks for guests that were left has it for itself meanwhile."""
    directory = embedded_root(tmp_path / "one")
    looking = os.open(directory, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_EX)
    done = threading.Timer(0.2, os.close, (looking,))
    done.start()
    let_go = driver.hold(directory)
    done.join()
    remove_if_idle(directory)
    assert directory.exists()
    let_go()
    remove_if_idle(directory)
    assert not directory.exists()


@pytest.mark.parametrize(
    "target",
    [
        "home",  # mode 0700, as Debian's adduser makes them
        f"home/bisector-{os.getuid()}-0123456789",
        "var-tmp/letters",
        f"var-tmp/bisector-{os.getuid()}-012345678",
        f"var-tmp/../home/bisector-{os.getuid()}-0123456789",
    ],
)
def test_a_link_of_a_run_directory_from_elsewhere_is_not_followed(
    tmp_path: Path, place_of_drivers: Path, target: str
) -> None:
    private(tmp_path / "home")
    with suppress(FileExistsError):
        private(tmp_path / target)
    for name in ("canary", "bisector-libvirt"):
        (tmp_path / target / name).touch()
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "libvirt").symlink_to(f"{tmp_path}/{target}")
    directory = embedded_root(run_dir)
    assert directory.parent == place_of_drivers
    remove_if_idle(Path(f"{tmp_path}/{target}"))
    assert (tmp_path / target / "canary").exists()


def test_what_has_no_marker_of_ours_is_not_removed(tmp_path: Path, place_of_drivers: Path) -> None:
    """Nor used, whatever its name: it is only looked at for guests that are left."""
    strange = private(place_of_drivers / f"bisector-{os.getuid()}-0123456789")
    (strange / "canary").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/libvirt").symlink_to(strange)
    assert embedded_root(tmp_path / "run") != strange
    remove_if_idle(strange)
    assert (strange / "canary").exists()


def test_a_directory_in_the_place_of_the_link_stays(tmp_path: Path, place_of_drivers: Path) -> None:
    (tmp_path / "run/libvirt").mkdir(parents=True)
    with pytest.raises(UserError, match="is not a link"):
        embedded_root(tmp_path / "run")


@pytest.mark.vm
def test_the_embedded_driver_is_opened_again_and_again(place: Path, cache: Path) -> None:
    """libvirt itself refuses the 22nd time in a process."""
    for _ in range(30):
        with open_hypervisor(EMBEDDED, place, cache) as opened:
            assert opened.qemu_version


@pytest.mark.usefixtures("place_of_drivers")
def test_embedded_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    embedded_root(tmp_path).chmod(0o755)
    with pytest.raises(UserError, match="private"):
        embedded_root(tmp_path)
