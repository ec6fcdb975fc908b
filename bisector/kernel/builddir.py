"""Run make in a build directory kept between commits, and decide whether a failure is the source's or the host's.

make compiles a target if it is older than its sources, so all dates must come from one clock. That fails if a compiler
was killed in the middle of an object, if the clock was set back between two builds, or if the host lost power before
its writes reached the disk. So a build directory records in which boot of the host, and by which clock, it was last fit
for use. After another boot, or after the clock was set back, all of it is removed; ccache verifies its own objects.

The make of an untrusted tree may also leave links and FIFOs there, which this process would follow, or wait for, with
more rights than make has in its sandbox.
"""

import errno
import os
import os.path
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError, UserError
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.host import process, sandbox
from bisector.host.files import files_below, remove_tree
from bisector.host.identity import boot_id
from bisector.host.packages import not_installed
from bisector.kernel import sources, toolchain

BUILD_LOG = "build.log"
_BUILDING, _FINISHED = "building", "finished"
# Readings of the two clocks differ by as much although nobody set one; file dates are as coarse (a tick of 100 Hz).
_SAME_CLOCK_NS = 10_000_000
_READING_NS = 1_000_000
_MOST_READINGS = 100
_SKEW = re.compile(r"make(\[\d+\])?: warning: .*(Clock skew detected|in the future)")
_HINT = "see that one service alone sets the clock and that --run-dir is on a disk of this host, then resume"
# Kbuild's own paths are a fifth as long. Python's rmtree() recurses once per directory, up to 1000 times.
_LONGEST_BYTES = 800
# Errors that mean make left a wanted file in a wrong form; any other error (no room, a bad disk) is the host's.
_OF_MAKE = frozenset(
    (
        *(errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG),
        errno.EFBIG,
    )
)


@dataclass(frozen=True, slots=True)
class BuildPlaces:
    """The directories of a build.

    ``source`` is the checked-out tree, written to only by :mod:`bisector.kernel.quirks` and re-dated in this module;
    ``build`` is make's ``O=`` directory, kept between commits; ``logs`` is this trial's directory, which gets
    ``build.log``, ``kernel.config``, ``kernel.defconfig`` and ``unmet.txt``; ``run_dir`` marks the processes, and
    ccache uses paths relative to it.
    """

    source: Path
    build: Path
    logs: Path
    run_dir: Path

    @property
    def log(self) -> Path:
        """The build log: the output of make, and notes by bisector."""
        return self.logs / BUILD_LOG

    def log_bytes(self) -> int:
        """The current size of the build log; 0 if there is none."""
        return self.log.stat().st_size if self.log.exists() else 0

    def logged_since(self, log_bytes: int) -> tuple[str, ...]:
        """The lines that were appended to the log after it had this size."""
        if not self.log.exists():
            return ()
        with self.log.open("rb") as file:
            file.seek(log_bytes)
            return tuple(file.read().decode(errors="replace").splitlines())

    @property
    def state(self) -> Path:
        """The directory for bisector's own records of the build directory; make in its sandbox can only read it."""
        return self.build / ".bisector"

    def prepared(self) -> "BuildPlaces":
        """Create the directories and return the same places with symbolic links resolved, as make's children see them.

        Raises ``OSError`` if that fails, and :class:`UserError` for a path that has a space or a colon.
        """
        for path in (self.build, self.state, self.logs):
            path.mkdir(parents=True, exist_ok=True)
        given = (self.source, self.build, self.logs, self.run_dir)
        places = BuildPlaces(*(path.resolve(strict=True) for path in given))
        for path in (places.source, places.build):
            if set(" :") & set(str(path)):  # the top Makefile: "main directory cannot contain spaces nor colons"
                raise UserError(f"{path}: kernels cannot be built under a path with a space or colon", "use --run-dir")
        return places


