"""The accelerator that guests run under on this host, as known without libvirt, and whether they can count time."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from bisector.config import Accelerator, MachineSettings, StorageSettings
from bisector.core import resources
from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError, UserError
from bisector.host.files import write_atomically
from bisector.host.load import available_memory_bytes, host_facts
from bisector.vm.base import Hypervisor
from bisector.vm.console import Console
from bisector.vm.definition import DomainSpec

KVM_DEVICE = Path("/dev/kvm")
_BOOT = Path("/boot")
_PROBE_MEMORY_BYTES = 512 << 20
# Memory of a counted guest beside its RAM: the root image, and the memory that it shares with the host.
_BESIDE_BYTES = (1 << 30) + (256 << 20)


def known_accelerator(machine: MachineSettings) -> Accelerator | None:
    """The accelerator of guests, as far as known without libvirt; None if only booting a kernel can tell."""
    if machine.accelerator is not Accelerator.AUTO:
        return machine.accelerator
    boot_id = f"{host_facts().boot_id} "
    found = next((one for key, one in recall().items() if key.startswith(boot_id)), None)
    return found if found is not None or KVM_DEVICE.exists() else Accelerator.TCG


def room_for_counted(machine: MachineSettings, storage: StorageSettings) -> int:
    """How many guests that count their time fit into this host's CPUs and available memory at once."""
    return min(len(os.sched_getaffinity(0)), available_memory_bytes() // counted_bytes(machine, storage))


def could_count(
    machine: MachineSettings,
    storage: StorageSettings,
    accelerator: Callable[[MachineSettings], Accelerator | None] = known_accelerator,
) -> bool:
    """Whether guests are emulated by the host's clock, as far as known, and could count their time instead.

    ``accelerator`` returns what runs them; it is called last, since it may take seconds to find out.
    """
    fits = counted_bytes(machine, storage) < host_facts().memory_bytes
    if machine.is_counted or uses_own_image_or_disk(machine, storage) or not fits:
        return False
    return accelerator(machine) is Accelerator.TCG


def uses_own_image_or_disk(machine: MachineSettings, storage: StorageSettings) -> bool:
    """Whether the image or a disk is the user's own."""
    return machine.image is not None or any(one.path is not None for one in storage.used_disks.values())


def counted_bytes(machine: MachineSettings, storage: StorageSettings) -> int:
    """The most memory that a counted guest takes, with its disks as full as possible."""
    return machine.memory_bytes + _BESIDE_BYTES + sum(one.size_bytes for one in storage.used_disks.values())


def accelerator_file() -> Path:
    """The file that remembers the accelerator found by booting."""
    return resources.cache_home() / "accelerator.json"


def recall() -> dict[str, Accelerator]:
    """The accelerators found by booting, by host and boot (:func:`_key`); empty if the file is unusable."""
    with suppress(OSError, ValueError, AttributeError):  # missing or damaged: the probe is repeated
        stored = json.loads(accelerator_file().read_text(encoding="utf-8"))
        return {str(key): Accelerator(value) for key, value in stored.items()}
    return {}


def remember(hypervisor: Hypervisor, accelerator: Accelerator) -> None:
    """Record the newest answer alone: an earlier one belongs to an earlier boot or to another QEMU."""
    with suppress(OSError):  # then it is tried again
        accelerator_file().parent.mkdir(parents=True, exist_ok=True)
        write_atomically(accelerator_file(), json.dumps({_key(hypervisor): accelerator.value}).encode())


def choose_accelerator(
    wanted: Accelerator, hypervisor: Hypervisor, spec: DomainSpec | None, deadline_s: float = 15.0
) -> Accelerator | None:
    """Return this host's accelerator; AUTO boots each kernel at most twice, and remembers the answer until reboot.

    The kernels are the distribution's, if this user may read it, and then that of ``spec``, an end of the range. None
    if neither boots, or if there is no ``spec`` and nothing is remembered. Raises :class:`UserError` if the requested
    accelerator is not offered by libvirt, :class:`InfraError` if libvirt does not say.
    """
    check_offered(wanted, hypervisor)
    if wanted is not Accelerator.AUTO:
        return wanted
    if not hypervisor.offers(Accelerator.KVM):
        return Accelerator.TCG
    known = recall().get(_key(hypervisor))
    if known is not None or spec is None:
        return known
    for kernel in dict.fromkeys(filter(None, (distribution_kernel(), spec.kernel))):
        if (tried := boots_under(hypervisor, replace(spec, kernel=kernel), deadline_s)) is not None:
            remember(hypervisor, tried)
            return tried
    return None


def boots_under(hypervisor: Hypervisor, spec: DomainSpec, deadline_s: float) -> Accelerator | None:
    """The accelerator under which the guest boots; if only emulation works, the kernel is sound and KVM is not."""
    for tried, within_s in ((Accelerator.KVM, deadline_s), (Accelerator.TCG, 2 * deadline_s)):
        if _boots(hypervisor, spec, tried, within_s):
            return tried
    return None


def check_offered(wanted: Accelerator, hypervisor: Hypervisor) -> None:
    """Raise :class:`UserError` if a particular accelerator is requested and libvirt does not offer it."""
    if wanted is not Accelerator.AUTO and not hypervisor.offers(wanted):
        name, hint = _NOT_OFFERED[wanted]
        raise UserError(f"{name} is asked for and this host does not offer it", hint)


_NOT_OFFERED = {
    Accelerator.KVM: ("KVM", "is /dev/kvm yours to open? or: auto"),
    Accelerator.TCG: ("emulation, which counts instructions, too,", "install a QEMU with TCG, or: --accelerator kvm"),
}


def remembered(hypervisor: Hypervisor) -> tuple[Accelerator, datetime] | None:
    """The answer that :func:`choose_accelerator` found by booting on this host, and when; None if there is none."""
    known = recall().get(_key(hypervisor))
    # The file holds one answer, and is rewritten only for a new one.
    return None if known is None else (known, datetime.fromtimestamp(accelerator_file().stat().st_mtime).astimezone())


def _key(hypervisor: Hypervisor) -> str:
    return f"{host_facts().boot_id} qemu {hypervisor.qemu_version} uid {os.getuid()} embedded {hypervisor.embedded}"


def _boots(hypervisor: Hypervisor, spec: DomainSpec, accelerator: Accelerator, deadline_s: float) -> bool:
    """Whether the kernel prints its banner; it gets no root disk to go on with."""
    probe = replace(
        spec,
        name=f"{spec.name}-{accelerator}",
        accelerator=accelerator,
        console=spec.console.with_name(f"{spec.console.name}.{accelerator}"),
        root=None,
        root_base=None,
        disks=(),
        vcpus=1,
        memory_bytes=_PROBE_MEMORY_BYTES,
    )
    console = Console()

    def banner() -> bool | None:
        running = domain.is_running()
        console.feed(domain.read_console())
        return True if console.banner else None if running else False

    try:
        with hypervisor.start(probe) as domain:
            return Deadline("kernel banner", deadline_s).poll(banner)
    except (DeadlineExpired, InfraError):  # libvirt may offer a KVM that QEMU then cannot open
        return False
    finally:
        probe.console.unlink(missing_ok=True)


def distribution_kernel() -> Path | None:
    """The distribution's newest kernel image that this user may read; None if there is none."""
    images = [image for image in _BOOT.glob("vmlinuz-*") if os.access(image, os.R_OK)]
    return max(images, key=lambda image: image.stat().st_mtime, default=None)
