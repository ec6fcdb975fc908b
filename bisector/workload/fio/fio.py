"""fio as a workload: its settings, the checks of a job file before any expensive work, and one run in the guest.

The guest reports names and sizes of the files that fio leaves, and is not trusted: no name leads out of a directory,
and numbers and sizes are limited. A log may be large without any fault (without log_avg_msec each I/O is a line, so the
fastest kernel has the largest log), so a log that is too large is left out.

bisector reads fio's output while it runs. Once fio's own status shows the side, it interrupts fio as Ctrl-C does.
"""

import errno
import math
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Self

from bisector.core import resources
from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError, UserError
from bisector.core.events import LiveSample
from bisector.core.figures import EarlyStop, JobFigures, Run, phase_name, run_words
from bisector.core.metric import SETTLED_AFTER, SYNCS, Unit, is_of_split
from bisector.core.objective import Objective
from bisector.core.setting import AUTO, Form, Meta, Option, Problem, Size, WholeSeconds, absolute
from bisector.core.shell import CommandResult, Shell, Step, run_steps
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.storage.disks import kernel_fault_in_run
from bisector.storage.layer import Feature, Files, Since
from bisector.workload.base import (
    PER_IO,
    READ_CLOCK,
    DefaultObjective,
    Locally,
    OnSample,
    RunProgress,
    RunSite,
    StopCondition,
    Workload,
    fault,
    guest_disk,
    guest_full,
    lacks,
    watched,
)
from bisector.workload.fio import checks, job_file, output

MOST_FILES = 256
# Lists the current directory, without hidden files, which are bisector's own.
_LISTING = "stat -c '%s %n' -- *"
_LEFT_OUT = "left-out.txt"

# fio names its logs after the job, or as write_iops_log says. No such name is a path or hidden.
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
_MOST_LINES = 1_000_000  # of one status, which has about 200 lines for each job
_KIB, _MIB = 1 << 10, 1 << 20
_PARSE_DEADLINE_S = 30.0
# Hidden, so that they are not among the files that fio left.
_PID, _EXIT = ".pid", ".exit"
_INTERRUPT_DEADLINE_S = 30.0
# The errors of a job whose options fio cannot follow, or that the kernel cannot do. On a commit between the ends, a
# trial of an end shows whose fault it is (bisector.bisect.failures).
_OF_INPUT = frozenset((0, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOENT, errno.ENODEV))
_MOST_WORDS = 4
# A run of more processes is not steered. A status has 6.5 KB for each process (fio 3.33; 8 KB if the process reads and
# writes, with percentiles of all latencies). A run has up to 90 of these, in fio's output file and on the guest's
# standard error; more than 64 MiB in either would count as the kernel's fault (bisector.vm.guest.Bounds). With 40
# processes a run whose side never becomes clear writes 24 to 29 MB.
MOST_STEERED_JOBS = 40
_USUAL_BYTES = {"quick": 32 << 20, "article": 2 << 30}  # of each file


def _job_file(raw: object, base: Path | None) -> Path:
    """A path; a bare name that is no file in ``base`` names one of bisector's own job files."""
    if not isinstance(raw, str):
        raise TypeError(raw)
    given = absolute(raw, base)
    try:
        is_own = "/" not in raw and (base is None or not given.exists())
    except OSError:  # the next reader of the file reports why it cannot be read
        return given
    return resources.job(raw) if is_own else given


