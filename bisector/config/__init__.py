"""Settings: ``bisector.toml`` and flags over a profile, checked before anything expensive begins.

Each section, layer and workload has a frozen dataclass. The type of a field is annotated with its row of the option
table (:class:`bisector.core.setting.Option`): key, value in each profile, flag, meaning. The file, the command line,
``bisector settings`` and the record are read from these rows. The classes are formatted as tables, to be read as such.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from bisector.config.forms import DISK_PLACE, FRAGMENT_NAMES, METRIC, TERMS, THRESHOLD, NotAuto
from bisector.core.deadline import BY_THE_HOST, GuestTime
from bisector.core.objective import Objective
from bisector.core.setting import (
    AUTO,
    Bandwidth,
    Count,
    Line,
    Meta,
    NonNegative,
    Number,
    Option,
    Seconds,
    Share,
    Size,
    Words,
    options_of,
)
from bisector.core.subject import Setup
from bisector.core.verdict import Direction, SideWords, Strategy
from bisector.storage.disks import Brd, Bus, GuestDisk, MemoryDisk, NullBlk
from bisector.storage.layer import Feature, Files, FillMode, Since
from bisector.storage.stack import STACK, Stack
from bisector.workload.base import Workload
from bisector.workload.fio.fio import Fio
from bisector.workload.workloads import NAME

PROFILES = ("quick", "article")
EMBEDDED = "qemu:///embed"


class Accelerator(StrEnum):
    """How the guest's CPU runs; AUTO is decided by booting a kernel."""

    AUTO = "auto"
    KVM = "kvm"
    TCG = "tcg"


class GuestClock(StrEnum):
    """The source of the guest's time: the host's clock, or counted instructions; AUTO follows from other settings."""

    AUTO = "auto"
    HOST = "host"
    INSTRUCTIONS = "instructions"


class ConfirmBy(StrEnum):
    """The clock by which an answer of counted time is measured once more."""

    NONE = "none"
    HOST = "host"


class RunPart(StrEnum):
    """The part of a run that the metric covers; AUTO follows a given metric, or is steady if a cache is filled."""

    AUTO = "auto"
    WHOLE = "whole"
    STEADY = "steady"


class Security(StrEnum):
    """How a connection to a mail server is encrypted; NONE is for a server on this host only."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


# What "auto" in kernel.fragments begins with: the smallest kernel, or what a base .config lacks; then what the guest
# needs. The fragments of the stack follow.
BARE_FRAGMENT = "tiny"
BASE_FRAGMENT = "distribution"
GUEST_FRAGMENT = "vm"
COUNTED_FRAGMENT = "counted"
# How to see that a tree's null_blk can keep data; if a tree's cannot, the disks are on brd.
KEEPS_DATA = Since("v4.14", "drivers/block", "memory_backed")
# The guest gets a block device without this much at either end; bisector.host.disks gives the reason. The margin covers
# what identifies a disk's content: ZFS' last label and btrfs' first superblock end within it.
DISK_MARGIN_BYTES = 1 << 20


def usable_bytes(disk_bytes: int) -> int:
    """The guest's part of a block device, in whole MiB, as bytes; 0 or less if the device is too small."""
    return (disk_bytes - 2 * DISK_MARGIN_BYTES) // DISK_MARGIN_BYTES * DISK_MARGIN_BYTES


