"""``simulate``: how often the search is right in simulated histories, and at what cost."""

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from bisector.commands.arguments import Verbs, add_verb, count, duration, one_of, seed, show, typed
from bisector.commands.output import write_rows
from bisector.core import units
from bisector.core.errors import UserError
from bisector.core.json_document import FLAT, JsonObject
from bisector.core.verdict import Strategy
from bisector.git.ranges import Range, check_range, graph_of_range, read_graph
from bisector.git.repository import Repository
from bisector.search.graph import RangeGraph
from bisector.search.noise import Noise, Rates
from bisector.search.simulate import runs as simulation
from bisector.search.simulate.runs import Summary, search_for
from bisector.search.simulate.world import WHOLE_FILLS, Conditions, Durations, usual_durations
from bisector.storage.layer import FillMode

_EXAMPLES = """\
examples:
  bisector simulate --range v4.11 v4.13-rc1 --flip 0.05
  bisector simulate --range v4.11 v4.13-rc1 --flip 0.05 --budget 8h --hosts 4
  bisector simulate --graph graph.txt.gz --effect 1.3 --spread 0.05 --skip 0.05
  bisector simulate --graph graph.txt.gz --flip-fixed 0.03 --flip-broken 0.002 --skip 0.05
  bisector simulate --graph graph.txt.gz --flip 0.05 --assume-flip 0.01   the search assumes less
                                             noise than there is
The search learns how often runs and kernels mislead, unless --assume-… fixes it.
"""

_probability = typed("a probability from 0 to 1", float, lambda value: 0 <= value <= 1)
_factor = typed("a factor above 1", float, lambda value: value > 1)
_spread = typed("a number above 0", float, lambda value: value > 0)
_drift = typed("a number between -1 and 1", float, lambda value: abs(value) < 1)

Early: TypeAlias = Literal["second"]
Fill: TypeAlias = Literal["short", "whole"]

_MIN_S = 60.0
_SECOND: Final = "second"
_RUNS = {
    (None, "whole"): "none stops early",
    (_SECOND, "whole"): "the second of a kernel stops once it is clear, as with start and storage.fill = whole",
    (_SECOND, "short"): "the first of a kernel stops once its cache is settled, the second once it is clear, as with "
    "start",
}


class Simulation(JsonObject, frozen=True, kw_only=True):
    """The output of ``bisector simulate --json``: the request, and shares, means and ninetieth percentiles."""

    strategy: Annotated[Strategy, "of the searches"]
    commits: Annotated[int, "number of commits in the history"]
    trials: Annotated[int, "number of searches"]
    seed: Annotated[int, "seed of the simulation"]
    early_stop: Annotated[Early | None, "which run of a kernel stops once it is clear; `null` if none does"]
    fill: Annotated[Fill, "whether runs that fill a cache end once it is settled, or go their `whole` length"]
    hosts: Annotated[int, "number of hosts"]
    kept_levels: Annotated[bool, "whether each host measures one end only, since earlier runs know its levels"]
    speed_up: Annotated[
        float | None,
        "how many times as long one host takes that measures both ends, in the same histories; `null` for one host",
    ]
    budget_s: Annotated[float | None, "seconds that each search has after the ends; `null` without a limit"]
    summary: Annotated[Summary, FLAT]


