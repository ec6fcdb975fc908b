"""Settings: ``bisector.toml`` and flags over a profile, checked before anything expensive.

One table (:mod:`bisector.config.option_table`) holds every setting with its type, its value in each profile
and its flag; the file, the command line and ``bisector settings`` are read from it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from bisector.core.guest_time import BY_THE_HOST, GuestTime
from bisector.core.objective import Objective
from bisector.core.subject import Setup
from bisector.core.verdict import Direction, Strategy, Terms
from bisector.storage.disks import Brd, Bus, GuestDisk, MemoryDisk, NullBlk
from bisector.storage.layer import Feature, Files, Since
from bisector.storage.stack import Stack
from bisector.workload.base import Workload
from bisector.workload.workloads import WORKLOADS

EMBEDDED = "qemu:///embed"


class Accelerator(StrEnum):
    """How the guest's CPU runs; AUTO is decided by booting something."""

    AUTO = "auto"
    KVM = "kvm"
    TCG = "tcg"


class GuestClock(StrEnum):
    """What makes the guest's time pass: the host's clock, or its own instructions; AUTO follows from other settings."""

    AUTO = "auto"
    HOST = "host"
    INSTRUCTIONS = "instructions"


class ConfirmBy(StrEnum):
    """By which clock an answer of counted time is measured once more."""

    NONE = "none"
    HOST = "host"


class Part(StrEnum):
    """Which part of a run the metric is of, where it exists of both.

    AUTO is as a metric that is given says, and the steady part by default where a cache is filled.
    """

    AUTO = "auto"
    WHOLE = "whole"
    STEADY = "steady"


# What "auto" puts below the stack's fragments: without a base .config the smallest kernel, over one what it lacks; then
# what the guest needs.
BARE_FRAGMENT = "tiny"
BASE_FRAGMENT = "distribution"
GUEST_FRAGMENT = "vm"
COUNTED_FRAGMENT = "counted"
# How a tree tells that its null_blk can keep data; where one does not, the disks are on brd.
KEEPS_DATA = Since("v4.14", "drivers/block", "memory_backed")
# Of a block device the guest gets all but this much at either end; bisector.host.disks gives the reason.
# It covers what tells a disk's content: the last of ZFS' labels and btrfs' first superblock end within it.
DISK_MARGIN_BYTES = 1 << 20


def usable_bytes(disk_bytes: int) -> int:
    """What of a block device is the guest's, in whole MiB; 0 or less for one without room."""
    return (disk_bytes - 2 * DISK_MARGIN_BYTES) // DISK_MARGIN_BYTES * DISK_MARGIN_BYTES


@dataclass(frozen=True, slots=True)
class BisectSettings:
    """What is looked for and how it is judged.

    ``metric`` is that of the ``part`` already. ``threshold`` is as a person typed it, in the unit of the metric.
    Without ``terms`` and ``expect`` it is the measured ends that say in which direction the change is.
    """

    metric: str
    over: str
    threshold: str | None
    expect: Direction | None
    terms: Terms | None
    least_effect: float
    most_pairs: int
    first_parent: bool
    strategy: Strategy
    suspects: tuple[str, ...]
    calibrate: int
    max_repeats: int
    baselines: bool
    confirm_by: ConfirmBy = ConfirmBy.NONE
    part: Part = Part.AUTO

    @property
    def objective(self) -> Objective:
        """Which value of a run decides."""
        return Objective(self.metric, self.over)

    def by(self, objective: Objective) -> "BisectSettings":
        """What is left of it by another objective: its threshold and what is expected are of this one."""
        if objective == self.objective:
            return self
        return replace(self, metric=objective.metric, over=objective.over, threshold=None, expect=None, terms=None)

    @property
    def threshold_value(self) -> float | None:
        """The threshold in the metric's unit; raises :class:`UserError` for one that is in another."""
        return None if self.threshold is None else self.objective.definition.unit.read(self.threshold)

    @property
    def expected(self) -> Direction | None:
        """The direction that was named, be it by words that mean one of the two."""
        return self.expect or next((one for one in Direction if Terms.usual(one) == self.terms), None)


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """How a commit becomes a bootable image; in a sandbox unless somebody says otherwise."""

    base_config: Path | None
    fragments: tuple[str, ...]
    compilers: tuple[str, ...]
    jobs: int | None
    build_deadline_s: float
    sandbox: bool = True
    recheck: bool = True


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """The guest and the hypervisor.

    So many ``guests`` measure at the same time; with None as many as the host has CPUs and memory for.
    """

    connect: str
    accelerator: Accelerator
    vcpus: int
    memory_bytes: int
    image: Path | None
    image_key: Path | None
    image_host_key: Path | None
    append: str
    boot_deadline_s: float
    silence_deadline_s: float
    trial_deadline_s: float
    clock: GuestClock = GuestClock.HOST
    instruction_ns: int = 8
    guests: int | None = None

    @property
    def is_counted(self) -> bool:
        """Whether the guest's time is that of its instructions."""
        return self.clock is GuestClock.INSTRUCTIONS

    @property
    def time(self) -> GuestTime:
        """What makes the guest's time pass."""
        return GuestTime(kind="instructions", instruction_ns=self.instruction_ns) if self.is_counted else BY_THE_HOST

    @property
    def counted_ns(self) -> int:
        """What an instruction takes in ns where instructions are counted, else 0."""
        return self.instruction_ns if self.is_counted else 0


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """One virtual disk.

    ``path`` is a directory (a sparse file is made in it) or a block device; None means the run directory. Limits of 0
    are no limit.
    ``latency_s`` is added to each request. ``guest`` is what the guest has of it.
    """

    path: str | None
    size_bytes: int
    iops_limit: int
    bytes_per_s_limit: int
    latency_s: float = 0.0
    guest: GuestDisk = field(default_factory=GuestDisk)

    def memory(self, number: int) -> MemoryDisk:
        """What the guest makes in its memory, where the disk is the guest's own, the one with this number."""
        limits = self.iops_limit, self.bytes_per_s_limit
        if self.guest.bus is Bus.BRD:
            return Brd(number, self.size_bytes, round(self.latency_s * 1000), *limits)
        return NullBlk.of(self.size_bytes, self.latency_s, *limits)