@dataclass(frozen=True, slots=True)
class Moment:
    """The host's boot, and the offset of its wall clock from the time since boot, in ns.

    The offset is constant as long as nobody sets the clock: slewing (adjtimex(2)) and suspending change both clocks
    alike (clock_gettime(2), CLOCK_BOOTTIME).
    """

    boot: str
    ahead_ns: int

    @classmethod
    def now(cls) -> Self:
        """The present moment; raises ``OSError``."""
        boot = boot_id()
        for _ in range(_MOST_READINGS):
            before_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            wall_ns = time.time_ns()
            took_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - before_ns
            if took_ns < _READING_NS:
                break
        return cls(boot, wall_ns - before_ns - took_ns // 2)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The moment that :meth:`write` stored; None if the file is missing or malformed."""
        with suppress(FileNotFoundError, ValueError):
            boot, ahead_ns = path.read_text(encoding="ascii").split()
            return cls(boot, int(ahead_ns))
        return None

    def write(self, path: Path) -> None:
        """Store the moment in a file, whose modification time then marks the same moment."""
        path.write_text(f"{self.boot} {self.ahead_ns}\n", encoding="ascii")

    def why_invalid(self, now: Self) -> str | None:
        """The reason why file dates up to this moment mean nothing now; None if they are still valid."""
        if self.boot != now.boot:
            return "the host was restarted"
        if now.ahead_ns < self.ahead_ns - _SAME_CLOCK_NS:
            return "the clock was set back"
        return None


def remove_stale_outputs(places: BuildPlaces) -> None:
    """Remove everything from the build directory that make could wrongly take for finished; raises ``OSError``."""
    marker = places.state / _BUILDING
    unfinished = marker.exists()
    known = Moment.read(marker if unfinished else places.state / _FINISHED)
    why = known.why_invalid(Moment.now()) if known is not None else "nobody knows how it was left"
    if why is not None:
        empty_build_directory(places, why)
    elif unfinished:
        since_ns = marker.stat().st_mtime_ns
        for path in [path for path, mtime_ns in _dates(places.build) if mtime_ns >= since_ns]:
            Path(path).unlink()


def empty_build_directory(places: BuildPlaces, why: str) -> None:
    """Empty the build directory, and note that and ``why`` in the build log. Raises ``OSError``."""
    left = list(places.build.iterdir())
    if left != [places.state]:
        with places.log.open("a", encoding="utf-8") as log:
            log.write(f"bisector: {why}: everything is built again\n")
    for path in left:
        remove_tree(path)
    places.state.mkdir()
    # Sources that were checked out while the clock was ahead would be compiled, with a warning, in every build.
    for source in _of_the_future(places.source):
        os.utime(source, follow_symlinks=False)


@contextmanager
def building(places: BuildPlaces) -> Iterator[None]:
    """Mark the build directory as unfinished until make has ended by itself.

    If the clock was set back meanwhile, raises :class:`InfraError` and empties the build directory: make may have left
    out files that it had to compile, or may have failed on objects of other sources.
    """
    begun = Moment.now()
    begun.write(places.state / _BUILDING)
    log_bytes, fault = places.log_bytes(), None
    try:
        yield
    except KernelFault as raised:
        fault = raised
    _check_clock(places, begun, log_bytes)
    tidy = fault is None
    if fault is not None and fault.kind is not FaultKind.BUILD_TIMEOUT:
        # Before 9c2af1c7377a ("kbuild: add .DELETE_ON_ERROR special target") (in v4.19) a failing make leaves half-made
        # targets behind.
        tidy = ".DELETE_ON_ERROR:" in (sources.text(places.source, "scripts/Kbuild.include") or "")
    if tidy:
        Moment.now().write(places.state / _FINISHED)
        (places.state / _BUILDING).unlink()
    if fault is not None:
        raise fault


def remove_strays(build: Path, source: Path) -> tuple[str, ...]:
    """Remove special files and links that lead out of the build and the source; return a description of each.

    Kbuild's own links stay within the two (``source``, and in modules_install ``build``). Directories whose paths are
    too long are removed, too; the owner may then read and write all the rest. Raises ``OSError``.
    """
    removed = []
    for entry in _unexpected_entries(build):
        path = Path(entry.path)
        if entry.is_symlink():
            if any(Path(os.path.realpath(path)).is_relative_to(place) for place in (build, source)):
                continue
            what = f"a link to {path.readlink()}"
        else:
            what = "a directory in too many others" if entry.is_dir() else "neither a file nor a directory"
        remove_tree(path)
        removed.append(f"{path}, {what}")
    return tuple(removed)


@contextmanager
def blamed_on_make(build: Path) -> Iterator[None]:
    """Raise :class:`KernelFault` if an ``OSError`` means that make left a file missing, malformed or inaccessible."""
    try:
        yield
    except OSError as error:
        path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else build
        if error.errno not in _OF_MAKE or build not in path.parents:
            raise
        reason = f"make leaves no file {path.relative_to(build)} that can be read: {error.strerror}"
        raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, reason) from error


