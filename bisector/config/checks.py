"""All checks for combinations of settings that cannot work; they come before anything expensive."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
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
from bisector.storage.layer import CACHE_PREFIX, LAYERS, Capacity
from bisector.storage.stack import Stack, unknown_disk
from bisector.workload.base import INSTRUCTIONS

_MIB = 1 << 20
# What the guest needs besides its RAM disks, for its programs and the kernel; also the least machine.memory.
_GUEST_BYTES = 256 * _MIB
_ROUNDING_S = 1e-9
_MOST_DISKS = 24  # libvirt is told of vda to vdz, with the root and the modules (vm/domain.xml)
_MOST_INSTRUCTION_NS = 1 << 10  # MAX_ICOUNT_SHIFT in QEMU's accel/tcg/icount-common.c
_MOST_FILL_ROUNDS = 100  # SNIA's specification, which the rule is taken from, ends after 25 (PTS 2.0.2)


def first_problem(settings: Settings) -> Problem | None:
    """The first combination that cannot work, if there is one."""
    if (found := unknown_disk(settings.storage.stack, settings.storage.disks)) is not None:
        name, advice = found
        return Problem(("storage.stack",), f"there is no layer or disk {name}", advice)
    return next((problem for check in _CHECKS for problem in check(settings)), None)


def first_size_problem(settings: Settings) -> Problem | None:
    """The first thing that does not fit on the disks, if there is one."""
    return next(_files_fit(settings), None)


def _metric_can_be(settings: Settings) -> Iterator[Problem]:
    """The metric orders kernels and exists for that part of a run, and a layer counts it if it is a layer's metric."""
    objective, stack, part = settings.bisect.objective, settings.storage.stack, settings.bisect.part
    metric, of_part = objective.metric, ("bisect.part", "bisect.metric")
    try:
        objective.check()
    except UserError as error:
        yield Problem(("bisect.metric", "bisect.over"), error.message, error.hint)
        return
    if part is RunPart.STEADY and not is_of_split(metric):
        yield Problem(of_part, f"there is no {short(metric)} of the steady part of a run", f"--part {RunPart.WHOLE}")
    elif part is RunPart.WHOLE and is_of_split(metric):
        hint = f"--part {RunPart.STEADY}, or a metric of whole runs"
        yield Problem(of_part, f"{metric} is of a run that is split", hint)
    able = [layer for layer in LAYERS.values() if layer.has_metric(metric)]
    if (able or metric.startswith(CACHE_PREFIX)) and not set(able) & set(stack.layers):
        counted_by = ", ".join(layer.name for layer in able) or "none"
        yield Problem(
            ("bisect.metric", "storage.stack"),
            f"no layer of the stack {stack} counts {short(metric)}",
            f"layers that do: {counted_by}; or choose another --metric",
        )
    try:
        _ = settings.bisect.threshold_value
    except UserError as error:
        yield Problem(("bisect.threshold", "bisect.metric"), error.message, error.hint)


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