# fmt: off
@dataclass(frozen=True, slots=True)
class BisectSettings:
    """What the search looks for and how it judges.

    ``metric`` already includes the ``part``. ``threshold`` is as a person typed it, in the unit of the metric. Without
    ``terms`` and ``expect``, the measured ends tell the direction of the change.
    """

    metric: Annotated[str, METRIC, Option(
        "bisect.metric", AUTO,
        "metric that decides, such as read.clat.p99; docs/metrics.md lists all: read.iops, write.bw",
        absent=(AUTO, "what the workload names, or read.iops, of the part that bisect.part says"),
        flag="--metric", metavar="NAME")]
    part: Annotated[RunPart, Option(
        "bisect.part", "auto",
        "which part of a run the metric is of: all of it, or what is left when it has settled, as in "
        "read.iops.steady; auto is the part that --metric names, else steady on a stack that fills a cache", "whole",
        flag="--part", metavar="NAME")]
    over: Annotated[Line, Meta(description="worst, sum, mean or the name of a job"), Option(
        "bisect.over", AUTO,
        "what several jobs amount to: the worst of them, their sum or mean, or one job by its name",
        absent=(AUTO, "what the workload names, or worst"), flag="--over",
        metavar="worst|sum|mean|JOB")]
    threshold: Annotated[str | None, THRESHOLD, Option(
        "bisect.threshold", AUTO,
        'value between the two sides, in the unit of the metric; "ends" finds it from the two ends, '
        f'and so does "{AUTO}" but for read.iops in the profile article, where it is 20000',
        absent=("ends", "found from the two ends"), flag="--threshold", metavar="VALUE")]
    expect: Annotated[Direction | None, Option(
        "bisect.expect", "none", "refuse ends that differ in the other direction: improvement or regression",
        absent=("none", "as the ends show"), flag="--expect", metavar="DIRECTION", short="--regression",
        const="regression")]
    terms: Annotated[SideWords | None, TERMS, Option(
        "bisect.terms", AUTO, "words for the old side and the new one",
        absent=(AUTO, "broken:fixed for an improvement, good:bad for a regression"), flag="--terms", metavar="OLD:NEW")]
    least_effect: Annotated[Share, Option(
        "bisect.least_effect", AUTO,
        "the smallest change that is looked for: kernels that differ by less are the same, and nothing is bisected "
        "between ends that are",
        absent=(AUTO, "5%, or 0.05% where instructions are counted"), flag="--least-effect", metavar="5%")]
    most_pairs: Annotated[int, Meta(ge=2), Option(
        "bisect.most_pairs", 40,
        "how often both ends are read in turn, at most, before they are too noisy to be told apart")]
    first_parent: Annotated[bool, Option(
        "bisect.first_parent", False, "follow only the first parent of merges", flag="--first-parent", const="true")]
    strategy: Annotated[Strategy, Option(
        "bisect.strategy", "bayes",
        "what chooses the next commit; bayes weighs all readings and gives a probability, git believes each verdict",
        flag="--strategy", metavar="NAME")]
    suspects: Annotated[NotAuto, Meta(description='a list such as ["drivers/md"]'), Option(
        "bisect.suspect", AUTO,
        f'paths whose commits are likelier to be the answer; "{AUTO}" is the drivers of the stack, [] is none',
        absent=(AUTO, "the drivers of the stack"), flag="--suspect", metavar="PATH", repeat=True)]
    calibrate: Annotated[Count, Option(
        "bisect.calibrate", 1, "how often to measure each end before the search, to learn the noise",
        flag="--calibrate", metavar="N")]
    max_repeats: Annotated[NonNegative, Option(
        "bisect.max_repeats", 3, "how often to repeat a trial of weak evidence")]
    baselines: Annotated[bool, Option(
        "bisect.baselines", False,
        "after the search, also measure each disk of the stack alone: one more boot and run for each",
        flag="--baselines", const="true")]
    confirm_by: Annotated[ConfirmBy, Option(
        "bisect.confirm_by", "none",
        "by which clock an answer of counted time is measured once more, the commit beside its parent, where its "
        "effect is large enough to show there", flag="--confirm-by", metavar="host|none")]
    # fmt: on

    @property
    def objective(self) -> Objective:
        """The value of a run that decides."""
        return Objective(self.metric, self.over)

    def by(self, objective: Objective) -> "BisectSettings":
        """These settings for another objective, without the threshold and the expectation, which belong to this one."""
        if objective == self.objective:
            return self
        return replace(self, metric=objective.metric, over=objective.over, threshold=None, expect=None, terms=None)

    @property
    def threshold_value(self) -> float | None:
        """The threshold in the metric's unit; raises :class:`UserError` if it was given in another unit."""
        return None if self.threshold is None else self.objective.definition.unit.read(self.threshold)

    @property
    def expected(self) -> Direction | None:
        """The direction that was given, either by name or by terms that imply it."""
        return self.expect or next((one for one in Direction if SideWords.usual(one) == self.terms), None)