class FillMode(StrEnum):
    """Whether runs that fill a cache may end once it is settled, where that was shown to be harmless.

    AUTO shows it where that can save more than it costs, SHORT whatever it costs.
    """

    AUTO = "auto"
    SHORT = "short"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """The storage stack under test, every disk by name, and the values of each layer's own settings.

    ``overwrite`` are the disks, by their own names, whose content may go. A run that fills a cache is repeated
    ``fill_rounds`` times or more, until the cache is full and steady, but begins no later than would end by
    ``fill_deadline_s`` after the first one began. ``fill`` says whether it may end before its time.
    """

    stack: Stack
    disks: Mapping[str, DiskSettings]
    layers: Mapping[str, Mapping[str, Any]]
    overwrite: tuple[str, ...] = ()
    fill_deadline_s: float = 0.0
    fill_rounds: int = 1
    fill: FillMode = FillMode.WHOLE

    @property
    def used_disks(self) -> Mapping[str, DiskSettings]:
        """The disks that the stack is on, in its order; no other disk is looked at or attached."""
        return {name: self.disks[name] for name in self.stack.disks}

    @property
    def attached_disks(self) -> Mapping[str, DiskSettings]:
        """Those of the used disks that this host has; the others are in the guest's memory."""
        return {name: disk for name, disk in self.used_disks.items() if not disk.guest.bus.in_guest}

    @property
    def in_memory(self) -> Mapping[str, MemoryDisk]:
        """Those of the used disks that the guest makes in its memory."""
        own = [(name, disk) for name, disk in self.used_disks.items() if disk.guest.bus.in_guest]
        return {name: disk.memory(number) for number, (name, disk) in enumerate(own)}

    @property
    def parameters(self) -> tuple[str, ...]:
        """What the kernel is booted with for the layers and the disks of the stack."""
        made = self.in_memory.values()
        # Else null_blk makes a disk of its own at boot, of 250 GB.
        on_null_blk = ("null_blk.nr_devices=0",) if any(isinstance(disk, NullBlk) for disk in made) else ()
        on_brd = Brd.parameters([disk for disk in made if isinstance(disk, Brd)])
        return (*self.stack.parameters(self.layers), *on_null_blk, *on_brd)

    @property
    def features(self) -> Iterator[tuple[str, Feature]]:
        """What the used disks ask of a kernel beside options, each with what asks for it."""
        for name, disk in self.used_disks.items():
            if disk.guest.bus is Bus.NULL_BLK:
                keeps = Feature("disks of null_blk that keep data", KEEPS_DATA, (f"storage.{name}.bus",))
                yield f"disk {name} on null_blk", keeps

    @property
    def used_layers(self) -> Mapping[str, Mapping[str, Any]]:
        """The settings of the layers that the stack is composed of."""
        return {layer.name: self.layers.get(layer.name, {}) for layer in self.stack.layers}


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """What runs on the stack, by its name, and the values of each workload's own settings."""

    kind: str
    own: Mapping[str, Mapping[str, Any]]
    full_runs: bool

    @property
    def workload(self) -> Workload:
        """The workload under test."""
        return WORKLOADS[self.kind]

    @property
    def values(self) -> Mapping[str, Any]:
        """The values of its own settings."""
        return self.own.get(self.kind, {})

    @property
    def text(self) -> str:
        """Its name, and what tells it from others of its kind, in the form ``fio(partial.fio)``."""
        label = self.workload.label(self.values)
        return f"{self.kind}({label})" if label else self.kind

    @property
    def runtime_s(self) -> float:
        """How long one run is asked to last; 0 where nobody knows beforehand."""
        return self.workload.runtime_s(self.values)

    @property
    def files(self) -> Files:
        """What one run writes; raises :class:`bisector.core.errors.UserError` where its input cannot be read."""
        return self.workload.files(self.values)

    @property
    def features(self) -> tuple[tuple[str, Feature], ...]:
        """What it asks of a kernel beside options, each with what asks for it in a sentence."""
        return tuple((f"workload {self.text}", one) for one in self.workload.features(self.values))

    @property
    def inputs(self) -> Mapping[str, Path]:
        """The files that a person gives it, by the fields of the rows that name them; see the workload's."""
        return self.workload.inputs(self.values)

    @property
    def input_fields(self) -> frozenset[str]:
        """The fields of the rows that name them."""
        return frozenset(name.partition(".")[0] for name in self.inputs)

    def with_inputs(self, files: Mapping[str, Path]) -> "WorkloadSettings":
        """The same with other files."""
        return replace(self, own={**self.own, self.kind: self.workload.with_files(self.values, files)})


