"""``simulate``: how often the search is right in simulated histories, and at what cost."""

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from bisector.commands.arguments import Verbs, add_json, add_repo, add_verb, count, seed, write_json
from bisector.commands.output import write
from bisector.core.json_document import Record
from bisector.core.verdict import Strategy
from bisector.git.ranges import Range, check_range, graph_of_range, read_graph
from bisector.git.repository import Repository
from bisector.search.graph import RangeGraph
from bisector.search.simulate import runs as simulation
from bisector.search.simulate.runs import Summary, search_for, told
from bisector.search.simulate.world import BOTH_EARLY, Conditions, Durations

_EXAMPLES = """\
examples:
  bisector simulate --range v4.11 v4.13-rc1 --flip 0.05 --early-stop second
  bisector simulate --graph graph.txt.gz --flip-fixed 0.03 --flip-broken 0.002 --skip 0.05
  bisector simulate --graph graph.txt.gz --flip 0.05 --assume-flip 0.01   the search assumes less
                                             noise than there is
The search knows --flip and --sticky, as from a calibration of the ends, unless --assume-… is given.
"""

Early: TypeAlias = Literal["second", "both"]

_SECOND: Final = "second"
_BOTH: Final = "both"
_EARLY = {_SECOND: Durations(), _BOTH: BOTH_EARLY}
_RUNS = {
    None: "none stops early",
    _SECOND: "the second of a kernel stops once it is clear, as with start",
    _BOTH: "both of a kernel stop once they are clear; with start only the second does: --early-stop second",
}


class Simulation(Record, frozen=True, kw_only=True):
    """What ``bisector simulate --json`` prints: what was asked for, and shares, means and ninetieth percentiles."""

    strategy: Annotated[Strategy, "of the searches"]
    commits: Annotated[int, "number of commits in the history"]
    trials: Annotated[int, "number of searches"]
    seed: Annotated[int, "seed of the simulation"]
    early_stop: Annotated[Early | None, "which runs of a kernel stop early; `null` if none does"]
    success_rate: Annotated[float, "share of the searches whose first answer is right"]
    in_set_rate: Annotated[float, "share of the searches whose candidates hold the culprit"]
    set_size_mean: Annotated[float, "mean number of candidates"]
    claimed_mean: Annotated[float, "mean probability that the searches claim"]
    evaluations_mean: Annotated[float, "mean number of completed runs after the ends"]
    evaluations_p90: Annotated[float, "nine of ten searches take at most so many"]
    skips_mean: Annotated[float, "mean number of commits that cannot be tested"]
    vm_hours_mean: Annotated[float, "mean hours of building and measuring"]
    vm_hours_p90: Annotated[float, "nine of ten searches take at most so many"]
    step_ms_mean: Annotated[float, "mean milliseconds in which a commit is chosen"]
    step_ms_max: Annotated[float, "the most milliseconds in which a commit was chosen"]
    not_one_change_rate: Annotated[float, "share of the searches that end because no single change explains the runs"]


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
        type=Strategy,
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
        ("--assume-flip", None, "the --flip that the search assumes"),
        ("--assume-sticky", None, "the --sticky that the search assumes"),
    ):
        verb.add_argument(flag, type=_probability, default=default, metavar="P", help=meaning)
    verb.add_argument("--effect", type=_factor, metavar="F", help="runs have figures, F times as high when fixed")
    verb.add_argument(
        "--spread", type=_spread, default=0.1, metavar="S", help="standard deviation of the figures' logarithm"
    )
    runs = verb.add_mutually_exclusive_group()
    runs.add_argument(
        "--early-stop",
        nargs="?",
        const=_SECOND,
        choices=tuple(_EARLY),
        help=f"which runs of a kernel stop once their verdict is clear:"
        f" the {_SECOND}, as with `start` (without a value), "
        f"or {_BOTH}, for comparing searches (default for bayes)",
    )
    runs.add_argument("--full-runs", action="store_true", help="no run stops early (default for git)")
    verb.add_argument("--trials", type=count, default=500, metavar="N", help="how many searches (default: 500)")
    verb.add_argument("--seed", type=seed, default=1, metavar="N", help="seed (default: 1)")
    add_json(verb)


