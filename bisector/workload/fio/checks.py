"""Checks of a job file before anything is built: what is refused, how long its jobs run, how large their files are.

How fio 3.33 reads each form was found by running it.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bisector.core.objective import Objective
from bisector.core.units import duration_text, plural, size_text
from bisector.storage.layer import Files
from bisector.workload.fio import job_file
from bisector.workload.fio.job_file import CONFIGURED, VARIABLE, FioJob, JobLine, expanded, jobs, lines

# fio's kb_base is 1024 unless a job says otherwise; with it "KiB" is 1000 bytes.
_SIZE = re.compile(r"([0-9]{1,18})([kmgtp]?)(i?b)?", re.IGNORECASE)
_FURTHER = "kmgtp"
_TIME = re.compile(r"([0-9]{1,18}) *([a-z]*)", re.IGNORECASE)
_SECONDS = {
    "": 1.0,
    "d": 86400.0,
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("us", "usec"), 1e-6),
}
_COUNT = re.compile(r"[0-9]{1,9}")
# Colons separate several files; a colon that is part of a name has a backslash before it (fio(1)).
COLON = re.compile(r"(?<!\\):")


def size_bytes(text: str) -> int | None:
    """The bytes of a size; None for a form that only fio can evaluate, such as a percentage."""
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    number, prefix, unit = found.groups()
    factor = 1000 if prefix and (unit or "").lower() == "ib" else 1024
    power = _FURTHER.index(prefix.lower()) + 1 if prefix else 0
    return int(number) * int(factor**power)


def seconds(text: str) -> float | None:
    """The seconds of a time; None for a form that only fio can evaluate."""
    found = _TIME.fullmatch(text)
    factor = _SECONDS.get(found[2].lower()) if found else None
    return None if found is None or factor is None else int(found[1]) * factor


def runtime_s(job: FioJob, variables: Mapping[str, str]) -> float | None:
    """How many seconds a job runs; None if that depends on its work, or has a form that only fio can evaluate."""
    return seconds(expanded(job.options.get("runtime", ""), variables)) if job.is_on("time_based") else None


def spans(found: Sequence[FioJob], variables: Mapping[str, str]) -> list[tuple[float, float]]:
    """When each job begins and ends, in seconds since fio's start; jobs whose time is not known are left out.

    ``startdelay`` counts from the start of fio, whatever a job waits for. A ramp is ignored.
    """
    ends: dict[str, float] = {}
    spans = []
    for job in found:
        delay = expanded(job.options.get("startdelay", "0"), variables).rpartition("-")[2]
        before = list(ends.values()) if job.is_on("stonewall") else []
        awaited = ends.get(job.options.get("wait_for", ""), 0.0)
        begin = max((seconds(delay) or 0.0, awaited, *before))
        if (length := runtime_s(job, variables)) is not None:
            ends[job.name] = max(ends.get(job.name, 0.0), begin + length)
            spans.append((begin, begin + length))
    return spans


def files_of(found: Sequence[FioJob], variables: Mapping[str, str]) -> Files:
    """The files that fio lays out; a size that is not known is taken to be ``FILE_SIZE``.

    Files with the same name are one file, as large as any job needs it. Raises
    :class:`bisector.core.errors.UserError` if a ``numjobs`` is not a plain number.
    """
    file_bytes = int(variables["FILE_SIZE"])
    total, count, largest = 0, 0, 0
    shared: dict[str, int] = {}
    line: JobLine | None = None  # the line with the literal size of the largest file, if it has one
    for job in found:

        def sized(option: str, job: FioJob = job) -> int | None:
            return size_bytes(expanded(job.options.get(option, ""), variables).rpartition("-")[2])

        processes = len(job.processes)
        named = COLON.split(job.options["filename"]) if "filename" in job.options else []
        given = job.options.get("nrfiles", "1")
        many = len(named) or (max(int(given), 1) if _COUNT.fullmatch(given) else 1)
        sizes = ((option, sized(option)) for option in ("filesize", "size"))
        option, size = next((one for one in sizes if one[1] is not None), ("", file_bytes))
        each = (size or 0) // (1 if option == "filesize" else many) + (sized("offset") or 0)
        if each > largest:
            largest, line = each, job.lines[option] if option and "${" not in job.options[option] else None
        if not named:
            total, count = total + processes * many * each, count + processes * many
        place = sized("offset_increment") or 0
        for name in named:
            path = f"{job.options.get('directory', '')}/{name}"
            shared[path] = max(shared.get(path, 0), each + (processes - 1) * place)
    total, count = total + sum(shared.values()), count + len(shared)
    if line is not None:
        sentence = f"{line}: files of {size_text(largest)}, {size_text(total)} in all"
        return Files(total, sentence, largest, ("workload.job",), "size=${FILE_SIZE}")
    started = sum(len(job.processes) for job in found)
    what = plural(*((started, "job") if count == started else (count, "file")))
    sentence = f"{what} of {size_text(largest)} {'is' if count == 1 else 'are'} {size_text(total)}"
    keys, share = ("workload.file_size",), file_bytes / total if total else 1.0
    return Files(total, sentence, largest, keys, setting="--file-size ", share=share)


VARIABLES = ("DIRECTORY", "FILE_SIZE", "RUNTIME", "DEVICE", "OFFSET")
_ALL_VARIABLES = ", ".join(f"${{{one}}}" for one in VARIABLES)
_DIRECTORY = "${DIRECTORY}"
_DEVICE = "${DEVICE}"
_OFFSET = "${OFFSET}"
_NAMES = ("filename", "filename_format")
# Keywords that fio itself replaces, without braces (fio(1), "Reserved Keywords" and filename_format).
_OF_FIO = ("pagesize", "mb_memory", "ncpus", "jobname", "jobnum", "filenum", "clientuid")
# Options whose value is for a shell, or for people.
_FREE = frozenset(("exec_prerun", "exec_postrun", "description"))
_ENGINES = "ioengine=libaio, or another engine that works on files and block devices: io_uring, posixaio, psync, mmap"
_NETWORK = "works on a server elsewhere, and the guest has no network"
_NO_DEVICE = "works on a device of its own kind, which no stack has"
_USELESS = {
    **dict.fromkeys(("rbd", "rados", "gfapi", "gfapi_async", "nbd", "net", "netsplice", "rdma"), _NETWORK),
    **dict.fromkeys(("libhdfs", "http", "libiscsi", "librpma_apm", "librpma_gpspm", "dfs", "nfs"), _NETWORK),
    **dict.fromkeys(("mtd", "dev-dax", "sg", "io_uring_cmd", "pmemblk"), _NO_DEVICE),
    **dict.fromkeys(("cpuio", "null"), "does no I/O, and each job counts"),
}
_INCLUDE = re.compile(r"include(?:\s|$)")
_SAME_S = 1e-3


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a line is refused, and what to write instead; without a line the whole file is refused."""

    line: JobLine | None
    why: str
    advice: str

    def __str__(self) -> str:
        return f"{self.line}: {self.why}" if self.line else self.why