def _check_clock(places: BuildPlaces, begun: Moment, log_bytes: int) -> None:
    """Raise :class:`InfraError` if file dates may have misled make, judging by its warnings and by the files it wrote.

    A clock that was set forward and back again leaves files that are newer than the changes of a later commit. A file
    server may have a clock of its own.
    """
    why = begun.why_invalid(Moment.now())
    if why is None:
        wrong = [line for line in places.logged_since(log_bytes) if _SKEW.match(line)]
        wrong += [f"{path} is of the future" for path in _of_the_future(places.build)]
        why = f"the clock was wrong ({wrong[0]})" if wrong else None
    if why is not None:
        empty_build_directory(places, why)
        raise InfraError(f"{why} during the kernel build", _HINT)


def _of_the_future(directory: Path) -> list[str]:
    latest_ns = time.time_ns() + _SAME_CLOCK_NS
    return [path for path, mtime_ns in _dates(directory) if mtime_ns > latest_ns]


def _dates(directory: Path) -> Iterator[tuple[str, int]]:
    """Each file at and below a directory with its modification time in ns; thousands in a build, 80,000 in a tree."""
    return ((one.path, one.stat(follow_symlinks=False).st_mtime_ns) for one in files_below(directory))


def _unexpected_entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Each entry below that is too deep, or neither a file nor a directory; the owner gets access to all others."""
    longest = len(os.fsencode(directory)) + _LONGEST_BYTES
    _grant_owner(directory, directory.stat().st_mode, stat.S_IRWXU)
    below = [os.fspath(directory)]
    while below:
        with os.scandir(below.pop()) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    _grant_owner(entry, entry.stat(follow_symlinks=False).st_mode, stat.S_IRUSR | stat.S_IWUSR)
                elif entry.is_dir(follow_symlinks=False) and len(os.fsencode(entry.path)) <= longest:
                    _grant_owner(entry, entry.stat(follow_symlinks=False).st_mode, stat.S_IRWXU)
                    below.append(entry.path)
                else:
                    yield entry


def _grant_owner(path: os.PathLike[str], mode: int, rights: int) -> None:
    """Give the owner these rights: a makefile's rule may have taken them away. Nothing else runs there meanwhile."""
    if mode & rights != rights:
        Path(path).chmod(stat.S_IMODE(mode) | rights)


