"""The way to a host, by a real client and a real server of OpenSSH."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import InfraError, UserError
from bisector.fleet import ssh
from bisector.fleet.home import FleetHome
from bisector.fleet.hosts import Host
from bisector.fleet.ssh import Remote, pin, pinned, shown_key, unpin
from bisector.host import process
from tests.fleet.sshd import Sshd


def program(there: Path, name: str, text: str) -> str:
    """A program over there, by its path."""
    path = there / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def known(home: FleetHome, bench: Host) -> Host:
    pin(home, bench.name, shown_key(bench))
    return bench


def test_the_key_is_shown_as_the_host_itself_shows_it(server: Sshd, bench: Host) -> None:
    before = server.logins()
    assert str(shown_key(bench)) == f"{server.fingerprint} (ssh-ed25519)"
    assert server.logins() == before


def test_nothing_runs_on_a_host_whose_key_nobody_has_seen(home: FleetHome, bench: Host) -> None:
    """Whatever the person's own configuration says: theirs takes any key here."""
    with pytest.raises(UserError, match="its SSH key is not pinned") as caught:
        Remote(bench, home).bisector("--version", deadline_s=10)
    assert caught.value.hint == "bisector fleet add bench1.example"


def test_a_command_with_its_input(home: FleetHome, known: Host, there: Path) -> None:
    host = replace(known, bisector=program(there, "my 'prog' $x", 'echo "$1|$2"; cat; echo bad >&2; exit 3'))
    answer = Remote(host, home).bisector("a 'b'", '$HOME "c"', deadline_s=10, stdin="x" * 200_000)
    assert answer.exit_status == 3
    assert answer.stdout == "a 'b'|$HOME \"c\"\n" + "x" * 200_000
    assert answer.last_line == "bad"


def test_bisector_of_a_user_is_found(home: FleetHome, known: Host, server: Sshd) -> None:
    before = server.logins()
    answer = Remote(known, home).bisector("--version", deadline_s=30)
    assert answer.exit_status == 0, answer
    assert answer.stdout.startswith("bisector ")
    assert server.logins() == before + 1


