"""``compare``: kernels measured on storage stacks and workloads, in blocks, and how they differ."""

import argparse
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TypeAlias

from bisector.commands.arguments import (
    SEARCH_SETTINGS,
    TWO_SIDED_SETTINGS,
    Verbs,
    add_run_dir,
    add_settings,
    add_verb,
    count,
    duration,
    effective,
    given_settings,
    repeatable,
    seed,
    show,
    typed,
)
from bisector.commands.measuring import FAIL_ON, Notice, conclude_comparison, measurers_for
from bisector.commands.output import note, note_time, warn, write_rows
from bisector.compare import session
from bisector.compare.plan import CompareRequest, forecast, forecast_rows, is_image, planned, warnings
from bisector.config import Settings
from bisector.config.option_table import rows
from bisector.config.options import Given
from bisector.core.setting import Option
from bisector.doctor.checks import check_workload
from bisector.executor.local import kernel_builder
from bisector.git.repository import Repository
from bisector.git.transfer import bundled
from bisector.host.identity import host_id
from bisector.storage.stack import stack_of
from bisector.store.facts import Extent
from bisector.store.rundir import Index
from bisector.vm.accelerator import could_count
from bisector.workload.workloads import WORKLOADS, chooser

_EXAMPLES = """\
examples:
  bisector compare v6.1 v6.2               on the default stack, six blocks
  bisector compare v6.1 v6.2 v6.3 --stack lvmcache --stack hdd --runs 8
  bisector compare v6.1 --patch fix.patch  before and after a patch, or a series
  bisector compare v6.1 --parameter mitigations=off   without it, and with
  bisector compare v6.1 v6.2 --plan        how many trials and hours it takes
  bisector compare v6.1 v6.2 --stack hdd --job partial --command 'tar -xf $CARRIED/x.tar' \\
      --carry x.tar                        on a job of fio, and on a command
  bisector compare v6.1 v6.2 --fail-on slower   for scripts: ends with 5 if v6.2 is slower
  bisector compare v6.1 v6.2 --until 5% --budget 8h   until every interval is that narrow, or the
                                           night is over
  bisector compare v6.1 --patch 1a2b3c4d   before and after a commit
  bisector compare v6.1 --config-fragment nohz.config   without and with more options
  bisector compare v6.1 image:/boot/vmlinuz-6.1.0   a commit, and a kernel built already
  bisector compare v6.1 --placebo          how far two measurements of one kernel are apart
  bisector compare v6.1 v6.2 --hosts hosts.toml   on all hosts of a fleet; docs/fleet.md
Each block measures every kernel once, in a random order, each in a fresh guest on empty disks.
A series is what b4 or `git format-patch --stdout` writes.
exit codes: 0 measured; 5 an outcome that --fail-on names; others as in `bisector --help`
"""
_BLOCKS = 6  # the smallest number of blocks for which the exact test can reach 5 %
_LEAST_EFFECT = "bisect.least_effect"  # a comparison calls kernels the same by this setting, as a search does
_NOT_ASKED = (SEARCH_SETTINGS | TWO_SIDED_SETTINGS) - {_LEAST_EFFECT}
_STACK, _KIND = "storage.stack", "workload.kind"

# The settings, by key, that one word on the command line chooses for a setup.
_Chosen: TypeAlias = Mapping[str, Given]


def _share(text: str) -> float:
    found = re.fullmatch(r"([0-9.]+) *% *", text)
    return float(found[1]) / 100 if found else 0.0


share = typed("a share such as 5%", _share, lambda value: 0 < value < 1)


def add(verbs: Verbs) -> None:
    """Register ``compare``."""
    verb = add_verb(verbs, "compare", compare, "hosts repo json quiet", examples=_EXAMPLES, disturbs=True)
    what = "a commit, a tag, or image:PATH, a bzImage that is built already; the first one is the reference"
    verb.add_argument("subjects", metavar="SUBJECT", nargs="+", help=what)
    add_setups(verb)
    amount = verb.add_mutually_exclusive_group()
    amount.add_argument("--runs", type=count, metavar="N", help=f"blocks on each setup (default: {_BLOCKS})")
    what = "measure until every interval is so narrow, at most 20 blocks"
    amount.add_argument("--until", type=share, metavar="5%", help=what)
    what = "measure for at most this long (4h); no block starts that would end later; resume --budget adds time"
    verb.add_argument("--budget", type=duration, metavar="DURATION", help=what)
    what = "measure the first one a second time, as if it were another"
    verb.add_argument("--placebo", action="store_true", help=what)
    for flag, metavar, what in (
        ("--patch", "FILE|COMMIT", "a patch on top; a diff, a series in one file, or a commit; repeatable, each alone"),
        ("--config-fragment", "FILE", "these options on top of its configuration; repeatable, each alone; what every"
         " kernel is to have is --fragment"),
        ("--parameter", "TEXT", "a kernel parameter; repeatable, each alone"),
    ):  # fmt: skip
        verb.add_argument(flag, **repeatable(metavar, f"compare the first one with itself and {what}"))
    what = "what orders and workloads are drawn from (default: random)"
    verb.add_argument("--seed", type=seed, metavar="N", help=what)
    verb.add_argument("--fail-on", **FAIL_ON)
    verb.add_argument("--plan", action="store_true", help="estimate trials and hours, and measure nothing")
    add_run_dir(verb, "where to keep the run (default: below $XDG_STATE_HOME)")
    chosen = {_STACK, _KIND, *(row.key for _, row in _choosers())}
    add_settings(verb, {row.key for row in rows()} - chosen - _NOT_ASKED)


