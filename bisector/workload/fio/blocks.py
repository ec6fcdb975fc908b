"""What stands in fio's text output, as it was printed, and whether the parts of it agree with each other."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from bisector.core.figures import CpuUse, Latency
from bisector.workload.fio import units
from bisector.workload.fio.output import DIRECTIONS, OutputUnreadable
from bisector.workload.fio.units import KIB, Printed

_SI = 1000
# fio rounds IOPS and bandwidth down.
_ROUNDED_DOWN = 1.0


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
    return units.old_bytes(text, kilo) if old else units.in_bytes(text)


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
    if not direction.iops.may_be(units.rate(Printed(block.ios(direction), 0), runtime).value, _ROUNDED_DOWN):
        yield OutputUnreadable(
            f"{direction.iops.value:g} IOPS for {runtime} ms are not the {block.ios(direction)} I/Os issued", line
        )
    through = units.rate(direction.io_bytes(kilo), runtime)
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
