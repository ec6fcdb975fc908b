"""The guest images that were built from recipes and are kept: what there is, and their removal."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from bisector.core.errors import InfraError

_ROOT = "root.ext4"


@dataclass(frozen=True, slots=True)
class KeptImage:
    """An image: its key, what it takes of the disk (it has holes), and when it was last read, in seconds since 1970."""

    key: str
    size_bytes: int
    last_used: float


def kept_images(cache_root: Path) -> tuple[KeptImage, ...]:
    """The complete images, the last used first; raises :class:`InfraError` when they cannot be read."""
    try:
        found = [_kept(root.parent) for root in cache_root.glob(f"*/{_ROOT}") if ".new-" not in root.parent.name]
    except OSError as error:
        raise InfraError(f"guest images {cache_root}: {error.strerror}") from error
    return tuple(sorted(found, key=lambda image: -image.last_used))


def remove_images(cache_root: Path) -> None:
    """Remove all complete images; the caller knows that no guest runs on one and that none is being built."""
    for image in kept_images(cache_root):
        try:
            shutil.rmtree(cache_root / image.key)
        except OSError as error:
            raise InfraError(f"guest image {cache_root / image.key}: {error.strerror}", "remove it by hand") from error


def _kept(directory: Path) -> KeptImage:
    files = [path.stat() for path in directory.iterdir()]
    root = (directory / _ROOT).stat()
    # Access times are written once a day at least (mount(8), relatime); the image itself is never written again.
    return KeptImage(directory.name, sum(file.st_blocks * 512 for file in files), max(root.st_atime, root.st_mtime))
