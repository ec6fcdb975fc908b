"""The checks before a run spends its first hour: of commits' trees, and of this machine as ``bisector doctor`` does.

The options that a stack's layers need are those of kernel fragments, and are searched in a tree's Kconfig files,
without a checkout. Features that settings request beyond these are searched in the drivers' sources. The version in a
tree's Makefile is no proof: it does not change while the next version's features are merged, and distributions backport
features to older kernels.

The checks of the machine are one table. Probes that a run or a build needs are made before it, and it does not start
while anything is missing. The others report what makes a run slower, or its evidence weaker. Each tool's own room has
its probe; the free space on the host's file systems, and the disks under test, are checked here, since they depend on
all settings together.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from bisector.config import KernelSettings, Settings, usable_bytes
from bisector.config.checks import extents, first_size_problem
from bisector.core import resources
from bisector.core.errors import BisectorError, Finding, Grade, UserError, refusal
from bisector.core.subject import Commit
from bisector.core.units import size
from bisector.executor.local import end_leftovers, kept_kernels, kernel_builder
from bisector.git.repository import Repository, mail_finding, version_finding
from bisector.host import files, load
from bisector.host.disks import BlockDevice
from bisector.host.files import disk_room_bytes, nearest, remove_abandoned, scratch
from bisector.host.packages import merged
from bisector.host.process import run_here
from bisector.kernel import toolchain
from bisector.kernel.kconfig import NOT_SET, Fragment, read_fragments
from bisector.mail.smtp import server_finding
from bisector.storage.disks import DISKS
from bisector.storage.layer import Feature, Since
from bisector.storage.stack import Stack, Values
from bisector.vm import probes as machine
from bisector.vm.definition import check_nbdkit, existing

_MOST_NAMED = 6
_PREFIX = "CONFIG_"
# An option is defined by `config NAME` or `menuconfig NAME` on a line of its own
# (Documentation/kbuild/kconfig-language.rst, "Menu entries"). A longer name with this prefix matches as well; the line
# tells them apart.
_DEFINED = r"^[[:space:]]*(menu)?config[[:space:]]+({names})"
_FILES = "*Kconfig*"
_MAKEFILE = r"^(VERSION|PATCHLEVEL) *= *[0-9]{1,4} *$"
# Measured on Linux 6.1 with the fragments of this tree: 1.5 GiB of sources, 0.2 GiB of build. A distribution's
# configuration (`kernel.base_config`) builds to 10 GiB and more.
_SOURCES_BYTES = 1800 << 20
_SMALL_BUILD_BYTES = 512 << 20
_LARGE_BUILD_BYTES = 12 << 30
_IMAGE_BYTES = 1 << 30
_LAYERS_BYTES = 4 << 20  # written by layers in addition to the data: labels and superblocks


def check_tree(
    repository: Repository,
    commits: Iterable[Commit],
    stack: Stack,
    values: Values,
    further: Iterable[tuple[str, Feature]] = (),
) -> None:
    """Raise :class:`UserError` for the first commit whose tree lacks an option or a feature that the stack needs.

    ``values`` are the layers' settings, ``further`` the features that something else requests, each with its name.
    """
    asked = [(f"layer {layer} of the stack {stack}", one) for layer, one in stack.features(values)]
    needed = needs(stack, values)
    for commit in commits:
        missing = undefined(repository, commit.sha, needed)
        if options := [option for option in needed if option in missing]:
            layers = ", ".join(dict.fromkeys(needed[option] for option in options))
            named = ", ".join(options[:_MOST_NAMED]) + (" …" if options[_MOST_NAMED:] else "")
            raise UserError(
                f"{commit.short} ({commit.subject}) has no {named} in its Kconfig files: the layer {layers} of the "
                f"stack {stack} does not work without",
                "choose another --stack, or commits that have it: git log --reverse -S'config "
                f"{options[0].removeprefix(_PREFIX)}' -- '*Kconfig*'",
            )
        for who, one in unsupported(repository, commit, (*asked, *further)):
            path, word = one.since.path, one.since.word
            raise UserError(
                f"{commit.short} ({commit.subject}) has no {one.what}, which kernels have since {one.since.version}: "
                f"the {who} asks for it",
                f"change {' or '.join(one.keys)}, or choose commits that have it: git log --reverse -S{word} -- {path}",
            )


def unsupported(
    repository: Repository, commit: Commit, features: Iterable[tuple[str, Feature]]
) -> tuple[tuple[str, Feature], ...]:
    """Those of the features, each with the name of what requests it, that the commit's tree lacks.

    Empty for a partial clone, whose files are not there to be read.
    """
    if repository.partial:
        return ()
    return tuple((who, one) for who, one in features if not _has(repository, commit, one.since))


def trees_have(path: Path, revisions: Iterable[str], since: Since) -> bool:
    """Whether the trees of all revisions have a feature; yes for a partial clone, whose files cannot be read."""
    repository = Repository.open(path)
    return repository.partial or all(_has(repository, repository.resolve(one), since) for one in revisions)


def needs(stack: Stack, values: Values) -> dict[str, str]:
    """The options, as ``CONFIG_X``, that layers need, from the disks upwards, each with the first layer that needs it.

    Options that a fragment marks as optional, or switches off, are not needed.
    """
    found: dict[str, str] = {}
    for node in stack.nodes:
        names = node.layer(values).fragments_for()
        for fragment in read_fragments(names):
            for option in required(fragment):
                found.setdefault(option, node.name)
    return found


def required(fragment: Fragment) -> tuple[str, ...]:
    """The options that a fragment switches on and does not mark as optional."""
    switched_on = (name for name, value in fragment.options.items() if value != NOT_SET)
    return tuple(name for name in switched_on if name not in fragment.optional)


def undefined(repository: Repository, sha: str, names: Collection[str]) -> frozenset[str]:
    """Those of the options, written ``CONFIG_X``, that no Kconfig file of a commit's tree defines.

    Empty for a partial clone, for which git would fetch the files one by one: then it is not known.
    """
    if not names or repository.partial:
        return frozenset()
    bare = sorted(name.removeprefix(_PREFIX) for name in names)
    pattern = _DEFINED.format(names="|".join(bare))
    words = ("grep", "-h", "--text", "--no-line-number", "--no-column", "--extended-regexp", "-e", pattern)
    answer = repository.ask(*words, sha, "--", _FILES, ok=(0, 1))
    found = {f"{_PREFIX}{line.split()[1]}" for line in answer.lines if line.strip()}
    return frozenset(names) - found


def _has(repository: Repository, commit: Commit, since: Since) -> bool:
    """Whether the word is there; if not, the version may be one that has the feature under another name."""
    words = ("grep", "--quiet", "--text", "--fixed-strings", "-e", since.word)
    if repository.ask(*words, commit.sha, "--", since.path, ok=(0, 1)).status == 0:
        return True
    asked = ("grep", "-h", "--text", "--no-line-number", "--no-column", "--extended-regexp", "-e", _MAKEFILE)
    found = repository.ask(*asked, commit.sha, "--", "Makefile", ok=(0, 1)).lines
    version = [int(line.partition("=")[2]) for line in sorted(found, reverse=True)]
    return bool(version) and version >= [int(number) for number in re.findall(r"\d+", since.version)]


# This machine


class NeededFor(Enum):
    """What needs the probe's result: nothing, a run, or a kernel build (and therefore a run, too)."""

    NOTHING = 0
    RUN = 1
    BUILD = 2


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The settings and the run directory to check; ``scratch`` is for experiments, ``note`` announces slow checks."""

    settings: Settings
    run_dir: Path
    scratch: Path
    note: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Probe:
    """One check of the machine, with one row or several; a :class:`UserError` becomes a row that is missing.

    A probe that ``warns`` may find a weakness of a run's evidence, and does not connect to libvirt. A probe
    ``of_setup`` checks what the stack and the workload need on this machine.
    """

    name: str
    need: NeededFor
    look: Callable[[CheckContext], Finding | Iterable[Finding]]
    warns: bool = False
    of_setup: bool = False

    @property
    def worst(self) -> Grade:
        """The grade of the row if the check fails."""
        return Grade.WARN if self.need is NeededFor.NOTHING else Grade.MISSING


def check_configuration(settings: KernelSettings) -> Mapping[str, str]:
    """The requested options; raises :class:`UserError` for files from which none can be read."""
    return kernel_builder(settings).wanted


def _configuration(asked: CheckContext) -> Finding:
    options = check_configuration(asked.settings.kernel)
    base = asked.settings.kernel.base_config or "everything off"
    names = ", ".join(asked.settings.kernel.fragments)
    return Finding("kernel config", Grade.OK, f"{base}, then {names}: {len(options)} options asked for")


def _programs(asked: CheckContext) -> Iterator[Finding]:
    options = _options(asked)
    yield from toolchain.program_rows(options)
    yield from toolchain.header_rows(options)


def _sandbox(asked: CheckContext) -> Finding:
    settings = asked.settings.kernel
    words: list[str] = []  # of the commands that compile, including the script in front of ccache
    for command in settings.compilers or ("",):
        with suppress(UserError):  # an unusable compiler has a row of its own
            words += toolchain.detect(command).cc.split()
    return toolchain.sandbox_row(settings.sandbox, (*words, *toolchain.programs(_options(asked))))


def _options(asked: CheckContext) -> Mapping[str, str]:
    with suppress(UserError):  # an unusable configuration has a row of its own
        return check_configuration(asked.settings.kernel)
    return {}


def _leftovers(asked: CheckContext) -> Finding:
    done: list[str] = []
    end_leftovers(asked.run_dir, done.append)
    remove_abandoned(files.nearest(asked.run_dir))
    return Finding(
        "leftovers", Grade.INFO if done else Grade.OK, "; ".join(done) or "no killed run left anything behind"
    )


def _job(asked: CheckContext) -> Iterator[Finding]:
    workload = asked.settings.workload
    name = f"{workload.kind} job"
    try:
        doubts = list(check_workload(asked.settings))
    except UserError as error:
        yield refusal(name, error)
        return
    what = ", ".join(map(str, workload.inputs.values())) or workload.text
    yield from doubts or (Finding(name, Grade.OK, what),)


def check_workload(settings: Settings) -> Iterator[Finding]:
    """Doubts about what the user meant by the workload; raises :class:`UserError` if it cannot be measured."""
    workload = settings.workload
    workload.workload.check(settings.bisect.objective, run_here)
    for what, remedy in workload.workload.doubts():
        yield Finding(f"{workload.kind} job", Grade.WARN, what, remedy or None)


def _disks(asked: CheckContext) -> Iterator[Finding]:
    """A row for each disk of the stack, for each further disk in the settings, and for each unverifiable setting.

    A further disk may be a misspelled table of the settings file; the predefined disks may be unused. A setting of the
    stack is unverifiable if its value cannot be read back from the guest.
    """
    storage = asked.settings.storage
    for name in storage.used_disks:
        try:
            yield Finding(f"{name} disk", Grade.OK, _check_disk(asked.settings, name))
        except UserError as error:
            yield refusal(f"{name} disk", error)
    for name in storage.disks:
        if name not in storage.used_disks and name not in DISKS:
            what = f"the stack {storage.stack} does not use it; it is neither looked at nor overwritten"
            yield Finding(f"{name} disk", Grade.WARN, what)
    for sentence in storage.stack.unverifiable(storage.layers):
        yield Finding("stack", Grade.WARN, sentence)


# This is read as a table, so it is laid out as one; the rows are reported in this order.
# fmt: off
PROBES: tuple[Probe, ...] = (
    Probe("leftovers", NeededFor.NOTHING, _leftovers),
    Probe("git", NeededFor.RUN, lambda asked: version_finding()),
    Probe("compiler", NeededFor.BUILD, lambda asked: toolchain.compiler_rows(asked.settings.kernel.compilers)),
    Probe("kernel config", NeededFor.BUILD, _configuration),
    Probe("build tools", NeededFor.BUILD, _programs),
    Probe("sandbox", NeededFor.BUILD, _sandbox, warns=True),
    Probe("ccache", NeededFor.NOTHING, lambda asked: toolchain.ccache_row(
        asked.settings.kernel.compilers, asked.settings.kernel.sandbox)),
    Probe("libvirt", NeededFor.RUN, lambda asked: machine.libvirt(asked.settings.machine, asked.scratch)),
    Probe("qemu", NeededFor.RUN, lambda asked: machine.qemu(asked.settings.machine, asked.scratch)),
    Probe("qemu-img", NeededFor.RUN, lambda asked: machine.qemu_img()),
    Probe("kvm", NeededFor.NOTHING, lambda asked: machine.kvm()),
    Probe("accelerator", NeededFor.NOTHING, lambda asked: machine.accelerator(
        asked.settings.machine, asked.scratch, kept_kernels().newest_image(), asked.note)),
    Probe("guest clock", NeededFor.NOTHING, lambda asked: machine.clock(
        asked.settings.machine, asked.settings.storage, asked.scratch)),
    Probe("guest image", NeededFor.RUN, lambda asked: machine.guest_image(asked.settings.machine), warns=True),
    Probe("user namespaces", NeededFor.RUN, lambda asked: machine.namespaces(asked.settings.machine)),
    Probe("run directory", NeededFor.RUN, lambda asked: files.directory(
        "run directory", asked.run_dir, of_record=True), warns=True),
    Probe("cache directory", NeededFor.RUN, lambda asked: files.directory(
        "cache directory", resources.cache_home()), warns=True),
    Probe("libvirt's reach", NeededFor.RUN, lambda asked: machine.reach(
        asked.settings.machine, asked.scratch, asked.run_dir)),
    Probe("disk room", NeededFor.RUN, lambda asked: Finding(
        "disk room", Grade.OK, check_room(asked.settings, asked.run_dir)), of_setup=True),
    Probe("disks", NeededFor.RUN, _disks, of_setup=True),
    Probe("workload", NeededFor.RUN, _job, of_setup=True),
    Probe("host load", NeededFor.NOTHING, lambda asked: load.contention(asked.settings.contention)),
    Probe("mail", NeededFor.NOTHING, lambda asked: server_finding(asked.settings.mail)),
    Probe("git send-email", NeededFor.NOTHING, lambda asked: mail_finding(Path.home())),
)
# fmt: on


def check(settings: Settings, run_dir: Path, warn: Callable[[Finding], None]) -> None:
    """Raise :class:`UserError` with everything that would stop the run; ``warn`` gets what weakens its evidence."""
    _refuse(settings, run_dir, [probe for probe in PROBES if probe.need is not NeededFor.NOTHING], warn)


def check_setup(settings: Settings, run_dir: Path, warn: Callable[[Finding], None]) -> None:
    """Check one more stack and workload of a run whose other settings :func:`check` has seen, in the same way."""
    _refuse(settings, run_dir, [probe for probe in PROBES if probe.of_setup], warn)


def warn_again(settings: Settings, run_dir: Path, warn: Callable[[Finding], None]) -> None:
    """Give ``warn`` what weakens the evidence of a resumed run: this machine may have changed since the run started.

    Missing things are reported when the run needs them. libvirt is not used: its embedded driver works in the directory
    that a process opens first, and that must be the run's own.
    """
    with _asked(settings, run_dir, lambda _: None) as asked:
        for probe in (one for one in PROBES if one.warns):
            with suppress(BisectorError):
                for finding in _findings(probe, asked):
                    if finding.state is Grade.WARN:
                        warn(finding)


def check_build(settings: Settings, run_dir: Path) -> None:
    """Raise :class:`UserError` with everything that would stop a build, which needs no guest."""
    _refuse(settings, run_dir, [probe for probe in PROBES if probe.need is NeededFor.BUILD], lambda _: None)
    _compared([(run_dir, _build_bytes(settings.kernel))])


def _refuse(settings: Settings, run_dir: Path, probes: Iterable[Probe], warn: Callable[[Finding], None]) -> None:
    with _asked(settings, run_dir, lambda _: None) as asked:
        found = [finding for probe in probes for finding in _findings(probe, asked)]
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
    """Yield all rows, even if a probe fails; ``note`` gets a line before anything that takes long."""
    with _asked(settings, run_dir, note) as asked:
        for probe in PROBES:
            try:
                yield from _findings(probe, asked)
            except BisectorError as error:
                yield Finding(probe.name, probe.worst, error.message, error.hint or None)
            except Exception as error:  # noqa: BLE001 - a row of the table, and the other rows, whatever it is
                what = f"this check failed, which is a bug in bisector: {type(error).__name__}: {error}"
                yield Finding(probe.name, probe.worst, what)


def _findings(probe: Probe, asked: CheckContext) -> tuple[Finding, ...]:
    try:
        seen = probe.look(asked)
        return (seen,) if isinstance(seen, Finding) else tuple(seen)
    except UserError as error:
        return (replace(refusal(probe.name, error), state=probe.worst),)


@contextmanager
def _asked(settings: Settings, run_dir: Path, note: Callable[[str], None]) -> Iterator[CheckContext]:
    with scratch("probe", mode=0o755) as place:  # a daemon's QEMU runs as another user
        yield CheckContext(settings, run_dir, place, note)


def check_room(settings: Settings, run_dir: Path) -> str:
    """The free and the needed space on each file system that is used; raises :class:`UserError` if it is too small."""
    needed = [(run_dir, _build_bytes(settings.kernel))]
    if settings.machine.image is None:
        needed.append((resources.cache_home(), _IMAGE_BYTES))
    storage = settings.storage
    files_bytes = settings.workload.files.total_bytes * len(storage.stack.phases)
    written = storage.stack.written(extents(storage), storage.layers, files_bytes)
    for name, disk in storage.attached_disks.items():  # a trial's writes count; the rest of a file stays sparse
        place = run_dir if disk.path is None else Path(disk.path)
        if disk.path is None or place.is_dir():
            needed.append((place, min(disk.size_bytes, written[name] + _LAYERS_BYTES)))
    return _compared(needed)


def _build_bytes(settings: KernelSettings) -> int:
    return _SOURCES_BYTES + (_SMALL_BUILD_BYTES if settings.base_config is None else _LARGE_BUILD_BYTES)


def _compared(needed: list[tuple[Path, int]]) -> str:
    """Compare needs with free space: needs on one file system add up, under the first path on it."""
    first, total = dict[int, Path](), Counter[Path]()
    for path, needed_bytes in needed:
        total[first.setdefault(nearest(path).stat().st_dev, path)] += needed_bytes
    seen = []
    for path, needed_bytes in total.items():
        free = disk_room_bytes(path)
        if free < needed_bytes:
            raise UserError(
                f"{path} has {size(free)} free; sources, build, disks and image need up to {size(needed_bytes)} there",
                "make room, or name another place: --run-dir DIRECTORY (and XDG_CACHE_HOME for kernels and images)",
            )
        seen.append(f"{size(free)} free for {path}, up to {size(needed_bytes)} needed")
    return "; ".join(seen)


def _check_disk(settings: Settings, name: str) -> str:
    """What a disk of the stack consists of; raises :class:`UserError` if it cannot be used.

    An existing disk is overwritten in every trial: it must be whole, empty and used by nobody else, not even as a part
    of another disk.
    """
    storage = settings.storage
    disks = dict(storage.used_disks)
    chosen = disks.pop(name)
    if chosen.guest.bus.in_guest:
        return f"{size(chosen.size_bytes)} of the guest's memory"
    if chosen.latency_s:
        check_nbdkit()
    with ExitStack() as stack:
        for other in disks.values():
            if other.path is not None and Path(other.path).is_block_device():
                with suppress(UserError):  # it has a row of its own
                    stack.enter_context(BlockDevice.claimed(Path(other.path)))
        disk = stack.enter_context(existing(name, chosen, storage.overwrite))
        if disk is None:
            return f"a file of {size(chosen.size_bytes)} in {chosen.path or 'the run directory'}"
        seen = replace(chosen, path=None, size_bytes=usable_bytes(disk.size_bytes))
        with_seen = replace(storage, disks={**storage.disks, name: seen})
        if (problem := first_size_problem(replace(settings, storage=with_seen))) is not None:
            raise UserError(f"{', '.join(problem.keys)}: {problem.sentence}", problem.hint)
        return f"{disk.path}, {size(disk.size_bytes)}, overwritten in every trial"
