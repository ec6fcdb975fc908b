"""The curves of a trial, from the logs of IOPS beside the record."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bisector.core.figures import Run
from bisector.core.trial import Trial
from bisector.host.inside import inside
from bisector.report.curves import Logged
from bisector.store import artifacts
from bisector.workload.fio.series import LogUnreadable, Series, parse_iops_log

_LOG = "*_iops*.log"


@dataclass(frozen=True, slots=True)
class Traced:
    """The runs of a trial with their logs, and a sentence for each log that could not be read."""

    runs: tuple[Logged, ...]
    complaints: tuple[str, ...]


def traced(trial: Trial, run_dir: Path, direction: str) -> Traced:
    """Every log of a trial in a direction of I/O; what is missing or damaged is complained of and left out."""
    complaints: list[str] = []
    runs = tuple(Logged(run, tuple(_logs(trial, run, direction, run_dir, complaints))) for run in trial.runs)
    return Traced(runs, tuple(complaints))


def _logs(trial: Trial, run: Run, direction: str, run_dir: Path, complaints: list[str]) -> Iterator[Series]:
    for path in _paths(trial, run):
        try:
            series = parse_iops_log(inside(run_dir, path).read_text(encoding="utf-8"), direction)
        except (UnicodeDecodeError, LogUnreadable) as error:
            complaints.append(f"{path}: {error}")
        except OSError as error:
            complaints.append(f"{path}: {error.strerror}")
        else:
            if series.end_ms.size:
                yield series


def _paths(trial: Trial, run: Run) -> list[str]:
    """In the order of the jobs, whose numbers are in the names (fio(1), per_job_logs): 2 comes before 10."""
    named = ((Path(one.name), one.path) for one in artifacts.of_run(trial.artifacts, run.name))
    mine = [(name.name, path) for name, path in named if name.match(_LOG)]
    return [path for _, path in sorted(mine, key=lambda one: [int(number) for number in re.findall(r"\d+", one[0])])]
