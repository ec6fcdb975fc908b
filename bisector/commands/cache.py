"""``cache``: the kernels and guest images that a person's runs have in common."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bisector.commands.arguments import Verbs, add_json, add_verb
from bisector.commands.documents import CachedImages, CachedKernels, CacheEntry, Caches, KernelEntry, write_json
from bisector.commands.output import write
from bisector.core import resources, units
from bisector.core.kernel import Kernel
from bisector.executor.local import KEPT_KERNELS_BYTES, kept_kernels
from bisector.host import shared_caches
from bisector.kernel.cache import KeptEntry
from bisector.vm.kept_images import KeptImage, kept_images, remove_images

_SHORT = 12
_SIZE_WIDTH = 9


def add(verbs: Verbs) -> None:
    """Register ``cache``."""
    cache_ = add_verb(verbs, "cache", cache)
    actions = ("show", "clear")
    cache_.add_argument(
        "action",
        choices=actions,
        nargs="?",
        default="show",
        help="show (the default), or clear: remove what no run is using",
    )
    add_json(cache_)


def cache(arguments: argparse.Namespace) -> int:
    """Show what is kept, or clear it first."""
    home = resources.cache_home()
    kernels, images = kept_kernels(), home / "images"
    before = _bytes(kernels.contents()) + _bytes(kept_images(images))
    spared = _clear(home, images) if arguments.action == "clear" else False
    left, left_images = kernels.contents(), kept_images(images)
    if arguments.json:
        write_json(_document(kernels.root, left, images, left_images))
    elif arguments.action == "clear":
        write(f"{units.size(before - _bytes(left) - _bytes(left_images))} removed\n")
        if spared:
            write("a run is in progress: guest images, and kernels used in the last two hours, were kept\n")
    else:
        write("".join(f"{line}\n" for line in (*_kernel_lines(kernels.root, left), *_image_lines(images, left_images))))
    return 0


def _clear(home: Path, images: Path) -> bool:
    """Remove what nobody uses; whether something had to be spared."""
    with shared_caches.alone(home) as nobody_else:
        kept_kernels().clear(spare_used=not nobody_else)
        if nobody_else:
            remove_images(images)
    return not nobody_else


def _bytes(entries: Sequence[KeptEntry] | Sequence[KeptImage]) -> int:
    return sum(entry.size_bytes for entry in entries)


def _kernel_lines(root: Path, entries: Sequence[KeptEntry]) -> list[str]:
    failures = sum(not entry.release for entry in entries)
    counts = units.plural(len(entries) - failures, "kernel")
    counts += f", {units.plural(failures, 'source')} known not to build" if failures else ""
    lines = [f"{root}: {counts}, {units.size(_bytes(entries))} of at most {units.size(KEPT_KERNELS_BYTES)}"]
    for entry in entries:
        _, _, tree = entry.key.partition(Kernel.KEY_SEPARATOR)
        what = entry.release or "does not build"
        lines.append(f"{_line(entry)}  {what}" + (f"  tree {tree[:_SHORT]}" if tree else ""))
    return lines


def _image_lines(root: Path, images: Sequence[KeptImage]) -> list[str]:
    lines = [f"{root}: {units.plural(len(images), 'guest image')}, {units.size(_bytes(images))}"]
    return lines + [f"{_line(image)}  {image.key[:_SHORT]}" for image in images]


def _line(entry: KeptEntry | KeptImage) -> str:
    used = datetime.fromtimestamp(entry.last_used).astimezone()
    return f"  {used:%Y-%m-%d %H:%M}  {units.size(entry.size_bytes):>{_SIZE_WIDTH}}"


def _document(root: Path, entries: Sequence[KeptEntry], images_root: Path, images: Sequence[KeptImage]) -> Caches:
    kernels = [
        KernelEntry(key=one.key, size_bytes=one.size_bytes, last_used=_time(one), release=one.release or None)
        for one in entries
    ]
    guests = [CacheEntry(key=one.key, size_bytes=one.size_bytes, last_used=_time(one)) for one in images]
    return Caches(
        kernels=CachedKernels(
            path=root, limit_bytes=KEPT_KERNELS_BYTES, size_bytes=_bytes(entries), entries=tuple(kernels)
        ),
        images=CachedImages(path=images_root, size_bytes=_bytes(images), entries=tuple(guests)),
    )


def _time(entry: KeptEntry | KeptImage) -> str:
    return datetime.fromtimestamp(entry.last_used, UTC).isoformat(timespec="seconds")
