"""A kept kernel as one file, between the caches of two machines: built once, and then the same bytes everywhere.

The file is a tar archive of the cache's entry. It is the same for the same entry, so what has arrived of it is not sent
again. What is unpacked is an entry like any other and is looked at as one: the record has digests of itself, of the
image, the configuration and the modules, and the key, which says what the kernel was made from
(:meth:`bisector.kernel.build.KernelBuilder.key`).
"""

import re
import tarfile
from pathlib import Path

from bisector.core.errors import InfraError
from bisector.kernel import entries
from bisector.kernel.cache import KernelCache

# As a builder makes them; it comes over the network, and is the name of a directory.
_KEY = re.compile(r"[0-9a-f]{32}-(?:[0-9a-f]{40}|[0-9a-f]{64})")
_CHUNK_BYTES = 1 << 20


def content(cache: KernelCache, key: str) -> str:
    """The digest of what is loaded of the kernel of this key, which is undamaged; empty when there is none."""
    kept = cache.find(key) if _KEY.fullmatch(key) else None
    return "" if kept is None else kept.content_sha256


def pack(cache: KernelCache, key: str, file: Path) -> None:
    """Write the kernel of a key into a file. Raises :class:`InfraError` when there is none, and ``OSError``."""
    if not content(cache, key):
        raise InfraError(f"no kernel of the key {key} is kept")
    directory = cache.root / key
    with tarfile.open(file, "w:", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(entries.KERNEL_FILES):
            if (path := directory / name).is_file():
                member = tarfile.TarInfo(name)
                member.size = path.stat().st_size
                with path.open("rb") as opened:
                    archive.addfile(member, opened)


def unpack(cache: KernelCache, key: str, file: Path) -> None:
    """Keep the kernel of a file that arrived, in place of any other of its key.

    Raises :class:`InfraError` for anything that is no whole kernel of that key, and ``OSError``.
    """

    def fill(directory: Path) -> None:
        try:
            with tarfile.open(file, "r:") as archive:
                for member in archive:
                    _take_out(archive, member, directory)
        except tarfile.TarError as error:
            raise InfraError(f"the kernel {key} cannot be unpacked: {error}") from error

    if _KEY.fullmatch(key) is None:
        raise InfraError(f"{key!r} is no key of a kernel")
    if not cache.adopt(key, fill):
        raise InfraError(f"what arrived is no whole kernel of the key {key}")


def _take_out(archive: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    """Write a file of the archive, if it is one of a kernel's and there was none of its name before."""
    content = archive.extractfile(member) if member.isreg() and not member.issparse() else None
    if content is None or member.size > entries.KERNEL_FILES.get(member.name, -1):
        raise InfraError(f"{member.name[:80]!r} is no file of a kernel")
    with content, (directory / member.name).open("xb") as file:
        while chunk := content.read(_CHUNK_BYTES):
            file.write(chunk)
