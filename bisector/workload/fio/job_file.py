"""What in a person's fio job file would make fio's figures say something else than they are read for.

fio itself says what is wrong with a job file; this is about what is right, and not for us. The grammar is
that of fio(1), "Job file format", as fio 3.33 reads it.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bisector.core.errors import UserError
from bisector.core.metric import DIRECTIONS, SYNCS, names_of
from bisector.core.objective import OVER, WORST, Objective

# What each value of ``rw`` does, before the colon.
CONFIGURED = {
    "read": {"read"},
    "write": {"write"},
    "trim": {"trim"},
    "randread": {"read"},
    "randwrite": {"write"},
    "randtrim": {"trim"},
    "rw": {"read", "write"},
    "readwrite": {"read", "write"},
    "randrw": {"read", "write"},
    "trimwrite": {"trim", "write"},
    "randtrimwrite": {"trim", "write"},
}
_SECTION = re.compile(r"\[([^\]]*)\]")
_COMMENT = re.compile(r"[;#].*")
_ZERO = re.compile(r"0+|0x0+")
_PLAIN_COUNT = re.compile(r"[1-9][0-9]{0,3}")
_INCLUDE = re.compile(r"include[\s=]")
_ALIASES = {"readwrite": "rw"}
# The options that have fio write logs, and what each of their logs is called by (fio's init.c, add_job()).
_LOGS = {
    "write_iops_log": ("iops",),
    "write_bw_log": ("bw",),
    "write_lat_log": ("lat", "slat", "clat"),
    "write_hist_log": ("clat_hist",),
}
_SYNCING = ("fsync", "fdatasync", "sync_file_range", "end_fsync", "fsync_on_close", "read_iolog")
# A comment for bisector; fio passes over it.
_NAMED = re.compile(r"\s*[;#]\s*deciding metric\s*:(.*)")
_DECIDING = re.compile(r"(?P<metric>[^\s,]+)(?:,?\s+over\s+(?P<over>\S(?:.*\S)?))?")
_DIRECTORY = "${DIRECTORY}"
_DEVICE = "${DEVICE}"
_OFFSET = "${OFFSET}"
_NAMES = ("filename", "filename_format")
# Several directories or files stand between colons; one that belongs to a name has a backslash before it (fio(1)).
_COLON = re.compile(r"(?<!\\):")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """A job section with the options that hold for it, its own over those of the global sections above."""

    name: str
    options: Mapping[str, str]

    def is_on(self, option: str, default: bool = False) -> bool:
        """A flag, which may stand bare; fio takes every number but 0 for true."""
        value = self.options.get(option)
        return default if value is None else not _ZERO.fullmatch(value)

    @property
    def directions(self) -> Collection[str]:
        """What it is told to do: "read", "write", "trim"; fio reads when it is told nothing."""
        return CONFIGURED.get(self.options.get("rw", "read").partition(":")[0], ())

    @property
    def syncs(self) -> bool:
        """Whether it is told to call fsync(2) or another of its kind."""
        return any(self.is_on(option) for option in _SYNCING)


class NumberUnread(Exception):
    """A number of a job file in a form that is fio's alone; what it is, and of which job."""


def counted(job: Path, count: Callable[[str], T], text: str) -> T:
    """What of a job file follows from how many processes it makes; raises :class:`UserError`, which names the file."""
    try:
        return count(text)
    except NumberUnread as error:
        raise UserError(f"workload.job: {job}: {error}") from error


def processes(text: str) -> int:
    """How many jobs fio makes of a job file: ``numjobs`` of each section, summed.

    Raises :class:`NumberUnread` for a ``numjobs`` that is not written as a plain number of 1 or more: fio also
    calculates ("2*3") and knows other bases and suffixes.
    """
    return sum(map(_processes, jobs(text)))


def _processes(job: Job) -> int:
    count = job.options.get("numjobs", "1")
    if not _PLAIN_COUNT.fullmatch(count):
        raise NumberUnread(f"[{job.name}] numjobs = {count}: expected a whole number from 1 to 9999")
    return int(count)


def log_names(text: str) -> tuple[str, ...]:
    """The logs that fio leaves in the directory that it runs in, as ``NAME_iops.1.log`` (fio(1), "per_job_logs").

    NAME is what the option says, or else the job's; what leads to another directory, or is a variable, is not told.
    Raises :class:`NumberUnread` as :func:`processes`.
    """
    numbers = itertools.count(1)
    names: dict[str, None] = {}
    for job in jobs(text):
        one_each = job.is_on("per_job_logs", default=True)
        for number in itertools.islice(numbers, _processes(job)):
            for option, kinds in _LOGS.items():
                given = job.options.get(option, "/")
                if "/" not in given and "$" not in given:
                    ending = f".{number}.log" if one_each else ".log"
                    names |= dict.fromkeys(f"{given or job.name}_{kind}{ending}" for kind in kinds)
    return tuple(names)