def add(verbs: Verbs) -> None:
    """Register ``simulate``."""
    verb = add_verb(verbs, "simulate", simulate, "repo json", examples=_EXAMPLES, disturbs=True)
    where = verb.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--graph", type=Path, metavar="FILE", help="a history: a line for each commit with its number and its parents'"
    )
    where.add_argument("--range", nargs=2, metavar=("OLD", "NEW"), help="the history of a range of --repo")
    what = "what chooses the next commit (default: bayes)"
    verb.add_argument("--strategy", **one_of(Strategy, Strategy.BAYES), help=what)
    for flag, default, meaning in (
        ("--flip", 0.0, "probability that a run shows the wrong side"),
        ("--flip-fixed", None, "that a run of a fixed kernel looks broken (default: --flip)"),
        ("--flip-broken", None, "that a run of a broken kernel looks fixed (default: --flip)"),
        ("--sticky", 0.0, "that all runs of a commit show the wrong side"),
        ("--skip", 0.0, "that a commit cannot be tested"),
        ("--relevant", 1.0, "that a commit can change the measured kernel; the search knows which"),
        ("--suspects", None, "that the culprit is a suspect, as 3 %% of all commits are (default: no suspects)"),
        ("--undo", 1.0, "that a commit can be reverted on the new end"),
        ("--pick", 0.0, "that a commit can be picked on the old end"),
        ("--assume-flip", None, "the --flip that the search takes for known (default: it learns all rates)"),
        ("--assume-sticky", None, "the --sticky that the search takes for known"),
    ):
        usual = "" if default is None else f" (default: {default:g})"
        verb.add_argument(flag, type=_probability, default=default, metavar="P", help=meaning + usual)
    for flag, kind, usual_, metavar, meaning in (
        ("--effect", _factor, None, "F", "runs have figures, F times as high when fixed"),
        ("--spread", _spread, 0.1, "S", "deviation of the figures' logarithm (default: 0.1)"),
        ("--drift", _drift, 0.0, "D", "growth of the figures' logarithm in an hour (default: 0)"),
        ("--budget", duration, None, "DURATION", "how long each search may take after the ends: 6h"),
        ("--hosts", count, 1, "K", "how many hosts share a search (default: 1)"),
        ("--trials", count, 500, "N", "how many searches (default: 500)"),
        ("--seed", seed, 1, "N", "seed (default: 1)"),
    ):
        verb.add_argument(flag, type=kind, default=usual_, metavar=metavar, help=meaning)
    verb.add_argument("--second-step", action="store_true", help="the change is made in two steps, by two commits")
    runs = verb.add_mutually_exclusive_group()
    runs.add_argument(
        "--early-stop",
        nargs="?",
        const=_SECOND,
        choices=(_SECOND,),
        help=f"the {_SECOND} run of a kernel stops once its verdict is clear, as with `start` (default for bayes)",
    )
    runs.add_argument("--full-runs", action="store_true", help="no run stops early (default for git)")
    what = "each host measures one end only, which confirms what earlier runs know of it (default: both)"
    verb.add_argument("--kept-levels", action="store_true", help=what)
    what = "when the first run of a kernel ends, as storage.fill says of `start` (default: auto)"
    verb.add_argument("--fill", **one_of(FillMode, FillMode.AUTO), help=what)


def simulate(arguments: argparse.Namespace) -> int:
    """Run simulated searches, and print how they ended."""
    if arguments.hosts > 1 and arguments.strategy is Strategy.GIT:
        raise UserError("git bisect tries one commit at a time", "--strategy bayes with --hosts, or one host")
    graph = _graph(arguments)
    conditions = _conditions(arguments, len(graph))
    # An assumed rate is kept away from 0 and 1: no reading could correct such a belief. Other rates are learned.
    flip, sticky = (
        None if one is None else min(max(one, 1e-6), 1 - 1e-6)
        for one in (arguments.assume_flip, arguments.assume_sticky)
    )
    noise = Noise() if flip is None else Noise(flip, flip)
    noise = noise if sticky is None else replace(noise, sticky=sticky)
    assumed = None if flip is None and sticky is None else Rates.known(noise)

    def summary_of(conditions: Conditions) -> Summary:
        search, how = search_for(conditions, assumed), {"seed": arguments.seed, "trials": arguments.trials}
        return Summary.of(tuple(simulation.simulate(graph, arguments.strategy, conditions, search, **how)))

    summary, speed_up = summary_of(conditions), None
    if conditions.hosts > 1:
        alone = summary_of(replace(conditions, hosts=1, kept_levels=False))
        speed_up = alone.wall_hours_mean / summary.wall_hours_mean
    # Which run of a kernel may stop early, and how caches are filled.
    early: Early | None = _SECOND if conditions.early_stop else None
    fill: Fill = "short" if early and conditions.durations is not WHOLE_FILLS else "whole"
    names = ("strategy", "trials", "seed", "hosts", "kept_levels")
    asked = {**{name: getattr(arguments, name) for name in names}, "budget_s": arguments.budget}
    made = Simulation(**asked, commits=len(graph), early_stop=early, fill=fill, speed_up=speed_up, summary=summary)
    show(arguments, made, lambda: write_rows(_rows(made), 13))
    return 0