def add_setups(verb: argparse.ArgumentParser) -> None:
    """Add ``--stack``, ``--workload``, and each workload's own flag that chooses it, all of them repeatable."""
    verb.add_argument("--stack", **repeatable("STACK", "storage stack; repeatable (default: the setting's)"))
    of_workloads = partial(verb.add_argument, dest="workloads", action="append", default=[])
    for kind, row in _choosers():

        def by_own(text: str, kind: str = kind, row: Option = row) -> _Chosen:
            return {_KIND: Given(kind, row.flag), row.key: Given(text, row.flag)}

        help_line = f"{row.help}; repeatable".replace("%", "%%")
        of_workloads(row.flag, type=by_own, metavar=row.metavar, help=help_line)

    def by_name(text: str) -> _Chosen:
        return {_KIND: Given(text, "--workload")}

    of_workloads("--workload", type=by_name, metavar="NAME", help="workload; repeatable")


def _choosers() -> Iterator[tuple[str, Option]]:
    """The workloads that have a flag of their own, by name, with the option of that flag."""
    found = ((one.name, chooser(one)) for one in WORKLOADS.values())
    yield from ((kind, row) for kind, row in found if row is not None and row.flag)


def compare(arguments: argparse.Namespace) -> int:
    """Check everything, record the request, measure, and show the result."""
    drawn = secrets.randbits(32) if arguments.seed is None else arguments.seed
    settings = settings_of(arguments)
    delta = settings[0].bisect.least_effect
    asked = CompareRequest(
        arguments.repo,
        tuple(arguments.subjects),
        settings,
        Extent(drawn, arguments.runs or _BLOCKS, arguments.until, arguments.budget, delta),
        arguments.placebo,
        tuple(arguments.patch),
        tuple(arguments.parameter),
        tuple(arguments.config_fragment),
    )
    if arguments.plan:
        return _tell_hours(arguments, asked)
    equip = measurers_for(arguments.hosts)
    begun = session.begun(asked, arguments.run_dir, warn, measures_here=arguments.hosts is None)
    with Notice(asked.settings[0].notify.command) as notice, begun as (run, store):
        run.remember_hosts(arguments.hosts)
        plan, _ = session.plan_of(store)
        note_time(asked.settings[0].machine.time)
        for text in warnings(plan):
            note(f"bisector: {text}")
        return conclude_comparison(run, store, equip, notice, arguments, as_json=arguments.json)


def settings_of(arguments: argparse.Namespace) -> tuple[Settings, ...]:
    """The settings of each setup: every stack with every workload, as typed; raises :class:`UserError`."""
    given = given_settings(arguments)
    by_set = [{_STACK: given[_STACK]}] if _STACK in given else []
    stacks = [*({_STACK: Given(stack, "--stack")} for stack in arguments.stack), *by_set] or [{}]
    # Each workload that ``--set`` chooses comes on top of those that flags choose.
    chosen: list[_Chosen] = [*arguments.workloads]
    chosen += [{_KIND: given[_KIND]}] if _KIND in given else []
    for workload in WORKLOADS.values():
        if (own := given.get(workload.chosen_by)) is not None:
            chosen.append({_KIND: Given(workload.name, own.origin), workload.chosen_by: own})
    # As in other commands, ``--workload NAME`` adds nothing if the workload's own flag is given, too.
    by_flag = {one[_KIND].raw for one in chosen if len(one) > 1}
    workloads = [one for one in chosen if len(one) > 1 or one[_KIND].raw not in by_flag] or [{}]
    each = ({**given, **stack, **workload} for workload, stack in product(workloads, stacks))
    # Every setup may name disks of all stacks: one stack need not have the disks of another.
    disks_of = tuple(stack_of(str(one[_STACK].raw)) for one in stacks if one)
    commits, here = [one for one in arguments.subjects if not is_image(one)], arguments.hosts is None
    return tuple(effective(arguments, *commits, given=one, stacks=disks_of, here=here).settings for one in each)


def _tell_hours(arguments: argparse.Namespace, asked: CompareRequest) -> int:
    repository = Repository.open(asked.repository)
    plan = planned(repository, asked)
    # Use the same files that a run would have: they decide whether trials of earlier runs are alike.
    plan = replace(plan, setups=tuple(bundled(one, repository) for one in plan.setups))
    for one in plan.setups:
        for doubt in check_workload(one):
            warn(doubt)
    run_dirs = [Path(entry.run_dir) for entry in Index().entries()]
    first, counts = plan.setups[0], all(could_count(one.machine, one.storage) for one in asked.settings)
    expected = forecast(plan, kernel_builder(first.kernel), host_id(), run_dirs, could_count=counts)
    show(arguments, expected, lambda: write_rows(forecast_rows(expected)))
    return 0
