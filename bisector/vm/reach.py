"""Whether the QEMU of a libvirt daemon can use files of ours, found out by having it do so.

Which files a daemon's QEMU may open is a matter of users, of AppArmor or SELinux, of mounts that refuse root.
All of them speak when a guest starts. A minute of that is well spent before an hour of compiling.
"""

from pathlib import Path

from bisector.config import EMBEDDED, Accelerator
from bisector.core.errors import InfraError, UserError
from bisector.host.files import scratch
from bisector.vm.base import Hypervisor
from bisector.vm.definition import DiskSource, DiskSpec, DomainSpec, SourceKind, free_port
from bisector.vm.machine import domain_prefix

_MEMORY_BYTES = 64 << 20
# QEMU loads anything as a kernel of old that has its four default setup sectors (Documentation/arch/x86/boot.rst).
_KERNEL_BYTES = 4096
_DISK_BYTES = 1 << 20


def check_reach(hypervisor: Hypervisor, run_dir: Path, cache: Path) -> None:
    """Start a guest with a kernel in ``cache`` and a disk in ``run_dir``, directories that are there.

    Raises :class:`UserError` with the words of libvirt or QEMU.
    """
    with (
        scratch("reach", cache) as there,
        scratch("reach", run_dir) as here,
    ):
        kernel, disk = there / "kernel", here / "disk.img"
        kernel.write_bytes(bytes(_KERNEL_BYTES))
        disk.write_bytes(bytes(_DISK_BYTES))
        spec = DomainSpec(
            name=f"{domain_prefix(run_dir)}reach",
            kernel=kernel,
            console=here / "console",
            ssh_port=free_port(),
            accelerator=Accelerator.TCG,
            disks=(DiskSpec("disk", DiskSource(SourceKind.FILE, str(disk)), direct=False),),
            vcpus=1,
            memory_bytes=_MEMORY_BYTES,
            run_as=hypervisor.run_as,
        )
        try:
            hypervisor.start(spec).destroy()
        except InfraError as error:
            raise UserError(
                f"libvirt's QEMU cannot work with files in {run_dir} and {cache}: {error}",
                "is it denied by AppArmor or SELinux (dmesg | grep -i denied)? name places that it may use: --run-dir "
                f"DIRECTORY and XDG_CACHE_HOME=DIRECTORY; or do without the daemon: --connect {EMBEDDED}",
            ) from error
