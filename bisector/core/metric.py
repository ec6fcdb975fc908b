"""Metrics: each has a name and a unit, and tells whether a higher or a lower value is better.

The names are fio's (fio(1), "Interpreting the output"). A figure that a user's own command prints has a name that
includes all of this, ``custom:tps:1/s:higher``, so that a record can be read without its settings; users type
``custom:tps``.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import cache

from bisector.core import units
from bisector.core.errors import UserError


class LatencyKind(StrEnum):
    """What fio times (fio(1)): an I/O until its submission, from there to its completion, and both; and syncs."""

    SUBMISSION = "slat"
    COMPLETION = "clat"
    TOTAL = "lat"
    SYNC = "sync"  # fsync(2), fdatasync(2), sync_file_range(2): of the whole job, recorded with each of its directions


# "mixed" is for all I/O together, if fio is told to report one figure for it (unified_rw_reporting=mixed).
DIRECTIONS = ("read", "write", "trim", "mixed")
_PERCENTILE = re.compile(r"p(?P<percent>[0-9]{1,2}(?:\.[0-9]{1,6})?)", re.ASCII)
_THREE_DIGITS = 3
_MINUTE_S = 60


class Better(StrEnum):
    """Which of two values of a metric is better."""

    HIGHER = "higher"
    LOWER = "lower"

    @property
    def sign(self) -> int:
        """1 if a larger value is better, else -1."""
        return 1 if self is Better.HIGHER else -1


class Unit(StrEnum):
    """The unit in which values of a metric are kept."""

    IOPS = "IOPS"
    BYTES_S = "B/s"
    NANOSECONDS = "ns"
    SECONDS = "s"
    PERCENT = "%"
    COUNT = "count"
    RATE = "1/s"
    BYTES = "B"

    @classmethod
    def of(cls, text: str) -> "Unit":
        """Return the unit in which values typed in ``text`` are kept: ``MiB/s``, ``ms``, ``1/s``.

        Raises :class:`UserError` if ``text`` is not a unit.
        """
        of_its_own = sorted(cls, key=lambda one: one != text)  # Unit.NANOSECONDS reads seconds, too
        found = next((unit for unit in of_its_own if text and unit.factor(text) is not None), None)
        if found is None:
            names = dict.fromkeys(name for unit in cls for name in (str(unit), *_WRITINGS[unit].scale) if name)
            raise UserError(f"there is no unit {text!r}", f"units are: {', '.join(names)}")
        return found

    def factor(self, text: str) -> float | None:
        """How many of this unit one of the unit ``text`` is; None if that is of another kind."""
        return _WRITINGS[self].scale.get(text)

    @property
    def example(self) -> str:
        """A value as a user types it."""
        return _WRITINGS[self].example

    @property
    def additive(self) -> bool:
        """Whether the sum over jobs is a figure of the whole workload."""
        return self in (Unit.IOPS, Unit.BYTES_S, Unit.COUNT, Unit.RATE, Unit.BYTES)

    def read(self, text: str) -> float:
        """Parse a value as a user types it, and return it in this unit: ``20000``, ``1.5ms``, ``80MiB/s``.

        Raises :class:`UserError`, also for a time or a bandwidth without its unit.
        """
        with suppress(ValueError):
            number, factor = units.quantity(text, _WRITINGS[self].scale)
            if number > 0:
                return number * factor
        raise UserError(f"{text!r} is not a value in {self}", f"expected one such as {self.example}")

    def typed(self, value: float) -> str:
        """Format a value so that :meth:`read` reads it, with all its digits."""
        return f"{plain_number(value)}{_WRITINGS[self].suffix}"

    def text(self, value: float) -> str:
        """Format a value with its unit, for a person: ``3,618 IOPS``, ``16.2 ms``, ``80 MiB/s``."""
        return _WRITINGS[self].text(value)


def plain_number(value: float) -> str:
    """Format a number with all its digits and without an exponent."""
    return f"{Decimal(repr(value)).normalize():f}"


def _time(value: float) -> str:
    for name, factor in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if value >= factor:
            return f"{_digits(value / factor)} {name}"
    return f"{_digits(value)} ns"


def _digits(value: float) -> str:
    """Format a value with three digits, or with all digits before its point if there are more."""
    before_point = len(f"{value:.0f}")
    return f"{value:,.{max(0, _THREE_DIGITS - before_point)}f}"


@dataclass(frozen=True, slots=True)
class _Writing:
    """How values of a unit are written: an example, the suffix of its digits, the factors of typed units, the text."""

    example: str
    suffix: str
    scale: Mapping[str, float]
    text: Callable[[float], str]


_THOUSANDS = {"": 1.0, "k": 1e3, "M": 1e6}
_BYTES = {f"{letter}iB": 1024.0**power for power, letter in enumerate("KMGT", 1)}
_BYTES |= {"B": 1.0, **{f"{letter}B": 1000.0**power for power, letter in enumerate("kMGT", 1)}}
_BYTES_S = {f"{name}/s": factor for name, factor in _BYTES.items()}
_NS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_IOPS = {**_THOUSANDS, **{f"{k}IOPS": factor for k, factor in _THOUSANDS.items()}}
_RATES = {"1/s": 1.0, **_THOUSANDS, **{f"{k}/s": factor for k, factor in _THOUSANDS.items()}}
_WRITINGS: Mapping[Unit, _Writing] = {
    Unit.IOPS: _Writing("20000", "", _IOPS, lambda value: f"{value:,.0f} IOPS"),
    Unit.BYTES_S: _Writing("80MiB/s", "B/s", _BYTES_S, lambda value: f"{units.size(round(value))}/s"),
    Unit.NANOSECONDS: _Writing("1.5ms", "ns", _NS, _time),
    Unit.SECONDS: _Writing(
        "90s", "s", _SECONDS, lambda value: f"{_digits(value)} s" if value < _MINUTE_S else units.duration(value)
    ),
    Unit.PERCENT: _Writing("95%", "%", {"": 1.0, "%": 1.0}, lambda value: f"{value:.1f} %"),
    Unit.COUNT: _Writing(
        "1200",
        "",
        {**_THOUSANDS, "count": 1.0},
        lambda value: f"{value:,.0f}" if value == int(value) else _digits(value),
    ),
    Unit.RATE: _Writing("350", "", _RATES, lambda value: f"{_digits(value)} /s"),
    Unit.BYTES: _Writing("80MiB", "B", _BYTES, lambda value: units.size(round(value))),
}


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric; its runs can be followed if it is ``live``, and ``better`` is None if neither side is better.

    In the listing of :func:`table`, ``name`` is a pattern if the metric exists for several directions or percentiles.
    """

    name: str
    unit: Unit
    better: Better | None
    sentence: str
    live: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a metric, of one job, or of the run as a whole if ``job`` is empty."""

    name: str
    job: str
    value: float


def _of_direction(direction: str) -> Iterator[Metric]:
    yield Metric(f"{direction}.iops", Unit.IOPS, Better.HIGHER, "I/Os of a second over the job's run time", live=True)
    yield Metric(f"{direction}.bw", Unit.BYTES_S, Better.HIGHER, "bytes of a second over the job's run time", live=True)
    yield Metric(f"{direction}.ios", Unit.COUNT, Better.HIGHER, "I/Os that the job did")
    what = "I/Os of a second over the steady part of the run"
    yield Metric(f"{direction}.iops.steady", Unit.IOPS, Better.HIGHER, what, live=True)
    yield Metric(f"{direction}.iops.stddev", Unit.IOPS, Better.LOWER, "standard deviation of fio's samples of the IOPS")
    for kind, what in _KINDS.items():
        yield from _distribution(f"{direction}.{kind}", what)


_KINDS = {
    LatencyKind.SUBMISSION: "until an I/O is submitted",
    LatencyKind.COMPLETION: "from the submission of an I/O to its completion",
    LatencyKind.TOTAL: "from the making of an I/O to its completion",
}
_OF_ALL = {"min": "shortest", "mean": "mean", "max": "longest", "stddev": "standard deviation of the"}


def _distribution(start: str, what: str) -> Iterator[Metric]:
    for name, which in _OF_ALL.items():
        yield Metric(f"{start}.{name}", Unit.NANOSECONDS, Better.LOWER, f"{which} time {what}")


_STEADY = ".steady"
SETTLED_AFTER = "settled_after"
# The name of a job's syncs among the metrics, and what is timed
SYNCS, _OF_SYNCS = "sync.lat", "of an fsync(2), fdatasync(2) or sync_file_range(2)"
_WHOLE: tuple[Metric, ...] = (
    Metric("elapsed", Unit.SECONDS, Better.LOWER, "run time of the job, or of the command"),
    Metric(SETTLED_AFTER, Unit.SECONDS, Better.LOWER, "time until all jobs were steady, to a twentieth of a run"),
    Metric("user", Unit.SECONDS, Better.LOWER, "user CPU time of the command"),
    Metric("system", Unit.SECONDS, Better.LOWER, "system CPU time of the command"),
    Metric("cpu", Unit.PERCENT, None, "CPU time of the command, of its run time; above 100 % on several CPUs"),
    Metric("prepared", Unit.SECONDS, None, "time until the command could run: files carried in, a clone, its setup"),
    *_distribution(SYNCS, _OF_SYNCS),
    Metric("cpu.user", Unit.PERCENT, Better.LOWER, "user CPU time of the job, of its run time"),
    Metric("cpu.system", Unit.PERCENT, Better.LOWER, "system CPU time of the job, of its run time"),
    Metric("cpu.context_switches", Unit.COUNT, Better.LOWER, "context switches of the job"),
    Metric("cpu.major_faults", Unit.COUNT, Better.LOWER, "major page faults of the job"),
    Metric(
        "interrupts",
        Unit.COUNT,
        None,
        "interrupts of the guest's devices during the run, and those that cannot be masked; not its timers",
    ),
    Metric(
        "io.kernel",
        Unit.NANOSECONDS,
        Better.LOWER,
        "kernel time of the guest for each I/O: system calls, interrupts and kernel threads, by samples",
    ),
    Metric(
        "io.instructions",
        Unit.COUNT,
        Better.LOWER,
        "instructions of the guest for each I/O, where they are counted; those of the idle loop aside",
    ),
    # For any layer that is a cache; a layer registers metrics of its own.
    Metric("cache.hit_ratio", Unit.PERCENT, Better.HIGHER, "reads and writes that the cache answered, of all"),
    Metric("cache.promotions", Unit.COUNT, None, "blocks that went into the cache"),
    Metric("cache.demotions", Unit.COUNT, None, "blocks that left the cache"),
    Metric("cache.dirty_blocks", Unit.COUNT, Better.LOWER, "blocks that were still to be written back at the end"),
    Metric("cache.filled", Unit.PERCENT, None, "how full the cache was at the end, of what it fills up to"),
    Metric("cache.filled_before", Unit.PERCENT, None, "how full it was at the start"),
    Metric("cache.fill", Unit.SECONDS, None, "time that it took after the run to fill the rest of the cache"),
)


_CUSTOM = "custom"
_CUSTOM_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)

_registered: dict[str, Metric] = {}


def register(metric: Metric) -> None:
    """Register a metric of a single storage layer; raises :class:`ValueError` if its name is taken."""
    if metric.name in _known():
        raise ValueError(f"there is a metric {metric.name} already")
    _registered[metric.name] = metric
    _known.cache_clear()


def forget(name: str) -> None:
    """Undo :func:`register`."""
    del _registered[name]
    _known.cache_clear()


@cache
def _known() -> Mapping[str, Metric]:
    of_directions = (one for name in DIRECTIONS for one in _of_direction(name))
    return {one.name: one for one in (*of_directions, *_WHOLE, *_registered.values())}


def named(name: str) -> Metric:
    """Return the metric of a name; a percentile belongs to a latency: ``read.clat.p99.9``, or ``read.clat.p99.90``.

    Raises :class:`UserError` if there is no such metric.
    """
    if (found := _known().get(name)) is not None:
        return found
    if name.startswith(f"{_CUSTOM}:"):
        return _custom(name)
    if (percentile := _percentile(name)) is not None:
        return percentile
    listed = "docs/metrics.md lists them: read.iops, write.bw, read.clat.p99, …"
    near = _near(name)
    raise UserError(f"there is no metric {name!r}", f"did you mean {near}? {listed}" if near else listed)


def _percentile(name: str) -> Metric | None:
    latency, _, last = name.rpartition(".p")
    percent = _PERCENTILE.fullmatch(f"p{last}")
    mean = _known().get(f"{latency}.mean")
    if mean is None or percent is None or not float(percent["percent"]):
        return None
    number = _without_zeros(float(percent["percent"]))
    sentence = mean.sentence.replace("mean", f"{number}th percentile of the", 1)
    return Metric(f"{latency}.p{number}", mean.unit, mean.better, sentence)


def _near(name: str) -> str:
    """Return the metric that is probably meant: a bare number is a percentile, without a direction it is of reads."""
    numbered = re.sub(r"(?<=[a-z])\.([0-9][0-9.]*)$", r".p\1", name)
    for guess in (numbered, f"read.{numbered}"):
        if guess in _known() or _percentile(guess) is not None:
            return guess
    latency, _, percent = numbered.rpartition(".p")
    if _PERCENTILE.fullmatch(f"p{percent}"):
        near = _close(latency, [one.removesuffix(".mean") for one in _known() if one.endswith(".mean")])
        return f"{near}.p{percent}" if near else ""
    return _close(name, _known())


def _close(name: str, names: Iterable[str]) -> str:
    near = next(iter(difflib.get_close_matches(name, names, n=1)), "")
    return near if name[:1] == near[:1] else re.sub(r"^(?:write|trim)\.", "read.", near)


def custom(name: str, unit: Unit, better: Better) -> str:
    """Return the metric's name for a figure that a user's command prints as ``name``; raises :class:`UserError`."""
    if not _CUSTOM_NAME.fullmatch(name):
        raise UserError(
            f"{name!r} is not a name of a figure", "it has small letters, digits and ._- such as latency.p99"
        )
    return f"{_CUSTOM}:{name}:{unit}:{better}"


def short(name: str) -> str:
    """Return a metric's name as users type it: ``custom:tps`` for ``custom:tps:1/s:higher``, else the name itself."""
    return ":".join(name.split(":")[:2])


