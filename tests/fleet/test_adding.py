"""Hosts come and go: each step may be the last one, and the same typed again completes it."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec.structs
import pytest

from bisector.core import json_document
from bisector.core.errors import InfraError, UserError
from bisector.fleet import adding, edit_hosts, hosts, on_host, ssh
from bisector.fleet.adding import Person
from bisector.fleet.authority import initialised, needs_certificate, read
from bisector.fleet.documents import HostDescription
from bisector.fleet.home import FleetHome
from bisector.fleet.hosts import Host
from bisector.fleet.ssh import Answer, HostKey
from bisector.host import systemd
from tests.fleet.tls import context, handshake

AT = "tls://desk:8786"
KEY = HostKey("ssh-ed25519", "QUJD")
BENCH = Host("bench1", "anna@bench1", repository="/srv/linux")
DOCTOR = """{"schema": 1, "ready": false, "findings": [
{"name": "flex", "state": "missing", "what": "flex: not installed", "remedy": "apt install flex"}]}"""


@dataclass
class There:
    """A host, in the directory ``home``, and the connection to it."""

    home: FleetHome
    commands: list[str] = field(default_factory=list)
    fails: Callable[[str], Answer | None] = lambda command: None
    host: Host | None = None
    settings: str = ""

    def remote(self, host: Host, _home: FleetHome) -> "Connection":
        self.host = host
        return Connection(self, host)


@dataclass
class Connection:
    there: There
    host: Host

    def bisector(self, *words: str, deadline_s: float, stdin: str = "") -> Answer:
        command = " ".join(words)
        self.there.commands.append(command)
        return self.there.fails(command) or Answer(*self._does(words, stdin), "")

    def _does(self, words: tuple[str, ...], stdin: str) -> tuple[int, str]:
        home = self.there.home
        match words:
            case ("doctor", "--json", "--config", "/dev/stdin"):
                self.there.settings = stdin
                return 1, DOCTOR
            case ("fleet", "on-host", "describe"):
                return 0, json_document.text(on_host.describe(home))
            case ("fleet", "on-host", "request", name):
                return 0, on_host.request(home, name)
            case ("fleet", "on-host", "install"):
                return 0, json_document.text(on_host.install(home, stdin))
            case ("fleet", "on-host", "remove"):
                return 0, json_document.text(on_host.remove(home))
            case ("--version",):
                return 0, "bisector 0.0.9\n"
        raise AssertionError(words)


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> There:
    there = There(FleetHome(tmp_path / "there"))
    monkeypatch.setattr(adding, "Remote", there.remote)
    monkeypatch.setattr(ssh, "shown_key", lambda host: KEY)
    monkeypatch.setattr(systemd, "_RUNNING", tmp_path / "no-systemd")
    return there


@pytest.fixture
def home(tmp_path: Path) -> FleetHome:
    home = FleetHome(tmp_path / "here")
    initialised(home)
    return home


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    return tmp_path / "hosts.toml"


def person(yes: bool = True) -> Person:
    return Person(lambda host, key: yes, lambda line: None)


def trusted(home: FleetHome, there: There) -> bool:
    """Whether both ends take each other."""
    ends = home.coordinator, there.home.worker
    names = handshake(context(ends[0], ssl.Purpose.CLIENT_AUTH), context(ends[1], ssl.Purpose.SERVER_AUTH))
    return names == ("coordinator", "bench1")


def test_all_of_it(home: FleetHome, there: There, listed: Path) -> None:
    added = adding.add(home, listed, BENCH, AT, person())
    assert trusted(home, there)
    assert ssh.pinned(home, "bench1") == KEY
    assert hosts.load(listed).hosts == (BENCH,)
    assert hosts.load(listed).coordinator == AT
    assert (added.key, added.ready, added.worker, added.linger) == (KEY.fingerprint, False, None, None)
    assert added.start.endswith(
        f"-m bisector worker {AT} --name bench1 --certificates {there.home.worker.directory} --repo /srv/linux"
    )
    assert [one.name for one in added.findings] == ["flex"]
    assert read(home.issued("bench1")).serial == added.certificate.serial == read(there.home.worker.certificate).serial


STEPS: dict[str, tuple[Any, str]] = {
    "before the key is pinned": (ssh, "pin"),
    "before the versions are compared": (adding, "describe"),
    "before it is certified": (adding, "_certify"),
    "before the certificate is installed": (on_host, "install"),
    "before its doctor": (adding, "examine"),
    "before the row": (edit_hosts, "put"),
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_what_a_kill_left_is_completed(
    home: FleetHome, there: There, listed: Path, monkeypatch: pytest.MonkeyPatch, *, step: str, after: bool
) -> None:
    module, name = STEPS[step]
    does = getattr(module, name)

    def killed(*words: Any) -> Any:
        if after:
            does(*words)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, name, killed)
        with pytest.raises(KeyboardInterrupt):
            adding.add(home, listed, BENCH, AT, person())
    key = there.home.worker.key.read_bytes() if there.home.worker.key.exists() else None
    adding.add(home, listed, BENCH, AT, person())
    assert trusted(home, there)
    assert hosts.load(listed).hosts == (BENCH,)
    assert key in (None, there.home.worker.key.read_bytes())


def test_again_is_a_new_certificate_and_keeps_what_the_person_wrote(
    home: FleetHome, there: There, listed: Path
) -> None:
    adding.add(home, listed, BENCH, AT, person())
    listed.write_text(listed.read_text() + 'ssd = "/dev/disk/by-id/x"  # the fast one\nbisector = "/opt/b"\n')
    before, serial = listed.read_text(), read(home.issued("bench1")).serial
    added = adding.add(home, listed, BENCH, "", person(yes=False))  # its key was accepted already
    assert listed.read_text() == before
    assert added.certificate.serial != serial
    assert there.host is not None
    assert there.host.bisector == "/opt/b"
    assert there.settings == '[storage.ssd]\npath = "/dev/disk/by-id/x"\n'
    assert trusted(home, there)


def test_a_key_that_is_not_accepted(home: FleetHome, there: There, listed: Path) -> None:
    with pytest.raises(UserError, match="bench1 was not added: its SSH key was not accepted"):
        adding.add(home, listed, BENCH, AT, person(yes=False))
    assert ssh.pinned(home, "bench1") is None
    assert there.commands == []


@pytest.mark.parametrize(
    ("versions", "words", "hint"),
    [
        ({"msgpack": "1.0.0"}, "msgpack is 1.0.0 there and ", "-m pip install 'msgpack=="),
        ({"cloudpickle": None}, "cloudpickle is not installed there", "-m pip install 'cloudpickle=="),
        ({"bisector": "9", "source": "x"}, "bisector is 9 there", "; then: ssh anna@bench1 "),
        ({"source": "0123"}, "the source of bisector is 0123 there", "install the same commit of bisector on both"),
        ({"python": "3.99", "msgpack": "1"}, "Python is 3.99 there and 3.11 here; msgpack", "with Python 3.11"),
        ({"executable": "/opt/py", "msgpack": "1"}, "msgpack", "ssh anna@bench1 /opt/py -m pip install 'msgpack=="),
        ({"msgpack": "\x1b[31m1"}, "msgpack is 1 there", ""),
    ],
)
def test_other_versions_are_refused_by_name(
    home: FleetHome, there: There, listed: Path, *, versions: dict[str, str | None], words: str, hint: str
) -> None:
    known = on_host.describe(there.home)
    other = msgspec.structs.replace(known, versions=msgspec.structs.replace(known.versions, **versions))
    there.fails = lambda command: Answer(0, json_document.text(other), "") if "describe" in command else None
    with pytest.raises(UserError) as caught:
        adding.add(home, listed, BENCH, AT, person())
    assert words in caught.value.message
    assert hint in caught.value.hint
    assert not there.home.worker.key.exists()
    assert not listed.exists()


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            Answer(2, "", "usage: bisector …\nbisector: error: invalid choice: 'fleet'"),
            UserError,
            "has bisector 0.0.9, and",
        ),
        (Answer(0, '{"schema": 2}', ""), UserError, "another bisector"),
        (Answer(0, "Welcome to bench1!\n{}", ""), UserError, "what its login shell prints .* 'Welcome to bench1!'"),
        (Answer(0, "[" * 100_000, ""), UserError, "another bisector"),
    ],
    ids=["older", "newer", "a greeting", "deep"],
)
def test_another_bisector(
    home: FleetHome, there: There, listed: Path, *, answer: Answer, kind: type[Exception], words: str
) -> None:
    there.fails = lambda command: answer if "describe" in command else None
    with pytest.raises(kind, match=words):
        adding.add(home, listed, BENCH, AT, person())


def test_a_doctor_that_dies_there(home: FleetHome, there: There, listed: Path) -> None:
    there.fails = lambda command: Answer(70, "", "a traceback\x1b[31m") if "doctor" in command else None
    with pytest.raises(InfraError, match="bench1: its doctor gave no answer: a traceback"):
        adding.add(home, listed, BENCH, AT, person())


def test_where_hosts_find_their_coordinator(home: FleetHome, there: There, listed: Path) -> None:
    with pytest.raises(UserError, match="hosts have to know where their coordinator listens"):
        adding.add(home, listed, BENCH, "", person())
    listed.write_text("# nothing yet\n")
    adding.add(home, listed, BENCH, "", person(), usual="tls://usual:1")
    assert hosts.load(listed).coordinator == "tls://usual:1"
    listed.unlink()
    adding.add(home, listed, BENCH, AT, person(), usual="tls://usual:1")
    adding.add(home, listed, BENCH, "", person(), usual="tls://usual:1")
    assert hosts.load(listed).coordinator == AT
    with pytest.raises(UserError, match="the coordinator is tls://desk:8786, not tls://other:1"):
        adding.add(home, listed, BENCH, "tls://other:1", person())


def test_a_name_is_of_one_machine(home: FleetHome, there: There, listed: Path) -> None:
    adding.add(home, listed, BENCH, AT, person())
    for other in (replace(BENCH, ssh="anna@bench2"), replace(BENCH, port=22)):
        with pytest.raises(UserError, match="bench1 is anna@bench1, not"):
            adding.add(home, listed, other, AT, person())
    before = read(there.home.worker.certificate)
    with pytest.raises(UserError, match="anna@bench1 is bench1 already"):
        adding.add(home, listed, replace(BENCH, name="other"), AT, person())
    assert read(there.home.worker.certificate) == before
    assert ssh.pinned(home, "other") is None


def test_no_fleet(tmp_path: Path, there: There, listed: Path) -> None:
    with pytest.raises(UserError, match="there is no fleet yet"):
        adding.add(FleetHome(tmp_path / "nothing"), listed, BENCH, AT, person())


def test_after_a_new_authority_a_host_is_added_again(home: FleetHome, there: There, listed: Path) -> None:
    adding.add(home, listed, BENCH, AT, person())
    signer, _, _ = initialised(home, anew=True)
    assert needs_certificate(signer, there.home.worker)
    adding.add(home, listed, BENCH, "", person())
    assert trusted(home, there)


def gone(home: FleetHome, listed: Path) -> bool:
    return not hosts.load(listed).hosts and ssh.pinned(home, "bench1") is None and not home.issued("bench1").exists()


def removed(home: FleetHome, listed: Path, *, forget: bool = False) -> tuple[str, ...]:
    return adding.remove(home, listed, "bench1", forget=forget, told=lambda line: None).removed


def test_removing_undoes_it(home: FleetHome, there: There, listed: Path) -> None:
    adding.add(home, listed, BENCH, AT, person())
    assert [words.split()[0] for words in removed(home, listed)] == ["unit,", "[hosts.bench1]", "the", "its"]
    assert gone(home, listed)
    assert not there.home.worker.directory.exists()
    with pytest.raises(UserError, match="there is no host bench1"):
        removed(home, listed)


@pytest.mark.parametrize("step", [(on_host, "remove"), (edit_hosts, "drop"), (ssh, "unpin")], ids=lambda step: step[1])
def test_what_a_kill_left_is_removed(
    home: FleetHome, there: There, listed: Path, monkeypatch: pytest.MonkeyPatch, step: tuple[Any, str]
) -> None:
    adding.add(home, listed, BENCH, AT, person())
    module, name = step
    does = getattr(module, name)

    def killed(*words: Any) -> None:
        if name != "unpin":
            does(*words)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, name, killed)
        with pytest.raises(KeyboardInterrupt):
            removed(home, listed)
    removed(home, listed)
    assert gone(home, listed)


def test_a_host_needs_no_clone(home: FleetHome, there: There, listed: Path) -> None:
    added = adding.add(home, listed, replace(BENCH, repository=None), AT, person())
    assert added.start.endswith(f"worker {AT} --name bench1 --certificates {there.home.worker.directory}")
    assert hosts.load(listed).hosts == (replace(BENCH, repository=None),)


def test_a_host_that_is_gone(home: FleetHome, there: There, listed: Path) -> None:
    adding.add(home, listed, BENCH, AT, person())

    def silence(_command: str) -> Answer:
        raise InfraError("bench1 cannot be reached: No route to host", "ssh anna@bench1")

    there.fails = silence
    with pytest.raises(InfraError, match="No route to host") as caught:
        removed(home, listed)
    assert "bisector fleet remove bench1 --forget" in caught.value.hint
    assert hosts.load(listed).hosts == (BENCH,)
    assert len(removed(home, listed, forget=True)) == 3
    assert gone(home, listed)


def test_what_a_host_is_given_is_checked_there(home: FleetHome, there: There) -> None:
    for text in ("", "{}", '{"certificate": "x", "authority": "x", "repository": null}'):
        with pytest.raises(UserError):
            on_host.install(there.home, text)
    given = '{"certificate": "x", "authority": "x", "coordinator": "desk", "repository": "/srv/linux"}'
    with pytest.raises(UserError, match="'desk' is no address"):
        on_host.install(there.home, given)


def test_a_description_has_all_keys(there: There) -> None:
    text = json_document.text(on_host.describe(there.home))
    assert json_document.parsed(text, HostDescription).certificate is None
