"""Child processes, and the user that untrusted ones run as under root; the only module that uses ``subprocess``.

Commands are lists, never shell strings. Each child leads a process group, so that it is ended together with its own
children (make's compilers), and carries ``BISECTOR_RUN`` in its environment, so that the next orchestrator finds and
ends the children of a killed one (:func:`reap`). That search looks at every process of the host after each trial; it
checks for the mark first, which costs one file per process.

If root started bisector, an untrusted tree's commands run as the build user; an ordinary user runs them as itself. The
build user owns nothing on the host except what it is given here: a build directory, a cache of compiled objects, a copy
of a few sources. Its processes run in a sandbox only, and none is running while root looks at its directories.
"""

import grp
import os
import pwd
import select
import shlex
import shutil
import signal
import stat
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError
from bisector.core.shell import TIMED_OUT, CommandResult

Text = TypeVar("Text", str, bytes)
RUN_MARKER = "BISECTOR_RUN"
RUN_HERE_DEADLINE_S = 30.0
_GRACE_S = 2.0
_GONE_S = 10.0  # from SIGKILL to the end: longer only in an uninterruptible sleep
_KEPT_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "CCACHE_DIR")
_EXEC_S = 1.0  # the time that an execve(2) spends between two memories: microseconds, unless the host is short of CPUs
_LOOK_AGAIN_S = 0.001
# Fields of proc_pid_stat(5), counted from 0 at the state, the first one after the name.
_VSIZE, _END_CODE, _ENV_START, _ENV_END = 20, 24, 47, 48

BUILD_USER = "bisector-build"
# No account is made in this range: systemd leaves it unused (https://systemd.io/UIDS-GIDS), Debian reserves it (Policy,
# 9.2.2). The range below it is for users of services that exist for a while: such a service would own the files of a
# build.
_NUMBERS = range(65_520, 65_534)
_CLOSED = 0o700
_READABLE = 0o005
_NEW_FILES_READABLE = 0o022


class Child(Protocol[Text]):
    """A started command, like ``subprocess.Popen``."""

    @property
    def pid(self) -> int:
        """The id of its process, and of its process group."""

    @property
    def returncode(self) -> int | Any:
        """The exit status; None while it runs."""

    def communicate(self, input: Text | None = None, timeout: float | None = None) -> tuple[Text, Text]:
        """Pass it its input, and collect all its output."""


class CommandMissing(Exception):
    """The program is not installed."""

    def __init__(self, program: str) -> None:
        super().__init__(program)
        self.program = program

    def __str__(self) -> str:
        return f"{self.program}: command not found"


class CommandFailed(Exception):
    """A checked command ended with a non-zero status; the caller decides who is to blame."""

    def __init__(self, finished: CommandResult) -> None:
        super().__init__(finished)
        self.finished = finished

    def __str__(self) -> str:
        lines = (self.finished.stderr or self.finished.stdout).strip().splitlines()
        last = "; ".join(lines[-3:])
        return f"{self.finished.command}: exit status {self.finished.exit_status}: {last}"


class CommandTimeout(Exception):
    """A command did not end in time, and was ended with all its children."""

    def __init__(self, argv: tuple[str, ...], seconds: float) -> None:
        super().__init__(argv, seconds)
        self.argv = argv
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{shlex.join(self.argv)}: not finished after {self.seconds:g} s"


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """A short allow-list of variables plus ``extra``, in the C locale, so that outputs can be parsed."""
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    return {**kept, "LC_ALL": "C.UTF-8", **(extra or {})}


def mark(run_dir: Path) -> dict[str, str]:
    """The variable that tells which run a process belongs to; the same for every spelling of the directory."""
    return {RUN_MARKER: os.path.realpath(run_dir)}


def run(
    argv: Sequence[str | Path],
    *,
    deadline_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    stdin: str | None = None,
    check: bool = True,
    run_marker: Path | None = None,
    within: Sequence[str] = (),
) -> CommandResult:
    """Run a command to its end.

    With ``log`` standard output and error are appended to that file, else both are returned. ``within`` is a prefix
    that runs the command (:attr:`bisector.host.sandbox.Sandbox.words`); reports of the command leave it out. Raises
    :class:`CommandMissing`, :class:`CommandTimeout`, and with ``check`` :class:`CommandFailed`. If the wait is
    interrupted (Ctrl-C), the whole group is ended first.
    """
    words = tuple(os.fspath(word) for word in argv)
    if within and shutil.which(words[0]) is None:
        raise CommandMissing(words[0])
    started = (*within, *words)
    with nullcontext() if log is None else log.open("ab") as output:
        try:
            child = subprocess.Popen(
                started,
                cwd=cwd,
                env=environment({**(env or {}), **(mark(run_marker) if run_marker else {})}),
                text=True,
                errors="replace",
                stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                stdout=output or subprocess.PIPE,
                stderr=subprocess.STDOUT if output else subprocess.PIPE,
                start_new_session=True,
            )
        # execvp(3) answers "permission denied" for a program that is nowhere if PATH names a directory that is closed
        # to us; /root/bin of an environment kept by sudo, say.
        except (FileNotFoundError, PermissionError) as error:
            if cwd is not None and not (cwd.is_dir() and os.access(cwd, os.X_OK)):
                raise
            raise CommandMissing(started[0]) from error
        stdout, stderr = to_its_end(child, words, deadline_s, stdin)
    finished = CommandResult(shlex.join(words), child.returncode, stdout or "", stderr or "")
    if check and finished.exit_status != 0:
        raise CommandFailed(finished)
    return finished