# fmt: off
@dataclass(frozen=True, slots=True)
class KernelSettings:
    """How a commit becomes a bootable image; make runs in a sandbox by default."""

    base_config: Annotated[Path | None, Option(
        "kernel.base_config", "", "kernel .config to start from", absent=("", "none"),
        flag="--base-config", metavar="FILE")]
    fragments: Annotated[tuple[str, ...], FRAGMENT_NAMES, Option(
        "kernel.fragments", (AUTO,),
        f'configuration fragments, by name or path; the last one wins; "{AUTO}" is {BARE_FRAGMENT} '
        f"({BASE_FRAGMENT} with a base) and those of the stack and its disks; the flag adds to {AUTO}",
        flag="--fragment", metavar="NAME|FILE", repeat=True)]
    compilers: Annotated[NotAuto, Meta(min_length=1, description="a command such as gcc-12, or a list of them"), Option(
        "kernel.compiler", AUTO,
        "C compiler of the kernels; auto is the first of this host that builds both ends; with several, each commit "
        "gets the first that builds it",
        absent=(AUTO, "the first that builds both ends"), none=(), flag="--compiler", metavar="COMMAND", repeat=True)]
    jobs: Annotated[Count | None, Option(
        "kernel.jobs", AUTO, "how many compilers run at a time", absent=(AUTO, "one for each CPU"),
        flag="--jobs", metavar="N")]
    build_deadline_s: Annotated[Seconds, Meta(ge=1), Option("kernel.build_deadline", "1h", "longest build, seconds")]
    sandbox: Annotated[bool, Option(
        "kernel.sandbox", True,
        "whether make runs in a sandbox, without network, home directory and other processes; --no-sandbox: no",
        flag="--no-sandbox", const="false")]
    recheck: Annotated[bool, Option(
        "kernel.recheck", True,
        "build the kernels that an answer rests on once more, apart from all others, before it is given")]
    # fmt: on


# fmt: off
@dataclass(frozen=True, slots=True)
class MachineSettings:
    """The guest and the hypervisor; ``guests`` measure at a time, None means as many as the host has room for."""

    connect: Annotated[Line, Meta(description="a libvirt URI such as qemu:///system"), Option(
        "machine.connect", EMBEDDED, "libvirt URI; qemu:///embed runs its driver inside bisector, without a daemon",
        flag="--connect", metavar="URI")]
    accelerator: Annotated[Accelerator, Option(
        "machine.accelerator", "auto", "how the guest's CPU runs; auto is KVM if a kernel boots under it",
        flag="--accelerator", metavar="NAME")]
    clock: Annotated[GuestClock, Option(
        "machine.clock", "auto",
        "what makes the guest's time pass: the host's clock, or under emulation the guest's own instructions, which "
        "gives the same figures each time, and sees no caches, branch prediction or other CPUs; auto counts "
        "instructions where guests are emulated and all other settings permit it, else it is the host's clock",
        flag="--clock", metavar="NAME")]
    instruction_ns: Annotated[Count, Option(
        "machine.instruction_ns", 8, "what an instruction takes where they are counted, in ns: 1, 2, 4, 8 and so on")]
    guests: Annotated[Count | None, Option(
        "machine.guests", AUTO, "how many guests measure at the same time",
        absent=(AUTO, "one; where instructions are counted one for each CPU, if memory allows"))]
    vcpus: Annotated[Count, Option(
        "machine.vcpus", AUTO, "virtual CPUs of the guest",
        absent=(AUTO, "2, or 1 where instructions are counted"))]
    memory_bytes: Annotated[Size, Meta(ge=256 << 20), Option("machine.memory", "1GiB", "memory of the guest, bytes")]
    image: Annotated[Path | None, Option(
        "machine.image", "", "your own root file system for the guest", absent=("", "none"),
        flag="--image", metavar="FILE")]
    image_key: Annotated[Path | None, Option(
        "machine.image_key", "", "private SSH key that logs in as root in your own image", absent=("", "none"),
        flag="--image-key", metavar="FILE")]
    image_host_key: Annotated[Path | None, Option(
        "machine.image_host_key", "", "public SSH host key of your own image", absent=("", "none"),
        flag="--image-host-key", metavar="FILE")]
    append: Annotated[str, Meta(description="kernel parameters on one line"), Option(
        "machine.append", "", "parameters added to the guest kernel's command line")]
    boot_deadline_s: Annotated[Seconds, Meta(ge=1), Option(
        "machine.boot_deadline", "2min", "longest time from start to login, seconds")]
    silence_deadline_s: Annotated[Seconds, Meta(ge=1), Option(
        "machine.silence_deadline", "1min", "longest silence of a guest that should answer, seconds")]
    trial_deadline_s: Annotated[Seconds, Meta(ge=1), Option(
        "machine.trial_deadline", AUTO, "longest trial after its build, seconds",
        absent=(AUTO, "15min more than the runs"))]
    # fmt: on

    @property
    def is_counted(self) -> bool:
        """Whether the guest's time is counted in its instructions."""
        return self.clock is GuestClock.INSTRUCTIONS

    @property
    def time(self) -> GuestTime:
        """The source of the guest's time."""
        return GuestTime(kind="instructions", instruction_ns=self.instruction_ns) if self.is_counted else BY_THE_HOST