def simulate(arguments: argparse.Namespace) -> int:
    """Simulate, and say how it went."""
    graph = _graph(arguments)
    conditions = _conditions(arguments)
    noise = told(conditions)
    if arguments.assume_flip is not None:
        noise = replace(noise, old_as_new=_some(arguments.assume_flip), new_as_old=_some(arguments.assume_flip))
    if arguments.assume_sticky is not None:
        noise = replace(noise, sticky=_some(arguments.assume_sticky))
    search = search_for(conditions, noise)
    results = simulation.simulate(
        graph, arguments.strategy, conditions, search, seed=arguments.seed, trials=arguments.trials
    )
    summary = Summary.of(tuple(results))
    if arguments.json:
        asked = {"strategy": arguments.strategy, "trials": arguments.trials, "seed": arguments.seed}
        write_json(Simulation(**asked, commits=len(graph), early_stop=_early_stop(arguments), **asdict(summary)))
    else:
        write(_as_text(arguments, len(graph), summary))
    return 0


def _as_text(arguments: argparse.Namespace, commits: int, summary: Summary) -> str:
    shown = (
        ("searches", f"{arguments.trials} by {arguments.strategy} among {commits:,} commits, seed {arguments.seed}"),
        ("first answer", f"{summary.success_rate:.1%} right, {summary.claimed_mean:.1%} claimed"),
        ("set", f"{summary.in_set_rate:.1%} hold the culprit; {summary.set_size_mean:.2f} commits"),
        ("evaluations", f"{summary.evaluations_mean:.1f}, nine of ten at most {summary.evaluations_p90:.0f}"),
        ("skips", f"{summary.skips_mean:.1f}"),
        ("runs", _RUNS[_early_stop(arguments)]),
        ("VM time", f"{summary.vm_hours_mean:.1f} h, nine of ten at most {summary.vm_hours_p90:.1f} h"),
        ("a step", f"{summary.step_ms_mean:.1f} ms, {summary.step_ms_max:.1f} ms at most"),
    )
    return "".join(f"{name:13}{text}\n" for name, text in shown)


def _graph(arguments: argparse.Namespace) -> RangeGraph:
    if arguments.graph is not None:
        return read_graph(arguments.graph)
    with Repository.open(arguments.repo) as repository:
        old, new = (repository.resolve(rev) for rev in arguments.range)
        wanted = Range(old, new)
        check_range(repository, wanted)
        graph, _ = graph_of_range(repository, wanted)
    return graph


def _conditions(arguments: argparse.Namespace) -> Conditions:
    early = _early_stop(arguments)
    return Conditions(
        old_as_new=arguments.flip if arguments.flip_broken is None else arguments.flip_broken,
        new_as_old=arguments.flip if arguments.flip_fixed is None else arguments.flip_fixed,
        sticky=arguments.sticky,
        skip=arguments.skip,
        relevant=arguments.relevant,
        suspects=arguments.suspects,
        undo=arguments.undo,
        effect=arguments.effect,
        spread=arguments.spread,
        early_stop=early is not None,
        durations=_EARLY[early or _SECOND],
    )


def _early_stop(arguments: argparse.Namespace) -> Early | None:
    unsaid = arguments.early_stop is None and not arguments.full_runs
    asked: Early | None = arguments.early_stop
    return _BOTH if unsaid and arguments.strategy is Strategy.BAYES else asked


def _probability(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a probability from 0 to 1")
    return value


def _factor(text: str) -> float:
    value = float(text)
    if not value > 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a factor above 1")
    return value


def _spread(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return value


def _some(probability: float) -> float:
    """A belief that can still be corrected."""
    return min(max(probability, 1e-6), 1 - 1e-6)
