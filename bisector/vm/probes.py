"""Probes for what this host needs to run guests: libvirt, QEMU, KVM, a working accelerator, the guest's image.

Only booting something decides between KVM and emulation. That /dev/kvm opens and answers proves nothing: inside some
virtual machines a KVM guest never leaves its firmware. So an available kernel is started under KVM, and its console
shows the answer.
"""

import grp
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from bisector.config import EMBEDDED, Accelerator, MachineSettings, StorageSettings
from bisector.core import resources
from bisector.core.errors import Finding, Grade, InfraError, UserError
from bisector.core.units import size
from bisector.host import files
from bisector.host.packages import install
from bisector.vm.accelerator import (
    KVM_DEVICE,
    accelerator_file,
    boots_under,
    check_offered,
    choose_accelerator,
    counted_bytes,
    distribution_kernel,
    known_accelerator,
    remember,
    remembered,
    room_for_counted,
    uses_own_image_or_disk,
)
from bisector.vm.definition import (
    DiskSpec,
    DomainSpec,
    InstructionClock,
    domain_prefix,
    free_port,
)
from bisector.vm.driver import GUEST_USERS, LibvirtHypervisor, guest_user, open_hypervisor
from bisector.vm.image import GuestImage, check_namespaces, check_programs, find_image, find_overlay_tool
from bisector.vm.image import own_image as read_own_image
from bisector.vm.mailbox import wire

_PROC_CPUINFO = Path("/proc/cpuinfo")
_GROUP_RIGHTS = stat.S_IRGRP | stat.S_IWGRP
# Each vendor's virtualization flag, and the module that serves it (kvm-intel and kvm-amd of arch/x86/kvm).
_KVM_MODULES = {"vmx": "kvm_intel", "svm": "kvm_amd"}
_REACH_MEMORY_BYTES = 64 << 20
# QEMU loads any file as an old kernel with the default of four setup sectors (Documentation/arch/x86/boot.rst).
_REACH_KERNEL_BYTES = 4096
_SECTOR_BYTES = 512
# kvm-trial.S, assembled.
_KVM_TRIAL = bytes.fromhex(
    "fafc8cc88ed831c08ec0bf0010b90018f3ab26c7060010032026c7060020033026c70600308300660f0116a8000f20e06683c820"
    "0f22e066b8001000000f22d866b9800000c00f32660d000100000f300f20c0660d010000800f22c066ea640209000800b980f0fa"
    "02ffc975fcbaf8030000488d350b000000ac84c07403eeebf8f4ebfd4c696e75782076657273696f6e20300a000f1f0000000000"
    "0000000000000000009a20000f0098020900"
)
_REACH_DISK_BYTES = 1 << 20
_LOOP_S = 10.0  # within which try_kvm() waits for the end of its loop


def libvirt(machine: MachineSettings, scratch: Path) -> Finding:
    """Whether libvirt answers at its address, and in which versions; raises :class:`UserError` if not."""
    with _opened(machine, scratch) as hypervisor:
        return Finding("libvirt", Grade.OK, f"{machine.connect} answers; {hypervisor.versions}")


def qemu(machine: MachineSettings, scratch: Path) -> Finding:
    """QEMU as libvirt finds it, whether it has the chosen accelerator, and the user that guests run as.

    Raises :class:`UserError` without QEMU or the chosen accelerator.
    """
    program = shutil.which("qemu-system-x86_64")
    try:
        opened = _opened(machine, scratch)
    except UserError:
        if program is None:
            return Finding("qemu", Grade.MISSING, "qemu-system-x86_64 is not installed", install("qemu-system-x86"))
        return Finding("qemu", Grade.INFO, f"{program}; libvirt does not answer, so it is not known whether it is used")
    with opened as hypervisor:
        version = hypervisor.qemu_version
        check_offered(machine.accelerator, hypervisor)
        what = f"{version}, as libvirt finds it"
    user = guest_user() if machine.connect == EMBEDDED else None
    if os.geteuid() != 0 or user is not None:
        return Finding("qemu", Grade.OK, f"{what}; guests run as {'this user' if user is None else user.pw_name}")
    elsewhere = f"with --connect {EMBEDDED} where there is a user {' or '.join(GUEST_USERS)}"
    return Finding(
        "qemu",
        Grade.WARN,
        f"{what}; guests run as root: what breaks out of one can do anything here",
        f"start bisector as another user, or {elsewhere}",
    )


