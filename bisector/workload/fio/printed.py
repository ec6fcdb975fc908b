"""What fio's text output prints: numbers with what printing took from each, jobs, and whether all of it agrees.

Up to 2.16 fio has ``K``, ``M``, ``G``, ``P`` for the first four powers (there is no ``T``), of 1024 where it prints
bytes, or of 1000 for a job with ``kb_base=1000``, which it does not say; and the digits after the point are the
remainder cut short, so that 1.05 M is printed as ``1.5M`` (lib/num2str.c of fio-2.16). Since 2.17 prefixes are those
of IEC and SI, and decimals are decimals.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from bisector.core.figures import CpuUse, Latency
from bisector.workload.fio.output import DIRECTIONS, OutputUnreadable

KIB = 1024
_SI = 1000
_OLD_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "P": 4, "E": 5}
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_UNIT_BYTES = {"B": 1.0, "bit": 0.125}
# fio rounds IOPS and bandwidth down.
_ROUNDED_DOWN = 1.0
TIME_NS: Mapping[str, int] = {"nsec": 1, "usec": 1_000, "msec": 1_000_000}

# What stands for a number, for the patterns of lines.
COUNT = r"\d+(?:\.\d+)?[kKMGTPE]?"
OLD_BYTES = r"\d+(?:\.\d+)? ?[KMGPE]?(?:B|bit)"
BYTES = r"\d+(?:\.\d+)?(?:[kMGTPE]|[KMGTPE]i)?(?:B|bit)"

_PRINTED = re.compile(r"(\d+)(?:\.(\d+))? ?([kKMGTPE]?)(i?)(B|bit|)")


@dataclass(frozen=True, slots=True)
class Printed:
    """A figure that was printed; the true one is less than ``slack`` away."""

    value: float
    slack: float

    def may_be(self, value: float, slack: float = 0.0) -> bool:
        """Whether it can be ``value``, which is itself known to ``slack``."""
        return abs(self.value - value) <= self.slack + slack

    def __add__(self, other: "Printed") -> "Printed":
        return Printed(self.value + other.value, self.slack + other.slack)


def _old_bytes(text: str, kilo: int) -> Printed:
    """Bytes, of fio up to 2.16: ``7529.9MB``, ``998342B``, ``504885 B``; ``kilo`` is 1024 or 1000."""
    whole, fraction, prefix, _, unit = _parts(text)
    size = float(kilo ** _OLD_POWERS[prefix]) * _UNIT_BYTES[unit]
    return Printed(_number(whole, fraction) * size, size)


def _in_bytes(text: str) -> Printed:
    """Bytes, of fio since 2.17: ``20.7MiB``, ``21.7MB``, ``96kbit``."""
    whole, fraction, prefix, binary, unit = _parts(text)
    size = float((KIB if binary else _SI) ** _POWERS[prefix]) * _UNIT_BYTES[unit]
    return Printed(_number(whole, fraction) * size, size * 10.0 ** -len(fraction))


def count(text: str, *, old: bool) -> Printed:
    """A count, or a time in whatever unit its line has: ``2141``, ``1514.5K``, ``112k``."""
    whole, fraction, prefix, _, _ = _parts(text)
    powers = _OLD_POWERS if old else _POWERS
    if prefix not in powers:
        raise ValueError(f"{text!r} is no number of this version of fio")
    size = float(_SI ** powers[prefix])
    return Printed(_number(whole, fraction) * size, size * (1.0 if old else 10.0 ** -len(fraction)))


def _number(whole: str, fraction: str) -> float:
    return float(f"{whole}.{fraction or 0}")


def _parts(text: str) -> tuple[str, str, str, str, str]:
    found = _PRINTED.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no number that fio prints")
    whole, fraction, prefix, binary, unit = found.groups(default="")
    return whole, fraction, prefix, binary, unit


def _rate(amount: Printed, milliseconds: int) -> Printed:
    """An amount over a time as a figure per second."""
    per_second = 1000 / milliseconds if milliseconds else math.inf
    return Printed(amount.value * per_second, amount.slack * per_second)


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of a job; ``line`` is where it stands, ``old`` says that amounts are as before fio 2.17."""

    line: int
    name: str
    old: bool
    io: str
    bw: str
    iops: Printed
    runtime_ms: int
    latencies: tuple[Latency, ...]
    iops_stddev: float | None

    def io_bytes(self, kilo: int) -> Printed:
        """What was read, written or trimmed."""
        return _bytes(self.io, kilo, old=self.old)

    def bw_bytes_s(self, kilo: int) -> Printed:
        """The same for each second."""
        return _bytes(self.bw, kilo, old=self.old)


