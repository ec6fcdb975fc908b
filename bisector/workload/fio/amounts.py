"""How long the jobs of a file run, and how large the files are that they lay out: as far as the job file tells.

How fio 3.33 takes each form was seen by running it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bisector.workload.fio.job_file import Job, Line, expanded

# fio's kb_base is 1024 unless a job says otherwise; "KiB" is 1000 bytes then.
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
# Several files stand between colons; one that belongs to a name has a backslash before it (fio(1)).
COLON = re.compile(r"(?<!\\):")


def size_bytes(text: str) -> int | None:
    """Bytes; None for a form that is fio's alone, such as a percentage."""
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    number, prefix, unit = found.groups()
    factor = 1000 if prefix and (unit or "").lower() == "ib" else 1024
    power = _FURTHER.index(prefix.lower()) + 1 if prefix else 0
    return int(number) * int(factor**power)


def seconds(text: str) -> float | None:
    """A time; None for a form that is fio's alone."""
    found = _TIME.fullmatch(text)
    factor = _SECONDS.get(found[2].lower()) if found else None
    return None if found is None or factor is None else int(found[1]) * factor


def runtime_s(job: Job, variables: Mapping[str, str]) -> float | None:
    """How long it runs; None where that depends on what it has to do, or is in a form that is fio's alone."""
    return seconds(expanded(job.options.get("runtime", ""), variables)) if job.is_on("time_based") else None


def spans(found: Sequence[Job], variables: Mapping[str, str]) -> list[tuple[float, float]]:
    """When each job begins and ends, in seconds since fio's start; without those whose time is not known.

    ``startdelay`` is since the start of fio, whatever a job waits for. A ramp counts for nothing.
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


@dataclass(frozen=True, slots=True)
class LaidOut:
    """The files of a run: bytes in all, of the largest, and how many; ``line`` is that of a literal size."""

    total_bytes: int
    largest_bytes: int
    count: int
    line: Line | None


def laid_out(found: Sequence[Job], variables: Mapping[str, str]) -> LaidOut:
    """What fio lays out; a size that is not known is taken for that of the variable ``FILE_SIZE``.

    Files of one name are one, as large as the job with most of it needs it. Raises
    :class:`bisector.workload.fio.job_file.NumberUnread`.
    """
    total, count, largest = 0, 0, 0
    shared: dict[str, int] = {}
    line: Line | None = None
    for job in found:
        processes = len(job.processes)
        named = COLON.split(job.options["filename"]) if "filename" in job.options else []
        many = len(named) or _count(job)
        each, of = _file_bytes(job, many, variables)
        if each > largest:
            largest, line = each, of
        if not named:
            total, count = total + processes * many * each, count + processes * many
        place = _bytes(job, "offset_increment", variables) or 0
        for name in named:
            path = f"{job.options.get('directory', '')}/{name}"
            shared[path] = max(shared.get(path, 0), each + (processes - 1) * place)
    return LaidOut(total + sum(shared.values()), largest, count + len(shared), line)


def _count(job: Job) -> int:
    given = job.options.get("nrfiles", "1")
    return max(int(given), 1) if _COUNT.fullmatch(given) else 1


def _file_bytes(job: Job, count: int, variables: Mapping[str, str]) -> tuple[int, Line | None]:
    """How large each of its files is, and the line that says so by itself."""
    offset = _bytes(job, "offset", variables) or 0
    for option, share in (("filesize", 1), ("size", count)):
        if (size := _bytes(job, option, variables)) is not None:
            literal = "${" not in job.options[option]
            return size // share + offset, job.lines[option] if literal else None
    return int(variables["FILE_SIZE"]) // count + offset, None


def _bytes(job: Job, option: str, variables: Mapping[str, str]) -> int | None:
    """The size that an option has, of a range the upper end."""
    return size_bytes(expanded(job.options.get(option, ""), variables).rpartition("-")[2])
