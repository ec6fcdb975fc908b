"""One fio run on a mounted stack in the guest, everything that says what it is worth, and its end once that is clear.

The guest says how the files are called that fio leaves and how large they are, and is not trusted: no name leads out of
a directory, and all of it is bounded. Logs may be large without any fault (without log_avg_msec each I/O is a line, so
that the fastest kernel has the largest), so one that is too large is left out.

fio is listened to while it runs, and is interrupted in its own way, as Ctrl-C does, once its own status shows the side.
"""

import errno
import os
import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

from bisector.core import resources
from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError, KernelFault, UserError
from bisector.core.events import LiveSample
from bisector.core.figures import EarlyStop, JobFigures, Run, phase_name, run_words
from bisector.core.metric import Unit
from bisector.core.setting import AUTO, Form, Meta, Option, Size, WholeSeconds, absolute
from bisector.core.shell import CommandResult, Shell, Step, run_steps
from bisector.core.trial import FaultKind, Stage
from bisector.storage.disks import kernel_fault_in_run
from bisector.workload.base import (
    READ_CLOCK,
    OnSample,
    RunProgress,
    RunSite,
    StopCondition,
    fault,
    guest_disk,
    guest_full,
    lacks,
    watched,
)
from bisector.workload.fio import job_file, output
from bisector.workload.fio.checks import spans

MOST_FILES = 256
# Read of the current directory. Hidden files are the tool's own.
_LISTING = "stat -c '%s %n' -- *"
_LEFT_OUT = "left-out.txt"

# fio names its logs after the job, or as write_iops_log says. Nothing here is a path, or hidden.
_FILE_NAME = re.compile(r"[\w+(][\w.+ :,=@#%()\[\]-]*")
FILE_NAMES = "letters, digits, spaces and _.+:,=@#%()[]-, the first one of which is a letter, a digit or one of _+("
_LONGEST_NAME_BYTES = 200
_LISTED = re.compile(r"(\d{1,20}) (.*)", re.ASCII)
_MOST_BYTES = 256 << 20
_MOST_LOG_BYTES = 64 << 20
_OUTPUTS = "/tmp/bisector"  # noqa: S108 -- the guest's, where nobody else is
_JOB = "job.fio"
_JSON = "fio.json"
_TAIL_LINES = 20
_MOST_LINES = 1_000_000  # of one status, which has about 200 lines a job
_KIB = 1 << 10
_PARSE_DEADLINE_S = 30.0
# Hidden, so that they are not among the files that fio left.
_PID, _EXIT = ".pid", ".exit"
_INTERRUPT_DEADLINE_S = 30.0
# How fio ends a job that it cannot do as it is told to; and a kernel one that it cannot do. If it does so on a commit
# between the ends, an end is asked whose fault that is (bisector.bisect.failures).
_OF_INPUT = frozenset((0, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOENT, errno.ENODEV))
_MOST_WORDS = 4
# A run of more processes is not steered. A status has 6.5 KB for each process (fio 3.33; 8 KB of one that reads and
# writes, with percentiles of all latencies). A run has up to 90 of them, which stay in fio's output file and go through
# the guest's standard error; for more than 64 MiB of either the kernel is at fault (bisector.vm.guest.Bounds).
# With 40 processes a run that is never clear writes 24 to 29 MB.
MOST_STEERED_JOBS = 40


def may_be_called(name: str) -> bool:
    """Whether a file of this name is fetched."""
    return _FILE_NAME.fullmatch(name) is not None and len(name.encode()) <= _LONGEST_NAME_BYTES


