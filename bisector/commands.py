"""What each command does, from parsed arguments to an exit code."""

import argparse
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from bisector import options, preflight, process, resources, standing
from bisector.bisection import GIT_LOG, Bisection, Outcome
from bisector.errors import BisectorError, EndsDoNotReproduce, Interrupted, UserError
from bisector.events import Planned, TrialJudged
from bisector.fleet.local import local_engine
from bisector.history.bisect import Bisect
from bisector.history.ranges import Range, check_range
from bisector.history.repository import Repository
from bisector.history.terms import check_terms
from bisector.history.worktrees import remove_leftovers
from bisector.judging import Judging
from bisector.machine.domain import open_hypervisor
from bisector.machine.image import build_image
from bisector.machine.vm import domain_prefix
from bisector.model import Commit, State, Verdict
from bisector.record import inputs
from bisector.record.artifacts import remove_unfinished
from bisector.record.index import Index, IndexEntry
from bisector.record.rows import BisectionRow
from bisector.record.rundir import RunDirectory, run_name, state_home
from bisector.record.store import Store
from bisector.report.display import Display, display_for
from bisector.report.progress import print_report
from bisector.report.status import TrialView, to_json, trial_to_json
from bisector.report.summary import footer_lines
from bisector.report.table import report_lines
from bisector.report.text import as_text
from bisector.settings import Settings
from bisector.trial import TrialRequest

_WIDTH = 120
_EXIT_CODES = {State.FOUND: 0, State.NARROWED: 3}
_UNTESTABLE = 3


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
    run = _run_directory(arguments)
    with run.lock(), Store.open(run.database) as store:
        last = store.state()
        if last is not None and last.state in _EXIT_CODES:
            return _show_end(run, store, arguments.quiet)
        return _bisect(run, store, quiet=arguments.quiet)


def _bisect(run: RunDirectory, store: Store, *, quiet: bool) -> int:
    """Clean up after a killed process of this run, then go on to an end of some kind, and record which."""
    asked = store.bisection()
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
        return Bisection(work.wanted, skips, settings, run.path, store, bisect, engine, display).run()


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


def status(arguments: argparse.Namespace) -> int:
    """How a run stands, also while it runs."""
    run = _run_directory(arguments)
    with Store.open(run.database, readonly=True) as store:
        view = standing.view(run, store)
    if arguments.json:
        _print_json(to_json(view))
    else:
        _write(as_text((*footer_lines(view, _width()),)))
    return 0


def table(arguments: argparse.Namespace) -> int:
    """The verdict table of a run, also while it runs."""
    run = _run_directory(arguments)
    with Store.open(run.database, readonly=True) as store:
        view = standing.view(run, store)
    if arguments.json:
        _print_json({"schema": to_json(view)["schema"], "trials": to_json(view)["trials"]})
    elif sys.stdout.isatty():
        print_report(Console(), view)
    else:
        _write(as_text(report_lines(view, footer_lines(view, _WIDTH), _WIDTH)))
    return 0


def log(arguments: argparse.Namespace) -> int:
    """Git's own log of the bisection, as of the last verdict."""
    run = _run_directory(arguments)
    path = run.path / GIT_LOG
    if not path.is_file():
        raise UserError("git knows nothing yet: both ends are measured first", "bisector status")
    _write(path.read_text(encoding="utf-8"))
    return 0


def test(arguments: argparse.Namespace) -> int:
    """One trial of any commit; its files stay, its sources and its build do not."""
    settings = options.load(options.flags_from(arguments), arguments.config).settings
    with Repository.open(arguments.repo) as repository:
        commit = repository.resolve(arguments.commit)
        repository.check_kernel_tree(commit)
    run = _test_directory(arguments.run_dir, repository)
    face = display_for(sys.stderr if arguments.json else sys.stdout, settings.bisect.terms, quiet=arguments.quiet)
    with run.lock(), face as display:
        preflight.check(settings, run.path)
        process.reap(run.path)
        view = _one_trial(run, repository.top, settings, commit, display)
        shutil.rmtree(run.path / "build", ignore_errors=True)
    if arguments.json:
        _print_json(trial_to_json(view, settings.bisect.terms) | {"run_dir": str(run.path)})
    return _UNTESTABLE if view.verdict is Verdict.SKIP else 0