def test_another_key_is_refused_with_both(
    home: FleetHome, known: Host, server: Sshd, there: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    was = pinned(home, "bench1")
    wrong = Sshd(other, 0)
    wrong.new_key()
    kind, encoded, *_ = wrong.host_key.with_suffix(".pub").read_text().split()
    pin(home, "bench1", ssh.HostKey(kind, encoded))
    before = server.logins()
    with pytest.raises(UserError) as caught:
        Remote(known, home).bisector("--version", deadline_s=10)
    assert f"{server.fingerprint} (ssh-ed25519) instead of {wrong.fingerprint}" in caught.value.message
    assert "bisector fleet remove bench1 --forget; bisector fleet add bench1.example" in caught.value.hint
    assert server.logins() == before
    assert was == shown_key(known)


def test_no_login(home: FleetHome, known: Host, server: Sshd) -> None:
    keys = server.place / "authorized_keys"
    kept = keys.read_text()
    keys.write_text("")
    try:
        with pytest.raises(UserError, match="no login by SSH without a password") as caught:
            Remote(known, home).bisector("--version", deadline_s=10)
    finally:
        keys.write_text(kept)
    assert caught.value.hint.startswith("ssh-copy-id bench1.example; ")


def test_nobody_listens(home: FleetHome, known: Host) -> None:
    gone = replace(known, ssh="127.0.0.1", port=1)
    for attempt in (lambda: Remote(gone, home).bisector("x", deadline_s=10), lambda: shown_key(gone)):
        with pytest.raises(InfraError, match=r"bench1 cannot be reached: .*[Cc]onnection refused") as caught:
            attempt()
        assert caught.value.hint == "ssh -p 1 127.0.0.1"


def test_no_bisector(home: FleetHome, known: Host) -> None:
    with pytest.raises(UserError, match=r"bench1: /nowhere/bisector cannot be run there") as caught:
        Remote(replace(known, bisector="/nowhere/bisector"), home).bisector("x", deadline_s=10)
    assert "--bisector /opt/bisector/bin/bisector" in caught.value.hint


def test_a_command_that_does_not_end(home: FleetHome, known: Host, there: Path) -> None:
    host = replace(known, bisector=program(there, "sleeps", "sleep 60"))
    with pytest.raises(InfraError, match=r"`.*/sleeps status` did not end within 0\.5 s"):
        Remote(host, home).bisector("status", deadline_s=0.5)


def test_a_server_that_stops_answering(
    home: FleetHome, known: Host, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "_MARGIN_S", -9.5)
    host = replace(known, bisector=program(there, "sleeps", "sleep 60"))
    with pytest.raises(InfraError, match=r"bench1: no answer within 0\.5 s"):
        Remote(host, home).bisector("status", deadline_s=10)


def test_output_without_end(home: FleetHome, known: Host, there: Path) -> None:
    host = replace(known, bisector=program(there, "yes", "exec yes"))
    with pytest.raises(InfraError, match=r"bench1 sent more than 1,024 KiB of output"):
        Remote(host, home).bisector("status", deadline_s=30)


def test_what_goes_to_the_terminal_is_printable(home: FleetHome, known: Host, there: Path) -> None:
    host = replace(known, bisector=program(there, "rings", r"printf '\033[31mred\a\n' >&2; exit 5"))
    assert Remote(host, home).bisector("x", deadline_s=10).last_line == "red\N{REPLACEMENT CHARACTER}"


def test_it_ends_soon_after_it_is_stopped(home: FleetHome, known: Host, there: Path) -> None:
    stop = threading.Event()
    host = replace(known, bisector=program(there, "sleeps", "sleep 60"))
    threading.Timer(0.5, stop.set).start()
    began = time.monotonic()
    with pytest.raises(InterruptedError):
        Remote(host, home, stop.is_set).bisector("x", deadline_s=60)
    assert time.monotonic() - began < 5


def test_keys_are_kept_by_name(home: FleetHome) -> None:
    one, two = ssh.HostKey("ssh-ed25519", "QUJD"), ssh.HostKey("ssh-rsa", "REVG")
    pin(home, "b", two)
    pin(home, "a", one)
    with home.known_hosts.open("a") as file:
        file.write("# a comment\nc ssh-rsa not-base64!\n")
    assert (pinned(home, "a"), pinned(home, "b"), pinned(home, "c")) == (one, two, None)
    assert unpin(home, "b")
    assert not unpin(home, "b")
    assert home.known_hosts.read_text() == "a ssh-ed25519 QUJD\n"
    assert home.known_hosts.stat().st_mode & 0o777 == 0o600


def test_a_machine_that_dials_in_is_not_logged_into(home: FleetHome) -> None:
    pin(home, "b", ssh.HostKey("ssh-rsa", "REVG"))
    with pytest.raises(UserError, match="dials in by itself"):
        Remote(Host("b"), home).bisector("x", deadline_s=1)


def test_a_connection_that_is_open_already_does_not_count(
    home: FleetHome, known: Host, server: Sshd, tmp_path: Path
) -> None:
    """A person's ControlMaster was opened by other rules: a host whose key is another one is refused all the same."""
    config, master = server.place / "ssh_config", server.place / "m"
    kept = config.read_text()
    config.write_text(f"{kept}  ControlMaster auto\n  ControlPath {master}\n  ControlPersist 60\n")
    program = server.place / "bin" / "ssh"
    try:
        # Its master keeps what it was started with, so it is given no pipe of this test.
        process.run(
            [program, "-o", f"UserKnownHostsFile={tmp_path}/k", str(known.ssh), "true"],
            deadline_s=20,
            log=tmp_path / "l",
        )
        assert master.exists()
        other = Sshd(tmp_path, 0)
        other.new_key()
        kind, encoded, *_ = other.host_key.with_suffix(".pub").read_text().split()
        pin(home, "bench1", ssh.HostKey(kind, encoded))
        with pytest.raises(UserError, match="shows another SSH key"):
            Remote(known, home).bisector("--version", deadline_s=10)
    finally:
        process.run([program, "-O", "exit", str(known.ssh)], deadline_s=20, check=False)
        config.write_text(kept)
