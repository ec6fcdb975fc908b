"""Which processes carry a mark in their environment (proc_pid_environ(5)).

A sweep looks at every process of the host, after each trial: what most of them do not have, the mark, is looked for
first, and costs one file each. Whose they are and what they run is asked of those that have it.
"""

import os
from collections.abc import Iterator
from io import FileIO

from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.host.build_user import build_user

_EXEC_S = 1.0  # that an execve(2) takes between two memories: microseconds, unless the host is short of CPUs
_LOOK_AGAIN_S = 0.001
# Fields of proc_pid_stat(5), counted from 0 at the state, which is the first behind the name.
_VSIZE, _END_CODE, _ENV_START, _ENV_END = 20, 24, 47, 48


def pids() -> Iterator[int]:
    """The processes of this host, as far as they are shown to this one."""
    with os.scandir("/proc") as entries:
        yield from (int(entry.name) for entry in entries if entry.name.isdigit())


def value_of(pid: int, name: str) -> bytes | None:
    """What a variable was when a process of this user, or of the build's, began to run its program.

    None where it was not set, for ssh's master, for somebody else's process, and for one that has ended. Root can
    read the environment of every process, and whoever starts one chooses it.
    """
    try:
        value = _variable(_environment(pid), name.encode())
        if value is None or not _users(pid) <= _our_users() or _is_ssh_master(_read(pid, "cmdline")):
            return None
    except OSError:  # it ended meanwhile, or belongs to somebody else
        return None
    return value


def _variable(environment: bytes, name: bytes) -> bytes | None:
    # One search, since splitting each environment of a host would be most of the work.
    _, found, rest = (b"\0" + environment).partition(b"\0" + name + b"=")
    return rest.partition(b"\0")[0] if found else None


def _environment(pid: int) -> bytes:
    """The environment of a process, of its next program when it is on the way there.

    Between the two memories of an execve(2) there is none: begin_new_exec() in fs/exec.c of the kernel has taken the
    new one, and create_elf_tables() in fs/binfmt_elf.c has not yet said where it has the environment. What was opened
    before reads as empty after it, too (environ_read() in fs/proc/base.c).
    """

    def probe() -> bytes | None:
        environment = _read(pid, "environ")
        return environment if environment or _has_none(pid) else None

    try:
        return Deadline(f"the program of process {pid}", _EXEC_S).poll(probe, _LOOK_AGAIN_S)
    except DeadlineExpired:
        return b""


def _has_none(pid: int) -> bool:
    """Whether it has no memory, as a thread of the kernel and a zombie, or was begun with an empty environment.

    create_elf_tables() lets the environment end where it begins until it has counted it; load_elf_binary() says where
    the code ends when that is done.
    """
    fields = _read(pid, "stat").rpartition(b") ")[2].split()
    return fields[_VSIZE] == b"0" or (fields[_END_CODE] != b"0" and fields[_ENV_START] == fields[_ENV_END])


def _users(pid: int) -> set[int]:
    """The real, effective and saved user and that of file accesses (proc_pid_status(5)), which setuid programs mix."""
    lines = _read(pid, "status").splitlines()
    return {int(number) for line in lines if line.startswith(b"Uid:") for number in line.split()[1:]}


def _our_users() -> set[int]:
    builder = build_user()
    return {os.geteuid(), *(() if builder is None else (builder.uid,))}


def _is_ssh_master(title: bytes) -> bool:
    """Whether it is ssh's master, by its title: "ssh: /home/anna/.ssh/master [mux]" (control_persist_detach())."""
    return title.startswith(b"ssh: ") and title.rstrip(b"\0 ").endswith(b" [mux]")


def _read(pid: int, name: str) -> bytes:
    with FileIO(f"/proc/{pid}/{name}") as file:  # a path of pathlib's, and a buffer, would be a third of the sweep
        return file.readall()
