"""``start``, ``resume`` and ``next-step`` bisect a range, ``test`` measures a commit, ``baselines`` single disks."""

import argparse
import shlex
import sys
from pathlib import Path

from bisector.bisect import session
from bisector.bisect.session import next_step
from bisector.campaign import life, single
from bisector.campaign.equipment import MeasurerFactory
from bisector.commands.arguments import (
    NOTIFY,
    SEARCH_SETTINGS,
    Verbs,
    add_run_dir,
    add_settings,
    add_verb,
    duration,
    effective,
    given_settings,
    known_run,
    repeatable,
    run_directory,
    show,
    write_json,
)
from bisector.commands.measuring import (
    FAIL_ON,
    Notice,
    conclude_comparison,
    forecast_of,
    is_over,
    measurers_for,
)
from bisector.commands.output import note, note_time, warn, write, write_rows
from bisector.compare import session as comparing
from bisector.config.option_table import rows
from bisector.core.errors import UserError
from bisector.core.verdict import State, Verdict
from bisector.doctor import checks
from bisector.doctor.checks import check_tree
from bisector.git.repository import Repository
from bisector.git.transfer import bundled
from bisector.host import process
from bisector.plan.forecast import reach_from
from bisector.report.display import display_for
from bisector.report.table import baseline_facts
from bisector.status import from_record
from bisector.status.view import MeasuredCommit
from bisector.store.rundir import RunDirectory, fingerprint, keep_inputs, single_commit_directory
from bisector.store.store import Store

_START_EXAMPLES = """\
examples:
  bisector start v6.1 v6.2                 which commit made v6.2 slow, or fast?
  bisector start v6.1 v6.2 --ssd /dev/nvme0n1p4 --hdd /dev/sdb1 --job ./mine.fio
  bisector start v6.1 v6.2 --stack 'crypt(hdd)+xfs' --metric read.clat.p99
  bisector start v6.1 v6.2 --budget 8h     the best answer of one night
  bisector start v6.1 v6.2 --skip 0123abcd --skip A..B -- drivers/md
  bisector start v6.1 v6.2 --regression --terms fast:slow
  bisector start v6.1 v6.2 --suspect drivers/md --suspect block
  bisector start v6.1 v6.2 --strategy git
  bisector start v6.1 v6.2 --baselines     then also each disk alone
  bisector start v6.1 v6.6 --hosts hosts.toml   trials on all hosts of a fleet; docs/fleet.md
  bisector start v4.11 v4.13-rc1 --profile article --ssd /dev/nvme0n1p4 --hdd /dev/sdb1
"""
_RESUME_EXAMPLES = """\
examples:
  bisector resume                            the newest run, after Ctrl-C, a crash or a reboot
  bisector resume --run-dir RUN --skip 0123abcd   without a commit that stops the run
  bisector resume --budget 3h                one that has spent its --budget, for 3 h more
  bisector resume --hosts other.toml         on other hosts than it was begun on
A comparison and a run of `bisector plan --calibrate` go on in the same way.
"""
_NEXT_STEP_EXAMPLES = """\
examples:
  bisector next-step                         the other change in the newest run's readings
  bisector next-step --run-dir RUN --to DIR  of another run; the new one is kept in DIR
The new run takes over all trials of the old one, and measures only what is missing.
"""
_SKIP_HELP = "skip REV, or each commit of A..B, for example one that always fails; recorded; repeatable"
_TEST_EXAMPLES = """\
examples:
  bisector test v6.1                         measure one commit
  bisector test HEAD --threshold 2000 --json
  bisector test HEAD --run-dir RUN           one more commit beside those of RUN, which
                                             `bisector table --run-dir RUN` shows
exit codes: 0 measured; 3 the kernel cannot be judged; others as in `bisector --help`
"""
_BASELINES_EXAMPLES = """\
examples:
  bisector baselines                         for the newest run: its SSD, and its HDD
  bisector baselines --run-dir RUN --json
For each disk it boots the kernel of the run's new end and runs the workload once; a baseline that
is on record is only shown.
"""
_BUDGET_HELP = (
    "measure for at most this long (6h); no trial starts that would end later, and the answer may be a set of commits"
)
_MORE_HELP = "measure for this much longer (3h); no trial or block starts that would end later"
_EXIT_CODES = {State.FOUND: 0, State.NARROWED: 3}
_UNTESTABLE = 3


