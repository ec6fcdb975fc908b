"""The files of a result on their way to another host: one archive, its digest, and what may be in it.

What arrives is input. Only regular files with names of our own are taken out, each within bounds and into a directory
that nothing else is in; Python's own filter for that (tarfile, "data") came with 3.12, and with later versions of 3.11
than some distributions have, and lets more through. They are moved to where they belong when all is there.
"""

import gzip
import hashlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bisector.core.errors import InfraError
from bisector.executor.child import WRITTEN
from bisector.executor.spool import sync, sync_directories
from bisector.host.files import inside, our_files, scratch

MOST_PACKED_BYTES = 256 << 20
_MOST_FILES = 10_000
_MOST_BYTES = 2 << 30
_MOST_DEPTH = 16
_WORD = re.compile(r"(?!\.\.?$)[^/\0]{1,255}")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Parcel:
    """A gzipped tar archive."""

    content: bytes
    sha256: str

    @classmethod
    def of(cls, directory: Path) -> "Parcel | None":
        """The regular files below a directory, None without any; raises :class:`InfraError` for too much.

        The same files are the same bytes at any time: the archive says nothing of when it was packed.
        """
        with our_files(directory):
            paths = [path for path in sorted(directory.rglob("*")) if path.is_file() and not path.is_symlink()]
            if not paths:
                return None
            buffer = io.BytesIO()
            with (
                gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
            ):
                for path in paths:
                    _add(archive, path, path.relative_to(directory).as_posix())
                    if buffer.tell() > MOST_PACKED_BYTES:
                        raise InfraError(f"the files of a result have more than {MOST_PACKED_BYTES >> 20} MiB, packed")
        content = buffer.getvalue()
        return cls(content, hashlib.sha256(content).hexdigest())

    def unpack(self, run_dir: Path) -> None:
        """Put the files into a run directory, each in the place of one of its name; they are on the disk afterwards.

        Raises :class:`InfraError` when the archive is not what was sent, or holds what nobody sends.
        """
        if hashlib.sha256(self.content).hexdigest() != self.sha256:
            raise InfraError("the files of a result are not what was sent: their digest differs")
        with our_files(run_dir), scratch("arrived", run_dir) as directory:
            try:
                with tarfile.open(fileobj=io.BytesIO(self.content), mode="r:gz") as archive:
                    names = tuple(_taken_out(archive, directory))
            except (tarfile.TarError, zlib.error, EOFError) as error:
                raise InfraError(f"the files of a result cannot be unpacked: {error}") from error
            sync_directories(directory)
            for name in names:
                target = inside(run_dir, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                (directory / name).replace(target)
            for parent in {parent for name in names for parent in (run_dir / name).parents}:
                if parent.is_relative_to(run_dir):
                    sync(parent)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Without owner and time, which mean nothing on another host."""
    with path.open("rb") as file:
        member = tarfile.TarInfo(name)
        member.size = os.fstat(file.fileno()).st_size
        member.mode = 0o644
        archive.addfile(member, file)


def _taken_out(archive: tarfile.TarFile, directory: Path) -> Iterator[str]:
    """Write each file below a directory, within bounds; their names."""
    left_bytes = _MOST_BYTES
    for number, member in enumerate(archive):
        left_bytes -= member.size
        if number >= _MOST_FILES or left_bytes < 0:
            raise InfraError("a result has more files than any trial leaves, or larger ones")
        _check(member)
        content = archive.extractfile(member)
        if content is None:
            raise InfraError(f"{member.name!r} among the files of a result is no file")
        target = inside(directory, member.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with content, target.open("xb") as file:
            while chunk := content.read(_CHUNK_BYTES):
                file.write(chunk)
        yield member.name


def _check(member: tarfile.TarInfo) -> None:
    words = member.name.split("/")
    named = len(words) in range(2, _MOST_DEPTH) and words[0] in WRITTEN and all(map(_WORD.fullmatch, words))
    if not member.isreg() or member.issparse() or not named:
        raise InfraError(f"{member.name!r} is not among the files that a trial leaves")