def told(found: Iterable[Objection]) -> tuple[str, str] | None:
    """The first objection, and its advice followed by the objections to other lines; None if there are none."""
    by_line = {one.line: one for one in reversed([*found])}
    if not by_line:
        return None
    first, *others = sorted(by_line.values(), key=lambda one: one.line.number if one.line else 0)
    return str(first), "\n  ".join((first.advice, *(f"{one}; {one.advice}" for one in others)))


def objections(text: str) -> Iterator[Objection]:
    """Yield what cannot work on any stack."""
    found = jobs(text)
    begun = not found
    for line in lines(text):
        begun = begun or line.section is not None
        if not begun:
            yield Objection(line, "fio refuses an option that stands before any [section]", "write [global] above it")
        if _INCLUDE.match(line.written):
            yield Objection(line, "the guest gets this one file", "write what it includes into the file itself")
        elif line.section is None and line.name not in _FREE:
            yield from _variables(line)
    if not found:
        yield Objection(None, "has no job section", "an fio job file needs a [name] line")
    for job in found:
        yield from _of_job(job)


def untaken(text: str, variables: Mapping[str, str]) -> Iterator[Objection]:
    """Yield what the fio of the built image does not take."""
    engines: dict[bool, str | None] = {}
    sections: list[list[JobLine]] = [[]]
    for line in lines(text):
        if line.section is not None:
            sections.append([])
        sections[-1].append(line)
    for head, *options in filter(None, sections):
        own = [line.value for line in options if line.name == "ioengine"] or [engines.get(True)]
        engine = job_file.engine_called(own[-1])
        if head.is_global:
            engines[True] = own[-1]
        for line in options:
            value = None if line.value is None else expanded(line.value, variables)
            found = job_file.why_no_engine(value) if value and line.name == "ioengine" else None
            blank = re.search(r"=\s", line.text) and value  # fio takes none before a word
            found = found or job_file.objection(line.written, f" {value}" if blank else value, engine)
            if found is not None:
                why, advice = found
                yield Objection(line, why, advice or _ENGINES)


