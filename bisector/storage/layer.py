"""A layer of a storage stack: what it lies on, how it is made, checked and filled, what it counts, and its runs.

Each layer is a class of this room, derived from :class:`Layer` and registered in :mod:`bisector.storage.layers`.
Another package adds a layer with :func:`bisector.storage.layers.register`.

A phase that fills a cache is done when the cache is full and its figures no longer change. The rule is in
docs/stacks.md, "Filling a cache": full at :data:`FULL_PERCENT`, steady within :data:`STEADY_POINTS` from round to
round. (SNIA's Solid State Storage Performance Test Specification 2.0.2, 2.1.24, allows an excursion of 20 % around the
mean and a slope of 10 % over five rounds; here two rounds are compared.)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar

from bisector.core.figures import CacheStatus, DiskQueue, Run
from bisector.core.metric import Metric
from bisector.core.setting import Option, Problem, options_of
from bisector.core.shell import Shell, Step, run_steps
from bisector.core.trial import KernelFault, Stage
from bisector.core.units import size_text

MOUNTPOINT = "/mnt"
FULL_PERCENT = 95.0
STEADY_POINTS = 5.0
_LEAST_GAIN_POINTS = 1.0
_FILL_GRACE_S = 60.0
CACHE_PREFIX = "cache."  # the names of metrics that any cache may have begin with this (bisector.core.metric)
# Metrics of a run, in percent. Every layer with a phase that fills it has the first one: how full the cache was at the
# end. The second one, how full it was at the start, is for layers that have nothing else on record that says so.
FILLED, FILLED_BEFORE = "cache.filled", "cache.filled_before"
FILL = "cache.fill"  # seconds
HIT_RATIO = "cache.hit_ratio"


# Filling a cache


class FillMode(StrEnum):
    """Whether runs that fill a cache may end once the cache is settled, after that was shown to be harmless.

    AUTO measures whether it is harmless only if a short fill can save more than that costs; SHORT does so in any case.
    """

    AUTO = "auto"
    SHORT = "short"
    WHOLE = "whole"


def goes_on(rounds: Sequence[Run], least: int = 1) -> bool:
    """Whether another round is needed and can help; a cache that counts how full it is gets at least ``least``."""
    filled = [value for run in rounds if (value := _value(run, FILLED)) is not None]
    if not filled:  # the layer does not count it, or the cache takes no blocks
        return False
    if len(rounds) < least:
        return True
    if filled[-1] < FULL_PERCENT:
        return all(later - earlier >= _LEAST_GAIN_POINTS for earlier, later in pairwise(filled[-2:]))
    return any(unsteady(rounds))


def unsteady(rounds: Sequence[Run]) -> Iterator[str]:
    """Yield a sentence for each figure that still changed between the last two rounds."""
    if len(rounds) < 2 or _value(rounds[-1], FILL) is not None:  # noqa: PLR2004 - a change is between two
        return
    for name in (FILLED, HIT_RATIO):
        before, after = (_value(run, name) for run in rounds[-2:])
        if before is not None and after is not None and abs(after - before) > STEADY_POINTS:
            yield f"the cache was not steady after {len(rounds)} rounds: {name} went from {before:.1f} to {after:.1f} %"


def not_full_before(run: Run) -> Iterator[str]:
    """Yield why a run did not begin with a full cache, by :data:`FILLED_BEFORE`."""
    filled = _value(run, FILLED_BEFORE)
    if filled is not None and filled < FULL_PERCENT:
        yield f"the cache was not full before the {run.name} run: {filled:.1f} %"


def _value(run: Run, name: str) -> float | None:
    return dict(run.counters).get(name)


# A layer, and what it is made of


@dataclass(frozen=True, slots=True)
class Phase:
    """One run of a trial; ``name`` is the name of the run on record.

    The last phase is the judged one: its run decides. The phases before it bring the stack into the state that is asked
    about, so the blocks of their files stay allocated. ``unready`` yields the reasons why a run of this phase did not
    begin in that state. A phase that ``fills`` a cache is repeated on the same files until the cache is full and steady
    (:func:`goes_on`); each repetition is a round, with its own name on record. If the layer says with ``period_s`` how
    long the cache's policy takes to settle once the cache is full, and its counters can be read at any moment, such a
    run may be stopped early. Whatever the kernel does by a clock it does at the end of each such period, in every
    kernel that the layer supports.
    """

    name: str
    judged: bool = True
    fills: bool = False
    period_s: float | None = None
    unready: Callable[[Run], Iterable[str]] = lambda run: ()


@dataclass(frozen=True, slots=True)
class Capacity:
    """The size of a disk, or of the device that a layer makes, as far as it is known before there is a guest.

    ``what`` names the device in a sentence, ``keys`` are the settings that determine its size. ``size_bytes`` is None
    if the size is not known. A device-mapper device cannot be partitioned (``GENHD_FL_NO_PART`` in drivers/md/dm.c), so
    its ``has_partitions`` is false.
    """

    what: str
    size_bytes: int | None
    keys: tuple[str, ...]
    has_partitions: bool = True

    @classmethod
    def of_disk(cls, name: str, size_bytes: int | None) -> "Capacity":
        """The capacity of one of the disks in the settings."""
        return cls(f"the {name.upper()}", size_bytes, (f"storage.{name}.size",))

    def lacks(self, needed_bytes: int, needs: str, *keys: str) -> Iterator[Problem]:
        """Yield a problem if the device is known to be smaller; ``needs`` is the subject and verb before the size."""
        if self.size_bytes is not None and self.size_bytes < needed_bytes:
            sentence = f"{needs} {size_text(needed_bytes)} on {self.what}, which has {size_text(self.size_bytes)}"
            yield Problem((*keys, *self.keys), sentence)


@dataclass(frozen=True, slots=True)
class Files:
    """What one run of the workload writes: ``total_bytes`` over all jobs, and a ``sentence`` that says so.

    ``largest_bytes`` is the size of the largest file, ``keys`` are the settings that the sizes come from. If the user's
    own input file contains the size, ``advice`` is what to write there instead. Otherwise ``setting`` is the option to
    type before the size of one file, and ``share`` is that size divided by ``total_bytes``.
    """

    total_bytes: int
    sentence: str
    largest_bytes: int = 0
    keys: tuple[str, ...] = ()
    advice: str = ""
    setting: str = ""
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Device:
    """A block device in the guest; ``leaves`` are the paths of the lowest devices below it that device-mapper sees."""

    path: str
    leaves: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Counters:
    """How the counters of a layer are read, and how metrics are computed from them.

    ``read`` gets the current counters from the guest, before and after each run (for the usual case of one command
    there is :func:`bisector.storage.disks.answer`). ``values`` computes from both the metrics of the run, as pairs of
    name and value. If a phase asks for a state, the state before the run has to be one of these metrics, since
    :attr:`Phase.unready` sees only what is on record. A
    :class:`bisector.core.figures.CacheStatus` is also recorded as it was read.
    """

    read: Callable[[Shell], Any]
    values: Callable[[Any, Any], Iterable[tuple[str, float]]]


@dataclass(frozen=True, slots=True)
class Since:
    """How to find out whether a kernel tree has a feature: some file at or below ``path`` contains ``word``.

    Upstream has the feature from ``version`` on; a backport to an older kernel is found, too.
    """

    version: str
    path: str
    word: str


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of a driver that settings need, and that no option of the kernel's configuration stands for.

    ``what`` names it in a sentence, ``keys`` are the settings that need it.
    """

    what: str
    since: Since
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """How a layer is made: the path of its device (or its mount point), the commands, and the checks afterwards.

    ``verify`` is given the answers to ``checks`` and ``major:minor`` of each of ``leaves`` by its path. It raises
    :class:`bisector.core.trial.KernelFault` if the kernel made something other than what was asked for, and
    :class:`bisector.core.errors.InfraError` if the tools did. ``fill`` is for a cache that the workload alone may not
    fill: it returns commands that fill the cache within the given number of seconds, as far as they can. If these find
    out how full the cache can get, they leave that figure in the guest for ``counters``.
    """

    path: str
    steps: tuple[Step, ...]
    checks: tuple[Step, ...] = ()
    verify: Callable[[Sequence[str], Mapping[str, str]], None] | None = None
    leaves: tuple[str, ...] = ()
    counters: Counters | None = None
    fill: Callable[[float], tuple[Step, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Layer(ABC):
    """One layer: a frozen dataclass whose fields are its settings. Derived classes define what differs.

    ``needs`` names the roles of the devices below it, in order; it is empty for a layer that is a disk itself, such as
    a RAM disk. If ``many`` is set, as for a RAID, the layer takes further devices, each in the last role. The device
    that the layer makes is as large as the device with the index ``origin`` below it. ``is_mapped`` is set if
    device-mapper makes the layer: its tables show what lies below. ``alias`` is the whole stack that the bare name of
    the layer stands for. A stack contains the layer ``at_most`` so many times; None: any number of times. The layer on
    top of a stack is called a file system; one without ``has_files`` leaves its device to the workload.

    ``fragments`` are kernel configuration fragments by name or path; :meth:`fragments_for` adds those that single
    settings need. ``suspects`` are paths of the layer's drivers in the kernel's tree, ``tools`` the programs that the
    guest needs for it. The keys of its settings are below ``storage.``, and the last word of a key is the name of the
    setting in a stack (``lvmcache(ssd,hdd,cache_mode=writethrough)``).

    ``metrics`` are the metrics that only this layer has, ``counts`` the names of other metrics that it has values of; a
    cache with empty ``counts`` may have any metric of caches. A layer without ``phases`` asks for one judged run.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ("device",)
    many: ClassVar[bool] = False
    is_file_system: ClassVar[bool] = False
    has_files: ClassVar[bool] = True
    origin: ClassVar[int] = 0
    at_most: ClassVar[int | None] = None
    is_mapped: ClassVar[bool] = False
    alias: ClassVar[str] = ""
    fragments: ClassVar[tuple[str, ...]] = ()
    suspects: ClassVar[tuple[str, ...]] = ()
    tools: ClassVar[tuple[str, ...]] = ()
    metrics: ClassVar[tuple[Metric, ...]] = ()
    counts: ClassVar[tuple[str, ...]] = ()
    phases: ClassVar[tuple[Phase, ...]] = ()
    # The share of a file system's device that is left for data, rounded down.
    data_share: ClassVar[float] = 1.0

    @classmethod
    def rows(cls) -> Mapping[str, Option]:
        """The option rows of its settings, by their names in a stack."""
        return {row.word: row for row in options_of(cls)}

    @classmethod
    def has_metric(cls, name: str) -> bool:
        """Whether its counters may have a value of the metric ``name``."""
        unsaid = not cls.counts and any(phase.fills for phase in cls.phases)
        own = (*(one.name for one in cls.metrics), *cls.counts)
        return name in own or (unsaid and name.startswith(CACHE_PREFIX))

    def extent(self, below: Sequence[Capacity]) -> Capacity:
        """The device that the layer makes; by default as large as the device with the index ``origin`` below it."""
        return below[self.origin]

    def filled_by(self) -> int:
        """How many bytes a run has to write to fill the cache; 0 if there is no cache, or if it fills itself."""
        return 0

    def problems(self, below: Sequence[Capacity], files: Files) -> Iterator[Problem]:
        """Yield the settings that cannot work, as far as sizes are known before there is a guest."""
        yield from ()

    def written(self, below: Sequence[Capacity], data_bytes: int) -> tuple[int, ...]:
        """How many bytes at most are written to each device below when ``data_bytes`` are written to this one."""
        return (data_bytes,) * len(below)

    def parameters(self) -> tuple[str, ...]:
        """Kernel parameters that the guest is booted with."""
        return ()

    def unverifiable(self) -> Iterator[str]:
        """Yield a sentence for each setting that cannot be read back once the layer is made."""
        yield from ()

    def fragments_for(self) -> tuple[str, ...]:
        """The kernel configuration fragments that the layer needs with these settings."""
        return self.fragments

    def features(self) -> Iterator[Feature]:
        """Yield the features that these settings need and that a kernel may lack although it has all fragments."""
        yield from ()

    def memory(self, devices: int) -> Capacity | None:
        """The guest memory that the layer occupies on this many devices as long as it exists; None if none."""
        return None

    @abstractmethod
    def make(self, below: Sequence[Device], suffix: str) -> LayerPlan:
        """How the layer is made on these empty devices, which are in the order of its roles.

        ``suffix`` makes the device names of a second layer of the same kind unique; it is empty for the first one.
        """


@dataclass(frozen=True, slots=True)
class Readings:
    """The counters of all layers at one moment, from the disks upwards."""

    of_layers: tuple[Any, ...] = ()

    @property
    def cache(self) -> CacheStatus | None:
        """The status of the uppermost dm-cache, which is recorded unchanged; None if the stack has no dm-cache."""
        return next((one for one in reversed(self.of_layers) if isinstance(one, CacheStatus)), None)


@dataclass(frozen=True, slots=True)
class MountedStack:
    """A stack in the guest: ``mountpoint`` of its file system or, if it has none, the path of the uppermost ``device``.

    ``description`` are the commands that made it, in order, ``made`` its layers in the same order. ``room`` names the
    settings that make it larger, ``queues`` are the queue settings of the disks as the kernel shows them.
    """

    mountpoint: str
    description: tuple[str, ...]
    device: str = ""
    room: str = ""
    made: tuple[LayerPlan, ...] = ()
    queues: tuple[DiskQueue, ...] = ()

    def read(self, shell: Shell) -> Readings:
        """Read the counters of each layer that has any.

        Raises :class:`KernelFault`, of the workload's stage, if a layer is not as it was made, or is not understood.
        """
        try:
            return Readings(tuple(counters.read(shell) for counters in self._counters))
        except KernelFault as found:
            raise KernelFault(Stage.WORKLOAD, found.kind, found.reason, found.tail) from found

    def counted(self, before: Readings, after: Readings) -> tuple[tuple[str, float], ...]:
        """The metrics between two readings, as name and value; the upper of two layers with the same metric counts."""
        values: dict[str, float] = {}
        for counters, first, last in zip(self._counters, before.of_layers, after.of_layers, strict=True):
            values |= dict(counters.values(first, last))
        return tuple(values.items())

    @property
    def fills_itself(self) -> bool:
        """Whether a layer can fill the part of its cache that a workload left free."""
        return any(one.fill is not None for one in self.made)

    def fill(self, shell: Shell, seconds: float) -> None:
        """Fill the part of each cache that is still free, within ``seconds`` per cache."""
        for one in self.made:
            if one.fill is not None:
                run_steps(shell, one.fill(seconds), seconds + _FILL_GRACE_S)

    @property
    def _counters(self) -> tuple[Counters, ...]:
        return tuple(one.counters for one in self.made if one.counters is not None)


# Filled by :mod:`bisector.storage.layers`. It is here because workloads ask for the metrics of layers, not for stacks.
registered: dict[str, type[Layer]] = {}
LAYERS: Mapping[str, type[Layer]] = MappingProxyType(registered)
