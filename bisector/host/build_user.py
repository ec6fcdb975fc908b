"""The user that runs an untrusted tree's commands if root started bisector; an ordinary user runs them as itself.

This user owns nothing on the host except what it is given here: a build directory, a cache of compiled objects, a copy
of a few sources. Its processes run in a sandbox only, and none is running while root looks at its directories.
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NAME = "bisector-build"
# No account is made in this range: systemd leaves it unused (https://systemd.io/UIDS-GIDS), Debian reserves it (Policy,
# 9.2.2). The range below it is for users of services that exist for a while: such a service would own the files of a
# build.
_NUMBERS = range(65_520, 65_534)
_CLOSED = 0o700
_READABLE = 0o005
_NEW_FILES_READABLE = 0o022


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
    """The user named :data:`NAME`, or else the first id that nobody has; None unless this process is root's."""
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
    """Let the build user read a directory and all below it; returns at once if it can read the directory itself.

    Raises ``OSError``.
    """
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
        known = pwd.getpwnam(NAME)
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