def lasting(text: str, objective: Objective, variables: Mapping[str, str]) -> Iterator[Objection]:
    """Yield why a run does not last as long as it is asked to.

    A run that is judged by the time it takes (``elapsed``) may have any length.
    """
    found, wanted_s = jobs(text), float(variables["RUNTIME"])
    if objective.metric == "elapsed":
        return
    if unbounded := [one for job in found for one in _unbounded(job, variables)]:
        yield from unbounded
        return
    times = spans(found, variables)
    takes_s = max((end for _, end in times), default=wanted_s)
    if abs(takes_s - wanted_s) < _SAME_S:
        return
    takes, asked = duration_text(takes_s), f"workload.runtime is {duration_text(wanted_s)}"
    for job, (begin, end) in zip(found, times, strict=True):
        if abs(end - begin - wanted_s) >= _SAME_S:
            why = f"runs for {duration_text(end - begin)}, all jobs take {takes}, and {asked}"
            yield _of(job, "runtime", why, f"runtime=${{RUNTIME}}, or --runtime {takes}")
        if begin:
            why = f"begins after {duration_text(begin)}, so that all jobs take {takes}, and {asked}"
            waits = next(one for one in ("stonewall", "wait_for", "startdelay") if one in job.options)
            yield _of(job, waits, why, f"leave {job.lines[waits].written} out, and give each job a job file of its own")


def unfit_for_device(text: str, runs: int) -> Iterator[Objection]:
    """Yield why a job file cannot do ``runs`` runs on a block device.

    With files each run gets its own blocks. On a device the job itself has to use another place in each run.
    """
    for job in jobs(text):
        elsewhere = "opendir" in job.options or job.options.get("directory", _DIRECTORY) != _DIRECTORY
        if elsewhere or job.options.get("filename") != _DEVICE:
            why = f"has no filename={_DEVICE}{' alone' if elsewhere else ''}, and the stack has no file system"
            advice = f"set filename={_DEVICE} in the job or in [global] above it; or --stack …+ext4"
            yield _of(job, "filename", why, advice)
        elif runs > 1 and job.options.get("offset") != _OFFSET:
            why = f"has no offset={_OFFSET}, and each of the stack's {runs} runs needs a place of its own"
            advice = f"set offset={_OFFSET}, and offset_increment=${{FILE_SIZE}} where numjobs is more than 1"
            yield _of(job, "offset", why, advice)


def unfit_for_files(text: str) -> Iterator[Objection]:
    """Yield why a job file cannot work with files: it is only for a device, or does not say how large files are."""
    for job in jobs(text):
        size = next((job.options[one] for one in ("filesize", "size") if one in job.options), "")
        if job.is_for_device_alone(_DEVICE):
            why = f"has filename={_DEVICE} without a directory, and the stack has a file system"
            advice = f"set directory={_DIRECTORY}, too, which does no harm without one; or --stack …+raw"
            yield _of(job, "filename", why, advice)
        elif not size or size.endswith("%"):
            what = f"size={size} is a share of files that are there before" if size else "has no size"
            yield _of(job, "size", f"{what}, and there are none: fio makes them", "size=${FILE_SIZE}")


def _of(job: FioJob, option: str, why: str, advice: str) -> Objection:
    return Objection(job.lines.get(option, job.head), f"[{job.section}] {why}", advice)


def _variables(line: JobLine) -> Iterator[Objection]:
    value = line.value or ""
    for name in VARIABLE.findall(value):
        if name in _OF_FIO:
            yield Objection(line, f"fio takes ${{{name}}} for a variable of the environment", f"write ${name}")
        elif name not in VARIABLES:
            near = difflib.get_close_matches(name, VARIABLES, n=1, cutoff=0.8)
            advice = f"did you mean ${{{near[0]}}}?" if near else f"write its value; the variables are {_ALL_VARIABLES}"
            why = f"the guest has no variable {name}, and fio puts nothing in the place of ${{{name}}}"
            yield Objection(line, why, advice)
    for name in VARIABLES:
        if value == f"${name}" or value.startswith(f"${name}/"):
            yield Objection(line, f"fio takes ${name} as it stands, without its value", f"write ${{{name}}}")