def add(verbs: Verbs) -> None:
    """Register ``start``, ``resume``, ``next-step``, ``test`` and ``baselines``."""
    verb = add_verb(verbs, "start", start, "range hosts repo quiet", examples=_START_EXAMPLES, disturbs=True)
    verb.add_argument("--skip", **repeatable("REV", "leave out a commit that does not work, or A..B; repeatable"))
    verb.add_argument("--budget", type=duration, metavar="DURATION", help=_BUDGET_HELP)
    add_run_dir(verb, "where to keep the run (default: below $XDG_STATE_HOME)")
    add_settings(verb)
    verb = add_verb(verbs, "resume", resume, "hosts run notify quiet", examples=_RESUME_EXAMPLES)
    verb.add_argument("--skip", **repeatable("REV", _SKIP_HELP))
    verb.add_argument("--budget", type=duration, metavar="DURATION", help=_MORE_HELP)
    verb.add_argument("--fail-on", **FAIL_ON)
    verb = add_verb(verbs, "next-step", step, "run quiet", examples=_NEXT_STEP_EXAMPLES)
    meaning = "where to keep the new run (default: below $XDG_STATE_HOME)"
    verb.add_argument("--to", type=Path, metavar="DIR", help=meaning)
    verb = add_verb(verbs, "test", test, "commit repo json quiet", examples=_TEST_EXAMPLES)
    add_run_dir(verb, "where to keep its trial and files, with those of others (default: below $XDG_STATE_HOME)")
    add_settings(verb, {row.key for row in rows()} - SEARCH_SETTINGS - {NOTIFY})
    add_verb(verbs, "baselines", baselines, "run json quiet", examples=_BASELINES_EXAMPLES)


def start(arguments: argparse.Namespace) -> int:
    """Check everything, record the request, and bisect."""
    ends = arguments.old, arguments.new
    settings = effective(arguments, *ends, here=arguments.hosts is None).settings
    paths, skips = tuple(arguments.paths), tuple(arguments.skip)
    asked = session.BisectRequest(arguments.repo, *ends, settings, paths, skips, budget_s=arguments.budget)
    equip = measurers_for(arguments.hosts)
    # An error of the forecast refuses the request before the run is on record, so that nothing is left to resume.
    reach = None if arguments.budget is None or arguments.quiet else forecast_of(asked).reach
    begun = session.begun(asked, arguments.run_dir, warn, measures_here=arguments.hosts is None)
    with Notice(settings.notify.command) as notice, begun as (run, store):
        run.remember_hosts(arguments.hosts)
        note_time(settings.machine.time)
        if reach is not None:
            note(f"bisector: {reach.sentence}")
        return _conclude(run, store, notice, quiet=arguments.quiet, equip=equip)


def resume(arguments: argparse.Namespace) -> int:
    """Continue a run from its record."""
    run = run_directory(arguments)
    with Notice(arguments.notify or "") as notice, run.lock(), Store.open(run.database) as store:
        if arguments.notify is None:
            notice.command = store.settings.notify.command
        if (plan := store.plan) is not None and not arguments.skip:
            equip = measurers_for(hosts := arguments.hosts or run.hosts)
            if arguments.budget is not None:
                comparing.give_time(run, store, arguments.budget)
            if hosts is None and not is_over(store, plan):
                checks.warn_again(plan.setups[0], run.path, warn)
            run.remember_hosts(arguments.hosts)
            return conclude_comparison(run, store, equip, notice, arguments, as_json=False)
        session.searched(run, store)
        if arguments.fail_on:
            raise UserError(f"{run.path} holds no comparison, of which --fail-on is", "leave it out")
        last = store.state()
        ended = last is not None and last.state in _EXIT_CODES and not session.goes_on(store)
        if ended and (arguments.skip or arguments.budget is not None):
            raise UserError(f"{run.path} has its answer; nothing more is measured", "bisector start OLD NEW --skip REV")
        over = last is not None and last.out_of_time and arguments.budget is None
        if over and arguments.skip:
            hint = "with more time: bisector resume --budget 3h --skip REV"
            raise UserError(f"the budget of {run.path} is over", hint)
        if ended or over:
            return _show_end(run, store, arguments.hosts, quiet=arguments.quiet, is_over=over)
        if arguments.skip:
            session.skip(store, arguments.skip)
        if arguments.budget is not None:
            life.give_time(store, arguments.budget)
            if not arguments.quiet and (case := from_record.case_of(store)) is not None:
                note(f"bisector: {reach_from(case, arguments.budget).sentence}")
        equip = measurers_for(hosts := arguments.hosts or run.hosts)
        if hosts is None:
            checks.warn_again(store.settings, run.path, warn)
        run.remember_hosts(arguments.hosts)
        return _conclude(run, store, notice, quiet=arguments.quiet, equip=equip)