def _rows(made: Simulation) -> Iterator[tuple[str, str]]:
    summary = made.summary
    yield "searches", f"{made.trials} by {made.strategy} among {made.commits:,} commits, seed {made.seed}"
    yield "first answer", f"{summary.success_rate:.1%} right, {summary.claimed_mean:.1%} claimed"
    yield "set", f"{summary.in_set_rate:.1%} hold the culprit; {summary.set_size_mean:.2f} commits"
    if made.budget_s is not None:
        reached = f"{summary.named_rate:.1%} name a commit within {units.duration(made.budget_s)}"
        if summary.named_rate:
            reached += f", {summary.named_right_rate:.1%} of them the right one"
        if summary.named_rate < 1:
            reached += f"; the others are left with {summary.left_median:,.0f} (median)"
        yield "budget", reached
    yield "evaluations", f"{summary.evaluations_mean:.1f}, nine of ten at most {summary.evaluations_p90:.0f}"
    if summary.same_rate + summary.noisy_rate:
        same, noisy = f"{summary.same_rate:.1%} as the ends are the same", f"{summary.noisy_rate:.1%} as they are"
        yield "no search", f"{same}, {noisy} too noisy to tell"
    yield "skips", f"{summary.skips_mean:.1f}"
    yield "runs", _RUNS[made.early_stop, made.fill]
    yield "VM time", f"{summary.vm_hours_mean:.1f} h, nine of ten at most {summary.vm_hours_p90:.1f} h"
    if made.speed_up is not None:
        ends = "one end" if made.kept_levels else "both ends"
        clock = f"{made.hosts}, each measures {ends}: {summary.wall_hours_mean:.1f} h on the clock"
        yield "hosts", f"{clock}, {made.speed_up:.2f} times as fast as one host that measures both ends"
    yield "a step", f"{summary.step_ms_mean:.1f} ms, {summary.step_ms_max:.1f} ms at most"


def _graph(arguments: argparse.Namespace) -> RangeGraph:
    if arguments.graph is not None:
        return read_graph(arguments.graph)
    repository = Repository.open(arguments.repo)
    old, new = (repository.resolve(rev) for rev in arguments.range)
    wanted = Range(old, new)
    check_range(repository, wanted)
    graph, _ = graph_of_range(repository, wanted)
    return graph


def _conditions(arguments: argparse.Namespace, commits: int) -> Conditions:
    budget_min = math.inf if arguments.budget is None else arguments.budget / _MIN_S
    fills = {FillMode.SHORT: Durations(), FillMode.WHOLE: WHOLE_FILLS}
    names = ("sticky", "skip", "relevant", "suspects", "undo", "pick", "drift", "second_step", "effect", "spread")
    return Conditions(
        **{name: getattr(arguments, name) for name in (*names, "hosts", "kept_levels")},
        old_as_new=arguments.flip if arguments.flip_broken is None else arguments.flip_broken,
        new_as_old=arguments.flip if arguments.flip_fixed is None else arguments.flip_fixed,
        early_stop=bool(arguments.early_stop) or (arguments.strategy is Strategy.BAYES and not arguments.full_runs),
        budget_min=budget_min,
        durations=fills.get(arguments.fill) or usual_durations(commits * arguments.relevant, budget_min),
    )