def run_here(command: Sequence[str], variables: Mapping[str, str]) -> CommandResult | None:
    """Run a workload's command on this host; None if the program is not installed.

    After :data:`RUN_HERE_DEADLINE_S` it is ended, and gets the exit status of timeout(1).
    """
    try:
        return run(command, deadline_s=RUN_HERE_DEADLINE_S, env=variables, check=False)
    except CommandMissing:
        return None
    except CommandTimeout as error:
        return CommandResult(shlex.join(command), TIMED_OUT, "", str(error))


def to_its_end(
    child: Child[Text], argv: Sequence[str], deadline_s: float, stdin: Text | None = None
) -> tuple[Text, Text]:
    """Wait for a child that leads a process group, and return its output.

    Raises :class:`CommandTimeout`. However the wait ends, even with success, nothing of the group is left.
    """
    try:
        return child.communicate(stdin, timeout=deadline_s)
    except subprocess.TimeoutExpired as error:
        raise CommandTimeout(tuple(argv), deadline_s) from error
    finally:
        if child.returncode is None:
            # Signal the whole process group: a child may end and leave a stubborn one of its own.
            for signum in (signal.SIGTERM, signal.SIGKILL):
                _signal_group(child, signum)
                with suppress(subprocess.TimeoutExpired):
                    child.communicate(timeout=_GRACE_S)
        else:
            # The command's time is over for processes that it left running. The kernel does not reuse a group's number
            # while it has members, and without any it hands out every other number before this one again.
            _signal_group(child, signal.SIGKILL)


def marked() -> dict[Path, tuple[int, ...]]:
    """The marked processes of this user, by the directory that they are marked with."""
    found = defaultdict[Path, tuple[int, ...]](tuple)
    for pid in pids():
        if (value := value_of(pid, RUN_MARKER)) is not None:
            found[Path(os.fsdecode(value))] += (pid,)
    return found


def reap(run_dir: Path) -> int:
    """End every process that a dead orchestrator of this run left behind, and return how many there were.

    They are gone on return; one that does not end raises :class:`InfraError`. A connection that ssh keeps for later
    commands (ControlPersist of ssh_config(5)) is spared: the user's own sessions may be using it, and it does no work.
    """
    mark, ended = os.fsencode(os.path.realpath(run_dir)), set[int]()
    # Each round finds processes that those of the round before started meanwhile.
    while found := [pid for pid in pids() if pid != os.getpid() and value_of(pid, RUN_MARKER) == mark]:
        ended.update(pid for pid in found if end(pid, lambda pid: value_of(pid, RUN_MARKER) == mark))
    return len(ended)


def end(pid: int, still: Callable[[int], bool]) -> bool:
    """SIGKILL a process and wait until it is gone; False if it was gone, or if ``still`` says it is not the one meant.

    Its number may have passed to another process since it was read; a pidfd_open(2) refers to one process for good, and
    is opened before ``still`` looks. Raises :class:`InfraError` if the process does not end.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not still(pid):
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        if not select.select([pidfd], [], [], _GONE_S)[0]:
            raise InfraError(f"process {pid}, left by an earlier run, does not end", f"ps -o pid,stat,wchan,args {pid}")
    finally:
        os.close(pidfd)
    return True


def _signal_group(child: Child[Any], signum: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # the group is empty, or holds another user's process
        os.killpg(child.pid, signum)


def pids() -> Iterator[int]:
    """The ids of this host's processes, as far as this process can see them."""
    with os.scandir("/proc") as entries:
        yield from (int(entry.name) for entry in entries if entry.name.isdigit())


def value_of(pid: int, name: str) -> bytes | None:
    """The value of a variable in the environment that a process of this user, or of the build user, was started with.

    None if it was not set, for ssh's master, for another user's process, and for one that has ended. Root can read the
    environment of every process, and whoever starts a process chooses its environment.
    """
    try:
        # One search, since splitting each environment of a host would be most of the work.
        _, found, rest = (b"\0" + _environment(pid)).partition(b"\0" + name.encode() + b"=")
        if not found:
            return None
        # The real, effective, saved and file system user id (proc_pid_status(5)), which setuid programs mix.
        lines = (line for line in _read(pid, "status").splitlines() if line.startswith(b"Uid:"))
        users = {int(number) for line in lines for number in line.split()[1:]}
        # ssh's master is known by its title, "ssh: /home/anna/.ssh/master [mux]" (control_persist_detach()).
        title = _read(pid, "cmdline").rstrip(b"\0 ")
    except OSError:  # it has ended meanwhile, or belongs to another user
        return None
    builder = build_user()
    if not users <= {os.geteuid(), *(() if builder is None else (builder.uid,))}:
        return None
    return None if title.startswith(b"ssh: ") and title.endswith(b" [mux]") else rest.partition(b"\0")[0]


