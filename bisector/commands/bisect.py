"""``start`` and ``resume``: the bisection of a range."""

import argparse
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bisector import options, preflight, process, standing
from bisector.bisection import Bisection, Outcome
from bisector.commands.arguments import Verbs, add_quiet, add_repo, add_run_dir, add_verb, run_directory
from bisector.errors import BisectorError, EndsDoNotReproduce, Interrupted, UserError
from bisector.fleet.local import local_engine
from bisector.history.bisect import Bisect
from bisector.history.ranges import Range, check_range
from bisector.history.repository import Repository
from bisector.history.terms import check_terms
from bisector.history.trees import Trees
from bisector.kinship import Kinship
from bisector.model import State
from bisector.record import inputs
from bisector.record.artifacts import remove_unfinished
from bisector.record.index import Index, IndexEntry
from bisector.record.rows import BisectionRow
from bisector.record.rundir import RunDirectory, run_name
from bisector.record.store import Store
from bisector.report.display import Display, display_for
from bisector.settings import Settings

_START_EXAMPLES = """\
examples:
  bisector start v4.11 v4.13-rc1
  bisector start v4.11 v4.13-rc1 --profile article --ssd /dev/nvme0n1p4 --hdd /dev/sdb1
  bisector start v6.1 v6.2 --regression --terms fast:slow
  bisector start v4.11 v4.13-rc1 --skip 0123abcd --skip v4.12-rc1..4567cdef -- drivers/md
"""
_EXIT_CODES = {State.FOUND: 0, State.NARROWED: 3}


def add(verbs: Verbs) -> None:
    """Register ``start`` and ``resume``."""
    start_ = add_verb(verbs, "start", start, "bisect a range", examples=_START_EXAMPLES)
    start_.add_argument("old", metavar="OLD", help="a commit on the old side (broken)")
    start_.add_argument("new", metavar="NEW", help="a commit on the new side (fixed)")
    start_.add_argument("paths", metavar="PATH", nargs="*", help="after --: only commits that touch these")
    start_.add_argument("--skip", action="append", default=[], metavar="REV", help="known to be untestable; repeatable")
    add_repo(start_)
    add_run_dir(start_, "where the run is kept (default: under XDG state)")
    add_quiet(start_)
    options.add_flags(start_)
    resume_ = add_verb(verbs, "resume", resume, "go on with a run; nothing is measured twice")
    add_run_dir(resume_)
    add_quiet(resume_)


@dataclass(frozen=True, slots=True)
class _Work:
    """A run that is ours, with what it works on."""

    run: RunDirectory
    store: Store
    repository: Repository
    wanted: Range
    settings: Settings


def start(arguments: argparse.Namespace) -> int:
    """Check everything, record what is asked, bisect."""
    settings = options.load(options.flags_from(arguments), arguments.config).settings
    check_terms(settings.bisect.terms)
    with Repository.open(arguments.repo) as repository:
        wanted = _wanted(repository, arguments, settings)
        skips = tuple(sha for expression in arguments.skip for sha in repository.expand(expression))
    run = RunDirectory.create(arguments.run_dir, run_name(arguments.old, arguments.new))
    with run.lock(), _gone_if_nothing_began(run):
        preflight.check(settings, run.path)
        settings = inputs.keep(settings, run.path)
        asked = _asked(arguments, repository.top, wanted, skips, settings)
        with Store.create(run.database, asked) as store:
            entry = IndexEntry(str(run.path), str(asked.repository), arguments.old, arguments.new, asked.created_at)
            Index().add(entry)
            return _bisect(run, store, quiet=arguments.quiet)


def _wanted(repository: Repository, arguments: argparse.Namespace, settings: Settings) -> Range:
    """The range, checked in every way that needs nothing built."""
    old, new = repository.resolve(arguments.old), repository.resolve(arguments.new)
    for end in (old, new):
        repository.check_kernel_tree(end)
    wanted = Range(old, new, settings.bisect.first_parent, tuple(arguments.paths))
    check_range(repository, wanted)
    return wanted


