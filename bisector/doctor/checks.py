"""What is checked of this machine before the first hour is spent, and by ``bisector doctor``: one table.

Probes that a run or a build needs are made before each, which does not start while something is missing.
The others report what makes a run slower, or its evidence weaker.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path

from bisector.config import KernelSettings, Settings
from bisector.core import resources
from bisector.core.errors import BisectorError, UserError
from bisector.core.findings import Finding, Grade, refusal
from bisector.core.shell import CommandResult
from bisector.doctor.space import check_build_room, check_disk, check_room
from bisector.executor.local import end_leftovers, kept_kernels, kernel_builder
from bisector.git import probes as history
from bisector.host import files, load, process
from bisector.host.files import remove_abandoned, scratch
from bisector.host.packages import merged
from bisector.kernel import probes as kernel
from bisector.kernel import toolchain
from bisector.mail.smtp import server_finding
from bisector.storage.disks import DISKS
from bisector.vm import probes as machine

_WORKLOAD_DEADLINE_S = 30.0


class Need(Enum):
    """What needs it: nothing, a run, or a kernel build and therefore a run, too."""

    NOTHING = 0
    RUN = 1
    BUILD = 2


@dataclass(frozen=True, slots=True)
class Asked:
    """The settings and the run directory to check for; ``scratch`` is a directory for trying things out."""

    settings: Settings
    run_dir: Path
    scratch: Path
    note: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Probe:
    """One check of the machine, which gives one row or several; a :class:`UserError` becomes a row that is missing.

    One that ``warns`` may find what weakens a run's evidence, and does not connect to libvirt.
    """

    name: str
    need: Need
    look: Callable[[Asked], Finding | Iterable[Finding]]
    warns: bool = False


def _configuration(asked: Asked) -> Finding:
    options = kernel_builder(asked.settings.kernel).wanted
    base = asked.settings.kernel.base_config or "everything off"
    names = ", ".join(asked.settings.kernel.fragments)
    return Finding("kernel config", Grade.OK, f"{base}, then {names}: {len(options)} options asked for")


def _programs(asked: Asked) -> Iterator[Finding]:
    options = _options(asked)
    yield from kernel.programs(options)
    yield from kernel.headers(options)


def _sandbox(asked: Asked) -> Finding:
    settings = asked.settings.kernel
    return kernel.confinement(settings.sandbox, (*_compiling(settings), *toolchain.programs(_options(asked))))


def _compiling(settings: KernelSettings) -> Iterator[str]:
    """The words of the commands that compile, ccache's script among them."""
    for command in settings.compilers or ("",):
        with suppress(UserError):  # a compiler that cannot be used has a row of its own
            yield from toolchain.detect(command).cc.split()


def _options(asked: Asked) -> Mapping[str, str]:
    with suppress(UserError):  # a configuration that will not do has a row of its own
        return kernel_builder(asked.settings.kernel).wanted
    return {}


def _leftovers(asked: Asked) -> Finding:
    done: list[str] = []
    end_leftovers(asked.run_dir, done.append)
    remove_abandoned(files.nearest(asked.run_dir))
    return Finding(
        "leftovers", Grade.INFO if done else Grade.OK, "; ".join(done) or "no killed run left anything behind"
    )


def _job(asked: Asked) -> Finding:
    workload = asked.settings.workload
    workload.workload.check(workload.values, asked.settings.bisect.objective, run_here)
    return Finding(f"{workload.kind} job", Grade.OK, ", ".join(map(str, workload.inputs.values())))


def run_here(command: Sequence[str], variables: Mapping[str, str]) -> CommandResult | None:
    """None where this host has no such program."""
    with suppress(process.CommandMissing):
        done = process.run(command, deadline_s=_WORKLOAD_DEADLINE_S, env=variables, check=False)
        return CommandResult(shlex.join(command), done.exit_status, done.stdout, done.stderr)
    return None


def _room(asked: Asked) -> Finding:
    return Finding("disk room", Grade.OK, check_room(asked.settings, asked.run_dir))


def _disk(name: str, asked: Asked) -> Iterator[Finding]:
    """No row for a disk that the stack does not use."""
    if name in asked.settings.storage.stack.disks:
        yield Finding(f"{name} disk", Grade.OK, check_disk(asked.settings, name, asked.scratch))