def _fetch_files(shell: Shell, listing: str, logs: Path) -> None:
    """Copy what fio left into ``logs``, which has none of it yet, its figures before all others.

    Of the others those that are too large, or too large together, are left out; :data:`_LEFT_OUT` beside names them.
    ``listing`` is what the guest says of the files; raises :class:`KernelFault`.
    """
    sizes: dict[str, int] = {}
    for line in filter(None, listing.split("\n")):
        found = _LISTED.fullmatch(line)
        if found is None or not may_be_called(found[2]):
            called = (found[2] if found else line)[:_LONGEST_NAME_BYTES]
            raise fault(f"fio left a file called {called!r}, which is not the name of a log")
        sizes[found[2]] = int(found[1])
    sizes.pop(_JOB, None)
    if len(sizes) > MOST_FILES:
        raise fault(f"fio left {len(sizes):,} files, and at most {MOST_FILES} are fetched")
    room_bytes = _MOST_BYTES
    left_out = []
    for name, size_bytes in sorted(sizes.items(), key=lambda one: one[0] != _JSON):
        if name != _JSON and size_bytes > min(_MOST_LOG_BYTES, room_bytes):
            left_out.append(f"{name}: {size_bytes:,} bytes\n")
            continue
        shell.get(f"{_OUTPUTS}/{name}", logs / name)
        room_bytes -= (logs / name).stat().st_size
    if left_out:
        why = f"Not fetched: a log of more than {_MOST_LOG_BYTES >> 20} MiB, and all beyond {_MOST_BYTES >> 20} MiB."
        with (logs / _LEFT_OUT).open("a", encoding="utf-8") as note:
            note.writelines((f"{why} log_avg_msec=500 in the job makes logs small.\n", *left_out))


def _job_file(raw: object, base: Path | None) -> Path:
    """A path; a bare name that is no file in ``base`` is one of the tool's own job files."""
    if not isinstance(raw, str):
        raise TypeError(raw)
    given = absolute(raw, base)
    try:
        is_own = "/" not in raw and (base is None or not given.exists())
    except OSError:  # whoever reads it says why it cannot be read
        return given
    return resources.job(raw) if is_own else given


# Read as a table, so laid out as one.
# fmt: off
@dataclass(frozen=True, slots=True)
class FioSettings:
    """The job file, the size of each of its files, and how long a run lasts."""

    job: Annotated[Path, Form("a path", _job_file), Option(
        "workload.job", "partial.fio", "fio job file", flag="--job", metavar="FILE")]
    file_bytes: Annotated[Size, Meta(ge=4096), Option(
        "workload.file_size", AUTO, "file of each job, bytes", flag="--file-size", metavar="SIZE",
        absent=(AUTO, "32MiB, in the profile article 2GiB, and more where that would not fill the cache of a stack"),
        none=0)]
    runtime_s: Annotated[WholeSeconds, Meta(ge=1), Option(
        "workload.runtime", "40s", "length of a run, seconds", "15min", flag="--runtime", metavar="DURATION")]
    # fmt: on


