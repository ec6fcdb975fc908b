"""``test``: one trial of one commit; ``baselines``: the disks of a run alone."""

import argparse
import hashlib
import os
import shlex
import sys
from pathlib import Path

from bisector.bisect import session
from bisector.bisect.session import here
from bisector.bisect.single import Single, settings_for
from bisector.commands.arguments import (
    Verbs,
    add_json,
    add_quiet,
    add_repo,
    add_run_dir,
    add_settings,
    add_verb,
    given_settings,
    run_directory,
)
from bisector.commands.documents import write_json
from bisector.commands.output import warn, write
from bisector.config import options
from bisector.core.verdict import Verdict
from bisector.doctor import checks
from bisector.git.repository import Repository
from bisector.host import process
from bisector.host.files import discard
from bisector.report.display import display_for
from bisector.report.figures import baseline_facts
from bisector.status import document_of, from_record
from bisector.store.run_files import fingerprint, keep_inputs
from bisector.store.rundir import RunDirectory, single_commit_home
from bisector.store.store import Store

_EXAMPLES = """\
examples:
  bisector test v6.1                         measure one commit
  bisector test HEAD --threshold 2000 --json
  bisector test HEAD --run-dir RUN           one more commit beside those of RUN: bisector table --run-dir RUN
exit codes: 0 measured; 3 the kernel cannot be judged; others as in `bisector --help`
"""
_BASELINES_EXAMPLES = """\
examples:
  bisector baselines                         the SSD and the HDD of the newest run, without a cache
  bisector baselines --run-dir RUN --json
For each disk it boots the kernel of the run's new end and runs the job once; a baseline on record is only shown.
"""
_UNTESTABLE = 3


def add(verbs: Verbs) -> None:
    """Register ``test``."""
    verb = add_verb(verbs, "test", test, examples=_EXAMPLES)
    verb.add_argument("commit", metavar="COMMIT")
    add_repo(verb)
    add_run_dir(verb, "where to keep its trial and files, with those of others (default: below $XDG_STATE_HOME)")
    add_json(verb)
    add_quiet(verb)
    add_settings(verb)
    disks = add_verb(
        verbs,
        "baselines",
        baselines,
        examples=_BASELINES_EXAMPLES,
    )
    add_run_dir(disks)
    add_json(disks)
    add_quiet(disks)


def baselines(arguments: argparse.Namespace) -> int:
    """Measure what is not on record yet, and show all of it."""
    run = run_directory(arguments)
    with run.lock(), Store.open(run.database) as store:
        with display_for(sys.stderr if arguments.json else sys.stdout, quiet=arguments.quiet) as display:
            session.measure_baselines(run, store, display)
        view = from_record.view(run, store)
    if arguments.json:
        write_json(document_of.baselines(view))
    else:
        write("".join(f"{name:10}{text}\n" for name, text in baseline_facts(view.baselines, view.objective)))
    return 0


def test(arguments: argparse.Namespace) -> int:
    """One trial of any commit, on record with its files; its sources and its build do not stay."""
    flags = given_settings(arguments)
    settings = options.load(flags, arguments.config).settings
    with Repository.open(arguments.repo) as repository:
        commit = repository.resolve(arguments.commit)
        repository.check_kernel_tree(commit)
        path = arguments.run_dir or single_directory(repository, fingerprint(settings))
        run = RunDirectory.open(path) if RunDirectory.is_at(path) else RunDirectory.create(path, "")
        face = display_for(sys.stderr if arguments.json else sys.stdout, quiet=arguments.quiet)
        with run.lock(), face as display:
            settings = settings_for(run, repository, settings, given=bool(flags or arguments.config))
            checks.check(settings, run.path, warn)
            process.reap(run.path)
            if not run.database.exists():
                settings = keep_inputs(settings, run.path)
            with Single.open(run, repository, settings) as single:
                view, judging = single.measure(commit, display, here)
            discard(run.path / "build")
    if arguments.json:
        write_json(document_of.tested(view, judging.terms, str(run.path)))
    elif not arguments.quiet:
        write(f"\nall trials there: bisector table --run-dir {shlex.quote(str(run.path))}\n")
    return _UNTESTABLE if view.verdict is Verdict.SKIP else 0


def single_directory(repository: Repository, fingerprint: str = "") -> Path:
    """One for each repository and all that a trial depends on: a killed one is cleaned up after by the next."""
    digest = hashlib.sha256(os.fsencode(repository.common_dir) + fingerprint.encode()).hexdigest()[:12]
    return single_commit_home() / digest
