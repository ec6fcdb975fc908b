"""Combinations of settings that cannot work, all in one place, before anything expensive."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from bisector.config import (
    EMBEDDED,
    Accelerator,
    ConfirmBy,
    DiskSettings,
    RunPart,
    Security,
    Settings,
    StorageSettings,
    usable_bytes,
)
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.core.metric import is_of_split, short
from bisector.core.setting import AUTO, Problem, options_of
from bisector.core.units import duration_text, size_text
from bisector.storage.disks import Bus
from bisector.storage.layer import OF_CACHES, Capacity, Files
from bisector.storage.layers import LAYERS
from bisector.storage.stack import Stack, unknown_disk
from bisector.workload.base import INSTRUCTIONS

_MIB = 1 << 20
# What the guest needs beside a RAM disk: its programs and the kernel's own memory. It is the least machine.memory.
_GUEST_BYTES = 256 * _MIB
_ROUNDING_S = 1e-9
_MOST_INSTRUCTION_NS = 1 << 10  # MAX_ICOUNT_SHIFT in QEMU's accel/tcg/icount-common.c
_MOST_FILL_ROUNDS = 100  # SNIA's specification, which the rule is taken from, ends after 25 (PTS 2.0.2)


def first_problem(settings: Settings) -> Problem | None:
    """The first combination that cannot work, if there is one."""
    return next((problem for check in _CHECKS for problem in check(settings)), None)


def first_size_problem(settings: Settings) -> Problem | None:
    """The first thing that does not fit on the disks."""
    return next(_files_fit(settings), None)


def _disks_are_known(settings: Settings) -> Iterator[Problem]:
    storage = settings.storage
    if (found := unknown_disk(storage.stack, storage.disks)) is not None:
        name, advice = found
        yield Problem(("storage.stack",), f"there is no layer or disk {name}", advice)


def _own_image_has_keys(settings: Settings) -> Iterator[Problem]:
    machine = settings.machine
    keys = {"machine.image_key": machine.image_key, "machine.image_host_key": machine.image_host_key}
    for key, path in keys.items():
        if (machine.image is None) is not (path is None):
            yield Problem(
                ("machine.image", key),
                "an image of your own, its SSH key and its host key are given together or not at all",
                "--image FILE --image-key PRIVATE_KEY --image-host-key PUBLIC_KEY",
            )


def _nvme_is_qemus_own(settings: Settings) -> Iterator[Problem]:
    """QEMU is told of the disk by the driver in this process: there is no NVMe controller in libvirt before 11.5."""
    for name, disk in settings.storage.used_disks.items():
        if disk.guest.bus is Bus.NVME and settings.machine.connect != EMBEDDED:
            sentence = "a disk on nvme is not given to a libvirt daemon, which would keep QEMU from opening it"
            yield Problem(
                (f"storage.{name}.bus", "machine.connect"), sentence, "--connect qemu:///embed, or another bus"
            )


def _time_can_be_counted(settings: Settings) -> Iterator[Problem]:
    """Nothing from outside the guest reaches it while its instructions are counted."""
    machine = settings.machine
    if not machine.is_counted:
        if machine.guests != 1:
            sentence = "by the host's clock a second guest makes the figures of the first one weak"
            yield Problem(("machine.guests", "machine.clock"), sentence, "--clock instructions, or leave it out")
        if settings.bisect.metric == INSTRUCTIONS:
            sentence = "by the host's clock nobody counts the instructions"
            yield Problem(("bisect.metric", "machine.clock"), sentence, "--clock instructions, or another --metric")
        return
    counted = ("machine.clock",)
    if machine.instruction_ns & (machine.instruction_ns - 1) or machine.instruction_ns > _MOST_INSTRUCTION_NS:
        sentence = f"QEMU counts a power of two of ns for each instruction, at most {_MOST_INSTRUCTION_NS}"
        yield Problem(("machine.instruction_ns",), sentence)
    if machine.accelerator is Accelerator.KVM:
        sentence = "under KVM nobody counts the instructions"
        yield Problem((*counted, "machine.accelerator"), sentence, "--accelerator tcg, or --clock host")
    if machine.vcpus != 1:
        sentence = f"instructions are counted of one CPU, not of {machine.vcpus}"
        yield Problem((*counted, "machine.vcpus"), sentence, "--set machine.vcpus=1, or --clock host")
    if machine.image is not None:
        sentence = "a guest whose instructions are counted has no network, and needs the image that bisector builds"
        yield Problem((*counted, "machine.image"), sentence, "leave out one of the two")
    for name, disk in settings.storage.used_disks.items():
        if not disk.guest.bus.in_guest or disk.path is not None:
            key = f"storage.{name}.{'bus' if disk.path is None else 'path'}"
            sentence = "a disk on the host keeps the host's time; where instructions are counted it is the guest's own"
            yield Problem((*counted, key), sentence, "--clock host, or leave out what says where the disk is")


def _confirmed_by_another_clock(settings: Settings) -> Iterator[Problem]:
    if settings.bisect.confirm_by is ConfirmBy.HOST and not settings.machine.is_counted:
        sentence = "what is measured by the host's clock is not confirmed by measuring it by the same clock again"
        advice = "--clock instructions, or --set bisect.confirm_by=none"
        yield Problem(("bisect.confirm_by", "machine.clock"), sentence, advice)


def _can_be_looked_at(settings: Settings) -> Iterator[Problem]:
    """Paths that this user cannot even look at, or that are too long, are no bug of whoever looks at them later."""
    disks = {f"storage.{name}.path": one for name, one in settings.storage.used_disks.items()}
    paths = [*_files(settings), *((key, disk.path) for key, disk in disks.items())]
    for key, path in [*paths, *(("kernel.fragments", one) for one in settings.kernel.fragments if "/" in one)]:
        try:
            if path is not None:
                Path(path).stat()
        except (FileNotFoundError, NotADirectoryError, ValueError):
            pass  # the next ones tell
        except OSError as error:
            yield Problem((key,), f"it cannot be looked at: {error.strerror}")


def _files(settings: Settings) -> Iterator[tuple[str, Path | None]]:
    """The files that settings name, with their keys."""
    keys = {row.field: row.key for row in options_of(settings.workload.workload.settings)}
    yield from ((keys[name.partition(".")[0]], path) for name, path in settings.workload.inputs.items())
    yield "kernel.base_config", settings.kernel.base_config
    yield "machine.image", settings.machine.image
    yield "machine.image_key", settings.machine.image_key
    yield "machine.image_host_key", settings.machine.image_host_key


def _files_exist(settings: Settings) -> Iterator[Problem]:
    for key, path in _files(settings):
        if path is not None and not path.is_file():
            yield Problem((key,), "there is no such file" if not path.exists() else f"{path} is no regular file")
    for fragment in settings.kernel.fragments:
        if "/" not in fragment:
            try:
                resources.fragment(fragment)
            except UserError as error:
                yield Problem(("kernel.fragments",), error.message, error.hint)
        elif not Path(fragment).is_file():
            yield Problem(("kernel.fragments",), f"there is no file {fragment}")


def _some_configuration(settings: Settings) -> Iterator[Problem]:
    if settings.kernel.base_config is None and not settings.kernel.fragments:
        yield Problem(("kernel.base_config", "kernel.fragments"), "a kernel needs one of the two")


def _disks_exist(settings: Settings) -> Iterator[Problem]:
    for name, disk in settings.storage.used_disks.items():
        key = f"storage.{name}.path"
        if disk.guest.bus.in_guest:
            if disk.path is not None:
                sentence = f"a disk on {disk.guest.bus} is in the guest's memory, and has no place on the host"
                yield Problem((key, f"storage.{name}.bus"), sentence, "leave out one of the two")
        elif disk.path and not Path(disk.path).exists():
            yield Problem((key,), "there is no such directory or block device")
        elif disk.path and not (Path(disk.path).is_dir() or Path(disk.path).is_block_device()):
            yield Problem((key,), "it is a file, which would be overwritten", "name the directory to make a file in")


def _disks_differ(settings: Settings) -> Iterator[Problem]:
    for (one, first), (other, second) in combinations(settings.storage.used_disks.items(), 2):
        if _identity(first) is not None and _identity(first) == _identity(second):
            yield Problem((f"storage.{one}.path", f"storage.{other}.path"), "both name the same disk")


def _latencies_can_be(settings: Settings) -> Iterator[Problem]:
    for name, disk in settings.storage.used_disks.items():
        if disk.guest.bus is Bus.NULL_BLK:
            continue
        if abs(disk.latency_s - round(disk.latency_s, 3)) > _ROUNDING_S:
            yield Problem((f"storage.{name}.latency",), "a latency is in whole milliseconds")


def _ram_disks_are_alike(settings: Settings) -> Iterator[Problem]:
    """All RAM disks have one size (``rd_size`` in drivers/block/brd.c)."""
    storage = settings.storage
    if any(one.startswith("brd.") for one in storage.stack.parameters(storage.layers)):
        for name, disk in storage.used_disks.items():
            if disk.guest.bus is Bus.BRD:
                sentence = "the stack has RAM disks of another size, and brd makes all of one size"
                yield Problem((f"storage.{name}.bus", "storage.stack"), sentence, "choose another bus, or stack")


def _identity(disk: DiskSettings) -> object:
    """What two names of one disk have in common; None for a directory, where each makes its own file."""
    if disk.path is None:
        return None
    return Path(disk.path).stat().st_rdev if Path(disk.path).is_block_device() else None


def _files_fit(settings: Settings) -> Iterator[Problem]:
    """The layers fit on each other, the files of all runs on the file system."""
    workload = settings.workload.workload
    if problems := list(workload.problems(settings.workload.values)):
        yield from problems
        return
    problems = list(workload.problems_of_length(settings.workload.values, settings.bisect.objective))
    sizes = list(_no_room(settings))
    yield from (_in_one((*problems, *sizes)),) if problems and sizes else (*problems, *sizes)


def _in_one(problems: Sequence[Problem]) -> Problem:
    """The first one, and beside what to do about it the others."""
    first, *others = problems
    return replace(first, hint="\n  ".join((first.hint, *(f"{one.sentence}; {one.hint}" for one in others))))


def _no_room(settings: Settings) -> Iterator[Problem]:
    storage, files = settings.storage, settings.workload.files
    yield from storage.stack.problems(extents(storage), storage.layers, files)
    kept = len(storage.stack.phases)  # the files of a run that prepares another one stay
    device = storage.stack.extent(extents(storage), storage.layers)
    over = f", {kept} times over" if kept > 1 else ""
    if not _has_room(device, storage.stack, files.total_bytes * kept):
        yield Problem(
            (*files.keys, *device.keys),
            f"{files.sentence}{over}; {'a file system on ' if storage.stack.file_system.has_files else ''}"
            f"{_size_of(device)} has no room for that",
            files.advice,
        )
    yield from _baselines_fit(settings, files)


def extents(storage: StorageSettings) -> dict[str, Capacity]:
    """Each disk that the stack uses, as its layers see it before there is a guest."""
    return {name: Capacity.of_disk(name, disk_bytes(disk)) for name, disk in storage.used_disks.items()}


def _memory_suffices(settings: Settings) -> Iterator[Problem]:
    """What layers keep of the guest's memory leaves enough for the guest."""
    kept = settings.storage.stack.memory(settings.storage.layers)
    kept_bytes = -(-sum(one.size_bytes or 0 for one in kept) // _MIB) * _MIB
    needed = kept_bytes + _GUEST_BYTES
    if kept and settings.machine.memory_bytes < needed:
        keys = tuple(dict.fromkeys(key for one in kept for key in one.keys))
        what = " and ".join(dict.fromkeys(one.what for one in kept))
        yield Problem(
            ("machine.memory", *keys),
            f"{what} in the guest's memory takes {size_text(kept_bytes)} of it, and the guest itself needs "
            f"{size_text(_GUEST_BYTES)}",
            f"--set machine.memory={needed // _MIB}MiB, or make {what} smaller",
        )


def _workload_fits_stack(settings: Settings) -> Iterator[Problem]:
    """Files need a file system; what works on a device is for a stack without one."""
    stack, workload = settings.storage.stack, settings.workload
    if stack.file_system.has_files:
        yield from workload.workload.problems_on_files(workload.values)
    else:
        yield from workload.workload.problems_on_device(workload.values, len(stack.phases))


def _image_takes_workload(settings: Settings) -> Iterator[Problem]:
    if settings.machine.image is None:
        yield from settings.workload.workload.problems_on_built_image(settings.workload.values)


def _has_room(device: Capacity, stack: Stack, data_bytes: int) -> bool:
    return device.size_bytes is None or data_bytes <= device.size_bytes * stack.file_system.data_share


def _size_of(device: Capacity) -> str | int:
    return size_text(device.size_bytes or 0)


def _pairs_suffice(settings: Settings) -> Iterator[Problem]:
    if settings.bisect.calibrate > settings.bisect.most_pairs:
        sentence = "the ends are not read so often"
        yield Problem(("bisect.calibrate", "bisect.most_pairs"), sentence, "a smaller --calibrate, or more pairs")


def _baselines_fit(settings: Settings, files: Files) -> Iterator[Problem]:
    """One run's files have room on each disk alone."""
    if not settings.bisect.baselines:
        return
    storage = settings.storage
    if not storage.stack.baselines:
        sentence = "the stack has nothing between a disk and the file system, so there is no other figure to measure"
        yield Problem(("bisect.baselines", "storage.stack"), sentence)
    if settings.bisect.metric.startswith(OF_CACHES):
        sentence = f"a disk alone has no cache, and so no {settings.bisect.metric}"
        yield Problem(
            ("bisect.baselines", "bisect.metric"), sentence, "leave out baselines, or choose another --metric"
        )
    disks = extents(storage)
    for name in storage.stack.baselines:
        alone = storage.stack.alone(name)
        for problem in alone.problems(disks, storage.layers, files):
            yield replace(problem, keys=("bisect.baselines", *problem.keys))
        if not _has_room(disks[name], alone, files.total_bytes):
            yield Problem(
                ("bisect.baselines", *files.keys, *disks[name].keys),
                f"{files.sentence}; a file system on {disks[name].what} alone, of {_size_of(disks[name])}, has no room "
                "for that",
            )


def _deadlines_leave_time(settings: Settings) -> Iterator[Problem]:
    runs = len(settings.storage.stack.phases)
    runs_s = runs * settings.workload.runtime_s
    if settings.machine.trial_deadline_s <= runs_s:
        what = f"the {runs} runs of a trial alone take" if runs > 1 else "the run of a trial alone takes"
        yield Problem(("machine.trial_deadline", "workload.runtime"), f"{what} {duration_text(runs_s)}")


def _rounds_have_time(settings: Settings) -> Iterator[Problem]:
    """As many rounds as a cache is to be filled in, where a round's length is known, and something after the first."""
    storage = settings.storage
    if not any(phase.fills for phase in storage.stack.phases):
        return
    if (rounds := storage.fill_rounds) > _MOST_FILL_ROUNDS:
        yield Problem(("storage.fill_rounds",), f"at most {_MOST_FILL_ROUNDS} rounds fill a cache")
    elif rounds > 1 and (needed_s := rounds * settings.workload.runtime_s) > storage.fill_deadline_s:
        sentence = f"{rounds} rounds take {duration_text(needed_s)} or more"
        yield Problem(("storage.fill_deadline", "storage.fill_rounds"), sentence)
    elif 0 < storage.fill_deadline_s <= settings.workload.runtime_s:
        sentence = "it is over when the first run is, so that nothing is filled after that"
        yield Problem(("storage.fill_deadline", "workload.runtime"), sentence, f"{AUTO}, or 0s for one run only")


def mail_is_private(settings: Settings) -> Iterator[Problem]:
    """Whether a letter and a login go over a network unencrypted."""
    mail = settings.mail
    if mail.security is Security.NONE and mail.host not in ("", "localhost", "127.0.0.1", "::1"):
        sentence = "an unencrypted connection is for a server on this host alone"
        yield Problem(("mail.security", "mail.host"), sentence, "mail.security = starttls or tls")


def _objective_orders(settings: Settings) -> Iterator[Problem]:
    try:
        settings.bisect.objective.check()
    except UserError as error:
        yield Problem(("bisect.metric", "bisect.over"), error.message, error.hint)


def _metric_is_of_part(settings: Settings) -> Iterator[Problem]:
    keys, metric, part = ("bisect.part", "bisect.metric"), settings.bisect.metric, settings.bisect.part
    if part is RunPart.STEADY and not is_of_split(metric):
        yield Problem(keys, f"there is no {short(metric)} of the steady part of a run", f"--part {RunPart.WHOLE}")
    elif part is RunPart.WHOLE and is_of_split(metric):
        yield Problem(
            keys, f"{metric} is of a run that is split", f"--part {RunPart.STEADY}, or a metric of whole runs"
        )


def _layer_counts_metric(settings: Settings) -> Iterator[Problem]:
    """What decides is counted by a layer of the stack, where it is counted by layers."""
    stack, metric = settings.storage.stack, settings.bisect.metric
    able = [layer for layer in LAYERS.values() if layer.has_metric(metric)]
    if (able or metric.startswith(OF_CACHES)) and not set(able) & set(stack.layers):
        counted_by = ", ".join(layer.name for layer in able) or "none"
        yield Problem(
            ("bisect.metric", "storage.stack"),
            f"no layer of the stack {stack} counts {short(metric)}",
            f"layers that do: {counted_by}; or choose another --metric",
        )


def _threshold_is_in_unit(settings: Settings) -> Iterator[Problem]:
    try:
        _ = settings.bisect.threshold_value
    except UserError as error:
        yield Problem(("bisect.threshold", "bisect.metric"), error.message, error.hint)


# The first one lets the others look up the stack's disks.
_CHECKS: tuple[Callable[[Settings], Iterator[Problem]], ...] = (
    _disks_are_known,
    _objective_orders,
    _metric_is_of_part,
    _layer_counts_metric,
    _threshold_is_in_unit,
    _own_image_has_keys,
    _time_can_be_counted,
    _confirmed_by_another_clock,
    _nvme_is_qemus_own,
    _can_be_looked_at,
    _files_exist,
    _some_configuration,
    _disks_exist,
    _disks_differ,
    _latencies_can_be,
    _ram_disks_are_alike,
    _files_fit,
    _workload_fits_stack,
    _image_takes_workload,
    _memory_suffices,
    _pairs_suffice,
    _deadlines_leave_time,
    _rounds_have_time,
    mail_is_private,
)


def disk_bytes(disk: DiskSettings) -> int | None:
    """The size that the guest will see; None when nobody knows it yet."""
    if disk.path is None:
        return disk.size_bytes
    path = Path(disk.path)
    if not path.is_block_device():
        return disk.size_bytes
    # In sectors of 512 bytes whatever the device's own are (kernel: Documentation/ABI/stable/sysfs-block).
    number = path.stat().st_rdev
    sectors = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/size")
    try:
        return usable_bytes(int(sectors.read_text(encoding="ascii")) * 512)
    except FileNotFoundError:  # a node of no device that the kernel has: opening it tells
        return None
