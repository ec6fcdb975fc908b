"""The facts of one trial.

They cross process and host boundaries, so they are plain data that pickles. Units are in the names. Conclusions are
drawn in ``analysis``.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Annotated

from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.core.figures import DiskQueue, EarlyStop, Run
from bisector.core.json_document import FLAT, Key
from bisector.core.printable import clean
from bisector.core.subject import Cell, Commit, Kernel, Setup, Subject
from bisector.core.verdict import Verdict

HOST_CLOCK = "host"
# The parts of an era, and their names for people.
_PARTS = {
    "accelerator": "accelerator",
    "qemu": "QEMU",
    "host_kernel": "host kernel",
    "cpu": "CPU",
    "cores": "CPUs",
    "memory_gib": "GiB of memory",
    "image": "guest image",
    "disks": "disks",
    "clock": "clock",
}


class Stage(StrEnum):
    """The stages of a trial, in order."""

    CHECKOUT = "checkout"
    CONFIG = "config"
    BUILD = "build"
    BOOT = "boot"
    STORAGE = "storage"
    WORKLOAD = "workload"
    DONE = "done"


class FaultKind(StrEnum):
    """The ways in which a kernel makes itself untestable."""

    CONFIG_ERROR = "config error"
    BUILD_ERROR = "build error"
    BUILD_TIMEOUT = "build timeout"
    PANIC = "panic"
    OOPS = "oops"
    HANG = "hang"
    NO_SSH = "never reached SSH"
    WRONG_KERNEL = "wrong kernel"  # in old records only: which kernel is started does not depend on the commit
    EXITED = "guest exited"
    COMMAND_FAILED = "command failed"
    IO_ERROR = "I/O error"

    @property
    def of_compiling(self) -> bool:
        """Whether the source and the compiler do not go together; a time-out may as well be the host's fault."""
        return self in (FaultKind.CONFIG_ERROR, FaultKind.BUILD_ERROR)


class Fill(StrEnum):
    """How the runs that fill a cache were to end: after their whole length, or as soon as the cache was settled."""

    WHOLE = "whole"
    SHORT = "short"


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall-clock seconds of each part of a trial; the rest up to ``total_s`` is bisector's own work."""

    build_s: Annotated[float, "seconds of the build"] = 0.0
    boot_s: Annotated[float, "seconds of the guest's boot"] = 0.0
    storage_s: Annotated[float, "seconds of making the storage stack"] = 0.0
    workload_s: Annotated[float, "seconds of the runs"] = 0.0
    total_s: Annotated[float, "seconds of the whole trial"] = 0.0

    @property
    def ours_s(self) -> Annotated[float, Key()]:
        """Seconds of a trial that are neither build, boot, storage nor workload."""
        return max(0.0, self.total_s - math.fsum((self.build_s, self.boot_s, self.storage_s, self.workload_s)))


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that is kept with the record; ``path`` is relative to the run directory."""

    name: Annotated[str, "name of the file"]
    path: Annotated[str, "path, relative to `run_dir`"]
    sha256: Annotated[str, "hash of its contents"]
    size_bytes: Annotated[int, "size"]


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason why a commit cannot be judged."""

    stage: Annotated[Stage, "how far the trial came"]
    kind: Annotated[FaultKind, "what the kernel did"]
    reason: Annotated[str, "one sentence"]
    tail: Annotated[tuple[str, ...], "the last lines of the log that matter"] = ()
    cached: Annotated[bool, "whether it was not tried again: an earlier build of the same source ended so"] = False

    @property
    def sentence(self) -> str:
        """The fault as a sentence, for a person."""
        return f"{self.kind}{', known from an earlier build' if self.cached else ''}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a trial that others measured, and their verdict on it."""

    tool: Annotated[str, "what measured"]
    kernel: Annotated[str, "what the kernel was called"]
    verdict: Annotated[Verdict | None, "what was said of it, or `null`"]


@dataclass(frozen=True, slots=True)
class Taken:
    """The run and the trial that a trial was taken over from."""

    run_dir: Annotated[str, "directory of the run that measured it"]
    n: Annotated[int, "number of the trial in that run"]


