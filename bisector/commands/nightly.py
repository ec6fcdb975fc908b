"""``nightly`` and ``history``: unattended nights of measuring, and what they have measured."""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from bisector.commands.arguments import Verbs, add_verb, show, write_json
from bisector.commands.measuring import Notice, measurers_for
from bisector.commands.output import note, save, show_blocks, write
from bisector.core import units
from bisector.core.errors import BisectorError, UserError
from bisector.fleet.hosts import load
from bisector.nightly import night, plan, timer
from bisector.nightly.night import Mailer, NightContext
from bisector.nightly.plan import NightPlan
from bisector.nightly.timer import Timer, check_for_root
from bisector.nightly.trend import History, NightsPlot, OneNight, trend_blocks, trends
from bisector.report.display import display_for
from bisector.report.drawing import Picture, draw
from bisector.store.log import DATABASE
from bisector.store.nights import JobTrouble, Night, NightEvent, NightRecord, nights_home

_EXAMPLES = """\
examples:
  bisector nightly --config nightly.toml --check       is the file valid?
  bisector nightly --config nightly.toml --dry-run     what would be done now, and in which order?
  bisector nightly --config nightly.toml               one night, now
  bisector nightly --config nightly.toml --hosts hosts.toml          on the hosts of a fleet
  bisector nightly --config nightly.toml --install-timer --at 01:30
exit codes: 0 no job failed, or the hours were over; 1 a job failed, and was reported; others as in
`bisector --help`
"""
_HISTORY_EXAMPLES = """\
examples:
  bisector history --job dm-cache
  bisector history --config nightly.toml               only the jobs of this file
  bisector history --plot nights.svg                   also as a picture
  bisector history --json | jq -r '.jobs[].nights[] | select(.level_change).tip.sha'
"""
_A_JOB_FAILED = 1


def add(verbs: Verbs) -> None:
    """Register ``nightly`` and ``history``."""
    verb = add_verb(verbs, "nightly", nightly, "hosts notify json quiet", examples=_EXAMPLES)
    verb.add_argument("--config", type=Path, metavar="FILE", help="the jobs of a night; docs/nightly.md has an example")
    how = verb.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="only check the file")
    how.add_argument("--dry-run", action="store_true", help="only print what would be done")
    how.add_argument("--install-timer", action="store_true", help="have systemd start a night every day")
    how.add_argument("--remove-timer", action="store_true", help="remove the timer")
    verb.add_argument("--system", action="store_true", help="with a timer: the system's, not this user's")
    verb.add_argument(
        "--at",
        default="01:30",
        metavar="HH:MM",
        help="with --install-timer: when a night starts (default: %(default)s)",
    )
    shown = add_verb(verbs, "history", history, "json", examples=_HISTORY_EXAMPLES)
    shown.add_argument("--config", type=Path, metavar="FILE", help="only the jobs of this file, as nightly has it")
    shown.add_argument("--job", metavar="NAME", help="only this job")
    shown.add_argument("--plot", type=Path, metavar="FILE", help="also draw it: PNG or SVG, by the ending of FILE")


def nightly(arguments: argparse.Namespace) -> int:
    """Run one night; or check its file, show what it would do, or install or remove its timer."""
    if arguments.remove_timer:
        return _remove_timer(system=arguments.system)
    if arguments.config is None:
        raise UserError("nightly needs --config FILE", "docs/nightly.md has an example of such a file")
    wanted = plan.load(arguments.config)
    measurers_for(arguments.hosts)  # a hosts file with which no host can connect is always refused
    if arguments.check:
        write(f"{wanted.path}: valid; {units.plural(len(wanted.jobs), 'job')}, {wanted.budget_hours:g} h a night\n")
        return 0
    if arguments.install_timer:
        return _install_timer(Timer(wanted, arguments.at, arguments.system, arguments.hosts))
    if arguments.dry_run:
        events, nights = _read()
        found = night.dry_run(wanted, nights, events)
        if arguments.json:
            write_json(found)
        else:
            for one in found.jobs:
                lines = one.steps if one.problem is None else (f"cannot be done: {one.problem}",)
                write("".join(f"{one.name}: {line}\n" for line in lines))
        return _A_JOB_FAILED if any(one.problem for one in found.jobs) else 0
    command = arguments.notify or wanted.jobs[0].measuring.notify.command
    with Notice(command) as notice:
        return _night(wanted, arguments.hosts, notice, json=arguments.json, quiet=arguments.quiet)


