"""What a stranger's make may leave in its build directory for this process to fall into, or to stumble over."""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bisector.core.errors import KernelFault
from bisector.core.trial import FaultKind, Stage
from bisector.host import process

# Kbuild's own are a fifth as long. Python goes down by one call a directory, of which it has a thousand.
_LONGEST_BYTES = 800
_REMOVE_S = 600.0
# How a file that this process wants is not as make makes it; all else (no room, a bad disk) is the host's.
_OF_MAKE = frozenset(
    (errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG)
)


def remove_strays(build: Path, source: Path) -> tuple[str, ...]:
    """Remove links that lead out of the build and the source, and what is no file at all; what each of them was.

    This process reads and writes files of the build directory by their names, with the rights that make in its
    sandbox has not: behind a link they would be any files of this host, and a FIFO would be waited for for ever.
    Kbuild's own links lead within the two (``source``, and in modules_install ``build``). Directories in such a depth
    that their names are too long go, too; what is left can be read and written by its owner. Raises ``OSError``.
    """
    inside = (build, source)
    return tuple(_removed(entry) for entry in _odd(build) if not _is_kept(entry, inside))


def remove_whole(path: Path) -> None:
    """Remove a file, or a directory with all below it, however deep that is and whatever rights it lacks.

    Raises ``OSError``.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    with suppress(OSError, RecursionError):
        shutil.rmtree(path)
        return
    try:
        for words in (("chmod", "-R", "u+rwx"), ("rm", "-rf")):
            process.run([*words, "--", path], deadline_s=_REMOVE_S, check=False)
    except (process.CommandMissing, process.CommandTimeout) as error:
        raise OSError(errno.EBUSY, str(error), str(path)) from error
    if os.path.lexists(path):
        raise OSError(errno.EBUSY, "it cannot be removed", str(path))


@contextmanager
def blamed_on_make(build: Path) -> Iterator[None]:
    """Raise :class:`KernelFault` where a file of the build is not there, is none, or is in nobody's reach."""
    try:
        yield
    except OSError as error:
        path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else build
        if error.errno not in _OF_MAKE or build not in path.parents:
            raise
        reason = f"make leaves no file {path.relative_to(build)} that can be read: {error.strerror}"
        raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, reason) from error


def _odd(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below that is no plain file, and no directory that can be gone through."""
    longest = len(os.fsencode(directory)) + _LONGEST_BYTES
    _let_us(directory, directory.stat().st_mode, stat.S_IRWXU)
    below = [os.fspath(directory)]
    while below:
        with os.scandir(below.pop()) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    _let_us(entry, entry.stat(follow_symlinks=False).st_mode, stat.S_IRUSR | stat.S_IWUSR)
                elif entry.is_dir(follow_symlinks=False) and len(os.fsencode(entry.path)) <= longest:
                    _let_us(entry, entry.stat(follow_symlinks=False).st_mode, stat.S_IRWXU)
                    below.append(entry.path)
                else:
                    yield entry


def _let_us(path: os.PathLike[str], mode: int, rights: int) -> None:
    """Let the owner do that: a rule may take it from a directory. Nothing else is at work there meanwhile."""
    if mode & rights != rights:
        Path(path).chmod(stat.S_IMODE(mode) | rights)


def _is_kept(entry: os.DirEntry[str], inside: tuple[Path, ...]) -> bool:
    return entry.is_symlink() and any(Path(os.path.realpath(entry.path)).is_relative_to(place) for place in inside)


def _removed(entry: os.DirEntry[str]) -> str:
    path = Path(entry.path)
    if entry.is_symlink():
        what = f"a link to {path.readlink()}"
    else:
        what = "a directory in too many others" if entry.is_dir() else "neither a file nor a directory"
    remove_whole(path)
    return f"{path}, {what}"
