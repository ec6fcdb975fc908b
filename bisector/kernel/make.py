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
        with suppress(process.CommandMissing, process.CommandTimeout, process.CommandFailed):
            self._run_command(argv)

    @property
    def _sandbox(self) -> sandbox.Sandbox:
        programs = ("make", *(word for name in _COMMANDS for word in self.variables.get(name, "").split()))
        kept = self.environment.get(toolchain.CCACHE_DIR)
        writable = (self.places.build, *((Path(kept),) if kept else ()))
        return sandbox.Sandbox((self.places.source, self.places.state), writable, programs)

    def _run_command(self, argv: Sequence[str | Path]) -> None:
        box = self._sandbox if self.sandboxed else None
        with self._handed_over(box):
            process.run(
                argv,
                deadline_s=self.deadline.remaining_s,
                env=self.environment,
                log=self.places.log,
                run_marker=self.places.run_dir,
                within=() if box is None else box.words,
            )

    def _run(self, stage: Stage, goals: Sequence[str], variables: Mapping[str, str]) -> None:
        before, killed_before = self.places.log_bytes(), _oom_kills()
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
            lines = self.places.logged_since(before)
            self._raise_for_host(lines, error.finished.exit_status, _oom_kills() - killed_before)
            found = first_error("\n".join(lines), self.places.source, self.places.build)
            kind = FaultKind.CONFIG_ERROR if stage is Stage.CONFIG else FaultKind.BUILD_ERROR
            raise KernelFault(stage, kind, found.reason, found.tail) from error

    def _raise_for_host(self, lines: Sequence[str], exit_status: int, oom_kills: int) -> None:
        """Raise :class:`InfraError` when the failure may well be the host's."""
        for path in (self.places.build, self.places.logs, Path(tempfile.gettempdir())):
            if shutil.disk_usage(path).free < _NO_ROOM_BYTES:
                raise InfraError(f"no room left in {path}: the kernel build failed", "make room, then resume")
        if oom_kills > 0:
            hint = f"fewer at once: kernel.jobs below {self.jobs}"
            raise InfraError("the host ran out of memory during the kernel build", hint)
        if exit_status < 0 or exit_status > _SIGNALLED:
            raise InfraError(f"make was ended by signal {abs(exit_status) % _SIGNALLED} from outside")
        if (trouble := sandbox.failed(lines)) is not None:
            raise InfraError(f"there is no sandbox for make: {trouble}", "bisector doctor")
        if self.sandboxed and build_user.build_user() is not None:
            try:
                sandbox.check(*self._sandbox.programs)  # root's make may not run what root may
            except UserError as error:
                raise InfraError(error.message, error.hint) from error
        output, log = "\n".join(lines), self.places.log
        if ended := _ENDED.search(output):
            raise InfraError(f"a command of the kernel build was ended by a signal: {ended[0]}", str(log))
        if broken := _CCACHE_ERROR.search(output):  # of its directory, disk or memory, never of a source
            place = self.environment.get(toolchain.CCACHE_DIR, "")
            raise InfraError(broken[0], f"ccache's directory is {place}; the log is {log}")

    @contextmanager
    def _handed_over(self, box: sandbox.Sandbox | None) -> Iterator[None]:
        """Have all places be those of the user that make runs as, for root's sandbox is another user's."""
        if box is None:
            build_user.take_back(self.places.build)
            yield
            return
        build_user.show(self.places.source)
        for place in box.writable:
            place.mkdir(parents=True, exist_ok=True)
            build_user.give(place)
        with build_user.lent(self.places.log):
            yield


@dataclass(frozen=True, slots=True)
class BuildError:
    """The line that names the error and the lines from it on."""

    reason: str
    tail: tuple[str, ...]


def first_error(output: str, source: Path, build: Path) -> BuildError:
    """The best error line of make's output, with paths relative to the source tree."""
    lines = _telling_lines(output, source, build)
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
    lines = _telling_lines(output, source, build)
    said_by_make = [line[match.end() :] for line in lines if (match := _MAKE.match(line))]
    failed = [words for words in said_by_make if not _MAKE_GOES_ON.match(words)]
    return (
        bool(failed)
        and all(_KERNELS_OWN.match(words) for words in failed)
        and any(_DIAGNOSIS.match(line) for line in lines)
        and not _NOT_THE_SOURCES.search(output)
    )


def _oom_kills() -> int:
    """How many processes the kernel has killed for memory since the host's boot (/proc/vmstat)."""
    with suppress(OSError):
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines())
        return int(counters.get("oom_kill", 0))
    return 0


def _telling_lines(output: str, source: Path, build: Path) -> list[str]:
    """What is not progress, without the source tree's path: absolute, or relative to the build, as ccache has it."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip() and _PROGRESS.match(line) is None]
    for prefix in (f"{source}/", f"{os.path.relpath(source, build)}/"):
        lines = [line.replace(prefix, "") for line in lines]
    return [line[:_LINE_CHARACTERS] for line in lines]
