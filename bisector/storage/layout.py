"""Lays a stack out on the guest's empty disks, in one round trip, and checks what the kernel made."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bisector.core.errors import UserError
from bisector.core.figures import CacheStatus
from bisector.core.shell import Shell, Step, run_steps
from bisector.core.trial import DiskQueue
from bisector.storage import disks
from bisector.storage.disks import Brd, GuestDisk, MemoryDisk
from bisector.storage.layer import MOUNTPOINT, Capacity, Counters, Device, Files, LayerPlan, Site
from bisector.storage.stack import Node, Stack, Values

_MIB = 1 << 20
_FILL_GRACE_S = 60.0
_FREE = re.compile(r"(\d{1,20}) (\d{1,20})")
_SIZE = re.compile(r"\d{1,20}")


@dataclass(frozen=True, slots=True)
class Readings:
    """The counters of all layers at one moment, from the disks upwards."""

    of_layers: tuple[Any, ...] = ()

    @property
    def cache(self) -> CacheStatus | None:
        """The status of the uppermost dm-cache, which is recorded unchanged; None if the stack has no dm-cache."""
        return next((one for one in reversed(self.of_layers) if isinstance(one, CacheStatus)), None)


@dataclass(frozen=True, slots=True)
class MountedStack:
    """A stack in the guest: ``mountpoint`` of its file system or, if it has none, the path of the uppermost ``device``.

    ``description`` are the commands that made it, in order, ``made`` its layers in the same order. ``room`` names the
    settings that make it larger, ``queues`` are the queue settings of the disks as the kernel shows them.
    """

    mountpoint: str
    description: tuple[str, ...]
    device: str = ""
    room: str = ""
    made: tuple[LayerPlan, ...] = ()
    queues: tuple[DiskQueue, ...] = ()

    def read(self, shell: Shell) -> Readings:
        """Read the counters of each layer that has any."""
        return Readings(tuple(counters.read(shell) for counters in self._counters))

    def counted(self, before: Readings, after: Readings) -> tuple[tuple[str, float], ...]:
        """The metrics between two readings, as name and value; the upper of two layers with the same metric counts."""
        values: dict[str, float] = {}
        for counters, first, last in zip(self._counters, before.of_layers, after.of_layers, strict=True):
            values |= dict(counters.values(first, last))
        return tuple(values.items())

    @property
    def fills_itself(self) -> bool:
        """Whether a layer can fill the part of its cache that a workload left free."""
        return any(one.fill is not None for one in self.made)

    def fill(self, shell: Shell, seconds: float) -> None:
        """Fill the part of each cache that is still free, within ``seconds`` per cache."""
        for one in self.made:
            if one.fill is not None:
                run_steps(shell, one.fill(seconds), seconds + _FILL_GRACE_S)

    @property
    def _counters(self) -> tuple[Counters, ...]:
        return tuple(one.counters for one in self.made if one.counters is not None)


def lay_out(
    shell: Shell,
    stack: Stack,
    values: Values,
    files: Files,
    deadline_s: float,
    *,
    guest_disks: Mapping[str, GuestDisk] | None = None,
    in_memory: Mapping[str, MemoryDisk] | None = None,
) -> MountedStack:
    """Make the layers from the disks upwards and check that the kernel made what was asked for.

    ``values`` are the layers with their settings, ``files`` is what the workload writes; disks ``in_memory`` are made
    first. Raises :class:`bisector.core.errors.KernelFault` if a command fails or a layer is not what was asked for,
    :class:`UserError` for missing tools, sizes that do not fit and settings of disks that the kernel does not take,
    and :class:`bisector.core.errors.InfraError` if a layer lies on a wrong disk.
    """
    of_disks = {name: (guest_disks or {}).get(name, GuestDisk()) for name in stack.disks}
    paths = tuple(disks.path_of(name, disk.bus) for name, disk in of_disks.items())
    in_memory = in_memory or {}
    made = _made(stack, values, of_disks, in_memory)
    own = tuple(disk.make_step(name) for name, disk in in_memory.items())
    others = tuple(dict.fromkeys(leaf for one in made for leaf in one.leaves if leaf not in paths))
    raw = "" if stack.file_system.has_files else made[-1].path
    measured = f"blockdev --getsize64 {raw}" if raw else f"stat -f -c '%a %S' {MOUNTPOINT}"
    queued = (step for name, disk in of_disks.items() for step in disks.queue_steps(name, disk))
    described = (*queued, *(step for one in made for step in one.steps), *disks.steps(measured))
    # The answers come in this order, and each part has as many as it has steps.
    parts: tuple[Sequence[Step], ...] = (
        (disks.tools_step(stack.tools), *own),
        disks.devices_steps(paths),
        described,
        disks.devices_steps(others),
        *(one.checks for one in made),
        tuple(disks.queue_check(name, disk) for name, disk in of_disks.items()),
    )
    answers = iter(run_steps(shell, [step for part in parts for step in part], deadline_s))
    _, of_paths, told, of_others, *checked, queues = (tuple(islice(answers, len(part))) for part in parts)
    numbers = {**disks.device_numbers(of_paths, paths), **disks.device_numbers(of_others, others)}
    for one, answered in zip(made, checked, strict=True):
        if one.verify is not None:
            one.verify(answered, numbers)
    found = tuple(disks.queue(*disk, answer) for disk, answer in zip(of_disks.items(), queues, strict=True))
    larger = " or ".join(stack.extent({name: Capacity.of_disk(name, None) for name in stack.disks}, values).keys)
    _check_room(told[-1], files, len(stack.phases) if raw else 0, larger)
    commands = tuple(step.command for step in (*own, *described))
    return MountedStack("" if raw else MOUNTPOINT, commands, raw, larger, made, found)


def _made(
    stack: Stack, values: Values, of_disks: Mapping[str, GuestDisk], in_memory: Mapping[str, MemoryDisk]
) -> tuple[LayerPlan, ...]:
    """How each layer is made, in order; a second layer of the same kind gets other device names."""
    made: list[LayerPlan] = []
    seen: Counter[str] = Counter()

    def device(node: Node) -> Device:
        if node.is_disk:
            path, disk = disks.path_of(node.name, of_disks[node.name].bus), in_memory.get(node.name)
            # A disk on brd is a device-mapper device itself.
            return Device(path, (disk.below if isinstance(disk, Brd) else path,))
        below = tuple(map(device, node.below))
        seen[node.name] += 1
        suffix = str(seen[node.name]) if seen[node.name] > 1 else ""
        layer = node.layer(values)
        made.append(layer.make(Site(below, suffix)))
        path = made[-1].path
        return Device(path, tuple(leaf for one in below for leaf in one.leaves) if layer.is_mapped else (path,))

    device(stack.top)
    return tuple(made)


def _check_room(answer: str, files: Files, runs_on_device: int, larger: str) -> None:
    """Raise :class:`UserError`, with both sizes, if the largest file does not fit on the file system.

    On a stack without a file system all runs have to fit on the device, each in its own place.
    """
    smaller = " or ".join(files.keys)
    if runs_on_device:
        if _SIZE.fullmatch(answer.strip()) is None:
            raise disks.not_an_answer("blockdev", answer)
        has_bytes, needed = int(answer), files.total_bytes * runs_on_device
        what = f"{files.sentence}, for each of {runs_on_device} runs, and the device in the guest"
    else:
        if (found := _FREE.fullmatch(answer.strip())) is None:
            raise disks.not_an_answer("stat -f", answer)
        has_bytes, needed = int(found[1]) * int(found[2]), files.largest_bytes
        what = f"{smaller} is {needed / _MIB:,.0f} MiB, and the file system in the guest"
    if has_bytes < needed:
        hint = f"make the disk of the storage stack larger ({larger}), or {smaller} smaller"
        raise UserError(f"{what} has only {has_bytes / _MIB:,.0f} MiB", hint)