@dataclass(frozen=True, slots=True)
class Fio(Workload):
    """The jobs of a job file, run by fio(1); the settings are the file, the size of each of its files, and the time."""

    name = "fio"
    chosen_by = "workload.job"
    shared = (
        *("elapsed", SETTLED_AFTER, f"{SYNCS}.mean", f"{SYNCS}.max", "cpu.user", "cpu.system"),
        *("cpu.context_switches", "cpu.major_faults", *PER_IO),
    )

    # The settings, laid out as a table.
    # fmt: off
    job: Annotated[Path, Form("a path", _job_file), Option(
        "workload.job", "partial.fio", "fio job file", flag="--job", metavar="FILE")]
    file_bytes: Annotated[Size, Meta(ge=4096), Option(
        "workload.file_size", AUTO, "file of each job, bytes", flag="--file-size", metavar="SIZE",
        absent=(AUTO, "32MiB, in the profile article 2GiB, and more where that would not fill the cache of a stack"),
        none=0)]
    runtime_s: Annotated[WholeSeconds, Meta(ge=1), Option(
        "workload.runtime", "40s", "length of a run, seconds", "15min", flag="--runtime", metavar="DURATION")]
    # fmt: on

    @property
    def _text(self) -> str:
        return job_file.read(self.job)

    @property
    def _jobs(self) -> tuple[job_file.FioJob, ...]:
        return job_file.jobs(self._text)

    def run(self, site: RunSite) -> Run:
        """Run the job file once with cold page caches, in its own directory; JSON and logs go into ``site.logs``.

        The run ends as soon as ``site.stop`` is met, which the record says. A run of a job with a ramp_time, of jobs
        that do not all last the whole run, or of more than :data:`MOST_STEERED_JOBS` processes, is never stopped early.

        A seed appears in the job file that is kept with the run, and among the global options in fio's JSON.

        With ``site.keep_files`` the blocks of its files stay allocated after the job has unlinked them. Otherwise ext4
        would give the next run the very same blocks, which are in the cache: it would measure a warm cache, not a full
        one. A further round gets these files again, so that it goes on to fill the cache with their blocks and needs no
        more room. Raises :class:`UserError` for an error in the job file, a guest without fio and files that do not
        fit, :class:`KernelFault` if I/O fails, and :class:`InfraError` if the output cannot be read.
        """
        shell, deadline = site.shell, Deadline(f"the end of the {run_words(site.name)}", site.deadline_s)
        site.logs.mkdir(parents=True, exist_ok=True)
        job = self._text
        if site.seed is not None:
            job = job_file.seeded(job, site.seed)
            (site.logs / _JOB).write_text(job, encoding="utf-8")
        sections = job_file.jobs(job)
        told = sum(len(one.processes) for one in sections)
        apart = set(checks.spans(sections, self.variables())) - {(0.0, float(self.runtime_s))}
        # During a ramp_time fio's status includes I/O that is missing from its final figures.
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
        ran = watched(site, _command(self, site, stop), watch.hear, deadline)
        jobs = _job_figures(site, ran.finished, watch, self)
        # If a job is missing, the slowest of the others need not be the slowest of all.
        lacking = [one for one in job_file.directions(job) if all(job.direction != one for job in jobs)]
        if lacking:
            raise fault(f"fio's output has no figures of a job that {lacking[0]}s", *watch.tail)
        if (reported := len({job.name for job in jobs})) < told:
            raise fault(f"fio's output has figures of {reported} jobs, and {told} were started", *watch.tail)
        # fio may have ended by itself before the interrupt.
        stopped = watch.stop if ran.finished.exit_status else None
        if job_file.logs_means(job):
            # NumPy takes most of a second to load, and reading the settings imports this module.
            from bisector.workload.fio import logs  # noqa: PLC0415

            texts = logs.read_logs(site.logs)
            jobs = logs.with_steady_parts(jobs, texts, self.runtime_s, stopped=stopped is not None)
        return ran.run(jobs, stopped=stopped, tail=tuple(watch.tail))

    def length_s(self) -> float:
        """The runtime in the settings, which the job file gets as a variable."""
        return float(self.runtime_s)

    def deciding(self) -> DefaultObjective:
        """The metric that a comment of the job file names; the default if there is no such comment, or no file."""
        try:
            text = self._text
        except UserError:
            return DefaultObjective()  # the next reader of the file reports this
        try:
            named = job_file.deciding(text)
        except UserError as error:
            raise UserError(f"workload.job: {self.job}: {error}", error.hint) from error
        return DefaultObjective() if named is None else DefaultObjective(named, f"job {self.job.name}")

    def are_split(self) -> bool:
        """Whether its jobs leave logs that a run can be split by; false if the file cannot be read."""
        try:
            return job_file.logs_means(self._text)
        except UserError:
            return False

    def sized(self, profile: str, fill_bytes: int) -> Self:
        """Its settings, with a size of files if they have none: the usual one, or more to write ``fill_bytes``.

        If the job file cannot be read, it is the usual size.
        """
        if self.file_bytes:
            return self
        size = _USUAL_BYTES[profile]
        try:
            made = replace(self, file_bytes=size).files()
        except UserError:  # the next reader of the file reports this
            return replace(self, file_bytes=size)
        if made.setting and made.total_bytes < fill_bytes:
            size = math.ceil(fill_bytes * made.share / _MIB) * _MIB
        return replace(self, file_bytes=size)

    def unseeded(self) -> tuple[str, ...]:
        """A sentence for each job that sets its own seed; raises :class:`UserError`."""
        return tuple(
            f"job {name} does not follow the seed of a run: it has a randseed, randrepeat or allrandrepeat of its own"
            for name in job_file.own_seeds(self._text)
        )

    def repeats_itself(self) -> bool:
        """Whether each job has randrepeat, which is on by default (fio(1)), or names a seed.

        Raises :class:`UserError`.
        """
        return all(job.is_on("randrepeat", default=True) or "randseed" in job.options for job in self._jobs)

    def files(self) -> Files:
        """The files that the jobs lay out; raises :class:`UserError` if the job file cannot be read or has no job."""
        found = self._jobs
        if not found:
            raise UserError(f"the fio job file {self.job} has no job: no [section] beside [global]")
        return checks.files_of(found, self.variables())

    def inputs(self) -> Mapping[str, Path]:
        """The job file."""
        return {"job": self.job}

    def testcase(self, text: str) -> str:
        """The kinds of I/O of its jobs, each once."""
        kinds_of_io = dict.fromkeys(job.options.get("rw", "read") for job in job_file.jobs(text))
        return f"{self.name} {','.join(kinds_of_io) or self.label()}"

    def variables(self) -> Mapping[str, str]:
        """The variables of the job file, without the directory."""
        return {"FILE_SIZE": str(self.file_bytes), "RUNTIME": str(self.runtime_s)}

    def features(self) -> Iterator[Feature]:
        """Yield io_uring if a job uses it: older kernels lack its system calls."""
        line = next((job.lines["ioengine"] for job in self._jobs if job.options.get("ioengine") == "io_uring"), None)
        if line is not None:
            since = Since("v5.1", "include/uapi/linux/io_uring.h", "io_uring_params")
            yield Feature(f"io_uring ({line})", since, ("the ioengine of workload.job, such as to libaio",))

    def problems(self) -> Iterator[Problem]:
        """Yield a job file that cannot be read, starts no job, or has jobs that cannot run on any stack."""
        try:
            yield from _problems(("workload.job",), checks.objections(self._text))
            _ = [job.processes for job in self._jobs]
        except UserError as error:
            yield Problem(("workload.job",), str(error))

    def problems_of_length(self, objective: Objective) -> Iterator[Problem]:
        """Yield the jobs that do not last as long as a run is asked to."""
        yield from _problems(("workload.job",), checks.lasting(self._text, objective, self.variables()))

    def problems_on_stack(self, device_runs: int, *, built_image: bool) -> Iterator[Problem]:
        """Yield what does not suit the stack or, in the built image, what the fio of Debian 12 does not take."""
        text = self._text
        found = checks.unfit_for_device(text, device_runs) if device_runs else checks.unfit_for_files(text)
        yield from _problems(("workload.job", "storage.stack"), found)
        if built_image:
            yield from _problems(("workload.job",), checks.untaken(text, self.variables()))

    def check(self, objective: Objective, locally: Locally) -> None:
        """Raise :class:`UserError` for a job file whose figures would not mean what they are taken for.

        Also for jobs that cannot have the metric that decides, and for logs that could not be fetched after the run.
        """
        if not objective.io_direction and not objective.metric.startswith(SYNCS):
            self.check_named(objective)
        text, where = self._text, f"workload.job: {self.job}"
        unfit = checks.told(checks.objections(text)) or job_file.lacks(text, objective)
        if unfit is None and is_of_split(objective.metric) and not job_file.logs_means(text):
            why = f"no run has {objective.metric}: not each job leaves a log of the means of its IOPS"
            unfit = why, "write_iops_log=NAME and log_avg_msec=500 in each job, or --part whole"
        if unfit is not None:
            why, advice = unfit
            raise UserError(f"{where}: {why}", advice)
        # Otherwise such logs would not be fetched after hours of work, and the kernel would be blamed.
        names = job_file.log_names(text)
        if len(names) >= MOST_FILES:  # fio.json is one, too
            raise UserError(
                f"{where}: fio would leave {len(names):,} logs, one of each kind for each process, and at most "
                f"{MOST_FILES - 1} are fetched",
                "make numjobs smaller, or leave out write_bw_log, write_lat_log and write_hist_log: nothing reads them",
            )
        if unnamed := [name for name in names if not may_be_called(name)]:
            hint = f"name the job, or its log (write_iops_log=NAME), with {FILE_NAMES}"
            raise UserError(f"{where}: fio would leave a log called {unnamed[0]!r}", hint)