# Read as a table, so laid out as one; the order is that of the rows.
# fmt: off
PROBES: tuple[Probe, ...] = (
    Probe("leftovers", Need.NOTHING, _leftovers),
    Probe("git", Need.RUN, lambda asked: history.git(asked.scratch)),
    Probe("compiler", Need.BUILD, lambda asked: kernel.compilers(asked.settings.kernel.compilers)),
    Probe("kernel config", Need.BUILD, _configuration),
    Probe("build tools", Need.BUILD, _programs),
    Probe("sandbox", Need.BUILD, _sandbox, warns=True),
    Probe("old kernels", Need.NOTHING, lambda asked: kernel.old_kernels(asked.settings.kernel.compilers)),
    Probe("ccache", Need.NOTHING, lambda asked: kernel.ccache(
        asked.settings.kernel.compilers, asked.settings.kernel.sandbox)),
    Probe("libvirt", Need.RUN, lambda asked: machine.libvirt(asked.settings.machine, asked.scratch)),
    Probe("qemu", Need.RUN, lambda asked: machine.qemu(asked.settings.machine, asked.scratch)),
    Probe("qemu-img", Need.RUN, lambda asked: machine.qemu_img()),
    Probe("kvm", Need.NOTHING, lambda asked: machine.kvm()),
    Probe("accelerator", Need.NOTHING, lambda asked: machine.accelerator(
        asked.settings.machine, asked.scratch, kept_kernels().newest_image(), asked.note)),
    Probe("guest image", Need.RUN, lambda asked: machine.guest_image(asked.settings.machine), warns=True),
    Probe("user namespaces", Need.RUN, lambda asked: machine.namespaces(asked.settings.machine)),
    Probe("run directory", Need.RUN, lambda asked: files.directory(
        "run directory", asked.run_dir, of_record=True), warns=True),
    Probe("cache directory", Need.RUN, lambda asked: files.directory(
        "cache directory", resources.cache_home()), warns=True),
    Probe("libvirt's reach", Need.RUN, lambda asked: machine.reach(
        asked.settings.machine, asked.scratch, asked.run_dir)),
    Probe("disk room", Need.RUN, _room),
    *(Probe(f"{name} disk", Need.RUN, partial(_disk, name)) for name in DISKS),
    Probe("fio job", Need.RUN, _job),
    Probe("host load", Need.NOTHING, lambda asked: load.contention(asked.settings.contention)),
    Probe("mail", Need.NOTHING, lambda asked: server_finding(asked.settings.mail)),
    Probe("git send-email", Need.NOTHING, lambda asked: history.mail(Path.home())),
)
# fmt: on


def check(settings: Settings, run_dir: Path, warn: Callable[[Finding], None]) -> None:
    """Raise :class:`UserError` with everything that would stop the run; ``warn`` gets what weakens its evidence."""
    _refuse(settings, run_dir, (Need.BUILD, Need.RUN), warn)


def warn_again(settings: Settings, run_dir: Path, warn: Callable[[Finding], None]) -> None:
    """Give ``warn`` what weakens the evidence of a run that goes on: this machine may not be as it was when it started.

    What is missing now is reported where the run needs it. libvirt is left alone: its embedded driver works in the
    directory that a process opens first, and that has to be the run's own, where a killed process may have left guests.
    """
    with _asked(settings, run_dir, lambda _: None) as asked:
        for probe in (one for one in PROBES if one.warns):
            with suppress(BisectorError):
                for finding in _findings(probe, asked):
                    if finding.state is Grade.WARN:
                        warn(finding)


def check_build(settings: Settings, run_dir: Path) -> None:
    """Raise :class:`UserError` with everything that would stop a build, which needs no guest."""
    _refuse(settings, run_dir, (Need.BUILD,), lambda _: None)
    check_build_room(settings.kernel, run_dir)


def _refuse(settings: Settings, run_dir: Path, needs: Sequence[Need], warn: Callable[[Finding], None]) -> None:
    with _asked(settings, run_dir, lambda _: None) as asked:
        looks = (_findings(probe, asked) for probe in PROBES if probe.need in needs)
        found = [finding for rows in looks for finding in rows]
    missing = [finding for finding in found if finding.state is Grade.MISSING]
    if not missing:
        for finding in found:
            if finding.state is Grade.WARN:
                warn(finding)
        return
    sentences = tuple(dict.fromkeys(finding.what for finding in missing))
    message = sentences[0] if len(sentences) == 1 else "\n  ".join(("cannot start; missing:", *sentences))
    raise UserError(message, "\n  ".join(merged(finding.remedy for finding in missing if finding.remedy)))


def examine(settings: Settings, run_dir: Path, note: Callable[[str], None]) -> Iterator[Finding]:
    """All rows, even if a probe fails; ``note`` gets a line before anything that takes long."""
    with _asked(settings, run_dir, note) as asked:
        for probe in PROBES:
            try:
                yield from _findings(probe, asked)
            except BisectorError as error:
                yield Finding(probe.name, _worst(probe), error.message, error.hint)
            except Exception as error:  # noqa: BLE001 - a row of the table, and the other rows, whatever it is
                what = f"this check failed, which is a bug in bisector: {type(error).__name__}: {error}"
                yield Finding(probe.name, _worst(probe), what)


def _findings(probe: Probe, asked: Asked) -> tuple[Finding, ...]:
    try:
        seen = probe.look(asked)
        return (seen,) if isinstance(seen, Finding) else tuple(seen)
    except UserError as error:
        found = refusal(probe.name, error)
        return (replace(found, state=_worst(probe)),)


def _worst(probe: Probe) -> Grade:
    return Grade.WARN if probe.need is Need.NOTHING else Grade.MISSING


@contextmanager
def _asked(settings: Settings, run_dir: Path, note: Callable[[str], None]) -> Iterator[Asked]:
    with scratch("probe", mode=0o755) as place:  # a daemon's QEMU runs as another user
        yield Asked(settings, run_dir, place, note)
