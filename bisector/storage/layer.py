"""A layer of a storage stack: what it lies on, what makes and checks it, what it counts, and which runs tell of it.

A layer is one file of this room with a class derived from :class:`Layer`, and one line in
:mod:`bisector.storage.layers`. One of another package is given to :func:`bisector.storage.layers.register`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from bisector.core.figures import Run
from bisector.core.metric import Metric
from bisector.core.setting import Option, Problem, options_of
from bisector.core.shell import Shell, Step
from bisector.storage.filling import Settling

MOUNTPOINT = "/mnt"
OF_CACHES = "cache."  # so begin the names of what any cache counts (bisector.core.metric)

# Looks at the answers to a layer's checks, given ``major:minor`` of devices by path.
Verify: TypeAlias = Callable[[Sequence[str], Mapping[str, str]], None]


@dataclass(frozen=True, slots=True)
class Phase:
    """One run of a trial; ``name`` is the run's on record.

    The judged phase is the last one and decides; those before it bring the stack into the state that is asked about,
    so their files keep their room. ``unready`` gives the reasons why a run of this phase did not begin in that state.
    A phase that ``fills`` a cache is run again, on the same files, until the cache is full and steady
    (:mod:`bisector.storage.filling`): each run of it is a round, with a name of its own on record. Where the layer says
    how long its cache takes for ``settling``, and its counters can be read at any moment, such a run may end before its
    time.
    """

    name: str
    judged: bool = True
    fills: bool = False
    settling: Settling | None = None
    unready: Callable[[Run], Iterable[str]] = lambda run: ()


@dataclass(frozen=True, slots=True)
class Capacity:
    """A disk, or what a layer makes, before there is a guest.

    ``what`` is its name in a sentence, ``keys`` are the settings that its size comes from. ``size_bytes`` is None
    where it is not known. A device of device-mapper's ``has_partitions`` not
    (``GENHD_FL_NO_PART`` in drivers/md/dm.c).
    """

    what: str
    size_bytes: int | None
    keys: tuple[str, ...]
    has_partitions: bool = True

    @classmethod
    def of_disk(cls, name: str, size_bytes: int | None) -> "Capacity":
        """One of the disks of the settings."""
        return cls(f"the {name.upper()}", size_bytes, (f"storage.{name}.size",))


@dataclass(frozen=True, slots=True)
class Files:
    """What one run of the workload writes: bytes over all jobs, and how to say that.

    ``largest_bytes`` is the size of the largest file, ``keys`` are the settings that the sizes come from. A file of a
    person's that has the size in it has ``advice`` what to write there; else ``setting`` is what is typed before a size
    that is this ``share`` of all.
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
    """A block device in the guest; ``leaves`` are the paths of those at its bottom that device-mapper sees."""

    path: str
    leaves: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """Where a layer is made: the devices below it in the order of its roles.

    ``suffix`` is empty, or else keeps the names of a second layer of the same kind apart from those of the first.
    """

    below: tuple[Device, ...]
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Counters:
    """What a layer counts.

    ``read`` gets the counters of this moment from the guest, before and after each run. ``values`` makes of both the
    values of metrics over the run, by their names. Where a phase asks for a state, what it was before the run is one of
    them, since :attr:`Phase.unready` sees what is on record. A :class:`bisector.core.figures.CacheStatus` is on record
    as it was read, too.
    """

    read: Callable[[Shell], Any]
    values: Callable[[Any, Any], Iterable[tuple[str, float]]]


@dataclass(frozen=True, slots=True)
class Since:
    """How a tree tells that it has something: a file at or below ``path`` has the ``word``.

    Upstream that is so from ``version`` on. What was put into an older kernel is seen there, too.
    """

    version: str
    path: str
    word: str


