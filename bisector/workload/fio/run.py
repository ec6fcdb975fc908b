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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

from bisector.core import resources
from bisector.core.deadline import Deadline
from bisector.core.errors import BisectorError, InfraError, KernelFault, UserError
from bisector.core.events import LiveSample
from bisector.core.figures import EarlyStop, JobFigures, Run, phase_name, run_words
from bisector.core.metric import Unit
from bisector.core.setting import AUTO, Form, Meta, Option, Size, WholeSeconds, absolute
from bisector.core.shell import CommandResult, FailedStep, Shell, Step, run_steps
from bisector.core.trial import FaultKind, Stage
from bisector.workload.base import READ_CLOCK, OnSample, RunProgress, RunSite, StopCondition, watched
from bisector.workload.fio import job_file, output
from bisector.workload.fio.checks import spans

MOST_FILES = 256
# What :func:`listed_files` reads, of the current directory. Hidden files are ours.
LISTING = "stat -c '%s %n' -- *"
_LEFT_OUT = "left-out.txt"

# fio names its logs after the job, or as write_iops_log says. Nothing here is a path, or hidden.
_FILE_NAME = re.compile(r"[\w+(][\w.+ :,=@#%()\[\]-]*")
FILE_NAMES = "letters, digits, spaces and _.+:,=@#%()[]-, the first one of which is a letter, a digit or one of _+("
_LONGEST_NAME_BYTES = 200
_LISTED = re.compile(r"(\d{1,20}) (.*)", re.ASCII)
_MOST_BYTES = 256 << 20
_MOST_LOG_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class LeftFile:
    """A file by its name, with its size as the guest tells it."""

    name: str
    size_bytes: int


def may_be_called(name: str) -> bool:
    """Whether a file of this name is fetched."""
    return _FILE_NAME.fullmatch(name) is not None and len(name.encode()) <= _LONGEST_NAME_BYTES


def listed_files(text: str, ours: str) -> tuple[LeftFile, ...]:
    """What :data:`LISTING` printed, but for the file ``ours``; raises :class:`KernelFault`."""
    files = tuple(dict.fromkeys(one for one in _files(text) if one.name != ours))
    if len(files) > MOST_FILES:
        raise _left_too_much(f"{len(files):,} files, and at most {MOST_FILES} are fetched")
    return files


def fetch_files(shell: Shell, directory: str, files: Sequence[LeftFile], needed: str, logs: Path) -> None:
    """Copy them from the guest's directory into ``logs``, which has none of them yet, ``needed`` before all others.

    Of the others those that are too large, or too large together, are left out; :data:`_LEFT_OUT` beside names them.
    """
    room_bytes = _MOST_BYTES
    left_out = []
    for file in sorted(files, key=lambda one: one.name != needed):
        if file.name != needed and file.size_bytes > min(_MOST_LOG_BYTES, room_bytes):
            left_out.append(f"{file.name}: {file.size_bytes:,} bytes\n")
            continue
        shell.get(f"{directory}/{file.name}", logs / file.name)
        room_bytes -= (logs / file.name).stat().st_size
    if left_out:
        why = f"Not fetched: a log of more than {_MOST_LOG_BYTES >> 20} MiB, and all beyond {_MOST_BYTES >> 20} MiB."
        with (logs / _LEFT_OUT).open("a", encoding="utf-8") as note:
            note.writelines((f"{why} log_avg_msec=500 in the job makes logs small.\n", *left_out))


def _files(text: str) -> Iterator[LeftFile]:
    for line in filter(None, text.split("\n")):
        found = _LISTED.fullmatch(line)
        if found is None or not may_be_called(found[2]):
            called = found[2] if found else line
            raise _left_too_much(f"a file called {called[:_LONGEST_NAME_BYTES]!r}, which is no name of a log")
        yield LeftFile(found[2], int(found[1]))


def _left_too_much(what: str) -> KernelFault:
    return KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, f"fio left {what}")


_OUTPUTS = "/tmp/bisector"  # noqa: S108 -- the guest's, where nobody else is
_JOB = "job.fio"
_JSON = "fio.json"
_TAIL_LINES = 20
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

_OnStatus = Callable[[float, float], None]


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
    on_status: _OnStatus
    stop: EarlyStop | None = None
    _reader: output.StatusReader = field(default_factory=output.StatusReader)
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
        done_s = min((job.at_s[-1] for job in jobs if job.at_s), default=0.0)
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
        return job.bw_kib_s * _KIB * now_s if of_bytes else float(job.total_ios)


def _progress(name: str, points: Sequence[_Point]) -> RunProgress:
    return RunProgress(name, [point.at_s for point in points], [point.done for point in points])