# fmt: off
@dataclass(frozen=True, slots=True)
class DiskSettings:
    """One virtual disk.

    ``path`` is a directory, in which a sparse file is made, or a block device; None means the run directory. A limit of
    0 means no limit. ``latency_s`` is added to each request. ``guest`` is how the guest sees the disk.
    """

    path: Annotated[str | None, DISK_PLACE, Option(
        "path", "",
        "directory, or block device to be overwritten; a directory gets a sparse file",
        absent=("", "a file in the run directory"))]
    size_bytes: Annotated[Size, Meta(ge=1 << 20), Option("size", "", "size of a file made for it, bytes")]
    iops_limit: Annotated[NonNegative, Option("iops_limit", 0, "limit in I/O operations/s, 0 for none", 0)]
    bytes_per_s_limit: Annotated[Bandwidth, Option("bandwidth_limit", 0, "limit in bytes/s, 0 for none")]
    latency_s: Annotated[Seconds, Meta(ge=0), Option(
        "latency", AUTO, "time added to each read and write, whole milliseconds (on null_blk any), s")] = 0.0
    guest: GuestDisk = field(default_factory=GuestDisk)
    # fmt: on

    def memory(self, number: int) -> MemoryDisk:
        """The disk with this number in the guest's memory, if the guest makes it itself."""
        limits = self.iops_limit, self.bytes_per_s_limit
        if self.guest.bus is Bus.BRD:
            return Brd(number, self.size_bytes, round(self.latency_s * 1000), *limits)
        return NullBlk.of(self.size_bytes, self.latency_s, *limits)


# fmt: off
@dataclass(frozen=True, slots=True)
class StorageSettings:
    """The storage stack under test, every disk by name, and each layer's own settings.

    ``overwrite`` lists the disks, by their own names, whose content may be lost. A run that fills a cache is made at
    least ``fill_rounds`` times, until the cache is full and steady, but no round begins that would end later than
    ``fill_deadline_s`` after the beginning of the first. ``fill`` says whether such a run may end early.
    """

    stack: Annotated[Stack, STACK, Option(
        "storage.stack", "lvmcache", "storage stack under test; layers on disks", flag="--stack", metavar="STACK")]
    disks: Mapping[str, DiskSettings]
    layers: Mapping[str, Any]
    fill_deadline_s: Annotated[Seconds, Meta(ge=0), Option(
        "storage.fill_deadline", AUTO,
        "how long the run that fills a cache may be repeated until the cache is full and steady, seconds",
        absent=(AUTO, "three runs more than storage.fill_rounds, and at least 5min"))]
    fill_rounds: Annotated[Count, Option(
        "storage.fill_rounds", 1, "how often the run that fills a cache is made at least, up to 100 times")]
    fill: Annotated[FillMode, Option(
        "storage.fill", "auto",
        "when the run that fills a cache ends in a search: short is once the cache is settled, if the ends measure "
        "the same that way; auto is the same if it pays; whole is after its whole length")]
    overwrite: Annotated[Words, Meta(description='a list such as ["WD-WX11A1234567"]'), Option(
        "storage.overwrite", (),
        "block devices that may be overwritten, by serial number or by the name that a refusal shows",
        flag="--overwrite", metavar="SERIAL", repeat=True)]
    # fmt: on

    @property
    def used_disks(self) -> Mapping[str, DiskSettings]:
        """The disks that the stack is on, in its order; no other disk is looked at or attached."""
        return {name: self.disks[name] for name in self.stack.disks}

    @property
    def attached_disks(self) -> Mapping[str, DiskSettings]:
        """The used disks that this host provides; the others are in the guest's memory."""
        return {name: disk for name, disk in self.used_disks.items() if not disk.guest.bus.in_guest}

    @property
    def in_memory(self) -> Mapping[str, MemoryDisk]:
        """The used disks that the guest makes in its memory."""
        own = [(name, disk) for name, disk in self.used_disks.items() if disk.guest.bus.in_guest]
        return {name: disk.memory(number) for number, (name, disk) in enumerate(own)}

    @property
    def parameters(self) -> tuple[str, ...]:
        """The kernel parameters for the layers and the disks of the stack."""
        made = self.in_memory.values()
        # Without this, null_blk makes a disk of its own at boot, of 250 GB.
        on_null_blk = ("null_blk.nr_devices=0",) if any(isinstance(disk, NullBlk) for disk in made) else ()
        on_brd = Brd.parameters([disk for disk in made if isinstance(disk, Brd)])
        return (*self.stack.parameters(self.layers), *on_null_blk, *on_brd)


