"""Run an untrusted tree's commands (make's rules, scripts) in a sandbox of bubblewrap (bwrap(1)).

What holds for such a command, whoever starts it:

- it has no network, not even this host's loopback, and no socket of this host's that exists when it starts;
- of the file system it sees the programs of the system and those on PATH, read-only, some files of /etc, and the
  given places; it can write only to those given as writable, and to a /tmp of its own. Its home is empty;
- it sees no other process, and has no capability. Root becomes another user in it: see :mod:`bisector.host.process`;
- none of its processes outlives the command, and the command does not outlive this process, however this one ends.

What does not hold: memory, CPU time and disk space are not limited, and kernel keyrings (keyrings(7)) are visible.
"""

import functools
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bisector.core.errors import UserError
from bisector.host import process
from bisector.host.packages import install
from bisector.host.process import build_user

BUBBLEWRAP = "bwrap"
OPTION = "kernel.sandbox"
_DEADLINE_S = 20.0
_TMP = "/tmp"  # noqa: S108 - the sandbox's own
_HOME = f"{_TMP}/home"
# Directories where distributions keep programs and the files that those read; none holds a user's own files, nor
# root's. Of Nix and Guix the sockets of their daemons, which build for anyone, are left out.
_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "nix/store", "gnu/store")
_OPT = Path("/opt")  # the place of daemons that come from no distribution
_ETC = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "passwd", "group", "nsswitch.conf", "localtime"),
    *("os-release", "ccache.conf", "perl", "ssl/openssl.cnf", "pki/tls/openssl.cnf", "crypto-policies"),
)
# Root uses the kernel's own rights to mount: in a user namespace it could not enter directories that are closed to it.
# It keeps the capabilities to become another user (setpriv(1)), which is the first thing that it does.
_FOR_USERS = ("--unshare-user", "--disable-userns")
_FOR_ROOT = tuple(word for name in ("SETUID", "SETGID", "SETPCAP") for word in ("--cap-add", f"CAP_{name}"))
_ISOLATED = (
    *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL", "--die-with-parent", "--as-pid-1"),
)
# The namespace's first process ends with the command, and the kernel ends all other processes before that is reported
# (pid_namespaces(7)); bwrap's own first process would wait for them.
_FIRST_PROCESS = ("sh", "-c", '"$@"; exit $?', "sh")
# Uses only what sh(1) has built in. Then prints the file that each word stands for: a program, or a script.
_TRIAL = """\
no() { echo "$1" >&2; exit 1; }
cd 2> /dev/null || no "its home cannot be entered"
test "$(echo .[!.]* *)" = ".[!.]* *" || no "its home is not empty"
test ! -w /usr || no "/usr can be written"
test ! -O /usr || no "/usr belongs to the user in it"
test $$ -lt 50 || no "other processes are seen in it"
for word; do
	case $word in
	*/*) test -x "$word" || test -r "$word" && echo "$word" || echo ;;
	*) command -v -- "$word" || echo ;;
	esac
done
"""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What a command sees beside the system, as absolute paths without symbolic links, which must exist.

    ``programs`` are words of commands: those that are programs outside the system's directories become visible, with
    the files beside them.
    """

    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    programs: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The words to put before a command, for :func:`bisector.host.process.run`."""
        shown = {str(place): "--ro-bind" for place in _program_places(self.programs) if os.access(place, os.F_OK)}
        shown |= {str(place): "--ro-bind" for place in self.readable}
        shown |= {str(place): "--bind" for place in self.writable}
        user = build_user()
        # Sorted by name, so that each place follows the one that contains it. The parent directory is given explicitly,
        # as bwrap may otherwise create it for root alone.
        binds = (word for p in sorted(shown) for word in ("--dir", str(Path(p).parent), shown[p], p, p))
        covers = (word for socket in _sockets(shown) for word in ("--ro-bind", os.devnull, socket))
        return (
            BUBBLEWRAP,
            *_ISOLATED,
            *(_FOR_USERS if user is None else _FOR_ROOT),
            *_bound_system(),
            *("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"),
            *("--perms", "1777", "--tmpfs", "/dev/shm", "--perms", "1777", "--tmpfs", _TMP),  # noqa: S108 - its own
            *("--perms", "0777", "--dir", _HOME),
            *binds,
            *covers,
            *("--remount-ro", "/", "--setenv", "HOME", _HOME),
            *(word for name in ("TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR") for word in ("--unsetenv", name)),
            "--",
            *_FIRST_PROCESS,
            *(() if user is None else user.become),
        )


def _sockets(shown: Iterable[str]) -> list[str]:
    """The sockets in what a command sees, to which a read-only place would not keep it from connecting (connect(2)).

    The kernel lists all sockets of this host's network by the names that they were given (unix(7)). A container has
    another network, and may have its sockets in a directory of the host's.
    """
    table = Path("/proc/net/unix").read_bytes().splitlines()[1:]
    named = (os.fsdecode(b"/" + path) for _, slash, path in (line.partition(b" /") for line in table) if slash)
    found = {os.path.realpath(path) for path in (*named, *_special_files_below(_OPT))}
    seen = tuple(f"{place}/" for place in (*map(str, _system()), *shown))
    sockets = []
    for path in sorted(path for path in found if path.startswith(seen)):
        with suppress(OSError):  # in a directory that neither this user nor the command can enter
            if stat.S_ISSOCK(os.stat(path).st_mode):  # noqa: PTH116 - many, and most are gone
                sockets.append(path)
    return sockets


