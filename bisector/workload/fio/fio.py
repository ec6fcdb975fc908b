"""fio as a workload: its settings, and what is wrong with a job file, found before anything expensive."""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from bisector.core import kinds, resources
from bisector.core.errors import UserError
from bisector.core.figures import Run
from bisector.core.kinds import Option, Problem
from bisector.core.metric import SYNCS
from bisector.core.objective import Objective
from bisector.core.units import plural, size_text
from bisector.storage.layer import Files
from bisector.workload.base import Deciding, Locally, Own, RunSite, Workload
from bisector.workload.fio import job_file, output
from bisector.workload.fio.left_files import FILE_NAMES, MOST_FILES, may_be_called
from bisector.workload.fio.run import FioSettings, run_once


class Fio(Workload):
    """Jobs of fio(1), as a job file describes them."""

    name = "fio"
    chosen_by = "workload.job"
    shared = (
        "elapsed",
        f"{SYNCS}.mean",
        f"{SYNCS}.max",
        "cpu.user",
        "cpu.system",
        "cpu.context_switches",
        "cpu.major_faults",
    )
    # fmt: off
    options = (
        Option("workload.job", "job", kinds.file(resources.job), "partial.fio", "fio job file",
               flag="--job", metavar="FILE"),
        Option("workload.file_size", "file_bytes", kinds.size(4096), "32MiB", "file of each job, bytes",
               "2GiB", flag="--file-size", metavar="SIZE"),
        Option("workload.runtime", "runtime_s", kinds.duration(1, whole=True), "40s",
               "length of a run, seconds", "15min", flag="--runtime", metavar="DURATION"),
    )
    # fmt: on

    def run(self, own: Own, site: RunSite) -> Run:
        """See :func:`bisector.workload.fio.run.run_once`."""
        return run_once(FioSettings(**own), site)

    def runtime_s(self, own: Own) -> float:
        """As the job file is told."""
        return float(own["runtime_s"])

    def deciding(self, own: Own) -> Deciding:
        """What a comment of the job file names; without one, and without a file, the usual metric."""
        job: Path = own["job"]
        try:
            named = job_file.deciding(job.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            return Deciding()  # whoever reads the file next tells
        except UserError as error:
            raise UserError(f"workload.job: {job}: {error}", error.hint) from error
        return Deciding() if named is None else Deciding(named, f"job {job.name}")

    def unseeded(self, own: Own) -> tuple[str, ...]:
        """Jobs that say themselves where their random numbers come from; raises :class:`UserError`."""
        return tuple(
            f"job {name} does not follow the seed of a run: it has a randseed, randrepeat or allrandrepeat of its own"
            for name in job_file.own_seeds(_text(own["job"]))
        )

    def repeats_itself(self, own: Own) -> bool:
        """Unless a job says otherwise and names no seed; raises :class:`UserError`."""
        return job_file.repeats_itself(_text(own["job"]))

    def files(self, own: Own) -> Files:
        """One file for each job; raises :class:`UserError` for a job file that cannot be read, or has no job."""
        settings, jobs = FioSettings(**own), _job_count(own["job"])
        total = settings.file_bytes * jobs
        are = "is" if jobs == 1 else "are"
        sentence = f"{plural(jobs, 'job')} of {size_text(settings.file_bytes)} {are} {size_text(total)}"
        return Files(total, sentence, settings.file_bytes, ("workload.file_size",))

    def inputs(self, own: Own) -> Mapping[str, Path]:
        """The job file."""
        return {"job": own["job"]}

    def variables(self, own: Own) -> tuple[tuple[str, str], ...]:
        """What the job file is told but for the directory."""
        return (("FILE_SIZE", str(own["file_bytes"])), ("RUNTIME", str(own["runtime_s"])))

    def problems(self, own: Own) -> Iterator[Problem]:
        """A job file that cannot be read, or starts no job."""
        try:
            _job_count(own["job"])
        except UserError as error:
            yield Problem(("workload.job",), error.message, error.hint)

    def problems_on_device(self, own: Own, runs: int) -> Iterator[Problem]:
        """A job file that works with files, or on the same place of the device in each run."""
        text = own["job"].read_text(encoding="utf-8")
        if (found := job_file.unfit_for_device(text, runs)) is not None:
            yield Problem(("workload.job", "storage.stack"), *found)

    def problems_on_files(self, own: Own) -> Iterator[Problem]:
        """A job file for a device alone."""
        if (found := job_file.unfit_for_files(own["job"].read_text(encoding="utf-8"))) is not None:
            yield Problem(("workload.job", "storage.stack"), *found)

    def check(self, own: Own, objective: Objective, locally: Locally) -> None:
        """What makes fio's figures say something else than they are read for; fio itself is asked where it is there.

        Raises :class:`UserError`, too, where the file alone shows that its jobs cannot have the value that decides.
        """
        settings = FioSettings(**own)
        if not objective.io_direction and not objective.metric.startswith(SYNCS):
            self.check_named(own, objective)
        try:
            text = settings.job.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"workload.job: {settings.job} cannot be read: {error}") from error
        unfit = job_file.objection(text) or job_file.counted(
            settings.job, partial(job_file.lacks, objective=objective), text
        )
        if unfit is not None:
            why, advice = unfit
            raise UserError(f"workload.job: {settings.job}: {why}", advice)
        _check_logs(settings.job, text)
        variables = output.environment(settings.file_bytes, settings.runtime_s, "/")
        checked = locally(output.parse_only_argv(os.fspath(settings.job)), variables)
        # Without fio on this host, that of the guest is asked, once its run has failed.
        if checked is not None and checked.exit_status != 0:
            raise output.unreadable_job(settings.job, checked.stderr)


def _job_count(job: Path) -> int:
    """How many jobs an fio job file starts; raises :class:`UserError`. fio itself checks the rest."""
    try:
        count = job_file.processes(_text(job))
    except job_file.NumberUnread as error:
        raise UserError(f"{job}: {error}") from error
    if not count:
        raise UserError(f"the fio job file {job} has no job: no [section] beside [global]")
    return count


def _text(job: Path) -> str:
    try:
        return job.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the fio job file {job}: {error}") from error


def _check_logs(job: Path, text: str) -> None:
    """What :mod:`bisector.workload.fio.left_files` would not fetch after hours, and blame on the kernel."""
    names = job_file.counted(job, job_file.log_names, text)
    if len(names) >= MOST_FILES:  # fio.json is one, too
        raise UserError(
            f"workload.job: {job}: fio would leave {len(names):,} logs, one of each kind for each process, "
            f"and at most {MOST_FILES - 1} are fetched",
            "make numjobs smaller, or leave out write_bw_log, write_lat_log and write_hist_log: nothing reads them",
        )
    for name in names:
        if not may_be_called(name):
            raise UserError(
                f"workload.job: {job}: fio would leave a log called {name!r}",
                f"name the job, or its log (write_iops_log=NAME), with {FILE_NAMES}",
            )


FIO = Fio()