def _problems(keys: tuple[str, ...], found: Iterable[checks.Objection]) -> Iterator[Problem]:
    if (said := checks.told(found)) is not None:
        yield Problem(keys, *said)


# One run in the guest


def may_be_called(name: str) -> bool:
    """Whether a file with this name is fetched from the guest."""
    return _FILE_NAME.fullmatch(name) is not None and len(name.encode()) <= _LONGEST_NAME_BYTES


def _fetch_files(shell: Shell, listing: str, logs: Path) -> None:
    """Copy the files that fio left into ``logs``, which has none of them yet; fio's figures come first.

    Other files that are too large, alone or together, are left out; the file :data:`_LEFT_OUT` names them. ``listing``
    is the guest's list of the files. Raises :class:`KernelFault` for too many files, and for a name that no log has.
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


@dataclass(slots=True)
class FioWatch:
    """Reads fio's standard error: samples for the display, the last lines and, if there is a ``rule``, the status.

    ``interrupt`` sends SIGINT to fio, which then writes its logs and figures; ``stop`` records why it was sent.
    """

    run: str
    on_sample: OnSample
    rule: StopCondition | None = None
    interrupt: Callable[[], object] = lambda: None
    stop: EarlyStop | None = None
    tail: list[str] = field(default_factory=list)
    _status: list[str] = field(default_factory=list)
    # By job: seconds of its run time, and by then its I/Os in all, and the I/Os or bytes that the metric counts.
    _points: dict[str, list[tuple[float, int, float]]] = field(default_factory=dict)

    def hear(self, line: str) -> None:
        """Take one line of fio's standard error."""
        if (shown := output.parse_status_line(line)) is not None:
            self.on_sample(LiveSample(self.run, shown[0], Unit.IOPS, shown[1]))
        elif self.rule is not None and line[:1] in ("", " ", "{", "}"):
            if line == "{" or len(self._status) >= _MOST_LINES:
                self._status = []
            self._status.append(line)
            if line == "}":
                # A status with other output in it is ignored.
                with suppress(output.OutputUnreadable):
                    self._steer(self.rule, output.parse_json("\n".join(self._status)))
                self._status = []
        elif line.strip():
            self.tail = [*self.tail, line.strip()][-_TAIL_LINES:]

    def _steer(self, rule: StopCondition, figures: Sequence[JobFigures]) -> None:
        """Show the IOPS of all jobs since the last status, in the direction that decides; end the run once clear."""
        of_bytes = rule.objective.definition.unit is Unit.BYTES_S
        iops, jobs = 0.0, []
        for job in (one for one in figures if one.direction == rule.objective.io_direction):
            points, now_s = self._points.setdefault(job.name, []), job.runtime_ms / 1000
            since_s, since_ios, _ = points[-1] if points else (0.0, 0, 0.0)
            if now_s > since_s:  # the job has begun, and is not over
                # For bytes fio reports only the mean rate.
                points.append((now_s, job.total_ios, job.bw_kib_s * _KIB * now_s if of_bytes else float(job.total_ios)))
                iops += (job.total_ios - since_ios) / (now_s - since_s)
            jobs.append(RunProgress(job.name, [point[0] for point in points], [point[2] for point in points]))
        if self.stop is not None:
            return
        done_s = min((job.at_s[-1] for job in jobs if job.at_s), default=0.0)
        self.on_sample(LiveSample(self.run, iops, Unit.IOPS, min(done_s / rule.runtime_s, 1.0)))
        self.stop = rule.met_by(jobs)
        if self.stop is not None:
            self.interrupt()