@dataclass(slots=True)
class _FioWatch:
    """Listens to fio's standard error: samples for the display, the last lines.

    ``room`` are the settings that make the file system larger.
    """

    run: str
    on_sample: OnSample
    room: str = ""
    steered: Steering | None = None
    tail: list[str] = field(default_factory=list)

    def hear(self, line: str) -> None:
        if (status := output.parse_status_line(line)) is not None:
            self.sample(status.iops, status.done_share)
        elif self.steered is not None and line[:1] in ("", " ", "{", "}"):
            self.steered.hear(line)
        elif line.strip():
            self.tail = [*self.tail, line.strip()][-_TAIL_LINES:]

    def sample(self, iops: float, done_share: float) -> None:
        self.on_sample(LiveSample(self.run, iops, Unit.IOPS, done_share))

    @property
    def early_stop(self) -> EarlyStop | None:
        """Why fio was told to end before its time."""
        return self.steered.stop if self.steered is not None else None


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
    told = job_file.counted(settings.job, job_file.processes, job)
    variables = {"FILE_SIZE": str(settings.file_bytes), "RUNTIME": str(settings.runtime_s)}
    apart = set(spans(job_file.jobs(job), variables)) - {(0.0, float(settings.runtime_s))}
    stop = None if apart or job_file.has_ramp(job) or told > MOST_STEERED_JOBS else site.stop
    _prepare(shell, job, deadline)
    watch = _FioWatch(site.name, site.on_sample, site.stack.room)
    if stop is not None:
        watch.steered = Steering(stop, lambda: _interrupt(shell, _OUTPUTS), watch.sample)
    command = _command(settings, site, stop)
    ran = watched(site, command, watch.hear, deadline)
    jobs = _jobs(shell, ran.finished, watch, settings, site.logs)
    _all_there(jobs, told, job_file.directions(job), watch)
    # fio may have ended by itself while it was told to.
    stopped = watch.early_stop if ran.finished.exit_status else None
    if job_file.logs_means(job):
        # NumPy takes most of a second to load, and whoever reads the settings comes by here.
        from bisector.workload.fio import logs  # noqa: PLC0415

        texts = logs.read_logs(site.logs)
        jobs = logs.with_steady_parts(jobs, texts, settings.runtime_s, stopped=stopped is not None)
    return ran.run(jobs, stopped=stopped, tail=tuple(watch.tail))


def _prepare(shell: Shell, job: str, deadline: Deadline) -> None:
    """An empty directory for outputs, the job file in it, cold caches."""
    steps = (
        Step(f"rm -rf {_OUTPUTS} && mkdir {_OUTPUTS}", _guest_disk),
        Step("sync && echo 3 > /proc/sys/vm/drop_caches", _kernel_fault),
    )
    run_steps(shell, steps, deadline.remaining_s)
    shell.put(job, f"{_OUTPUTS}/{_JOB}")


def _command(settings: FioSettings, site: RunSite, stop: StopCondition | None = None) -> str:
    """Fio between two readings of the guest's clock; standard output lists the files it left."""
    mountpoint, device = site.stack.mountpoint, site.stack.device
    directory, keeps = f"{mountpoint}/{site.name}", site.keep_files and not device
    kept = f"{mountpoint}/.kept/{phase_name(site.name)}"
    # Before the device fio puts a directory, if the job has one.
    on_device = "/", device, site.offset_bytes
    variables = _variables(settings, *on_device) if device else _variables(settings, directory)
    run = f"{variables} {shlex.join(output.argv(_JOB, _JSON))} </dev/null >&2; status=$?"
    if stop is not None:
        run = steered_command(variables, output.steered_argv(_JOB, stop.batch_s), _JSON)
    keeper, end = (_keeper(directory, kept), "kill $keeper; ") if keeps else ("", "")
    linked = f'for file in {kept}/*; do [ ! -e "$file" ] || ln "$file" {directory}/; done; '
    again = linked if keeps and site.goes_on else ""
    made = f"mkdir -p {directory} && cd {_OUTPUTS} || exit"
    return f"{made}; {again}{keeper}{READ_CLOCK}; {run}; {READ_CLOCK}; {end}{LISTING}; exit $status"


def steered_command(variables: str, argv: Sequence[str], json_file: str) -> str:
    """Shell text that runs fio in the current directory, its output in a file and on standard error; sets ``status``.

    The exit status goes by way of a file, since a pipeline has only that of its last command.
    """
    start = f'sh -c \'echo $$ > {_PID}; exec "$0" "$@"\' {shlex.join(argv)} </dev/null'
    return f"{{ {variables} {start}; echo $? > {_EXIT}; }} | tee {json_file} >&2; read -r status < {_EXIT}"


def _interrupt(shell: Shell, directory: str) -> None:
    shell.run(f"kill -INT $(cat {directory}/{_PID})", _INTERRUPT_DEADLINE_S)


def _keeper(directory: str, kept: str) -> str:
    """A second link to each file as it appears: what fio unlinks then keeps its blocks, whatever the allocator."""
    link = f'[ -e "{kept}/${{file##*/}}" ] || ln "$file" "{kept}/"'
    loop = f"while sleep 1; do for file in {directory}/*; do {link}; done; done"
    return f"mkdir -p {kept}; ({loop}) </dev/null >/dev/null 2>&1 & keeper=$!; "