@dataclass(slots=True)
class FioWatch:
    """Listens to fio's standard error: samples for the display, the last lines and, under a ``rule``, the status.

    ``interrupt`` sends SIGINT to fio, so that it writes its logs and figures; ``stop`` says why that was done.
    """

    run: str
    on_sample: OnSample
    rule: StopCondition | None = None
    interrupt: Callable[[], object] = lambda: None
    stop: EarlyStop | None = None
    tail: list[str] = field(default_factory=list)
    _status: list[str] = field(default_factory=list)
    # By job: the seconds of its run time, and how many I/Os, and how much of what the metric counts, were done by then.
    _points: dict[str, list[tuple[float, int, float]]] = field(default_factory=dict)

    def hear(self, line: str) -> None:
        """A line of what fio writes."""
        if (shown := output.parse_status_line(line)) is not None:
            self._sample(*shown)
        elif self.rule is not None and line[:1] in ("", " ", "{", "}"):
            if line == "{" or len(self._status) >= _MOST_LINES:
                self._status = []
            self._status.append(line)
            if line == "}":
                # A status into which something else was written says nothing.
                with suppress(output.OutputUnreadable):
                    self._steer(self.rule, output.parse_json("\n".join(self._status)))
                self._status = []
        elif line.strip():
            self.tail = [*self.tail, line.strip()][-_TAIL_LINES:]

    def _sample(self, iops: float, done_share: float) -> None:
        self.on_sample(LiveSample(self.run, iops, Unit.IOPS, done_share))

    def _steer(self, rule: StopCondition, figures: Sequence[JobFigures]) -> None:
        """Show the IOPS of all jobs since the last status, in the direction that decides, and end a clear run."""
        of_bytes = rule.objective.definition.unit is Unit.BYTES_S
        iops, jobs = 0.0, []
        for job in (one for one in figures if one.direction == rule.objective.io_direction):
            points, now_s = self._points.setdefault(job.name, []), job.runtime_ms / 1000
            since_s, since_ios, _ = points[-1] if points else (0.0, 0, 0.0)
            if now_s > since_s:  # it has begun, and is not over
                # Of bytes fio tells the mean rate.
                points.append((now_s, job.total_ios, job.bw_kib_s * _KIB * now_s if of_bytes else float(job.total_ios)))
                iops += (job.total_ios - since_ios) / (now_s - since_s)
            jobs.append(RunProgress(job.name, [point[0] for point in points], [point[2] for point in points]))
        if self.stop is not None:
            return
        done_s = min((job.at_s[-1] for job in jobs if job.at_s), default=0.0)
        self._sample(iops, min(done_s / rule.runtime_s, 1.0))
        self.stop = rule.met_by(jobs)
        if self.stop is not None:
            self.interrupt()


def run_once(settings: FioSettings, site: RunSite) -> Run:
    """Run the job once with cold page caches, in a directory of its own; JSON and IOPS logs go into ``site.logs``.

    A run ends as soon as ``site.stop`` is met, and says so; that of a job with a ramp_time, of jobs that do not all
    take the whole run, or of more processes than :data:`MOST_STEERED_JOBS`, is always whole.

    A seed is in the job file that is kept of the run, and among the global options in fio's JSON.

    With ``site.keep_files`` the blocks of its files stay taken after the job has unlinked them. Without that ext4 gives
    the next run the very same blocks, which the cache has: it would measure a warm cache, not a full one. A run that
    goes on is given those files again, so that it fills the cache further with what is in it, and needs no more room.
    Raises :class:`UserError` for a job file with an error, a guest without fio and files that do
    not fit, :class:`KernelFault` when I/O fails, :class:`InfraError` for output that cannot be read.
    """
    shell, deadline = site.shell, Deadline(f"the end of the {run_words(site.name)}", site.deadline_s)
    site.logs.mkdir(parents=True, exist_ok=True)
    job = job_file.read(settings.job)
    if site.seed is not None:
        job = job_file.seeded(job, site.seed)
        (site.logs / _JOB).write_text(job, encoding="utf-8")
    sections = job_file.jobs(job)
    told = sum(len(one.processes) for one in sections)
    variables = {"FILE_SIZE": str(settings.file_bytes), "RUNTIME": str(settings.runtime_s)}
    apart = set(spans(sections, variables)) - {(0.0, float(settings.runtime_s))}
    # During a ramp_time fio's status has I/O that its figures in the end have not.
    has_ramp = any("ramp_time" in one.options for one in sections)
    stop = None if apart or has_ramp or told > MOST_STEERED_JOBS else site.stop
    steps = (
        Step(f"rm -rf {_OUTPUTS} && mkdir {_OUTPUTS}", guest_disk),
        Step("sync && echo 3 > /proc/sys/vm/drop_caches", kernel_fault_in_run),
    )
    run_steps(shell, steps, deadline.remaining_s)
    shell.put(job, f"{_OUTPUTS}/{_JOB}")
    kill = f"kill -INT $(cat {_OUTPUTS}/{_PID})"
    watch = FioWatch(site.name, site.on_sample, stop, partial(shell.run, kill, _INTERRUPT_DEADLINE_S))
    ran = watched(site, _command(settings, site, stop), watch.hear, deadline)
    jobs = _jobs(site, ran.finished, watch, settings)
    # The slowest of the others is not the slowest of all.
    lacking = [one for one in job_file.directions(job) if all(job.direction != one for job in jobs)]
    if lacking:
        raise fault(f"fio's output has no figures of a job that {lacking[0]}s", *watch.tail)
    if (reported := len({job.name for job in jobs})) < told:
        raise fault(f"fio's output has figures of {reported} jobs, and {told} were started", *watch.tail)
    # fio may have ended by itself while it was told to.
    stopped = watch.stop if ran.finished.exit_status else None
    if job_file.logs_means(job):
        # NumPy takes most of a second to load, and whoever reads the settings comes by here.
        from bisector.workload.fio import logs  # noqa: PLC0415

        texts = logs.read_logs(site.logs)
        jobs = logs.with_steady_parts(jobs, texts, settings.runtime_s, stopped=stopped is not None)
    return ran.run(jobs, stopped=stopped, tail=tuple(watch.tail))


