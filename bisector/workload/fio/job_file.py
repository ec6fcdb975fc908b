"""An fio job file as fio reads it: lines, jobs with the options that hold for them, their names, logs and seeds.

The image is of Debian 12, which has fio 3.33. The table of options is what this fio prints about itself (``--cmdhelp``,
``--enghelp``) and how it answers (``--parse-only``); ``python -m tests.workload.fio_table`` writes it again. A job file
is checked against the table before anything is built. Other errors are found by the guest's own fio when it runs.

The grammar is described in fio(1), "Job file format", and read as fio 3.33 reads it.
"""

import difflib
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bisector.core.errors import UserError
from bisector.core.metric import DIRECTIONS, SYNCS, names_of
from bisector.core.objective import OVER, WORST, Objective

VERSION = "fio-3.33"
TABLE = Path(__file__).parent / "options.txt"
# Names that load_ioengine() in fio's ioengines.c takes for libaio.
_ENGINE_ALIASES = {"linuxaio": "libaio", "aio": "libaio"}
_USUAL_ENGINE = "psync"
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"\s?[-+.:,]*[0-9]")
# What fio itself replaces in a value: a variable of the environment, or a keyword (fio(1), "Reserved Keywords").
_REPLACED = re.compile(r"\$(?:\{|pagesize|mb_memory|ncpus)")


class _Option(NamedTuple):
    """An option: ``words`` are its valid values, before a colon or a comma; ``least`` and ``most`` bound a number.

    ``bare`` is set if it may stand without a value.
    """

    bare: bool
    words: tuple[str, ...]
    numeric: bool
    least: int | None
    most: int | None


@cache
def _table() -> tuple[Mapping[str, str], Mapping[str, _Option], Mapping[str, frozenset[str]]]:
    """The first name of each option by each of its names, the options by first name, and the options of each engine."""
    names: dict[str, str] = {}
    options: dict[str, _Option] = {}
    engines: dict[str, frozenset[str]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]:
        first, kind, *rest = line.split()
        if first == "engine":
            engines[kind] = frozenset(rest)
            continue
        spellings, numeric = first.removesuffix("?").split(","), kind == "number"
        least, most = (int(bound) if bound else None for bound in (rest[0].split("..") if numeric else ("", "")))
        words = tuple(rest) if kind == "word" else ()
        options[spellings[0]] = _Option(first.endswith("?"), words, numeric, least, most)
        names |= dict.fromkeys(spellings, spellings[0])
    return names, options, engines


def canonical(name: str) -> str:
    """The first name of an option, whichever of its names is written."""
    return _table()[0].get(name, name)


def engine_called(name: str | None) -> str:
    """The first name of an engine, or of fio's default engine for None."""
    word = (name or _USUAL_ENGINE).partition(":")[0]
    return _ENGINE_ALIASES.get(word, word)


def why_no_engine(name: str) -> tuple[str, str] | None:
    """Why the guest's fio has no such engine, and what may be meant; None if it has the engine."""
    engines = _table()[2]
    if "${" in name or engine_called(name) in {*engines, "external"}:
        return None
    return f"the guest's {VERSION} has no I/O engine {name}", _near(name, engines)


def objection(name: str, value: str | None, engine: str) -> tuple[str, str] | None:
    """Why fio does not take an option, and what to write instead; None if it does. A bare option has no ``value``."""
    names, options, engines = _table()
    option = options.get(canonical(name))
    if option is None:
        able = [one for one, own in engines.items() if name in own]
        if engine in able or (able and engine not in engines):  # an unknown engine is reported on its own line
            return None
        if able:
            return f"the engine {engine} has no option {name}", f"leave it out; engines that have it: {', '.join(able)}"
        hint = _near(name, (*names, *engines.get(engine, ()))) or "leave it out; fio(1) lists the options"
        return f"{VERSION} has no option {name}", hint
    return _unfit(name, value, option)


def _unfit(name: str, value: str | None, option: _Option) -> tuple[str, str] | None:
    if value is None:
        return None if option.bare else (f"{name} needs a value", f"{name}={' or '.join(option.words[:2]) or '1'}")
    if not value:
        return f"{name}= has no value", "give it one, or leave it out"
    if _REPLACED.search(value):
        return None
    word = re.split("[:,]", value)[0]
    if option.words and word not in option.words:
        hint = _near(word, option.words) or f"{name} is one of: {', '.join(option.words)}"
        return f"{VERSION} does not take {word!r} for {name}", hint
    return _of_number(name, value, option) if option.numeric else None


