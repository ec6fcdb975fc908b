"""``simulate``: how often the search is right in simulated histories, and at what cost."""

import argparse
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from bisector.commands.arguments import (
    Verbs,
    add_json,
    add_repo,
    add_verb,
    count,
    duration,
    one_of,
    seed,
    typed,
    write_json,
)
from bisector.commands.output import write
from bisector.core import units
from bisector.core.errors import UserError
from bisector.core.json_document import JsonObject
from bisector.core.verdict import Strategy
from bisector.git.ranges import Range, check_range, graph_of_range, read_graph
from bisector.git.repository import Repository
from bisector.search.graph import RangeGraph
from bisector.search.noise import Noise, Rates
from bisector.search.simulate import runs as simulation
from bisector.search.simulate.runs import Summary, search_for
from bisector.search.simulate.world import WHOLE_FILLS, Conditions, Durations, usual_durations
from bisector.storage.filling import FillMode

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
    """What ``bisector simulate --json`` prints: what was asked for, and shares, means and ninetieth percentiles."""

    strategy: Annotated[Strategy, "of the searches"]
    commits: Annotated[int, "number of commits in the history"]
    trials: Annotated[int, "number of searches"]
    seed: Annotated[int, "seed of the simulation"]
    early_stop: Annotated[Early | None, "which run of a kernel stops once it is clear; `null` if none does"]
    fill: Annotated[Fill, "whether runs that fill a cache end once it is settled, or go their `whole` length"]
    success_rate: Annotated[float, "share of the searches whose first answer is right"]
    in_set_rate: Annotated[float, "share of the searches whose candidates hold the culprit"]
    set_size_mean: Annotated[float, "mean number of candidates"]
    claimed_mean: Annotated[float, "mean probability that the searches claim"]
    evaluations_mean: Annotated[float, "mean number of completed runs after the first ones of the ends"]
    evaluations_p90: Annotated[float, "nine of ten searches take at most so many"]
    ends_again_mean: Annotated[float, "mean number of these that are of an end, before the search"]
    both_ways_rate: Annotated[float, "share of the searches that measure both ends with a short fill, too"]
    skips_mean: Annotated[float, "mean number of commits that cannot be tested"]
    vm_hours_mean: Annotated[float, "mean hours of building and measuring"]
    vm_hours_p90: Annotated[float, "nine of ten searches take at most so many"]
    hosts: Annotated[int, "number of hosts"]
    kept_levels: Annotated[bool, "whether each host measures one end only, since earlier runs know its levels"]
    wall_hours_mean: Annotated[float, "mean hours on the clock, from the first build of an end to the answer"]
    wall_hours_p90: Annotated[float, "nine of ten searches take at most so many of these"]
    speed_up: Annotated[
        float | None,
        "how many times as long one host takes that measures both ends, in the same histories; `null` for one host",
    ]
    step_ms_mean: Annotated[float, "mean milliseconds in which a commit is chosen"]
    step_ms_max: Annotated[float, "the most milliseconds in which a commit was chosen"]
    not_one_change_rate: Annotated[float, "share of the searches that end because no single change explains the runs"]
    budget_s: Annotated[float | None, "seconds that each search has after the ends; `null` without a limit"]
    named_rate: Annotated[float, "share of the searches that name a commit"]
    named_right_rate: Annotated[float, "share of these that name the right one; 0 if there are none"]
    left_median: Annotated[float, "median number of candidates of the others; 0 if there are none"]
    same_rate: Annotated[float, "share of the searches that never begin, as the ends are told to be the same"]
    noisy_rate: Annotated[float, "share of those that never begin, as the ends are too noisy to be told apart"]