@dataclass(frozen=True, slots=True)
class Control:
    """A control trial: a soundly measured end is tried again, to see whether a kernel known to be good still works."""

    at: Annotated[str, "time"]
    host: Annotated[str, "name of the host"]
    sha: Annotated[str, "commit of the end that was tried"]
    stage: Annotated[Stage, "how far it had to come"]
    trials: Annotated[tuple[int, ...], "numbers of the trials whose faults asked for it"]
    failed: Annotated[str, "in what it ended instead, so that those faults are doubted; empty if it came so far"] = ""

    @property
    def answered(self) -> bool:
        """Whether the end came as far as it had to: the host still works."""
        return not self.failed


@dataclass(frozen=True, slots=True)
class Era:
    """All that the figures of a host depend on beside the kernel; two trials with equal digests are of one era."""

    accelerator: Annotated[str, "`kvm`, or `tcg` for emulation"]
    qemu: Annotated[str, "version of QEMU"]
    host_kernel: Annotated[str, "release of the host's kernel"]
    cpu: Annotated[str, "model of the CPU"]
    cores: Annotated[int, "number of the CPUs that may be used"]
    memory_gib: Annotated[int, "the host's memory, in GiB"]
    image: Annotated[str, "hash of the guest's image, 16 digits"]
    disks: Annotated[tuple[str, ...], "each disk of the stack, and the host's disk that it is or lies on"]
    boot: Annotated[str, "boot id of the host; no part of the digest"] = ""
    clock: Annotated[str, "what makes the guest's time pass: `host`, or as in `8 ns an instruction`"] = HOST_CLOCK
    digest: Annotated[str, "hash of all but the boot id, 12 digits"] = ""

    @property
    def sealed(self) -> "Era":
        """The era with its digest."""
        parts = {name: value for name, value in asdict(self).items() if name in _PARTS}
        if not self.is_counted:
            del parts["clock"]  # older records have no clock, and have to keep their digests
        return replace(self, digest=hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12])

    @property
    def is_counted(self) -> bool:
        """Whether the guest's time is counted in instructions."""
        return self.clock != HOST_CLOCK


def difference(before: Era | None, now: Era | None) -> str:
    """The parts of an era that have changed, for a person."""
    if before is None or now is None:
        return f"what figures depend{'ed on before' if before is None else ' on'} is not on record"

    def text(era: Era, name: str) -> str:
        value = getattr(era, name)
        return (" and ".join(value) or "unknown") if isinstance(value, tuple) else str(value)

    pairs = {what: (text(before, name), text(now, name)) for name, what in _PARTS.items()}
    return ", ".join(f"{what} {old} → {new}" for what, (old, new) in pairs.items() if old != new)


