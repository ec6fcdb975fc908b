"""Whether a percentile of a run's latencies rests on enough I/Os.

A percentile is as sure as the I/Os beyond it are many: of 300 I/Os three lie beyond p99, and one slow one more moves it
anywhere between them. :data:`LEAST_BEYOND` of them take 1,000 I/Os for p99, and 10,000 for p99.9.
"""

import math
import re
from collections.abc import Iterable
from decimal import Decimal

from bisector.core.figures import Run
from bisector.core.objective import OVER, Objective

LEAST_BEYOND = 10
_PERCENTILE = re.compile(r".*\.p(?P<percent>\d{1,3}(?:\.\d{1,12})?)")
_WHOLE = Decimal(100)


def thin_tail(objective: Objective, runs: Iterable[Run]) -> str:
    """What is to be known of a percentile that decides, of the job with the fewest I/Os; empty where they suffice."""
    if (share := _share_beyond(objective.metric)) is None:
        return ""
    jobs = [
        (job.total_ios, job.name)
        for run in runs
        for job in run.jobs
        if job.direction == objective.io_direction and objective.over in (job.name, *OVER) and job.total_ios
    ]
    needed = math.ceil(LEAST_BEYOND / share)
    ios, name = min(jobs, default=(needed, ""))
    if ios >= needed:
        return ""
    beyond = int(ios * share)
    of_them = f"about {beyond} of them lie" if beyond > 1 else "one of them lies" if beyond else "none of them lies"
    return (
        f"{objective.metric} of {ios:,} I/Os of job {name}: {of_them} beyond it, which is chance; {LEAST_BEYOND} take "
        f"{needed:,} I/Os"
    )


def _share_beyond(metric: str) -> Decimal | None:
    """The share of I/Os on the thinner side of a percentile; None for what is none, and where nothing is beyond it."""
    found = _PERCENTILE.fullmatch(metric)
    if found is None:
        return None
    percent = Decimal(found["percent"])
    thinner = min(percent, _WHOLE - percent) / _WHOLE
    return thinner if thinner > 0 else None