def _of_number(name: str, value: str, option: _Option) -> tuple[str, str] | None:
    if not _NUMBER.match(value):
        return f"{VERSION} does not take {value!r} for {name}", "expected a number"
    number = int(value) if _WHOLE.fullmatch(value.strip()) else None
    if number is not None and option.least is not None and number < option.least:
        return f"{name} is {option.least} or more", f"{name}={option.least}"
    if number is not None and option.most is not None and number > option.most:
        return f"{name} is {option.most} or less", f"{name}={option.most}"
    return None


def _near(word: str, known: Iterable[str]) -> str:
    names = difflib.get_close_matches(word, tuple(known), n=2, cutoff=0.6)
    return f"did you mean {' or '.join(names)}?" if names else ""


# The directions of each value of ``rw``, before the colon.
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
# The options with which fio writes logs, and the kinds in the names of these logs (fio's init.c, add_job()).
_LOGS = {
    "write_iops_log": ("iops",),
    "write_bw_log": ("bw",),
    "write_lat_log": ("lat", "slat", "clat"),
    "write_hist_log": ("clat_hist",),
}
_SYNCING = ("fsync", "fdatasync", "sync_file_range", "end_fsync", "fsync_on_close", "read_iolog")
# A comment for bisector, which fio ignores.
_NAMED = re.compile(r"\s*[;#]\s*deciding metric\s*:(.*)")
_DECIDING = re.compile(r"(?P<metric>[^\s,]+)(?:,?\s+over\s+(?P<over>\S(?:.*\S)?))?")
VARIABLE = re.compile(r"\$\{([^}]*)\}")


@dataclass(frozen=True, slots=True)
class JobLine:
    """A line of a job file, with its number from 1 on and its text.

    It is the head of a ``section``, or sets the option that the file calls ``written`` to ``value``, which is None if
    the option stands bare.
    """

    number: int
    text: str
    section: str | None
    written: str = ""
    value: str | None = None

    @property
    def name(self) -> str:
        """The first of fio's names of the option."""
        return canonical(self.written)

    @property
    def is_global(self) -> bool:
        """Whether the options of the section hold for all jobs after it."""
        return self.section is not None and self.section.startswith("global")  # fio compares only these letters

    def __str__(self) -> str:
        return f'line {self.number} "{self.text}"'


@dataclass(frozen=True, slots=True)
class FioJob:
    """A job section with the options that hold for it; its own options override the global sections above.

    ``head`` is the line of the section, ``lines`` are the lines of the options by their first names.
    """

    section: str
    head: JobLine
    lines: Mapping[str, JobLine]

    @property
    def options(self) -> Mapping[str, str]:
        """The value of each option; empty for a bare one."""
        return {name: line.value or "" for name, line in self.lines.items()}

    @property
    def name(self) -> str:
        """The name that fio gives it: ``name`` in its own section, but not in a global one (seen with fio 3.33)."""
        return self.options.get("name") or self.section

    @property
    def processes(self) -> tuple[str, ...]:
        """The name that fio gives each process; further ones are named after the section (seen with fio 3.33).

        Raises :class:`UserError` unless ``numjobs`` is a plain number from 1 to 9999: fio also calculates ("2*3") and
        takes other bases and suffixes.
        """
        count = self.options.get("numjobs", "1")
        if not _PLAIN_COUNT.fullmatch(count):
            line = self.lines["numjobs"]
            raise UserError(f"{line}: [{self.section}] numjobs: expected a whole number from 1 to 9999")
        return (self.name, *(self.section,) * (int(count) - 1))

    def is_on(self, option: str, default: bool = False) -> bool:
        """The value of a flag, which may stand bare; fio takes every number but 0 for true."""
        value = self.options.get(option)
        return default if value is None else not _ZERO.fullmatch(value)

    @property
    def directions(self) -> Collection[str]:
        """The directions that the job is told to do: "read", "write", "trim"; the default is to read."""
        return CONFIGURED.get(self.options.get("rw", "read").partition(":")[0], ())

    def is_for_device_alone(self, device: str) -> bool:
        """Whether its file is the block device, and it names no directory."""
        return self.options.get("filename") == device and "directory" not in self.options

    @property
    def syncs(self) -> bool:
        """Whether it is told to call fsync(2) or a similar system call."""
        return any(self.is_on(option) for option in _SYNCING)


