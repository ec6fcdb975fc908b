"""``image``, ``cache`` and ``reset``: what is made before runs, kept for later ones, and removed after one."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from bisector.commands.arguments import Verbs, add_verb, run_directory, write_json
from bisector.commands.output import note, write
from bisector.config import options
from bisector.core import resources, units
from bisector.core.json_document import JsonObject
from bisector.core.json_keys import SCHEMA
from bisector.core.subject import Kernel
from bisector.core.verdict import State
from bisector.executor.local import KEPT_KERNELS_BYTES, kept_kernels
from bisector.git.repository import Repository
from bisector.git.worktrees import release, remove_leftovers
from bisector.host import locks, process
from bisector.host.files import our_files, remove_whole
from bisector.kernel.cache import KeptEntry
from bisector.status.host_clock import CONFIRMED
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from bisector.vm.definition import domain_prefix
from bisector.vm.disks import leftovers
from bisector.vm.driver import open_hypervisor
from bisector.vm.image import KeptImage, build_image, kept_images, remove_images

_IMAGE_EXAMPLES = """\
examples:
  bisector image build                       before a night without network
"""
_CACHE_EXAMPLES = """\
examples:
  bisector cache                             what is kept, the last used first
  bisector cache clear                       remove what no run is using
"""
_RESET_EXAMPLES = """\
examples:
  bisector reset                             end the newest run; its record and logs stay
  bisector reset --run-dir RUN --delete      remove all of a run
Hosts of a fleet clean up by themselves what a run has left there.
"""
_SHORT = 12
_SIZE_WIDTH = 9


class CacheEntry(JsonObject, frozen=True, kw_only=True):
    """What is kept under a key."""

    key: Annotated[str, "name of its directory"]
    size_bytes: Annotated[int, "what it takes of the disk"]
    last_used: Annotated[str, "time"]


class KernelEntry(CacheEntry, frozen=True, kw_only=True):
    """A kernel that is kept, or a source that is known not to build."""

    release: Annotated[str | None, "release of the kernel; `null` for a source that is known not to build"]


class CachedKernels(JsonObject, frozen=True, kw_only=True):
    """The kernels that are kept."""

    path: Annotated[Path, "directory"]
    limit_bytes: Annotated[int, "size beyond which the least recently used are removed"]
    size_bytes: Annotated[int, "of all together"]
    entries: Annotated[tuple[KernelEntry, ...], "the last used first"]


class CachedImages(JsonObject, frozen=True, kw_only=True):
    """The guest images that are kept."""

    path: Annotated[Path, "directory"]
    size_bytes: Annotated[int, "of all together"]
    entries: Annotated[tuple[CacheEntry, ...], "the last used first"]


class Caches(JsonObject, frozen=True, kw_only=True):
    """What ``bisector cache --json`` prints."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    kernels: Annotated[CachedKernels, "kernels"]
    images: Annotated[CachedImages, "guest images"]


def add(verbs: Verbs) -> None:
    """Register ``image``, ``cache`` and ``reset``."""
    image_ = add_verb(verbs, "image", image, examples=_IMAGE_EXAMPLES)
    image_.add_argument("action", choices=("build",), help="build the image, if it is not there yet")
    cache_ = add_verb(verbs, "cache", cache, "json", examples=_CACHE_EXAMPLES)
    cache_.add_argument(
        "action",
        choices=("show", "clear"),
        nargs="?",
        default="show",
        help="show (the default), or clear: remove what no run is using",
    )
    reset_ = add_verb(verbs, "reset", reset, "run", examples=_RESET_EXAMPLES)
    reset_.add_argument("--delete", action="store_true", help="also remove its record and all its files")


def image(arguments: argparse.Namespace) -> int:
    """Build the guest image now, so that a night without network can begin."""
    home = resources.cache_home()
    with locks.using_caches(home), locks.measuring(home / "images", note, locks.TurnPurpose.BUILD):
        built = build_image(resources.vm_images(), home / "images", None, lambda text: write(f"{text}\n"))
    write(f"{built.root}\n")
    return 0


