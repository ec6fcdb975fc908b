"""``image`` and ``reset``: what is made before a run, and removed after one."""

import argparse
import shutil
from contextlib import closing
from pathlib import Path

from bisector.commands.arguments import Verbs, add_run_dir, add_verb, run_directory
from bisector.commands.output import note, write
from bisector.config import Settings, options
from bisector.core import resources
from bisector.core.verdict import State
from bisector.git.repository import Repository
from bisector.git.worktrees import release, remove_leftovers
from bisector.host import measuring_lock, process, shared_caches
from bisector.host.files import our_files
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from bisector.vm.connection import open_hypervisor
from bisector.vm.disks import leftovers
from bisector.vm.image import build_image
from bisector.vm.machine import domain_prefix


def add(verbs: Verbs) -> None:
    """Register ``image`` and ``reset``."""
    image_ = add_verb(verbs, "image", image)
    image_.add_argument("action", choices=("build",), help="build the image, if it is not there yet")
    reset_ = add_verb(verbs, "reset", reset)
    add_run_dir(reset_)
    reset_.add_argument("--delete", action="store_true", help="also remove its record and all its files")


def image(arguments: argparse.Namespace) -> int:
    """Build the guest image now, so that a night without network can begin."""
    home = resources.cache_home()
    with shared_caches.in_use(home), measuring_lock.measuring(home / "images", note):
        built = build_image(resources.vm_images(), home / "images", None, lambda text: write(f"{text}\n"))
    write(f"{built.root}\n")
    return 0


def reset(arguments: argparse.Namespace) -> int:
    """Leave nothing of a run outside its record; with --delete nothing at all."""
    run = run_directory(arguments)
    with run.lock():
        process.reap(run.path)
        with closing(Store.open(run.database)) as store:
            asked = store.bisection()
            state = store.state()
            if not asked.imported and (state is None or state.state is State.RUNNING):
                store.set_state(State.STOPPED, "reset")
        if asked.repository is not None and not asked.imported:  # an import has nothing outside its record
            _remove_all(run, asked.repository, options.from_json(asked.settings))
        if arguments.delete:
            with our_files(run.path):
                shutil.rmtree(run.path)
    write(f"{run.path} {'removed' if arguments.delete else 'reset; its record stays'}\n")
    return 0


def _remove_all(run: RunDirectory, repository: Path, settings: Settings) -> None:
    """The guests, worktrees, disks and the build of a run."""
    with open_hypervisor(settings.machine.connect, run.path) as hypervisor:
        hypervisor.reap(domain_prefix(run.path))
    with Repository.open(repository) as opened:
        remove_leftovers(opened, run.path)
        release(opened, run.path)
    disks = leftovers(settings.storage, run.path, domain_prefix(run.path))
    with our_files(run.path):
        for leftover in (run.path / "build", *run.path.glob("*.qcow2"), *disks):
            # Of a link what it leads to is the person's, who made it.
            whole = leftover.is_dir() and not leftover.is_symlink()
            shutil.rmtree(leftover) if whole else leftover.unlink(missing_ok=True)