@contextmanager
def _gone_if_nothing_began(run: RunDirectory) -> Iterator[None]:
    """A start that is refused leaves no empty run directory behind."""
    try:
        yield
    except BisectorError:
        if not run.database.exists():
            shutil.rmtree(run.path, ignore_errors=True)
        raise


def _asked(
    arguments: argparse.Namespace, repository: Path, wanted: Range, skips: tuple[str, ...], settings: Settings
) -> BisectionRow:
    return BisectionRow(
        repository=repository,
        old_rev=arguments.old,
        old_sha=wanted.old.sha,
        new_rev=arguments.new,
        new_sha=wanted.new.sha,
        term_old=settings.bisect.terms.old,
        term_new=settings.bisect.terms.new,
        direction=settings.bisect.direction,
        paths=wanted.paths,
        first_parent=wanted.first_parent,
        skips=skips,
        settings=options.to_json(settings),
        tool_version=version("bisector"),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def resume(arguments: argparse.Namespace) -> int:
    """Go on with a run where its facts end."""
    run = run_directory(arguments)
    with run.lock(), Store.open(run.database) as store:
        if store.bisection().imported:
            raise UserError(f"{run.path} was imported, and nothing is measured in it", "bisector table shows it")
        last = store.state()
        if last is not None and last.state in _EXIT_CODES:
            return _show_end(run, store, arguments.quiet)
        return _bisect(run, store, quiet=arguments.quiet)


def _bisect(run: RunDirectory, store: Store, *, quiet: bool) -> int:
    """Clean up after a killed process of this run, then go on to an end of some kind, and record which."""
    asked = store.bisection()
    if asked.repository is None:
        raise RuntimeError("a bisection without a repository")
    settings = options.from_json(asked.settings)
    process.reap(run.path)
    remove_unfinished(run.path, [artifact for _, trial in store.trials() for artifact in trial.artifacts])
    store.set_state(State.RUNNING)
    with display_for(sys.stdout, settings.bisect.terms, quiet=quiet) as display:
        with _ends_recorded(run, store), Repository.open(asked.repository, run_marker=run.path) as repository:
            old, new = repository.resolve(asked.old_sha), repository.resolve(asked.new_sha)
            wanted = Range(old, new, asked.first_parent, asked.paths)
            outcome = _loop(_Work(run, store, repository, wanted, settings), display)
            store.set_state(outcome.state, outcome.message)
        shutil.rmtree(run.path / "build", ignore_errors=True)
        display.conclude(standing.view(run, store))
    return _EXIT_CODES[outcome.state]


def _loop(work: _Work, display: Display) -> Outcome:
    run, store, settings = work.run, work.store, work.settings
    with ExitStack() as stack:
        engine = stack.enter_context(local_engine(settings, run.path, work.repository, display))
        bisect = stack.enter_context(Bisect(work.repository, run.path, work.wanted, settings.bisect.terms))
        skips = store.bisection().skips
        kin = Kinship(Trees(work.repository), engine.bench.builder, work.wanted.first_parent)
        return Bisection(work.wanted, skips, settings, run.path, store, bisect, engine, display, kin).run()


@contextmanager
def _ends_recorded(run: RunDirectory, store: Store) -> Iterator[None]:
    """Whatever stops a bisection is written down, and the person is told how to go on."""
    resume_line = f"go on with: {standing.resume_command(run.path)}"
    try:
        yield
    except EndsDoNotReproduce as error:
        store.set_state(State.FAILED, str(error))
        raise
    except KeyboardInterrupt as error:
        store.set_state(State.STOPPED, "interrupted")
        raise Interrupted("interrupted; everything measured is kept", resume_line) from error
    except BisectorError as error:
        store.set_state(State.STOPPED, str(error))
        error.hint = "\n  ".join(filter(None, (error.hint, resume_line)))
        raise


def _show_end(run: RunDirectory, store: Store, quiet: bool) -> int:
    view = standing.view(run, store)
    with display_for(sys.stdout, view.terms, quiet=quiet) as display:
        display.conclude(view)
    return _EXIT_CODES.get(view.state, 1)