def _command(settings: FioSettings, site: RunSite, stop: StopCondition | None) -> str:
    """Fio between two readings of the guest's clock; standard output lists the files it left."""
    mountpoint, device = site.stack.mountpoint, site.stack.device
    directory, kept = f"{mountpoint}/{site.name}", f"{mountpoint}/.kept/{phase_name(site.name)}"
    # Before the device fio puts a directory, if the job has one.
    variables = _variables(settings, *(("/", device, site.offset_bytes) if device else (directory,)))
    # Without --output fio gives no status lines at all in JSON mode, and without --eta-newline they end in carriage
    # returns only; with a whole second it misses every other one.
    whole = f"fio --output-format=json --output={_JSON} --eta=always --eta-newline=500ms {_JOB}"
    run = f"{variables} {whole} </dev/null >&2; status=$?"
    if stop is not None:
        # In JSON mode the status takes the place of the status lines. fio 3.33 refuses an interval below a millisecond;
        # an interrupted fio (SIGINT) writes the last document and its logs, too.
        every = f"--status-interval={round(stop.batch_s * 1000)}ms"
        run = steered_command(variables, ("fio", "--output-format=json", every, _JOB), _JSON)
    again = keeper = end = ""
    if site.keep_files and not device:
        # A second link to each file as it appears: what fio unlinks then keeps its blocks, whatever the allocator.
        link = f'[ -e "{kept}/${{file##*/}}" ] || ln "$file" "{kept}/"'
        loop = f"while sleep 1; do for file in {directory}/*; do {link}; done; done"
        keeper = f"mkdir -p {kept}; ({loop}) </dev/null >/dev/null 2>&1 & keeper=$!; "
        end = "kill $keeper; "
        if site.goes_on:
            again = f'for file in {kept}/*; do [ ! -e "$file" ] || ln "$file" {directory}/; done; '
    made = f"mkdir -p {directory} && cd {_OUTPUTS} || exit"
    return f"{made}; {again}{keeper}{READ_CLOCK}; {run}; {READ_CLOCK}; {end}{_LISTING}; exit $status"


def steered_command(variables: str, argv: Sequence[str], json_file: str) -> str:
    """Shell text that runs fio in the current directory, its output in a file and on standard error; sets ``status``.

    The exit status goes by way of a file, since a pipeline has only that of its last command.
    """
    start = f'sh -c \'echo $$ > {_PID}; exec "$0" "$@"\' {shlex.join(argv)} </dev/null'
    return f"{{ {variables} {start}; echo $? > {_EXIT}; }} | tee {json_file} >&2; read -r status < {_EXIT}"


