"""``import``: trials that others measured, recorded in a run directory of their own."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bisector.commands.arguments import (
    Verbs,
    add_run_dir,
    add_settings,
    add_verb,
    given_settings,
    known_run,
    repeatable,
)
from bisector.commands.output import show_blocks, write
from bisector.config import RunPart, Settings, options
from bisector.core import units
from bisector.core.errors import UserError
from bisector.core.trial import Trial
from bisector.core.verdict import Direction, SideWords, Verdict
from bisector.git.bisect import check_terms
from bisector.git.repository import Repository
from bisector.host.files import our_files
from bisector.imported import trials
from bisector.imported.trials import COLUMNS, ImportedTrial, ImportEntry
from bisector.report.sections import answer
from bisector.status import from_record
from bisector.store.facts import RunHeader
from bisector.store.rundir import Index, IndexEntry, RunDirectory, remove_unfinished, run_name
from bisector.store.store import Store

_EXAMPLES = f"""\
examples:
  bisector import --index index.csv --threshold 20000 --expect improvement
  bisector import --index index.csv --only-set lvmcache-bisect-2017 --repo ~/src/linux
  bisector import empty.txt full.txt --run empty --run full --commit 6cf4cc8f8b3b
columns of an index (CSV, one row for each file or for each figure; only "file" is required):
{"".join(f"  {name:12} {meaning}" + chr(10) for name, meaning in COLUMNS.items())}\
A file is the text output of fio 1.59 to 3.x, its JSON, or an IOPS log (NAME_iops.N.log) of the same
run.
"""
_SHORT = 7  # the least number of digits that git shows of a hash
_LISTED = 4
_SETTINGS = ("bisect.metric", "bisect.over", "bisect.threshold", "bisect.expect", "bisect.terms")


def add(verbs: Verbs) -> None:
    """Register ``import``."""
    verb = add_verb(verbs, "import", import_, "quiet", examples=_EXAMPLES)
    what = "the files of one trial, in the order of its runs"
    verb.add_argument("files", metavar="FILE", nargs="*", type=Path, help=what)
    what = "instead of FILE: a table that says what each file is of"
    verb.add_argument("--index", type=Path, metavar="CSV", help=what)
    verb.add_argument("--only-set", metavar="NAME", help="only the trials of this set of the index")
    verb.add_argument("--verdicts", type=Path, metavar="CSV", help="a table with a verdict for each trial of the index")
    verb.add_argument("--run", **repeatable("NAME", "the run of each file, in order"))
    for flag, metavar, meaning in (
        ("--commit", "REV", "the commit that was measured"),
        ("--kernel", "NAME", "the name of its kernel"),
        ("--verdict", "TERM", "the verdict of those who measured"),
        ("--old", "REV", "the old end (default: the first trial with that verdict)"),
        ("--new", "REV", "the new end (default: the first trial with that verdict)"),
    ):
        verb.add_argument(flag, default="", metavar=metavar, help=meaning)
    verb.add_argument("--repo", type=Path, metavar="DIR", help="a repository with these commits (default: none)")
    add_run_dir(verb, "a new directory, or an import to add to (default: new, below $XDG_STATE_HOME)")
    add_settings(verb, _SETTINGS)


def import_(arguments: argparse.Namespace) -> int:
    """Read everything, then record all of it at once; trials that are on record already are left out."""
    path: Path | None = arguments.run_dir and known_run(arguments.run_dir)
    if path is None or not RunDirectory.is_at(path):
        return _into_new(arguments)
    run = RunDirectory.open(path)
    with Store.open(run.database, readonly=True) as store:
        if not store.by_others:
            raise UserError(
                f"{run.path} holds what was measured here; results of others cannot be added to it",
                "choose another --run-dir for the import",
            )
    with run.lock(), Store.open(run.database) as store:
        return _add(arguments, run, store)


def _into_new(arguments: argparse.Namespace) -> int:
    """Create a new run with the imported trials; everything is read and checked before anything is created."""
    # Runs are judged whole: their steady part is found in logs, which others may not have kept.
    whole = options.Given(RunPart.WHOLE.value, "import")
    settings = options.load({"bisect.part": whole, **given_settings(arguments)}, arguments.config).settings
    check_terms(settings.bisect.terms)
    terms = _terms(arguments, settings)
    settings = replace(settings, bisect=replace(settings.bisect, terms=terms))
    found = _found(arguments, arguments.repo, terms or SideWords.usual(None))
    trials.check_verdicts((one.where, one.trial) for one in found)
    repository = None if arguments.repo is None else _top(arguments.repo)
    old = (arguments.old, _end(arguments.old, "--old", found, repository))
    new = (arguments.new, _end(arguments.new, "--new", found, repository))
    asked = RunHeader.of(settings, repository, old=old, new=new)
    name = run_name("import", arguments.only_set or (arguments.index or arguments.files[0]).stem)
    run = RunDirectory.create(arguments.run_dir, name)
    with run.lock(), Store.create(run.database, asked, _kept(run, found, 1)) as store:
        remove_unfinished(run.path, store.artifacts())
        Index().add(
            IndexEntry(str(run.path), str(asked.repository or ""), asked.old_rev, asked.new_rev, asked.created_at)
        )
        return _show(arguments, run, store, found, 0)


def _add(arguments: argparse.Namespace, run: RunDirectory, store: Store) -> int:
    """Add trials to an import; its terms, threshold and ends stay as they are."""
    asked = store.bisection()
    if given_settings(arguments) or arguments.old or arguments.new:
        raise UserError(f"{run.path} has its terms, threshold and ends already", "import into another --run-dir")
    if arguments.repo is not None and asked.repository != _top(arguments.repo):
        raise UserError(f"{run.path} was imported with {asked.repository or 'no repository'}")
    terms = _terms(arguments, store.settings)
    found = _found(arguments, asked.repository, terms or SideWords.usual(None))
    recorded = (*store.trials(), *store.baselines())
    known = {artifact.sha256: f"trial {n}" for n, trial in recorded for artifact in trial.artifacts}
    new = trials.unknown(found, known)
    told = [(f"trial {n} of {run.path}", trial) for n, trial in recorded]
    trials.check_verdicts([*told, *((one.where, one.trial) for one in new)])
    # Copy the files, then add all trials in one transaction. What a killed import left is removed.
    remove_unfinished(run.path, store.artifacts())
    store.add_trials(_kept(run, new, store.next_n))
    return _show(arguments, run, store, new, len(found) - len(new))


def _top(path: Path) -> Path:
    return Repository.open(path).top


def _terms(arguments: argparse.Namespace, settings: Settings) -> SideWords | None:
    """The terms for the two sides: the chosen ones, else the usual terms that the verdicts are given in, if any are."""
    if settings.bisect.terms is not None:
        return settings.bisect.terms
    unknown = []
    for terms in map(SideWords.usual, (*Direction, None)):
        try:
            said = any(entry.verdict in (Verdict.OLD, Verdict.NEW) for entry in _entries(arguments, terms))
        except trials.UnknownWord as error:
            unknown.append(error)
        else:
            return terms if said else None
    raise unknown[0]


def _found(arguments: argparse.Namespace, place: Path | None, terms: SideWords) -> tuple[ImportedTrial, ...]:
    entries = _entries(arguments, terms)
    if place is None:
        return trials.find(entries, None)
    return trials.find(entries, Repository.open(place))


def _entries(arguments: argparse.Namespace, terms: SideWords) -> tuple[ImportEntry, ...]:
    one_by_one = {name: getattr(arguments, name) for name in ("files", "commit", "kernel", "run", "verdict")}
    of_an_index = {"--only-set": arguments.only_set, "--verdicts": arguments.verdicts}
    if arguments.index is not None:
        if given := [name for name, value in one_by_one.items() if value]:
            what = "FILE" if given[0] == "files" else f"--{given[0]}"
            raise UserError(
                f"--index and {what} do not go together", "the index names the files and says what they are of"
            )
        return trials.entries(arguments.index, terms, verdicts=arguments.verdicts, only=arguments.only_set)
    if given := [name for name, value in of_an_index.items() if value is not None]:
        raise UserError(f"{given[0]} goes with --index")
    return (
        trials.entry(
            arguments.files,
            arguments.run,
            commit=arguments.commit,
            kernel=arguments.kernel,
            verdict_=trials.verdict(arguments.verdict, terms, "--verdict"),
        ),
    )


def _end(rev: str, flag: str, found: Sequence[ImportedTrial], place: Path | None) -> str:
    """The hash, or the name, of a given end; refused if it has no trial, since the threshold comes from both ends."""
    if not rev:
        return ""
    names = list(dict.fromkeys(one.trial.commit.sha for one in found if not one.trial.setup.is_told))
    if place is not None:
        sha = Repository.open(place).resolve(rev).sha
    else:
        sha = next((name for name in names if name == rev or (len(rev) >= _SHORT and name.startswith(rev))), rev)
    if sha not in names:
        raise UserError(f"{flag} {rev}: no trial is of this commit", f"trials are of {', '.join(names[:_LISTED])}, …")
    return sha


def _kept(run: RunDirectory, found: Sequence[ImportedTrial], first: int) -> list[Trial]:
    with our_files(run.path):
        return [trials.keep(one, n, run.path) for n, one in enumerate(found, first)]


def _show(
    arguments: argparse.Namespace, run: RunDirectory, store: Store, new: Sequence[ImportedTrial], known: int
) -> int:
    view = from_record.view(run, store)
    if not arguments.quiet:
        baselines = sum(one.trial.setup.is_told for one in new)
        beside = f" and {units.plural(baselines, 'baseline')}" if baselines else ""
        there = f", {units.plural(known, 'trial')} imported before" if known else ""
        write(f"{units.plural(len(new) - baselines, 'trial')}{beside} imported into {run.path}{there}\n\n")
    show_blocks([answer(view)])
    return 0
