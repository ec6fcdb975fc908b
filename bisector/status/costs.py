"""What trials of a search take, as far as its own have shown."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from bisector.analysis.verdicts import Judging
from bisector.core.trial import Timings, Trial
from bisector.core.verdict import Verdict
from bisector.search.choice import Costs

# A trial and the side it is on.
_Judged: TypeAlias = tuple[Trial, Verdict]

_MIN_S = 60.0


def costs_of(judging: Judging) -> Costs:
    """Minutes as they were measured here, the defaults where nothing was."""
    default, sound = Costs(), judging.sound()
    builds = [trial.timings.build_s for _, trial in judging.trials if trial.timings.build_s]
    faulty = [trial.timings.total_s for _, trial in judging.trials if trial.fault is not None]
    whole = [trial for trial, _ in sound if trial.bears_answer]
    # An end's run after a short fill is neither: it goes on until it is like the whole one, and comes once.
    early = [one for one in sound if not one[0].bears_answer and one[0].commit.sha not in (judging.old, judging.new)]
    usual = replace(
        default,
        build_min=_minutes(builds, default.build_min),
        build_spare=max(builds) * len(builds) / math.fsum(builds) if builds else 1.0,
        setup_min=_minutes([_beside_s(t.timings) for t, _ in sound], default.setup_min),
        old_run_min=_minutes(_runs_s(early, sound, Verdict.OLD), default.old_run_min),
        new_run_min=_minutes(_runs_s(early, sound, Verdict.NEW), default.new_run_min),
        whole_run_min=_minutes([trial.timings.workload_s for trial in whole], default.whole_run_min),
        skip_min=_minutes(faulty, _minutes(builds, default.skip_min)),
    )
    counted = (*whole, *(trial for trial, _ in early))
    longer = (_besides_build_min(trial) / usual.longest(0.0, whole=trial.bears_answer) for trial in counted)
    return replace(usual, spare=max((1.0, *longer)))


def _runs_s(early: Sequence[_Judged], sound: Sequence[_Judged], side: Verdict) -> list[float]:
    """Seconds of the runs to be expected of a side: most are stopped early, and if none of its own was, like others."""
    of_side = [[trial for trial, one in trials if one is side] for trials in (early, sound)]
    expected = of_side[0] or [trial for trial, _ in early] or of_side[1]
    return [trial.timings.workload_s for trial in expected]


def _besides_build_min(trial: Trial) -> float:
    return (_beside_s(trial.timings) + trial.timings.workload_s) / _MIN_S


def _beside_s(timings: Timings) -> float:
    """What is neither a build nor a run: boot and storage, and all that is ours."""
    return max(timings.boot_s + timings.storage_s, timings.total_s - timings.build_s - timings.workload_s)


def _minutes(seconds: list[float], otherwise: float) -> float:
    mean = math.fsum(seconds) / len(seconds) / _MIN_S if seconds else 0.0
    return mean or otherwise