# fmt: off
@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """The workload that runs on the stack, by name, and each workload's own settings."""

    kind: Annotated[str, NAME, Option(
        "workload.kind", Fio.name, "workload that runs on the stack", flag="--workload", metavar="NAME")]
    own: Mapping[str, Workload]
    full_runs: Annotated[bool, Option(
        "workload.full_runs", False, "never stop a run early", flag="--full-runs", const="true")]
    # fmt: on

    @property
    def workload(self) -> Workload:
        """The workload under test, with its settings."""
        return self.own[self.kind]

    @property
    def text(self) -> str:
        """The workload's name and label, in the form ``fio(partial.fio)``."""
        label = self.workload.label()
        return f"{self.kind}({label})" if label else self.kind

    @property
    def runtime_s(self) -> float:
        """The seconds that one run is asked to last; 0 if unknown beforehand."""
        return self.workload.length_s()

    @property
    def files(self) -> Files:
        """The files that one run writes; raises :class:`UserError` if the workload's input cannot be read."""
        return self.workload.files()

    @property
    def inputs(self) -> Mapping[str, Path]:
        """The files that a person gives the workload, by the fields of their rows; see the workload's ``inputs``."""
        return self.workload.inputs()

    @property
    def rows_of_inputs(self) -> Mapping[str, Option]:
        """The rows that name the input files, by field."""
        named = {name.partition(".")[0] for name in self.inputs}
        return {row.field: row for row in options_of(type(self.workload)) if row.field in named}

    def with_inputs(self, files: Mapping[str, Path]) -> "WorkloadSettings":
        """The same settings with other input files."""
        return replace(self, own={**self.own, self.kind: self.workload.with_files(files)})


# fmt: off
@dataclass(frozen=True, slots=True)
class ContentionSettings:
    """The foreign load above which a run does not count, and how long a repeated trial waits for less."""

    max_other_cores: Annotated[Number, Option(
        "contention.max_other_cores", AUTO, "other load in cores above which a run is weak evidence",
        absent=(AUTO, "an eighth of the host's, at least 0.5"))]
    max_steal_share: Annotated[Number, Option(
        "contention.max_steal_share", 0.1, "share of stolen CPU time above which a run is weak evidence")]
    max_speed_change: Annotated[Number, Option(
        "contention.max_speed_change", 0.15,
        "share by which the speed of the host's cores may change, during a run and since the ends were read")]
    patience_s: Annotated[Seconds, Meta(ge=0), Option(
        "contention.patience", "6h",
        "longest wait for a quiet host before a commit is measured again, seconds; 0 does not wait")]
    # fmt: on