def read(path: Path) -> str:
    """The text of a job file, without a byte order mark, which fio does not know; raises :class:`UserError`."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise UserError(f"the fio job file {path} cannot be read: {error}") from error
    if "\0" in text:
        raise UserError(f"the fio job file {path} is not text in UTF-8, as fio reads it")
    return text


def log_names(text: str) -> tuple[str, ...]:
    """The names of the logs that fio leaves in its directory, as ``NAME_iops.1.log`` (fio(1), "per_job_logs").

    NAME is the value of the option, or else the name of the job. Logs in another directory, and logs whose name has a
    variable, are left out. Raises :class:`UserError` as :attr:`FioJob.processes`.
    """
    numbers = itertools.count(1)
    names: dict[str, None] = {}
    for job in jobs(text):
        one_each = job.is_on("per_job_logs", default=True)
        for called, number in zip(job.processes, numbers, strict=False):
            for option, kinds in _LOGS.items():
                given = job.options.get(option, "/")
                if "/" not in given and "$" not in given:
                    ending = f".{number}.log" if one_each else ".log"
                    names |= dict.fromkeys(f"{given or called}_{kind}{ending}" for kind in kinds)
    return tuple(names)


def lines(text: str) -> Iterator[JobLine]:
    """Yield the lines of a job file that are neither blank nor a comment."""
    for number, whole in enumerate(text.splitlines(), 1):
        if not (said := _COMMENT.sub("", whole).strip()):
            continue
        if section := _SECTION.match(said):
            yield JobLine(number, whole, section[1])
        else:
            name, equals, value = (word.strip() for word in said.partition("="))
            yield JobLine(number, whole, None, name, value if equals else None)


def jobs(text: str) -> tuple[FioJob, ...]:
    """The job sections of a job file, in order; options before any section, which fio refuses, are ignored."""
    found: list[FioJob] = []
    everywhere: dict[str, JobLine] = {}
    current: dict[str, JobLine] = {}
    for line in lines(text):
        if line.section is None:
            current[line.name] = line
            continue
        inherited = {name: one for name, one in everywhere.items() if name != "name"}
        current = everywhere if line.is_global else inherited
        if not line.is_global:
            found.append(FioJob(line.section, line, current))
    return tuple(found)


def expanded(value: str, variables: Mapping[str, str]) -> str:
    """The value with the variables that are known replaced, as fio does it."""
    return VARIABLE.sub(lambda found: variables.get(found[1], found[0]), value)


def deciding(text: str) -> Objective | None:
    """The objective that a comment names, ``# deciding metric: write.bw, over sum``; None if there is no such comment.

    Raises :class:`UserError` if there are two such comments, or if one names no metric.
    """
    named_by = [found[1].strip() for line in text.splitlines() if (found := _NAMED.fullmatch(line))]
    if not named_by:
        return None
    if len(named_by) > 1:
        raise UserError("two comments name the deciding metric", "leave one of them")
    found = _DECIDING.fullmatch(named_by[0])
    if found is None:
        raise UserError(f"{named_by[0]!r} is not a deciding metric", "write: # deciding metric: write.bw, over sum")
    objective = Objective(Objective(found["metric"]).definition.name, found["over"] or WORST)
    objective.check()
    return objective


def seeded(text: str, seed: int) -> str:
    """The job file with a seed for all random numbers of its jobs, except :func:`jobs with their own <own_seeds>`.

    The seed is in a global section at the top, so later options override it (fio(1), "Job file format"). Each job
    derives different numbers from the seed, by its place in the file. With randrepeat, which is on by default, the
    offsets come from a constant, whatever the seed is (fio's init.c, td_fill_rand_seeds(); seen with fio 3.33).
    """
    return f"[global]\nrandrepeat=0\nrandseed={seed}\n{text}"


def own_seeds(text: str) -> tuple[str, ...]:
    """The jobs that ignore the seed of :func:`seeded`; with randrepeat only the first process of a job does."""
    return tuple(
        job.name
        for job in jobs(text)
        if "randseed" in job.options or job.is_on("randrepeat") or job.is_on("allrandrepeat")
    )


def logs_means(text: str) -> bool:
    """Whether each job leaves a log of its IOPS over time that has means, not a line for each I/O."""
    return all("write_iops_log" in job.options and job.is_on("log_avg_msec") for job in jobs(text))


def directions(text: str) -> tuple[str, ...]:
    """The directions of all jobs of a file, each once: "read", "write", "trim"."""
    return tuple(one for one in DIRECTIONS if any(one in job.directions for job in jobs(text)))


def told_apart(names: Sequence[str]) -> tuple[str, ...]:
    """The names of jobs made unique: a name that several jobs have becomes ``name/1``, ``name/2``."""
    numbers = {name: itertools.count(1) for name, many in Counter(names).items() if many > 1}
    return tuple(f"{name}/{next(numbers[name])}" if name in numbers else name for name in names)


def _unmeasured(job: FioJob, metric: str) -> Iterator[tuple[str, str]]:
    """Yield why a job does not measure the latency of a metric, or not this percentile, and what to write instead."""
    kind, _, what = metric.partition(".")[2].partition(".")
    if kind not in ("slat", "clat", "lat"):
        return
    for option in ("gtod_reduce", f"disable_{kind}"):
        if job.is_on(option):
            yield f"[{job.section}] has no {metric}: {job.lines[option]}", f"leave {option} out"
    if what[1:2].isdigit():
        if not job.is_on(f"{kind}_percentiles", default=kind == "clat"):
            yield f"[{job.section}] has no {metric}: fio computes no percentiles of {kind}", f"{kind}_percentiles=1"
        listed = job.options.get("percentile_list", "")
        if listed and float(what[1:]) not in map(float, re.findall(r"\d+(?:\.\d+)?", listed)):
            yield f"[{job.section}] has no {metric}: {job.lines['percentile_list']}", f"add {what[1:]} to the list"


def lacks(text: str, objective: Objective) -> tuple[str, str] | None:
    """Why a run of the file cannot have the value that decides, and what it has instead; None if it may have it.

    Raises :class:`UserError` as :attr:`FioJob.processes`.
    """
    done, wanted = directions(text), objective.io_direction
    if wanted and wanted not in done:
        synced = ("sync.lat.mean",) if any(job.syncs for job in jobs(text)) else ()
        has = ", ".join((*(name for one in done for name in names_of(one)), *synced))
        more = f", and percentiles of latencies such as {done[0]}.clat.p99" if done else ""
        return f"no job has {objective.metric}: none is told to {wanted}", f"metrics of its jobs are: {has}{more}"
    if objective.metric.startswith(SYNCS) and not any(job.syncs for job in jobs(text)):
        return f"no job has {objective.metric}: none is told to sync", "set fsync=N or fdatasync=N in a job that writes"
    counting = (job for job in jobs(text) if wanted in job.directions and objective.over in (*OVER, job.name))
    unmeasured = next((one for job in counting for one in _unmeasured(job, objective.metric)), None)
    if unmeasured or objective.over in OVER:
        return unmeasured
    over, started = objective.over, [(called, job) for job in jobs(text) for called in job.processes]
    named = dict(zip(told_apart([called for called, _ in started]), [job for _, job in started], strict=True))
    if over not in named:  # a name in the file need not be the name of a job
        renamed = next((job for job in jobs(text) if job.section == over != job.name), None)
        line = next((one for one in lines(text) if one.name == "name" and one.value == over), None)
        why = f": {line} is in [global], where {VERSION} takes it for no job's name" if line else ""
        if renamed:
            why = f": fio calls [{over}] {renamed.name}, by {renamed.lines['name']}"
        return f"has no job {over!r}{why}", f"--over is {', '.join(OVER)}, or one of: {', '.join(named)}"
    if wanted and wanted not in named[over].directions:
        able = ", ".join(name for name, job in named.items() if wanted in job.directions)
        return f"job {over} has no {objective.metric}: it is not told to {wanted}", f"jobs that are: {able}"
    return None