_NO_ROOM_BYTES = 32 << 20
# The make variables that name programs; a program may be in a user's own directory, so the sandbox has to show it.
_COMMANDS = ("CC", "HOSTCC", "LD")
_SIGNALLED = 128  # plus the signal's number: sh(1)'s exit status of a command that it ended; make's own is at most 2
_TAIL_LINES = 12
_LINE_CHARACTERS = 300
# The most telling pattern first.
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
# "  CC      fs/readdir.o": progress of other jobs of a parallel make (scripts/Kbuild.include, quiet_cmd).
_PROGRESS = re.compile(r"^  [A-Z][A-Z0-9_]* +(\[M\] +)?\S+$")
# An error in a source file of the tree, as reported by the compiler, the assembler or scripts/kconfig/conf. "fatal
# error" is left out: it means that this host lacks a header, or that gcc itself failed.
_DIAGNOSIS = re.compile(
    r"(?!/)[^\s:]+:\d+(:\d+)?: (error|Error): |(?!/)(\S*/)?Kconfig(?!\.include)[\w.]*:\d+: ?(?!warning)\w"
)
# make's message about a failed recipe; the makes above a failed one report Error 2.
_MAKE = re.compile(r"make(\[\d+\])?: \*\*\* ")
_MAKE_GOES_ON = re.compile(r"Waiting for unfinished jobs|Deleting file |\[.*\] Error 2$")
# Host programs and gcc plugins are built with this host's headers and libraries, which are not part of a kernel's key.
_KERNELS_OWN = re.compile(
    r"\[(?!.*(Makefile\.(host|userprogs)|\btools/|scripts/gcc-plugins))"
    r"[^:]+:\d+: (?!scripts/|certs/|usr/)\S+(\.(o|s|lds)|config)\] Error 1$"
)
_CCACHE_ERROR = re.compile(r"^ccache: error: .*", re.MULTILINE)
# SIGKILL and SIGTERM as make and gcc report them (strsignal(3)), or the shell's exit status 128 + n.
_ENDED = re.compile(
    r"^make(\[\d+\])?: \*\*\* \[.*\] (Killed|Terminated|Error 137|Error 143)$"
    r"|^.*\b(Killed|Terminated) signal terminated program .*$",
    re.MULTILINE,
)
# Messages of compilers, make and shells when memory, disk, time or the build directory is at fault.
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

    ``environment`` is added to that of make and its children. If ``sandboxed``, they see only the system's programs,
    the source, the build directory and ccache's directory, and can write only to the latter two.
    """

    places: BuildPlaces
    variables: Mapping[str, str]
    jobs: int
    deadline: Deadline
    environment: Mapping[str, str] = field(default_factory=dict)
    sandboxed: bool = True

    def run(self, stage: Stage, *goals: str, variables: Mapping[str, str] | None = None) -> None:
        """Make the goals; the output is appended to ``build.log``.

        Raises :class:`KernelFault` with the first real error, or for leftovers (:func:`remove_strays`);
        :class:`InfraError` if the host is at fault: no room or memory, a signal from outside, ccache's own trouble, no
        make or no sandbox.
        """
        try:
            self._run(stage, goals, variables or {})
        finally:
            strays = remove_strays(self.places.build, self.places.source) if self.sandboxed else ()
        if strays:
            reason = f"make {' '.join(goals)} leaves in its build directory what leads out of it: {strays[0]}"
            raise KernelFault(stage, FaultKind.BUILD_ERROR, reason, strays[:5])

    def try_program(self, *argv: str | Path) -> None:
        """Run a program of this host as make runs it, ignoring its failure; the output is appended to ``build.log``."""
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
        with ExitStack() as lent:
            if box is None:
                process.take_back(self.places.build)
            else:  # root's sandbox runs as another user, who becomes the owner of all writable places
                process.show(self.places.source)
                for place in box.writable:
                    place.mkdir(parents=True, exist_ok=True)
                    process.give(place)
                lent.enter_context(process.lent(self.places.log))
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
            kind = FaultKind.CONFIG_ERROR if stage is Stage.CONFIG else FaultKind.BUILD_ERROR
            told = first_error("\n".join(lines), self.places.source, self.places.build)
            raise KernelFault(stage, kind, *told) from error

    def _raise_for_host(self, lines: Sequence[str], exit_status: int, oom_kills: int) -> None:
        """Raise :class:`InfraError` if the failure may well be the host's."""
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
        if self.sandboxed and process.build_user() is not None:
            try:
                sandbox.check(*self._sandbox.programs)  # make runs as another user, who may be barred from these
            except UserError as error:
                raise InfraError(error.message, error.hint) from error
        output, log = "\n".join(lines), self.places.log
        if ended := _ENDED.search(output):
            raise InfraError(f"a command of the kernel build was ended by a signal: {ended[0]}", str(log))
        if broken := _CCACHE_ERROR.search(output):  # of its directory, disk or memory, never of a source
            place = self.environment.get(toolchain.CCACHE_DIR, "")
            raise InfraError(broken[0], f"ccache's directory is {place}; the log is {log}")


def first_error(output: str, source: Path, build: Path) -> tuple[str, tuple[str, ...]]:
    """The most telling error line of make's output, and the lines from there on, with paths relative to the source."""
    lines = _telling_lines(output, source, build)
    for pattern in _ERRORS:
        for number, line in enumerate(lines):
            if pattern.search(line):
                return line.strip(), tuple(lines[number : number + _TAIL_LINES])
    return (lines[-1].strip() if lines else "make failed and said nothing"), tuple(lines[-_TAIL_LINES:])


def surely_of_the_source(output: str, source: Path, build: Path) -> bool:
    """Whether make's output proves that this source fails with this compiler on any host, at any time.

    Every failed recipe compiles kernel code, the compiler (or Kconfig) named a line of the tree, and the output
    mentions nothing that the host might be responsible for. If in doubt, False.
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
    """How many processes the kernel has killed for lack of memory since the host's boot (/proc/vmstat)."""
    with suppress(OSError):
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines())
        return int(counters.get("oom_kill", 0))
    return 0


def _telling_lines(output: str, source: Path, build: Path) -> list[str]:
    """The output without progress lines and the source tree's path: absolute, or relative to the build (by ccache)."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip() and _PROGRESS.match(line) is None]
    for prefix in (f"{source}/", f"{os.path.relpath(source, build)}/"):
        lines = [line.replace(prefix, "") for line in lines]
    return [line[:_LINE_CHARACTERS] for line in lines]
