"""The facts of one trial.

Everything here crosses process and host boundaries, so it is plain data that pickles. Units are in the names. Nothing
here concludes; see ``analysis``.
"""

from dataclasses import dataclass
from enum import StrEnum

from bisector.core.commit import Commit, Kind
from bisector.core.figures import EarlyStop, Run
from bisector.core.kernel import Kernel
from bisector.core.verdict import Verdict


class Stage(StrEnum):
    """How far a trial came, in order."""

    CHECKOUT = "checkout"
    CONFIG = "config"
    BUILD = "build"
    BOOT = "boot"
    STORAGE = "storage"
    WORKLOAD = "workload"
    DONE = "done"


def alone_name(disk: str) -> str:
    """What a disk is called where it was measured with nothing but a file system on it."""
    return f"{disk.upper()} alone"


class FaultKind(StrEnum):
    """The ways in which a kernel makes itself untestable."""

    CONFIG_ERROR = "config error"
    BUILD_ERROR = "build error"
    BUILD_TIMEOUT = "build timeout"
    PANIC = "panic"
    OOPS = "oops"
    HANG = "hang"
    NO_SSH = "never reached SSH"
    WRONG_KERNEL = "wrong kernel"  # in old records only: which kernel is started is not the commit's doing
    EXITED = "guest exited"
    COMMAND_FAILED = "command failed"
    IO_ERROR = "I/O error"

    @property
    def of_compiling(self) -> bool:
        """The source and the compiler do not go together; a time-out is as much the host's."""
        return self in (FaultKind.CONFIG_ERROR, FaultKind.BUILD_ERROR)


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall seconds of each part of a trial; the rest up to ``total_s`` is ours."""

    build_s: float = 0.0
    boot_s: float = 0.0
    storage_s: float = 0.0
    workload_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file kept beside the record; ``path`` is relative to the run directory."""

    name: str
    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a commit cannot be judged; ``tail`` holds the last log lines that matter.

    ``cached`` says that this was not tried again: an earlier build of the same source ended so.
    """

    stage: Stage
    kind: FaultKind
    reason: str
    tail: tuple[str, ...] = ()
    cached: bool = False

    @property
    def sentence(self) -> str:
        """What happened, for a person."""
        return f"{self.kind}{', known from an earlier build' if self.cached else ''}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the facts of an imported trial come from.

    Others measured them, with ``tool``, on a kernel that they called ``kernel``; ``verdict`` is what they said of it,
    None when they said nothing.
    """

    tool: str
    kernel: str
    verdict: Verdict | None


@dataclass(frozen=True, slots=True)
class Taken:
    """Where a trial comes from that was taken over: the directory of the run that measured it, its number there."""

    run_dir: str
    n: int


@dataclass(frozen=True, slots=True)
class Control:
    """An end of the range that was measured soundly, tried again: whether a kernel known to be good still works.

    It was asked because of the faults of ``trials``, by their numbers, and had to come through ``stage``. ``failed``
    says in what it ended instead, and is empty when it came so far.
    """

    at: str
    host: str
    sha: str
    stage: Stage
    trials: tuple[int, ...]
    failed: str = ""

    @property
    def answered(self) -> bool:
        """Whether the host still is as good as it was."""
        return not self.failed


@dataclass(frozen=True, slots=True)
class Trial:
    """The facts of one trial of one commit; bisector derives its verdict from them and never stores it.

    ``same_kernel_as`` names the commit whose equal kernel was measured, when this one was not. Only an imported
    trial has an ``origin``; the ``sha`` of its commit is as much of it as was written down, or the kernel's name.
    Of an end without a commit, or with it, ``kind`` says which, ``changed_by`` is the commit's hash, and ``commit``
    is one of our own making that no branch has.

    With ``alone``, the name of a disk, it is a baseline: one run on that disk and a file system. It tells of the disk,
    not of the commit whose kernel was used, and no verdict is derived from it.

    ``control`` is the one that was asked because of its fault, if there was one.
    """

    commit: Commit
    started_at: str
    host: str
    stage: Stage
    fault: Fault | None
    kernel: Kernel | None
    runs: tuple[Run, ...]
    timings: Timings
    artifacts: tuple[Artifact, ...]
    same_kernel_as: str | None = None
    origin: Origin | None = None
    kind: Kind = Kind.COMMIT
    changed_by: str | None = None
    alone: str | None = None
    control: Control | None = None

    @property
    def doubted(self) -> bool:
        """Whether its fault may well be the host's: a kernel known to be good failed, too."""
        return self.control is not None and not self.control.answered

    @property
    def vouched_for(self) -> bool:
        """Whether its fault is the kernel's own: right then a kernel known to be good came further."""
        return self.control is not None and self.control.answered

    @property
    def stopped_early(self) -> EarlyStop | None:
        """How the last run, the one that counts, was ended before its time; None of a whole one."""
        return self.runs[-1].stopped_early if self.runs else None

    @property
    def same_sources(self) -> bool:
        """Whether nothing was built, because another commit's build had read nothing that differs here."""
        return self.kernel is not None and self.kernel.tree not in ("", self.commit.tree)

    @property
    def is_of_commit(self) -> bool:
        """Whether it tells of its commit as the history has it."""
        return self.kind is Kind.COMMIT

    @property
    def sameness(self) -> str:
        """What it has in common with the commit that was measured instead, for a person; empty without one."""
        what = "sources" if self.same_sources else "kernel"
        return f"same {what} as {self.same_kernel_as[:12]}" if self.same_kernel_as is not None else ""