def _command(settings: Fio, site: RunSite, stop: StopCondition | None) -> str:
    """Shell text that runs fio between two readings of the guest's clock, and lists the files that it left."""
    mountpoint, device = site.stack.mountpoint, site.stack.device
    directory, kept = f"{mountpoint}/{site.name}", f"{mountpoint}/.kept/{phase_name(site.name)}"
    # fio puts the directory before the device, if the job has one: "/" leaves an absolute path unchanged.
    variables = _variables(settings, *(("/", device, site.offset_bytes) if device else (directory,)))
    # Without --output fio prints no status lines at all in JSON mode, and without --eta-newline they end only in
    # carriage returns; with an interval of a whole second it misses every other one.
    whole = f"fio --output-format=json --output={_JSON} --eta=always --eta-newline=500ms {_JOB}"
    run = f"{variables} {whole} </dev/null >&2; status=$?"
    if stop is not None:
        # In JSON mode a status replaces the status lines. fio 3.33 refuses an interval below a millisecond; when
        # interrupted (SIGINT) it still writes the last document and its logs.
        every = f"--status-interval={round(stop.batch_s * 1000)}ms"
        run = steered_command(variables, ("fio", "--output-format=json", every, _JOB), _JSON)
    again = keeper = end = ""
    if site.keep_files and not device:
        # Make a second link to each new file: then a file that fio unlinks keeps its blocks, whatever the allocator.
        link = f'[ -e "{kept}/${{file##*/}}" ] || ln "$file" "{kept}/"'
        loop = f"while sleep 1; do for file in {directory}/*; do {link}; done; done"
        keeper = f"mkdir -p {kept}; ({loop}) </dev/null >/dev/null 2>&1 & keeper=$!; "
        end = "kill $keeper; "
        if site.goes_on:
            again = f'for file in {kept}/*; do [ ! -e "$file" ] || ln "$file" {directory}/; done; '
    made = f"mkdir -p {directory} && cd {_OUTPUTS} || exit"
    return f"{made}; {again}{keeper}{READ_CLOCK}; {run}; {READ_CLOCK}; {end}{_LISTING}; exit $status"


