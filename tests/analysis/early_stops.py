"""What a stop rule makes of a run that reports as it goes."""

from bisector.analysis.early_stop import Floats, StopRule
from bisector.core.figures import EarlyStop
from bisector.workload.base import Progress

LINE = 12_000.0
LENGTHS_S = (900.0, 40.0)


def stop_of(rule: StopRule, at_s: Floats, ios: Floats, first: int = 0) -> EarlyStop | None:
    """What becomes of a run that reports at these seconds."""
    for n in range(first + 1, at_s.size + 1):
        jobs = [Progress(f"job/{job}", at_s[:n].tolist(), done[:n].tolist()) for job, done in enumerate(ios, 1)]
        if (stop := rule.met_by(jobs)) is not None:
            return stop
    return None