@dataclass(frozen=True, slots=True)
class Feature:
    """What settings ask of a driver that no option of the kernel's configuration stands for.

    ``what`` is its name in a sentence, ``keys`` are the settings that ask for it.
    """

    what: str
    since: Since
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """How a layer is made: the path of its device (or its mount point), the commands, and what is asked afterwards.

    ``verify`` raises :class:`bisector.core.errors.KernelFault` when the kernel made something else than was asked, and
    :class:`bisector.core.errors.InfraError` when the tools did. It is given the numbers of ``leaves``. Of a cache that
    the workload alone may not fill, ``fill`` gives the commands that do so within so many seconds, as far as they can.
    Where these find out how full the cache gets, they leave that in the guest, for ``counters`` to go by.
    """

    path: str
    steps: tuple[Step, ...]
    checks: tuple[Step, ...] = ()
    verify: Verify | None = None
    leaves: tuple[str, ...] = ()
    counters: Counters | None = None
    fill: Callable[[float], tuple[Step, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Layer(ABC):
    """One layer: a frozen dataclass, whose fields are its settings. Derived classes say what differs.

    ``needs`` are the roles of what it lies on, in order: none for a layer that is a disk of its own, such as a RAM
    disk. One that is ``many`` can lie on more devices than these, such as a RAID; each further one has the last role.
    What it makes is as large as the one with the number ``origin``. A layer that device-mapper makes says
    ``is_mapped``: its tables show what lies below. ``alias`` is the whole stack that the layer's bare name stands for.
    ``fragments`` are kernel configuration fragments by name or path, to which :meth:`fragments_for` adds those of
    single settings, ``suspects`` paths of its drivers in the kernel's tree, ``tools`` the programs that the guest needs
    for it. The keys of settings are below ``storage.``, and the last word of a key is what the stack calls it
    (``lvmcache(ssd,hdd,cache_mode=writethrough)``). ``metrics`` are those that only this layer has, ``counts`` the
    names of others that it has values of; a cache that says none of these may have any cache's. A layer without
    ``phases`` asks for one judged run. A stack has a layer ``at_most`` so many times, or any number of times. What is
    on top of a stack is called a file system; one that ``has_files`` not leaves its device to the workload.
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
    # Of a file system: the share of its device that is left for data, rounded down.
    data_share: ClassVar[float] = 1.0

    @classmethod
    def rows(cls) -> Mapping[str, Option]:
        """The rows of its settings by what a stack calls them."""
        return {row.word: row for row in options_of(cls)}

    @classmethod
    def has_metric(cls, name: str) -> bool:
        """Whether its counters may give a value of a metric."""
        unsaid = not cls.counts and any(phase.fills for phase in cls.phases)
        own = (*(one.name for one in cls.metrics), *cls.counts)
        return name in own or (unsaid and name.startswith(OF_CACHES))

    def extent(self, below: Sequence[Capacity]) -> Capacity:
        """What the layer makes; as large as the device with the number ``origin`` unless it says otherwise."""
        return below[self.origin]

    def filled_by(self) -> int:
        """How much a run has to write, in bytes, so that a cache is full; 0 for what is none, or fills itself."""
        return 0

    def problems(self, below: Sequence[Capacity], files: Files) -> Iterator[Problem]:
        """Settings that cannot work, as far as sizes are known before there is a guest."""
        yield from ()

    def written(self, below: Sequence[Capacity], data_bytes: int) -> tuple[int, ...]:
        """How much at most is written to each device below when ``data_bytes`` are written to this one."""
        return (data_bytes,) * len(below)

    def parameters(self) -> tuple[str, ...]:
        """Kernel parameters that the guest is booted with."""
        return ()

    def untold(self) -> Iterator[str]:
        """What of its settings nobody can read back once it is made, in sentences."""
        yield from ()

    def fragments_for(self) -> tuple[str, ...]:
        """The kernel configuration fragments that it needs with these settings."""
        return self.fragments

    def features(self) -> Iterator[Feature]:
        """What not every kernel's drivers can that have the options of the fragments, as far as these settings ask."""
        yield from ()

    def memory(self, devices: int) -> Capacity | None:
        """What of the guest's memory it keeps as long as it is there, on so many devices."""
        return None

    @abstractmethod
    def make(self, site: Site) -> Made:
        """The commands that make it on devices that are empty."""