def steered_command(variables: str, argv: Sequence[str], json_file: str) -> str:
    """Shell text that runs fio in the current directory, its output in a file and on stderr, and sets ``status``.

    fio's exit status goes through a file, since a pipeline has only the exit status of its last command.
    """
    start = f'sh -c \'echo $$ > {_PID}; exec "$0" "$@"\' {shlex.join(argv)} </dev/null'
    return f"{{ {variables} {start}; echo $? > {_EXIT}; }} | tee {json_file} >&2; read -r status < {_EXIT}"


def _variables(settings: Fio, directory: str, device: str = "device", offset: int = 0) -> str:
    """The variables that job files may use, for fio's own ``${NAME}`` expansion, which takes no empty value.

    On a stack with a file system ``device`` is the name of a file in the directory.
    """
    places = {"DIRECTORY": directory, "DEVICE": device, "OFFSET": str(offset)}
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in {**settings.variables(), **places}.items())


def _job_figures(site: RunSite, finished: CommandResult, watch: FioWatch, settings: Fio) -> tuple[JobFigures, ...]:
    """Fetch and read the files that fio left; fio's own errors are reported before unreadable output."""
    shell, json_file, tail = site.shell, site.logs / _JSON, watch.tail
    _fetch_files(shell, finished.stdout, site.logs)
    # fio makes the file before it reads the job file: a missing file means the same as an empty one.
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
        # The output is complete, and a figure in it is impossible: the guest's kernel keeps its clock and counters.
        if isinstance(error, output.FigureImpossible):
            raise fault(str(error)) from error
        # fio ended well and its output is cut off: the guest's disk is full, or bisector is at fault.
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


def _not_started(shell: Shell, watch: FioWatch, settings: Fio) -> UserError | None:
    """Why fio left no figures; the guest is asked only now, so that a good run needs no round trip for it.

    Raises :class:`UserError` if the guest has no fio, or if fio refuses the job file. fio looks for its I/O engine only
    when it runs, so the error for a missing engine is returned; None if there is no such reason.
    """

    def refused(said: str) -> UserError:
        hint = f"check it with: fio --parse-only {settings.job}"
        return UserError(f"workload.job: {settings.job}: {output.complaint(said)}", hint)

    check = f"cd {_OUTPUTS} && {_variables(settings, '/')} fio --parse-only {_JOB}"
    steps = (Step("command -v fio", partial(lacks, "fio")), Step(check, lambda failed: refused(failed.stderr)))
    run_steps(shell, steps, _PARSE_DEADLINE_S)
    why_no_engine = any(line.startswith("fio: engine ") and line.endswith(" not loadable") for line in watch.tail)
    return refused("\n".join(watch.tail)) if why_no_engine else None