@functools.cache
def _special_files_below(directory: Path) -> tuple[str, ...]:
    """All entries that are neither directory, link nor regular file; cached, since there may be many files."""
    found = []
    below = [os.fspath(directory)]
    while below:
        with suppress(OSError), os.scandir(below.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                    found.append(entry.path)
    return tuple(found)


def failed(output: Iterable[str]) -> str | None:
    """Why the sandbox could not be made, None if it was: its tools print before the command in it starts."""
    first = next(iter(output), "")
    return first if first.startswith((f"{BUBBLEWRAP}: ", "setpriv: ")) else None


def check(*words: str) -> None:
    """Run a trial in a sandbox; raises :class:`UserError` if no sandbox works here, or not with these words.

    The words are programs, scripts by their path, options. Root's own programs may be closed to the user that root
    becomes in the sandbox, which would then run others of the same name.
    """
    words = tuple(word for word in words if not word.startswith("-"))
    try:
        trial = ["sh", "-c", _TRIAL, "sh", *words]
        printed = process.run(trial, deadline_s=_DEADLINE_S, within=Sandbox(programs=words).words).stdout
    except process.CommandMissing as error:
        raise missing() from error
    except process.CommandTimeout as error:
        raise _none(f"not made after {error.seconds:g} s") from error
    except process.CommandFailed as error:
        status = f"what makes it ended with status {error.finished.exit_status}"
        raise _none(error.finished.stderr.strip() or status) from error
    for word, there in zip(words, printed.splitlines(), strict=True):
        # The file that the word means outside: a program, or a script that another program reads.
        here = shutil.which(word) or (word if "/" in word and Path(word).is_file() else None)
        # A directory in PATH may end in a slash, which the shell keeps.
        if here is not None and (not there or os.path.normpath(here) != os.path.normpath(there)):
            raise UserError(
                f"{here} cannot be run in the sandbox, where {word} is {there or 'not found'}",
                f"let every user run it (ls -ld {Path(here).parent} {here}), or take {Path(here).parent} out of PATH",
            )


def _none(why: str) -> UserError:
    return UserError(
        f"there is no sandbox for what a kernel tree runs: {why}",
        f"may this user make namespaces? sysctl user.max_user_namespaces kernel.unprivileged_userns_clone "
        f"kernel.apparmor_restrict_unprivileged_userns; for a tree that you trust: --set {OPTION}=false",
    )


def missing() -> UserError:
    """The error for a host without bubblewrap."""
    what = f"{BUBBLEWRAP} is not installed: there is no sandbox for what a kernel tree runs"
    return UserError(what, install("bubblewrap"))


def _system() -> Iterator[Path]:
    return (path for path in (Path("/", name) for name in _SYSTEM) if path.is_symlink() or path.is_dir())


def _bound_system() -> Iterator[str]:
    for path in _system():
        if path.is_symlink():
            yield from ("--symlink", os.fspath(path.readlink()), os.fspath(path))
        else:
            yield from ("--dir", os.fspath(path.parent), "--ro-bind", os.fspath(path), os.fspath(path))
    for path in (Path("/etc", name) for name in _ETC):
        yield from ("--dir", os.fspath(path.parent), "--ro-bind-try", os.fspath(path), os.fspath(path))


def _program_places(commands: Iterable[str]) -> Iterator[Path]:
    """The places that the user's own programs need (a compiler below the home, say): on PATH, or named in a command."""
    on_path = [Path(place) for place in os.environ.get("PATH", os.defpath).split(os.pathsep) if place]
    for directory in on_path:
        yield from _beside(directory) if _is_hidden(directory) and os.access(directory, os.X_OK) else ()
    for command in commands:
        found = Path(shutil.which(command) or command)
        for file in dict.fromkeys((found, found.resolve())):
            if _is_hidden(file) and file.is_file():
                yield from _beside(file.parent) if _is_hidden(file.parent) else (file,)


def _beside(directory: Path) -> Iterator[Path]:
    """A directory of programs, and the directories of their libraries."""
    if directory.name == "shims":  # as of pyenv: scripts that start the programs beside them
        yield directory.parent
    elif directory.name == "bin":
        yield directory
        yield from (directory.parent / name for name in ("lib", "lib32", "lib64", "libexec"))
        # A cross compiler's assembler and linker are in PREFIX/TRIPLE/bin.
        yield from (path.parent for path in directory.parent.glob("*-linux*/bin"))
    else:
        yield directory


def _is_hidden(path: Path) -> bool:
    """Whether the sandbox hides the path, and may show it: the home and the directories above it are never shown."""
    seen = any(path.is_relative_to(Path("/", name)) for name in _SYSTEM)
    return path.is_absolute() and path.parts[1:2] != () and not seen and not Path.home().is_relative_to(path)