def is_short(name: str) -> bool:
    """Whether ``name`` is a user's own metric without its unit and direction."""
    return name.startswith(f"{_CUSTOM}:") and name.count(":") == 1


def _custom(name: str) -> Metric:
    with suppress(ValueError):  # a wrong number of parts, an unknown unit, or neither higher nor lower
        _, figure, unit, better = name.split(":")
        if _CUSTOM_NAME.fullmatch(figure):
            return Metric(name, Unit(unit), Better(better), "what the command prints by this name")
    raise UserError(
        f"there is no metric {name!r}",
        "a figure of a command is written custom:NAME:UNIT:higher here, or :lower, as `bisector settings` shows it",
    )


def is_of_split(name: str) -> bool:
    """Whether the metric needs a run that is split into its settling and its steady part."""
    return name.endswith(_STEADY) or name == SETTLED_AFTER


def of_steady_part(name: str) -> str | None:
    """Return the same metric of the steady part of a run; None if there is none, or ``name`` is one."""
    return f"{name}{_STEADY}" if f"{name}{_STEADY}" in _known() else None


def names_of(direction: str) -> tuple[str, ...]:
    """Return the metrics of a direction, without the percentiles of latencies, which are a job's own."""
    return tuple(one.name for one in _of_direction(direction))


@cache
def percentile_name(direction: str, kind: LatencyKind, percent: float) -> str:
    """Return the name of a percentile, without zeros at its end: ``read.clat.p99``, ``write.lat.p99.95``."""
    return f"{SYNCS if kind is LatencyKind.SYNC else f'{direction}.{kind}'}.p{_without_zeros(percent)}"


def _without_zeros(percent: float) -> str:
    return f"{percent:.6f}".rstrip("0").rstrip(".")


def table() -> tuple[Metric, ...]:
    """Return every metric once for a listing, with patterns for directions and percentiles."""
    directions = f"{{{','.join(DIRECTIONS)}}}"
    starts = {**{f"{directions}.{kind}": what for kind, what in _KINDS.items()}, SYNCS: _OF_SYNCS}
    percentiles = tuple(
        Metric(f"{start}.pN", Unit.NANOSECONDS, Better.LOWER, f"Nth percentile of the time {what}")
        for start, what in starts.items()
    )
    return (*_of_direction(directions), *percentiles, *_WHOLE, *_registered.values())
