"""Ends a run of fio once its side is clear: listens to fio's own status, and interrupts it in its own way."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bisector.analysis.early_stop import Progress, StopRule, decide
from bisector.core.figures import EarlyStop, JobFigures
from bisector.core.model import Shell
from bisector.workload.fio import output as fio

OnStatus = Callable[[float, float], None]

# Hidden, so that they are not among the files that fio left.
_PID, _EXIT = ".pid", ".exit"
_INTERRUPT_DEADLINE_S = 30.0
# A run of more processes is not steered. A status has 6.5 KB for each process (fio 3.33; 8 KB of one that reads and
# writes, with percentiles of all latencies). A run has up to 90 of them, which stay in fio's output file and go through
# the guest's standard error; for more than 64 MiB of either the kernel is at fault (bisector.vm.guest.Bounds). With 40
# processes a run that is never clear writes 24 to 29 MB.
MOST_JOBS = 40


@dataclass(slots=True)
class Steering:
    """One run under a rule; ``stop`` is set when fio was told to end.

    ``interrupt`` sends SIGINT to fio, so that it writes its logs and figures; ``on_status`` gets the IOPS of all
    jobs since the last status, and the share of the run that is done.
    """

    rule: StopRule
    interrupt: Callable[[], None]
    on_status: OnStatus
    stop: EarlyStop | None = None
    _reader: fio.StatusReader = field(default_factory=fio.StatusReader)
    _points: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def hear(self, line: str) -> None:
        """A line of what fio writes."""
        figures = self._reader.hear(line)
        if figures is None:
            return
        reading = [job for job in figures if job.direction == "read"]
        iops = sum(self._note(job) for job in reading)
        if self.stop is not None:
            return
        jobs = [_progress(job.name, self._points[job.name]) for job in reading]
        done_s = min((float(job.at_s[-1]) for job in jobs if job.at_s.size), default=0.0)
        self.on_status(iops, min(done_s / self.rule.runtime_s, 1.0))
        self.stop = decide(self.rule, jobs)
        if self.stop is not None:
            self.interrupt()

    def _note(self, job: JobFigures) -> float:
        """Add what a job has done; its IOPS since the status before."""
        points = self._points.setdefault(job.name, [])
        (since_s, ios), now_s = (points[-1] if points else (0.0, 0.0)), job.runtime_ms / 1000
        if now_s <= since_s:  # not begun, or over
            return 0.0
        points.append((now_s, float(job.total_ios)))
        return (job.total_ios - ios) / (now_s - since_s)


def _progress(name: str, points: list[tuple[float, float]]) -> Progress:
    table = np.array(points, dtype=np.float64).reshape(-1, 2)
    return Progress(name, table[:, 0], table[:, 1])


def command(variables: str, argv: Sequence[str], output: str) -> str:
    """Shell text that runs fio in the current directory, its output in a file and on standard error; sets ``status``.

    The exit status goes by way of a file, since a pipeline has only that of its last command.
    """
    start = f'sh -c \'echo $$ > {_PID}; exec "$0" "$@"\' {shlex.join(argv)} </dev/null'
    return f"{{ {variables} {start}; echo $? > {_EXIT}; }} | tee {output} >&2; read -r status < {_EXIT}"


def interrupt(shell: Shell, directory: str) -> None:
    """End the fio that :func:`command` runs there, as Ctrl-C does. It may have ended meanwhile."""
    shell.run(f"kill -INT $(cat {directory}/{_PID})", _INTERRUPT_DEADLINE_S)
