"""``doctor``, ``image``, ``cache`` and ``reset``: checks of hosts, and what is made, kept and removed there."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from bisector.commands.arguments import Verbs, add_run_dir, add_settings, add_verb, effective, run_directory, show
from bisector.commands.output import note, show_blocks, write
from bisector.config import options
from bisector.config.options import Effective
from bisector.core import resources, units
from bisector.core.errors import Finding, Grade, UserError, refusal
from bisector.core.examination import Examination, ready
from bisector.core.json_document import SCHEMA, JsonObject
from bisector.core.subject import Kernel
from bisector.core.verdict import State
from bisector.doctor import checks
from bisector.executor.local import KEPT_KERNELS_BYTES, kept_kernels
from bisector.fleet import hosts, status
from bisector.git.bisect import check_terms
from bisector.git.repository import Repository
from bisector.git.source_tree import release, remove_leftovers
from bisector.host import locks, process
from bisector.host.files import our_files, remove_tree
from bisector.report.hosts import finding_blocks, side_by_side
from bisector.status.from_record import CONFIRMED
from bisector.store.rundir import RunDirectory, state_home
from bisector.store.store import Store
from bisector.vm.definition import domain_prefix, leftovers
from bisector.vm.driver import open_hypervisor
from bisector.vm.image import build_image, kept_images, remove_images

_DOCTOR_EXAMPLES = """\
examples:
  bisector doctor                          with the settings of `start`
  bisector doctor --stack hdd --hdd /dev/sdb1 --run-dir /srv/bisect
  bisector doctor --base-config /boot/config-6.1.0-18-amd64
  bisector doctor --hosts hosts.toml       every host of a fleet, compared
  bisector doctor --json | jq -r '.findings[] | select(.state == "missing").remedy'
exit codes: 0 `bisector start` can begin, even with warnings; 1 it would fail
"""
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
_ROW = "settings"
_NOT_READY = 1
_SHORT = 12


def add(verbs: Verbs) -> None:
    """Register ``doctor``, ``image``, ``cache`` and ``reset``."""
    doctor_ = add_verb(verbs, "doctor", doctor, "json", examples=_DOCTOR_EXAMPLES, disturbs=True)
    add_run_dir(doctor_, "where a run will be kept (default: below $XDG_STATE_HOME)")
    doctor_.add_argument("--hosts", type=Path, metavar="FILE", help="look at the hosts of a fleet; docs/fleet.md")
    add_settings(doctor_)
    image_ = add_verb(verbs, "image", image, examples=_IMAGE_EXAMPLES)
    image_.add_argument("action", metavar="build", choices=("build",), help="build the image, if it is not there yet")
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


def doctor(arguments: argparse.Namespace) -> int:
    """Check everything that `start` needs, and what would make its evidence better."""
    if arguments.hosts is not None:
        return _hosts(arguments)
    try:
        found = effective(arguments)
        check_terms(found.settings.bisect.terms)
    except UserError as error:  # the other rows are shown all the same, for the default settings
        held = options.from_given({}).settings
        row = refusal(_ROW, UserError(f"{error.message} (the other rows are for the default settings)", error.hint))
    else:
        held, given = found.settings, _given(found)
        own = f", and your own: {', '.join(given)}" if given else ""
        row = Finding(_ROW, Grade.OK, f"profile {held.profile}{own}")
    run_dir = (arguments.run_dir or state_home() / "runs").absolute()
    # Each step is noted on standard error: it takes a while, and a script may read standard output.
    findings = [row, *checks.examine(held, run_dir, lambda text: note(f"bisector: {text}"))]
    show(arguments, Examination.of(findings), lambda: show_blocks(finding_blocks(findings)))
    return 0 if ready(findings) else _NOT_READY


def _hosts(arguments: argparse.Namespace) -> int:
    """Make the same checks on every host of a fleet, with the settings that are effective here."""
    if arguments.run_dir is not None:
        raise UserError("--run-dir is a place on this machine, and --hosts looks at others", "leave one of them out")
    listed = hosts.load(arguments.hosts)
    if listed.cluster:
        raise UserError("the hosts of a Dask cluster are not known here", "there: bisector doctor")
    found = effective(arguments, here=False)
    written = options.written_values(found.settings)
    # Hosts do not send letters or notices: those settings are not passed on.
    given = {key: written[key] for key in _given(found) if not key.startswith(("mail.", "notify."))}
    surveyed = status.survey(listed, given)
    document = status.document(surveyed)
    show(arguments, document, lambda: show_blocks(side_by_side(surveyed)))
    return 0 if document.ready else _NOT_READY


def _given(effective: Effective) -> list[str]:
    origins = effective.origins.items()
    return [key for key, origin in origins if not origin.startswith("profile ") and origin not in options.FOLLOWING]


# image, cache and reset


class CacheEntry(JsonObject, frozen=True, kw_only=True):
    """An entry of a cache."""

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
    """The output of ``bisector cache --json``."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    kernels: Annotated[CachedKernels, "kernels"]
    images: Annotated[CachedImages, "guest images"]