def _clock_goes_with_the_rest(settings: Settings) -> Iterator[Problem]:
    """While instructions are counted, nothing from outside may reach the guest."""
    machine, by_host = settings.machine, "--clock host"
    if not machine.is_counted:
        if machine.guests != 1:
            sentence = "by the host's clock a second guest makes the figures of the first one weak"
            yield Problem(("machine.guests", "machine.clock"), sentence, "--clock instructions, or leave it out")
        if settings.bisect.metric == INSTRUCTIONS:
            sentence = "by the host's clock nobody counts the instructions"
            yield Problem(("bisect.metric", "machine.clock"), sentence, "--clock instructions, or another --metric")
        if settings.bisect.confirm_by is ConfirmBy.HOST:
            sentence = "what is measured by the host's clock is not confirmed by measuring it by the same clock again"
            advice = "--clock instructions, or --set bisect.confirm_by=none"
            yield Problem(("bisect.confirm_by", "machine.clock"), sentence, advice)
        return
    if machine.instruction_ns & (machine.instruction_ns - 1) or machine.instruction_ns > _MOST_INSTRUCTION_NS:
        sentence = f"QEMU counts a power of two of ns for each instruction, at most {_MOST_INSTRUCTION_NS}"
        yield Problem(("machine.instruction_ns",), sentence)
    if machine.accelerator is Accelerator.KVM:
        sentence, hint = "under KVM nobody counts the instructions", f"--accelerator tcg, or {by_host}"
        yield Problem(("machine.clock", "machine.accelerator"), sentence, hint)
    if machine.vcpus != 1:
        sentence = f"instructions are counted of one CPU, not of {machine.vcpus}"
        yield Problem(("machine.clock", "machine.vcpus"), sentence, f"--set machine.vcpus=1, or {by_host}")
    if machine.image is not None:
        sentence = "a guest whose instructions are counted has no network, and needs the image that bisector builds"
        yield Problem(("machine.clock", "machine.image"), sentence, "leave out one of the two")
    for name, disk in settings.storage.used_disks.items():
        if not disk.guest.bus.in_guest or disk.path is not None:
            key = f"storage.{name}.{'bus' if disk.path is None else 'path'}"
            sentence = "a disk on the host keeps the host's time; where instructions are counted it is the guest's own"
            yield Problem(("machine.clock", key), sentence, f"{by_host}, or leave out what says where the disk is")


def _files_exist(settings: Settings) -> Iterator[Problem]:
    """Files exist. A path that this user may not look at, or that is too long, must not seem a bug later."""
    kernel, machine, workload = settings.kernel, settings.machine, settings.workload
    keys = {row.field: row.key for row in options_of(type(workload.workload))}
    files = [
        *((keys[name.partition(".")[0]], path) for name, path in workload.inputs.items()),
        ("kernel.base_config", kernel.base_config),
        ("machine.image", machine.image),
        ("machine.image_key", machine.image_key),
        ("machine.image_host_key", machine.image_host_key),
    ]
    disks = ((f"storage.{name}.path", disk.path) for name, disk in settings.storage.used_disks.items())
    for key, place in [*files, *disks, *(("kernel.fragments", one) for one in kernel.fragments if "/" in one)]:
        try:
            if place is not None:
                Path(place).stat()
        except (FileNotFoundError, NotADirectoryError, ValueError):
            pass  # the checks below report it
        except OSError as error:
            yield Problem((key,), f"it cannot be looked at: {error.strerror}")
            return
    for key, path in files:
        if path is not None and not path.is_file():
            what = "there is no such file" if not path.exists() else f"{path} is not a regular file"
            yield Problem((key,), what)
    for fragment in kernel.fragments:
        if "/" not in fragment:
            try:
                resources.fragment(fragment)
            except UserError as error:
                yield Problem(("kernel.fragments",), error.message, error.hint)
        elif not Path(fragment).is_file():
            yield Problem(("kernel.fragments",), f"there is no file {fragment}")
    if kernel.base_config is None and not kernel.fragments:
        yield Problem(("kernel.base_config", "kernel.fragments"), "a kernel needs one of the two")


def _disks_can_be(settings: Settings) -> Iterator[Problem]:
    storage = settings.storage
    if len(storage.used_disks) > _MOST_DISKS:
        yield Problem(("storage.stack",), f"{len(storage.used_disks)} disks; a guest has {_MOST_DISKS} at most")
    nodes: dict[int, str] = {}
    # All RAM disks have one size (rd_size in drivers/block/brd.c).
    of_another_size = any(one.startswith("brd.") for one in storage.stack.parameters(storage.layers))
    for name, disk in storage.used_disks.items():
        bus, path = disk.guest.bus, None if disk.path is None else Path(disk.path)
        path_key, bus_key = f"storage.{name}.path", f"storage.{name}.bus"
        # The driver in this process tells QEMU of an NVMe disk: libvirt has no such controller before 11.5.
        if bus is Bus.NVME and settings.machine.connect != EMBEDDED:
            sentence = "a disk on nvme is not given to a libvirt daemon, which would keep QEMU from opening it"
            yield Problem((bus_key, "machine.connect"), sentence, "--connect qemu:///embed, or another bus")
        if bus.in_guest and path is not None:
            sentence = f"a disk on {bus} is in the guest's memory, and has no place on the host"
            yield Problem((path_key, bus_key), sentence, "leave out one of the two")
        elif path is not None and not path.exists():
            yield Problem((path_key,), "there is no such directory or block device")
        elif path is not None and not (path.is_dir() or path.is_block_device()):
            sentence = "it is a file, which would be overwritten"
            yield Problem((path_key,), sentence, "name the directory to make a file in")
        elif path is not None and path.is_block_device():
            other = nodes.setdefault(path.stat().st_rdev, path_key)
            if other != path_key:
                yield Problem((other, path_key), "both name the same disk")
        if bus is not Bus.NULL_BLK and abs(disk.latency_s - round(disk.latency_s, 3)) > _ROUNDING_S:
            yield Problem((f"storage.{name}.latency",), "a latency is in whole milliseconds")
        if bus is Bus.BRD and of_another_size:
            sentence = "the stack has RAM disks of another size, and brd makes all of one size"
            yield Problem((bus_key, "storage.stack"), sentence, "choose another bus, or stack")