def _variables(settings: FioSettings, directory: str, device: str = "device", offset: int = 0) -> str:
    """The variables that job files may use, for fio's own ``${NAME}`` expansion; it takes no empty value.

    On a stack with a file system ``device`` is the name of a file in the directory.
    """
    sizes = {"FILE_SIZE": settings.file_bytes, "RUNTIME": settings.runtime_s}
    places = {"DIRECTORY": directory, "DEVICE": device, "OFFSET": offset}
    return " ".join(f"{name}={shlex.quote(str(value))}" for name, value in {**sizes, **places}.items())


def _jobs(site: RunSite, finished: CommandResult, watch: FioWatch, settings: FioSettings) -> tuple[JobFigures, ...]:
    """Fetch what fio left and read it; fio's own errors come first, unreadable output last."""
    shell, json_file, tail = site.shell, site.logs / _JSON, watch.tail
    _fetch_files(shell, finished.stdout, site.logs)
    # fio makes the file before it reads the job file: none or an empty one says the same.
    text = json_file.read_text(encoding="utf-8", errors="replace") if json_file.exists() else ""
    if watch.rule is not None:
        text = output.last_document(text)
        json_file.write_text(text, encoding="utf-8")
    has_failed = finished.exit_status not in ((0, output.INTERRUPTED) if watch.stop else (0,))
    failed = fault(": ".join(("fio", f"exit {finished.exit_status}", *tail[-1:])), *tail)
    try:
        jobs = output.parse_json(text)
    except output.OutputUnreadable as error:
        if has_failed:
            raise _not_started(shell, watch, settings) or failed from error
        # What is complete and cannot be was told by the guest, whose clock and counters are its kernel's.
        if isinstance(error, output.FigureImpossible):
            raise fault(str(error)) from error
        # fio ended well and its output is cut off: a full disk in the guest, or a fault of the tool.
        free = shell.run(f"stat -f -c %a {_OUTPUTS}")
        raise guest_full() if free.stdout.strip() == "0" else InfraError(str(error)) from error
    if finished.exit_status and not any(job.total_ios for job in jobs) and {job.error for job in jobs} <= _OF_INPUT:
        words = "; ".join(tail[-_MOST_WORDS:])
        raise UserError(f"workload.job: {settings.job}: fio did no I/O, and said: {words}", "fio(1) has its options")
    for job in (one for one in jobs if one.error):
        what = f"fio: job {job.name}: {errno.errorcode.get(job.error, job.error)} ({os.strerror(job.error)})"
        if job.error == errno.ENOSPC:
            raise UserError(
                f"{what}: its files of {settings.file_bytes // _KIB:,} KiB each do not fit on the stack",
                f"make workload.file_size smaller, or the disk larger ({site.stack.room})",
            )
        said = next((line for line in tail if f"err={job.error}/" in line), "")
        raise KernelFault(Stage.WORKLOAD, FaultKind.IO_ERROR, f"{what} {said}".strip(), tuple(tail))
    if has_failed:
        raise failed
    return jobs


def _not_started(shell: Shell, watch: FioWatch, settings: FioSettings) -> UserError | None:
    """Why fio left no figures, asked of the guest only now: a good run pays no round trip for it.

    Raises what is wrong with the guest or with the job file. fio looks for its I/O engine only when it runs.
    """

    def refused(said: str) -> UserError:
        hint = f"check it with: fio --parse-only {settings.job}"
        return UserError(f"workload.job: {settings.job}: {output.complaint(said)}", hint)

    check = f"cd {_OUTPUTS} && {_variables(settings, '/')} fio --parse-only {_JOB}"
    steps = (Step("command -v fio", partial(lacks, "fio")), Step(check, lambda failed: refused(failed.stderr)))
    run_steps(shell, steps, _PARSE_DEADLINE_S)
    lacks_engine = any(line.startswith("fio: engine ") and line.endswith(" not loadable") for line in watch.tail)
    return refused("\n".join(watch.tail)) if lacks_engine else None
