"""What is wrong with a job file, found before anything expensive."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from bisector.config import WorkloadSettings, job_file
from bisector.core.errors import UserError
from bisector.core.objective import Objective
from bisector.host import process
from bisector.workload import left_files
from bisector.workload.fio import output

PARSE_DEADLINE_S = 30.0

T = TypeVar("T")


def check_job(settings: WorkloadSettings, objective: Objective) -> None:
    """Find what is wrong with a job file before anything expensive; raises :class:`UserError`.

    That it cannot have the value that decides is wrong, too, where the file alone shows it.

    Where fio is installed on this machine, it is asked too.
    """
    try:
        text = settings.job.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"workload.job: {settings.job} cannot be read: {error}") from error
    unfit = job_file.objection(text) or counted(settings, partial(job_file.lacks, objective=objective), text)
    if unfit is not None:
        why, advice = unfit
        raise UserError(f"workload.job: {settings.job}: {why}", advice)
    _check_logs(settings, text)
    variables = output.environment(settings.file_bytes, settings.runtime_s, "/")
    command = output.parse_only_argv(os.fspath(settings.job))
    try:
        checked = process.run(command, deadline_s=PARSE_DEADLINE_S, env=variables, check=False)
    except process.CommandMissing:
        return  # the guest's fio is asked in run_once
    if checked.exit_status != 0:
        raise unreadable_job(settings.job, checked.stderr)


def _check_logs(settings: WorkloadSettings, text: str) -> None:
    """What :mod:`bisector.workload.left_files` would not fetch after hours, and blame on the kernel."""
    names = counted(settings, job_file.log_names, text)
    if len(names) >= left_files.MOST_FILES:  # fio.json is one, too
        raise UserError(
            f"workload.job: {settings.job}: fio would leave {len(names):,} logs, one of each kind for each process, "
            f"and at most {left_files.MOST_FILES - 1} are fetched",
            "make numjobs smaller, or leave out write_bw_log, write_lat_log and write_hist_log: nothing reads them",
        )
    for name in names:
        if not left_files.may_be_called(name):
            raise UserError(
                f"workload.job: {settings.job}: fio would leave a log called {name!r}",
                f"name the job, or its log (write_iops_log=NAME), with {left_files.NAMES}",
            )


def counted(settings: WorkloadSettings, count: Callable[[str], T], job: str) -> T:
    """What of a job file follows from how many processes it makes."""
    try:
        return count(job)
    except job_file.NumberUnread as error:
        raise UserError(f"workload.job: {settings.job}: {error}") from error


def unreadable_job(job: Path, stderr: str) -> UserError:
    """What fio says of a job file that it does not take."""
    return UserError(f"workload.job: {job}: {output.complaint(stderr)}", f"check it with: fio --parse-only {job}")
