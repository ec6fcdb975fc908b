"""What a stranger's make may leave in its build directory for this process to fall into."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path


def remove_strays(build: Path, source: Path) -> tuple[str, ...]:
    """Remove links that lead out of the build and the source, and what is no file at all; what each of them was.

    This process reads and writes files of the build directory by their names, with the rights that make in its
    sandbox has not: behind a link they would be any files of this host, and a FIFO would be waited for for ever.
    Kbuild's own links lead within the two (``source``, and in modules_install ``build``).
    """
    inside = (build, source)
    return tuple(_removed(entry) for entry in _special(build) if not _is_kept(entry, inside))


def _special(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below that is neither a directory nor a plain file."""
    below = [os.fspath(directory)]
    while below:
        with os.scandir(below.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    yield entry


def _is_kept(entry: os.DirEntry[str], inside: tuple[Path, ...]) -> bool:
    return entry.is_symlink() and any(Path(os.path.realpath(entry.path)).is_relative_to(place) for place in inside)


def _removed(entry: os.DirEntry[str]) -> str:
    kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
    path = Path(entry.path)
    what = f"a link to {path.readlink()}" if kind == stat.S_IFLNK else "neither a file nor a directory"
    path.unlink()
    return f"{path}, {what}"
