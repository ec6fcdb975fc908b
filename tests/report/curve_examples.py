"""Runs with IOPS logs: those of two real runs of 40 s, the cache full, one kernel on each side; and made-up ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from bisector.core.figures import EarlyStop, StopReason
from bisector.report.plots import Logged, TracedKernel
from bisector.workload.fio.logs import Series, parse_log
from tests import examples

LOGS = Path(__file__).parent.parent / "data" / "fio"
STOP = EarlyStop(StopReason.ABOVE, 20.25, 1500.0, 1363.0, "every job is above 1,500")


def log_text(kind: str, job: int) -> str:
    return (LOGS / f"{kind}-full_iops.{job}.log").read_text()


def real(kind: str, name: str = "full") -> Logged:
    return Logged(examples.run(name, 500.0, 500.0), tuple(parse_log(log_text(kind, job)) for job in (1, 2)))


def steady(*iops: float, name: str = "full", seconds: int = 10, stop: EarlyStop | None = None) -> Logged:
    """Jobs that never change their pace, a value each second."""
    end_ms = np.arange(1, seconds + 1, dtype=np.float64) * 1000
    logs = tuple(Series(end_ms - 1000, end_ms, np.full(seconds, pace)) for pace in iops)
    return Logged(replace(examples.run(name, *iops), stopped_early=stop), logs)


def both_sides() -> tuple[TracedKernel, TracedKernel]:
    return (
        TracedKernel("aaaaaaaaaaaa (broken)", (real("fixed", "empty"), real("broken"))),
        TracedKernel("bbbbbbbbbbbb (fixed)", (real("fixed", "empty"), real("fixed"))),
    )