def cache(arguments: argparse.Namespace) -> int:
    """Show what is kept, or clear it first."""
    home = resources.cache_home()
    kernels, images = kept_kernels(), home / "images"
    before = _bytes(kernels.contents()) + _bytes(kept_images(images))
    spared = False
    if arguments.action == "clear":
        with locks.clearing_caches(home) as nobody_else:
            kernels.clear(spare_used=not nobody_else)
            if nobody_else:
                remove_images(images)
        spared = not nobody_else
    left, left_images = kernels.contents(), kept_images(images)
    if arguments.json:
        write_json(_document(kernels.root, left, images, left_images))
    elif arguments.action == "clear":
        write(f"{units.size(before - _bytes(left) - _bytes(left_images))} removed\n")
        if spared:
            write("a run is in progress: guest images, and kernels used in the last two hours, were kept\n")
    else:
        write("".join(f"{line}\n" for line in _lines(kernels.root, left, images, left_images)))
    return 0


def _bytes(entries: Sequence[KeptEntry] | Sequence[KeptImage]) -> int:
    return sum(entry.size_bytes for entry in entries)


def _lines(root: Path, kernels: Sequence[KeptEntry], images_root: Path, images: Sequence[KeptImage]) -> Iterator[str]:
    def line(entry: KeptEntry | KeptImage, what: str) -> str:
        used = datetime.fromtimestamp(entry.last_used).astimezone()
        return f"  {used:%Y-%m-%d %H:%M}  {units.size(entry.size_bytes):>{_SIZE_WIDTH}}  {what}"

    failures = sum(not entry.release for entry in kernels)
    counts = units.plural(len(kernels) - failures, "kernel")
    counts += f", {units.plural(failures, 'source')} known not to build" if failures else ""
    yield f"{root}: {counts}, {units.size(_bytes(kernels))} of at most {units.size(KEPT_KERNELS_BYTES)}"
    for entry in kernels:
        _, _, tree = entry.key.partition(Kernel.KEY_SEPARATOR)
        yield line(entry, (entry.release or "does not build") + (f"  tree {tree[:_SHORT]}" if tree else ""))
    yield f"{images_root}: {units.plural(len(images), 'guest image')}, {units.size(_bytes(images))}"
    yield from (line(image, image.key[:_SHORT]) for image in images)


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


def reset(arguments: argparse.Namespace) -> int:
    """Leave nothing of a run outside its record; with --delete nothing at all."""
    run = run_directory(arguments)
    with run.lock():
        if RunDirectory.is_at(own := run.path / CONFIRMED):
            with (by_host := RunDirectory.open(own)).lock():
                _reset(by_host)
        _reset(run)
        if arguments.delete:
            with our_files(run.path):
                remove_whole(run.path)
    write(f"{run.path} {'removed' if arguments.delete else 'reset; its record stays'}\n")
    return 0


def _reset(run: RunDirectory) -> None:
    process.reap(run.path)
    with closing(Store.open(run.database)) as store:
        asked = store.bisection()
        state = store.state()
        by_others = store.by_others
        if (store.is_search or store.plan is not None) and (state is None or state.state is State.RUNNING):
            store.set_state(State.STOPPED, "reset")
    if asked.repository is not None and not by_others:  # an import has nothing outside its record
        # The guests, worktrees, disks and the build of a run.
        repository = asked.repository
        settings = options.from_json(asked.settings)
        with open_hypervisor(settings.machine.connect, run.path) as hypervisor:
            hypervisor.reap(domain_prefix(run.path))
        if repository.is_dir():
            with Repository.open(repository) as opened:
                remove_leftovers(opened, run.path)
                release(opened, run.path)
        else:
            note(f"bisector: {repository} is gone, and what was registered there with it")
        disks = leftovers(settings.storage, run.path, domain_prefix(run.path))
        with our_files(run.path):
            for leftover in (run.path / "build", run.path / "worktrees", *run.path.glob("*.qcow2"), *disks):
                remove_whole(leftover)  # of a link what it leads to is the person's, who made it