def add(verbs: Verbs) -> None:
    """Register ``simulate``."""
    verb = add_verb(verbs, "simulate", simulate, examples=_EXAMPLES, disturbs=True)
    where = verb.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--graph", type=Path, metavar="FILE", help="a history: a line for each commit with its number and its parents'"
    )
    where.add_argument("--range", nargs=2, metavar=("OLD", "NEW"), help="the history of a range of --repo")
    add_repo(verb)
    verb.add_argument(
        "--strategy",
        type=one_of(Strategy),
        choices=tuple(Strategy),
        default=Strategy.BAYES,
        help="what chooses the next commit (default: bayes)",
    )
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
    verb.add_argument("--effect", type=_factor, metavar="F", help="runs have figures, F times as high when fixed")
    verb.add_argument(
        "--spread",
        type=_spread,
        default=0.1,
        metavar="S",
        help="deviation of the figures' logarithm (default: 0.1)",
    )
    verb.add_argument(
        "--drift",
        type=_drift,
        default=0.0,
        metavar="D",
        help="growth of the figures' logarithm in an hour (default: 0)",
    )
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
    verb.add_argument(
        "--budget",
        type=duration,
        metavar="DURATION",
        help="how long each search may take after the ends: 6h",
    )
    verb.add_argument("--hosts", type=count, default=1, metavar="K", help="how many hosts share a search (default: 1)")
    verb.add_argument(
        "--kept-levels",
        action="store_true",
        help="each host measures one end only, which confirms what earlier runs know of it (default: both)",
    )
    verb.add_argument(
        "--fill",
        type=one_of(FillMode),
        choices=tuple(FillMode),
        default=FillMode.AUTO,
        help="when the first run of a kernel ends, as storage.fill says of `start` (default: auto)",
    )
    verb.add_argument("--trials", type=count, default=500, metavar="N", help="how many searches (default: 500)")
    verb.add_argument("--seed", type=seed, default=1, metavar="N", help="seed (default: 1)")
    add_json(verb)


def simulate(arguments: argparse.Namespace) -> int:
    """Simulate, and say how it went."""
    _check_hosts(arguments)
    graph = _graph(arguments)
    conditions = _conditions(arguments, len(graph))
    summary = _summary(arguments, graph, conditions)
    alone_h = None
    if conditions.hosts > 1:
        alone_h = _summary(arguments, graph, replace(conditions, hosts=1, kept_levels=False)).wall_hours_mean
    speed_up = None if alone_h is None else alone_h / summary.wall_hours_mean
    if arguments.json:
        names = ("strategy", "trials", "seed", "hosts", "kept_levels")
        asked = {**{name: getattr(arguments, name) for name in names}, "budget_s": arguments.budget}
        early, fill = _stopped(conditions)
        of_world = asdict(summary)
        write_json(Simulation(**asked, commits=len(graph), early_stop=early, fill=fill, speed_up=speed_up, **of_world))
    else:
        write(_as_text(arguments, len(graph), conditions, summary, speed_up))
    return 0


def _not_begun(summary: Summary) -> str:
    return f"{summary.same_rate:.1%} as the ends are the same, {summary.noisy_rate:.1%} as they are too noisy to tell"


def _check_hosts(arguments: argparse.Namespace) -> None:
    """What several hosts cannot do."""
    if arguments.hosts > 1 and arguments.strategy is Strategy.GIT:
        raise UserError("git bisect tries one commit at a time", "--strategy bayes with --hosts, or one host")


def _summary(arguments: argparse.Namespace, graph: RangeGraph, conditions: Conditions) -> Summary:
    search = search_for(conditions, _assumed(arguments))
    strategy, seed_, trials = arguments.strategy, arguments.seed, arguments.trials
    return Summary.of(tuple(simulation.simulate(graph, strategy, conditions, search, seed=seed_, trials=trials)))


def _assumed(arguments: argparse.Namespace) -> Rates | None:
    """The rates that the search takes for known; None when it learns them."""
    flip, sticky = arguments.assume_flip, arguments.assume_sticky
    if flip is None and sticky is None:
        return None
    noise = Noise() if flip is None else Noise(_some(flip), _some(flip))
    return Rates.known(noise if sticky is None else replace(noise, sticky=_some(sticky)))