def jobs(text: str) -> tuple[Job, ...]:
    """The job sections of a job file, in order; options that stand before any section are fio's to refuse."""
    found: list[tuple[str, dict[str, str]]] = []
    everywhere: dict[str, str] = {}
    current: dict[str, str] = {}
    for line in _lines(text):
        if section := _SECTION.match(line):
            is_global = section[1].startswith("global")  # fio compares no more than these letters
            current = everywhere if is_global else dict(everywhere)
            if not is_global:
                found.append((section[1], current))
        else:
            name, _, value = (word.strip() for word in line.partition("="))
            current[_ALIASES.get(name, name)] = value
    return tuple(Job(name, options) for name, options in found)


def deciding(text: str) -> Objective | None:
    """What a comment names as the metric that decides, ``# deciding metric: write.bw, over sum``; None without one.

    Raises :class:`UserError` for a second such comment, and for the name of no metric.
    """
    named_by = [found[1].strip() for line in text.splitlines() if (found := _NAMED.fullmatch(line))]
    if not named_by:
        return None
    if len(named_by) > 1:
        raise UserError("two comments name the deciding metric", "leave one of them")
    found = _DECIDING.fullmatch(named_by[0])
    if found is None:
        raise UserError(f"{named_by[0]!r} is no deciding metric", "write: # deciding metric: write.bw, over sum")
    objective = Objective(Objective(found["metric"]).definition.name, found["over"] or WORST)
    objective.check()
    return objective


def seeded(text: str, seed: int) -> str:
    """The job file with a seed for all random numbers of its jobs, but for :func:`those with their own <own_seeds>`.

    It comes first, in a global section: what stands below holds for a job instead (fio(1), "Job file format"). From
    one seed each job gets numbers of its own, by its place in the file. With randrepeat, which is on by default, the
    offsets come from a constant whatever the seed (fio's init.c, td_fill_rand_seeds(); seen with fio 3.33).
    """
    return f"[global]\nrandrepeat=0\nrandseed={seed}\n{text}"


def own_seeds(text: str) -> tuple[str, ...]:
    """The jobs that do not follow the seed of :func:`seeded`; with randrepeat it is the first process alone."""
    return tuple(
        job.name
        for job in jobs(text)
        if "randseed" in job.options or job.is_on("randrepeat") or job.is_on("allrandrepeat")
    )


def repeats_itself(text: str) -> bool:
    """Whether each run of the file as it is draws the same offsets: randrepeat is on by default (fio(1))."""
    return all(job.is_on("randrepeat", default=True) or "randseed" in job.options for job in jobs(text))


def has_ramp(text: str) -> bool:
    """Whether a job does I/O before it counts: fio's status has that, too, and its figures in the end have not."""
    return any("ramp_time" in job.options for job in jobs(text))


def objection(text: str) -> tuple[str, str] | None:
    """Why a job file cannot be measured with, and what to do about it; None when it can."""
    for line in _lines(text):
        if _INCLUDE.match(line):
            return f"{line!r}: the guest gets this one file", "write what it includes into the file itself"
    found = jobs(text)
    if not found:
        return "has no job section", "an fio job file needs a [name] line"
    for job in found:
        for objects, advice in _RULES:
            if (why := objects(job)) is not None:
                return f"[{job.name}] {why}", advice
    return None


def directions(text: str) -> tuple[str, ...]:
    """What the jobs of a file do, each direction once: "read", "write", "trim"."""
    return tuple(one for one in DIRECTIONS if any(one in job.directions for job in jobs(text)))


def _named(text: str) -> Iterator[tuple[str, Job]]:
    """Each process by its name in fio's output, with its section."""
    started = [job for job in jobs(text) for _ in range(_processes(job))]
    yield from zip(told_apart([job.name for job in started]), started, strict=True)


def told_apart(names: Sequence[str]) -> tuple[str, ...]:
    """The names of jobs; one that several have becomes ``name/1``, ``name/2``."""
    how_many = Counter(names)
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(f"{name}/{seen[name]}" if how_many[name] > 1 else name)
    return tuple(found)


