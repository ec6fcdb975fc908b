"""The life of a run around its loop: begun or gone, cleaned up after a kill, given time, ended, let go."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bisector.core import units
from bisector.core.errors import BisectorError, EndsDoNotReproduce, InfraError, Interrupted, UserError
from bisector.core.events import Listener, Note
from bisector.core.objective import MetricAbsent
from bisector.core.verdict import State
from bisector.git.repository import Repository
from bisector.git.source_tree import release, remove_leftovers
from bisector.host import process
from bisector.host.files import discard, our_files, remove_abandoned
from bisector.status import from_record
from bisector.store.facts import Budget, StateChange
from bisector.store.log import now
from bisector.store.rundir import RunDirectory, remove_unfinished, run_name
from bisector.store.store import Store

BUILD = "build"  # the directory of a run in which its kernels are built, as long as it goes on


@contextmanager
def new_run(run_dir: Path | None, old: str, new: str) -> Iterator[RunDirectory]:
    """Make a run directory, and lock it until the context exits; it is removed if an error comes before its database.

    Without ``run_dir``, it gets a name from what is compared.
    """
    run = RunDirectory.create(run_dir, run_name(old, new))
    with run.lock():
        try:
            remove_abandoned(run.path)
            yield run
        except BisectorError:
            if not run.database.exists():
                shutil.rmtree(run.path, ignore_errors=True)
            raise


def give_time(store: Store, budget_s: float) -> None:
    """Give a run ``budget_s`` seconds from now on, whatever its budget was; all budgets stay on record.

    The state "stopped" is recorded in the same transaction, so that a later process goes on even if this one is killed.
    """
    more = StateChange(now(), State.STOPPED, f"given {units.duration(budget_s)} more", os.getpid())
    store.add(Budget(budget_s, store.spent_s()), more)


def remove_build(run_dir: Path, repository: Path) -> None:
    """Remove the build and the sources of a run, some 80,000 files; raises as :meth:`Repository.open`."""
    discard(run_dir / BUILD)
    with our_files(run_dir):
        remove_leftovers(Repository.open(repository, run_marker=run_dir), run_dir)


def let_go(run: RunDirectory, store: Store, tell: Listener, *, ended: bool = True) -> None:
    """Remove the build and the sources of a run and, if it has ``ended``, the git references that keep its commits.

    The answer is told before, since this takes minutes on a busy disk. A failure is only told, too.
    """
    if (path := store.bisection().repository) is None:
        return
    try:
        with suppress(UserError):  # the repository may have been deleted
            remove_build(run.path, path)
            if ended:
                release(Repository.open(path), run.path)
    except InfraError as error:
        again = from_record.run_command("resume", run.path)
        advice = "; ".join(filter(None, (error.hint, f"then {again} removes the rest")))
        tell(Note(f"this run has left something behind: {error} ({advice})"))


@contextmanager
def ends_recorded(run: RunDirectory, store: Store) -> Iterator[None]:
    """Record the error that stops a bisection, and add to it how to go on; an interrupt is :class:`Interrupted`."""
    resume = from_record.run_command("resume", run.path)
    try:
        with our_files(run.path):
            yield
    except (EndsDoNotReproduce, MetricAbsent) as error:  # a resumed run would fail alike
        store.set_state(State.FAILED, str(error))
        raise
    except KeyboardInterrupt as error:
        store.set_state(State.STOPPED, "interrupted")
        raise Interrupted("interrupted; everything measured is kept", f"go on with: {resume}") from error
    except BisectorError as error:
        store.set_state(State.STOPPED, str(error))
        without = f"or without that commit: {resume} --skip {error.skippable[:12]}" if error.skippable else ""
        error.hint = "\n  ".join(filter(None, (error.hint, f"go on with: {resume}", without)))
        raise


def clean_up(run: RunDirectory, store: Store) -> None:
    """Clean up after a killed process of this run: end what it left running, remove files that are not on record."""
    process.reap(run.path)
    with our_files(run.path):
        remove_unfinished(run.path, store.artifacts())
