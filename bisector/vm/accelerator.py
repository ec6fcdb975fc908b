"""KVM or emulation, decided by booting something.

That /dev/kvm opens and answers proves nothing: inside some virtual machines a KVM guest never
leaves its firmware. So a kernel that we have is started under KVM, and the answer is on its console.
"""

import json
import os
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from bisector.config import Accelerator
from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError, UserError
from bisector.host.load import host_facts
from bisector.vm.base import Domain, Hypervisor
from bisector.vm.console import Console
from bisector.vm.definition import DomainSpec

MEMORY = "accelerator.json"  # in the cache directory
_PROBE_MEMORY_BYTES = 512 << 20


def choose_accelerator(
    wanted: Accelerator, hypervisor: Hypervisor, spec: DomainSpec, memory: Path, deadline_s: float = 15.0
) -> Accelerator:
    """The accelerator for this host; AUTO boots ``spec``'s kernel at most twice, and remembers.

    ``memory`` is a JSON file in the user's cache; an answer holds until the host boots again
    or QEMU changes. Raises :class:`UserError` when KVM is asked for and libvirt does not offer it.
    """
    check_available(wanted, hypervisor)
    if wanted is not Accelerator.AUTO:
        return wanted
    if not hypervisor.offers(Accelerator.KVM):
        return Accelerator.TCG
    key = _key(hypervisor)
    known = _recall(memory).get(key)
    if known is not None:
        return known
    if _boots(hypervisor, spec, Accelerator.KVM, deadline_s):
        _remember(memory, key, Accelerator.KVM)
        return Accelerator.KVM
    # Emulated it starts: the kernel is sound, KVM is not. Otherwise this kernel is no judge; ask the next one.
    if _boots(hypervisor, spec, Accelerator.TCG, 2 * deadline_s):
        _remember(memory, key, Accelerator.TCG)
    return Accelerator.TCG


def check_available(wanted: Accelerator, hypervisor: Hypervisor) -> None:
    """Raise :class:`UserError` when KVM is asked for and libvirt does not offer it."""
    if wanted is Accelerator.KVM and not hypervisor.offers(Accelerator.KVM):
        raise UserError("KVM is asked for and this host does not offer it", "is /dev/kvm yours to open? or: auto")


def remembered(hypervisor: Hypervisor, memory: Path) -> tuple[Accelerator, datetime] | None:
    """What :func:`choose_accelerator` found out on this host by booting, and when; None if it has not yet."""
    known = _recall(memory).get(_key(hypervisor))
    # The file holds one answer, and is written when there is a new one.
    return None if known is None else (known, datetime.fromtimestamp(memory.stat().st_mtime).astimezone())


def _key(hypervisor: Hypervisor) -> str:
    return f"{host_facts().boot_id} qemu {hypervisor.qemu_version} uid {os.getuid()} embedded {hypervisor.embedded}"


def _boots(hypervisor: Hypervisor, spec: DomainSpec, accelerator: Accelerator, deadline_s: float) -> bool:
    """Whether the kernel prints its banner; it has no root to go on to."""
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
    try:
        with hypervisor.start(probe) as domain:
            return Deadline("kernel banner", deadline_s).poll(lambda: _answer(domain, console))
    except (DeadlineExpired, InfraError):  # libvirt may offer KVM that QEMU then cannot open
        return False
    finally:
        probe.console.unlink(missing_ok=True)


def _answer(domain: Domain, console: Console) -> bool | None:
    running = domain.is_running()
    console.feed(domain.read_console())
    if console.banner:
        return True
    return None if running else False


def _recall(memory: Path) -> dict[str, Accelerator]:
    with suppress(OSError, ValueError, AttributeError):  # absent, or not ours: the probe is repeated
        stored = json.loads(memory.read_text(encoding="utf-8"))
        return {str(key): Accelerator(value) for key, value in stored.items()}
    return {}


def _remember(memory: Path, key: str, accelerator: Accelerator) -> None:
    """Only the newest answer is kept: earlier ones belong to an earlier boot or another QEMU."""
    memory.parent.mkdir(parents=True, exist_ok=True)
    draft = memory.with_name(f"{memory.name}.{os.getpid()}")
    draft.write_text(json.dumps({key: accelerator.value}), encoding="utf-8")
    draft.replace(memory)
