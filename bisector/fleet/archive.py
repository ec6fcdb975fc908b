"""The archive, with its digest, in which the files of a result are sent to the coordinator.

An archive that arrives is untrusted input. Only regular files with names of a trial's files are extracted, within
bounds, into an empty directory, and moved to their places when all are there. Python's own filter (tarfile, "data")
lets more through; it came with 3.12, and with later versions of 3.11 than some distributions have.
"""

import gzip
import hashlib
import io
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bisector.core.errors import InfraError
from bisector.host.files import inside, our_files, scratch, sync

# The directories, below its run directory, into which an executor writes files of jobs.
WRITTEN = ("trials", "controls", "compilers")
MOST_PACKED_BYTES = 256 << 20
_MOST_FILES = 10_000
_MOST_BYTES = 2 << 30
_MOST_DEPTH = 16
_WORD = re.compile(r"(?!\.\.?$)[^/\0]{1,255}")


class DamagedArchive(InfraError):
    """An archive that was changed on its way, or that holds anything but files of a job."""


@dataclass(frozen=True, slots=True)
class ResultArchive:
    """A gzipped tar archive; ``left_out`` are the paths of the largest files, left out to keep it within bounds."""

    content: bytes
    sha256: str
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, place: Path, most_bytes: int = MOST_PACKED_BYTES) -> Self:
        """Pack the files that a job has written below ``place``, without times and owners.

        Raises :class:`InfraError` if a file cannot be read.
        """
        with our_files(place):
            found = {
                path.relative_to(place).as_posix(): path.stat().st_size
                for top in WRITTEN
                for path in (place / top).rglob("*")
                if path.is_file() and not path.is_symlink()
            }
            kept, left_out = sorted(found), list[str]()
            while (
                sum(map(found.__getitem__, kept)) > _MOST_BYTES or (content := _packed(place, kept, most_bytes)) is None
            ):
                left_out.append(largest := max(kept, key=found.__getitem__))
                kept.remove(largest)
        return cls(content, hashlib.sha256(content).hexdigest(), tuple(left_out))

    def unpack(self, run_dir: Path) -> None:
        """Put the files into a run directory, replacing those of the same name, and sync them to the disk.

        Raises :class:`DamagedArchive`, and :class:`InfraError` if the files cannot be written.
        """
        if hashlib.sha256(self.content).hexdigest() != self.sha256:
            raise DamagedArchive("the files of a result are not what was sent: their digest differs")
        with our_files(run_dir), scratch("arrived", run_dir) as directory:
            try:
                with tarfile.open(fileobj=io.BytesIO(self.content), mode="r:gz") as archive:
                    names = tuple(_taken_out(archive, directory))
            except (tarfile.TarError, zlib.error, EOFError, FileExistsError, NotADirectoryError) as error:
                raise DamagedArchive(f"the files of a result cannot be unpacked: {error}") from error
            for name in names:
                target = inside(run_dir, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                sync(directory / name)
                (directory / name).replace(target)
            for parent in {parent for name in names for parent in (run_dir / name).parents}:
                if parent.is_relative_to(run_dir):
                    sync(parent)


def _packed(place: Path, names: Sequence[str], most_bytes: int) -> bytes | None:
    """The archive of files, without owners and times, which mean nothing on another host; None if it is too large."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in names:
            with (place / name).open("rb") as file:
                member = tarfile.TarInfo(name)
                member.size = os.fstat(file.fileno()).st_size
                member.mode = 0o644
                archive.addfile(member, file)
            if buffer.tell() > most_bytes:
                return None
    return buffer.getvalue()


def _taken_out(archive: tarfile.TarFile, directory: Path) -> Iterator[str]:
    """Extract each file below a directory, within bounds, and yield its name."""
    left_bytes = _MOST_BYTES
    for number, member in enumerate(archive):
        left_bytes -= member.size
        if number >= _MOST_FILES or left_bytes < 0:
            raise DamagedArchive("a result has more files than any trial leaves, or larger ones")
        words = member.name.split("/")
        named = len(words) in range(2, _MOST_DEPTH) and words[0] in WRITTEN and all(map(_WORD.fullmatch, words))
        content = archive.extractfile(member) if member.isreg() and not member.issparse() and named else None
        if content is None:
            raise DamagedArchive(f"{member.name!r} is not among the files that a trial leaves")
        target = inside(directory, member.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with content, target.open("xb") as file:
            shutil.copyfileobj(content, file)
        yield member.name