def _night(wanted: NightPlan, hosts: Path | None, notice: Notice, *, json: bool, quiet: bool) -> int:
    home, equip, listed = _home(), measurers_for(hosts), load(hosts) if hosts is not None else None
    display = display_for(sys.stderr if json else sys.stdout, quiet=quiet)
    mailer = Mailer(home / "letters")
    with night.only_one(home), ExitStack() as stack:
        try:
            record = stack.enter_context(NightRecord.open(home / DATABASE))
        except BisectorError as error:
            if said := night.tell_of_no_night(wanted, mailer, home, error):
                note(said)
            raise
        notice.run_dir = home
        stack.enter_context(display)
        n, _ = night.run(wanted, NightContext(record, mailer, display, home, equip, listed))
        events, nights = record.events(), record.nights()
    if json:
        write_json(OneNight.of(trends(events), nights[n - 1]))
    troubles = [(one.job, one.fact) for one in events if one.night == n and isinstance(one.fact, JobTrouble)]
    notice.answer = "; ".join(f"{job}: {fact.message}" for job, fact in troubles) or "no job failed"
    notice.exit_code = _A_JOB_FAILED if troubles else 0
    return notice.exit_code


def _home() -> Path:
    home = nights_home()
    if (old := home / "history.sqlite").exists():
        note(f"bisector: the nights in {old} are of an older bisector, and are not read; remove the file to hide this")
    return home


def _read() -> tuple[tuple[NightEvent, ...], tuple[Night, ...]]:
    path = _home() / DATABASE
    if not path.exists():
        return (), ()
    with NightRecord.open(path, readonly=True) as record:
        return record.events(), record.nights()


def history(arguments: argparse.Namespace) -> int:
    """Show the trend of each job."""
    events, nights = _read()
    if not events:
        raise UserError("there was no night yet", "bisector nightly --config FILE")
    if arguments.config is not None:
        jobs = {job.name for job in plan.load(arguments.config).jobs}
        events = tuple(event for event in events if event.job in jobs)
        if not events:
            raise UserError(f"no night had a job of {arguments.config} yet: {', '.join(sorted(jobs))}")
    names = sorted({event.job for event in events})
    if arguments.job is not None and arguments.job not in names:
        raise UserError(f"no night had a job {arguments.job}", f"there are: {', '.join(names)}")
    shown = trends(events, arguments.job)
    if (path := arguments.plot) is not None:
        ending = path.suffix.removeprefix(".").lower()
        if ending not in tuple(Picture):
            raise UserError(f"--plot {path}: a picture ends in {' or '.join(f'.{one}' for one in Picture)}")
        save(path, draw(NightsPlot.of(shown, nights), Picture(ending)))
        note(f"plot: {path}")
    show(arguments, History.of(shown, nights), lambda: show_blocks(trend_blocks(shown, nights)))
    return 0


def _install_timer(wanted: Timer) -> int:
    if wanted.system:
        check_for_root(wanted)
    if not timer.systemd_runs():
        note("systemd does not run here; this is the line for cron (crontab -e):")
        write(f"{wanted.crontab()}\n")
        return 0
    for path in timer.write(wanted, timer.directory(system=wanted.system)):
        write(f"{path}\n")
    timer.systemctl("daemon-reload", system=wanted.system)
    timer.systemctl("enable", "--now", f"{timer.NAME}.timer", system=wanted.system)
    if not wanted.system:
        note("nights begin only while you are logged in, unless: loginctl enable-linger")
    return 0


def _remove_timer(*, system: bool) -> int:
    where = timer.directory(system=system)
    if not any((where / f"{timer.NAME}.{kind}").exists() for kind in ("timer", "service")):
        raise UserError(f"bisector has no timer in {where}", "with --system: that of the system")
    if timer.systemd_runs():
        timer.systemctl("disable", "--now", f"{timer.NAME}.timer", system=system)
    for path in timer.remove(where):
        write(f"removed {path}\n")
    if timer.systemd_runs():
        timer.systemctl("daemon-reload", system=system)
    return 0
