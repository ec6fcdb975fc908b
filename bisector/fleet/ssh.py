"""The way to a host: ssh(1) with the host's pinned key, deadlines, and bounded, printable answers.

OpenSSH's own client, since a person's way to a machine is often more than an address: ProxyJump, Match, certificates,
keys on a token, Kerberos, all of which it takes from their configuration and agent. What that configuration says of
host keys does not count: a host has the key that was shown to a person when it was added, kept under its name
(``HostKeyAlias``) in a known_hosts file of the fleet's own. Nor does a connection count that is open already
(``ControlPath``): its host key was checked by other rules.
"""

import base64
import binascii
import hashlib
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bisector.core.errors import InfraError, UserError
from bisector.core.printable import clean, clean_lines
from bisector.fleet.home import FleetHome, make_private
from bisector.fleet.hosts import PROGRAM, Host, add_command
from bisector.host import packages, process
from bisector.host.files import our_files, write_whole
from bisector.host.process import TooMuchOutput

MOST_BYTES = 1 << 20
_CONNECT_S = 15
_SCAN_S = 40.0
_GRACE_S = 10  # from SIGTERM to SIGKILL, there
_MARGIN_S = _CONNECT_S + _GRACE_S + 5  # between the deadline there and the deadline here
_SSH_FAILED = 255
_TIMED_OUT = 124  # timeout(1)
_CANNOT_RUN = (126, 127)
_FIELDS = 3  # of a line in known_hosts
# What ssh needs of our environment besides the usual: the agent, and Kerberos.
_KEPT = ("SSH_AUTH_SOCK", "KRB5CCNAME")

_ALWAYS = (
    *("BatchMode=yes", f"ConnectTimeout={_CONNECT_S}", "ServerAliveInterval=10", "ServerAliveCountMax=3"),
    *("ControlMaster=no", "ControlPath=none", "ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes"),
    *("RemoteCommand=none", "RequestTTY=no", "PermitLocalCommand=no", "LogLevel=ERROR", "EscapeChar=none"),
    *("GlobalKnownHostsFile=/dev/null", "CheckHostIP=no", "UpdateHostKeys=no", "VerifyHostKeyDNS=no"),
    # Since OpenSSH 8.5; older ones do not know the word.
    *("HashKnownHosts=no", "IgnoreUnknown=KnownHostsCommand", "KnownHostsCommand=none"),
)
# Nobody has said yet that it is the right machine: it gets no proof of who we are.
_NO_LOGIN = (
    *("PreferredAuthentications=none", "PubkeyAuthentication=no", "PasswordAuthentication=no"),
    *("KbdInteractiveAuthentication=no", "GSSAPIAuthentication=no", "HostbasedAuthentication=no"),
)


