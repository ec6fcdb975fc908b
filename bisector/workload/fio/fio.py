"""fio as a workload: its settings, and what is wrong with a job file, found before anything expensive."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from bisector.core.errors import UserError
from bisector.core.figures import Run
from bisector.core.metric import SETTLED_AFTER, SYNCS, is_of_split
from bisector.core.objective import Objective
from bisector.core.setting import Problem
from bisector.storage.layer import Feature, Files, Since
from bisector.workload.base import PER_IO, Deciding, Locally, RunSite, Workload
from bisector.workload.fio import checks, job_file
from bisector.workload.fio.run import FILE_NAMES, MOST_FILES, FioSettings, may_be_called, run_once

_MIB = 1 << 20
_USUAL_BYTES = {"quick": 32 << 20, "article": 2 << 30}


class Fio(Workload[FioSettings]):
    """Jobs of fio(1), as a job file describes them."""

    name = "fio"
    settings = FioSettings
    chosen_by = "workload.job"
    shared = (
        "elapsed",
        SETTLED_AFTER,
        f"{SYNCS}.mean",
        f"{SYNCS}.max",
        "cpu.user",
        "cpu.system",
        "cpu.context_switches",
        "cpu.major_faults",
        *PER_IO,
    )

    def run(self, own: FioSettings, site: RunSite) -> Run:
        """See :func:`bisector.workload.fio.run.run_once`."""
        return run_once(own, site)

    def runtime_s(self, own: FioSettings) -> float:
        """As the job file is told."""
        return float(own.runtime_s)

    def deciding(self, own: FioSettings) -> Deciding:
        """What a comment of the job file names; without one, and without a file, the usual metric."""
        try:
            text = job_file.read(own.job)
        except UserError:
            return Deciding()  # whoever reads the file next tells
        try:
            named = job_file.deciding(text)
        except UserError as error:
            raise UserError(f"workload.job: {own.job}: {error}", error.hint) from error
        return Deciding() if named is None else Deciding(named, f"job {own.job.name}")

    def are_split(self, own: FioSettings) -> bool:
        """By the logs that its jobs leave; not where the file cannot be read, of which whoever reads it next tells."""
        try:
            return job_file.logs_means(job_file.read(own.job))
        except UserError:
            return False

    def sized(self, own: FioSettings, profile: str, fill_bytes: int) -> FioSettings:
        """Files that fill a cache together; of a job file that cannot be read, the usual ones."""
        if own.file_bytes:
            return own
        size = _USUAL_BYTES[profile]
        try:
            made = self.files(replace(own, file_bytes=size))
        except UserError:  # whoever reads the file next tells
            return replace(own, file_bytes=size)
        if made.setting and made.total_bytes < fill_bytes:
            size = math.ceil(fill_bytes * made.share / _MIB) * _MIB
        return replace(own, file_bytes=size)

    def unseeded(self, own: FioSettings) -> tuple[str, ...]:
        """Jobs that say themselves where their random numbers come from; raises :class:`UserError`."""
        return tuple(
            f"job {name} does not follow the seed of a run: it has a randseed, randrepeat or allrandrepeat of its own"
            for name in job_file.own_seeds(job_file.read(own.job))
        )

    def repeats_itself(self, own: FioSettings) -> bool:
        """Unless a job says otherwise and names no seed: randrepeat is on by default (fio(1)).

        Raises :class:`UserError`.
        """
        return all(job.is_on("randrepeat", default=True) or "randseed" in job.options for job in _jobs(own))

    def files(self, own: FioSettings) -> Files:
        """Those that the jobs lay out; raises :class:`UserError` for a job file that cannot be read, or has no job."""
        found = _jobs(own)
        if not found:
            raise UserError(f"the fio job file {own.job} has no job: no [section] beside [global]")
        return checks.files_of(found, dict(self.variables(own)))

    def inputs(self, own: FioSettings) -> Mapping[str, Path]:
        """The job file."""
        return {"job": own.job}

    def testcase(self, own: FioSettings, text: str) -> str:
        """What its jobs do, each kind once."""
        kinds_of_io = dict.fromkeys(job.options.get("rw", "read") for job in job_file.jobs(text))
        return f"{self.name} {','.join(kinds_of_io) or self.label(own)}"

    def variables(self, own: FioSettings) -> tuple[tuple[str, str], ...]:
        """What the job file is told but for the directory."""
        return (("FILE_SIZE", str(own.file_bytes)), ("RUNTIME", str(own.runtime_s)))

    def features(self, own: FioSettings) -> Iterator[Feature]:
        """The system calls of an engine that kernels have not always had."""
        line = next((job.lines["ioengine"] for job in _jobs(own) if job.options.get("ioengine") == "io_uring"), None)
        if line is not None:
            since = Since("v5.1", "include/uapi/linux/io_uring.h", "io_uring_params")
            yield Feature(f"io_uring ({line})", since, ("the ioengine of workload.job, such as to libaio",))

    def problems(self, own: FioSettings) -> Iterator[Problem]:
        """A job file that cannot be read, or starts no job, or whose jobs cannot be on any stack."""
        try:
            found = checks.told(checks.objections(job_file.read(own.job)))
            if found is None:
                _ = [job.processes for job in _jobs(own)]
        except UserError as error:
            found = str(error), ""
        if found is not None:
            yield Problem(("workload.job",), *found)

    def problems_of_length(self, own: FioSettings, objective: Objective) -> Iterator[Problem]:
        """Jobs that do not last as long as a run is said to."""
        text, variables = job_file.read(own.job), dict(self.variables(own))
        yield from _problems(("workload.job",), checks.lasting(text, objective, variables))

    def problems_on_stack(self, own: FioSettings, device_runs: int, *, built_image: bool) -> Iterator[Problem]:
        """A job file that is not for the stack, or has what the fio of Debian 12 does not have."""
        text = job_file.read(own.job)
        found = checks.unfit_for_device(text, device_runs) if device_runs else checks.unfit_for_files(text)
        yield from _problems(("workload.job", "storage.stack"), found)
        if built_image:
            yield from _problems(("workload.job",), checks.untaken(text, dict(self.variables(own))))

    def check(self, own: FioSettings, objective: Objective, locally: Locally) -> None:
        """What makes fio's figures say something else than they are read for.

        Raises :class:`UserError`, too, where the file alone shows that its jobs cannot have the value that decides.
        """
        if not objective.io_direction and not objective.metric.startswith(SYNCS):
            self.check_named(own, objective)
        text, where = job_file.read(own.job), f"workload.job: {own.job}"
        unfit = checks.told(checks.objections(text)) or job_file.lacks(text, objective)
        if unfit is None and is_of_split(objective.metric) and not job_file.logs_means(text):
            why = f"no run has {objective.metric}: not each job leaves a log of the means of its IOPS"
            unfit = why, "write_iops_log=NAME and log_avg_msec=500 in each job, or --part whole"
        if unfit is not None:
            why, advice = unfit
            raise UserError(f"{where}: {why}", advice)
        # What would not be fetched after hours, and be blamed on the kernel.
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


FIO = Fio()