@dataclass(frozen=True, slots=True)
class Block:
    """One job, or the several that fio was told to report as one; ``issued`` are its I/Os in each direction."""

    line: int
    name: str
    group: int
    members: int
    error: int
    ended: str
    directions: tuple[Direction, ...]
    cpu: CpuUse
    depths_percent: tuple[tuple[str, float], ...]
    issued: Mapping[str, int]

    def ios(self, direction: Direction) -> int:
        """The I/Os issued in a direction; in one that stands for all, those of all."""
        return self.issued.get(direction.name, sum(self.issued.values()))


@dataclass(frozen=True, slots=True)
class Total:
    """One direction of all jobs of a group."""

    line: int
    group: int
    name: str
    io: str
    old: bool
    shortest_ms: int
    longest_ms: int


def _bytes(text: str, kilo: int, *, old: bool) -> Printed:
    return _old_bytes(text, kilo) if old else _in_bytes(text)


def kilo(blocks: Sequence[Block], block_sizes: Mapping[str, Mapping[str, int]]) -> int:
    """What ``K`` stands for where bytes are printed before fio 2.17: 1024, or 1000 for a job with ``kb_base=1000``.

    fio does not say which; the number of I/Os of one size does.
    """
    for block in blocks:
        sizes = block_sizes.get(block.name, {})
        for direction in block.directions:
            if direction.old and direction.name in sizes:
                expected = block.ios(direction) * sizes[direction.name]
                fitting = [base for base in (KIB, _SI) if direction.io_bytes(base).may_be(expected)]
                if len(fitting) == 1:
                    return fitting[0]
    return KIB


def check(blocks: Sequence[Block], totals: Sequence[Total], started: int | None, kilo: int) -> None:
    """Raise :class:`OutputUnreadable` where two lines say what cannot both be."""
    for problem in (*_jobs(blocks, started), *_figures(blocks, kilo), *_totals(blocks, totals, kilo)):
        raise problem


def _jobs(blocks: Sequence[Block], started: int | None) -> Iterator[OutputUnreadable]:
    reported = sum(block.members for block in blocks)
    if started is not None and reported != started:
        yield OutputUnreadable(
            f"fio started {started} jobs and reports {reported}: a part is missing, or a job did nothing at all",
            blocks[-1].line,
        )


def _figures(blocks: Sequence[Block], kilo: int) -> Iterator[OutputUnreadable]:
    for block in blocks:
        there = {direction.name for direction in block.directions}
        for name in DIRECTIONS:
            if block.issued[name] and not there & {name, "mixed"}:
                yield OutputUnreadable(
                    f"job {block.name} issued {name} I/Os, and their figures are missing", block.line
                )
        for direction in block.directions:
            yield from _direction(block, direction, kilo)


def _direction(block: Block, direction: Direction, kilo: int) -> Iterator[OutputUnreadable]:
    line, runtime = direction.line, direction.runtime_ms
    if not direction.iops.may_be(_rate(Printed(block.ios(direction), 0), runtime).value, _ROUNDED_DOWN):
        yield OutputUnreadable(
            f"{direction.iops.value:g} IOPS for {runtime} ms are not the {block.ios(direction)} I/Os issued", line
        )
    through = _rate(direction.io_bytes(kilo), runtime)
    if not direction.bw_bytes_s(kilo).may_be(through.value, through.slack + _ROUNDED_DOWN):
        yield OutputUnreadable(f"{direction.bw}/s for {runtime} ms are not {direction.io}", line)


def _totals(blocks: Sequence[Block], totals: Sequence[Total], kilo: int) -> Iterator[OutputUnreadable]:
    """The jobs of each group against the lines below them; that one is there twice shows in its sum."""
    jobs = {(block.group, one.name): one.line for block in blocks for one in block.directions}
    for key in jobs.keys() - {(total.group, total.name) for total in totals}:
        yield OutputUnreadable(f"run status group {key[0]} lacks {key[1]}, which a job has: cut off?", jobs[key])
    counted = Counter((total.group, total.name) for total in totals)
    for total in totals:
        mine = [
            one for block in blocks for one in block.directions if (block.group, one.name) == (total.group, total.name)
        ]
        times = sorted(one.runtime_ms for one in mine)
        if (
            not mine
            or counted[total.group, total.name] > 1
            or (times[0], times[-1]) != (total.shortest_ms, total.longest_ms)
        ):
            yield OutputUnreadable(
                f"the jobs above this line did not {total.name} for so long: is one missing?", total.line
            )
            continue
        together = reduce(add, (one.io_bytes(kilo) for one in mine))
        if not together.may_be((printed := _bytes(total.io, kilo, old=total.old)).value, printed.slack):
            yield OutputUnreadable(
                f"the jobs above this line did not {total.name} {total.io}: is one missing?", total.line
            )
