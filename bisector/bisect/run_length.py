"""How long runs are from now on, once the ends' first readings show whence their noise comes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bisector.analysis.verdicts import Judging
from bisector.bisect.facts import Facts
from bisector.bisect.instructions import Done, Question, Record
from bisector.bisect.stop_rule import Curves
from bisector.core.events import Note
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.search.apart import difference
from bisector.search.run_length import PAIRS, Floats, RunLength, Spread, Trials, advice


@dataclass(frozen=True)
class CoursesOf(Question[tuple[Floats | None, ...]]):
    """The rates in the runs that count of these trials, by fio's logs; None for one without them."""

    trials: tuple[int, ...]


def courses(question: CoursesOf, judging: Judging, run_dir: Path) -> tuple[Floats | None, ...]:
    """The answer to that: of several jobs the one that decides, which is the worst of them."""
    curves = Curves(judging.objective, run_dir, judging.settings.workload.runtime_s)
    trials = dict(judging.trials)
    return tuple(min(curves.rates(trials[n]), key=_mean, default=None) for n in question.trials)


def _mean(rates: Floats) -> float:
    return float(rates.mean()) if rates.size else 0.0


def settle_run_length(facts: Facts) -> Record | None:
    """What the ends' readings show of how long runs should be, for the record; None before they do, and after that.

    Only a rate that fio logs tells what its noise within a run is, and in counted time there is next to none.
    """
    settings, judging = facts.task.settings, facts.judging
    if facts.recorded.run_length is not None or settings.machine.is_counted or not judging.objective.definition.live:
        return None
    readings = judging.ends_in_turn
    read = min(sum(is_new is side for is_new, _ in readings) for side in (False, True))
    if read < PAIRS or (found := _spread(facts, readings)) is None:
        return None
    spread, mean = found
    workload, phases = settings.workload, settings.storage.stack.phases
    effect = max(settings.bisect.least_effect, math.expm1(abs(mean)))
    trials = _trials([trial for _, trial in readings], workload.runtime_s)
    may_shrink = not any(phase.fills for phase in phases)
    told = advice(spread, trials, effect, workload.runtime_s, read=read, may_shrink=may_shrink)
    may_choose = workload.choose_runtime and workload.workload.lasting(workload.values, told.best.runtime_s) is not None
    length = RunLength.of(told, facts.recorded.next_n, may_choose=may_choose)
    return Record((length,), tell=(Note(length.sentence),))


def _spread(facts: Facts, readings: Sequence[tuple[bool, Trial]]) -> tuple[Spread, float] | None:
    """Whence readings of one end differ, and by how much both ends do; None without the logs of two runs of one."""
    judging, runtime_s = facts.judging, facts.task.settings.workload.runtime_s
    numbers = {id(trial): n for n, trial in judging.trials}
    rates = facts.answer(CoursesOf(tuple(numbers[id(trial)] for _, trial in readings)))
    seen = difference([(is_new, judging.score(trial)) for is_new, trial in readings])
    of_ends = [
        [one for (is_new, _), one in zip(readings, rates, strict=True) if is_new is side and one is not None]
        for side in (False, True)
    ]
    spread = None if seen is None else Spread.seen(of_ends, seen.spread, runtime_s)
    return None if seen is None or spread is None else (spread, seen.mean)


def _trials(measured: Sequence[Trial], runtime_s: float) -> Trials:
    """What those on record took on average, with the builds of the first ones, since a search builds kernels, too."""
    runs = fmean(len(trial.runs) for trial in measured)
    return Trials(max(0.0, fmean(trial.timings.total_s for trial in measured) - runs * runtime_s), runs)


def with_other_runs(facts: Facts) -> Done | None:
    """The end of this process's part where another length of runs was chosen: what goes on begins with that."""
    if not facts.has_other_runs:
        return None
    return Done(State.RUNNING, (), (), "it goes on with runs of another length")