def reach(machine: MachineSettings, scratch: Path, run_dir: Path) -> Finding:
    """Whether QEMU can use the files of a run; raises :class:`UserError` with the message of libvirt or QEMU if not.

    A guest is started with a kernel in the cache and a disk in the run directory, or in existing directories above. A
    counted guest has memory in files of both, and pipes instead of the disk, which libvirt does not know about.

    Whether a daemon's QEMU may open a file depends on users, on AppArmor or SELinux, and on mounts that refuse root.
    All of these show when a guest starts. Spending a minute on that pays off before an hour of compiling.
    """
    row = "libvirt's reach"
    if machine.connect == EMBEDDED:
        return Finding(row, Grade.INFO, "not checked: QEMU is started by this process, and opens files as this user")
    try:
        opened = _opened(machine, scratch)
    except UserError:
        return Finding(row, Grade.INFO, "libvirt does not answer, so it is not known which files it can use")
    run_dir, cache = files.nearest(run_dir), files.nearest(resources.cache_home())
    with opened as hypervisor, files.scratch("reach", cache) as there, files.scratch("reach", run_dir) as here:
        kernel, disk = there / "kernel", here / "disk.img"
        kernel.write_bytes(bytes(_REACH_KERNEL_BYTES))
        disk.write_bytes(bytes(_REACH_DISK_BYTES))
        spec = replace(
            _spec(kernel, here),
            name=f"{domain_prefix(run_dir)}reach",
            disks=(DiskSpec("disk", disk, direct=False),),
            vcpus=1,
            memory_bytes=_REACH_MEMORY_BYTES,
            run_as=hypervisor.run_as,
        )
        with ExitStack() as stack:
            if machine.is_counted:
                made = stack.enter_context(wire(here))
                root = there / "root"
                root.write_bytes(bytes(_REACH_DISK_BYTES))
                clock = InstructionClock(0, made.memory, made.bells, min(os.sched_getaffinity(0)))
                spec = replace(spec, disks=(), root_base=root, counted=clock)
            try:
                hypervisor.start(spec).destroy()
            except InfraError as error:
                raise UserError(
                    f"libvirt's QEMU cannot work with files in {run_dir} and {cache}: {error}",
                    "is it denied by AppArmor or SELinux (dmesg | grep -i denied)? name places that it may use: "
                    f"--run-dir DIRECTORY and XDG_CACHE_HOME=DIRECTORY; or do without the daemon: --connect {EMBEDDED}",
                ) from error
    return Finding(row, Grade.OK, "its QEMU starts with files of the run directory and of the cache")


def qemu_img() -> Finding:
    """The path of the program that makes a guest's throw-away disk; raises :class:`UserError` if it is missing."""
    return Finding("qemu-img", Grade.OK, find_overlay_tool())


def kvm(device: Path = KVM_DEVICE, cpuinfo: Path = _PROC_CPUINFO) -> Finding:
    """Whether this user may use KVM; :func:`accelerator` tells whether a guest then runs."""
    if not device.exists():
        flags = set(cpuinfo.read_text(encoding="utf-8", errors="replace").split())
        for flag, module in _KVM_MODULES.items():
            if flag in flags:
                return Finding(
                    "kvm",
                    Grade.WARN,
                    f"there is no {device}, and the CPU has {flag}",
                    f"{'' if os.geteuid() == 0 else 'sudo '}modprobe {module}",
                )
        return Finding("kvm", Grade.INFO, f"there is no {device}, and this CPU offers no virtualization")
    status = device.stat()
    group = _group(status.st_gid)
    rights = f"{device} belongs to group {group}, mode {status.st_mode & 0o777:04o}"
    if os.access(device, os.R_OK | os.W_OK):
        return Finding("kvm", Grade.OK, f"{rights}: this user may read and write it")
    # Joining the group helps only if the group has the rights; it takes effect at the next login.
    join = f"sudo usermod --append --groups {group} $USER"
    allow = f"sudo setfacl --modify user:$USER:rw {device}"
    by_group = status.st_mode & _GROUP_RIGHTS == _GROUP_RIGHTS and status.st_gid != 0
    return Finding("kvm", Grade.WARN, f"{rights}: this user may not use it", join if by_group else allow)