def _variables(settings: FioSettings, directory: str, device: str = output.A_FILE, offset: int = 0) -> str:
    values = output.environment(settings.file_bytes, settings.runtime_s, directory, device, offset)
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in values.items())


def _jobs(
    shell: Shell, finished: CommandResult, watch: _FioWatch, settings: FioSettings, logs: Path
) -> tuple[JobFigures, ...]:
    """Fetch what fio left and read it; fio's own errors come first, unreadable output last."""
    fetch_files(shell, _OUTPUTS, listed_files(finished.stdout, _JOB), _JSON, logs)
    # fio makes the file before it reads the job file: none or an empty one says the same.
    text = (logs / _JSON).read_text(encoding="utf-8", errors="replace") if (logs / _JSON).exists() else ""
    if watch.steered is not None:
        text = output.last_document(text)
        (logs / _JSON).write_text(text, encoding="utf-8")
    well = (0, output.INTERRUPTED) if watch.early_stop else (0,)
    try:
        jobs = output.parse_json(text)
    except output.OutputUnreadable as error:
        if finished.exit_status not in well:
            raise _not_finished(shell, finished, watch, settings) from error
        raise _unreadable(shell, error) from error
    if finished.exit_status and not any(job.total_ios for job in jobs) and {job.error for job in jobs} <= _OF_INPUT:
        words = "; ".join(watch.tail[-_MOST_WORDS:])
        raise UserError(f"workload.job: {settings.job}: fio did no I/O, and said: {words}", "fio(1) has its options")
    for job in jobs:
        if job.error:
            raise _job_failed(job, watch, settings)
    if finished.exit_status not in well:
        raise _failed(finished, watch)
    return jobs


def _all_there(jobs: tuple[JobFigures, ...], told: int, directions: Sequence[str], watch: _FioWatch) -> None:
    """Raise :class:`KernelFault` where a job has no figures: the slowest of the others is not the slowest of all."""
    lacking = next((one for one in directions if all(job.direction != one for job in jobs)), None)
    if lacking is not None:
        reason = f"fio's output has no figures of a job that {lacking}s"
        raise KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, reason, tuple(watch.tail))
    if (reported := len({job.name for job in jobs})) < told:
        reason = f"fio's output has figures of {reported} jobs, and {told} were started"
        raise KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, reason, tuple(watch.tail))


def _job_failed(job: JobFigures, watch: _FioWatch, settings: FioSettings) -> BisectorError:
    said = next((line for line in watch.tail if f"err={job.error}/" in line), "")
    what = f"fio: job {job.name}: {errno.errorcode.get(job.error, job.error)} ({os.strerror(job.error)})"
    if job.error == errno.ENOSPC:
        return UserError(
            f"{what}: its files of {settings.file_bytes // _KIB:,} KiB each do not fit on the stack",
            f"make workload.file_size smaller, or the disk larger ({watch.room})",
        )
    return KernelFault(Stage.WORKLOAD, FaultKind.IO_ERROR, f"{what} {said}".strip(), tuple(watch.tail))


def _not_finished(shell: Shell, finished: CommandResult, watch: _FioWatch, settings: FioSettings) -> BisectorError:
    """Why fio left no figures, asked of the guest only now: a good run pays no round trip for it."""

    def job_error(failed: FailedStep) -> BisectorError:
        return output.unreadable_job(settings.job, failed.stderr)

    check = f"cd {_OUTPUTS} && {_variables(settings, '/')} {shlex.join(output.parse_only_argv(_JOB))}"
    run_steps(shell, (Step("command -v fio", _fio_missing), Step(check, job_error)), _PARSE_DEADLINE_S)
    if any(output.lacks_engine(line) for line in watch.tail):
        return output.unreadable_job(settings.job, "\n".join(watch.tail))
    return _failed(finished, watch)


def _failed(finished: CommandResult, watch: _FioWatch) -> BisectorError:
    reason = ": ".join(("fio", f"exit {finished.exit_status}", *watch.tail[-1:]))
    return KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, reason, tuple(watch.tail))


def _unreadable(shell: Shell, error: output.OutputUnreadable) -> BisectorError:
    """Fio ended well and its output is cut off: a full disk in the guest, or a fault of the tool.

    What is complete and cannot be was told by the guest, whose clock and counters are its kernel's.
    """
    if isinstance(error, output.FigureImpossible):
        return KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, str(error))
    free = shell.run(f"stat -f -c %a {_OUTPUTS}")
    if free.stdout.strip() == "0":
        return _guest_full()
    return InfraError(str(error))


def _fio_missing(failed: FailedStep) -> BisectorError:  # the step's output says nothing
    return UserError(
        "the guest image lacks fio",
        "install fio in the image that machine.image names, or leave it unset for the built image",
    )


def _guest_disk(failed: FailedStep) -> BisectorError:
    return _guest_full() if "No space left" in failed.stderr else _kernel_fault(failed)


def _guest_full() -> UserError:
    return UserError("the guest's root disk is full", "the image that machine.image names needs some free space")


def _kernel_fault(failed: FailedStep) -> BisectorError:
    return KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, failed.reason, failed.tail)