@dataclass(frozen=True, slots=True)
class ContentionSettings:
    """From which foreign load on a run is no evidence, and how long a repeated trial waits for less."""

    max_other_cores: float
    max_steal_share: float
    max_speed_change: float
    patience_s: float


class Security(StrEnum):
    """How a connection to a mail server is encrypted; NONE is for a server on this host alone."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"

    @property
    def usual_port(self) -> int:
        """RFC 6409 (submission), RFC 8314 (submission over TLS), RFC 5321."""
        return {Security.STARTTLS: 587, Security.TLS: 465, Security.NONE: 25}[self]


@dataclass(frozen=True, slots=True)
class MailSettings:
    """Who a letter is from and which server takes it; without ``host`` nothing can be sent."""

    host: str
    port: int
    security: Security
    sender: str | None
    login_file: Path | None


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """What a person has run when a long command has ended; nothing where it is empty."""

    command: str


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often something is tried before it is believed or given up; :attr:`Settings.retries` is the policy in force.

    ``waits_s`` are the seconds after each attempt that failed by no fault of its commit; after one more it is given
    up. A daemon that restarts is back within seconds. A disk that somebody has to clear, or a host that suspends or
    upgrades itself, takes minutes.

    ``before_control`` attempts at a commit fail before a sound end is tried: while that works, waiting longer is of no
    use. ``faults_believed`` is how often a fault that can be chance (a panic, a hang) has to be seen.
    ``weak_repeats`` is how often a measurement that was no sound evidence is repeated. After faults of ``like_faults``
    commits at one stage a sound end is tried again.
    """

    waits_s: tuple[float, ...] = (5.0, 60.0, 300.0)
    before_control: int = 2
    faults_believed: int = 2
    weak_repeats: int = 3
    like_faults: int = 3

    @property
    def attempts(self) -> int:
        """How many attempts there are in all."""
        return len(self.waits_s) + 1

    def wait_s(self, failed: int) -> float | None:
        """The seconds to wait after so many attempts that failed in a row; None when there is to be no other."""
        return self.waits_s[failed - 1] if failed < self.attempts else None


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a bisection wants, complete and consistent."""

    profile: str
    bisect: BisectSettings
    kernel: KernelSettings
    machine: MachineSettings
    storage: StorageSettings
    workload: WorkloadSettings
    contention: ContentionSettings
    mail: MailSettings
    notify: NotifySettings

    @property
    def further_features(self) -> tuple[tuple[str, Feature], ...]:
        """What disks and workload ask of a kernel beside options, each with what asks for it."""
        return (*self.storage.features, *self.workload.features)

    @property
    def setup(self) -> Setup:
        """What subjects are measured on."""
        return Setup(self.storage.stack.text, self.workload.text)

    def on_disks(self, paths: Mapping[str, str]) -> "Settings":
        """The same with disks, by name, that lie elsewhere: on another host."""
        disks = self.storage.disks
        moved = {name: replace(disks[name], path=path) for name, path in paths.items() if name in disks}
        return replace(self, storage=replace(self.storage, disks={**disks, **moved})) if moved else self

    def alone(self, disk: str) -> Setup:
        """The same with nothing but the file system on one of the disks: what a baseline is measured on."""
        return replace(self.setup, stack=self.storage.stack.alone(disk).text)

    @property
    def retries(self) -> RetryPolicy:
        """How often something is tried before it is believed or given up."""
        return RetryPolicy(weak_repeats=self.bisect.max_repeats)
