import errno
import os
import pickle
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko
import pytest
from paramiko.pipe import PosixPipe

from bisector.core.deadline import SYSTEM_CLOCK, Clock, Deadline
from bisector.core.errors import InfraError
from bisector.host.files import sha256_of
from bisector.vm import base
from bisector.vm.base import (
    Bounds,
    GuestCopyFailed,
    GuestError,
    GuestLink,
    GuestLost,
    GuestNonsense,
    GuestRefused,
    GuestTimeout,
)
from bisector.vm.guest import Guest
from bisector.vm.image import GuestImage
from tests.vm import contract
from tests.vm.contract import ConnectionContract
from tests.vm.ssh_server import SshServer, keypair


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("keys")
    for name in ("host", "client", "stranger"):
        keypair(directory / name)
    return directory


def image(keys: Path, client: str = "client", host: str = "host") -> GuestImage:
    public = (keys / f"{host}.pub").read_text().rsplit(" ", 1)[0]
    return GuestImage(Path("root.ext4"), keys / client, public, "test")


@pytest.fixture
def server(keys: Path, tmp_path: Path) -> Iterator[SshServer]:
    files = tmp_path / "files"
    files.mkdir()
    host, client = (paramiko.Ed25519Key.from_private_key_file(str(keys / name)) for name in ("host", "client"))
    before = set(threading.enumerate())
    with SshServer(host, client, files) as listening:
        yield listening
    assert set(threading.enumerate()) <= before, "threads are left"


@pytest.fixture
def guest(server: SshServer, keys: Path) -> Iterator[Guest]:
    with connect(server, image(keys)) as connected:
        yield connected


def connect(server: SshServer, image: GuestImage, watch: Callable[[], None] = lambda: None) -> Guest:
    return Guest.connect(server.port, image, Deadline("SSH", 20), watch)


@dataclass
class SshCase:
    """The connection to a real SSH server, whose commands are run here."""

    server: SshServer
    keys: Path
    watch: contract.Watch
    link: Guest = field(init=False)
    directory: str = "."
    release: str = field(default_factory=platform.release)
    short_s: float = 0.5
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self.link = connect(self.server, image(self.keys), self.watch)

    def make_directory(self, name: str) -> None:
        (self.server.files / name).mkdir()

    def is_executable(self, name: str) -> bool:
        return os.access(self.server.files / name, os.X_OK)

    def break_connection(self) -> None:
        self.server.vanish()

    def fall_silent(self) -> None:
        self.server.answer_exec = False

    def log_in_nowhere(self) -> AbstractContextManager[GuestLink]:
        self.server.close()
        return connect(self.server, image(self.keys), self.watch)

    def log_in_as_stranger(self) -> AbstractContextManager[GuestLink]:
        return connect(self.server, image(self.keys, client="stranger"), self.watch)


class TestGuest(ConnectionContract):
    @pytest.fixture
    def case(self, server: SshServer, keys: Path) -> Iterator[SshCase]:
        made = SshCase(server, keys, contract.Watch())
        with made.link:
            yield made


def test_another_kind_of_host_key_is_refused(server: SshServer, keys: Path) -> None:
    pinned = paramiko.ECDSAKey.generate()
    other = GuestImage(Path("root.ext4"), keys / "client", f"{pinned.get_name()} {pinned.get_base64()}", "test")
    with pytest.raises(GuestRefused, match="does not match"):
        connect(server, other)


@pytest.mark.parametrize("answers", [True, False])
def test_a_guest_that_falls_silent_in_a_command_is_asked_for_a_sign_of_life(
    server: SshServer, keys: Path, answers: bool
) -> None:
    server.answer_life = answers
    bounds = Bounds(silence_s=0.3, answer_s=0.6)
    with Guest.connect(server.port, image(keys), Deadline("a login", 20), bounds=bounds) as guest:
        if answers:
            assert guest.run("sleep 2; echo done", 20).stdout == "done\n"
            assert server.signs_of_life > 1
        else:
            with pytest.raises(GuestLost, match=r"nothing was heard of the guest for 0\.9 s during `sleep 60`"):
                guest.run("sleep 60", 20)