def _one_trial(run: RunDirectory, repository: Path, settings: Settings, commit: Commit, display: Display) -> TrialView:
    n = len(list((run.path / "trials").glob("*"))) + 1
    with (
        Repository.open(repository, run_marker=run.path) as marked,
        local_engine(settings, run.path, marked, display) as engine,
    ):
        display(Planned(n, commit, "test", 0, 0))
        trial = engine.measure(TrialRequest(n, commit, {}))
    ((_, _, judgement),) = Judging(settings, ((n, trial),)).judged_trials()
    display(TrialJudged(n, trial, judgement.verdict, judgement.why))
    return TrialView(n, trial, judgement.verdict, judgement.why)


def settings(arguments: argparse.Namespace) -> int:
    """Every setting with its value and origin."""
    effective = options.load(options.flags_from(arguments), arguments.config)
    if arguments.toml:
        _write(options.to_toml(effective))
        return 0
    rows = options.describe(effective)
    widths = [
        max(len(text) for text in column) for column in zip(*((r.key, r.value, r.origin) for r in rows), strict=True)
    ]
    for row in rows:
        cells = (row.key, row.value, row.origin)
        _write("  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)), row.help]) + "\n")
    return 0


def image(arguments: argparse.Namespace) -> int:
    """Build the guest image now, so that a night without network can begin."""
    built = build_image(
        resources.vm_images(), resources.cache_home() / "images", None, lambda text: _write(f"{text}\n")
    )
    _write(f"{built.root}\n")
    return 0


def reset(arguments: argparse.Namespace) -> int:
    """Leave nothing of a run outside its record; with --delete nothing at all."""
    run = _run_directory(arguments)
    with run.lock():
        process.reap(run.path)
        with closing(Store.open(run.database)) as store:
            asked = store.bisection()
            settings = options.from_json(asked.settings)
            state = store.state()
            if state is None or state.state is State.RUNNING:
                store.set_state(State.STOPPED, "reset")
        with open_hypervisor(settings.machine.connect, run.path) as hypervisor:
            hypervisor.reap(domain_prefix(run.path))
        with Repository.open(asked.repository) as repository:
            remove_leftovers(repository, run.path)
        for leftover in (run.path / "build", *run.path.glob("*.img"), *run.path.glob("*.qcow2")):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink(missing_ok=True)
        if arguments.delete:
            shutil.rmtree(run.path)
    _write(f"{run.path} {'removed' if arguments.delete else 'reset; its record stays'}\n")
    return 0


def _run_directory(arguments: argparse.Namespace) -> RunDirectory:
    path = arguments.run_dir or Index().latest()
    if path is None:
        raise UserError("there is no run yet", "bisector start OLD NEW")
    return RunDirectory.open(path)


def _test_directory(named: Path | None, repository: Repository) -> RunDirectory:
    """One for each repository: its trials are numbered, and a killed one is cleaned up after by the next."""
    digest = hashlib.sha256(os.fsencode(repository.common_dir)).hexdigest()[:12]
    run = RunDirectory((named or state_home() / "tests" / digest).absolute())
    if run.database.exists():
        raise UserError(f"{run.path} holds a bisection, whose trials are numbered", "give `test` another --run-dir")
    run.path.mkdir(parents=True, exist_ok=True)
    return run


def _print_json(document: object) -> None:
    _write(json.dumps(document, indent=2) + "\n")


def _write(text: str) -> None:
    sys.stdout.write(text)


def _width() -> int:
    return shutil.get_terminal_size((_WIDTH, 24)).columns
