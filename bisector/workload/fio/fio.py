"""fio as a workload: its settings, and the checks of a job file before any expensive work."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from bisector.core.errors import UserError
from bisector.core.figures import Run
from bisector.core.metric import SETTLED_AFTER, SYNCS, is_of_split
from bisector.core.objective import Objective
from bisector.core.setting import Problem
from bisector.storage.layer import Feature, Files, Since
from bisector.workload.base import PER_IO, DefaultObjective, Locally, RunSite, Workload
from bisector.workload.fio import checks, job_file
from bisector.workload.fio.run import FILE_NAMES, MOST_FILES, FioSettings, may_be_called, run_once

_MIB = 1 << 20
_USUAL_BYTES = {"quick": 32 << 20, "article": 2 << 30}


@dataclass(frozen=True, slots=True)
class Fio(FioSettings, Workload):
    """The jobs of a job file, run by fio(1)."""

    name = "fio"
    chosen_by = "workload.job"
    shared = (
        *("elapsed", SETTLED_AFTER, f"{SYNCS}.mean", f"{SYNCS}.max", "cpu.user", "cpu.system"),
        *("cpu.context_switches", "cpu.major_faults", *PER_IO),
    )

    def run(self, site: RunSite) -> Run:
        """Run fio once; see :func:`bisector.workload.fio.run.run_once`."""
        return run_once(self, site)

    def length_s(self) -> float:
        """The runtime in the settings, which the job file gets as a variable."""
        return float(self.runtime_s)

    def deciding(self) -> DefaultObjective:
        """The metric that a comment of the job file names; the default if there is no such comment, or no file."""
        try:
            text = job_file.read(self.job)
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
            return job_file.logs_means(job_file.read(self.job))
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
            for name in job_file.own_seeds(job_file.read(self.job))
        )

    def repeats_itself(self) -> bool:
        """Whether each job has randrepeat, which is on by default (fio(1)), or names a seed.

        Raises :class:`UserError`.
        """
        return all(job.is_on("randrepeat", default=True) or "randseed" in job.options for job in _jobs(self))

    def files(self) -> Files:
        """The files that the jobs lay out; raises :class:`UserError` if the job file cannot be read or has no job."""
        found = _jobs(self)
        if not found:
            raise UserError(f"the fio job file {self.job} has no job: no [section] beside [global]")
        return checks.files_of(found, dict(self.variables()))

    def inputs(self) -> Mapping[str, Path]:
        """The job file."""
        return {"job": self.job}

    def testcase(self, text: str) -> str:
        """The kinds of I/O of its jobs, each once."""
        kinds_of_io = dict.fromkeys(job.options.get("rw", "read") for job in job_file.jobs(text))
        return f"{self.name} {','.join(kinds_of_io) or self.label()}"

    def variables(self) -> tuple[tuple[str, str], ...]:
        """The variables of the job file, without the directory."""
        return (("FILE_SIZE", str(self.file_bytes)), ("RUNTIME", str(self.runtime_s)))

    def features(self) -> Iterator[Feature]:
        """Yield io_uring if a job uses it: older kernels lack its system calls."""
        line = next((job.lines["ioengine"] for job in _jobs(self) if job.options.get("ioengine") == "io_uring"), None)
        if line is not None:
            since = Since("v5.1", "include/uapi/linux/io_uring.h", "io_uring_params")
            yield Feature(f"io_uring ({line})", since, ("the ioengine of workload.job, such as to libaio",))

    def problems(self) -> Iterator[Problem]:
        """Yield a job file that cannot be read, starts no job, or has jobs that cannot run on any stack."""
        try:
            found = checks.told(checks.objections(job_file.read(self.job)))
            if found is None:
                _ = [job.processes for job in _jobs(self)]
        except UserError as error:
            found = str(error), ""
        if found is not None:
            yield Problem(("workload.job",), *found)

    def problems_of_length(self, objective: Objective) -> Iterator[Problem]:
        """Yield the jobs that do not last as long as a run is asked to."""
        text, variables = job_file.read(self.job), dict(self.variables())
        yield from _problems(("workload.job",), checks.lasting(text, objective, variables))

    def problems_on_stack(self, device_runs: int, *, built_image: bool) -> Iterator[Problem]:
        """Yield what does not suit the stack or, in the built image, what the fio of Debian 12 does not take."""
        text = job_file.read(self.job)
        found = checks.unfit_for_device(text, device_runs) if device_runs else checks.unfit_for_files(text)
        yield from _problems(("workload.job", "storage.stack"), found)
        if built_image:
            yield from _problems(("workload.job",), checks.untaken(text, dict(self.variables())))

    def check(self, objective: Objective, locally: Locally) -> None:
        """Raise :class:`UserError` for a job file whose figures would not mean what they are taken for.

        Also for jobs that cannot have the metric that decides, and for logs that could not be fetched after the run.
        """
        if not objective.io_direction and not objective.metric.startswith(SYNCS):
            self.check_named(objective)
        text, where = job_file.read(self.job), f"workload.job: {self.job}"
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


def _jobs(own: FioSettings) -> tuple[job_file.FioJob, ...]:
    return job_file.jobs(job_file.read(own.job))
