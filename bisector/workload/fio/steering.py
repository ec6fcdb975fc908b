"""Ends a run of fio once its side is clear: listens to fio's own status, and interrupts it in its own way."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bisector.core.figures import EarlyStop, JobFigures
from bisector.core.metric import Unit
from bisector.core.shell import Shell
from bisector.workload.base import Progress, StopCondition
from bisector.workload.fio import output as fio

OnStatus = Callable[[float, float], None]

# Hidden, so that they are not among the files that fio left.
_PID, _EXIT = ".pid", ".exit"
_INTERRUPT_DEADLINE_S = 30.0
# A run of more processes is not steered. A status has 6.5 KB for each process (fio 3.33; 8 KB of one that reads and
# writes, with percentiles of all latencies). A run has up to 90 of them, which stay in fio's output file and go through
# the guest's standard error; for more than 64 MiB of either the kernel is at fault (bisector.vm.guest_output.Bounds).
# With 40 processes a run that is never clear writes 24 to 29 MB.
MOST_JOBS = 40
_BYTES_PER_KIB = 1024


class _Point(NamedTuple):
    """How much a job had done by a second of its run time: I/Os, and what the metric counts."""

    at_s: float = 0.0
    ios: int = 0
    done: float = 0.0


@dataclass(slots=True)
class Steering:
    """One run under a rule; ``stop`` is set when fio was told to end.

    ``interrupt`` sends SIGINT to fio, so that it writes its logs and figures; ``on_status`` gets the IOPS of all
    jobs since the last status, in the direction that decides, and the share of the run that is done.
    """

    rule: StopCondition
    interrupt: Callable[[], None]
    on_status: OnStatus
    stop: EarlyStop | None = None
    _reader: fio.StatusReader = field(default_factory=fio.StatusReader)
    _points: dict[str, list[_Point]] = field(default_factory=dict)

    def hear(self, line: str) -> None:
        """A line of what fio writes."""
        figures = self._reader.hear(line)
        if figures is None:
            return
        deciding = [job for job in figures if job.direction == self.rule.objective.io_direction]
        iops = sum(self._note(job) for job in deciding)
        if self.stop is not None:
            return
        jobs = [_progress(job.name, self._points[job.name]) for job in deciding]
        done_s = min((float(job.at_s[-1]) for job in jobs if job.at_s.size), default=0.0)
        self.on_status(iops, min(done_s / self.rule.runtime_s, 1.0))
        self.stop = self.rule.met_by(jobs)
        if self.stop is not None:
            self.interrupt()

    def _note(self, job: JobFigures) -> float:
        """Add what a job has done; its IOPS since the status before."""
        points = self._points.setdefault(job.name, [])
        since, now_s = points[-1] if points else _Point(), job.runtime_ms / 1000
        if now_s <= since.at_s:  # not begun, or over
            return 0.0
        points.append(_Point(now_s, job.total_ios, self._done(job, now_s)))
        return (job.total_ios - since.ios) / (now_s - since.at_s)

    def _done(self, job: JobFigures, now_s: float) -> float:
        """What the job has done of what the metric counts: I/Os, or bytes, of which fio tells the mean rate."""
        of_bytes = self.rule.objective.definition.unit is Unit.BYTES_S
        return job.bw_kib_s * _BYTES_PER_KIB * now_s if of_bytes else float(job.total_ios)


def _progress(name: str, points: Sequence[_Point]) -> Progress:
    at_s = np.array([point.at_s for point in points], dtype=np.float64)
    return Progress(name, at_s, np.array([point.done for point in points], dtype=np.float64))


def command(variables: str, argv: Sequence[str], output: str) -> str:
    """Shell text that runs fio in the current directory, its output in a file and on standard error; sets ``status``.

    The exit status goes by way of a file, since a pipeline has only that of its last command.
    """
    start = f'sh -c \'echo $$ > {_PID}; exec "$0" "$@"\' {shlex.join(argv)} </dev/null'
    return f"{{ {variables} {start}; echo $? > {_EXIT}; }} | tee {output} >&2; read -r status < {_EXIT}"


def interrupt(shell: Shell, directory: str) -> None:
    """End the fio that :func:`command` runs there, as Ctrl-C does. It may have ended meanwhile."""
    shell.run(f"kill -INT $(cat {directory}/{_PID})", _INTERRUPT_DEADLINE_S)