def _files_fit(settings: Settings) -> Iterator[Problem]:
    """The layers fit on each other, and the files of all runs fit on the file system."""
    workload = settings.workload.workload
    if problems := list(workload.problems()):
        yield from problems
        return
    lengths = list(workload.problems_of_length(settings.bisect.objective))
    sizes = list(_no_room(settings))
    if lengths and sizes:  # the hint for the first problem is followed by the other problems
        first, *others = (*lengths, *sizes)
        hints = (first.hint, *(f"{one.sentence}; {one.hint}" for one in others))
        lengths, sizes = [replace(first, hint="\n  ".join(hints))], []
    yield from (*lengths, *sizes)


def _no_room(settings: Settings) -> Iterator[Problem]:
    storage, files = settings.storage, settings.workload.files
    stack, disks = storage.stack, extents(storage)
    yield from stack.problems(disks, storage.layers, files)
    kept = len(stack.phases)  # the files of a run that prepares another one stay
    device = stack.device.extent(disks, storage.layers)
    if not _has_room(device, stack, files.total_bytes * kept):
        over, where = f", {kept} times over" if kept > 1 else "", size_text(device.size_bytes or 0)
        where = f"a file system on {where}" if stack.file_system.has_files else where
        sentence = f"{files.sentence}{over}; {where} has no room for that"
        yield Problem((*files.keys, *device.keys), sentence, files.advice)
    if not settings.bisect.baselines:
        return
    if not stack.baselines:
        sentence = "the stack has nothing between a disk and the file system, so there is no other figure to measure"
        yield Problem(("bisect.baselines", "storage.stack"), sentence)
    if settings.bisect.metric.startswith(CACHE_PREFIX):
        sentence = f"a disk alone has no cache, and so no {settings.bisect.metric}"
        hint = "leave out baselines, or choose another --metric"
        yield Problem(("bisect.baselines", "bisect.metric"), sentence, hint)
    for name in stack.baselines:
        alone, disk = stack.alone(name), disks[name]
        for problem in alone.problems(disks, storage.layers, files):
            yield replace(problem, keys=("bisect.baselines", *problem.keys))
        if not _has_room(disk, alone, files.total_bytes):
            what = f"a file system on {disk.what} alone, of {size_text(disk.size_bytes or 0)}, has no room for that"
            yield Problem(("bisect.baselines", *files.keys, *disk.keys), f"{files.sentence}; {what}")


def _has_room(device: Capacity, stack: Stack, data_bytes: int) -> bool:
    return device.size_bytes is None or data_bytes <= device.size_bytes * stack.file_system.data_share


def extents(storage: StorageSettings) -> dict[str, Capacity]:
    """The capacity of each disk of the stack, as its layers see it before there is a guest."""
    return {name: Capacity.of_disk(name, disk_bytes(disk)) for name, disk in storage.used_disks.items()}


def _workload_can_run(settings: Settings) -> Iterator[Problem]:
    """Files need a file system, work on a device needs a stack without one, and the image has the programs."""
    stack, workload = settings.storage.stack, settings.workload.workload
    device_runs = 0 if stack.file_system.has_files else len(stack.phases)
    yield from workload.problems_on_stack(device_runs, built_image=settings.machine.image is None)


