"""One ``make`` after another in a kept build directory: what its log tells, and who is to blame when one fails.

A fault is told in one line. In the output of a parallel make, what the compiler said of the source comes anywhere
before or after the lines in which each make reports that something below it failed, so the best line is looked for.
"""

import os.path
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError, KernelFault, UserError
from bisector.core.trial import FaultKind, Stage
from bisector.host import build_user, process, sandbox
from bisector.host.packages import not_installed
from bisector.kernel import toolchain
from bisector.kernel.builddir import BuildPlaces, remove_strays

_NO_ROOM_BYTES = 32 << 20
# What variables name as programs, in a person's own directory it may be.
_COMMANDS = ("CC", "HOSTCC", "LD")
_SIGNALLED = 128  # and the signal's number: what sh(1) says of the command that it ran; make itself ends with 2 at most
_TAIL_LINES = 12
_LINE_CHARACTERS = 300
# The best first.
_ERRORS = tuple(
    re.compile(pattern)
    for pattern in (
        r"^\S[^:]*:\d+(:\d+)?: (fatal |internal compiler )?error: ",  # gcc, clang
        r"^\S[^:]*:\d+: Error: ",  # the assembler
        r"^\S*Kconfig\S*:\d+: ?(?!warning)\w",  # scripts/kconfig/conf
        r"undefined reference to |multiple definition of ",  # the linker, of a symbol
        r"^\S*ld(\.\w+)?: (?!.*(warning|NOTE):)",  # the linker, of anything else
        r"^(ERROR|FATAL|error): |: (fatal |internal compiler )?error: ",  # modpost, objtool, cc1
        r"\*\*\* (?!\[|Waiting for|Deleting file)",  # Makefile:12: *** what the Makefile says. Stop.
        r"\*\*\* \[",  # make[2]: *** [file:line: target] Error 1
    )
)
# "  CC      fs/readdir.o": what other jobs of a parallel make do meanwhile (scripts/Kbuild.include, quiet_cmd).
_PROGRESS = re.compile(r"^  [A-Z][A-Z0-9_]* +(\[M\] +)?\S+$")
# A diagnosis of the source itself, by the compiler, the assembler or scripts/kconfig/conf, in a file of the tree.
# Not "fatal error": that is a header which this host lacks, or gcc's own end.
_DIAGNOSIS = re.compile(
    r"(?!/)[^\s:]+:\d+(:\d+)?: (error|Error): |(?!/)(\S*/)?Kconfig(?!\.include)[\w.]*:\d+: ?(?!warning)\w"
)
# What make says of a recipe; a make that has failed below it is told as Error 2.
_MAKE = re.compile(r"make(\[\d+\])?: \*\*\* ")
_MAKE_GOES_ON = re.compile(r"Waiting for unfinished jobs|Deleting file |\[.*\] Error 2$")
# Host programs and gcc's plugins are made with this host's headers and libraries, which no key of a kernel names.
_KERNELS_OWN = re.compile(
    r"\[(?!.*(Makefile\.(host|userprogs)|\btools/|scripts/gcc-plugins))"
    r"[^:]+:\d+: (?!scripts/|certs/|usr/)\S+(\.(o|s|lds)|config)\] Error 1$"
)
_CCACHE_ERROR = re.compile(r"^ccache: error: .*", re.MULTILINE)
# make's and gcc's words for SIGKILL and SIGTERM, strsignal(3), or the shell's exit status 128 + n.
_ENDED = re.compile(
    r"^make(\[\d+\])?: \*\*\* \[.*\] (Killed|Terminated|Error 137|Error 143)$"
    r"|^.*\b(Killed|Terminated) signal terminated program .*$",
    re.MULTILINE,
)
# What compilers, make and shells say when memory, disk, time or the build directory is at fault.
_NOT_THE_SOURCES = re.compile(
    r"internal compiler error|confused by earlier errors|fatal error|\bsignal\b.*\bterminated|core dumped"
    r"|\bkilled\b|\bterminated\b|\baborted\b|segmentation fault|bus error|illegal instruction|\bccache: "
    r"|no space left|quota exceeded|memory exhausted|out of memory|cannot allocate|bad_alloc|input/output error"
    r"|read-only file system|stale file handle|needs cleaning|too many open files|temporarily unavailable"
    r"|permission denied|not permitted|text file busy|no such file|not found|clock skew|in the future"
    r"|truncated|not recognized|malformed|interrupted",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Make:
    """make in ``places.source`` for ``places.build``, with these variables, until the deadline.

    ``environment`` is added to that of make and all that it starts. ``sandboxed``, they see no more of this host than
    the system's programs, the source, the build directory and ccache's, of which the last two can be written.
    """

    places: BuildPlaces
    variables: Mapping[str, str]
    jobs: int
    deadline: Deadline
    environment: Mapping[str, str] = field(default_factory=dict)
    sandboxed: bool = True

    def run(self, stage: Stage, *goals: str, variables: Mapping[str, str] | None = None) -> None:
        """Make the goals; the output is added to ``build.log``.

        Raises :class:`KernelFault` with the first real error, or :class:`InfraError` when the host
        ran out of room or memory meanwhile or has no make or no sandbox.
        """
        try:
            self._run(stage, goals, variables or {})
        finally:
            strays = remove_strays(self.places.build, self.places.source) if self.sandboxed else ()
        if strays:
            reason = f"make {' '.join(goals)} leaves in its build directory what leads out of it: {strays[0]}"
            raise KernelFault(stage, FaultKind.BUILD_ERROR, reason, strays[:5])

    def try_program(self, *argv: str | Path) -> None:
        """Run a program of this host as make runs it, whatever becomes of it; the output is added to ``build.log``."""
        with suppress(process.CommandMissing, process.CommandTimeout):
            self._run_command(argv, check=False)

    def _run(self, stage: Stage, goals: Sequence[str], variables: Mapping[str, str]) -> None:
        log = self.places.log
        before = self.places.log_bytes()
        killed_before = _oom_kills()
        every = {"O": str(self.places.build), **self.variables, **variables}
        words: list[str | Path] = ["make", "-C", self.places.source, f"-j{self.jobs}"]
        words += (*(f"{name}={value}" for name, value in every.items()), *goals)
        try:
            self._run_command(words)
        except process.CommandMissing as error:
            missing = sandbox.missing() if error.program != words[0] else not_installed("make", "make")
            raise InfraError(missing.message, missing.hint) from error
        except process.CommandTimeout as error:
            reason = f"{self.deadline.what} not done after {self.deadline.seconds:g} s (in make {' '.join(goals)})"
            raise KernelFault(stage, FaultKind.BUILD_TIMEOUT, reason, self.places.logged_since(before)[-5:]) from error
        except process.CommandFailed as error:
            self._raise_for_host(error.finished.exit_status, _oom_kills() - killed_before)
            if (trouble := sandbox.failed(self.places.logged_since(before))) is not None:
                raise InfraError(f"there is no sandbox for make: {trouble}", "bisector doctor") from error
            self._require_programs()
            output = "\n".join(self.places.logged_since(before))
            if (ended := _ended_from_outside(output)) is not None:
                raise InfraError(f"a command of the kernel build was ended by a signal: {ended}", str(log)) from error
            if (broken := _ccache_error(output)) is not None:
                place = (self.environment or {}).get(toolchain.CCACHE_DIR, "")
                raise InfraError(broken, f"ccache's directory is {place}; the log is {log}") from error
            found = first_error(output, self.places.source, self.places.build)
            kind = FaultKind.CONFIG_ERROR if stage is Stage.CONFIG else FaultKind.BUILD_ERROR
            raise KernelFault(stage, kind, found.reason, found.tail) from error

    def _run_command(self, argv: Sequence[str | Path], *, check: bool = True) -> None:
        with self._handed_over(self.places.log):
            process.run(
                argv,
                deadline_s=self.deadline.remaining_s,
                env=self.environment,
                log=self.places.log,
                check=check,
                run_marker=self.places.run_dir,
                within=self._sandbox.words if self.sandboxed else (),
            )

    @contextmanager
    def _handed_over(self, log: Path) -> Iterator[None]:
        """Have all places be those of the user that make runs as, for root's sandbox is another user's."""
        if not self.sandboxed:
            build_user.take_back(self.places.build)
            yield
            return
        build_user.show(self.places.source)
        for place in self._writable:
            place.mkdir(parents=True, exist_ok=True)
            build_user.give(place)
        with build_user.lent(log):
            yield

    def _require_programs(self) -> None:
        """Raise :class:`InfraError` where root's make may not run what root may: no commit is to blame for that."""
        if not self.sandboxed or build_user.build_user() is None:
            return
        try:
            sandbox.check(*self._programs)
        except UserError as error:
            raise InfraError(error.message, error.hint) from error

    @property
    def _sandbox(self) -> sandbox.Sandbox:
        return sandbox.Sandbox((self.places.source, self.places.state), self._writable, self._programs)

    @property
    def _programs(self) -> tuple[str, ...]:
        return ("make", *(word for name in _COMMANDS for word in self.variables.get(name, "").split()))

    @property
    def _writable(self) -> tuple[Path, ...]:
        kept = self.environment.get(toolchain.CCACHE_DIR)
        return (self.places.build, *((Path(kept),) if kept else ()))

    def _raise_for_host(self, exit_status: int, oom_kills: int) -> None:
        """Raise :class:`InfraError` when the failure may well be the host's."""
        for path in (self.places.build, self.places.logs, Path(tempfile.gettempdir())):
            if shutil.disk_usage(path).free < _NO_ROOM_BYTES:
                raise InfraError(f"no room left in {path}: the kernel build failed", "make room, then resume")
        if oom_kills > 0:
            hint = f"fewer at once: kernel.jobs below {self.jobs}"
            raise InfraError("the host ran out of memory during the kernel build", hint)
        if exit_status < 0 or exit_status > _SIGNALLED:
            raise InfraError(f"make was ended by signal {abs(exit_status) % _SIGNALLED} from outside")


@dataclass(frozen=True, slots=True)
class BuildError:
    """The line that names the error and the lines from it on."""

    reason: str
    tail: tuple[str, ...]


def first_error(output: str, source: Path, build: Path) -> BuildError:
    """The best error line of make's output, with paths relative to the source tree."""
    lines = [_relative(line.rstrip(), source, build) for line in output.splitlines() if _says_something(line)]
    for pattern in _ERRORS:
        for number, line in enumerate(lines):
            if pattern.search(line):
                return BuildError(line.strip(), tuple(lines[number : number + _TAIL_LINES]))
    return BuildError(lines[-1].strip() if lines else "make failed and said nothing", tuple(lines[-_TAIL_LINES:]))


def surely_of_the_source(output: str, source: Path, build: Path) -> bool:
    """Whether make's output proves that this source fails with this compiler on any host, at any time.

    Every recipe that failed is one that compiles kernel code, the compiler (or Kconfig) named a line of the
    tree, and nothing that the host might have to do with is mentioned anywhere. When in doubt, no.
    """
    lines = [_relative(line.rstrip(), source, build) for line in output.splitlines() if _says_something(line)]
    said_by_make = [line[match.end() :] for line in lines if (match := _MAKE.match(line))]
    failed = [words for words in said_by_make if not _MAKE_GOES_ON.match(words)]
    return (
        bool(failed)
        and all(_KERNELS_OWN.match(words) for words in failed)
        and any(_DIAGNOSIS.match(line) for line in lines)
        and not _NOT_THE_SOURCES.search(output)
    )


def _ended_from_outside(output: str) -> str | None:
    """The line that says that somebody killed a command of the build; a compiler's own crash is not meant."""
    found = _ENDED.search(output)
    return found[0] if found else None


def _ccache_error(output: str) -> str | None:
    """The line in which ccache reports a failure of its own: of its directory, disk or memory, never of a source."""
    found = _CCACHE_ERROR.search(output)
    return found[0] if found else None


def _oom_kills() -> int:
    """How many processes the kernel has killed for memory since the host's boot (/proc/vmstat)."""
    with suppress(OSError):
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines())
        return int(counters.get("oom_kill", 0))
    return 0


def _says_something(line: str) -> bool:
    return bool(line.strip()) and _PROGRESS.match(line) is None


def _relative(line: str, source: Path, build: Path) -> str:
    """Without the source tree's path, as an absolute one or as ccache rewrites it, relative to the build."""
    for prefix in (f"{source}/", f"{os.path.relpath(source, build)}/"):
        line = line.replace(prefix, "")
    return line[:_LINE_CHARACTERS]