def _environment(pid: int) -> bytes:
    """The environment of a process; that of its next program if it is in the middle of an execve(2).

    Between the two memories of an execve(2) there is no environment: begin_new_exec() in fs/exec.c of the kernel has
    switched to the new memory, and create_elf_tables() in fs/binfmt_elf.c has not yet recorded where its environment
    is. A file opened before the execve(2) reads as empty after it, too (environ_read() in fs/proc/base.c).
    """

    def probe() -> bytes | None:
        if environment := _read(pid, "environ"):
            return environment
        # It has no memory, like a kernel thread or a zombie, or was started with an empty environment.
        # create_elf_tables() sets the end of the environment to its beginning until it has counted it;
        # load_elf_binary() sets the end of the code when that is done.
        fields = _read(pid, "stat").rpartition(b") ")[2].split()
        empty = fields[_END_CODE] != b"0" and fields[_ENV_START] == fields[_ENV_END]
        return b"" if fields[_VSIZE] == b"0" or empty else None

    try:
        return Deadline(f"the program of process {pid}", _EXEC_S).poll(probe, _LOOK_AGAIN_S)
    except DeadlineExpired:
        return b""


def _read(pid: int, name: str) -> bytes:
    with FileIO(f"/proc/{pid}/{name}") as file:  # pathlib's Path and a buffer would take a third of the sweep
        return file.readall()


# The build user


@dataclass(frozen=True, slots=True)
class BuildUser:
    """The user's numeric ids; neither is root's."""

    uid: int
    gid: int

    @property
    def become(self) -> tuple[str, ...]:
        """The prefix of a command that root starts, by setpriv(1): no other group, and no way to gain any right."""
        return (
            *("setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"),
            *("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"),
        )


def build_user() -> BuildUser | None:
    """The user named :data:`BUILD_USER`, or else the first id that nobody has; None unless this process is root's."""
    return _chosen() if os.geteuid() == 0 else None


def umask() -> int:
    """The umask of a command that writes sources, since root's own may hide them; -1 keeps this process's umask."""
    return -1 if build_user() is None else _NEW_FILES_READABLE


def give(directory: Path) -> None:
    """Make the build user the owner of a directory and all below it, and close it to other users.

    The directory itself is changed last: if the user owns it already, only entries that root has since put directly
    into it are checked. Raises ``OSError``.
    """
    user = build_user()
    if user is None:
        return
    given = directory.stat().st_uid == user.uid
    for _, directories, names, at in os.fwalk(directory, follow_symlinks=False):
        for name in (*directories, *names):
            if os.stat(name, dir_fd=at, follow_symlinks=False).st_uid != user.uid:
                os.chown(name, user.uid, user.gid, dir_fd=at, follow_symlinks=False)
        if given:
            return
    directory.chmod(_CLOSED)
    os.chown(directory, user.uid, user.gid)


def take_back(directory: Path) -> None:
    """Make the next :func:`give` check everything below, since root itself will write there. Raises ``OSError``."""
    if build_user() is not None and directory.stat().st_uid != 0:
        os.chown(directory, 0, 0)


@contextmanager
def lent(file: Path) -> Iterator[None]:
    """Let the build user own a file, created if need be, during the block: opening /dev/stderr reopens that file."""
    user = build_user()
    if user is None:
        yield
        return
    file.touch()
    mode = stat.S_IMODE(file.stat().st_mode)
    os.chown(file, user.uid, user.gid)
    try:
        yield
    finally:
        os.chown(file, 0, 0)
        file.chmod(mode)


def show(directory: Path) -> None:
    """Let the build user read a directory and all below it, unless it can read the directory; raises ``OSError``."""
    if build_user() is None or directory.stat().st_mode & _READABLE == _READABLE:
        return
    for _, directories, names, at in os.fwalk(directory, topdown=False, follow_symlinks=False):
        for name in (*directories, *names):
            mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
            # Each chmod, even to the same mode, changes the ctime, by which git would rewrite the file.
            if not stat.S_ISLNK(mode) and _shown(mode) != stat.S_IMODE(mode):
                os.chmod(name, _shown(mode), dir_fd=at)
    directory.chmod(_shown(directory.stat().st_mode))


def _shown(mode: int) -> int:
    """The mode that also lets others read the file, and enter or run it if its owner can."""
    return stat.S_IMODE(mode) | 0o004 | (mode & stat.S_IXUSR) >> 6


@cache
def _chosen() -> BuildUser:
    with suppress(KeyError):
        known = pwd.getpwnam(BUILD_USER)
        if known.pw_uid and known.pw_gid:
            return BuildUser(known.pw_uid, known.pw_gid)
    number = next(number for number in _NUMBERS if not _is_known(number))
    return BuildUser(number, number)


def _is_known(number: int) -> bool:
    for find in (pwd.getpwuid, grp.getgrgid):
        with suppress(KeyError):
            find(number)
            return True
    return False