def _memory_suffices(settings: Settings) -> Iterator[Problem]:
    """What layers take of the guest's memory leaves enough for the guest."""
    kept = settings.storage.stack.memory(settings.storage.layers)
    kept_bytes = -(-sum(one.size_bytes or 0 for one in kept) // _MIB) * _MIB
    needed = kept_bytes + _GUEST_BYTES
    if kept and settings.machine.memory_bytes < needed:
        keys = tuple(dict.fromkeys(key for one in kept for key in one.keys))
        what = " and ".join(dict.fromkeys(one.what for one in kept))
        own = f"the guest itself needs {size_text(_GUEST_BYTES)}"
        sentence = f"{what} in the guest's memory takes {size_text(kept_bytes)} of it, and {own}"
        hint = f"--set machine.memory={needed // _MIB}MiB, or make {what} smaller"
        yield Problem(("machine.memory", *keys), sentence, hint)


def _runs_have_time(settings: Settings) -> Iterator[Problem]:
    """There is time for the readings, the runs of a trial, and the rounds that fill a cache."""
    if settings.bisect.calibrate > settings.bisect.most_pairs:
        sentence = "the ends are not read so often"
        yield Problem(("bisect.calibrate", "bisect.most_pairs"), sentence, "a smaller --calibrate, or more pairs")
    storage, runtime_s = settings.storage, settings.workload.runtime_s
    runs, rounds, fill_s = len(storage.stack.phases), storage.fill_rounds, storage.fill_deadline_s
    if settings.machine.trial_deadline_s <= runs * runtime_s:
        what = f"the {runs} runs of a trial alone take" if runs > 1 else "the run of a trial alone takes"
        yield Problem(("machine.trial_deadline", "workload.runtime"), f"{what} {duration_text(runs * runtime_s)}")
    if not any(phase.fills for phase in storage.stack.phases):
        return
    if rounds > _MOST_FILL_ROUNDS:
        yield Problem(("storage.fill_rounds",), f"at most {_MOST_FILL_ROUNDS} rounds fill a cache")
    elif rounds > 1 and rounds * runtime_s > fill_s:  # only if the workload's length is known
        sentence = f"{rounds} rounds take {duration_text(rounds * runtime_s)} or more"
        yield Problem(("storage.fill_deadline", "storage.fill_rounds"), sentence)
    elif 0 < fill_s <= runtime_s:
        sentence = "it is over when the first run is, so that nothing is filled after that"
        yield Problem(("storage.fill_deadline", "workload.runtime"), sentence, f"{AUTO}, or 0s for one run only")


def mail_is_private(settings: Settings) -> Iterator[Problem]:
    """Letters and logins do not cross a network unencrypted."""
    mail = settings.mail
    if mail.security is Security.NONE and mail.host not in ("", "localhost", "127.0.0.1", "::1"):
        sentence = "an unencrypted connection is for a server on this host alone"
        yield Problem(("mail.security", "mail.host"), sentence, "mail.security = starttls or tls")


_CHECKS: tuple[Callable[[Settings], Iterator[Problem]], ...] = (
    *(_metric_can_be, _own_image_has_keys, _clock_goes_with_the_rest, _files_exist, _disks_can_be),
    *(_files_fit, _workload_can_run, _memory_suffices, _runs_have_time, mail_is_private),
)


def disk_bytes(disk: DiskSettings) -> int | None:
    """The size that the guest will see; None if it is not known yet."""
    if disk.path is None:
        return disk.size_bytes
    path = Path(disk.path)
    if not path.is_block_device():
        return disk.size_bytes
    # In sectors of 512 bytes, whatever the device's own size is (kernel: Documentation/ABI/stable/sysfs-block).
    number = path.stat().st_rdev
    sectors = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/size")
    try:
        return usable_bytes(int(sectors.read_text(encoding="ascii")) * 512)
    except FileNotFoundError:  # a device node without a device in the kernel: opening it reports that
        return None
