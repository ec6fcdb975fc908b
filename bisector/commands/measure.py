"""``test``: one trial of one commit; ``baselines``: the disks of a run alone."""

import argparse
import hashlib
import os
import sys
from pathlib import Path

from bisector.analysis.verdicts import Judging
from bisector.bisect import session
from bisector.commands.arguments import Verbs, add_json, add_quiet, add_repo, add_run_dir, add_verb, run_directory
from bisector.commands.documents import write_json
from bisector.commands.output import warn, write
from bisector.config import Settings, command_line, options
from bisector.core.cell import Cell, Subject
from bisector.core.commit import Commit
from bisector.core.errors import UserError
from bisector.core.events import Planned, TrialJudged
from bisector.core.verdict import Terms, Verdict
from bisector.doctor import checks
from bisector.executor.base import result_of
from bisector.executor.local import local_executor
from bisector.git.repository import Repository
from bisector.host import process
from bisector.host.trees import discard
from bisector.report.display import Display, display_for
from bisector.report.figures import baseline_facts
from bisector.status import document_of, from_record
from bisector.status.view import TrialView
from bisector.store.rundir import RunDirectory, single_commit_home
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest

_EXAMPLES = """\
examples:
  bisector test v6.1                         measure one commit
  bisector test HEAD --threshold 2000 --json
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
    add_run_dir(verb, "where to keep its files (default: below $XDG_STATE_HOME)")
    add_json(verb)
    add_quiet(verb)
    command_line.add_flags(verb)
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
    """One trial of any commit; its files stay, its sources and its build do not."""
    settings = options.load(command_line.flags_from(arguments), arguments.config).settings
    with Repository.open(arguments.repo) as repository:
        commit = repository.resolve(arguments.commit)
        repository.check_kernel_tree(commit)
    run = test_directory(arguments.run_dir, repository)
    face = display_for(sys.stderr if arguments.json else sys.stdout, quiet=arguments.quiet)
    with run.lock(), face as display:
        checks.check(settings, run.path, warn)
        process.reap(run.path)
        view, terms = _one_trial(run, repository.top, settings, commit, display)
        discard(run.path / "build")
    if arguments.json:
        write_json(document_of.tested(view, terms, str(run.path)))
    return _UNTESTABLE if view.verdict is Verdict.SKIP else 0


def _one_trial(
    run: RunDirectory, repository: Path, settings: Settings, commit: Commit, display: Display
) -> tuple[TrialView, Terms]:
    n = len(list((run.path / "trials").glob("*"))) + 1
    with (
        Repository.open(repository, run_marker=run.path) as marked,
        local_executor(settings, run.path, marked, display) as executor,
    ):
        display(Planned(n, commit, "test", 0, 0))
        trial = result_of(executor, TrialRequest(n, Cell(Subject(commit), settings.setup), {}), display)
    judging = Judging(settings, ((n, trial),))
    ((_, _, judgement),) = judging.judged_trials()
    display(TrialJudged(n, trial, judgement.verdict, judgement.why, judging.terms, judging.objective))
    judging.check_metric(commit.sha)
    value = judging.value(trial)
    return TrialView(n, trial, judgement.verdict, judgement.why, value=value), judging.terms


def test_directory(named: Path | None, repository: Repository) -> RunDirectory:
    """One for each repository: its trials are numbered, and a killed one is cleaned up after by the next."""
    digest = hashlib.sha256(os.fsencode(repository.common_dir)).hexdigest()[:12]
    run = RunDirectory((named or single_commit_home() / digest).absolute())
    if run.database.exists():
        raise UserError(
            f"{run.path} holds a bisection, and this trial is none of its trials", "choose another --run-dir"
        )
    run.path.mkdir(parents=True, exist_ok=True)
    return run
