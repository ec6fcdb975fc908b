"""Which hypervisors there are, and the directory of the one that runs in this process."""

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bisector.config import EMBEDDED
from bisector.core.errors import InfraError, UserError
from bisector.host.locks import locked
from bisector.vm import driver
from bisector.vm.driver import directory_of, make_private, open_hypervisor, remove_if_idle


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


def made(root: Path) -> Path:
    make_private(directory := directory_of(root))
    return directory


@pytest.fixture
def place_of_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "var-tmp"
    made.mkdir()
    monkeypatch.setattr(driver, "PARENT", made)
    return made


def test_embedded_directory_is_short_private_and_the_same_in_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where a logout removes it."""
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    directory = made(tmp_path / ("a-long-name-" * 12))
    assert len(str(directory)) <= 50
    assert directory.stat().st_mode & 0o777 == 0o700
    assert not directory.is_relative_to(runtime)
    remove_if_idle(directory)
    assert not directory.exists()


@pytest.mark.usefixtures("place_of_drivers")
def test_one_process_has_one_embedded_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_opened", [])
    first = driver.embedded_directory(tmp_path / "one", None)
    assert first == directory_of(tmp_path / "one")
    assert driver.embedded_directory(tmp_path / "two", None) == first
    shutil.rmtree(first)
    make_private(first)
    with pytest.raises(BlockingIOError), locked(first):
        pytest.fail("nobody holds it since it was cleaned up and made again")


@pytest.mark.usefixtures("place_of_drivers")
def test_a_cache_that_cannot_be_made_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a home that this user may not write, which the check of the cache directory refuses."""
    monkeypatch.setattr(driver, "_opened", [])
    (tmp_path / "file").touch()
    made = driver.embedded_directory(tmp_path / "one", tmp_path / "file/libvirt")
    assert not (made / "cache").exists()


@pytest.mark.usefixtures("place_of_drivers")
def test_a_directory_that_another_process_holds_is_not_removed(tmp_path: Path) -> None:
    """A copied run directory has the same link; its process may be building, with no guest yet."""
    directory = made(tmp_path / "one")
    script = f"from pathlib import Path; from bisector.vm.driver import hold; hold(Path({str(directory)!r}));"
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
    directory = made(tmp_path / "one")
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


@pytest.mark.usefixtures("place_of_drivers")
def test_no_guest_is_started_where_another_process_may_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_opened", [])
    monkeypatch.setattr(driver, "_SHARE_DEADLINE_S", 0.1)
    directory = made(tmp_path / "one")
    with locked(directory):
        for _ in range(2):  # nor the second time
            with pytest.raises(InfraError, match=f"ending the guests in {directory}: its lock not seen within 0.1 s"):
                driver.embedded_directory(tmp_path / "one", None)
    shutil.rmtree(directory)
    with pytest.raises(InfraError, match="No such file or directory"):
        driver.hold(directory)


@pytest.mark.parametrize("strange", ["its name", "its place", "its mode", "its marker"])
def test_what_is_not_the_drivers_is_not_removed(tmp_path: Path, place_of_drivers: Path, strange: str) -> None:
    name = "letters" if strange == "its name" else f"bisector-{os.getuid()}-0123456789"
    directory = (tmp_path if strange == "its place" else place_of_drivers) / name
    directory.mkdir(mode=0o700)
    (directory / "canary").touch()
    if strange != "its marker":
        (directory / "bisector-libvirt").touch()
    if strange == "its mode":
        directory.chmod(0o755)
    remove_if_idle(directory)
    assert (directory / "canary").exists()


@pytest.mark.vm
def test_the_embedded_driver_is_opened_again_and_again(place: Path, cache: Path) -> None:
    """libvirt itself refuses the 22nd time in a process."""
    for _ in range(30):
        with open_hypervisor(EMBEDDED, place, cache) as opened:
            assert opened.qemu_version


@pytest.mark.usefixtures("place_of_drivers")
def test_embedded_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    made(tmp_path).chmod(0o755)
    with pytest.raises(UserError, match="private"):
        made(tmp_path)