@dataclass(frozen=True, slots=True)
class HostKey:
    """The public key of a host: its kind, and the key as known_hosts files have it."""

    kind: str
    encoded: str

    @property
    def fingerprint(self) -> str:
        """As ``ssh-keygen -lf`` on the host shows it."""
        digest = hashlib.sha256(base64.b64decode(self.encoded, validate=True)).digest()
        return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"

    def __str__(self) -> str:
        return f"{self.fingerprint} ({self.kind})"


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command on a host ended; ``stderr`` is printable, and ``stdout`` as it came."""

    exit_status: int
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        """The line that says why it failed, most likely."""
        lines = (self.stderr.strip() or clean_lines(self.stdout).strip()).splitlines()
        return lines[-1] if lines else "it printed nothing"


def pinned(home: FleetHome, name: str) -> HostKey | None:
    """The key that was shown to a person and accepted; None for a host that has none."""
    return _keys(home.known_hosts).get(name)


def pin(home: FleetHome, name: str, key: HostKey) -> None:
    """Keep the key of a host, which a person has accepted."""
    _write(home, {**_keys(home.known_hosts), name: key})


def unpin(home: FleetHome, name: str) -> bool:
    """Forget the key of a host; whether there was one."""
    keys = _keys(home.known_hosts)
    if name not in keys:
        return False
    _write(home, {other: key for other, key in keys.items() if other != name})
    return True


def shown_key(host: Host) -> HostKey:
    """The key that a host shows now, asked for by the way of the person's ssh configuration, without logging in.

    Raises :class:`InfraError` when it shows none.
    """
    with TemporaryDirectory(prefix="bisector-") as place:
        seen = Path(place) / "seen"
        words = _ssh(host, seen, "accept-new", _NO_LOGIN)
        # "Permission denied" is how this ends when all is well.
        answer = _run((*words, "true"), host, _SCAN_S, "", lambda: False)
        keys = _keys(seen)
    if host.name not in keys:
        raise _unreachable(host, answer)
    return keys[host.name]


@dataclass(frozen=True, slots=True)
class Remote:
    """Commands on a host whose key is pinned; ``stopped`` ends them early."""

    host: Host
    home: FleetHome
    stopped: Callable[[], bool] = lambda: False

    def bisector(self, *words: str, deadline_s: float, stdin: str = "") -> Answer:
        """Run bisector there, to its end, whatever the exit status.

        Raises :class:`InfraError` when the host cannot be reached or does not answer in time, and
        :class:`UserError` where something has to be done about it: another host key, no login, no bisector.
        """
        host = self.host
        # There, too: a command does not end with the connection that it was started over.
        limited = shlex.join(("timeout", f"--kill-after={_GRACE_S}", f"{deadline_s:g}", host.bisector, *words))
        # pip install --user puts it there, and SSH asks no profile about it.
        path = 'PATH="$HOME/.local/bin:$PATH"; export PATH; ' if host.bisector == PROGRAM else ""
        answer = self._shell(f"{path}exec {limited}", deadline_s + _MARGIN_S, stdin)
        if answer.exit_status == _TIMED_OUT:
            raise InfraError(f"{host.name}: `{host.bisector} {words[0]}` did not end within {deadline_s:g} s")
        if answer.exit_status in _CANNOT_RUN:
            raise UserError(
                f"{host.name}: {host.bisector} cannot be run there: {clean(answer.last_line)}",
                "install it there as here; where PATH of SSH does not lead: --bisector /opt/bisector/bin/bisector",
            )
        return answer

    def _shell(self, script: str, deadline_s: float, stdin: str) -> Answer:
        host = self.host
        if pinned(self.home, host.name) is None:
            raise UserError(f"{host.name}: its SSH key is not pinned", add_command(host))
        # The shell of an account may be any; that it takes apart quotes as sh does is all that is asked of it.
        command = f"exec sh -c {shlex.quote(script)}"
        words = (*_ssh(host, self.home.known_hosts, "yes"), command)
        answer = _run(words, host, deadline_s, stdin, self.stopped)
        if answer.exit_status == _SSH_FAILED:
            raise self._refused(answer)
        return answer

    def _refused(self, answer: Answer) -> InfraError | UserError:
        """Why ssh itself failed; whether it was the key, the keys say, and not the words."""
        host = self.host
        if "Host key verification failed" in answer.stderr:
            was, now = pinned(self.home, host.name), shown_key(host)
            if was != now:
                return UserError(
                    f"{host.name} shows another SSH key than the one that was pinned: {now} instead of {was};"
                    " it was installed anew, or it is another machine, or somebody stands in between",
                    f"when you know why: bisector fleet remove {host.name} --forget; {add_command(host)}",
                )
        if "Permission denied" in answer.stderr:
            return UserError(
                f"{host.name}: no login by SSH without a password: {clean(answer.last_line)}",
                f"ssh-copy-id {login(host)}; or, if your key has a passphrase: ssh-add",
            )
        return _unreachable(host, answer)


def login(host: Host) -> str:
    """What a person types after ``ssh``."""
    return f"{host.ssh}" if host.port is None else f"-p {host.port} {host.ssh}"


def _ssh(host: Host, known_hosts: Path, checking: str, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The words of ssh up to its destination (ssh_config(5)); those of the command line win over any file's."""
    if host.ssh is None:
        raise UserError(f"{host.name} dials in by itself: there is no way there", f'[hosts.{host.name}] ssh = "…"')
    place = str(known_hosts).replace("%", "%%")
    options = (
        *_ALWAYS,
        *more,
        f"StrictHostKeyChecking={checking}",
        f'UserKnownHostsFile="{place}"',
        f"HostKeyAlias={host.name}",
    )
    port = () if host.port is None else ("-p", str(host.port))
    return ("ssh", "-T", *(word for option in options for word in ("-o", option)), *port, "--", host.ssh)


def _run(words: tuple[str, ...], host: Host, deadline_s: float, stdin: str, stopped: Callable[[], bool]) -> Answer:
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    try:
        done = process.run_bounded(
            words, deadline_s=deadline_s, most_bytes=MOST_BYTES, stdin=stdin, env=env, stopped=stopped
        )
    except process.CommandMissing as error:
        raise packages.not_installed("ssh", "openssh-client") from error
    except process.CommandTimeout as error:
        raise InfraError(f"{host.name}: no answer within {deadline_s:g} s", f"ssh {login(host)}") from error
    except TooMuchOutput as error:
        raise InfraError(f"{host.name} sent {error}", f"ssh {login(host)}") from error
    return Answer(done.exit_status, done.stdout, clean_lines(done.stderr))


def _unreachable(host: Host, answer: Answer) -> InfraError:
    return InfraError(f"{host.name} cannot be reached: {clean(answer.last_line)}", f"ssh {login(host)}")


def _keys(path: Path) -> dict[str, HostKey]:
    """The keys of a file by the names of their hosts; lines that are not ours count for nothing."""
    with our_files(path.parent):
        text = path.read_text(encoding="ascii", errors="replace") if path.exists() else ""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == _FIELDS and _is_key(words[2]):
            found[words[0]] = HostKey(words[1], words[2])
    return found


def _is_key(encoded: str) -> bool:
    try:
        base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return False
    return True


def _write(home: FleetHome, keys: Mapping[str, HostKey]) -> None:
    lines = (f"{name} {key.kind} {key.encoded}\n" for name, key in sorted(keys.items()))
    with our_files(home.path):
        make_private(home.path)
        write_whole(home.known_hosts, "".join(lines).encode(), 0o600)