def step(arguments: argparse.Namespace) -> int:
    """Bisect the second change that a run's readings show; the new run takes over what the old one measured."""
    run = run_directory(arguments)
    with Store.open(run.database, readonly=True) as store:
        asked = next_step(run, store)
    if not arguments.quiet:
        wanted = asked.settings.bisect
        at = wanted.objective.text(wanted.threshold_value or 0.0)
        note(f"bisector: the step at {at} ({wanted.metric}), between {asked.old[:12]} and {asked.new[:12]}")
    note_time(asked.settings.machine.time)
    with Notice(asked.settings.notify.command) as notice, session.begun(asked, arguments.to, warn) as (new, new_store):
        return _conclude(new, new_store, notice, quiet=arguments.quiet, equip=measurers_for(None))


def baselines(arguments: argparse.Namespace) -> int:
    """Measure the baselines that are not on record yet, and show all of them."""
    run = run_directory(arguments)
    with run.lock(), Store.open(run.database) as store:
        with display_for(sys.stderr if arguments.json else sys.stdout, quiet=arguments.quiet) as display:
            session.measure_baselines(run, store, display, measurers_for(None))
        view = from_record.view(run, store)
    show(arguments, view, lambda: write_rows(baseline_facts(view.baselines, view.objective)))
    return 0


def test(arguments: argparse.Namespace) -> int:
    """Measure one trial of any commit and keep its record and files; remove its sources and its build."""
    flags = given_settings(arguments)
    settings = effective(arguments, arguments.commit, given=flags).settings
    repository = Repository.open(arguments.repo)
    commit = repository.resolve(arguments.commit)
    repository.check_kernel_tree(commit)
    settings = bundled(settings, repository)
    given = arguments.run_dir and known_run(arguments.run_dir)
    path = given or single_commit_directory(repository.common_dir, fingerprint(settings))
    run = RunDirectory.open(path) if RunDirectory.is_at(path) else RunDirectory.create(path, "")
    with run.lock():
        with display_for(sys.stderr if arguments.json else sys.stdout, quiet=arguments.quiet) as display:
            settings = single.settings_for(run, repository, settings, given=bool(flags or arguments.config))
            storage = settings.storage
            check_tree(repository, [commit], storage.stack, storage.layers, settings.further_features)
            checks.check(settings, run.path, warn)
            note_time(settings.machine.time)
            process.reap(run.path)
            if not run.database.exists():
                settings = keep_inputs(settings, run.path)
            view = single.measure(run, repository, settings, commit, display, equip=measurers_for(None))
        if arguments.json:
            write_json(MeasuredCommit(view, str(run.path)))
        elif not arguments.quiet:
            write(f"\nall trials there: bisector table --run-dir {shlex.quote(str(run.path))}\n")
        life.remove_build(run.path, repository.top)
    return _UNTESTABLE if view.verdict is Verdict.SKIP else 0


def _conclude(run: RunDirectory, store: Store, notice: Notice, *, quiet: bool, equip: MeasurerFactory) -> int:
    notice.run_dir = run.path
    with display_for(sys.stdout, quiet=quiet) as display:
        outcome = session.go_on(run, store, display, equip)
        if outcome.state is State.FOUND:
            comparing.confirm(run, store, display, equip)
        display.conclude(from_record.view(run, store))
        notice.answer, notice.exit_code = outcome.message, _EXIT_CODES[outcome.state]
        session.let_go(run, store, display)
    return notice.exit_code


def _show_end(run: RunDirectory, store: Store, hosts: Path | None, *, quiet: bool, is_over: bool) -> int:
    """Show the end of a run, with its check by the host's clock; a run whose time is over leaves letters for later."""
    view = from_record.view(run, store)
    with display_for(sys.stdout, quiet=quiet) as display:
        if view.host_clock is not None and view.host_clock.is_due:
            equip = measurers_for(hosts or run.hosts)
            run.remember_hosts(hosts)
            comparing.confirm(run, store, display, equip)
            view = from_record.view(run, store)
        if not is_over:
            comparing.draft_if_missing(run, store, display)
        display.conclude(view)
        session.let_go(run, store, display)
    return _EXIT_CODES.get(view.state, 1)