def accelerator(
    machine: MachineSettings, scratch: Path, kernel: Path | None, on_note: Callable[[str], None]
) -> Finding:
    """The accelerator that guests run under here, and how it is known; if no boot has shown it yet, one is tried now.

    ``kernel`` is the image to boot for that; None stands for a distribution's kernel in /boot. Raises
    :class:`UserError` if libvirt does not answer.
    """
    if machine.accelerator is not Accelerator.AUTO:
        return Finding("accelerator", Grade.INFO, f"{machine.accelerator}, set by machine.accelerator; not tried")
    with _opened(machine, scratch) as hypervisor:
        try:
            offered = hypervisor.offers(Accelerator.KVM)
        except InfraError as error:
            return Finding("accelerator", Grade.WARN, f"not known: {error}")
        if not offered:
            return Finding("accelerator", Grade.WARN, "tcg, emulation: libvirt does not offer KVM here")
        known = remembered(hypervisor)
        if known is None:
            image = kernel or distribution_kernel()
            if image is None:
                what = "not known yet: KVM is tried by booting the first kernel that is built"
                return Finding("accelerator", Grade.INFO, what)
            on_note(f"accelerator: booting {image} under KVM, and without it if need be; at most 45 s, once per boot")
            choose_accelerator(Accelerator.AUTO, hypervisor, _spec(image, scratch))
            known = remembered(hypervisor)
    return _chosen(known)


def _chosen(known: tuple[Accelerator, datetime] | None) -> Finding:
    if known is None:
        what = "tcg, emulation: the kernel tried prints nothing, with KVM or without; the next one is tried again"
        return Finding("accelerator", Grade.WARN, what)
    chosen, at = known
    when = f"tried {at:%Y-%m-%d %H:%M}"
    if chosen is Accelerator.KVM:
        return Finding("accelerator", Grade.OK, f"kvm: a kernel booted under it ({when})")
    what = f"tcg, emulation: KVM is offered, but what runs without it does not under it ({when})"
    again = f"rm {accelerator_file()}  # has it tried again, after a change of this host"
    return Finding("accelerator", Grade.WARN, what, again)


def clock(machine: MachineSettings, storage: StorageSettings, scratch: Path) -> Finding:
    """The clock of guests, what the other clock would give here, and the memory that counted guests take."""
    try:
        opened = _opened(machine, scratch)
    except UserError:
        return Finding(_CLOCK, Grade.INFO, "libvirt does not answer, so it is not known what guests run under")
    with opened as hypervisor:
        counts, by_kvm = (hypervisor.offers(one) for one in (Accelerator.TCG, Accelerator.KVM))
    known = known_accelerator(replace(machine, accelerator=Accelerator.AUTO)) if by_kvm else Accelerator.TCG
    room = room_for_counted(machine, storage)
    takes = (
        f"a guest takes up to {size(counted_bytes(machine, storage))} of memory, and there is room for {room} at once"
    )
    if machine.is_counted:
        what = f"{machine.instruction_ns} ns an instruction, with the same figures each time; {takes}; {_OTHER[known]}"
        return Finding(_CLOCK, Grade.OK if room else Grade.WARN, what)
    if not counts:
        other = "this QEMU does not emulate, and counts no instructions"  # -icount needs TCG (qemu(1))
    elif uses_own_image_or_disk(machine, storage):
        other = "counted time (--clock instructions) does not go with an image or disks of your own"
    else:
        other = f"--clock instructions has the same figures each time: {takes}"
    return Finding(_CLOCK, Grade.INFO, f"{_HOSTS[known]}; {other}")