def test_the_users_own_ssh_configuration_is_ignored(
    server: SshServer, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host *\n  User nobody\n  Port 1\n  ProxyCommand false\n")
    (tmp_path / ".fabric.yaml").write_text("user: nobody\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with connect(server, image(keys)) as guest:
        assert guest.run("true").exit_status == 0


@pytest.mark.parametrize("kind", [GuestError, GuestLost, GuestRefused, GuestTimeout, GuestCopyFailed])
def test_errors_are_ours_and_pickle(kind: type[GuestError]) -> None:
    error = pickle.loads(pickle.dumps(kind("what", "hint")))
    assert (type(error), error.message, error.hint) == (kind, "what", "hint")
    assert isinstance(error, InfraError)


# -- a guest that is not to be trusted ---------------------------------------------------------------------------------

SMALL = Bounds(output_bytes=100_000)


@pytest.fixture
def bounded(server: SshServer, keys: Path) -> Iterator[Guest]:
    with Guest.connect(server.port, image(keys), Deadline("SSH", 20), bounds=SMALL) as connected:
        yield connected


@pytest.mark.parametrize(
    ("make", "why"),
    [
        pytest.param(lambda path: path.symlink_to("/dev/zero"), "not a regular file", id="endless device"),
        pytest.param(os.mkfifo, "not a regular file", id="FIFO"),
        pytest.param(lambda path: path.write_bytes(bytes(100_001)), "100,001 bytes, more than 100,000", id="large"),
    ],
)
def test_what_is_not_copied_out_of_a_guest(
    bounded: Guest, server: SshServer, tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    make(server.files / "fio.json")
    with pytest.raises(GuestNonsense, match=why):
        bounded.get("fio.json", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert bounded.run("echo still here").stdout == "still here\n"


def test_a_copy_on_a_full_disk_is_the_hosts_trouble(
    guest: Guest, server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(path: Path, _content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (server.files / "fio.json").write_bytes(bytes(100))
    monkeypatch.setattr(Path, "write_bytes", no_room)
    with pytest.raises(InfraError, match="No space left on device") as caught:
        guest.get("fio.json", tmp_path / "copy")
    assert not isinstance(caught.value, GuestError)
    assert caught.value.hint == f"make room: df -h {tmp_path}"
    assert not (tmp_path / "copy").exists()


def test_a_large_file_goes_in_whole(guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first piece is larger than a window, which has 2 MiB."""
    monkeypatch.setattr(base, "_PIECE_BYTES", 3 << 20)
    large = tmp_path / "large"
    large.write_bytes(os.urandom(4 << 20))
    guest.send(large, "large")
    assert guest.run("sha256sum < large").stdout.split()[0] == sha256_of(large)


@pytest.mark.parametrize("where", ["", ">&2"])
def test_endless_output_ends(bounded: Guest, where: str) -> None:
    heard: list[int] = []
    with pytest.raises(GuestNonsense, match="more than 100,000 bytes of output: `yes"):
        bounded.stream(f"yes {where}", lambda line: heard.append(len(line)), 60)
    assert sum(heard) < 2 * SMALL.output_bytes
    assert bounded.run("echo still here").stdout == "still here\n"


def test_output_that_arrives_while_a_run_is_broken_off_does_not_break_the_connection(
    bounded: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """paramiko's thread writes to the pipe of a channel that somebody polls, open or not, and ends on an error."""

    def close(pipe: Any) -> None:
        os.close(pipe._rfd)
        os.close(pipe._wfd)
        time.sleep(0.3)  # what is a moment in PosixPipe.close
        pipe._closed = True

    monkeypatch.setattr(PosixPipe, "close", close)
    with pytest.raises(GuestNonsense):
        bounded.stream("yes >&2", lambda line: None, 60)
    assert bounded.run("echo still here").stdout == "still here\n"