def _of_job(job: FioJob) -> Iterator[Objection]:
    """Yield the options with which no run of the job can be measured."""
    options, engine = job.options, job_file.engine_called(job.options.get("ioengine"))
    unified, word = options.get("unified_rw_reporting", "none"), options.get("rw", "read").partition(":")[0]
    near = difflib.get_close_matches(word, CONFIGURED, n=1)
    # fmt: off
    for wrong, option, why, advice in (
        (job.is_on("group_reporting"), "group_reporting",
         "group_reporting makes one figure of several jobs, and each job counts",
         "leave group_reporting out, or set it to 0"),
        (unified == "mixed" or (unified.isdecimal() and int(unified) == 1), "unified_rw_reporting",
         f"unified_rw_reporting={unified} makes one figure of reads and writes", "leave unified_rw_reporting out"),
        ("write_iops_log" in options and not job.is_on("per_job_logs", default=True), "per_job_logs",
         "per_job_logs=0 writes the IOPS of all jobs into one log", "leave per_job_logs out"),
        (word not in CONFIGURED and "$" not in word, "rw", f"rw={word} is neither a read nor a write nor a trim",
         f"did you mean {near[0]}?" if near else f"one of: {', '.join(CONFIGURED)}"),
        (engine == "external", "ioengine", "has an engine in a file, and the guest gets this one file", _ENGINES),
        (engine in _USELESS, "ioengine", f"the engine {engine} {_USELESS.get(engine)}", _ENGINES),
        (options.get("zonemode") == "zbd", "zonemode",
         "zonemode=zbd is for a disk with zones, and no disk of a stack has any",
         "leave zonemode out, or zonemode=strided, which every disk takes"),
        ("read_iolog" in options, "read_iolog", "replays a file, and the guest gets this one file",
         "describe the I/O with rw, bs, iodepth and random_distribution"),
    ):
        if wrong:
            yield _of(job, option, why, advice)
    # fmt: on
    if job.is_for_device_alone(_DEVICE):
        return

    # fio puts the directory before every name of a file, even if the name begins with a slash (seen with 3.33).
    def paths(option: str) -> list[str]:
        return COLON.split(options[option]) if option in options else []

    directories, names = paths("directory"), [path for option in _NAMES for path in paths(option)]
    starts = [*(directories or names), *paths("opendir")]
    outside = next((path for path in (*starts, *names) if ".." in path.split("/")), None)
    outside = outside or next((path for path in starts if path.split("/")[0] != _DIRECTORY), None)
    if not starts or outside is not None:
        line = next((one for one in ("directory", "opendir", *_NAMES) if outside in paths(one)), "")
        what = f" ({outside})" if outside else ""
        why = f"has its files elsewhere than in {_DIRECTORY}, where the stack under test is{what}"
        yield _of(job, line, why, f"set directory={_DIRECTORY} in the job or in [global] above it")


def _unbounded(job: FioJob, variables: Mapping[str, str]) -> Iterator[Objection]:
    """Yield why a job ends for another reason than its time."""
    runtime = job.options.get("runtime")
    if not job.is_on("time_based"):
        limit = f", or after {runtime}" if runtime else ""
        asked = f"workload.runtime is {duration_text(float(variables['RUNTIME']))}"
        why = f"is not time_based: it ends when it has done its size once{limit}, and {asked}"
        option = "runtime" if "runtime" in job.lines else "time_based"
        yield _of(job, option, why, "time_based and runtime=${RUNTIME}; or --metric elapsed for how long it takes")
    elif not runtime_s(job, variables):
        given = "there is no runtime" if runtime is None else f"runtime={runtime} is not a time"
        yield _of(job, "runtime", f"is time_based, and {given}", "runtime=${RUNTIME}")
    if "steadystate" in job.options:
        why = "ends when its figures are steady, and not after workload.runtime"
        yield _of(job, "steadystate", why, "leave it out: the length of a run is to be the same for each commit")
    if "latency_target" in job.options and not job.is_on("latency_run"):
        why = "ends when it has found a depth for its latency_target"
        yield _of(job, "latency_target", why, "leave it out, or latency_run=1")