_CLOCK = "guest clock"
_HOSTS = {
    Accelerator.KVM: "the host's: under KVM the CPUs are real ones, with their caches",
    Accelerator.TCG: "the host's: emulated guests are as fast as this host is at the time",
    None: "the host's: whether KVM works here is not known yet",
}
_OTHER = {
    Accelerator.KVM: "KVM works here: by the host's clock CPUs are real ones, with their caches",
    Accelerator.TCG: "by the host's clock guests are emulated too, and as fast as this host is at the time",
    None: "by the host's clock guests run under KVM if a kernel boots under it",
}


def try_kvm(machine: MachineSettings) -> Accelerator | None:
    """Return TCG, and remember it, if a loop ends in time without KVM but not under KVM; None if it ends under KVM.

    Then only a kernel that boots can decide (:func:`choose_accelerator`). Inside some virtual machines, KVM gets
    through the firmware and into long mode, but in ten seconds not through a loop that takes 0.1 s emulated. None also
    if libvirt does not answer, or does not say what it offers; TCG without a trial if it offers no KVM.
    """
    with ExitStack() as stack:
        place = stack.enter_context(files.scratch("kvm"))
        try:
            hypervisor = stack.enter_context(_opened(machine, place))
        except UserError:
            return None
        try:
            if not hypervisor.offers(Accelerator.KVM):
                return Accelerator.TCG
        except InfraError:  # libvirt does not say what it offers
            return None
        kernel = place / "kernel"
        kernel.write_bytes(kvm_trial())
        spec = replace(_spec(kernel, place), run_as=hypervisor.run_as)
        if boots_under(hypervisor, spec, _LOOP_S) is not Accelerator.TCG:
            return None
        remember(hypervisor, Accelerator.TCG)
        return Accelerator.TCG


def kvm_trial() -> bytes:
    """The program for :func:`try_kvm`, in the form of a kernel for QEMU."""
    return (bytes(_SECTOR_BYTES) + _KVM_TRIAL).ljust(_REACH_KERNEL_BYTES, b"\0")


def guest_image(machine: MachineSettings) -> Finding:
    """The guest's image, or whether it can be built; raises :class:`UserError` if it cannot."""
    if machine.image is not None:
        return Finding("guest image", Grade.OK, f"your own, {read_own_image(machine).root}")
    if (built := _built_image()) is not None:
        at = datetime.fromtimestamp(built.root.stat().st_mtime).astimezone()
        return Finding("guest image", Grade.OK, f"built {at:%Y-%m-%d %H:%M}: {built.root}")
    check_programs()
    what = "not built yet: the first start builds it, in about a minute, and needs the network"
    return Finding("guest image", Grade.WARN, what, "bisector image build")


def namespaces(machine: MachineSettings) -> Finding:
    """Whether this user can build the image; root needs no user namespaces for that."""
    row = "user namespaces"
    if os.geteuid() == 0:
        return Finding(row, Grade.INFO, "not needed: root builds the guest image")
    try:
        check_namespaces()
    except UserError as error:
        if machine.image is None and _built_image() is None:
            raise
        return Finding(row, Grade.INFO, f"not available, and not needed: the guest image exists ({error})")
    return Finding(row, Grade.OK, "with subordinate ids: this user can build the guest image")


def _built_image() -> GuestImage | None:
    return find_image(resources.vm_images(), resources.cache_home() / "images")


def _opened(machine: MachineSettings, scratch: Path) -> LibvirtHypervisor:
    return open_hypervisor(machine.connect, scratch, resources.cache_home() / "libvirt")


def _spec(kernel: Path, scratch: Path) -> DomainSpec:
    name = f"bisector-doctor-{os.getpid()}"
    return DomainSpec(name, kernel, scratch / "console", free_port(), Accelerator.TCG)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