def _as_text(
    arguments: argparse.Namespace, commits: int, conditions: Conditions, summary: Summary, speed_up: float | None
) -> str:
    shown = (
        ("searches", f"{arguments.trials} by {arguments.strategy} among {commits:,} commits, seed {arguments.seed}"),
        ("first answer", f"{summary.success_rate:.1%} right, {summary.claimed_mean:.1%} claimed"),
        ("set", f"{summary.in_set_rate:.1%} hold the culprit; {summary.set_size_mean:.2f} commits"),
        *([("budget", _reached(arguments.budget, summary))] if arguments.budget is not None else []),
        ("evaluations", f"{summary.evaluations_mean:.1f}, nine of ten at most {summary.evaluations_p90:.0f}"),
        *([("no search", _not_begun(summary))] if summary.same_rate + summary.noisy_rate else []),
        ("skips", f"{summary.skips_mean:.1f}"),
        ("runs", _RUNS[_stopped(conditions)]),
        ("VM time", f"{summary.vm_hours_mean:.1f} h, nine of ten at most {summary.vm_hours_p90:.1f} h"),
        *([("hosts", _together(conditions, summary, speed_up))] if speed_up is not None else []),
        ("a step", f"{summary.step_ms_mean:.1f} ms, {summary.step_ms_max:.1f} ms at most"),
    )
    return "".join(f"{name:13}{text}\n" for name, text in shown)


def _together(conditions: Conditions, summary: Summary, speed_up: float) -> str:
    ends = "one end" if conditions.kept_levels else "both ends"
    return (
        f"{conditions.hosts}, each measures {ends}: {summary.wall_hours_mean:.1f} h on the clock, "
        f"{speed_up:.2f} times as fast as one host that measures both ends"
    )


def _reached(budget_s: float, summary: Summary) -> str:
    """How many searches were done in time, and how far the others were."""
    named = f"{summary.named_rate:.1%} name a commit within {units.duration(budget_s)}"
    right = f", {summary.named_right_rate:.1%} of them the right one" if summary.named_rate else ""
    others = f"; the others are left with {summary.left_median:,.0f} (median)" if summary.named_rate < 1 else ""
    return named + right + others


def _graph(arguments: argparse.Namespace) -> RangeGraph:
    if arguments.graph is not None:
        return read_graph(arguments.graph)
    with Repository.open(arguments.repo) as repository:
        old, new = (repository.resolve(rev) for rev in arguments.range)
        wanted = Range(old, new)
        check_range(repository, wanted)
        graph, _ = graph_of_range(repository, wanted)
    return graph


def _conditions(arguments: argparse.Namespace, commits: int) -> Conditions:
    budget_min = math.inf if arguments.budget is None else arguments.budget / _MIN_S
    return Conditions(
        old_as_new=arguments.flip if arguments.flip_broken is None else arguments.flip_broken,
        new_as_old=arguments.flip if arguments.flip_fixed is None else arguments.flip_fixed,
        sticky=arguments.sticky,
        skip=arguments.skip,
        relevant=arguments.relevant,
        suspects=arguments.suspects,
        undo=arguments.undo,
        pick=arguments.pick,
        drift=arguments.drift,
        second_step=arguments.second_step,
        effect=arguments.effect,
        spread=arguments.spread,
        early_stop=bool(arguments.early_stop) or (arguments.strategy is Strategy.BAYES and not arguments.full_runs),
        budget_min=budget_min,
        hosts=arguments.hosts,
        kept_levels=arguments.kept_levels,
        durations=_durations(arguments.fill, commits * arguments.relevant, budget_min),
    )


def _durations(fill: FillMode, matter: float, left_min: float) -> Durations:
    return {FillMode.SHORT: Durations(), FillMode.WHOLE: WHOLE_FILLS}.get(fill) or usual_durations(matter, left_min)


def _stopped(conditions: Conditions) -> tuple[Early | None, Fill]:
    """Which run is stopped once it is clear, and how caches are filled."""
    if not conditions.early_stop:
        return None, "whole"
    return _SECOND, "whole" if conditions.durations is WHOLE_FILLS else "short"


def _some(probability: float) -> float:
    """A belief that can still be corrected."""
    return min(max(probability, 1e-6), 1 - 1e-6)