def image(arguments: argparse.Namespace) -> int:
    """Build the guest image now, so that a night without network can begin."""
    home = resources.cache_home()
    with locks.using_caches(home), locks.measuring(home / "images", note, locks.TurnPurpose.BUILD):
        built = build_image(resources.vm_images(), home / "images", None, lambda text: write(f"{text}\n"))
    write(f"{built.root}\n")
    return 0


def cache(arguments: argparse.Namespace) -> int:
    """Show the caches; with ``clear``, remove what no run is using."""
    home = resources.cache_home()
    left = before = _caches(home)
    lines = [*_lines(before)]
    if arguments.action == "clear":
        with locks.clearing_caches(home) as nobody_else:
            kept_kernels().clear(spare_used=not nobody_else)
            if nobody_else:
                remove_images(home / "images")
        left = _caches(home)
        sizes = (caches.kernels.size_bytes + caches.images.size_bytes for caches in (before, left))
        lines = [f"{units.size(next(sizes) - next(sizes))} removed"]
        if not nobody_else:
            lines.append("a run is in progress: guest images, and kernels used in the last two hours, were kept")
    show(arguments, left, lambda: write("".join(f"{line}\n" for line in lines)))
    return 0


def _caches(home: Path) -> Caches:
    def time(seconds: float) -> str:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")

    kept, images = kept_kernels(), home / "images"
    kernels = tuple(
        KernelEntry(key=one.key, size_bytes=one.size_bytes, last_used=time(one.last_used), release=one.release or None)
        for one in kept.contents()
    )
    guests = tuple(
        CacheEntry(key=one.key, size_bytes=one.size_bytes, last_used=time(one.last_used)) for one in kept_images(images)
    )
    sizes = (sum(entry.size_bytes for entry in some) for some in (kernels, guests))
    return Caches(
        kernels=CachedKernels(path=kept.root, limit_bytes=KEPT_KERNELS_BYTES, size_bytes=next(sizes), entries=kernels),
        images=CachedImages(path=images, size_bytes=next(sizes), entries=guests),
    )


def _lines(caches: Caches) -> Iterator[str]:
    def line(entry: CacheEntry, what: str) -> str:
        used = datetime.fromisoformat(entry.last_used).astimezone()
        return f"  {used:%Y-%m-%d %H:%M}  {units.size(entry.size_bytes):>9}  {what}"

    kernels, images = caches.kernels, caches.images
    failures = sum(not entry.release for entry in kernels.entries)
    counts = units.plural(len(kernels.entries) - failures, "kernel")
    counts += f", {units.plural(failures, 'source')} known not to build" if failures else ""
    yield f"{kernels.path}: {counts}, {units.size(kernels.size_bytes)} of at most {units.size(kernels.limit_bytes)}"
    for entry in kernels.entries:
        _, _, tree = entry.key.partition(Kernel.KEY_SEPARATOR)
        yield line(entry, (entry.release or "does not build") + (f"  tree {tree[:_SHORT]}" if tree else ""))
    yield f"{images.path}: {units.plural(len(images.entries), 'guest image')}, {units.size(images.size_bytes)}"
    yield from (line(image, image.key[:_SHORT]) for image in images.entries)


def reset(arguments: argparse.Namespace) -> int:
    """Remove everything of a run outside its record; with --delete, the record too."""
    run = run_directory(arguments)
    with run.lock():
        if RunDirectory.is_at(own := run.path / CONFIRMED):
            with (by_host := RunDirectory.open(own)).lock():
                _reset(by_host)
        _reset(run)
        if arguments.delete:
            with our_files(run.path):
                remove_tree(run.path)
    write(f"{run.path} {'removed' if arguments.delete else 'reset; its record stays'}\n")
    return 0


def _reset(run: RunDirectory) -> None:
    process.reap(run.path)
    with Store.open(run.database) as store:
        repository, settings, state = store.bisection().repository, store.settings, store.state()
        by_others = store.by_others
        if (store.is_search or store.plan is not None) and (state is None or state.state is State.RUNNING):
            store.set_state(State.STOPPED, "reset")
    if repository is not None and not by_others:  # an import has nothing outside its record
        # Remove the run's guests, worktrees, disks and build.
        with open_hypervisor(settings.machine.connect, run.path) as hypervisor:
            hypervisor.reap(domain_prefix(run.path))
        if repository.is_dir():
            opened = Repository.open(repository)
            remove_leftovers(opened, run.path)
            release(opened, run.path)
        else:
            note(f"bisector: {repository} is gone, and what was registered there with it")
        disks = leftovers(settings.storage, run.path, domain_prefix(run.path))
        with our_files(run.path):
            for leftover in (run.path / "build", run.path / "worktrees", *run.path.glob("*.qcow2"), *disks):
                remove_tree(leftover)  # only the link is removed: a person made it, and its target is theirs
