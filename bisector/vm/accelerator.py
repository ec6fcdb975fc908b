"""What guests run under on this host, as far as that is known without libvirt, and whether they can count time."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bisector.config import Accelerator, MachineSettings, StorageSettings
from bisector.core import resources
from bisector.host.load import available_memory_bytes, host_facts

ACCELERATOR_MEMORY = "accelerator.json"  # in the cache directory
KVM_DEVICE = Path("/dev/kvm")
# What a counted guest takes beside its memory: the root image, and the memory that it shares with the host.
_BESIDE_BYTES = (1 << 30) + (256 << 20)


def known_accelerator(machine: MachineSettings) -> Accelerator | None:
    """What guests run under, as far as that is known without libvirt; None where it has to be tried."""
    if machine.accelerator is not Accelerator.AUTO:
        return machine.accelerator
    boot_id = f"{host_facts().boot_id} "
    tried = recall(resources.cache_home() / ACCELERATOR_MEMORY).items()
    found = next((one for key, one in tried if key.startswith(boot_id)), None)
    return found if found is not None or KVM_DEVICE.exists() else Accelerator.TCG


def room_for_counted(machine: MachineSettings, storage: StorageSettings) -> int:
    """For how many guests that count their time this host has CPUs and memory at once."""
    return min(len(os.sched_getaffinity(0)), available_memory_bytes() // counted_bytes(machine, storage))


def could_count(
    machine: MachineSettings,
    storage: StorageSettings,
    accelerator: Callable[[MachineSettings], Accelerator | None] = known_accelerator,
) -> bool:
    """Whether guests are emulated by the host's clock, as far as is known, and could count their time instead.

    ``accelerator`` tells what runs them. It is asked last, for finding that out may take seconds.
    """
    fits = counted_bytes(machine, storage) < host_facts().memory_bytes
    if machine.is_counted or has_own(machine, storage) or not fits:
        return False
    return accelerator(machine) is Accelerator.TCG


def has_own(machine: MachineSettings, storage: StorageSettings) -> bool:
    """Whether the image or a disk is a person's own."""
    return machine.image is not None or any(one.path is not None for one in storage.used_disks.values())


def counted_bytes(machine: MachineSettings, storage: StorageSettings) -> int:
    """What such a guest takes at most, if its disks are as full as can be."""
    return machine.memory_bytes + _BESIDE_BYTES + sum(one.size_bytes for one in storage.used_disks.values())


def recall(memory: Path) -> dict[str, Accelerator]:
    """What was found out by booting, and where."""
    with suppress(OSError, ValueError, AttributeError):  # absent, or not ours: the probe is repeated
        stored = json.loads(memory.read_text(encoding="utf-8"))
        return {str(key): Accelerator(value) for key, value in stored.items()}
    return {}


def remember(memory: Path, key: str, accelerator: Accelerator) -> None:
    """Only the newest answer is kept: earlier ones belong to an earlier boot or another QEMU."""
    memory.parent.mkdir(parents=True, exist_ok=True)
    draft = memory.with_name(f"{memory.name}.{os.getpid()}")
    draft.write_text(json.dumps({key: accelerator.value}), encoding="utf-8")
    draft.replace(memory)
