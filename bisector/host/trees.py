"""Directories that a stranger's tree or make has filled are gone through, and removed, in any depth.

Python's own os.walk() and shutil.rmtree() call themselves for each directory in another one, of which a commit that git
checks out may have two thousand.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bisector.host import process

_REMOVE_S = 600.0
_LONGEST_PATH = 4095  # PATH_MAX of the kernel, without the byte that ends it


def files_below(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Everything at and below a directory but directories, links among it; not what is too deep to have a path.

    Raises ``OSError``.
    """
    below = [os.fspath(directory)]
    while below:
        with os.scandir(below.pop()) as entries:
            for entry in entries:
                if len(os.fsencode(entry.path)) > _LONGEST_PATH:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
                else:
                    yield entry


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


def discard(directory: Path) -> None:
    """Remove a directory that is needed no more, as far as that can be done; a link in its place stays as it is."""
    with suppress(OSError):
        if not directory.is_symlink():
            remove_whole(directory)