def lacks(text: str, objective: Objective) -> tuple[str, str] | None:
    """Why a run of the file cannot have the value that decides, and what it has; None where that is not known yet.

    Raises :class:`NumberUnread` as :func:`processes`.
    """
    done, wanted = directions(text), objective.io_direction
    if wanted and wanted not in done:
        has = ", ".join(name for one in done for name in names_of(one))
        more = f", and percentiles of latencies such as {done[0]}.clat.p99" if done else ""
        return f"no job has {objective.metric}: none is told to {wanted}", f"metrics of its jobs are: {has}{more}"
    if objective.metric.startswith(SYNCS) and not any(job.syncs for job in jobs(text)):
        return f"no job has {objective.metric}: none is told to sync", "set fsync=N or fdatasync=N in a job that writes"
    if objective.over in OVER:
        return None
    named = dict(_named(text))
    if objective.over not in named:
        return f"has no job {objective.over!r}", f"--over is {', '.join(OVER)}, or one of: {', '.join(named)}"
    if wanted and wanted not in named[objective.over].directions:
        able = ", ".join(name for name, job in named.items() if wanted in job.directions)
        return f"job {objective.over} has no {objective.metric}: it is not told to {wanted}", f"jobs that are: {able}"
    return None


def unfit_for_device(text: str, runs: int) -> tuple[str, str] | None:
    """Why a job file cannot do so many runs on a block device, and what to do about it; None when it can.

    With files each run gets blocks of its own. On a device it is the job that puts them apart.
    """
    for job in jobs(text):
        elsewhere = "opendir" in job.options or job.options.get("directory", _DIRECTORY) != _DIRECTORY
        if elsewhere or job.options.get("filename") != _DEVICE:
            other = " alone" if elsewhere else ""
            what = f"[{job.name}] has no filename={_DEVICE}{other}, and the stack has no file system"
            return what, f"set filename={_DEVICE} in the job or in [global] above it; or --stack …+ext4"
        if runs > 1 and job.options.get("offset") != _OFFSET:
            what = f"[{job.name}] has no offset={_OFFSET}, and each of the stack's {runs} runs needs a place of its own"
            return what, f"set offset={_OFFSET}, and offset_increment=${{FILE_SIZE}} where numjobs is more than 1"
    return None


def unfit_for_files(text: str) -> tuple[str, str] | None:
    """Why a job file cannot work with files on the stack, and what to do about it: its jobs are for a device alone."""
    for job in jobs(text):
        if _is_for_device_alone(job):
            what = f"[{job.name}] has filename={_DEVICE} without a directory, and the stack has a file system"
            return what, f"set directory={_DIRECTORY}, too, which does no harm without one; or --stack …+raw"
    return None


def _is_for_device_alone(job: Job) -> bool:
    return job.options.get("filename") == _DEVICE and "directory" not in job.options


def _lines(text: str) -> Iterator[str]:
    stripped = (_COMMENT.sub("", line).strip() for line in text.splitlines())
    return (line for line in stripped if line)


def _merged(job: Job) -> str | None:
    merged = job.is_on("group_reporting")
    return "group_reporting makes one figure of several jobs, and each job counts" if merged else None


def _mixed(job: Job) -> str | None:
    how = job.options.get("unified_rw_reporting", "none")
    unified = how == "mixed" or (how.isdecimal() and int(how) == 1)
    return f"unified_rw_reporting={how} makes one figure of reads and writes" if unified else None


def _logs_shared(job: Job) -> str | None:
    shared = "write_iops_log" in job.options and not job.is_on("per_job_logs", default=True)
    return "per_job_logs=0 writes the IOPS of all jobs into one log" if shared else None


def _elsewhere(job: Job) -> str | None:
    """Before every name of a file fio puts the directory, also before one that begins with a slash (seen with 3.33)."""
    if _is_for_device_alone(job):
        return None
    directories, names = _paths(job, "directory"), [path for option in _NAMES for path in _paths(job, option)]
    starts = [*(directories or names), *_paths(job, "opendir")]
    outside = next((path for path in (*starts, *names) if ".." in path.split("/")), None)
    outside = outside or next((path for path in starts if path.split("/")[0] != _DIRECTORY), None)
    if starts and outside is None:
        return None
    what = f" ({outside})" if outside else ""
    return f"has its files elsewhere than in {_DIRECTORY}, where the stack under test is{what}"


def _paths(job: Job, option: str) -> list[str]:
    return _COLON.split(job.options[option]) if option in job.options else []


_RULES: tuple[tuple[Callable[[Job], str | None], str], ...] = (
    (_merged, "leave group_reporting out, or set it to 0"),
    (_mixed, "leave unified_rw_reporting out"),
    (_logs_shared, "leave per_job_logs out"),
    (_elsewhere, f"set directory={_DIRECTORY} in the job or in [global] above it"),
)
