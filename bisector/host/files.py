"""Trouble with this tool's own files is the host's: which path, what is wrong with it, and what to do."""

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from bisector.core.errors import InfraError

_WHAT_TO_DO: Mapping[int | None, str] = MappingProxyType(
    {
        errno.ENOSPC: "make room: df -h {directory}",
        errno.EDQUOT: "make room below the quota: quota; df -h {directory}",
        errno.EROFS: "the file system has become read-only, often after an error of its disk: dmesg; findmnt -T {path}",
        errno.EIO: "the disk reports errors: dmesg",
        errno.EMFILE: "too many files are open: ulimit -n",
        errno.ENFILE: "too many files are open on this host: sysctl fs.file-max",
        errno.ENOMEM: "the host has no memory left: free -h",
    }
)


@contextmanager
def our_files(directory: Path) -> Iterator[None]:
    """Raise :class:`InfraError` for an :class:`OSError` of a file that is ours to read or write.

    ``directory`` stands for a path that the error does not name.
    """
    try:
        yield
    except OSError as error:
        path = error.filename or directory
        hint = _WHAT_TO_DO.get(error.errno, "ls -ld {path}").format(path=path, directory=directory)
        raise InfraError(f"{path}: {error.strerror or error}", hint) from error