@dataclass(frozen=True, slots=True)
class Trial:
    """The facts of one trial of a cell; bisector derives verdicts from them, and never stores these.

    ``fill`` is what was asked for: a cache that was not settled in time was filled by whole runs all the same.
    """

    cell: Annotated[Cell, FLAT]
    started_at: Annotated[str, "time"]
    host: Annotated[str, "name of the host that measured"]
    stage: Annotated[Stage, "how far it came"]
    fault: Annotated[Fault | None, "fault of the kernel, if it has one"]
    kernel: Annotated[Kernel | None, "the kernel; `null` if there is none, or others measured it"]
    runs: Annotated[tuple[Run, ...], "one for each phase"]
    timings: Annotated[Timings, FLAT]
    artifacts: Annotated[tuple[Artifact, ...], "files of the trial"]
    same_kernel_as: Annotated[str | None, "commit whose equal kernel was measured instead"] = None
    origin: Annotated[Origin | None, "of an import who measured it, else `null`"] = None
    control: Control | None = None
    fill: Annotated[Fill, "how runs that fill a cache were to end: after their length, or once settled"] = Fill.WHOLE
    era: Annotated[Era | None, "what figures of that host depended on then; `null` where that is not known"] = None
    queues: Annotated[tuple[DiskQueue, ...], "how the guest's kernel queued requests, for each disk of the stack"] = ()
    guest_seed: Annotated[int, "where the guest's time is counted, seed of a small shift of its time and pages"] = 0
    runtime_s: Annotated[float, "seconds that each run was asked to last; 0 where that is not known"] = 0.0

    def artifact(self, name: str) -> Artifact | None:
        """Return the artifact of this name, if there is one."""
        return next((one for one in self.artifacts if one.name == name), None)

    @property
    def subject(self) -> Subject:
        """The subject that was measured."""
        return self.cell.subject

    @property
    def setup(self) -> Setup:
        """The setup that it was measured on."""
        return self.cell.setup

    @property
    def commit(self) -> Commit:
        """The commit that was built."""
        return self.cell.commit

    @property
    def is_counted(self) -> bool:
        """Whether the guest's time was counted in instructions, which is independent of the host."""
        return self.era is not None and self.era.is_counted

    @property
    def doubted(self) -> Annotated[bool, Key()]:
        """Whether its fault may be the host's: an end that had worked failed, too."""
        return self.control is not None and not self.control.answered

    @property
    def vouched_for(self) -> bool:
        """Whether its fault is the kernel's own: right afterwards, a kernel known to be good came further."""
        return self.control is not None and self.control.answered

    @property
    def stopped_early(self) -> EarlyStop | None:
        """How the last run, which is judged, was stopped early; None for a whole run."""
        return self.runs[-1].stopped_early if self.runs else None

    @property
    def filled_short(self) -> bool:
        """Whether a run that filled its cache was stopped early, as soon as the cache was settled."""
        return any(run.stopped_early is not None for run in self.runs[:-1])

    @property
    def is_whole(self) -> bool:
        """Whether all of its runs went their whole length, so that its figures are comparable with other such ones."""
        return bool(self.runs) and all(run.stopped_early is None for run in self.runs)

    @property
    def bears_answer(self) -> bool:
        """Whether an answer may rest on it: it is whole, or only its last run was stopped, clear of its counterpart.

        A run that was stopped as clear of the threshold alone does not suffice.
        """
        stop = self.stopped_early
        is_clear = stop is not None and bool(stop.against) and self.unlike is None
        return self.is_whole or (is_clear and not self.filled_short)

    @property
    def unlike(self) -> float | None:
        """The factor by which its last run differed from a whole run of its commit, if that is why it was stopped."""
        stop = self.stopped_early
        return stop.apart if stop is not None and stop.against == self.commit.sha else None

    @property
    def same_sources(self) -> Annotated[bool, Key()]:
        """Whether nothing was built, because another commit's build had read no file that differs here."""
        return self.kernel is not None and self.kernel.tree not in ("", self.commit.tree)

    @property
    def sameness(self) -> str:
        """What it has in common with the commit that was measured instead, for a person; empty if there is none."""
        what = "sources" if self.same_sources else "kernel"
        return f"same {what} as {self.same_kernel_as[:12]}" if self.same_kernel_as is not None else ""


class AttemptFailed(InfraError):
    """A trial ended at a stage, on a host, without a fault of its kernel.

    ``trial`` has the facts until then, without a fault; None if it was not a trial, or had not begun.
    """

    def __init__(
        self,
        message: str,
        hint: str = "",
        stage: Stage = Stage.CHECKOUT,
        host: str = "",
        trial: Trial | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.stage = stage
        self.host = host
        self.trial = trial


class AttemptCancelled(AttemptFailed):
    """A trial whose result is no longer needed was ended; this says nothing about its commit or its host."""


class TrialRefused(UserError):
    """A trial found the input at fault; ``trial`` has the facts until then, without a fault."""

    def __init__(self, message: str, hint: str = "", trial: Trial | None = None) -> None:
        super().__init__(message, hint)
        self.trial = trial


class KernelFault(BisectorError):
    """The kernel under test cannot be judged: it does not build, boot or survive the workload.

    ``reason`` and ``tail`` are often the kernel's own words, and are recorded: so they are cleaned here.
    """

    exit_code = 4

    def __init__(
        self, stage: Stage, kind: FaultKind, reason: str, tail: tuple[str, ...] = (), cached: bool = False
    ) -> None:
        reason, tail = clean(reason), tuple(map(clean, tail))
        super().__init__(reason)
        self.args = (stage, kind, reason, tail, cached)
        self.stage = stage
        self.kind = kind
        self.reason = reason
        self.tail = tail
        self.cached = cached

    @property
    def fault(self) -> Fault:
        """The record of this error for the facts of a trial."""
        return Fault(self.stage, self.kind, self.reason, self.tail, self.cached)
