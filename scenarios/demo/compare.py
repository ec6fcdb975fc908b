"""What ``--strategy git`` would have taken: git's midpoints, replayed over the known truth of the history.

The truth is what the history was made with; the seconds are means of the run that is compared with. As in a run
by that strategy, the answer and its parents are measured again by whole runs where one was stopped early.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bisector.core import units
from bisector.core.verdict import Verdict
from bisector.git.ranges import Range, graph_of_range
from bisector.git.repository import Repository
from bisector.search.graph import Kernel, RangeGraph, Reading, SearchFacts
from bisector.search.simulate.runs import next_commit
from scenarios.demo.history import History, MadeCommit

_ENDS = 2
_UNTESTABLE = {"no-build": 1, "panic": 2}  # a panic is believed the second time
_STOPPED = "stopped early"
_WHOLE = "whole"
_REUSED = "reused"


@dataclass(frozen=True, slots=True)
class Taken:
    """Trials, and their seconds."""

    trials: int
    seconds: float


def taken(status: Mapping[str, Any]) -> Taken:
    """What a run took, from ``status --json``."""
    return Taken(len(status["trials"]), sum(trial["total_s"] for trial in status["trials"]))


def by_git(graph: RangeGraph, shas: Sequence[str], made: History, status: Mapping[str, Any]) -> Taken:
    """What ``--strategy git`` would have taken at this run's times."""
    commits = {commit.sha: commit for commit in made.commits}
    culprit = shas.index(made.culprit.sha)
    costs = _costs(status["trials"])
    whole = {commits[made.old].kernel, commits[made.new].kernel}
    known = set(whole)
    facts, trials = SearchFacts(), _ENDS
    seconds = sum(trial["total_s"] for trial in status["trials"][:_ENDS])
    while isinstance(step := next_commit(graph, facts, shas), int):
        commit = commits[shas[step]]
        kind, times = _kind(commit, known)
        trials += times
        seconds += times * costs[kind]
        if commit.effect in _UNTESTABLE:
            facts = facts.with_skip(step)
        else:
            known.add(commit.kernel)
            verdict = Verdict.NEW if graph.ancestors(step)[culprit] else Verdict.OLD
            facts = facts.with_reading(Reading(step, Kernel.COMMIT, verdict))
    if any(_is_stopped(trial) for trial in status["trials"]):
        tried = {reading.commit for reading in facts.readings}
        rests_on = {commits[shas[number]].kernel for number in {*graph.parents[culprit], culprit} & tried}
        again = len(rests_on - whole)
        trials += again
        seconds += again * costs[_WHOLE]
    return Taken(trials, seconds)


def sentence(made: History, status: Mapping[str, Any]) -> str:
    """The run beside git's, with what was assumed."""
    repository = Repository.open(Path(made.repo))
    old, new = repository.commits((made.old, made.new))
    graph, shas = graph_of_range(repository, Range(old, new))
    return beside(taken(status), by_git(graph, shas, made, status), status)


def beside(ours: Taken, its: Taken, status: Mapping[str, Any]) -> str:
    """What both took, and what this run has for it: one says how sure it is, the other believes every verdict."""
    probability = status.get("probability")
    sure = f" for an answer with {units.share(probability)}" if probability else ""
    return (
        f"{status['strategy']} took {ours.trials} trials, {_minutes(ours.seconds)} min{sure}, its confirmation among"
        f" them; --strategy git would take {its.trials} trials, {_minutes(its.seconds)} min, if no verdict is wrong,"
        " and says neither how sure it is nor confirms (its midpoints, replayed with the known verdicts at this run's"
        " mean times)"
    )


def _kind(commit: MadeCommit, known: set[str]) -> tuple[str, int]:
    if commit.effect in _UNTESTABLE:
        return commit.effect, _UNTESTABLE[commit.effect]
    return (_REUSED if commit.kernel in known else _STOPPED), 1


def _is_stopped(trial: Mapping[str, Any]) -> bool:
    return any(run["stopped_early"] for run in trial["runs"])


def _costs(trials: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean seconds by what became of a trial after the ends, those of any of them where there was none of a kind."""
    found: dict[str, list[float]] = {}
    for trial in trials[_ENDS:]:
        fault = trial["fault"]
        if fault is not None:
            kind = "no-build" if fault["stage"] == "build" else "panic"
        else:
            kind = _REUSED if trial["same_kernel_as"] else _STOPPED if _is_stopped(trial) else _WHOLE
        found.setdefault(kind, []).append(trial["total_s"])
    for kind, stand_in in ((_STOPPED, _WHOLE), (_WHOLE, _STOPPED)):
        found.setdefault(kind, found.get(stand_in, []))
    otherwise = fmean(trial["total_s"] for trial in trials)
    return {
        kind: fmean(found[kind]) if found.get(kind) else 0.0 if kind == _REUSED else otherwise
        for kind in (*_UNTESTABLE, _STOPPED, _WHOLE, _REUSED)
    }


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f}"
