"""By which other metric of the same runs two ends differ that are the same by the one that was asked for; pure."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from bisector.analysis.comparison import holm
from bisector.analysis.ends import times_text
from bisector.core.errors import InfraError, UserError
from bisector.core.figures import Run
from bisector.core.objective import WORST, Objective, available
from bisector.search.difference import Difference, difference, p_value

# Of all metrics that were looked at none is named by chance more often than so (Holm 1979).
_BEYOND_DOUBT = 1e-3


def differing(runs: Sequence[tuple[bool, Run]], asked: Objective) -> str | None:
    """What to choose instead, for a person: the metric that differs most surely; None where none does beyond doubt.

    ``runs`` are those of both ends in the order of measuring, True for the new one.
    """
    found = list(_differences(runs, asked))
    adjusted = holm([p_value(one.mean / one.error, one.freedom) for _, one in found])
    sure = [(p, place) for place, p in enumerate(adjusted) if p <= _BEYOND_DOUBT]
    if not sure:
        return None
    objective, seen = found[min(sure)[1]]
    return (
        f"by {objective.label} they differ: {times_text(seen, objective)}, the surest of {len(found)} metrics:"
        f" --metric {objective.metric}"
    )


def _differences(runs: Sequence[tuple[bool, Run]], asked: Objective) -> Iterator[tuple[Objective, Difference]]:
    """Of each metric that all runs have a value of; without any spread nothing is known of the noise."""
    for name in available(runs[0][1]):
        objective = replace(asked, metric=name)
        if not objective.is_of_jobs:
            objective = replace(objective, over=WORST)
        if name == asked.metric:
            continue
        with suppress(UserError, InfraError):  # nothing of it is better, or there is no value, or none above zero
            objective.check()
            seen = difference([(is_new, objective.score(objective.value(run))) for is_new, run in runs])
            if seen is not None and seen.error:
                yield objective, seen
