"""One ``make`` after another in a kept build directory, and who is to blame when one fails."""

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
from bisector.kernel import ccache
from bisector.kernel.buildlog import ccache_error, ended_from_outside, first_error, lines_since, size_bytes
from bisector.kernel.strays import remove_strays

BUILD_LOG = "build.log"
_NO_ROOM_BYTES = 32 << 20
# What variables name as programs, in a person's own directory it may be.
_COMMANDS = ("CC", "HOSTCC", "LD")
_SIGNALLED = 128  # and the signal's number: what sh(1) says of the command that it ran; make itself ends with 2 at most


@dataclass(frozen=True, slots=True)
class BuildPlaces:
    """Where a build happens.

    ``source`` is the checked-out tree, written to only by :mod:`bisector.kernel.quirks` and dated by
    :mod:`bisector.kernel.builddir` (make itself writes nothing there, and cannot in its sandbox), and
    whole again with the next checkout; ``build`` make's ``O=`` directory, kept between commits; ``logs`` this
    trial's directory, which gets ``build.log``, ``kernel.config`` and, if any, ``unmet.txt``; ``run_dir``
    marks the processes, and ccache takes paths relative to it, so that what one run compiled is a hit in the
    next.
    """

    source: Path
    build: Path
    logs: Path
    run_dir: Path

    @property
    def state(self) -> Path:
        """What this process knows of the build directory, and goes with it; make in its sandbox can only read there."""
        return self.build / ".bisector"

    def prepared(self) -> "BuildPlaces":
        """The same with the paths that make's children will see, and the directories made.

        Raises ``OSError`` when one is not there or cannot be made.
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

    def _run(self, stage: Stage, goals: Sequence[str], variables: Mapping[str, str]) -> None:
        log = self.places.logs / BUILD_LOG
        before = size_bytes(log)
        killed_before = _oom_kills()
        every = {"O": str(self.places.build), **self.variables, **variables}
        words: list[str | Path] = ["make", "-C", self.places.source, f"-j{self.jobs}"]
        words += (*(f"{name}={value}" for name, value in every.items()), *goals)
        try:
            with self._handed_over(log):
                process.run(
                    words,
                    deadline_s=self.deadline.remaining_s,
                    env=self.environment,
                    log=log,
                    run_marker=self.places.run_dir,
                    within=self._sandbox.words if self.sandboxed else (),
                )
        except process.CommandMissing as error:
            missing = sandbox.missing() if error.program != words[0] else not_installed("make", "make")
            raise InfraError(missing.message, missing.hint) from error
        except process.CommandTimeout as error:
            reason = f"{self.deadline.what} not done after {self.deadline.seconds:g} s (in make {' '.join(goals)})"
            raise KernelFault(stage, FaultKind.BUILD_TIMEOUT, reason, lines_since(log, before)[-5:]) from error
        except process.CommandFailed as error:
            self._raise_for_host(error.finished.exit_status, _oom_kills() - killed_before)
            if (trouble := sandbox.failed(lines_since(log, before))) is not None:
                raise InfraError(f"there is no sandbox for make: {trouble}", "bisector doctor") from error
            self._require_programs()
            output = "\n".join(lines_since(log, before))
            if (ended := ended_from_outside(output)) is not None:
                raise InfraError(f"a command of the kernel build was ended by a signal: {ended}", str(log)) from error
            if (broken := ccache_error(output)) is not None:
                place = (self.environment or {}).get(ccache.DIRECTORY, "")
                raise InfraError(broken, f"ccache's directory is {place}; the log is {log}") from error
            found = first_error(output, self.places.source, self.places.build)
            kind = FaultKind.CONFIG_ERROR if stage is Stage.CONFIG else FaultKind.BUILD_ERROR
            raise KernelFault(stage, kind, found.reason, found.tail) from error

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
        kept = self.environment.get(ccache.DIRECTORY)
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


def _oom_kills() -> int:
    """How many processes the kernel has killed for memory since the host's boot (/proc/vmstat)."""
    with suppress(OSError):
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines())
        return int(counters.get("oom_kill", 0))
    return 0
