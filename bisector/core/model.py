"""The words: frozen records of facts and the finite sets they are made of.

Everything here crosses process and host boundaries, so it is plain data that pickles.
Units are in the names. Nothing here concludes; see ``analysis``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Protocol

from bisector.core.figures import EarlyStop, Run


class Verdict(StrEnum):
    """What a trial says of its commit; OLD and NEW are shown in the person's terms.

    MEASURED has figures that count and no threshold yet; WEAK is measured again.
    """

    OLD = "old"
    NEW = "new"
    SKIP = "skip"
    WEAK = "weak"
    MEASURED = "measured"

    @property
    def settled(self) -> bool:
        """Whether git is told about it."""
        return self in (Verdict.OLD, Verdict.NEW, Verdict.SKIP)


class Stage(StrEnum):
    """How far a trial came, in order."""

    CHECKOUT = "checkout"
    CONFIG = "config"
    BUILD = "build"
    BOOT = "boot"
    STORAGE = "storage"
    WORKLOAD = "workload"
    DONE = "done"


class Kind(StrEnum):
    """What was built: a commit itself, the new end without it, or the old end with it."""

    COMMIT = "commit"
    REVERTED = "reverted"
    PICKED = "picked"


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


class Direction(StrEnum):
    """Whether the change looked for makes scores better or worse (:mod:`bisector.core.objective`)."""

    IMPROVEMENT = "improvement"
    REGRESSION = "regression"

    @classmethod
    def between(cls, old: float, new: float) -> "Direction":
        """The direction of a change from one score to another."""
        return cls.IMPROVEMENT if new > old else cls.REGRESSION

    @property
    def sign(self) -> int:
        """1 where the new side has the larger score, else -1."""
        return 1 if self is Direction.IMPROVEMENT else -1

    def verdict(self, better: bool) -> Verdict:
        """The side of the change that a score above the threshold (the better side), or not above it, is on."""
        return Verdict.NEW if better is (self is Direction.IMPROVEMENT) else Verdict.OLD


class Strategy(StrEnum):
    """Who chooses what to measure, and concludes: the posterior, or git bisect."""

    BAYES = "bayes"
    GIT = "git"


class State(StrEnum):
    """How a bisection stands, as scripts read it; IMPORTED has trials of others, and no answer."""

    RUNNING = "running"
    FOUND = "found"
    NARROWED = "narrowed"
    FAILED = "failed"
    STOPPED = "stopped"
    IMPORTED = "imported"


@dataclass(frozen=True, slots=True)
class Terms:
    """The person's words for the two sides, as ``git bisect --term-old --term-new``."""

    old: str = "broken"
    new: str = "fixed"

    @classmethod
    def usual(cls, direction: Direction | None) -> "Terms":
        """The words where nobody chose any; "old" and "new" while it is not known what changed."""
        return _USUAL_TERMS[direction]

    def word(self, verdict: Verdict) -> str:
        """The verdict in the person's words."""
        return {Verdict.OLD: self.old, Verdict.NEW: self.new}.get(verdict, verdict.value)


_USUAL_TERMS = {
    None: Terms("old", "new"),
    Direction.IMPROVEMENT: Terms("broken", "fixed"),
    Direction.REGRESSION: Terms("good", "bad"),
}


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit: full hash, tree, subject line and committer date (ISO 8601 with zone)."""

    sha: str
    tree: str
    subject: str
    committed_at: str

    @property
    def short(self) -> str:
        """Twelve hex digits, as kernel people quote them."""
        return self.sha[:12]


@dataclass(frozen=True, slots=True)
class Change:
    """A file that differs between two trees, by its path from the top; ``added``: only the newer one has it."""

    path: str
    added: bool = False


@dataclass(frozen=True, slots=True)
class Relevance:
    """How many commits a range has, and how many of them touch what the builds of its ends were made of."""

    commits: int
    can_matter: int

    @property
    def sentence(self) -> str:
        """For a person."""
        commits = "1 commit" if self.commits == 1 else f"{self.commits:,} commits"
        return f"{commits}, {self.can_matter:,} can matter to this kernel"


@dataclass(frozen=True, slots=True)
class Mattering:
    """The size of a range, and the hashes of its commits that touch what the builds of its ends were made of."""

    commits: int
    shas: frozenset[str]

    @property
    def relevance(self) -> Relevance:
        """The same in figures."""
        return Relevance(self.commits, len(self.shas))


@dataclass(frozen=True, slots=True)
class Compiler:
    """What is typed, and the versions of what shapes the code: the compiler's and the linker's."""

    command: str
    identity: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """A built kernel image and what identifies it.

    ``key`` names what it was made from (configuration, toolchain, quirks, and last the tree), ``content_sha256``
    what it is (the loaded sections of vmlinux and of the code that boots it, without notes and the
    text of the version): equal content means equal kernels. ``unmet`` are the options asked for and
    not obtained, as ``CONFIG_X=y``. ``modules`` is a file system for /lib/modules, None of a kernel that has
    none; what is in them counts into ``content_sha256``.
    """

    image: Path
    config: Path
    release: str
    build_id: str
    content_sha256: str
    key: str
    toolchain: str
    quirks: tuple[str, ...]
    unmet: tuple[str, ...]
    cached: bool
    build_s: float
    modules: Path | None = None

    KEY_SEPARATOR: ClassVar[str] = "-"

    @property
    def tree(self) -> str:
        """The git tree that it was built from: another commit's, where that has the same sources."""
        return self.key.partition(self.KEY_SEPARATOR)[2]


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
    """The facts of one trial of one commit; a verdict of ours is derived from them, never stored.

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


@dataclass(frozen=True, slots=True)
class NotChanged:
    """An end that cannot be had without a commit, or with it: which kind, which commit, which end, and why."""

    kind: Kind
    sha: str
    end_sha: str
    reason: str


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A finished command in the guest."""

    command: str
    exit_status: int
    stdout: str
    stderr: str


class Shell(Protocol):
    """A root shell in a running guest, as storage and workload see it.

    Every method may raise what the caller of the trial sorts out: a dead kernel is a
    ``KernelFault``, a lost connection to a live one an ``InfraError``.
    """

    def run(self, command: str, deadline_s: float = 60.0) -> CommandResult:
        """Run to the end, whatever the exit status."""
        ...

    def stream(self, command: str, on_line: Callable[[str], None], deadline_s: float) -> CommandResult:
        """Run to the end, handing over each line of standard error as it comes."""
        ...

    def put(self, text: str, remote: str) -> None:
        """Write a small text file in the guest."""
        ...

    def get(self, remote: str, local: Path) -> None:
        """Copy a file out of the guest."""
        ...