# fmt: off
@dataclass(frozen=True, slots=True)
class MailSettings:
    """The sender of letters and the server that takes them; without ``host`` nothing can be sent."""

    host: Annotated[str, Meta(description="the name of a mail server"), Option(
        "mail.host", "", "mail server for `bisector mail --send`")]
    port: Annotated[Count, Option(
        "mail.port", AUTO, "port of the mail server", absent=(AUTO, "587, or 465 with tls"))]
    security: Annotated[Security, Option(
        "mail.security", "starttls", "encryption of the connection; none is for a server on this host")]
    sender: Annotated[Annotated[Line, Meta(description="an address as Name <user@host>")] | None, Option(
        "mail.from", AUTO, "sender of reports", absent=(AUTO, "git's user.name and user.email"))]
    login_file: Annotated[Path | None, Option(
        "mail.login_file", "",
        "file of mode 600 with username=… and password=…; or BISECTOR_SMTP_USERNAME and BISECTOR_SMTP_PASSWORD",
        absent=("", "none"))]
    # fmt: on


# fmt: off
@dataclass(frozen=True, slots=True)
class NotifySettings:
    """The command that runs when a long bisector command has ended; empty for none."""

    command: Annotated[str, Meta(description="a command line for sh"), Option(
        "notify.command", "",
        "command that runs once when a long one has ended by itself; it finds BISECTOR_EXIT_CODE, BISECTOR_RUN_DIR "
        "and BISECTOR_ANSWER in its environment", flag="--notify", metavar="COMMAND")]
    # fmt: on


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often something is tried before it is believed or given up; :attr:`Settings.retries` is the policy in force.

    ``waits_s`` are the seconds after each attempt that failed through no fault of its commit; after one more attempt it
    is given up. A restarting daemon is back within seconds. A disk that somebody has to clear, or a host that suspends
    or upgrades itself, takes minutes.

    After ``before_control`` failed attempts at a commit, a sound end is tried: if that works, waiting longer is of no
    use. A fault that can be chance (a panic, a hang) is believed after it was seen ``faults_believed`` times. A
    measurement with weak evidence is repeated ``weak_repeats`` times. If ``like_faults`` commits fail at one stage, a
    sound end is tried again.
    """

    waits_s: tuple[float, ...] = (5.0, 60.0, 300.0)
    before_control: int = 2
    faults_believed: int = 2
    weak_repeats: int = 3
    like_faults: int = 3

    @property
    def attempts(self) -> int:
        """The number of attempts in all."""
        return len(self.waits_s) + 1

    def wait_s(self, failed: int) -> float | None:
        """The seconds to wait after ``failed`` failed attempts in a row; None if there are no more attempts."""
        return self.waits_s[failed - 1] if failed < self.attempts else None


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a run, complete and consistent."""

    profile: Annotated[Literal["quick", "article"], Option(
        "profile", PROFILES[0], "the set of values that everything else starts from", PROFILES[1],
        flag="--profile", metavar="NAME")]  # fmt: skip
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
        """The kernel features, beside options, that disks and workload require, each with what requires it."""
        what, disks = "disks of null_blk that keep data", self.storage.used_disks.items()
        names = (name for name, disk in disks if disk.guest.bus is Bus.NULL_BLK)
        return (
            *((f"disk {name} on null_blk", Feature(what, KEEPS_DATA, (f"storage.{name}.bus",))) for name in names),
            *((f"workload {self.workload.text}", one) for one in self.workload.workload.features()),
        )

    @property
    def setup(self) -> Setup:
        """The setup on which subjects are measured."""
        return Setup(self.storage.stack.text, self.workload.text)

    def on_disks(self, paths: Mapping[str, str]) -> "Settings":
        """The same settings with other paths for some disks, by name, as on another host."""
        disks = self.storage.disks
        moved = {name: replace(disks[name], path=path) for name, path in paths.items() if name in disks}
        return replace(self, storage=replace(self.storage, disks={**disks, **moved})) if moved else self

    def alone(self, disk: str) -> Setup:
        """The setup of a baseline: only the stack's file system on one of its disks."""
        return replace(self.setup, stack=self.storage.stack.alone(disk).text)

    @property
    def retries(self) -> RetryPolicy:
        """How often something is tried before it is believed or given up."""
        return RetryPolicy(weak_repeats=self.bisect.max_repeats)
